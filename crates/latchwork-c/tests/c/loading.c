/* The first use of a lock takes no lock of the loader's or the allocator's, and what it leaves in a thread goes with the
 * thread. With PLUGIN this is a library, which is loaded late; a program that has a case with it links nothing of
 * Latchwork itself. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>

#include "check.h"

/* What the plug-in and the thread that it asks have between them: two pipes. */
#define TASK "LOADING_TASK"
#define DONE "LOADING_DONE"

#ifdef PLUGIN
#include "classic.h"
#include "latchwork.h"

/* Each kind, once; and by a thread that does not get it, and is late already. */
#define KIND(kind, initialiser)                                                      \
	static void *wait_for_##kind(void *lock)                                     \
	{                                                                            \
		const struct timespec late = {0, 0};                                 \
		CHECK_IS(lw_mutex_clocklock((lw_##kind##_t *)lock, CLOCK_MONOTONIC, &late), ETIMEDOUT); \
		return lock;                                                         \
	}                                                                            \
	static void use_##kind(void)                                                 \
	{                                                                            \
		lw_##kind##_t lock = initialiser;                                    \
		CHECK_IS(lw_mutex_lock(&lock), 0);                                   \
		if (!is_handled)                                                     \
			join(start(wait_for_##kind, &lock));                         \
		CHECK_IS(lw_mutex_unlock(&lock), 0);                                 \
	}

static int is_handled;

KIND(mutex, LW_MUTEX_INITIALIZER)
KIND(tp_mutex, LW_TP_MUTEX_INITIALIZER)
KIND(pi_mutex, LW_PI_MUTEX_INITIALIZER)
KIND(plain_pi_mutex, LW_PLAIN_PI_MUTEX_INITIALIZER)
KIND(recursive_mutex, LW_RECURSIVE_MUTEX_INITIALIZER)
KIND(robust_mutex, LW_ROBUST_MUTEX_INITIALIZER)
KIND(robust_tp_mutex, LW_ROBUST_TP_MUTEX_INITIALIZER)
KIND(robust_pi_mutex, LW_ROBUST_PI_MUTEX_INITIALIZER)

/* They have the thread become a task of a region, which the first one makes. */
static void use_directives(void)
{
	rtems_event_set events;
	rtems_id semaphore;
	CHECK_IS(rtems_event_receive(RTEMS_EVENT_0, RTEMS_NO_WAIT, 0, &events), RTEMS_UNSATISFIED);
	CHECK_IS(rtems_event_receive(RTEMS_EVENT_0, RTEMS_WAIT, 1, &events), RTEMS_TIMEOUT);
	CHECK_IS(rtems_semaphore_create(rtems_build_name('L', 'O', 'A', 'D'), 1, RTEMS_DEFAULT_ATTRIBUTES, 0, &semaphore),
		 RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_obtain(semaphore, RTEMS_WAIT, RTEMS_NO_TIMEOUT), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_release(semaphore), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_delete(semaphore), RTEMS_SUCCESSFUL);
}

/* Any argument: no other thread is to be made. */
void *use_all(void *argument);
void *use_all(void *argument)
{
	lw_rwlock_t table = LW_RWLOCK_INITIALIZER;
	lw_robust_rwlock_t robust_table = LW_ROBUST_RWLOCK_INITIALIZER;
	lw_cond_t cond = LW_COND_INITIALIZER;
	lw_sem_t semaphore = LW_SEM_INITIALIZER(1);
	lw_completion_t completion = LW_COMPLETION_INITIALIZER;
	is_handled = argument != NULL;
	use_mutex();
	use_tp_mutex();
	use_pi_mutex();
	use_plain_pi_mutex();
	use_recursive_mutex();
	use_robust_mutex();
	use_robust_tp_mutex();
	use_robust_pi_mutex();
	CHECK_IS(lw_rwlock_rdlock(&table), 0);
	CHECK_IS(lw_rwlock_unlock(&table), 0);
	CHECK_IS(lw_rwlock_wrlock(&robust_table), 0);
	CHECK_IS(lw_rwlock_unlock(&robust_table), 0);
	lw_cond_signal(&cond);
	CHECK_IS(lw_sem_wait(&semaphore), 0);
	lw_completion_complete(&completion);
	CHECK_IS(lw_completion_wait(&completion), 0);
	if (!is_handled)
		use_directives();
	return argument;
}

/* A thread of its own, and one that is older than this library. */
static void in_threads(void)
{
	const char *task = getenv(TASK), *done = getenv(DONE);
	void *(*body)(void *) = use_all;
	char byte;
	join(start(use_all, NULL));
	if (task != NULL) {
		CHECK(write(atoi(task), &body, sizeof body) == sizeof body);
		CHECK(read(atoi(done), &byte, 1) == 1);
	}
}

__attribute__((constructor)) static void construct(void)
{
	if (getenv("LOADING_QUIETLY") == NULL)
		in_threads();
}

__attribute__((destructor)) static void destruct(void)
{
	if (getenv("LOADING_QUIETLY") == NULL)
		in_threads();
}

#else

static const char *path;
static int task[2], done[2];

static void *load(void)
{
	void *library = dlopen(path, RTLD_NOW);
	if (library == NULL)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(library != NULL);
	return library;
}

typedef void *body_t(void *);

static body_t *body_of(void *library)
{
	body_t *body;
	*(void **)&body = dlsym(library, "use_all");
	CHECK(body != NULL);
	return body;
}

/* Executes commands until there is none. */
static void *obey(void *unused)
{
	for (;;) {
		body_t *body;
		CHECK(read(task[0], &body, sizeof body) == sizeof body);
		if (body == NULL)
			return unused;
		body(NULL);
		CHECK(write(done[1], "", 1) == 1);
	}
}

static void tell(body_t *body)
{
	char byte;
	CHECK(write(task[1], &body, sizeof body) == sizeof body);
	if (body != NULL)
		CHECK(read(done[0], &byte, 1) == 1);
}

static void share_pipes(void)
{
	char text[16];
	CHECK(pipe(task) == 0 && pipe(done) == 0);
	snprintf(text, sizeof text, "%d", task[1]);
	setenv(TASK, text, 1);
	snprintf(text, sizeof text, "%d", done[0]);
	setenv(DONE, text, 1);
}

/* In constructors and destructors, with other keys or without: all there are but some, so many are left. */
static void joined(int taken)
{
	pthread_t old;
	pthread_key_t key;
	while (taken-- > 0)
		CHECK_IS(pthread_key_create(&key, NULL), 0);
	share_pipes();
	old = start(obey, NULL);
	CHECK_IS(dlclose(load()), 0);
	CHECK_IS(dlclose(load()), 0);
	tell(NULL);
	join(old);
}

/* Threads that have locked end after the library was closed. */
static void closed(void)
{
	void *library;
	pthread_t old;
	setenv("LOADING_QUIETLY", "", 1);
	share_pipes();
	old = start(obey, NULL);
	library = load();
	tell(body_of(library));
	CHECK_IS(dlclose(library), 0);
	tell(NULL);
	join(old);
}

/* Pages that are mapped. */
static long mapped(void)
{
	long pages;
	FILE *statm = fopen("/proc/self/statm", "r");
	CHECK(statm != NULL && fscanf(statm, "%ld", &pages) == 1);
	fclose(statm);
	return pages;
}

/* A thread leaves nothing behind, though another library's key has it lock again as it ends; nor does one that finds
 * all keys taken. */
static body_t *late_body;
static pthread_key_t late_key;

static void lock_late(void *value)
{
	late_body(value);
}

static void *lock_once(void *unused)
{
	late_body(&late_key);
	return unused;
}

static void *lock_twice(void *unused)
{
	CHECK_IS(pthread_setspecific(late_key, &late_key), 0);
	return lock_once(unused);
}

static void ended(int keys)
{
	enum { THREADS = 100 };
	long before = 0;
	int thread;
	pthread_key_t key;
	setenv("LOADING_QUIETLY", "", 1);
	CHECK_IS(pthread_key_create(&late_key, lock_late), 0);
	if (!keys)
		while (pthread_key_create(&key, NULL) == 0)
			;
	late_body = body_of(load());
	for (thread = 0; thread < THREADS; thread++) {
		join(start(keys ? lock_twice : lock_once, NULL));
		/* What the first ones need stays. */
		if (thread == 9)
			before = mapped();
	}
	CHECK(mapped() < before + THREADS / 4);
}

/* A handler is the first to lock, while its thread is inside the allocator. */
static int is_inside, has_raised;
static char memory[1 << 24] __attribute__((aligned(16)));
static size_t used;

static void *allocate(size_t bytes)
{
	/* Of every thread there is; the only one that may come back here is a handler's. */
	void *block;
	while (__atomic_exchange_n(&is_inside, 1, __ATOMIC_ACQUIRE) != 0)
		if (__atomic_load_n(&has_raised, __ATOMIC_RELAXED) == 1) {
			static const char says[] = "the first use of a lock allocates\n";
			if (write(2, says, sizeof says - 1) < 0)
				_exit(2);
			_exit(1);
		}
	block = memory + used;
	used += (bytes + 31) & ~(size_t)15;
	if (used > sizeof memory)
		_exit(3);
	*(size_t *)block = bytes;
	if (has_raised == -1) {
		has_raised = 1;
		raise(SIGUSR1);
		has_raised = 2;
	}
	__atomic_store_n(&is_inside, 0, __ATOMIC_RELEASE);
	return (char *)block + 16;
}

#ifdef OWN_MALLOC
void *malloc(size_t bytes) { return allocate(bytes); }
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t bytes) { return allocate(count * bytes); }
void *realloc(void *block, size_t bytes)
{
	void *larger = allocate(bytes);
	if (block != NULL) {
		size_t before = *(size_t *)((char *)block - 16);
		memcpy(larger, block, before < bytes ? before : bytes);
	}
	return larger;
}
#endif

static void handle(int signal)
{
	(void)signal;
	late_body(&late_body);
}

static void *allocate_once(void *unused)
{
	has_raised = -1;
	free(allocate(1));
	CHECK_IS(has_raised, 2);
	return unused;
}

static void handled(void)
{
	setenv("LOADING_QUIETLY", "", 1);
	late_body = body_of(load());
	CHECK(signal(SIGUSR1, handle) != SIG_ERR);
	join(start(allocate_once, NULL));
}

int main(int count, char **arguments)
{
	const char *what;
	CHECK_IS(count, 3);
	path = arguments[1];
	what = arguments[2];
	if (strcmp(what, "joined") == 0)
		joined(0);
	else if (strcmp(what, "many keys") == 0)
		joined(40);
	else if (strcmp(what, "closed") == 0)
		closed();
	else if (strcmp(what, "ended") == 0)
		ended(1);
	else if (strcmp(what, "ended without a key") == 0)
		ended(0);
	else if (strcmp(what, "handled") == 0)
		handled();
	else
		CHECK(0);
	puts("loaded");
	return 0;
}
#endif

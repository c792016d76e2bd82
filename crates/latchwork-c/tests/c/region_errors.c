/*
 * Errors of regions, and of locks and queues in them, that the manual lists and that the other programs here do not
 * provoke: each is cited by its page. What needs a right that the process lacks is skipped by name. In C and in C++.
 */
#include "latchwork.h"

#include "check.h"

#include <latchwork/queue.h>
#include <latchwork/region.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define NOBODY 65534

static void skip(const char *what)
{
	fprintf(stderr, "skipped: %s\n", what);
}

/* What `body` returns in a child. */
static int in_child(int (*body)(void))
{
	pid_t child = fork();
	if (child == 0)
		_exit(body());
	CHECK(child > 0);
	return exit_of(child);
}

/* ---- a region of which the caller cannot become a task ---- */

struct field {
	lw_region_mutex_t mutex;
	lw_region_rwlock_t rwlock;
	lw_region_once_t once;
	lw_shared_cond_t changed;
};

static lw_region_t *make_region(uint32_t max_tasks, unsigned flags, struct field **field)
{
	lw_region_t *region = NULL;
	struct lw_region_options options;
	void *object = NULL;
	memset(&options, 0, sizeof options);
	options.max_bytes = 1 << 20;
	options.max_tasks = max_tasks;
	options.flags = flags;
	CHECK_IS(lw_region_create(&region, NULL, &options), 0);
	CHECK_IS(lw_region_object(region, "field", 1, sizeof **field, NULL, NULL, &object), 0);
	*field = (struct field *)object;
	CHECK_IS(lw_cond_init(&(*field)->changed), 0);
	return region;
}

static void locks_are_refused(struct field *field, int error)
{
	CHECK_IS(lw_mutex_lock(&field->mutex), error);
	CHECK_IS(lw_rwlock_wrlock(&field->rwlock), error);
	CHECK_IS(lw_rwlock_rdlock(&field->rwlock), error);
	CHECK_IS(lw_once(&field->once, abort), error);
}

struct full {
	lw_region_t *region;
	lw_queue_t *queue;
	struct field *field;
};

static void *find_no_slot(void *argument)
{
	struct full *full = (struct full *)argument;
	/* lw_mutex(3), EAGAIN: the region already has its maximum number of tasks */
	/* lw_rwlock(3), EAGAIN: the caller cannot become a task of its region */
	/* lw_once(3), EAGAIN: the caller cannot become a task of its region */
	locks_are_refused(full->field, EAGAIN);
	/* lw_region(3), EAGAIN: The region already has its maximum number of tasks */
	CHECK_IS(lw_region_join(full->region, NULL), EAGAIN);
	/* lw_queue(3), EAGAIN: The region already has its maximum number of tasks */
	CHECK_IS(lw_queue_trysend(full->queue, "", 0, 0), EAGAIN);
	CHECK(strstr(lw_error_text(), "task") != NULL);
	return NULL;
}

static void full_regions(void)
{
	struct full full;
	void *object;
	int number, error = 0;
	full.region = make_region(1, 0, &full.field);
	CHECK_IS(lw_queue_create(&full.queue, full.region, "queue", 1, 8, LW_QUEUE_RACING), 0);
	join(start(find_no_slot, &full));
	/* lw_region(3), EBUSY: Queues that were opened with this handle are still open */
	CHECK_IS(lw_region_detach(full.region), EBUSY);
	CHECK_IS(lw_queue_close(full.queue), 0);
	for (number = 0; error == 0; number++) {
		char name[16];
		snprintf(name, sizeof name, "%d", number);
		error = lw_region_object(full.region, name, 1, 1, NULL, NULL, &object);
	}
	CHECK_IS(error, ENOSPC);
	/* lw_queue(3), ENOSPC: The region has no room for the queue, or for its name */
	CHECK_IS(lw_queue_create(&full.queue, full.region, "another", 1, 8, LW_QUEUE_RACING), ENOSPC);
	CHECK_IS(lw_region_detach(full.region), 0);
}

static void *wait_for_a_death(void *argument)
{
	struct field *field = (struct field *)argument;
	int error;
	CHECK_IS(lw_mutex_lock(&field->mutex), 0);
	do
		error = lw_cond_wait(&field->changed, &field->mutex);
	while (error == 0);
	/* lw_cond(3), EOWNERDEAD: an owner of it died during the wait */
	CHECK_IS(error, EOWNERDEAD);
	CHECK_IS(lw_mutex_consistent(&field->mutex), 0);
	CHECK_IS(lw_mutex_unlock(&field->mutex), 0);
	return NULL;
}

/* A process that locks the mutex, notifies a waiter, if there is one, and ends. */
static void end_as_owner(struct field *field)
{
	pid_t child = fork();
	if (child == 0)
		_exit(lw_mutex_lock(&field->mutex) != 0 || lw_cond_signal(&field->changed) != 0);
	CHECK_IS(exit_of(child), 0);
}

static void dead_owner(void)
{
	static lw_region_mutex_t outside;
	struct field *field;
	lw_region_t *region = make_region(4, 0, &field);
	pthread_t thread;
	/* lw_mutex(3), EINVAL: lies in no region that the calling process has attached */
	CHECK_IS(lw_mutex_lock(&outside), EINVAL);
	thread = start(wait_for_a_death, field);
	while (lw_cond_destroy(&field->changed) == 0)
		sched_yield();
	end_as_owner(field);
	join(thread);
	end_as_owner(field);
	/* lw_mutex(3), EBUSY: its owner has died, and no task has locked it since */
	CHECK_IS(lw_mutex_destroy(&field->mutex), EBUSY);
	CHECK_IS(lw_mutex_lock(&field->mutex), EOWNERDEAD);
	CHECK_IS(lw_mutex_consistent(&field->mutex), 0);
	CHECK_IS(lw_mutex_unlock(&field->mutex), 0);
	/* lw_region(3), EBUSY: the calling thread holds robust locks or region mutexes of the region */
	CHECK_IS(lw_mutex_lock(&field->mutex), 0);
	CHECK_IS(lw_region_detach(region), EBUSY);
	CHECK_IS(lw_mutex_unlock(&field->mutex), 0);
	CHECK_IS(lw_mutex_destroy(&field->mutex), 0);
	CHECK_IS(lw_region_detach(region), 0);
}

#define MOST_REGIONS 128

/* The calling thread becomes a task of it, and ends. */
static void *make_another(void *field)
{
	return make_region(2, 0, (struct field **)field);
}

static void many_regions(void)
{
	static lw_region_t *regions[MOST_REGIONS];
	struct field *field = NULL, *of_another = NULL;
	lw_region_t *another = (lw_region_t *)join(start(make_another, &of_another));
	lw_queue_t *queue;
	int count;
	for (count = 0; count < MOST_REGIONS; count++)
		regions[count] = make_region(2, 0, &field);
	/* lw_region(3), EMFILE: the thread is a task of too many regions */
	CHECK_IS(lw_region_join(another, NULL), EMFILE);
	/* lw_mutex(3), EMFILE: the calling thread is a task of too many regions */
	/* lw_rwlock(3), EMFILE: the caller cannot become a task of its region */
	/* lw_once(3), EMFILE: the caller cannot become a task of its region */
	locks_are_refused(of_another, EMFILE);
	/* lw_queue(3), EMFILE: The calling thread is a task of 128 regions already */
	CHECK_IS(lw_queue_create(&queue, NULL, NULL, 1, 8, LW_QUEUE_RACING), EMFILE);
	while (count-- > 0)
		CHECK_IS(lw_region_detach(regions[count]), 0);
	CHECK_IS(lw_mutex_lock(&of_another->mutex), 0);
	CHECK_IS(lw_mutex_unlock(&of_another->mutex), 0);
	CHECK_IS(lw_region_detach(another), 0);
}

static pthread_key_t last;
static volatile int rounds, last_error;
/* A queue without a region, which the calling thread has not used. */
static lw_queue_t *of_none;

static void run_last(void *field)
{
	/* The library's own end of the thread comes between two of these rounds at the latest. */
	if (++rounds < PTHREAD_DESTRUCTOR_ITERATIONS)
		CHECK_IS(pthread_setspecific(last, field), 0);
	else {
		/* lw_mutex(3), EPERM: the calling thread runs its last destructors */
		/* lw_rwlock(3), EPERM: the caller cannot become a task of its region */
		/* lw_once(3), EPERM: the caller cannot become a task of its region */
		locks_are_refused((struct field *)field, EPERM);
		/* lw_queue(3), EPERM: the calling thread runs its last destructors */
		CHECK_IS(lw_queue_send(of_none, "", 0, 0), EPERM);
		last_error = EPERM;
	}
}

static void *end_with_a_lock_call(void *field)
{
	CHECK_IS(lw_mutex_lock(&((struct field *)field)->mutex), 0);
	CHECK_IS(lw_mutex_unlock(&((struct field *)field)->mutex), 0);
	CHECK_IS(pthread_setspecific(last, field), 0);
	return NULL;
}

static void last_destructors(void)
{
	struct field *field;
	lw_region_t *region = make_region(4, 0, &field);
	CHECK_IS(lw_queue_create(&of_none, NULL, NULL, 1, 8, LW_QUEUE_RACING), 0);
	CHECK_IS(pthread_key_create(&last, run_last), 0);
	join(start(end_with_a_lock_call, field));
	CHECK_IS(last_error, EPERM);
	CHECK_IS(lw_queue_close(of_none), 0);
	CHECK_IS(pthread_key_delete(last), 0);
	CHECK_IS(lw_region_detach(region), 0);
}

/* ---- namespaces ---- */

static struct field *inherited;

static int lock_in_another_namespace(void)
{
	/* lw_mutex(3), EXDEV: the process is the child of a fork that belongs to another PID namespace */
	/* lw_rwlock(3), EXDEV: the caller cannot become a task of its region */
	/* lw_once(3), EXDEV: the caller cannot become a task of its region */
	locks_are_refused(inherited, EXDEV);
	/* lw_queue(3), EXDEV: the process is the child of a fork that belongs to another PID namespace than its parent */
	CHECK_IS(lw_queue_send(of_none, "", 0, 0), EXDEV);
	return 0;
}

static int fork_into_another_namespace(void)
{
	return unshare(CLONE_NEWPID) == 0 ? in_child(lock_in_another_namespace) : 77;
}

static char any_name[64];

static int lock_without_proc(void)
{
	lw_region_t *region;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("none", "/proc", "tmpfs", 0, NULL) != 0)
		return 77;
	/* lw_mutex(3), EXDEV: cannot be read */
	CHECK_IS(lw_mutex_lock(&inherited->mutex), EXDEV);
	/* lw_region(3), EXDEV: cannot be read */
	CHECK_IS(lw_region_attach(&region, any_name, NULL), EXDEV);
	return 0;
}

static int fork_without_proc(void)
{
	return unshare(CLONE_NEWNS) == 0 ? in_child(lock_without_proc) : 77;
}

static void namespaces(void)
{
	struct field *field;
	lw_region_t *region = make_region(4, 0, &field), *any = NULL;
	struct lw_region_options options;
	void *object = NULL;
	int status;
	inherited = field;
	CHECK_IS(lw_queue_create(&of_none, NULL, NULL, 1, 8, LW_QUEUE_RACING), 0);
	status = in_child(fork_into_another_namespace);
	if (status == 77)
		skip("the child of a fork in another PID namespace, which cannot be made here");
	else
		CHECK_IS(status, 0);
	CHECK_IS(lw_region_detach(region), 0);
	memset(&options, 0, sizeof options);
	options.max_bytes = 1 << 20;
	options.flags = LW_REGION_ANY_PID_NAMESPACE | LW_REGION_UNLINK_AT_LAST_DETACH;
	snprintf(any_name, sizeof any_name, "c-test-errors-%d", getpid());
	CHECK_IS(lw_region_create(&any, any_name, &options), 0);
	CHECK_IS(lw_region_object(any, "field", 1, sizeof *field, NULL, NULL, &object), 0);
	inherited = (struct field *)object;
	status = in_child(fork_without_proc);
	if (status == 77)
		skip("a process without /proc, which cannot be made here");
	else
		CHECK_IS(status, 0);
	CHECK_IS(lw_region_detach(any), 0);
	CHECK_IS(lw_queue_close(of_none), 0);
}

/* ---- lw_region(3): files ---- */

/* A named region that no process has, and a descriptor of its file. */
static void files(void)
{
	char name[64];
	lw_region_t *region = NULL;
	uint32_t version = 0, other;
	void *base, *blocked;
	int fd;
	snprintf(name, sizeof name, "c-test-files-%d", getpid());
	CHECK_IS(lw_region_create(&region, name, NULL), 0);
	base = lw_region_base(region);
	fd = dup(lw_region_fd(region));
	CHECK_IS(lw_region_detach(region), 0);

	blocked = mmap(base, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(blocked == base);
	/* lw_region(3), EADDRINUSE: Something else is mapped at the address of the region */
	CHECK_IS(lw_region_attach(&region, name, NULL), EADDRINUSE);
	CHECK_IS(munmap(blocked, 4096), 0);

	/* The version follows eight letters. */
	CHECK_IS(pread(fd, &version, sizeof version, 8), sizeof version);
	other = version + 1;
	CHECK_IS(pwrite(fd, &other, sizeof other, 8), sizeof other);
	/* lw_region(3), EPROTO: Another version of the library made the region */
	CHECK_IS(lw_region_attach(&region, name, NULL), EPROTO);
	CHECK_IS(pwrite(fd, &version, sizeof version, 8), sizeof version);

	if (getuid() == 0)
		CHECK_IS(fchown(fd, NOBODY, (gid_t)-1), 0);
	else
		CHECK_IS(fchmod(fd, 0), 0);
	/* lw_region(3), EACCES: The mode of the file forbids access, or another user owns the region */
	CHECK_IS(lw_region_attach(&region, name, NULL), EACCES);
	if (getuid() == 0)
		CHECK_IS(fchown(fd, 0, (gid_t)-1), 0);
	else
		CHECK_IS(fchmod(fd, 0600), 0);

	CHECK_IS(lw_region_attach(&region, name, NULL), 0);
	CHECK_IS(lw_region_detach(region), 0);
	CHECK_IS(lw_region_unlink(name), 0);
	CHECK_IS(close(fd), 0);
}

static void use_names(void *object, void *region)
{
	void *another;
	lw_region_t *within = (lw_region_t *)region;
	/* lw_region(3), EDEADLK: The function was called from within the function make */
	CHECK_IS(lw_region_object(within, "another", 1, 8, NULL, NULL, &another), EDEADLK);
	CHECK_IS(lw_region_find(within, "field", 1, sizeof(struct field), &another), EDEADLK);
	CHECK_IS(lw_region_remove(within, "field", 1, sizeof(struct field)), EDEADLK);
	*(int *)object = 1;
}

static void names(void)
{
	struct field *field;
	lw_region_t *region = make_region(2, 0, &field);
	void *object = NULL;
	CHECK_IS(lw_region_object(region, "made", 1, sizeof(int), use_names, region, &object), 0);
	CHECK_IS(*(int *)object, 1);
	CHECK_IS(lw_region_detach(region), 0);
}

int main(void)
{
	alarm(WATCHDOG);
	namespaces();
	dead_owner();
	full_regions();
	many_regions();
	last_destructors();
	files();
	names();
	puts("refused");
	return 0;
}

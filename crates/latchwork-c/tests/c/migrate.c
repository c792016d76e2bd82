/* The migration's types and calls, and the rules of mutexes. Compiled as C and as C++, plain and switched over. */
#include "migrate.h"

#include "check.h"

#include <signal.h>

static DEFINE_MUTEX(plain);
static DEFINE_MUTEX_DEBUG(checked);
static DECLARE_MUTEX(sem);
static DECLARE_ARCH_MUTEX(arch);
static DECLARE_ARCH_MUTEX_LOCKED(arch_locked);
static DECLARE_COMPLETION(done);
static long counts[4];

static void *count(void *argument)
{
	for (int round = 0; round < 2000; round++) {
		mutex_lock(&plain);
		counts[0]++;
		mutex_unlock(&plain);
		/* Either set of calls. */
		if (round % 2) {
			mutex_lock(&checked);
			counts[1]++;
			up(&checked);
		} else {
			down(&checked);
			counts[1]++;
			mutex_unlock(&checked);
		}
		down(&sem);
		counts[2]++;
		up(&sem);
		arch_down(&arch);
		counts[3]++;
		up(&arch);
	}
	return argument;
}

static char reported[8192];

/* One call may cause several reports. */
static void tell(const char *text)
{
	size_t length = strlen(reported);
	snprintf(reported + length, sizeof reported - length, "%s", text);
}

#define TOLD(text)                                                                                    \
	do {                                                                                          \
		if (strstr(reported, text) == NULL)                                                       \
			fprintf(stderr, "reported, instead of %s: %s\n", text, reported);                     \
		CHECK(strstr(reported, text) != NULL);                                                    \
		reported[0] = 0;                                                                          \
	} while (0)

static void *unlock_others(void *argument)
{
	mutex_unlock((struct mutex_debug *)argument);
	return NULL;
}

static void *end_with(void *argument)
{
	mutex_lock((struct mutex_debug *)argument);
	return NULL;
}

static void handle(int number)
{
	(void)number;
}

static pthread_t main_thread;

static void *interrupt(void *argument)
{
	/* Until it has been seen: a handler that runs before the sleep does not end it. */
	while (!__atomic_load_n((int *)argument, __ATOMIC_ACQUIRE)) {
		sleep_ms(2);
		pthread_kill(main_thread, SIGUSR1);
	}
	return NULL;
}

static DEFINE_MUTEX_DEBUG(first);
static DEFINE_MUTEX_DEBUG(second);
static lw_barrier_t meeting = LW_BARRIER_INITIALIZER(2);
static int refused;

static void *cross(void *backwards)
{
	struct mutex_debug *mine = backwards ? &second : &first, *others = backwards ? &first : &second;
	mutex_lock(mine);
	lw_barrier_wait(&meeting);
	if (mutex_lock_interruptible(others) == 0)
		mutex_unlock(others);
	else
		__atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
	mutex_unlock(mine);
	return NULL;
}

/* Tasks that wait for each other: the call that completes the cycle fails. */
static void deadlock_is_reported(void)
{
	pthread_t other = start(cross, &second);
	cross(NULL);
	join(other);
	CHECK(refused > 0);
	TOLD("[no-deadlock]");
}

static DEFINE_MUTEX_DEBUG(third);
static DEFINE_MUTEX_DEBUG(fourth);

static void nest(struct mutex_debug *outer, struct mutex_debug *inner)
{
	mutex_lock(outer);
	mutex_lock(inner);
	mutex_unlock(inner);
	mutex_unlock(outer);
}

static void *nest_back(void *argument)
{
	nest(&fourth, &third);
	return argument;
}

static void *nest_own(void *argument)
{
	/* Of one place, and each task's own. */
	struct mutex_debug own;
	mutex_init(&own);
	mutex_lock(&first);
	mutex_unlock(&first);
	lw_barrier_wait(&meeting);
	nest(&first, &own);
	nest(&own, &first);
	return argument;
}

/* Two orders of one task, and then of two; two of what is common and what is each task's own are none. */
static void orders(void)
{
	pthread_t other = start(nest_own, NULL);
	nest_own(NULL);
	join(other);
	CHECK_IS(reported[0], 0);
	nest(&third, &fourth);
	nest(&fourth, &third);
	TOLD("[one-task-order]");
	join(start(nest_back, NULL));
	TOLD("[one-order]");
}

/* Which semaphores and mutexes are checked. */
static void macros(void)
{
	static DECLARE_MUTEX(of_semaphores);
	static DEFINE_MUTEX(of_mutexes);
	static DECLARE_ARCH_MUTEX(of_arch_semaphores);
	/* lw_migrate(3) says: LATCHWORK_DEBUG_MUTEX_FULL makes each struct semaphore a checked mutex */
	up(&of_semaphores);
#ifdef LATCHWORK_DEBUG_MUTEX_FULL
	TOLD("[no-double-unlock]");
	CHECK_IS(sema_count(&of_semaphores), 1);
#else
	CHECK_IS(reported[0], 0);
	CHECK_IS(sema_count(&of_semaphores), 2);
#endif
	up(&of_arch_semaphores);
	CHECK_IS(sema_count(&of_arch_semaphores), 2);
	/* lw_migrate(3) says: LATCHWORK_DEBUG_MUTEXES makes each struct mutex a checked mutex */
	mutex_unlock(&of_mutexes);
#ifdef LATCHWORK_DEBUG_MUTEXES
	TOLD("[no-double-unlock]");
#endif
	CHECK_IS(reported[0], 0);
	CHECK_IS(mutex_trylock(&of_mutexes), 1);
	CHECK_IS(mutex_trylock(&of_mutexes), 0);
	mutex_unlock(&of_mutexes);
}

/* While the migration lasts, as in migrated.c. */
static void sizes(void)
{
	/* lw_migrate(3) says: The sizes and the behaviour of mutexes, semaphores and completions do not change */
	CHECK_IS(sizeof(struct arch_semaphore), sizeof(lw_sem_t));
	CHECK_IS(sizeof(struct completion), sizeof(lw_completion_t));
#ifdef LATCHWORK_DEBUG_MUTEXES
	CHECK_IS(sizeof(struct mutex), sizeof(struct mutex_debug));
#else
	CHECK_IS(sizeof(struct mutex), sizeof(lw_mutex_t));
#endif
}

static void rules(void)
{
	struct mutex_debug other, copy;
	struct {
		struct mutex_debug lock;
	} block;
	char memory[sizeof(struct mutex_debug)];
	mutex_debug_on_violation(tell);
	macros();
	orders();
	mutex_init(&other);
	mutex_lock(&other);
	CHECK_IS(mutex_lock_interruptible(&other), -EDEADLK);
	CHECK(strstr(reported, "mutex other") != NULL && strstr(reported, "migrate.c:") != NULL);
	TOLD("[no-recursion]");
	CHECK_IS(mutex_trylock(&other), 0);
	CHECK_IS(reported[0], 0);
	join(start(unlock_others, &other));
	TOLD("[owner-unlocks]");
	mutex_unlock(&other);
	CHECK_IS(reported[0], 0);
	mutex_unlock(&other);
	TOLD("[no-double-unlock]");
	copy = other;
	mutex_lock(&copy);
	TOLD("[not-copied]");
	mutex_unlock(&copy);
	TOLD("uses a copied or moved lock");

	mutex_init(&block.lock);
	mutex_lock(&block.lock);
	mutex_debug_check_free(memory, sizeof memory);
	CHECK_IS(reported[0], 0);
	mutex_init(&block.lock);
	TOLD("[not-remade-while-held]");
	mutex_lock(&block.lock);
	mutex_debug_check_free(&block, sizeof block);
	TOLD("[no-free-holding]");

	mutex_init(&other);
	join(start(end_with, &other));
	TOLD("[no-exit-holding]");
	memset(&other, 0, sizeof other);
	mutex_lock(&other);
	TOLD("[initialised-by-interface]");
	mutex_unlock(&other);
	memset(&other, 99, sizeof other);
	CHECK_IS(mutex_trylock(&other), 0);
	TOLD("uses an overwritten mutex");
	sema_init(&other, 3);
	TOLD("uses a count other than 0 and 1 to initialise");
	init_MUTEX_LOCKED(&other);
	CHECK_IS(down_trylock(&other), 1);
	/* Initialised as locked, without an owner: any task may release it. */
	join(start(unlock_others, &other));
	CHECK_IS(reported[0], 0);
	CHECK_IS(down_trylock(&other), 0);
	up(&other);
	CHECK_IS(reported[0], 0);
	deadlock_is_reported();
	mutex_lock(&checked);
	mutex_debug_show_held();
	mutex_unlock(&checked);
	mutex_debug_on_violation(NULL);
}

int main(void)
{
	pthread_t threads[4];
	struct sigaction action;
	int seen = 0;
	struct semaphore counting;
	struct arch_semaphore slots;

	/* Calls that can fail return an error instead of completing a cycle. */
	setenv("LATCHWORK_CHECK", "refuse", 1);
	for (int task = 0; task < 4; task++)
		threads[task] = start(count, NULL);
	for (int task = 0; task < 4; task++)
		join(threads[task]);
	for (int kind = 0; kind < 4; kind++)
		CHECK_IS(counts[kind], 8000);

	CHECK_IS(mutex_trylock(&plain), 1);
	CHECK_IS(mutex_trylock(&plain), 0);
	CHECK(mutex_is_locked(&plain));
	mutex_unlock(&plain);
	CHECK(!mutex_is_locked(&plain));
	CHECK_IS(mutex_lock_interruptible(&plain), 0);
	mutex_unlock(&plain);
	mutex_init(&plain);
	CHECK_IS(down_trylock(&sem), 0);
	CHECK_IS(down_trylock(&sem), 1);
	CHECK(sem_is_locked(&sem));
	up(&sem);
	CHECK_IS(sema_count(&sem), 1);
	init_MUTEX(&counting);
	down(&counting);
	up(&counting);
	init_MUTEX_LOCKED(&counting);
	CHECK_IS(down_trylock(&counting), 1);
	up(&counting);
	arch_sema_init(&slots, 3);
	sema_init(&slots, 2);
	arch_down(&slots);
	CHECK_IS(arch_down_trylock(&slots), 0);
	CHECK_IS(arch_down_trylock(&slots), 1);
	CHECK(arch_sem_is_locked(&slots));
	arch_up(&slots);
	CHECK_IS(arch_sema_count(&slots), 1);
	CHECK_IS(arch_down_interruptible(&slots), 0);
	arch_init_MUTEX(&slots);
	arch_init_MUTEX_LOCKED(&slots);
	CHECK(arch_sem_is_locked(&slots) && arch_sem_is_locked(&arch_locked));

	CHECK_IS(wait_for_completion_timeout(&done, 5), 0);
	complete(&done);
	CHECK(wait_for_completion_timeout(&done, 5 * HZ) > 0);
	complete_all(&done);
	wait_for_completion(&done);
	CHECK(completion_done(&done) && try_wait_for_completion(&done));
	INIT_COMPLETION(done);
	CHECK(!completion_done(&done));

	/* A signal ends the interruptible waits. */
	memset(&action, 0, sizeof action);
	action.sa_handler = handle;
	action.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &action, NULL);
	main_thread = pthread_self();
	threads[0] = start(interrupt, &seen);
	CHECK_IS(arch_down_interruptible(&slots), -EINTR);
	CHECK_IS(wait_for_completion_interruptible(&done), -EINTR);
	__atomic_store_n(&seen, 1, __ATOMIC_RELEASE);
	join(threads[0]);

	sizes();
	rules();
	puts("migrated");
	return 0;
}

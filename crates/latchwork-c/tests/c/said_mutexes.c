/*
 * What lw_mutex(3) says of mutexes: each sentence of its description, before the lines that show it; those of throughput
 * mutexes are in traced.c, too. In C and in C++. The test in manual.rs compares these sentences with the page.
 */
#include "said.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

LW_DEFINE_MUTEX(defined);
LW_DEFINE_SHARED_MUTEX(defined_shared);
LW_DEFINE_TP_MUTEX(defined_tp);
LW_DEFINE_PI_MUTEX(defined_pi);
LW_DEFINE_RECURSIVE_MUTEX(defined_recursive);
LW_DEFINE_ROBUST_MUTEX(defined_robust);
LW_DEFINE_PP_MUTEX(defined_pp, 7);
static lw_spin_t spin = LW_SPIN_INITIALIZER;
static lw_robust_tp_mutex_t robust_tp = LW_ROBUST_TP_MUTEX_INITIALIZER;
static lw_robust_mutex_t robust = LW_ROBUST_MUTEX_INITIALIZER;

/* What another thread gets from one call. */
#define ELSEWHERE(name, call)                                                                         \
	static void *name##_thread(void *result)                                                      \
	{                                                                                             \
		*(int *)result = call;                                                                \
		return NULL;                                                                          \
	}                                                                                             \
	static int name(void)                                                                         \
	{                                                                                             \
		int result = -1;                                                                      \
		join(start(name##_thread, &result));                                                  \
		return result;                                                                        \
	}
ELSEWHERE(try_defined, lw_mutex_trylock(&defined))
ELSEWHERE(unlock_defined, lw_mutex_unlock(&defined))
ELSEWHERE(unlock_tp, lw_mutex_unlock(&defined_tp))
ELSEWHERE(end_with_defined, lw_mutex_lock(&defined))
ELSEWHERE(end_with_robust, lw_mutex_lock(&robust))
ELSEWHERE(end_with_pi, lw_mutex_lock(&defined_pi))

static void kinds_and_initialisers(void)
{
	lw_shared_mutex_t *shared = (lw_shared_mutex_t *)share(sizeof *shared);
	lw_pp_mutex_t with_ceiling;
	lw_mutex_t zeros, moved;
	pid_t child;
	int ceiling = 0;
	/* lw_mutex(3) says: A mutex protects data that only one task at a time may use */
	/* lw_mutex(3) says: Each kind of mutex is a type with functions of its own, for example lw_tp_mutex_lock() */
	/* lw_mutex(3) says: The names in the synopsis are generic: they take a pointer to a mutex of any kind, by means of */
	CHECK_IS(lw_mutex_lock(&defined), 0);
	CHECK_IS(try_defined(), EBUSY);
	CHECK_IS(lw_mutex_unlock(&defined), 0);
	CHECK_IS(lw_tp_mutex_lock(&defined_tp), 0);
	CHECK_IS(lw_mutex_unlock(&defined_tp), 0);
	/* lw_mutex(3) says: If the mutex's type is for memory that processes share, threads of all these processes may use the */
	/* lw_mutex(3) says: lw_shared_mutex_t, lw_shared_tp_mutex_t, lw_shared_pi_mutex_t, lw_shared_plain_pi_mutex_t and */
	/* lw_mutex(3) says: If all bytes of a mutex are zero, it is an unlocked mutex */
	CHECK_IS(lw_mutex_lock(shared), 0);
	if ((child = fork()) == 0)
		_exit(lw_mutex_trylock(shared) == EBUSY ? 0 : 1);
	CHECK_IS(exit_of(child), 0);
	CHECK_IS(lw_mutex_unlock(shared), 0);
	if ((child = fork()) == 0)
		_exit(lw_mutex_trylock(shared) == 0 ? 0 : 1);
	CHECK_IS(exit_of(child), 0);
	/* lw_mutex(3) says: LW_DEFINE_KIND_MUTEX(name) defines an initialised mutex */
	/* lw_mutex(3) says: This macro exists for the kinds SHARED, TP, PI, PP, RECURSIVE and ROBUST */
	/* lw_mutex(3) says: Each type has a static initialiser: LW_MUTEX_INITIALIZER for lw_mutex_t, LW_SPIN_INITIALIZER for */
	CHECK_IS(lw_mutex_trylock(&defined_shared), 0);
	CHECK_IS(lw_mutex_trylock(&defined_pi), 0);
	CHECK_IS(lw_mutex_unlock(&defined_pi), 0);
	CHECK_IS(lw_mutex_trylock(&defined_recursive), 0);
	CHECK_IS(lw_mutex_trylock(&defined_recursive), 0);
	CHECK_IS(lw_mutex_trylock(&defined_robust), 0);
	CHECK_IS(lw_mutex_trylock(&spin), 0);
	CHECK_IS(lw_mutex_trylock(&robust_tp), 0);
	/* lw_mutex(3) says: LW_DEFINE_PP_MUTEX(name, ceiling) also takes the ceiling */
	CHECK_IS(lw_mutex_getprioceiling(&defined_pp, &ceiling), 0);
	CHECK_IS(ceiling, 7);
	/* lw_mutex(3) says: For a mutex with a ceiling, lw_mutex_init() takes the ceiling as a second argument */
	/* lw_mutex(3) says: A ceiling is a SCHED_FIFO priority, from 1 to 99 */
	CHECK_IS(lw_mutex_init(&with_ceiling, 0), EINVAL);
	CHECK_IS(lw_mutex_init(&with_ceiling, 100), EINVAL);
	CHECK_IS(lw_mutex_init(&with_ceiling, 99), 0);
	CHECK_IS(lw_mutex_getprioceiling(&with_ceiling, &ceiling), 0);
	CHECK_IS(ceiling, 99);
	/* lw_mutex(3) says: A mutex may be moved to another address while it is unlocked, but not while it is locked */
	memset(&zeros, 0, sizeof zeros);
	CHECK_IS(lw_mutex_lock(&zeros), 0);
	CHECK_IS(lw_mutex_unlock(&zeros), 0);
	memcpy(&moved, &zeros, sizeof moved);
	CHECK_IS(lw_mutex_trylock(&moved), 0);
}

static volatile int is_sleeping, ended;

static void nothing(int signal)
{
	(void)signal;
}

static void *sleep_interruptibly(void *unused)
{
	is_sleeping = 1;
	ended = lw_mutex_lock_interruptible(&defined);
	return unused;
}

static void *in_vain(void *unused)
{
	struct timespec soon = in_ms(CLOCK_MONOTONIC, 2), by_date = in_ms(CLOCK_REALTIME, 2);
	/* lw_mutex(3) says: Timeouts are absolute times */
	/* lw_mutex(3) says: lw_mutex_timedlock() uses the clock CLOCK_MONOTONIC */
	/* lw_mutex(3) says: lw_mutex_clocklock() takes CLOCK_REALTIME as well; it converts the time to CLOCK_MONOTONIC at the */
	CHECK_IS(lw_mutex_timedlock(&defined, &soon), ETIMEDOUT);
	CHECK_IS(lw_mutex_timedlock(&defined, &soon), ETIMEDOUT);
	CHECK_IS(lw_mutex_clocklock(&defined, CLOCK_MONOTONIC, &soon), ETIMEDOUT);
	CHECK_IS(lw_mutex_clocklock(&defined, CLOCK_REALTIME, &by_date), ETIMEDOUT);
	return unused;
}

static void waits_and_owners(void)
{
	pthread_t sleeper;
	CHECK_IS(lw_mutex_lock(&defined), 0);
	join(start(in_vain, NULL));
	/* lw_mutex(3) says: lw_mutex_lock_interruptible() fails with EINTR if a signal handler ran while the caller slept */
	signal(SIGUSR1, nothing);
	sleeper = start(sleep_interruptibly, NULL);
	while (!ended) {
		if (is_sleeping)
			pthread_kill(sleeper, SIGUSR1);
		sleep_ms(1);
	}
	join(sleeper);
	CHECK_IS(ended, EINTR);
	/* lw_mutex(3) says: Mutexes of the types lw_mutex_t, lw_pp_mutex_t, their shared forms, and lw_spin_t do not record */
	/* lw_mutex(3) says: The owner of a mutex is the task that holds it */
	CHECK_IS(unlock_defined(), 0);
	CHECK_IS(lw_mutex_unlock(&defined), EPERM);
	/* lw_mutex(3) says: All other mutexes record it, and so detect more errors */
	CHECK_IS(lw_mutex_lock(&defined_tp), 0);
	CHECK_IS(unlock_tp(), EPERM);
	CHECK_IS(lw_mutex_lock(&defined_tp), EDEADLK);
	CHECK_IS(lw_mutex_unlock(&defined_tp), 0);
	/* lw_mutex(3) says: lw_task_id() returns the calling task's thread ID (gettid(2)) */
	CHECK_IS(lw_task_id(), syscall(SYS_gettid));
}

static void owner_deaths(void)
{
	/* lw_mutex(3) says: If the owner of a robust mutex dies, the next task that locks the mutex gets EOWNERDEAD */
	/* lw_mutex(3) says: A thread that ends while it holds a robust mutex counts as dead */
	/* lw_mutex(3) says: This task holds the mutex */
	/* lw_mutex(3) says: The data may be half changed, and the mutex marks it as inconsistent */
	CHECK_IS(end_with_robust(), 0);
	CHECK_IS(lw_mutex_lock(&robust), EOWNERDEAD);
	CHECK(lw_mutex_is_locked(&robust));
	/* lw_mutex(3) says: A task that cannot repair the data calls lw_mutex_unlock_inconsistent(); the next task that locks */
	CHECK_IS(lw_mutex_unlock_inconsistent(&robust), 0);
	CHECK_IS(lw_mutex_lock(&robust), EOWNERDEAD);
	/* lw_mutex(3) says: The task repairs the data, calls lw_mutex_consistent(), and unlocks the mutex */
	CHECK_IS(lw_mutex_consistent(&robust), 0);
	CHECK_IS(lw_mutex_unlock(&robust), 0);
	/* lw_mutex(3) says: If an owner that lives must leave the data half changed, it may also call */
	CHECK_IS(lw_mutex_lock(&robust), 0);
	CHECK_IS(lw_mutex_unlock_inconsistent(&robust), 0);
	CHECK_IS(lw_mutex_lock(&robust), EOWNERDEAD);
	/* lw_mutex(3) says: If it unlocks the mutex without that call, the mutex becomes permanently unusable: later calls that */
	CHECK_IS(lw_mutex_unlock(&robust), 0);
	CHECK_IS(lw_mutex_lock(&robust), ENOTRECOVERABLE);
	/* lw_mutex(3) says: A mutex that is not robust stays locked when its owner dies */
	CHECK_IS(end_with_defined(), 0);
	CHECK_IS(lw_mutex_trylock(&defined), EBUSY);
	/* lw_mutex(3) says: If it is a mutex that inherits priority, later calls that lock it fail with ENOTRECOVERABLE and do */
	CHECK_IS(end_with_pi(), 0);
	CHECK_IS(lw_mutex_lock(&defined_pi), ENOTRECOVERABLE);
	CHECK_IS(lw_mutex_lock(&defined_pi), ENOTRECOVERABLE);
}

static lw_region_mutex_t *of_region;
static lw_region_tp_mutex_t *tp_of_region;

static void *end_with_both(void *unused)
{
	CHECK_IS(lw_mutex_lock(of_region), 0);
	CHECK_IS(lw_mutex_lock(tp_of_region), 0);
	return unused;
}

static void region_mutexes(void)
{
	static lw_region_mutex_t *many[3000];
	/* lw_mutex(3) says: A mutex of the type lw_region_mutex_t or lw_region_tp_mutex_t must lie in a region (lw_region(3)) */
	/* lw_mutex(3) says: It is robust, and records its owner as a task of the region */
	/* lw_mutex(3) says: A thread becomes a task of the region by its first call that locks one of the region's mutexes */
	/* lw_mutex(3) says: If a thread ends while it holds a region mutex, the next task that locks the mutex gets EOWNERDEAD */
	/* lw_mutex(3) says: This does not hold for mutexes with a ceiling, nor for robust mutexes other than region mutexes */
	of_region = (lw_region_mutex_t *)lw_region_alloc(region, sizeof *of_region);
	tp_of_region = (lw_region_tp_mutex_t *)lw_region_alloc(region, sizeof *tp_of_region);
	CHECK(of_region && tp_of_region);
	memset(of_region, 0, sizeof *of_region);
	memset(tp_of_region, 0, sizeof *tp_of_region);
	join(start(end_with_both, NULL));
	CHECK_IS(lw_mutex_lock(of_region), EOWNERDEAD);
	CHECK_IS(lw_mutex_consistent(of_region), 0);
	CHECK_IS(lw_mutex_lock(of_region), EDEADLK);
	CHECK_IS(lw_mutex_unlock(of_region), 0);
	CHECK_IS(lw_mutex_lock(tp_of_region), EOWNERDEAD);
	CHECK_IS(lw_mutex_consistent(tp_of_region), 0);
	CHECK_IS(lw_mutex_unlock(tp_of_region), 0);
	/* lw_mutex(3) says: Unlike the other robust mutexes, it has no list to be on: to lock and unlock a free one takes about */
	for (int i = 0; i < 3000; i++) {
		many[i] = (lw_region_mutex_t *)lw_region_alloc(region, sizeof *many[i]);
		CHECK(many[i]);
		memset(many[i], 0, sizeof *many[i]);
		CHECK_IS(lw_mutex_lock(many[i]), 0);
	}
	for (int i = 0; i < 3000; i++)
		CHECK_IS(lw_mutex_unlock(many[i]), 0);
}

static void ceilings(void)
{
	static lw_pp_mutex_t mutex = LW_PP_MUTEX_INITIALIZER(4);
	struct sched_param own;
	int policy, old = 0, error = lw_mutex_lock(&mutex);
	/* lw_mutex(3) says: For this, the owner needs CAP_SYS_NICE or a sufficient RLIMIT_RTPRIO */
	if (error == EPERM) {
		fprintf(stderr, "skipped: ceilings, without the right to a priority\n");
		return;
	}
	CHECK_IS(error, 0);
	/* lw_mutex(3) says: The owner of a mutex with a ceiling runs at this priority */
	/* lw_mutex(3) says: The initialiser of a mutex with a ceiling takes the ceiling, for example */
	policy = sched_getscheduler(0);
	CHECK_IS(sched_getparam(0, &own), 0);
	CHECK_IS(policy, SCHED_FIFO);
	CHECK_IS(own.sched_priority, 4);
	CHECK_IS(lw_mutex_unlock(&mutex), 0);
	/* lw_mutex(3) says: lw_mutex_setprioceiling() changes the ceiling, and stores the previous one in *old, unless old is */
	/* lw_mutex(3) says: It locks the mutex for this, whatever the caller's priority, and waits as long as another task holds */
	CHECK_IS(lw_mutex_setprioceiling(&mutex, 3, &old), 0);
	CHECK_IS(old, 4);
	CHECK_IS(lw_mutex_setprioceiling(&mutex, 2, NULL), 0);
	/* lw_mutex(3) says: A task whose own priority is above the ceiling cannot lock the mutex */
	own.sched_priority = 3;
	CHECK_IS(pthread_setschedparam(pthread_self(), SCHED_FIFO, &own), 0);
	CHECK_IS(lw_mutex_lock(&mutex), EINVAL);
	own.sched_priority = 0;
	CHECK_IS(pthread_setschedparam(pthread_self(), SCHED_OTHER, &own), 0);
}

int main(void)
{
	make_region();
	kinds_and_initialisers();
	waits_and_owners();
	owner_deaths();
	region_mutexes();
	ceilings();
	puts("said");
	return 0;
}

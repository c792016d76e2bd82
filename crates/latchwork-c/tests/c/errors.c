/*
 * Errors of locks and waits that the manual lists and that the other programs here do not provoke: each is cited by its
 * page. What needs a right that the process lacks is skipped by name. In C and in C++.
 */
#include "latchwork.h"

#include "check.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#define NOBODY 65534

static void skip(const char *what)
{
	fprintf(stderr, "skipped: %s\n", what);
}

/* ---- an object that is in use cannot be destroyed: lw_cond(3), lw_sem(3) ---- */

/* One object of each kind, in memory that processes share. */
struct objects {
	lw_shared_mutex_t mutex;
	int goes_on;
	lw_cond_t cond;
	lw_shared_cond_t shared_cond;
	lw_sem_t sem;
	lw_shared_sem_t shared_sem;
	lw_completion_t completion;
	lw_shared_completion_t shared_completion;
	lw_barrier_t barrier;
	lw_shared_barrier_t shared_barrier;
};
static struct objects *objects;

/* For a kind: a wait, what ends it, and the attempt to destroy it. */
#define KIND(kind, wait, end, destroy)                                                                \
	static void *kind##_waits(void *none)                                                         \
	{                                                                                             \
		wait;                                                                                 \
		return none;                                                                          \
	}                                                                                             \
	static void kind##_ends(void)                                                                 \
	{                                                                                             \
		end;                                                                                  \
	}                                                                                             \
	static int kind##_destroyed(void)                                                             \
	{                                                                                             \
		return destroy(&objects->kind);                                                       \
	}
#define CONDITION(kind) KIND(kind, wait_until_it_goes_on(lw_cond_wait(&objects->kind, &objects->mutex)), \
			     go_on(lw_cond_broadcast(&objects->kind)), lw_cond_destroy)
#define wait_until_it_goes_on(wait)                                                                   \
	CHECK_IS(lw_mutex_lock(&objects->mutex), 0);                                                  \
	while (!objects->goes_on)                                                                     \
		CHECK_IS(wait, 0);                                                                    \
	CHECK_IS(lw_mutex_unlock(&objects->mutex), 0)
#define go_on(notify)                                                                                 \
	CHECK_IS(lw_mutex_lock(&objects->mutex), 0);                                                  \
	objects->goes_on = 1;                                                                         \
	CHECK_IS(lw_mutex_unlock(&objects->mutex), 0);                                                \
	CHECK_IS(notify, 0)
#define SEMAPHORE(kind)                                                                               \
	KIND(kind, CHECK_IS(lw_sem_wait(&objects->kind), 0), CHECK_IS(lw_sem_post(&objects->kind), 0), lw_sem_destroy)
#define COMPLETION(kind)                                                                              \
	KIND(kind, CHECK_IS(lw_completion_wait(&objects->kind), 0),                                   \
	     CHECK_IS(lw_completion_complete(&objects->kind), 0), lw_completion_destroy)
#define BARRIER(kind) KIND(kind, lw_barrier_wait(&objects->kind), lw_barrier_wait(&objects->kind), lw_barrier_destroy)
CONDITION(cond)
CONDITION(shared_cond)
SEMAPHORE(sem)
SEMAPHORE(shared_sem)
COMPLETION(completion)
COMPLETION(shared_completion)
BARRIER(barrier)
BARRIER(shared_barrier)

static void is_in_use(void *(*waits)(void *), void (*ends)(void), int (*destroyed)(void), int is_shared)
{
	pthread_t thread;
	objects->goes_on = 0;
	thread = start(waits, NULL);
	while (destroyed() == 0)
		sched_yield();
	/* lw_cond(3), EBUSY: A task waits for the condition variable */
	/* lw_sem(3), EBUSY: A task waits for the object */
	CHECK_IS(destroyed(), EBUSY);
	ends();
	join(thread);
	CHECK_IS(destroyed(), 0);
	if (is_shared) {
		pid_t child = fork();
		objects->goes_on = 0;
		if (child == 0) {
			waits(NULL);
			_exit(1);
		}
		while (destroyed() == 0)
			sched_yield();
		CHECK_IS(kill(child, SIGKILL), 0);
		CHECK_IS(exit_of(child), 1000 + SIGKILL);
		/* lw_cond(3), EBUSY: or was killed while it waited for an lw_shared_cond_t */
		/* lw_sem(3), EBUSY: or was killed while it waited */
		CHECK_IS(destroyed(), EBUSY);
	}
}

static void objects_in_use(void)
{
	objects = (struct objects *)share(sizeof *objects);
	CHECK_IS(lw_mutex_init(&objects->mutex), 0);
	CHECK_IS(lw_cond_init(&objects->cond), 0);
	CHECK_IS(lw_cond_init(&objects->shared_cond), 0);
	CHECK_IS(lw_sem_init(&objects->sem, 0), 0);
	CHECK_IS(lw_sem_init(&objects->shared_sem, 0), 0);
	CHECK_IS(lw_completion_init(&objects->completion), 0);
	CHECK_IS(lw_completion_init(&objects->shared_completion), 0);
	CHECK_IS(lw_barrier_init(&objects->barrier, 2), 0);
	CHECK_IS(lw_barrier_init(&objects->shared_barrier, 2), 0);
	is_in_use(cond_waits, cond_ends, cond_destroyed, 0);
	is_in_use(shared_cond_waits, shared_cond_ends, shared_cond_destroyed, 1);
	is_in_use(sem_waits, sem_ends, sem_destroyed, 0);
	is_in_use(shared_sem_waits, shared_sem_ends, shared_sem_destroyed, 1);
	is_in_use(completion_waits, completion_ends, completion_destroyed, 0);
	is_in_use(shared_completion_waits, shared_completion_ends, shared_completion_destroyed, 1);
	is_in_use(barrier_waits, barrier_ends, barrier_destroyed, 0);
	is_in_use(shared_barrier_waits, shared_barrier_ends, shared_barrier_destroyed, 1);
}

/* ---- lw_mutex(3) ---- */

/* The caller at a real-time priority, under a ceiling that is lower; and one that has no right to the ceiling's. */
static void ceilings(void)
{
	static lw_pp_mutex_t low, high;
	struct sched_param param;
	const struct rlimit none = {0, 0};
	memset(&param, 0, sizeof param);
	param.sched_priority = 2;
	CHECK_IS(lw_mutex_init(&low, 1), 0);
	CHECK_IS(lw_mutex_init(&high, 99), 0);
	if (sched_setscheduler(0, SCHED_FIFO, &param) != 0)
		skip("a priority above a ceiling, without the right to a real-time priority");
	else {
		/* lw_mutex(3), EINVAL: The caller's priority is above the ceiling */
		CHECK_IS(lw_mutex_lock(&low), EINVAL);
		param.sched_priority = 0;
		CHECK_IS(sched_setscheduler(0, SCHED_OTHER, &param), 0);
	}
	CHECK_IS(setrlimit(RLIMIT_RTPRIO, &none), 0);
	if (getuid() == 0)
		CHECK_IS(setuid(NOBODY), 0);
	/* lw_mutex(3), EPERM: The caller has no right to run at the priority of the ceiling */
	CHECK_IS(lw_mutex_lock(&high), EPERM);
}

static lw_pi_mutex_t first, second;
static volatile int second_is_held;
static int other_error;

static void *take_in_the_other_order(void *none)
{
	CHECK_IS(lw_mutex_lock(&second), 0);
	second_is_held = 1;
	other_error = lw_mutex_lock(&first);
	if (other_error == 0)
		CHECK_IS(lw_mutex_unlock(&first), 0);
	CHECK_IS(lw_mutex_unlock(&second), 0);
	return none;
}

/* The kernel refuses whichever of the two waits comes last. */
static void deadlock(void)
{
	pthread_t thread;
	int error;
	CHECK_IS(lw_mutex_lock(&first), 0);
	thread = start(take_in_the_other_order, NULL);
	while (!second_is_held)
		sched_yield();
	error = lw_mutex_lock(&second);
	if (error == 0)
		CHECK_IS(lw_mutex_unlock(&second), 0);
	CHECK_IS(lw_mutex_unlock(&first), 0);
	join(thread);
	/* lw_mutex(3), EDEADLK: the kernel has detected a deadlock */
	CHECK_IS(error == 0 ? other_error : error, EDEADLK);
	CHECK(error == 0 || other_error == 0);
}

#define MANY 2100

static void many_robust_mutexes(void)
{
	static lw_robust_mutex_t mutexes[MANY];
	static lw_robust_rwlock_t rwlock = LW_ROBUST_RWLOCK_INITIALIZER;
	static lw_once_t once = LW_ONCE_INITIALIZER;
	int held, error = 0;
	for (held = 0; held < MANY; held++) {
		CHECK_IS(lw_mutex_init(&mutexes[held]), 0);
		error = lw_mutex_lock(&mutexes[held]);
		if (error != 0)
			break;
	}
	/* lw_mutex(3), EAGAIN: The caller holds too many robust mutexes */
	CHECK_IS(error, EAGAIN);
	CHECK(1800 < held && held < 2048);
	/* lw_rwlock(3), EAGAIN: says that the caller holds too many robust locks */
	CHECK_IS(lw_rwlock_wrlock(&rwlock), EAGAIN);
	/* lw_once(3), EAGAIN: The object contains a robust mutex, which the caller cannot lock */
	CHECK_IS(lw_once(&once, abort), EAGAIN);
	while (held-- > 0)
		CHECK_IS(lw_mutex_unlock(&mutexes[held]), 0);
}

int main(void)
{
	alarm(WATCHDOG);
	objects_in_use();
	deadlock();
	many_robust_mutexes();
	/* The process gives up its rights. */
	ceilings();
	puts("refused");
	return 0;
}

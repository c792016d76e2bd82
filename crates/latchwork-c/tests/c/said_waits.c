/*
 * What lw_cond(3) and lw_once(3) say: each sentence of their descriptions, before the lines that show it. In C and in C++.
 * The test in manual.rs compares these sentences with the pages.
 */
#include "said.h"

#include <signal.h>

/* ---- lw_cond(3) ---- */

LW_DEFINE_COND(changed);
static lw_mutex_t mutex;
/* Under the mutex: tasks that wait, and that have gone on; a task may go on for each of these. */
static int waiting, awake, tokens;

static void *wait_for_token(void *unused)
{
	CHECK_IS(lw_mutex_lock(&mutex), 0);
	waiting++;
	while (tokens == 0)
		CHECK_IS(lw_cond_wait(&changed, &mutex), 0);
	tokens--;
	awake++;
	CHECK_IS(lw_mutex_unlock(&mutex), 0);
	return unused;
}

/* Returns with the mutex held, when so many wait: each has released it. */
static void lock_as_they_wait(int count)
{
	for (;;) {
		CHECK_IS(lw_mutex_lock(&mutex), 0);
		if (waiting == count)
			return;
		CHECK_IS(lw_mutex_unlock(&mutex), 0);
		sleep_ms(1);
	}
}

static void signals_and_broadcasts(void)
{
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		threads[i] = start(wait_for_token, NULL);
	/* lw_cond(3) says: A task (a thread) that holds a mutex can wait for a change of the data that the mutex protects */
	/* lw_cond(3) says: A wait releases the mutex, sleeps until another task calls lw_cond_signal() or lw_cond_broadcast() */
	/* lw_cond(3) says: LW_DEFINE_COND(name) defines an initialised lw_cond_t */
	lock_as_they_wait(3);
	CHECK_IS(awake, 0);
	tokens = 1;
	/* lw_cond(3) says: lw_cond_signal() wakes one waiter, lw_cond_broadcast() wakes all */
	CHECK_IS(lw_cond_signal(&changed), 0);
	CHECK_IS(lw_mutex_unlock(&mutex), 0);
	for (int done = 0; !done; sleep_ms(1)) {
		CHECK_IS(lw_mutex_lock(&mutex), 0);
		done = awake == 1;
		CHECK_IS(lw_mutex_unlock(&mutex), 0);
	}
	CHECK_IS(lw_mutex_lock(&mutex), 0);
	tokens = 2;
	CHECK_IS(lw_cond_broadcast(&changed), 0);
	CHECK_IS(lw_mutex_unlock(&mutex), 0);
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	CHECK(awake == 3 && tokens == 0);
}

static void times_of_waits(void)
{
	static lw_recursive_mutex_t recursive;
	struct timespec soon = in_ms(CLOCK_MONOTONIC, 2), soon_by_date = in_ms(CLOCK_REALTIME, 2);
	CHECK_IS(lw_mutex_lock(&mutex), 0);
	/* lw_cond(3) says: Timeouts are absolute times of the clock CLOCK_MONOTONIC */
	CHECK_IS(lw_cond_timedwait(&changed, &mutex, &soon), ETIMEDOUT);
	CHECK_IS(lw_cond_timedwait(&changed, &mutex, &soon), ETIMEDOUT);
	CHECK_IS(lw_cond_clockwait(&changed, &mutex, CLOCK_MONOTONIC, &soon), ETIMEDOUT);
	/* lw_cond(3) says: lw_cond_clockwait() takes CLOCK_REALTIME as well */
	CHECK_IS(lw_cond_clockwait(&changed, &mutex, CLOCK_REALTIME, &soon_by_date), ETIMEDOUT);
	CHECK_IS(lw_mutex_unlock(&mutex), 0);
	/* lw_cond(3) says: If the mutex is recursive, the caller of a wait must have locked it exactly once */
	CHECK_IS(lw_mutex_lock(&recursive), 0);
	CHECK_IS(lw_cond_timedwait(&changed, &recursive, &soon), ETIMEDOUT);
	CHECK_IS(lw_mutex_lock(&recursive), 0);
	CHECK_IS(lw_cond_timedwait(&changed, &recursive, &soon), EPERM);
	CHECK_IS(lw_mutex_unlock(&recursive), 0);
	CHECK_IS(lw_mutex_unlock(&recursive), 0);
}

/* What two processes share. */
struct shared {
	lw_shared_cond_t changed;
	lw_shared_mutex_t mutex;
	int waits, tokens;
};

static pid_t wait_in_child(struct shared *shared)
{
	pid_t child = fork();
	if (child != 0)
		return child;
	CHECK_IS(lw_mutex_lock(&shared->mutex), 0);
	shared->waits++;
	while (shared->tokens == 0)
		CHECK_IS(lw_cond_wait(&shared->changed, &shared->mutex), 0);
	shared->tokens--;
	CHECK_IS(lw_mutex_unlock(&shared->mutex), 0);
	_exit(0);
}

static void between_processes(void)
{
	struct shared *shared = (struct shared *)share(sizeof *shared);
	pid_t killed, other;
	CHECK_IS(lw_cond_init(&shared->changed), 0);
	CHECK_IS(lw_mutex_init(&shared->mutex), 0);
	killed = wait_in_child(shared);
	other = wait_in_child(shared);
	for (int both = 0; !both; sleep_ms(1)) {
		CHECK_IS(lw_mutex_lock(&shared->mutex), 0);
		both = shared->waits == 2;
		CHECK_IS(lw_mutex_unlock(&shared->mutex), 0);
	}
	/* lw_cond(3) says: lw_shared_cond_t is for memory that processes share */
	/* lw_cond(3) says: If a task that uses it is killed, the other tasks can continue to use it */
	CHECK_IS(kill(killed, SIGKILL), 0);
	CHECK_IS(exit_of(killed), 1000 + SIGKILL);
	CHECK_IS(lw_mutex_lock(&shared->mutex), 0);
	shared->tokens = 1;
	CHECK_IS(lw_cond_signal(&shared->changed), 0);
	CHECK_IS(lw_mutex_unlock(&shared->mutex), 0);
	CHECK_IS(exit_of(other), 0);
}

/* A mutex of its own, and data that it protects. */
struct side {
	lw_mutex_t mutex;
	int waits, may_go;
};

static struct side sides[2];
static lw_cond_t of_both = LW_COND_INITIALIZER;
static lw_shared_cond_t shared_by_both = LW_SHARED_COND_INITIALIZER;

#define WAITS_FOR(name, condition)                                                                    \
	static void *name(void *argument)                                                             \
	{                                                                                             \
		struct side *mine = (struct side *)argument;                                          \
		CHECK_IS(lw_mutex_lock(&mine->mutex), 0);                                             \
		mine->waits = 1;                                                                      \
		while (!mine->may_go)                                                                 \
			CHECK_IS(lw_cond_wait(&condition, &mine->mutex), 0);                          \
		CHECK_IS(lw_mutex_unlock(&mine->mutex), 0);                                           \
		return NULL;                                                                          \
	}
WAITS_FOR(wait_on_one_side, of_both)
WAITS_FOR(wait_on_one_side_shared, shared_by_both)

/* Starts a task on each side; returns when both wait. */
static void begin_both(void *(*body)(void *), pthread_t *threads)
{
	memset(sides, 0, sizeof sides);
	for (int i = 0; i < 2; i++) {
		int waits = 0;
		threads[i] = start(body, &sides[i]);
		for (; !waits; sleep_ms(1)) {
			CHECK_IS(lw_mutex_lock(&sides[i].mutex), 0);
			waits = sides[i].waits;
			CHECK_IS(lw_mutex_unlock(&sides[i].mutex), 0);
		}
	}
}

static void let_go(int side)
{
	CHECK_IS(lw_mutex_lock(&sides[side].mutex), 0);
	sides[side].may_go = 1;
	CHECK_IS(lw_mutex_unlock(&sides[side].mutex), 0);
}

static void different_mutexes(void)
{
	pthread_t threads[2];
	/* lw_cond(3) says: Tasks may wait for the same condition variable at the same time with different mutexes */
	/* lw_cond(3) says: For an lw_cond_t, lw_cond_signal() suffices: it may then wake several waiters */
	begin_both(wait_on_one_side, threads);
	for (int i = 1; i >= 0; i--) {
		let_go(i);
		CHECK_IS(lw_cond_signal(&of_both), 0);
		join(threads[i]);
	}
	/* lw_cond(3) says: For an lw_shared_cond_t, call lw_cond_broadcast() */
	begin_both(wait_on_one_side_shared, threads);
	for (int i = 1; i >= 0; i--) {
		let_go(i);
		CHECK_IS(lw_cond_broadcast(&shared_by_both), 0);
		join(threads[i]);
	}
}

/* ---- lw_once(3) ---- */

LW_DEFINE_ONCE(defined);
static lw_once_t plain = LW_ONCE_INITIALIZER;
static volatile int calls, is_complete, may_end;

static void initialise(void)
{
	calls++;
	while (!__atomic_load_n(&may_end, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	is_complete = 1;
}

static void at_once(void)
{
	calls++;
}

static void *call_once(void *unused)
{
	/* lw_once(3) says: While one task (a thread) runs initialise, other callers wait */
	/* lw_once(3) says: When lw_once() returns 0, the initialisation is complete */
	CHECK_IS(lw_once(&plain, initialise), 0);
	CHECK(is_complete);
	return unused;
}

static void one_call(void)
{
	pthread_t threads[2];
	threads[0] = start(call_once, NULL);
	threads[1] = start(call_once, NULL);
	sleep_ms(2);
	__atomic_store_n(&may_end, 1, __ATOMIC_RELEASE);
	join(threads[0]);
	join(threads[1]);
	/* lw_once(3) says: lw_once() calls initialise, unless an earlier call of initialise for this object has returned */
	CHECK_IS(calls, 1);
	CHECK_IS(lw_once(&plain, initialise), 0);
	CHECK_IS(calls, 1);
	/* lw_once(3) says: LW_DEFINE_ONCE(name) defines an object that is ready for use */
	CHECK_IS(lw_once(&defined, at_once), 0);
	CHECK_IS(lw_once(&defined, at_once), 0);
	CHECK_IS(calls, 2);
}

static void die(void)
{
	raise(SIGKILL);
}

static void in_shared_memory(void)
{
	static const lw_once_t ready = LW_ONCE_INITIALIZER;
	lw_once_t *shared = (lw_once_t *)share(sizeof *shared), zeros;
	lw_region_once_t *of_region;
	pid_t child;
	/* lw_once(3) says: The object may lie in memory that processes share */
	/* lw_once(3) says: To prepare an object in such memory, assign to it a variable that was initialised with */
	memset(&zeros, 0, sizeof zeros);
	CHECK(memcmp(&zeros, &ready, sizeof ready) != 0);
	*shared = ready;
	/* lw_once(3) says: If the task that runs initialise dies, is cancelled, calls pthread_exit(3), or leaves the function */
	if ((child = fork()) == 0) {
		lw_once(shared, die);
		_exit(0);
	}
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	calls = 0;
	if ((child = fork()) == 0) {
		CHECK_IS(lw_once(shared, at_once), 0);
		_exit(calls);
	}
	CHECK_IS(exit_of(child), 1);
	CHECK_IS(lw_once(shared, at_once), 0);
	CHECK_IS(calls, 0);
	/* lw_once(3) says: lw_region_once() does the same with an object of 16 bytes that must lie in a region (lw_region(3)) */
	/* lw_once(3) says: The object names the task that runs initialise as a task of the region; zeros are an object that is */
	of_region = (lw_region_once_t *)lw_region_alloc(region, sizeof *of_region);
	CHECK(of_region);
	CHECK_IS(sizeof *of_region, 16);
	memset(of_region, 0, sizeof *of_region);
	if ((child = fork()) == 0) {
		lw_region_once(of_region, die);
		_exit(0);
	}
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	/* lw_once(3) says: lw_once() takes a pointer to either type, by means of _Generic in C and of overloading in C++ */
	CHECK_IS(lw_once(of_region, at_once), 0);
	CHECK_IS(lw_region_once(of_region, at_once), 0);
	CHECK_IS(calls, 1);
	lw_region_free(region, of_region);
}

int main(void)
{
	make_region();
	signals_and_broadcasts();
	times_of_waits();
	between_processes();
	different_mutexes();
	one_call();
	in_shared_memory();
	puts("said");
	return 0;
}

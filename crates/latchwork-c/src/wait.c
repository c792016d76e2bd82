/*
 * Waits that pthread_cancel() may end, and points in time.
 *
 * A cancelled thread is unwound from its current frame, and no Rust frame may be unwound. So the wait is split where
 * the thread sleeps: Rust code counts the waiter, releases the mutex, and returns; the system call is made here; then
 * Rust code acquires the mutex again. Only C frames are on the stack between the caller and the kernel.
 *
 * libc does not treat this system call as a cancellation point. So cancellation is asynchronous for just this call (an
 * inline pair of pthread_setcanceltype() around syscall(), as libc has it for its own calls), and a request that was
 * pending before is acted on there, too. A thread that has disabled cancellation is not affected.
 *
 * The request may come after the kernel has ended the sleep. Then the waiter may have consumed a wake-up, and its
 * handler passes it on: a notification (the ticket has moved: another waiter is notified), a token (the count is not
 * zero: another waiter is woken), or the mutex itself (the kernel has made the waiter its owner, as the word shows). As
 * POSIX requires, cleanup handlers run with the mutex held.
 *
 * This file is compiled without exceptions. So the handlers are found by libc's list (in glibc, a setjmp() buffer), at
 * whatever instruction the request comes. The handlers of -fexceptions would be found by call sites, and the
 * instruction after a call is not one. The unwinder itself steps through these frames by asynchronous unwind tables.
 *
 * A sleep in a region watches the region's other tasks, by a call with 128 words. Rust code makes it, where
 * cancellation stays deferred, for a tenth of a second at a time; between two calls a pending request is acted on. A wait
 * that a signal handler is to end sleeps on its own word alone, for a second at a time.
 */
#include "internal.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As <linux/futex.h>, which a system with musl need not have, defines them. */
#ifndef FUTEX_WAIT_BITSET
#define FUTEX_WAKE 1
#define FUTEX_WAIT_BITSET 9
#define FUTEX_PRIVATE_FLAG 128
#define FUTEX_WAKE_PRIVATE (FUTEX_WAKE | FUTEX_PRIVATE_FLAG)
#define FUTEX_BITSET_MATCH_ANY 0xffffffffu
#endif

/*
 * Negative twins of the tests: a cancelled waiter does not pass on the notification (1) or the token's wake-up (2) that
 * it has consumed; 3 is the correct code. With each of these values, a thread that has `lw__lingers` set does not
 * return from the system call until it is cancelled.
 */
#ifndef LATCHWORK_TWIN
#define LATCHWORK_TWIN 0
#else
extern __thread int lw__lingers;
#endif

/* ---- points in time ---- */

int latchwork_read_time(int clock, const struct timespec *time, uint64_t *deadline)
{
	struct timespec real, monotonic;
	int64_t seconds, nanoseconds;

	if (time == NULL || time->tv_nsec < 0 || time->tv_nsec >= 1000000000)
		return EINVAL;
	if (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME)
		return EINVAL;
	seconds = time->tv_sec;
	nanoseconds = time->tv_nsec;
	if (clock == CLOCK_REALTIME) {
		clock_gettime(CLOCK_REALTIME, &real);
		clock_gettime(CLOCK_MONOTONIC, &monotonic);
		if (__builtin_add_overflow(seconds, monotonic.tv_sec - real.tv_sec, &seconds))
			seconds = time->tv_sec < 0 ? -1 : INT64_MAX;
		nanoseconds += monotonic.tv_nsec - real.tv_nsec;
	}
	if (seconds < 0)
		*deadline = 0;
	else if (seconds >= 9000000000) /* longer than any machine runs, and representable */
		*deadline = 9000000000000000000u;
	else {
		nanoseconds += seconds * 1000000000;
		*deadline = nanoseconds < 0 ? 0 : (uint64_t)nanoseconds;
	}
	return 0;
}

/* As POSIX requires, a free lock can be acquired even if the time has passed or is invalid; so can a dead owner's. */
static int unless_taken(int tried, int error)
{
	return tried == 0 || tried == EOWNERDEAD ? tried : error;
}

int lw__lock_until(void *mutex, unsigned kind, unsigned how, int clock, const struct timespec *time)
{
	uint64_t deadline;
	int error = latchwork_read_time(clock, time, &deadline);
	if (error != 0)
		return unless_taken(latchwork_lock(mutex, kind, LW__TRY, 0), error);
	return latchwork_lock(mutex, kind, how, deadline);
}

int lw__lock(void *mutex, unsigned kind, unsigned how, uint64_t deadline)
{
	return latchwork_lock(mutex, kind, how, how == LW__INTERRUPTIBLE ? LATCHWORK_NEVER : deadline);
}

int lw__rwlock(void *lock, unsigned kind, unsigned writes, unsigned how, int clock, const struct timespec *time)
{
	uint64_t deadline = LATCHWORK_NEVER;
	int error = how == LW__UNTIL ? latchwork_read_time(clock, time, &deadline) : 0;
	if (error != 0)
		return unless_taken(latchwork_rwlock(lock, kind, writes, LW__TRY, 0), error);
	return latchwork_rwlock(lock, kind, writes, how, deadline);
}

int lw__barrier_wait(void *barrier, unsigned shared, int clock, const struct timespec *time)
{
	uint64_t deadline = LATCHWORK_NEVER;
	int error = clock < 0 ? 0 : latchwork_read_time(clock, time, &deadline);
	return error != 0 ? error : latchwork_barrier_wait(barrier, shared, deadline);
}

/* ---- the kernel ---- */

void lw__wake(const void *word, uint32_t count, unsigned shared)
{
	int before = errno;
	int operation = shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE;
	syscall(SYS_futex, word, operation, count > INT32_MAX ? INT32_MAX : (int)count, NULL, NULL, 0);
	errno = before;
}

/* Sleeps; returns 0 or an error number. A cancellation point. */
static int call(const struct latchwork_call *call)
{
	struct timespec end, *timeout = NULL;
	int before = errno, type, error;
	long result;

	if (call->deadline != LATCHWORK_NEVER) {
		end.tv_sec = (time_t)(call->deadline / 1000000000);
		end.tv_nsec = (long)(call->deadline % 1000000000);
		timeout = &end;
	}
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	result = syscall(SYS_futex, call->word, call->operation, call->expected, timeout, call->target,
			 FUTEX_BITSET_MATCH_ANY);
#if LATCHWORK_TWIN
	while (lw__lingers)
		pause();
#endif
	pthread_setcanceltype(type, NULL);
	error = result < 0 ? errno : 0;
	errno = before;
	return error;
}

/*
 * musl ends a thread that is cancelled asynchronously as if the interrupted instruction had jumped to pthread_exit(): on
 * x86-64 the stack then has not the alignment that a function may expect, and neither have the handlers that
 * pthread_exit() calls. Those of this file are called first. They align the stack, and the rest of the thread's end
 * runs from them, so that the program's handlers have an aligned one, too. musl has removed a handler from its list when it
 * calls it.
 */
#if defined(LW__MUSL) && defined(__x86_64__)
#define HANDLER __attribute__((force_align_arg_pointer))
#define END_OF_HANDLER() pthread_exit(PTHREAD_CANCELED)
#else
#define HANDLER
#define END_OF_HANDLER() ((void)0)
#endif

/* ---- condition variables ---- */

HANDLER static void end_cancelled(void *pause)
{
	latchwork_pause_end(pause, 0, LATCHWORK_TWIN != 1);
	END_OF_HANDLER();
}

static int sleep_on(struct latchwork_pause *pause)
{
	struct latchwork_call kernel;
	int error;
	for (;;) {
		error = latchwork_pause_nap(pause);
		if (error == LATCHWORK_AGAIN) {
			pthread_testcancel();
			continue;
		}
		if (error == LATCHWORK_NOT_IN_REGION) {
			latchwork_pause_call(pause, &kernel);
			error = call(&kernel);
		}
		if (!latchwork_pause_goes_on(pause, error))
			return error;
	}
}

static int wait_until(void *cond, unsigned shared, void *mutex, unsigned kind, int inconsistent, uint64_t deadline,
		      int *released)
{
	struct latchwork_pause pause;
	int error;

	pthread_testcancel();
	error = latchwork_pause_begin(&pause, cond, shared, mutex, kind, inconsistent, deadline);
	if (error != 0)
		return error;
	*released = 1;
	pthread_cleanup_push(end_cancelled, &pause);
	error = sleep_on(&pause);
	pthread_cleanup_pop(0);
	return latchwork_pause_end(&pause, error, 0);
}

int lw__cond_wait(void *cond, unsigned shared, void *mutex, unsigned kind, int clock, const struct timespec *time)
{
	uint64_t deadline = LATCHWORK_NEVER;
	int released, error = clock == -1 ? 0 : latchwork_read_time(clock, time, &deadline);
	return error != 0 ? error : wait_until(cond, shared, mutex, kind, 0, deadline, &released);
}

int lw__condition_wait(void *cond, unsigned shared, void *mutex, unsigned kind, int inconsistent,
		       const struct timespec *time, int *released)
{
	uint64_t deadline = LATCHWORK_NEVER;
	int error = time == NULL ? 0 : latchwork_read_time(CLOCK_MONOTONIC, time, &deadline);
	*released = 0;
	return error != 0 ? error : wait_until(cond, shared, mutex, kind, inconsistent, deadline, released);
}

/* ---- semaphores and completions ---- */

struct asleep {
	uint64_t *state;
	unsigned shared;
};

HANDLER static void leave(void *argument)
{
	struct asleep *asleep = argument;
	/* Relaxed: the only thing handed over is the wake-up, which may have been for the token that is there. */
	uint64_t before = __atomic_fetch_sub(asleep->state, 1, __ATOMIC_RELAXED);
	if (LATCHWORK_TWIN != 2 && before >> 32 != 0 && (uint32_t)before > 1)
		lw__wake(lw__tokens(asleep->state), 1, asleep->shared);
	END_OF_HANDLER();
}

/* Takes a token (0), or counts the calling thread as a waiter (EAGAIN), in one step. */
static int take_or_enter(uint64_t *state)
{
	uint64_t now = __atomic_load_n(state, __ATOMIC_RELAXED), next;
	do
		/* A waiter that was killed is still counted, and the count must not carry into the tokens. */
		next = now >> 32 != 0 ? lw__taken(now) : now + ((uint32_t)now != UINT32_MAX);
	while (!__atomic_compare_exchange_n(state, &now, next, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
	return now >> 32 != 0 ? 0 : EAGAIN;
}

/* Takes a token and leaves the waiters, in one step: the memory may be freed after it. EAGAIN if there is no token. */
static int take_and_leave(uint64_t *state, int gives_up)
{
	uint64_t now = __atomic_load_n(state, __ATOMIC_RELAXED), next;
	do {
		if (now >> 32 == 0 && !gives_up)
			return EAGAIN;
		next = (now >> 32 != 0 ? lw__taken(now) : now) - 1;
	} while (!__atomic_compare_exchange_n(state, &now, next, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
	return now >> 32 != 0 ? 0 : EAGAIN;
}

static int sleep_on_count(const struct latchwork_call *kernel, unsigned shared, int interruptible)
{
	int error;
	if (!shared)
		return call(kernel);
	do {
		error = latchwork_nap(kernel->word, 0, kernel->deadline, interruptible);
		if (error == LATCHWORK_NOT_IN_REGION)
			return call(kernel);
		/* However the nap ended: it may never last until its limit. */
		pthread_testcancel();
	} while (error == LATCHWORK_AGAIN);
	return error;
}

int lw__take(void *object, unsigned shared, unsigned how, int clock, const struct timespec *time)
{
	uint64_t *state = object;
	struct latchwork_call kernel = {0};
	struct asleep asleep = {state, shared};
	int error, gives_up;

	if (state == NULL)
		return EINVAL;
	pthread_testcancel();
	if (lw__trytake(state) == 0)
		return 0;
	if (how == LW__TRY)
		return EAGAIN;
	kernel.word = lw__tokens(state);
	kernel.operation = shared ? FUTEX_WAIT_BITSET : FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG;
	kernel.deadline = LATCHWORK_NEVER;
	error = how == LW__UNTIL ? latchwork_read_time(clock, time, &kernel.deadline) : 0;
	if (error != 0)
		return error;
	/*
	 * The kernel restarts a sleep without a deadline after a handler that was installed with SA_RESTART, so one is
	 * given.
	 */
	if (how == LW__INTERRUPTIBLE)
		kernel.deadline = INT64_MAX;
	if (take_or_enter(state) == 0)
		return 0;
	for (;;) {
		pthread_cleanup_push(leave, &asleep);
		error = sleep_on_count(&kernel, shared, how == LW__INTERRUPTIBLE);
		pthread_cleanup_pop(0);
		gives_up = error == ETIMEDOUT || (error == EINTR && how == LW__INTERRUPTIBLE);
		if (take_and_leave(state, gives_up) == 0)
			return 0;
		if (gives_up)
			return error;
	}
}

/*
 * For migrate.h, in jiffies, which are milliseconds. Returns 0 if the time has passed, else the remaining time, at
 * least 1.
 */
unsigned long lw__wait_for_completion(lw_completion_t *done, unsigned long jiffies);
unsigned long lw__wait_for_completion(lw_completion_t *done, unsigned long jiffies)
{
	struct timespec now, end;
	long left;

	clock_gettime(CLOCK_MONOTONIC, &now);
	end = now;
	end.tv_sec += (time_t)(jiffies / 1000 > 1000000000 ? 1000000000 : jiffies / 1000);
	end.tv_nsec += (long)(jiffies % 1000) * 1000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_sec++;
		end.tv_nsec -= 1000000000;
	}
	if (lw_completion_timedwait(done, &end) != 0)
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &now);
	left = (long)(end.tv_sec - now.tv_sec) * 1000 + (end.tv_nsec - now.tv_nsec) / 1000000;
	return left < 1 ? 1 : (unsigned long)left;
}

/*
 * What the manual says of all kinds, by the names for all kinds: each sentence with each type that it speaks of. In C
 * and in C++.
 */
#include "latchwork.h"

#include "check.h"

#include <sched.h>
#include <signal.h>

/* ---- lw_mutex(3) ---- */

/* "A zeroed mutex is unlocked, but for robust ones and ceilings"; "one that is unlocked may be moved". */
#define ZEROED(name)                                                                                  \
	do {                                                                                          \
		name##_t it, moved;                                                                   \
		memset(&it, 0, sizeof it);                                                            \
		CHECK(!lw_mutex_is_locked(&it));                                                      \
		CHECK_IS(lw_mutex_lock(&it), 0);                                                      \
		CHECK_IS(lw_mutex_unlock(&it), 0);                                                    \
		memcpy(&moved, &it, sizeof it);                                                       \
		CHECK_IS(lw_mutex_trylock(&moved), 0);                                                \
		CHECK(lw_mutex_is_locked(&moved));                                                    \
		CHECK_IS(lw_mutex_destroy(&moved), EBUSY);                                            \
		CHECK_IS(lw_mutex_unlock(&moved), 0);                                                 \
		CHECK_IS(lw_mutex_init(&moved), 0);                                                   \
		CHECK_IS(lw_mutex_destroy(&moved), 0);                                                \
	} while (0)

/* "ends when a signal handler has run while it slept" */
static volatile int slept, ended;

static void handle(int number)
{
	(void)number;
}

#define INTERRUPTED(name) INTERRUPTED_AS(name, (&name##_held))
#define WITH_CEILING(name) INTERRUPTED_AS(name, (&name##_held, 1))
#define INTERRUPTED_AS(name, arguments)                                                               \
	static name##_t name##_held;                                                                  \
	static void *name##_waiter(void *none)                                                        \
	{                                                                                             \
		int error;                                                                            \
		slept = 1;                                                                            \
		error = lw_mutex_lock_interruptible(&name##_held);                                    \
		ended = error == 0 ? -1 : error;                                                      \
		return none;                                                                          \
	}                                                                                             \
	static void name##_interrupts(void)                                                           \
	{                                                                                             \
		pthread_t thread;                                                                     \
		int error;                                                                            \
		slept = 0;                                                                            \
		ended = 0;                                                                            \
		CHECK_IS(lw_mutex_init arguments, 0);                                                 \
		error = lw_mutex_lock_interruptible(&name##_held);                                    \
		if (error == EPERM) {                                                                 \
			fprintf(stderr, "skipped: ceilings, without the right to a priority\n");      \
			return;                                                                       \
		}                                                                                     \
		CHECK_IS(error, 0);                                                                   \
		thread = start(name##_waiter, NULL);                                                  \
		while (!ended) {                                                                      \
			if (slept)                                                                    \
				pthread_kill(thread, SIGUSR1);                                        \
			sleep_ms(1);                                                                  \
		}                                                                                     \
		join(thread);                                                                         \
		/* lw_mutex(3), EINTR: A signal handler ran while the caller slept */                 \
		CHECK_IS(ended, EINTR);                                                               \
		CHECK_IS(lw_mutex_unlock(&name##_held), 0);                                           \
		CHECK_IS(lw_mutex_destroy(&name##_held), 0);                                          \
	}
INTERRUPTED(lw_mutex)
INTERRUPTED(lw_shared_mutex)
INTERRUPTED(lw_tp_mutex)
INTERRUPTED(lw_shared_tp_mutex)
INTERRUPTED(lw_robust_mutex)
INTERRUPTED(lw_robust_tp_mutex)
WITH_CEILING(lw_pp_mutex)
WITH_CEILING(lw_shared_pp_mutex)
WITH_CEILING(lw_robust_pp_mutex)

/* A lock that is not robust stays locked; one with priority inheritance reports it to each later caller. */
static void *take_and_end(void *mutex)
{
	CHECK_IS(lw_mutex_lock((lw_pi_mutex_t *)mutex), 0);
	return NULL;
}

static void *take_and_end_plainly(void *mutex)
{
	CHECK_IS(lw_mutex_lock((lw_mutex_t *)mutex), 0);
	return NULL;
}

static void mutexes(void)
{
	static lw_pi_mutex_t inherits;
	static lw_mutex_t plain;
	lw_robust_pp_mutex_t robust_ceiling;
	lw_shared_pp_mutex_t ceiling;
	int old = 0;
	ZEROED(lw_mutex);
	ZEROED(lw_shared_mutex);
	ZEROED(lw_tp_mutex);
	ZEROED(lw_shared_tp_mutex);
	ZEROED(lw_pi_mutex);
	ZEROED(lw_shared_pi_mutex);
	ZEROED(lw_plain_pi_mutex);
	ZEROED(lw_shared_plain_pi_mutex);
	ZEROED(lw_recursive_mutex);
	ZEROED(lw_spin);
	signal(SIGUSR1, handle);
	lw_mutex_interrupts();
	lw_shared_mutex_interrupts();
	lw_tp_mutex_interrupts();
	lw_shared_tp_mutex_interrupts();
	lw_robust_mutex_interrupts();
	lw_robust_tp_mutex_interrupts();
	lw_pp_mutex_interrupts();
	lw_shared_pp_mutex_interrupts();
	lw_robust_pp_mutex_interrupts();
	join(start(take_and_end, &inherits));
	/* lw_mutex(3), ENOTRECOVERABLE: the mutex inherits priority, is not robust, and its owner died */
	CHECK_IS(lw_mutex_lock(&inherits), ENOTRECOVERABLE);
	CHECK_IS(lw_mutex_lock(&inherits), ENOTRECOVERABLE);
	join(start(take_and_end_plainly, &plain));
	CHECK_IS(lw_mutex_trylock(&plain), EBUSY);
	/* "lw_mutex_init() takes the ceiling where the kind has one." */
	CHECK_IS(lw_mutex_init(&robust_ceiling, 40), 0);
	CHECK_IS(lw_mutex_getprioceiling(&robust_ceiling, &old), 0);
	CHECK_IS(old, 40);
	CHECK_IS(lw_mutex_init(&robust_ceiling, 100), EINVAL);
	CHECK_IS(lw_mutex_init(&ceiling, 1), 0);
	if (lw_mutex_setprioceiling(&ceiling, 2, &old) == 0) {
		CHECK_IS(old, 1);
		CHECK_IS(lw_mutex_getprioceiling((const lw_shared_pp_mutex_t *)&ceiling, &old), 0);
		CHECK_IS(old, 2);
	}
}

/* ---- lw_cond(3), lw_rwlock(3) ---- */

#define CONDITION(cond)                                                                               \
	do {                                                                                          \
		cond##_t it;                                                                          \
		lw_shared_tp_mutex_t mutex = LW_SHARED_TP_MUTEX_INITIALIZER;                          \
		struct timespec past = {0, 0};                                                        \
		CHECK_IS(lw_cond_init(&it), 0);                                                       \
		/* lw_cond(3), EPERM: The caller does not hold the mutex */                           \
		CHECK_IS(lw_cond_wait(&it, &mutex), EPERM);                                           \
		CHECK_IS(lw_mutex_lock(&mutex), 0);                                                   \
		/* lw_cond(3), ETIMEDOUT: The time passed */                                          \
		CHECK_IS(lw_cond_timedwait(&it, &mutex, &past), ETIMEDOUT);                           \
		CHECK_IS(lw_cond_clockwait(&it, &mutex, CLOCK_REALTIME, &past), ETIMEDOUT);           \
		/* lw_cond(3), EINVAL: the time or the clock is invalid */                            \
		CHECK_IS(lw_cond_clockwait(&it, &mutex, 99, &past), EINVAL);                          \
		CHECK_IS(lw_mutex_unlock(&mutex), 0);                                                 \
		CHECK_IS(lw_cond_signal(&it), 0);                                                     \
		CHECK_IS(lw_cond_broadcast(&it), 0);                                                  \
		CHECK_IS(lw_cond_destroy(&it), 0);                                                    \
	} while (0)

#define RWLOCK(name)                                                                                  \
	do {                                                                                          \
		static name##_t it;                                                                   \
		struct timespec past = {0, 0};                                                        \
		CHECK_IS(lw_rwlock_init(&it), 0);                                                     \
		CHECK_IS(lw_rwlock_unlock(&it), EPERM);                                               \
		CHECK_IS(lw_rwlock_tryrdlock(&it), 0);                                                \
		CHECK_IS(lw_rwlock_trywrlock(&it), EBUSY);                                            \
		CHECK_IS(lw_rwlock_unlock(&it), 0);                                                   \
		CHECK_IS(lw_rwlock_timedrdlock(&it, &past), 0);                                       \
		CHECK_IS(lw_rwlock_unlock(&it), 0);                                                   \
		CHECK_IS(lw_rwlock_clockwrlock(&it, CLOCK_REALTIME, &past), 0);                       \
		CHECK_IS(lw_rwlock_destroy(&it), EBUSY);                                              \
		CHECK_IS(lw_rwlock_tryrdlock(&it), EBUSY);                                            \
		CHECK_IS(lw_rwlock_unlock(&it), 0);                                                   \
		CHECK_IS(lw_rwlock_destroy(&it), 0);                                                  \
	} while (0)

/* ---- lw_sem(3) ---- */

#define COUNTS(name, wait)                                                                            \
	static name##_t name##_empty;                                                                 \
	static void *name##_waiter(void *none)                                                        \
	{                                                                                             \
		slept = 1;                                                                            \
		ended = wait(&name##_empty);                                                          \
		return none;                                                                          \
	}                                                                                             \
	static void name##_interrupts(void)                                                           \
	{                                                                                             \
		pthread_t thread;                                                                     \
		slept = 0;                                                                            \
		ended = 0;                                                                            \
		thread = start(name##_waiter, NULL);                                                  \
		while (!ended) {                                                                      \
			if (slept)                                                                    \
				pthread_kill(thread, SIGUSR1);                                        \
			sleep_ms(1);                                                                  \
		}                                                                                     \
		join(thread);                                                                         \
		/* lw_sem(3), EINTR: A signal handler ran while the caller slept */                   \
		CHECK_IS(ended, EINTR);                                                               \
	}
COUNTS(lw_sem, lw_sem_wait_interruptible)
COUNTS(lw_shared_sem, lw_sem_wait_interruptible)
COUNTS(lw_completion, lw_completion_wait_interruptible)
COUNTS(lw_shared_completion, lw_completion_wait_interruptible)

#define SEMAPHORE(name)                                                                               \
	do {                                                                                          \
		name##_t it;                                                                          \
		struct timespec past = {0, 0};                                                        \
		int value = -1;                                                                       \
		/* lw_sem(3), EINVAL: a number is out of range */                                     \
		CHECK_IS(lw_sem_init(&it, LW_SEM_VALUE_MAX + 1u), EINVAL);                            \
		CHECK_IS(lw_sem_init(&it, LW_SEM_VALUE_MAX), 0);                                      \
		/* lw_sem(3), EOVERFLOW: The counter has its greatest value already */                \
		CHECK_IS(lw_sem_post(&it), EOVERFLOW);                                                \
		CHECK_IS(lw_sem_getvalue((const name##_t *)&it, &value), 0);                          \
		CHECK_IS(value, LW_SEM_VALUE_MAX);                                                    \
		CHECK_IS(lw_sem_init(&it, 2), 0);                                                     \
		CHECK_IS(lw_sem_wait_interruptible(&it), 0);                                          \
		CHECK_IS(lw_sem_clockwait(&it, CLOCK_REALTIME, &past), 0);                            \
		/* lw_sem(3), EAGAIN: The call would have to wait */                                  \
		CHECK_IS(lw_sem_trywait(&it), EAGAIN);                                                \
		/* lw_sem(3), ETIMEDOUT: The time passed before the wait succeeded */                 \
		CHECK_IS(lw_sem_timedwait(&it, &past), ETIMEDOUT);                                    \
		/* lw_sem(3), EINVAL: The time or the clock is invalid */                             \
		CHECK_IS(lw_sem_clockwait(&it, 99, &past), EINVAL);                                   \
		CHECK_IS(lw_sem_post(&it), 0);                                                        \
		CHECK_IS(lw_sem_wait(&it), 0);                                                        \
		CHECK_IS(lw_sem_destroy(&it), 0);                                                     \
		name##_interrupts();                                                                  \
	} while (0)

#define COMPLETION(name)                                                                              \
	do {                                                                                          \
		name##_t it;                                                                          \
		struct timespec past = {0, 0};                                                        \
		CHECK_IS(lw_completion_init(&it), 0);                                                 \
		CHECK(!lw_completion_is_done((const name##_t *)&it));                                 \
		CHECK_IS(lw_completion_trywait(&it), EAGAIN);                                         \
		CHECK_IS(lw_completion_timedwait(&it, &past), ETIMEDOUT);                             \
		CHECK_IS(lw_completion_complete(&it), 0);                                             \
		CHECK(lw_completion_is_done(&it));                                                    \
		CHECK_IS(lw_completion_clockwait(&it, CLOCK_MONOTONIC, &past), 0);                    \
		CHECK_IS(lw_completion_trywait(&it), EAGAIN);                                         \
		CHECK_IS(lw_completion_complete_all(&it), 0);                                         \
		CHECK_IS(lw_completion_wait(&it), 0);                                                 \
		CHECK_IS(lw_completion_wait_interruptible(&it), 0);                                   \
		CHECK_IS(lw_completion_reset(&it), 0);                                                \
		CHECK(!lw_completion_is_done(&it));                                                   \
		CHECK_IS(lw_completion_destroy(&it), 0);                                              \
		name##_interrupts();                                                                  \
	} while (0)

#define BARRIER(name)                                                                                 \
	do {                                                                                          \
		name##_t it;                                                                          \
		struct timespec past = {0, 0};                                                        \
		CHECK_IS(lw_barrier_init(&it, 0), EINVAL);                                            \
		CHECK_IS(lw_barrier_init(&it, 65536), EINVAL);                                        \
		CHECK_IS(lw_barrier_init(&it, 2), 0);                                                 \
		CHECK_IS(lw_barrier_timedwait(&it, &past), ETIMEDOUT);                                \
		CHECK_IS(lw_barrier_destroy(&it), 0);                                                 \
		CHECK_IS(lw_barrier_init(&it, 1), 0);                                                 \
		CHECK_IS(lw_barrier_wait(&it), LW_BARRIER_SERIAL_TASK);                               \
	} while (0)

int main(void)
{
	alarm(WATCHDOG);
	mutexes();
	CONDITION(lw_cond);
	CONDITION(lw_shared_cond);
	RWLOCK(lw_rwlock);
	RWLOCK(lw_shared_rwlock);
	RWLOCK(lw_rf_rwlock);
	RWLOCK(lw_shared_rf_rwlock);
	RWLOCK(lw_robust_rwlock);
	SEMAPHORE(lw_sem);
	SEMAPHORE(lw_shared_sem);
	COMPLETION(lw_completion);
	COMPLETION(lw_shared_completion);
	BARRIER(lw_barrier);
	BARRIER(lw_shared_barrier);
	puts("said");
	return 0;
}

/* Part of latchwork.h: condition variables, semaphores, completions, barriers, once. */
#ifndef LATCHWORK_WAIT_H
#define LATCHWORK_WAIT_H

#include "mutex.h"

LW__BEGIN

/* ---- condition variables ---- */

#define LW__DECLARE_COND(name)                                                                        \
	LW_INLINE int name##_init(name##_t *cond);                                                    \
	LW_INLINE int name##_destroy(name##_t *cond);                                                 \
	LW_INLINE int name##_signal(name##_t *cond);                                                  \
	LW_INLINE int name##_broadcast(name##_t *cond);
#ifndef __CHECKER__
#define LW__COND_WAITERS 0x3fffu
#define LW__HAS_WAITERS(cond)                                                                         \
	((__atomic_load_n(&(cond)->lw_state, __ATOMIC_RELAXED) & LW__COND_WAITERS) != 0 ||            \
	 __atomic_load_n(&(cond)->lw_crowd, __ATOMIC_RELAXED) != 0)
#define LW__DEFINE_COND(name, shared)                                                                 \
	LW_INLINE int name##_init(name##_t *cond)                                                     \
	{                                                                                             \
		const name##_t fresh = LW_COND_INITIALIZER;                                           \
		if (cond == NULL)                                                                     \
			return EINVAL;                                                                \
		*cond = fresh;                                                                        \
		return 0;                                                                             \
	}                                                                                             \
	LW_INLINE int name##_destroy(name##_t *cond)                                                  \
	{                                                                                             \
		return cond == NULL ? EINVAL : LW__HAS_WAITERS(cond) ? EBUSY : 0;                  \
	}                                                                                             \
	LW_INLINE int name##_signal(name##_t *cond)                                                   \
	{                                                                                             \
		if (cond == NULL)                                                                     \
			return EINVAL;                                                                \
		if (LW__UNLIKELY(LW__HAS_WAITERS(cond)))                                           \
			lw__cond_notify(cond, shared, 0);                                             \
		return 0;                                                                             \
	}                                                                                             \
	LW_INLINE int name##_broadcast(name##_t *cond)                                                \
	{                                                                                             \
		if (cond == NULL)                                                                     \
			return EINVAL;                                                                \
		if (LW__UNLIKELY(LW__HAS_WAITERS(cond)))                                           \
			lw__cond_notify(cond, shared, 1);                                             \
		return 0;                                                                             \
	}
#else
#define LW__DEFINE_COND(name, shared)
#endif
LW__DECLARE_COND(lw_cond)
LW__DEFINE_COND(lw_cond, 0)
LW__DECLARE_COND(lw_shared_cond)
LW__DEFINE_COND(lw_shared_cond, 1)

/* A clock as the library expects it: -1 for a clock that is invalid. */
LW_INLINE int lw__clock(int clock);
#ifndef __CHECKER__
LW_INLINE int lw__clock(int clock)
{
	return clock < 0 ? -2 : clock;
}
#endif

/* Cancellation points. The macros of the same names, below, take mutexes of any kind. */
LW_INLINE int lw_cond_wait(lw_cond_t *cond, lw_mutex_t *mutex) LW_REQUIRES(*mutex);
LW_INLINE int lw_cond_timedwait(lw_cond_t *cond, lw_mutex_t *mutex, const struct timespec *time)
	LW_REQUIRES(*mutex);
LW_INLINE int lw_cond_clockwait(lw_cond_t *cond, lw_mutex_t *mutex, int clock, const struct timespec *time)
	LW_REQUIRES(*mutex);
#ifndef __CHECKER__
LW_INLINE LW_UNCHECKED int lw_cond_wait(lw_cond_t *cond, lw_mutex_t *mutex)
{
	return lw__cond_wait(cond, 0, mutex, LW_WAIT_WAKE, -1, NULL);
}
LW_INLINE LW_UNCHECKED int lw_cond_timedwait(lw_cond_t *cond, lw_mutex_t *mutex, const struct timespec *time)
{
	return lw__cond_wait(cond, 0, mutex, LW_WAIT_WAKE, 1, time);
}
LW_INLINE LW_UNCHECKED int lw_cond_clockwait(lw_cond_t *cond, lw_mutex_t *mutex, int clock,
					     const struct timespec *time)
{
	return lw__cond_wait(cond, 0, mutex, LW_WAIT_WAKE, lw__clock(clock), time);
}
#endif

/* ---- semaphores and completions ---- */

/* Waits are cancellation points, as those of POSIX semaphores are, even if there is no need to wait. */
#define LW__DECLARE_SEM(name)                                                                         \
	LW_INLINE int name##_init(name##_t *sem, unsigned count);                                     \
	LW_INLINE int name##_destroy(name##_t *sem);                                                  \
	LW_INLINE int name##_wait(name##_t *sem);                                                     \
	LW_INLINE int name##_wait_interruptible(name##_t *sem);                                       \
	LW_INLINE int name##_trywait(name##_t *sem);                                                  \
	LW_INLINE int name##_timedwait(name##_t *sem, const struct timespec *time);                   \
	LW_INLINE int name##_clockwait(name##_t *sem, int clock, const struct timespec *time);        \
	LW_INLINE int name##_post(name##_t *sem);                                                     \
	LW_INLINE int name##_getvalue(const name##_t *sem, int *value);
#define LW__DECLARE_COMPLETION(name)                                                                  \
	LW_INLINE int name##_init(name##_t *done);                                                    \
	LW_INLINE int name##_destroy(name##_t *done);                                                 \
	LW_INLINE int name##_wait(name##_t *done);                                                    \
	LW_INLINE int name##_wait_interruptible(name##_t *done);                                      \
	LW_INLINE int name##_trywait(name##_t *done);                                                 \
	LW_INLINE int name##_timedwait(name##_t *done, const struct timespec *time);                  \
	LW_INLINE int name##_clockwait(name##_t *done, int clock, const struct timespec *time);       \
	LW_INLINE int name##_complete(name##_t *done);                                                \
	LW_INLINE int name##_complete_all(name##_t *done);                                            \
	LW_INLINE int name##_reset(name##_t *done);                                                   \
	LW_INLINE int name##_is_done(const name##_t *done);

#ifndef __CHECKER__
#define LW__DONE_FOR_ALL UINT32_MAX
#define LW__TOKEN ((uint64_t)1 << 32)

/* The half on which waiters sleep: an address, which may be stale. */
LW_INLINE const void *lw__tokens(const uint64_t *state)
{
	return (const char *)state + (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 4 : 0);
}

/* The state after one of the tokens was taken. There must be one. */
LW_INLINE uint64_t lw__taken(uint64_t state)
{
	return state >> 32 == LW__DONE_FOR_ALL ? state : state - LW__TOKEN;
}

/* Acquire: pairs with the release by the task that added the token. */
LW_INLINE int lw__trytake(uint64_t *state)
{
	uint64_t now = __atomic_load_n(state, __ATOMIC_RELAXED);
	while (now >> 32 != 0)
		if (__atomic_compare_exchange_n(state, &now, lw__taken(now), 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return 0;
	return EAGAIN;
}

/* Once the token is visible, a task that takes it may free the memory: after that only the address is used. */
LW_INLINE int lw__add(uint64_t *state, uint32_t most, unsigned shared)
{
	uint64_t now = __atomic_load_n(state, __ATOMIC_RELAXED);
	do {
		if (now >> 32 >= most)
			return EOVERFLOW;
	} while (!__atomic_compare_exchange_n(state, &now, now + LW__TOKEN, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	if (LW__UNLIKELY((uint32_t)now != 0))
		lw__wake(lw__tokens(state), 1, shared);
	return 0;
}

#define LW__DEFINE_TAKE(name, shared)                                                                 \
	LW_INLINE int name##_destroy(name##_t *it)                                                    \
	{                                                                                             \
		if (it == NULL)                                                                       \
			return EINVAL;                                                                \
		return (uint32_t)__atomic_load_n(&it->lw_state, __ATOMIC_RELAXED) != 0 ? EBUSY : 0;   \
	}                                                                                             \
	LW_INLINE int name##_wait(name##_t *it)                                                       \
	{                                                                                             \
		return lw__take(it, shared, LW__ENDLESS, 1, NULL);                                    \
	}                                                                                             \
	LW_INLINE int name##_wait_interruptible(name##_t *it)                                         \
	{                                                                                             \
		return lw__take(it, shared, LW__INTERRUPTIBLE, 1, NULL);                              \
	}                                                                                             \
	LW_INLINE int name##_trywait(name##_t *it)                                                    \
	{                                                                                             \
		return it == NULL ? EINVAL : lw__trytake(&it->lw_state);                              \
	}                                                                                             \
	LW_INLINE int name##_clockwait(name##_t *it, int clock, const struct timespec *time)          \
	{                                                                                             \
		return lw__take(it, shared, LW__UNTIL, clock, time);                                  \
	}                                                                                             \
	LW_INLINE int name##_timedwait(name##_t *it, const struct timespec *time)                     \
	{                                                                                             \
		return lw__take(it, shared, LW__UNTIL, 1, time);                                      \
	}
#define LW__DEFINE_SEM(name, shared)                                                                  \
	LW__DEFINE_TAKE(name, shared)                                                                 \
	LW_INLINE int name##_init(name##_t *sem, unsigned count)                                      \
	{                                                                                             \
		if (sem == NULL || count > LW_SEM_VALUE_MAX)                                          \
			return EINVAL;                                                                \
		sem->lw_state = (uint64_t)count << 32;                                                \
		return 0;                                                                             \
	}                                                                                             \
	LW_INLINE int name##_post(name##_t *sem)                                                      \
	{                                                                                             \
		if (sem == NULL)                                                                      \
			return EINVAL;                                                                \
		return lw__add(&sem->lw_state, LW_SEM_VALUE_MAX, shared);                             \
	}                                                                                             \
	LW_INLINE int name##_getvalue(const name##_t *sem, int *value)                                \
	{                                                                                             \
		if (sem == NULL || value == NULL)                                                     \
			return EINVAL;                                                                \
		*value = (int)(__atomic_load_n(&sem->lw_state, __ATOMIC_RELAXED) >> 32);              \
		return 0;                                                                             \
	}
#define LW__DEFINE_COMPLETION(name, shared)                                                           \
	LW__DEFINE_TAKE(name, shared)                                                                 \
	LW_INLINE int name##_init(name##_t *done)                                                     \
	{                                                                                             \
		if (done == NULL)                                                                     \
			return EINVAL;                                                                \
		done->lw_state = 0;                                                                   \
		return 0;                                                                             \
	}                                                                                             \
	LW_INLINE int name##_complete(name##_t *done)                                                 \
	{                                                                                             \
		if (done == NULL)                                                                     \
			return EINVAL;                                                                \
		(void)lw__add(&done->lw_state, LW__DONE_FOR_ALL - 1, shared);                         \
		return 0;                                                                             \
	}                                                                                             \
	LW_INLINE int name##_complete_all(name##_t *done)                                             \
	{                                                                                             \
		const uint64_t all = (uint64_t)LW__DONE_FOR_ALL << 32;                                \
		if (done == NULL)                                                                     \
			return EINVAL;                                                                \
		if ((uint32_t)__atomic_fetch_or(&done->lw_state, all, __ATOMIC_RELEASE) != 0)         \
			lw__wake(lw__tokens(&done->lw_state), UINT32_MAX, shared);                    \
		return 0;                                                                             \
	}                                                                                             \
	LW_INLINE int name##_reset(name##_t *done)                                                    \
	{                                                                                             \
		if (done == NULL)                                                                     \
			return EINVAL;                                                                \
		__atomic_fetch_and(&done->lw_state, UINT32_MAX, __ATOMIC_RELAXED);                    \
		return 0;                                                                             \
	}                                                                                             \
	LW_INLINE int name##_is_done(const name##_t *done)                                            \
	{                                                                                             \
		return done != NULL && __atomic_load_n(&done->lw_state, __ATOMIC_ACQUIRE) >> 32 != 0; \
	}
#else
#define LW__DEFINE_SEM(name, shared)
#define LW__DEFINE_COMPLETION(name, shared)
#endif
LW__DECLARE_SEM(lw_sem)
LW__DEFINE_SEM(lw_sem, 0)
LW__DECLARE_SEM(lw_shared_sem)
LW__DEFINE_SEM(lw_shared_sem, 1)
LW__DECLARE_COMPLETION(lw_completion)
LW__DEFINE_COMPLETION(lw_completion, 0)
LW__DECLARE_COMPLETION(lw_shared_completion)
LW__DEFINE_COMPLETION(lw_shared_completion, 1)

/* ---- barriers ---- */

/* Waits return LW_BARRIER_SERIAL_TASK to one task, 0 to the others; a wait that times out withdraws. */
#define LW__DECLARE_BARRIER(name)                                                                     \
	LW_INLINE int name##_init(name##_t *barrier, unsigned tasks);                                 \
	LW_INLINE int name##_destroy(name##_t *barrier);                                              \
	LW_INLINE int name##_wait(name##_t *barrier);                                                 \
	LW_INLINE int name##_timedwait(name##_t *barrier, const struct timespec *time);
#ifndef __CHECKER__
#define LW__DEFINE_BARRIER(name, shared)                                                              \
	LW_INLINE int name##_init(name##_t *barrier, unsigned tasks)                                  \
	{                                                                                             \
		if (barrier == NULL || tasks == 0 || tasks > 0xffff)                                  \
			return EINVAL;                                                                \
		barrier->lw_word = 0;                                                                 \
		barrier->lw_tasks = tasks;                                                            \
		return 0;                                                                             \
	}                                                                                             \
	LW_INLINE int name##_destroy(name##_t *barrier)                                               \
	{                                                                                             \
		if (barrier == NULL)                                                                  \
			return EINVAL;                                                                \
		return (__atomic_load_n(&barrier->lw_word, __ATOMIC_RELAXED) & 0xffff) != 0 ? EBUSY : 0; \
	}                                                                                             \
	LW_INLINE int name##_wait(name##_t *barrier)                                                  \
	{                                                                                             \
		return lw__barrier_wait(barrier, shared, -1, NULL);                                   \
	}                                                                                             \
	LW_INLINE int name##_timedwait(name##_t *barrier, const struct timespec *time)                \
	{                                                                                             \
		return lw__barrier_wait(barrier, shared, 1, time);                                    \
	}
#else
#define LW__DEFINE_BARRIER(name, shared)
#endif
LW__DECLARE_BARRIER(lw_barrier)
LW__DEFINE_BARRIER(lw_barrier, 0)
LW__DECLARE_BARRIER(lw_shared_barrier)
LW__DEFINE_BARRIER(lw_shared_barrier, 1)

/* ---- once ---- */

int lw__once(lw_once_t *once, void (*initialise)(void));
int lw__region_once(lw_region_once_t *once, void (*initialise)(void));

/*
 * Runs the initialisation if it was not completed yet. If the task that runs it dies, is cancelled, or leaves by
 * pthread_exit() or an exception, the next task runs it again. EDEADLK: the initialisation calls lw_once() itself.
 */
LW_INLINE int lw_once(lw_once_t *once, void (*initialise)(void));
#ifndef __CHECKER__
LW_INLINE int lw_once(lw_once_t *once, void (*initialise)(void))
{
	if (LW__LIKELY(once != NULL && __atomic_load_n(&once->lw_done, __ATOMIC_ACQUIRE) != 0))
		return 0;
	return lw__once(once, initialise);
}
#endif

/* The same by an object in a region, where it must lie: else EINVAL. */
LW_INLINE int lw_region_once(lw_region_once_t *once, void (*initialise)(void));
#ifndef __CHECKER__
LW_INLINE int lw_region_once(lw_region_once_t *once, void (*initialise)(void))
{
	if (LW__LIKELY(once != NULL && __atomic_load_n(&once->lw_done, __ATOMIC_ACQUIRE) != 0))
		return 0;
	return lw__region_once(once, initialise);
}
#endif

LW__END

#endif

/* Part of latchwork.h: one name for all kinds, in C++. */
#ifndef LATCHWORK_GENERIC_HPP
#define LATCHWORK_GENERIC_HPP

#include "mutex.h"
#include "rwlock.h"
#include "wait.h"

#define LW__OVERLOADS(name)                                                                           \
	inline LW_UNCHECKED int lw_mutex_destroy(name##_t *mutex) LW_EXCLUDES(*mutex)                 \
	{                                                                                             \
		return name##_destroy(mutex);                                                         \
	}                                                                                             \
	inline LW_UNCHECKED int lw_mutex_lock(name##_t *mutex) LW_ACQUIRE(*mutex)                     \
	{                                                                                             \
		return name##_lock(mutex);                                                            \
	}                                                                                             \
	inline LW_UNCHECKED int lw_mutex_trylock(name##_t *mutex) LW_TRY_ACQUIRE(*mutex)              \
	{                                                                                             \
		return name##_trylock(mutex);                                                         \
	}                                                                                             \
	inline LW_UNCHECKED int lw_mutex_timedlock(name##_t *mutex, const struct timespec *time)      \
		LW_TRY_ACQUIRE(*mutex)                                                                \
	{                                                                                             \
		return name##_timedlock(mutex, time);                                                 \
	}                                                                                             \
	inline LW_UNCHECKED int lw_mutex_clocklock(name##_t *mutex, int clock,                        \
						   const struct timespec *time)                       \
		LW_TRY_ACQUIRE(*mutex)                                                                \
	{                                                                                             \
		return name##_clocklock(mutex, clock, time);                                          \
	}                                                                                             \
	inline LW_UNCHECKED int lw_mutex_unlock(name##_t *mutex) LW_RELEASE(*mutex)                   \
	{                                                                                             \
		return name##_unlock(mutex);                                                          \
	}                                                                                             \
	inline LW_UNCHECKED int lw_mutex_is_locked(const name##_t *mutex)                             \
	{                                                                                             \
		return name##_is_locked(mutex);                                                       \
	}

#define LW__WAITS(name, kind)                                                                         \
	inline LW_UNCHECKED int lw_cond_wait(lw_cond_t *cond, name##_t *mutex) LW_REQUIRES(*mutex)    \
	{                                                                                             \
		return lw__cond_wait(cond, 0, mutex, kind, -1, NULL);                                 \
	}                                                                                             \
	inline LW_UNCHECKED int lw_cond_timedwait(lw_cond_t *cond, name##_t *mutex,                   \
						  const struct timespec *time) LW_REQUIRES(*mutex)    \
	{                                                                                             \
		return lw__cond_wait(cond, 0, mutex, kind, 1, time);                                  \
	}                                                                                             \
	inline LW_UNCHECKED int lw_cond_clockwait(lw_cond_t *cond, name##_t *mutex, int clock,        \
						  const struct timespec *time) LW_REQUIRES(*mutex)    \
	{                                                                                             \
		return lw__cond_wait(cond, 0, mutex, kind, lw__clock(clock), time);                   \
	}                                                                                             \
	LW__WAITS_SHARED(name, kind)
#define LW__WAITS_SHARED(name, kind)                                                                  \
	inline LW_UNCHECKED int lw_cond_wait(lw_shared_cond_t *cond, name##_t *mutex)                 \
		LW_REQUIRES(*mutex)                                                                   \
	{                                                                                             \
		return lw__cond_wait(cond, 1, mutex, kind, -1, NULL);                                 \
	}                                                                                             \
	inline LW_UNCHECKED int lw_cond_timedwait(lw_shared_cond_t *cond, name##_t *mutex,            \
						  const struct timespec *time) LW_REQUIRES(*mutex)    \
	{                                                                                             \
		return lw__cond_wait(cond, 1, mutex, kind, 1, time);                                  \
	}                                                                                             \
	inline LW_UNCHECKED int lw_cond_clockwait(lw_shared_cond_t *cond, name##_t *mutex, int clock, \
						  const struct timespec *time) LW_REQUIRES(*mutex)    \
	{                                                                                             \
		return lw__cond_wait(cond, 1, mutex, kind, lw__clock(clock), time);                   \
	}

#define LW__BOTH(name, kind) LW__OVERLOADS(name) LW__WAITS(name, kind)
LW__WAITS_SHARED(lw_mutex, LW_WAIT_WAKE)
LW__BOTH(lw_shared_mutex, LW_WAIT_WAKE + LW_SHARED)
LW__BOTH(lw_tp_mutex, LW_THROUGHPUT)
LW__BOTH(lw_shared_tp_mutex, LW_THROUGHPUT + LW_SHARED)
LW__BOTH(lw_pi_mutex, LW_INHERIT)
LW__BOTH(lw_shared_pi_mutex, LW_INHERIT + LW_SHARED)
LW__BOTH(lw_plain_pi_mutex, LW_PLAIN_INHERIT)
LW__BOTH(lw_shared_plain_pi_mutex, LW_PLAIN_INHERIT + LW_SHARED)
LW__BOTH(lw_pp_mutex, LW_PROTECT)
LW__BOTH(lw_shared_pp_mutex, LW_PROTECT + LW_SHARED)
LW__BOTH(lw_recursive_mutex, LW_RECURSIVE)
LW__BOTH(lw_robust_mutex, LW_WAIT_WAKE + LW_ROBUST)
LW__BOTH(lw_robust_tp_mutex, LW_THROUGHPUT + LW_ROBUST)
LW__BOTH(lw_robust_pi_mutex, LW_INHERIT + LW_ROBUST)
LW__BOTH(lw_robust_pp_mutex, LW_PROTECT + LW_ROBUST)
LW__OVERLOADS(lw_spin)

#define LW__CONSISTENT(name)                                                                          \
	inline int lw_mutex_consistent(name##_t *mutex)                                               \
	{                                                                                             \
		return name##_consistent(mutex);                                                      \
	}
LW__CONSISTENT(lw_robust_mutex)
LW__CONSISTENT(lw_robust_tp_mutex)
LW__CONSISTENT(lw_robust_pi_mutex)
LW__CONSISTENT(lw_robust_pp_mutex)

inline int lw_cond_signal(lw_shared_cond_t *cond)
{
	return lw_shared_cond_signal(cond);
}
inline int lw_cond_broadcast(lw_shared_cond_t *cond)
{
	return lw_shared_cond_broadcast(cond);
}

#define LW__RWLOCK_OVERLOAD(name, op, attribute)                                                      \
	inline LW_UNCHECKED int lw_rwlock_##op(name##_t *lock) attribute                              \
	{                                                                                             \
		return name##_##op(lock);                                                             \
	}
#define LW__RWLOCK_TIMED(name, op, attribute)                                                         \
	inline LW_UNCHECKED int lw_rwlock_##op(name##_t *lock, const struct timespec *time) attribute \
	{                                                                                             \
		return name##_##op(lock, time);                                                       \
	}
#define LW__RWLOCK_CLOCKED(name, op, attribute)                                                       \
	inline LW_UNCHECKED int lw_rwlock_##op(name##_t *lock, int clock, const struct timespec *time) \
		attribute                                                                             \
	{                                                                                             \
		return name##_##op(lock, clock, time);                                                \
	}
#define LW__RWLOCK_OVERLOADS(name)                                                                    \
	LW__RWLOCK_OVERLOAD(name, destroy, LW_EXCLUDES(*lock))                                        \
	LW__RWLOCK_OVERLOAD(name, rdlock, LW_ACQUIRE_SHARED(*lock))                                   \
	LW__RWLOCK_OVERLOAD(name, tryrdlock, LW_TRY_ACQUIRE_SHARED(*lock))                            \
	LW__RWLOCK_TIMED(name, timedrdlock, LW_TRY_ACQUIRE_SHARED(*lock))                             \
	LW__RWLOCK_CLOCKED(name, clockrdlock, LW_TRY_ACQUIRE_SHARED(*lock))                           \
	LW__RWLOCK_OVERLOAD(name, wrlock, LW_ACQUIRE(*lock))                                          \
	LW__RWLOCK_OVERLOAD(name, trywrlock, LW_TRY_ACQUIRE(*lock))                                   \
	LW__RWLOCK_TIMED(name, timedwrlock, LW_TRY_ACQUIRE(*lock))                                    \
	LW__RWLOCK_CLOCKED(name, clockwrlock, LW_TRY_ACQUIRE(*lock))                                  \
	LW__RWLOCK_OVERLOAD(name, unlock, LW_RELEASE_ANY(*lock))
LW__RWLOCK_OVERLOADS(lw_shared_rwlock)
LW__RWLOCK_OVERLOADS(lw_rf_rwlock)
LW__RWLOCK_OVERLOADS(lw_shared_rf_rwlock)
LW__RWLOCK_OVERLOADS(lw_robust_rwlock)

inline int lw_sem_wait(lw_shared_sem_t *sem) { return lw_shared_sem_wait(sem); }
inline int lw_sem_trywait(lw_shared_sem_t *sem) { return lw_shared_sem_trywait(sem); }
inline int lw_sem_timedwait(lw_shared_sem_t *sem, const struct timespec *time)
{
	return lw_shared_sem_timedwait(sem, time);
}
inline int lw_sem_clockwait(lw_shared_sem_t *sem, int clock, const struct timespec *time)
{
	return lw_shared_sem_clockwait(sem, clock, time);
}
inline int lw_sem_post(lw_shared_sem_t *sem) { return lw_shared_sem_post(sem); }
inline int lw_completion_wait(lw_shared_completion_t *done) { return lw_shared_completion_wait(done); }
inline int lw_completion_timedwait(lw_shared_completion_t *done, const struct timespec *time)
{
	return lw_shared_completion_timedwait(done, time);
}
inline int lw_completion_complete(lw_shared_completion_t *done) { return lw_shared_completion_complete(done); }
inline int lw_completion_complete_all(lw_shared_completion_t *done)
{
	return lw_shared_completion_complete_all(done);
}
inline int lw_barrier_wait(lw_shared_barrier_t *barrier) { return lw_shared_barrier_wait(barrier); }
inline int lw_barrier_timedwait(lw_shared_barrier_t *barrier, const struct timespec *time)
{
	return lw_shared_barrier_timedwait(barrier, time);
}

#endif

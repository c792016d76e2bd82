/* Part of latchwork.h: one name for all kinds, in C++. */
#ifndef LATCHWORK_GENERIC_HPP
#define LATCHWORK_GENERIC_HPP

#include "mutex.h"
#include "rwlock.h"
#include "wait.h"

/*
 * Overloads of a name for all kinds. If only few kinds lack an operation, it is deleted for those, so that the compiler
 * shows the line with the reason; else there is an overload for each kind that has it.
 */
#define LW__TIME const struct timespec *time
#define LW__OVERLOAD(generic, op, name, returned, parameters, arguments, attribute)                   \
	inline LW_UNCHECKED returned generic##_##op parameters attribute                              \
	{                                                                                             \
		return name##_##op arguments;                                                         \
	}

/* ---- mutexes ---- */

#define LW__MUTEX(op, name, parameters, arguments, attribute)                                         \
	LW__OVERLOAD(lw_mutex, op, name, int, parameters, arguments, attribute)
#define LW__OVERLOADS(name)                                                                           \
	LW__MUTEX(destroy, name, (name##_t * mutex), (mutex), LW_EXCLUDES(*mutex))                    \
	LW__MUTEX(lock, name, (name##_t * mutex), (mutex), LW_ACQUIRE(*mutex))                        \
	LW__MUTEX(trylock, name, (name##_t * mutex), (mutex), LW_TRY_ACQUIRE(*mutex))                 \
	LW__MUTEX(timedlock, name, (name##_t * mutex, LW__TIME), (mutex, time), LW_TRY_ACQUIRE(*mutex)) \
	LW__MUTEX(clocklock, name, (name##_t * mutex, int clock, LW__TIME), (mutex, clock, time),     \
		  LW_TRY_ACQUIRE(*mutex))                                                             \
	LW__MUTEX(unlock, name, (name##_t * mutex), (mutex), LW_RELEASE(*mutex))                      \
	LW__MUTEX(is_locked, name, (const name##_t *mutex), (mutex), )
#define LW__INITIALISES(name) LW__MUTEX(init, name, (name##_t * mutex), (mutex), )
#define LW__HAS_CEILING(name)                                                                         \
	LW__MUTEX(init, name, (name##_t * mutex, int ceiling), (mutex, ceiling), )                    \
	LW__MUTEX(getprioceiling, name, (const name##_t *mutex, int *ceiling), (mutex, ceiling), )
#define LW__SETS_CEILING(name)                                                                        \
	LW__MUTEX(setprioceiling, name, (name##_t * mutex, int ceiling, int *old), (mutex, ceiling, old), )
#define LW__INTERRUPTED(name)                                                                         \
	LW__MUTEX(lock_interruptible, name, (name##_t * mutex), (mutex), LW_TRY_ACQUIRE(*mutex))
#define LW__TRACES(name)                                                                              \
	LW__MUTEX(init_hand_off, name, (name##_t * mutex, uint32_t microseconds), (mutex, microseconds), ) \
	LW__MUTEX(lock_traced, name, (name##_t * mutex, struct lw_tp_acquisition *how), (mutex, how), \
		  LW_ACQUIRE(*mutex))                                                                 \
	LW__MUTEX(unlock_traced, name, (name##_t * mutex, int *released), (mutex, released), LW_RELEASE(*mutex))
#define LW__RECOVERS(name)                                                                            \
	LW__MUTEX(consistent, name, (name##_t * mutex), (mutex), )                                    \
	LW__MUTEX(unlock_inconsistent, name, (name##_t * mutex), (mutex), LW_RELEASE(*mutex))

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
/* The kind is for lw::condition. */
#define LW__WAITS_SHARED(name, kind)                                                                  \
	constexpr unsigned lw__kind_of(const name##_t *)                                              \
	{                                                                                             \
		return kind;                                                                          \
	}                                                                                             \
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

#define LW__BOTH(name, kind) LW__OVERLOADS(name) LW__INITIALISES(name) LW__WAITS(name, kind)
LW__WAITS_SHARED(lw_mutex, LW_WAIT_WAKE)
LW__BOTH(lw_shared_mutex, LW_WAIT_WAKE + LW_SHARED)
LW__BOTH(lw_tp_mutex, LW_THROUGHPUT)
LW__BOTH(lw_shared_tp_mutex, LW_THROUGHPUT + LW_SHARED)
LW__BOTH(lw_pi_mutex, LW_INHERIT)
LW__BOTH(lw_shared_pi_mutex, LW_INHERIT + LW_SHARED)
LW__BOTH(lw_plain_pi_mutex, LW_PLAIN_INHERIT)
LW__BOTH(lw_shared_plain_pi_mutex, LW_PLAIN_INHERIT + LW_SHARED)
LW__BOTH(lw_recursive_mutex, LW_RECURSIVE)
LW__BOTH(lw_robust_mutex, LW_WAIT_WAKE + LW_ROBUST)
LW__BOTH(lw_robust_tp_mutex, LW_THROUGHPUT + LW_ROBUST)
LW__BOTH(lw_robust_pi_mutex, LW_INHERIT + LW_ROBUST)
LW__BOTH(lw_region_mutex, LW_IN_REGION)
LW__BOTH(lw_region_tp_mutex, LW_IN_REGION_THROUGHPUT)
LW__OVERLOADS(lw_spin)
LW__INITIALISES(lw_spin)

#define LW__BOTH_WITH_CEILING(name, kind) LW__OVERLOADS(name) LW__HAS_CEILING(name) LW__WAITS(name, kind)
LW__BOTH_WITH_CEILING(lw_pp_mutex, LW_PROTECT)
LW__BOTH_WITH_CEILING(lw_shared_pp_mutex, LW_PROTECT + LW_SHARED)
LW__BOTH_WITH_CEILING(lw_robust_pp_mutex, LW_PROTECT + LW_ROBUST)
LW__SETS_CEILING(lw_pp_mutex)
LW__SETS_CEILING(lw_shared_pp_mutex)

LW__TRACES(lw_tp_mutex)
LW__TRACES(lw_shared_tp_mutex)
LW__TRACES(lw_robust_tp_mutex)

LW__INTERRUPTED(lw_shared_mutex)
LW__INTERRUPTED(lw_tp_mutex)
LW__INTERRUPTED(lw_shared_tp_mutex)
LW__INTERRUPTED(lw_pp_mutex)
LW__INTERRUPTED(lw_shared_pp_mutex)
LW__INTERRUPTED(lw_robust_mutex)
LW__INTERRUPTED(lw_robust_tp_mutex)
LW__INTERRUPTED(lw_robust_pp_mutex)
LW__INTERRUPTED(lw_region_mutex)
LW__INTERRUPTED(lw_region_tp_mutex)
int lw_mutex_lock_interruptible(lw_pi_mutex_t *) = delete; /* a kind that inherits priority has none */
int lw_mutex_lock_interruptible(lw_shared_pi_mutex_t *) = delete; /* a kind that inherits priority has none */
int lw_mutex_lock_interruptible(lw_plain_pi_mutex_t *) = delete; /* a kind that inherits priority has none */
int lw_mutex_lock_interruptible(lw_shared_plain_pi_mutex_t *) = delete; /* a kind that inherits priority has none */
int lw_mutex_lock_interruptible(lw_robust_pi_mutex_t *) = delete; /* a kind that inherits priority has none */
int lw_mutex_lock_interruptible(lw_recursive_mutex_t *) = delete; /* the recursive mutex has none */
int lw_mutex_lock_interruptible(lw_spin_t *) = delete; /* a signal ends no wait for a spinlock */

LW__RECOVERS(lw_robust_mutex)
LW__RECOVERS(lw_robust_tp_mutex)
LW__RECOVERS(lw_robust_pi_mutex)
LW__RECOVERS(lw_robust_pp_mutex)
LW__RECOVERS(lw_region_mutex)
LW__RECOVERS(lw_region_tp_mutex)

/* ---- condition variables ---- */

#define LW__COND(op) LW__OVERLOAD(lw_cond, op, lw_shared_cond, int, (lw_shared_cond_t * cond), (cond), )
LW__COND(init)
LW__COND(destroy)
LW__COND(signal)
LW__COND(broadcast)

/* ---- reader/writer locks ---- */

#define LW__ANY_RWLOCK(op, name, parameters, arguments, attribute)                                        \
	LW__OVERLOAD(lw_rwlock, op, name, int, parameters, arguments, attribute)
#define LW__RWLOCK_OVERLOADS(name)                                                                    \
	LW__ANY_RWLOCK(init, name, (name##_t * lock), (lock), )                                           \
	LW__ANY_RWLOCK(destroy, name, (name##_t * lock), (lock), LW_EXCLUDES(*lock))                      \
	LW__ANY_RWLOCK(rdlock, name, (name##_t * lock), (lock), LW_ACQUIRE_SHARED(*lock))                 \
	LW__ANY_RWLOCK(tryrdlock, name, (name##_t * lock), (lock), LW_TRY_ACQUIRE_SHARED(*lock))          \
	LW__ANY_RWLOCK(timedrdlock, name, (name##_t * lock, LW__TIME), (lock, time), LW_TRY_ACQUIRE_SHARED(*lock)) \
	LW__ANY_RWLOCK(clockrdlock, name, (name##_t * lock, int clock, LW__TIME), (lock, clock, time),    \
		   LW_TRY_ACQUIRE_SHARED(*lock))                                                      \
	LW__ANY_RWLOCK(wrlock, name, (name##_t * lock), (lock), LW_ACQUIRE(*lock))                        \
	LW__ANY_RWLOCK(trywrlock, name, (name##_t * lock), (lock), LW_TRY_ACQUIRE(*lock))                 \
	LW__ANY_RWLOCK(timedwrlock, name, (name##_t * lock, LW__TIME), (lock, time), LW_TRY_ACQUIRE(*lock)) \
	LW__ANY_RWLOCK(clockwrlock, name, (name##_t * lock, int clock, LW__TIME), (lock, clock, time),    \
		   LW_TRY_ACQUIRE(*lock))                                                             \
	LW__ANY_RWLOCK(unlock, name, (name##_t * lock), (lock), LW_RELEASE_ANY(*lock))                    \
	LW__ANY_RWLOCK(rdlock_traced, name, (name##_t * lock, struct lw_rwlock_acquisition *how), (lock, how), \
		       LW_ACQUIRE_SHARED(*lock))                                                          \
	LW__ANY_RWLOCK(wrlock_traced, name, (name##_t * lock, struct lw_rwlock_acquisition *how), (lock, how), \
		       LW_ACQUIRE(*lock))                                                                 \
	LW__ANY_RWLOCK(unlock_traced, name, (name##_t * lock, int *released), (lock, released), LW_RELEASE_ANY(*lock))
LW__RWLOCK_OVERLOADS(lw_shared_rwlock)
LW__RWLOCK_OVERLOADS(lw_rf_rwlock)
LW__RWLOCK_OVERLOADS(lw_shared_rf_rwlock)
LW__RWLOCK_OVERLOADS(lw_robust_rwlock)
LW__RWLOCK_OVERLOADS(lw_region_rwlock)
LW__ANY_RWLOCK(init_hand_off, lw_robust_rwlock, (lw_robust_rwlock_t * lock, uint32_t microseconds),
	       (lock, microseconds), )
LW__ANY_RWLOCK(consistent, lw_robust_rwlock, (lw_robust_rwlock_t * lock), (lock), )
LW__ANY_RWLOCK(unlock_inconsistent, lw_robust_rwlock, (lw_robust_rwlock_t * lock), (lock), LW_RELEASE(*lock))
LW__ANY_RWLOCK(consistent, lw_region_rwlock, (lw_region_rwlock_t * lock), (lock), )
LW__ANY_RWLOCK(unlock_inconsistent, lw_region_rwlock, (lw_region_rwlock_t * lock), (lock), LW_RELEASE(*lock))

/* ---- semaphores, completions, barriers ---- */

#define LW__SEM(op, parameters, arguments) LW__OVERLOAD(lw_sem, op, lw_shared_sem, int, parameters, arguments, )
LW__SEM(init, (lw_shared_sem_t * sem, unsigned count), (sem, count))
LW__SEM(destroy, (lw_shared_sem_t * sem), (sem))
LW__SEM(wait, (lw_shared_sem_t * sem), (sem))
LW__SEM(wait_interruptible, (lw_shared_sem_t * sem), (sem))
LW__SEM(trywait, (lw_shared_sem_t * sem), (sem))
LW__SEM(timedwait, (lw_shared_sem_t * sem, LW__TIME), (sem, time))
LW__SEM(clockwait, (lw_shared_sem_t * sem, int clock, LW__TIME), (sem, clock, time))
LW__SEM(post, (lw_shared_sem_t * sem), (sem))
LW__SEM(getvalue, (const lw_shared_sem_t *sem, int *value), (sem, value))

#define LW__COMPLETION(op, parameters, arguments)                                                     \
	LW__OVERLOAD(lw_completion, op, lw_shared_completion, int, parameters, arguments, )
LW__COMPLETION(init, (lw_shared_completion_t * done), (done))
LW__COMPLETION(destroy, (lw_shared_completion_t * done), (done))
LW__COMPLETION(wait, (lw_shared_completion_t * done), (done))
LW__COMPLETION(wait_interruptible, (lw_shared_completion_t * done), (done))
LW__COMPLETION(trywait, (lw_shared_completion_t * done), (done))
LW__COMPLETION(timedwait, (lw_shared_completion_t * done, LW__TIME), (done, time))
LW__COMPLETION(clockwait, (lw_shared_completion_t * done, int clock, LW__TIME), (done, clock, time))
LW__COMPLETION(complete, (lw_shared_completion_t * done), (done))
LW__COMPLETION(complete_all, (lw_shared_completion_t * done), (done))
LW__COMPLETION(reset, (lw_shared_completion_t * done), (done))
LW__COMPLETION(is_done, (const lw_shared_completion_t *done), (done))

#define LW__BARRIER(op, parameters, arguments)                                                        \
	LW__OVERLOAD(lw_barrier, op, lw_shared_barrier, int, parameters, arguments, )
LW__BARRIER(init, (lw_shared_barrier_t * barrier, unsigned tasks), (barrier, tasks))
LW__BARRIER(destroy, (lw_shared_barrier_t * barrier), (barrier))
LW__BARRIER(wait, (lw_shared_barrier_t * barrier), (barrier))
LW__BARRIER(timedwait, (lw_shared_barrier_t * barrier, LW__TIME), (barrier, time))

/* ---- once ---- */

inline int lw_once(lw_region_once_t *once, void (*initialise)(void))
{
	return lw_region_once(once, initialise);
}

#undef LW__TIME
#undef LW__MUTEX
#undef LW__COND
#undef LW__ANY_RWLOCK
#undef LW__SEM
#undef LW__COMPLETION
#undef LW__BARRIER

#endif

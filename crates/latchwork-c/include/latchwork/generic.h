/* Part of latchwork.h: one name for all kinds, in C. */
#ifndef LATCHWORK_GENERIC_H
#define LATCHWORK_GENERIC_H

/*
 * A list of kinds applies the macro X to each kind, with further arguments. A call chooses the function for the
 * pointer's kind, after an assertion that the kind is on the list: an operation that a kind does not have fails to
 * compile, with an explanation. The assertion is in an unevaluated operand, so that the pointer is evaluated once, and
 * static analysis sees only a call.
 */
#define LW__YES(qualifier, kind, op) qualifier kind##_t *: 1
#define LW__FUNCTION(qualifier, kind, op) qualifier kind##_t *: kind##_##op
#define LW__CALL_KIND(pointer, kinds, qualifier, op, text, ...)                                       \
	_Generic((LW__ONLY_IF(_Generic((pointer), kinds(LW__YES, qualifier, op), default: 0), text), (pointer)), \
		 kinds(LW__FUNCTION, qualifier, op),                                                  \
		 default: lw__wrong_type)(__VA_ARGS__)
#define LW__BY_KIND(kinds, op, text, pointer, ...) LW__CALL_KIND(pointer, kinds, , op, text, __VA_ARGS__)
/* For a pointer that may be const, since the function only reads. */
#define LW__LOOK_BY_KIND(kinds, op, text, pointer, ...)                                               \
	LW__CALL_KIND((const __typeof__(*(pointer)) *)(pointer), kinds, const, op, text, __VA_ARGS__)
#define LW__FIRST_OF(first, ...) first
#define LW__FIRST(...) LW__FIRST_OF(__VA_ARGS__, 0)

/* ---- mutexes ---- */

#define LW__INTERRUPTIBLE_MUTEXES(X, q, op)                                                           \
	X(q, lw_mutex, op), X(q, lw_shared_mutex, op), X(q, lw_tp_mutex, op), X(q, lw_shared_tp_mutex, op), \
		X(q, lw_robust_mutex, op), X(q, lw_robust_tp_mutex, op), X(q, lw_region_mutex, op),   \
		X(q, lw_region_tp_mutex, op), LW__CEILING_MUTEXES(X, q, op)
#define LW__CEILING_MUTEXES(X, q, op)                                                                 \
	LW__SETTABLE_CEILINGS(X, q, op), X(q, lw_robust_pp_mutex, op)
#define LW__SETTABLE_CEILINGS(X, q, op) X(q, lw_pp_mutex, op), X(q, lw_shared_pp_mutex, op)
#define LW__ROBUST_MUTEXES(X, q, op)                                                                  \
	X(q, lw_robust_mutex, op), X(q, lw_robust_tp_mutex, op), X(q, lw_robust_pi_mutex, op),        \
		X(q, lw_robust_pp_mutex, op), X(q, lw_region_mutex, op), X(q, lw_region_tp_mutex, op)
#define LW__TP_MUTEXES(X, q, op)                                                                      \
	X(q, lw_tp_mutex, op), X(q, lw_shared_tp_mutex, op), X(q, lw_robust_tp_mutex, op)
#define LW__MUTEXES(X, q, op)                                                                         \
	LW__INTERRUPTIBLE_MUTEXES(X, q, op), X(q, lw_pi_mutex, op), X(q, lw_shared_pi_mutex, op),     \
		X(q, lw_plain_pi_mutex, op), X(q, lw_shared_plain_pi_mutex, op),                      \
		X(q, lw_recursive_mutex, op), X(q, lw_robust_pi_mutex, op), X(q, lw_spin, op)

#define LW__MUTEX(op, ...)                                                                            \
	LW__BY_KIND(LW__MUTEXES, op, "lw_mutex_" #op "() takes a pointer to a mutex", __VA_ARGS__)
#define lw_mutex_init(...)                                                                            \
	LW__CALL_KIND(LW__FIRST(__VA_ARGS__), LW__MUTEXES, , init,                                    \
		      "lw_mutex_init() takes a pointer to a mutex", __VA_ARGS__)
#define lw_mutex_destroy(m) LW__MUTEX(destroy, m, m)
#define lw_mutex_lock(m) LW__MUTEX(lock, m, m)
#define lw_mutex_trylock(m) LW__MUTEX(trylock, m, m)
#define lw_mutex_timedlock(m, time) LW__MUTEX(timedlock, m, m, time)
#define lw_mutex_clocklock(m, clock, time) LW__MUTEX(clocklock, m, m, clock, time)
#define lw_mutex_lock_interruptible(m)                                                                \
	LW__BY_KIND(LW__INTERRUPTIBLE_MUTEXES, lock_interruptible,                                    \
		    "lw_mutex_lock_interruptible() takes a pointer to a mutex that neither inherits priority, " \
		    "nor is recursive, nor a spinlock",                                               \
		    m, m)
#define lw_mutex_unlock(m) LW__MUTEX(unlock, m, m)
#define lw_mutex_is_locked(m)                                                                         \
	LW__LOOK_BY_KIND(LW__MUTEXES, is_locked, "lw_mutex_is_locked() takes a pointer to a mutex", m, m)
#define LW__TP_MUTEX(op, ...)                                                                         \
	LW__BY_KIND(LW__TP_MUTEXES, op, "lw_mutex_" #op "() takes a pointer to a throughput mutex", __VA_ARGS__)
#define lw_mutex_init_hand_off(m, microseconds) LW__TP_MUTEX(init_hand_off, m, m, microseconds)
#define lw_mutex_lock_traced(m, how) LW__TP_MUTEX(lock_traced, m, m, how)
#define lw_mutex_unlock_traced(m, released) LW__TP_MUTEX(unlock_traced, m, m, released)
#define LW__ROBUST_MUTEX(op, m)                                                                       \
	LW__BY_KIND(LW__ROBUST_MUTEXES, op, "lw_mutex_" #op "() takes a pointer to a robust mutex", m, m)
#define lw_mutex_consistent(m) LW__ROBUST_MUTEX(consistent, m)
#define lw_mutex_unlock_inconsistent(m) LW__ROBUST_MUTEX(unlock_inconsistent, m)
#define lw_mutex_getprioceiling(m, ceiling)                                                           \
	LW__LOOK_BY_KIND(LW__CEILING_MUTEXES, getprioceiling,                                         \
			 "lw_mutex_getprioceiling() takes a pointer to a mutex with a ceiling", m, m, ceiling)
#define lw_mutex_setprioceiling(m, ceiling, old)                                                      \
	LW__BY_KIND(LW__SETTABLE_CEILINGS, setprioceiling,                                            \
		    "lw_mutex_setprioceiling() takes a pointer to a mutex with a ceiling that is not robust", m, \
		    m, ceiling, old)

/* ---- condition variables ---- */

#define LW__KIND_OF(m)                                                                                \
	_Generic((m),                                                                                 \
		lw_mutex_t *: LW_WAIT_WAKE,                                                           \
		lw_shared_mutex_t *: LW_WAIT_WAKE + LW_SHARED,                                        \
		lw_tp_mutex_t *: LW_THROUGHPUT,                                                       \
		lw_shared_tp_mutex_t *: LW_THROUGHPUT + LW_SHARED,                                    \
		lw_pi_mutex_t *: LW_INHERIT,                                                          \
		lw_shared_pi_mutex_t *: LW_INHERIT + LW_SHARED,                                       \
		lw_plain_pi_mutex_t *: LW_PLAIN_INHERIT,                                              \
		lw_shared_plain_pi_mutex_t *: LW_PLAIN_INHERIT + LW_SHARED,                           \
		lw_pp_mutex_t *: LW_PROTECT,                                                          \
		lw_shared_pp_mutex_t *: LW_PROTECT + LW_SHARED,                                       \
		lw_recursive_mutex_t *: LW_RECURSIVE,                                                 \
		lw_robust_mutex_t *: LW_WAIT_WAKE + LW_ROBUST,                                        \
		lw_robust_tp_mutex_t *: LW_THROUGHPUT + LW_ROBUST,                                    \
		lw_robust_pi_mutex_t *: LW_INHERIT + LW_ROBUST,                                       \
		lw_robust_pp_mutex_t *: LW_PROTECT + LW_ROBUST,                                       \
		lw_region_mutex_t *: LW_IN_REGION,                                                    \
		lw_region_tp_mutex_t *: LW_IN_REGION_THROUGHPUT,                                      \
		default: -1)
#define LW__CONDS(X, q, op) X(q, lw_cond, op), X(q, lw_shared_cond, op)
#define LW__COND(op, c)                                                                               \
	LW__BY_KIND(LW__CONDS, op, "lw_cond_" #op "() takes a pointer to a condition variable", c, c)
#define lw_cond_init(c) LW__COND(init, c)
#define lw_cond_destroy(c) LW__COND(destroy, c)
#define lw_cond_signal(c) LW__COND(signal, c)
#define lw_cond_broadcast(c) LW__COND(broadcast, c)

#define LW__COND_WAIT(call, c, m, clock, time)                                                        \
	(LW__ONLY_IF(_Generic((c), LW__CONDS(LW__YES, , ), default: 0),                               \
		     call "() takes a pointer to a condition variable"),                              \
	 LW__ONLY_IF(LW__KIND_OF(m) >= 0, call "() takes a pointer to a mutex that is no spinlock"),  \
	 lw__cond_wait(c, _Generic((c), lw_shared_cond_t *: 1, default: 0), m, (unsigned)LW__KIND_OF(m), clock, \
		       time))
#define lw_cond_wait(c, m) LW__COND_WAIT("lw_cond_wait", c, m, -1, NULL)
#define lw_cond_timedwait(c, m, time) LW__COND_WAIT("lw_cond_timedwait", c, m, 1, time)
#define lw_cond_clockwait(c, m, clock, time)                                                          \
	LW__COND_WAIT("lw_cond_clockwait", c, m, lw__clock(clock), time)

/* ---- reader/writer locks ---- */

#define LW__HAND_OFF_RWLOCKS(X, q, op) X(q, lw_robust_rwlock, op)
#define LW__ROBUST_RWLOCKS(X, q, op) LW__HAND_OFF_RWLOCKS(X, q, op), X(q, lw_region_rwlock, op)
#define LW__RWLOCKS(X, q, op)                                                                         \
	X(q, lw_rwlock, op), X(q, lw_shared_rwlock, op), X(q, lw_rf_rwlock, op),                      \
		X(q, lw_shared_rf_rwlock, op), LW__ROBUST_RWLOCKS(X, q, op)
#define LW__ANY_RWLOCK(op, ...)                                                                       \
	LW__BY_KIND(LW__RWLOCKS, op, "lw_rwlock_" #op "() takes a pointer to a reader/writer lock", __VA_ARGS__)
#define lw_rwlock_init(l) LW__ANY_RWLOCK(init, l, l)
#define lw_rwlock_destroy(l) LW__ANY_RWLOCK(destroy, l, l)
#define lw_rwlock_rdlock(l) LW__ANY_RWLOCK(rdlock, l, l)
#define lw_rwlock_tryrdlock(l) LW__ANY_RWLOCK(tryrdlock, l, l)
#define lw_rwlock_timedrdlock(l, time) LW__ANY_RWLOCK(timedrdlock, l, l, time)
#define lw_rwlock_clockrdlock(l, clock, time) LW__ANY_RWLOCK(clockrdlock, l, l, clock, time)
#define lw_rwlock_wrlock(l) LW__ANY_RWLOCK(wrlock, l, l)
#define lw_rwlock_trywrlock(l) LW__ANY_RWLOCK(trywrlock, l, l)
#define lw_rwlock_timedwrlock(l, time) LW__ANY_RWLOCK(timedwrlock, l, l, time)
#define lw_rwlock_clockwrlock(l, clock, time) LW__ANY_RWLOCK(clockwrlock, l, l, clock, time)
#define lw_rwlock_unlock(l) LW__ANY_RWLOCK(unlock, l, l)
#define lw_rwlock_rdlock_traced(l, how) LW__ANY_RWLOCK(rdlock_traced, l, l, how)
#define lw_rwlock_wrlock_traced(l, how) LW__ANY_RWLOCK(wrlock_traced, l, l, how)
#define lw_rwlock_unlock_traced(l, released) LW__ANY_RWLOCK(unlock_traced, l, l, released)
#define LW__ROBUST_RWLOCK(op, ...)                                                                    \
	LW__BY_KIND(LW__ROBUST_RWLOCKS, op, "lw_rwlock_" #op "() takes a pointer to a robust reader/writer lock", \
		    __VA_ARGS__)
#define lw_rwlock_init_hand_off(l, microseconds)                                                      \
	LW__BY_KIND(LW__HAND_OFF_RWLOCKS, init_hand_off,                                              \
		    "lw_rwlock_init_hand_off() takes a pointer to an lw_robust_rwlock_t", l, l, microseconds)
#define lw_rwlock_consistent(l) LW__ROBUST_RWLOCK(consistent, l, l)
#define lw_rwlock_unlock_inconsistent(l) LW__ROBUST_RWLOCK(unlock_inconsistent, l, l)

/* ---- semaphores, completions, barriers ---- */

#define LW__SEMS(X, q, op) X(q, lw_sem, op), X(q, lw_shared_sem, op)
#define LW__SEM(op, ...)                                                                              \
	LW__BY_KIND(LW__SEMS, op, "lw_sem_" #op "() takes a pointer to a semaphore", __VA_ARGS__)
#define lw_sem_init(s, count) LW__SEM(init, s, s, count)
#define lw_sem_destroy(s) LW__SEM(destroy, s, s)
#define lw_sem_wait(s) LW__SEM(wait, s, s)
#define lw_sem_wait_interruptible(s) LW__SEM(wait_interruptible, s, s)
#define lw_sem_trywait(s) LW__SEM(trywait, s, s)
#define lw_sem_timedwait(s, time) LW__SEM(timedwait, s, s, time)
#define lw_sem_clockwait(s, clock, time) LW__SEM(clockwait, s, s, clock, time)
#define lw_sem_post(s) LW__SEM(post, s, s)
#define lw_sem_getvalue(s, value)                                                                     \
	LW__LOOK_BY_KIND(LW__SEMS, getvalue, "lw_sem_getvalue() takes a pointer to a semaphore", s, s, value)

#define LW__COMPLETIONS(X, q, op) X(q, lw_completion, op), X(q, lw_shared_completion, op)
#define LW__COMPLETION(op, ...)                                                                       \
	LW__BY_KIND(LW__COMPLETIONS, op, "lw_completion_" #op "() takes a pointer to a completion", __VA_ARGS__)
#define lw_completion_init(d) LW__COMPLETION(init, d, d)
#define lw_completion_destroy(d) LW__COMPLETION(destroy, d, d)
#define lw_completion_wait(d) LW__COMPLETION(wait, d, d)
#define lw_completion_wait_interruptible(d) LW__COMPLETION(wait_interruptible, d, d)
#define lw_completion_trywait(d) LW__COMPLETION(trywait, d, d)
#define lw_completion_timedwait(d, time) LW__COMPLETION(timedwait, d, d, time)
#define lw_completion_clockwait(d, clock, time) LW__COMPLETION(clockwait, d, d, clock, time)
#define lw_completion_complete(d) LW__COMPLETION(complete, d, d)
#define lw_completion_complete_all(d) LW__COMPLETION(complete_all, d, d)
#define lw_completion_reset(d) LW__COMPLETION(reset, d, d)
#define lw_completion_is_done(d)                                                                      \
	LW__LOOK_BY_KIND(LW__COMPLETIONS, is_done, "lw_completion_is_done() takes a pointer to a completion", d, d)

#define LW__BARRIERS(X, q, op) X(q, lw_barrier, op), X(q, lw_shared_barrier, op)
#define LW__BARRIER(op, ...)                                                                          \
	LW__BY_KIND(LW__BARRIERS, op, "lw_barrier_" #op "() takes a pointer to a barrier", __VA_ARGS__)
#define lw_barrier_init(b, tasks) LW__BARRIER(init, b, b, tasks)
#define lw_barrier_destroy(b) LW__BARRIER(destroy, b, b)
#define lw_barrier_wait(b) LW__BARRIER(wait, b, b)
#define lw_barrier_timedwait(b, time) LW__BARRIER(timedwait, b, b, time)

/* ---- once ---- */

#define lw_once(o, initialise) (_Generic((o), lw_region_once_t *: lw_region_once, default: lw_once)(o, initialise))

#endif

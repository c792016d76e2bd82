/* Part of latchwork.h: one name for all kinds, in C. */
#ifndef LATCHWORK_GENERIC_H
#define LATCHWORK_GENERIC_H

#define LW__BY_KIND_OF(qualifier, m, op)                                                              \
	_Generic((m),                                                                                 \
		qualifier lw_mutex_t *: lw_mutex_##op,                                                \
		qualifier lw_shared_mutex_t *: lw_shared_mutex_##op,                                  \
		qualifier lw_tp_mutex_t *: lw_tp_mutex_##op,                                          \
		qualifier lw_shared_tp_mutex_t *: lw_shared_tp_mutex_##op,                            \
		qualifier lw_pi_mutex_t *: lw_pi_mutex_##op,                                          \
		qualifier lw_shared_pi_mutex_t *: lw_shared_pi_mutex_##op,                            \
		qualifier lw_plain_pi_mutex_t *: lw_plain_pi_mutex_##op,                              \
		qualifier lw_shared_plain_pi_mutex_t *: lw_shared_plain_pi_mutex_##op,                \
		qualifier lw_pp_mutex_t *: lw_pp_mutex_##op,                                          \
		qualifier lw_shared_pp_mutex_t *: lw_shared_pp_mutex_##op,                            \
		qualifier lw_recursive_mutex_t *: lw_recursive_mutex_##op,                            \
		qualifier lw_robust_mutex_t *: lw_robust_mutex_##op,                                  \
		qualifier lw_robust_tp_mutex_t *: lw_robust_tp_mutex_##op,                            \
		qualifier lw_robust_pi_mutex_t *: lw_robust_pi_mutex_##op,                            \
		qualifier lw_robust_pp_mutex_t *: lw_robust_pp_mutex_##op,                            \
		qualifier lw_spin_t *: lw_spin_##op)
#define LW__BY_KIND(m, op) LW__BY_KIND_OF(, m, op)
/* Of one that may be const: the function only looks. */
#define LW__LOOK_BY_KIND(m, op) LW__BY_KIND_OF(const, (const __typeof__(*(m)) *)(m), op)
#define lw_mutex_destroy(m) LW__BY_KIND(m, destroy)(m)
#define lw_mutex_lock(m) LW__BY_KIND(m, lock)(m)
#define lw_mutex_trylock(m) LW__BY_KIND(m, trylock)(m)
#define lw_mutex_timedlock(m, time) LW__BY_KIND(m, timedlock)(m, time)
#define lw_mutex_clocklock(m, clock, time) LW__BY_KIND(m, clocklock)(m, clock, time)
#define lw_mutex_unlock(m) LW__BY_KIND(m, unlock)(m)
#define lw_mutex_is_locked(m) LW__LOOK_BY_KIND(m, is_locked)(m)
#define lw_mutex_consistent(m)                                                                        \
	_Generic((m),                                                                                 \
		lw_robust_mutex_t *: lw_robust_mutex_consistent,                                      \
		lw_robust_tp_mutex_t *: lw_robust_tp_mutex_consistent,                                \
		lw_robust_pi_mutex_t *: lw_robust_pi_mutex_consistent,                                \
		lw_robust_pp_mutex_t *: lw_robust_pp_mutex_consistent)(m)

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
		lw_robust_pp_mutex_t *: LW_PROTECT + LW_ROBUST)
#define LW__IS_SHARED_COND(c) _Generic((c), lw_cond_t *: 0, lw_shared_cond_t *: 1)
#define lw_cond_wait(c, m) lw__cond_wait(c, LW__IS_SHARED_COND(c), m, LW__KIND_OF(m), -1, NULL)
#define lw_cond_timedwait(c, m, time) lw__cond_wait(c, LW__IS_SHARED_COND(c), m, LW__KIND_OF(m), 1, time)
#define lw_cond_clockwait(c, m, clock, time)                                                          \
	lw__cond_wait(c, LW__IS_SHARED_COND(c), m, LW__KIND_OF(m), lw__clock(clock), time)
#define LW__COND(c, op) _Generic((c), lw_cond_t *: lw_cond_##op, lw_shared_cond_t *: lw_shared_cond_##op)
#define lw_cond_signal(c) LW__COND(c, signal)(c)
#define lw_cond_broadcast(c) LW__COND(c, broadcast)(c)

#define LW__BY_RWLOCK(l, op)                                                                          \
	_Generic((l),                                                                                 \
		lw_rwlock_t *: lw_rwlock_##op,                                                        \
		lw_shared_rwlock_t *: lw_shared_rwlock_##op,                                          \
		lw_rf_rwlock_t *: lw_rf_rwlock_##op,                                                  \
		lw_shared_rf_rwlock_t *: lw_shared_rf_rwlock_##op,                                    \
		lw_robust_rwlock_t *: lw_robust_rwlock_##op)
#define lw_rwlock_destroy(l) LW__BY_RWLOCK(l, destroy)(l)
#define lw_rwlock_rdlock(l) LW__BY_RWLOCK(l, rdlock)(l)
#define lw_rwlock_tryrdlock(l) LW__BY_RWLOCK(l, tryrdlock)(l)
#define lw_rwlock_timedrdlock(l, time) LW__BY_RWLOCK(l, timedrdlock)(l, time)
#define lw_rwlock_clockrdlock(l, clock, time) LW__BY_RWLOCK(l, clockrdlock)(l, clock, time)
#define lw_rwlock_wrlock(l) LW__BY_RWLOCK(l, wrlock)(l)
#define lw_rwlock_trywrlock(l) LW__BY_RWLOCK(l, trywrlock)(l)
#define lw_rwlock_timedwrlock(l, time) LW__BY_RWLOCK(l, timedwrlock)(l, time)
#define lw_rwlock_clockwrlock(l, clock, time) LW__BY_RWLOCK(l, clockwrlock)(l, clock, time)
#define lw_rwlock_unlock(l) LW__BY_RWLOCK(l, unlock)(l)

#define LW__BY_SHARING(x, what, op)                                                                   \
	_Generic((x), lw_##what##_t *: lw_##what##_##op, lw_shared_##what##_t *: lw_shared_##what##_##op)
#define lw_sem_wait(s) LW__BY_SHARING(s, sem, wait)(s)
#define lw_sem_trywait(s) LW__BY_SHARING(s, sem, trywait)(s)
#define lw_sem_timedwait(s, time) LW__BY_SHARING(s, sem, timedwait)(s, time)
#define lw_sem_clockwait(s, clock, time) LW__BY_SHARING(s, sem, clockwait)(s, clock, time)
#define lw_sem_post(s) LW__BY_SHARING(s, sem, post)(s)
#define lw_completion_wait(d) LW__BY_SHARING(d, completion, wait)(d)
#define lw_completion_timedwait(d, time) LW__BY_SHARING(d, completion, timedwait)(d, time)
#define lw_completion_complete(d) LW__BY_SHARING(d, completion, complete)(d)
#define lw_completion_complete_all(d) LW__BY_SHARING(d, completion, complete_all)(d)
#define lw_barrier_wait(b) LW__BY_SHARING(b, barrier, wait)(b)
#define lw_barrier_timedwait(b, time) LW__BY_SHARING(b, barrier, timedwait)(b, time)

#endif

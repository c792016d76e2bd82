/* The free pairs, one function each: their machine code is looked at. */
#include "latchwork.h"

#define PAIR(name)                                                                                    \
	int name##_pair_lock(name##_t *mutex) { return lw_mutex_lock(mutex); }                        \
	int name##_pair_unlock(name##_t *mutex) { return lw_mutex_unlock(mutex); }
PAIR(lw_mutex)
PAIR(lw_shared_mutex)
PAIR(lw_tp_mutex)
PAIR(lw_pi_mutex)
PAIR(lw_plain_pi_mutex)
PAIR(lw_recursive_mutex)
PAIR(lw_robust_mutex)
PAIR(lw_robust_tp_mutex)
PAIR(lw_robust_pi_mutex)
PAIR(lw_region_mutex)
PAIR(lw_region_tp_mutex)
PAIR(lw_spin)
PAIR(lw_pp_mutex)
PAIR(lw_robust_pp_mutex)

#define TRACED(name)                                                                                  \
	int name##_traced_pair_lock(name##_t *mutex, struct lw_tp_acquisition *how)                   \
	{                                                                                             \
		return lw_mutex_lock_traced(mutex, how);                                              \
	}                                                                                             \
	int name##_traced_pair_unlock(name##_t *mutex, int *released) { return lw_mutex_unlock_traced(mutex, released); }
TRACED(lw_tp_mutex)
TRACED(lw_robust_tp_mutex)

#define RWLOCK(name)                                                                                  \
	int name##_pair_rdlock(name##_t *lock) { return lw_rwlock_rdlock(lock); }                     \
	int name##_pair_wrlock(name##_t *lock) { return lw_rwlock_wrlock(lock); }                     \
	int name##_pair_unlock(name##_t *lock) { return lw_rwlock_unlock(lock); }                     \
	int name##_traced_pair_rdlock(name##_t *lock, struct lw_rwlock_acquisition *how)              \
	{                                                                                             \
		return lw_rwlock_rdlock_traced(lock, how);                                            \
	}                                                                                             \
	int name##_traced_pair_wrlock(name##_t *lock, struct lw_rwlock_acquisition *how)              \
	{                                                                                             \
		return lw_rwlock_wrlock_traced(lock, how);                                            \
	}                                                                                             \
	int name##_traced_pair_unlock(name##_t *lock, int *released) { return lw_rwlock_unlock_traced(lock, released); }
RWLOCK(lw_rwlock)
RWLOCK(lw_rf_rwlock)

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

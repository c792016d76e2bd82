/*
 * latchwork.h: locks for tasks that may be threads or processes, and may die at any instruction.
 *
 * A free lock is acquired by one inlined atomic read-modify-write, without a call. Names and return values (0, or a
 * positive error number) are like those of pthread. The layouts are frozen, and equal to those of the Rust library: C
 * and Rust may use the same lock.
 *
 *     type                      size  for
 *     lw_mutex_t                   4  threads of one process; waiters spin for a moment, then sleep
 *     lw_tp_mutex_t               16  many tasks, critical sections of a microsecond or more; waits are bounded
 *     lw_pi_mutex_t                8  real-time tasks: the owner inherits the priority of its waiters
 *     lw_plain_pi_mutex_t          4  the same, where 4 bytes count
 *     lw_pp_mutex_t                8  real-time tasks: the owner runs at a priority ceiling
 *     lw_recursive_mutex_t        12  the owner may lock it again
 *     lw_shared_..._mutex_t           the same between processes (except for the recursive one)
 *     lw_robust_mutex_t           40  between processes; owner death is reported to the next owner
 *     lw_region_mutex_t            8  the same, for data in a region (latchwork/region.h); about as fast as lw_mutex_t
 *     lw_region_tp_mutex_t        16  the same, otherwise as lw_tp_mutex_t
 *     lw_robust_tp_mutex_t, lw_robust_pi_mutex_t, lw_robust_pp_mutex_t   as their names say
 *     lw_spin_t                    4  critical sections of a few instructions
 *     lw_rwlock_t, lw_rf_rwlock_t  8  many readers or one writer; writers, or readers, first
 *     lw_robust_rwlock_t        1088  the same between processes; owner death is reported
 *     lw_region_rwlock_t        1088  the same, for data in a region
 *     lw_cond_t                   24  waiting for a change of data that a mutex of any kind protects
 *     lw_sem_t, lw_completion_t    8  counting; signalling that something is done
 *     lw_barrier_t                 8  no task goes on before all have arrived
 *     lw_once_t                   48  an initialisation that survives the death of the task that runs it
 *     lw_region_once_t            16  the same, for data in a region
 *
 * lw_mutex_lock(m) and similar calls take a pointer to a mutex of any kind, by C11's _Generic, or by overloading in
 * C++; so do lw_rwlock_..., lw_cond_..., lw_sem_..., lw_completion_... and lw_barrier_... Each kind also has its own
 * functions: lw_tp_mutex_lock(), ... A call that a kind does not have fails to compile.
 *
 * Points in time are absolute, on CLOCK_MONOTONIC; the functions with "clock" in their names also take CLOCK_REALTIME,
 * which is converted to CLOCK_MONOTONIC when they are called.
 *
 * C11 and later, C++17 and later; GCC or Clang; Linux. Manual: lw_mutex(3) and related pages.
 */
#ifndef LATCHWORK_H
#define LATCHWORK_H

#include "latchwork/base.h"
#include "latchwork/types.h"
#include "latchwork/mutex.h"
#include "latchwork/rwlock.h"
#include "latchwork/wait.h"

/* With LW_NO_GENERIC defined, each kind has only its own functions. */
#ifndef LW_NO_GENERIC
#ifdef __cplusplus
#include "latchwork/generic.hpp"
#else
#include "latchwork/generic.h"
#endif
#endif

#endif

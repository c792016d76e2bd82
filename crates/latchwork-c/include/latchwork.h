/*
 * latchwork.h: locks for tasks that may be threads or processes, and may die at any instruction.
 *
 * A free lock is taken by one atomic read-modify-write, inlined, without a call. Names, and what is
 * returned (0, or a positive error number), are like those of pthread. The layouts are frozen, and those of
 * the Rust library: both may use one and the same lock.
 *
 *     type                      size  for
 *     lw_mutex_t                   4  threads of one process; waiters poll for a moment, then sleep
 *     lw_tp_mutex_t               16  many tasks, short sections: throughput, with a bound on waits
 *     lw_pi_mutex_t                8  real-time tasks: the holder inherits the priority of who waits
 *     lw_plain_pi_mutex_t          4  the same, where 4 bytes count
 *     lw_pp_mutex_t                8  real-time tasks: the holder runs at a priority ceiling
 *     lw_recursive_mutex_t        12  the holder may take it again
 *     lw_shared_..._mutex_t           the same between processes (but for the recursive one)
 *     lw_robust_mutex_t           40  between processes; the death of an owner is told to the next one
 *     lw_robust_tp_mutex_t, lw_robust_pi_mutex_t, lw_robust_pp_mutex_t   as their names say
 *     lw_spin_t                    4  sections of a few instructions
 *     lw_rwlock_t, lw_rf_rwlock_t  8  many readers or one writer; writers, or readers, first
 *     lw_robust_rwlock_t        1088  the same between processes, with deaths told
 *     lw_cond_t                   24  waiting for a change of what a mutex of any kind protects
 *     lw_sem_t, lw_completion_t    8  counting; telling that something is done
 *     lw_barrier_t                 8  nobody goes on before all have arrived
 *     lw_once_t                   48  an initialisation that survives the death of who runs it
 *
 * lw_mutex_lock(m) and its like take a pointer to a mutex of any kind, by C11's _Generic, or by overloading
 * in C++; so do lw_rwlock_..., lw_cond_..., lw_sem_..., lw_completion_... and lw_barrier_... Each kind has its own
 * functions beside that: lw_tp_mutex_lock(), ... What a kind does not have does not compile.
 *
 * Points in time are absolute, on CLOCK_MONOTONIC; the functions with "clock" in their names also take
 * CLOCK_REALTIME, as it stands to CLOCK_MONOTONIC when they are called.
 *
 * C11 and later, C++17 and later; GCC or Clang; Linux. Manual: lw_mutex(3) and its neighbours.
 */
#ifndef LATCHWORK_H
#define LATCHWORK_H

#include "latchwork/base.h"
#include "latchwork/types.h"
#include "latchwork/mutex.h"
#include "latchwork/rwlock.h"
#include "latchwork/wait.h"

/* Without them each kind has its own functions only. */
#ifndef LW_NO_GENERIC
#ifdef __cplusplus
#include "latchwork/generic.hpp"
#else
#include "latchwork/generic.h"
#endif
#endif

#endif

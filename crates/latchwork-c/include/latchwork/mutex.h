/* Part of latchwork.h: mutexes. */
#ifndef LATCHWORK_MUTEX_H
#define LATCHWORK_MUTEX_H

#include "types.h"

LW__BEGIN

#ifndef __CHECKER__

/* ---- fast paths ---- */

LW_INLINE int lw__take_word(uint32_t *word, uint32_t to)
{
	uint32_t from = 0;
	return __atomic_compare_exchange_n(word, &from, to, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

LW_INLINE int lw__give_word(uint32_t *word, uint32_t from)
{
	return __atomic_compare_exchange_n(word, &from, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

#define LW__UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LW__LIKELY(x) __builtin_expect(!!(x), 1)

/* Each returns whether it succeeded. "m" is never null there. */
#define LW__TAKE_BIT(m) lw__take_word(&(m)->lw_word, 1)
#define LW__TAKE_TID(m) (LW__TID != 0 && lw__take_word(&(m)->lw_word, LW__TID))
#define LW__GIVE_TID(m) (LW__TID != 0 && lw__give_word(&(m)->lw_word, LW__TID))
#define LW__CALL(m) 0

#endif /* __CHECKER__ */

/*
 * The functions of a kind of mutex. NULL gives EINVAL. A lock that knows its owner fails with EPERM if another task
 * unlocks it, and with EDEADLK if its owner locks it again; other locks detect only the unlock of a free lock.
 */
#define LW__DECLARE(name)                                                                             \
	LW_INLINE int name##_destroy(name##_t *mutex) LW_EXCLUDES(*mutex);                            \
	LW_INLINE int name##_lock(name##_t *mutex) LW_ACQUIRE(*mutex);                                \
	LW_INLINE int name##_trylock(name##_t *mutex) LW_TRY_ACQUIRE(*mutex);                         \
	LW_INLINE int name##_timedlock(name##_t *mutex, const struct timespec *time)                  \
		LW_TRY_ACQUIRE(*mutex);                                                               \
	LW_INLINE int name##_clocklock(name##_t *mutex, int clock, const struct timespec *time)       \
		LW_TRY_ACQUIRE(*mutex);                                                               \
	LW_INLINE int name##_unlock(name##_t *mutex) LW_RELEASE(*mutex);                              \
	LW_INLINE int name##_is_locked(const name##_t *mutex);
#define LW__DECLARE_INIT(name) LW_INLINE int name##_init(name##_t *mutex);
#define LW__DECLARE_INIT_CEILING(name)                                                                \
	LW_INLINE int name##_init(name##_t *mutex, int ceiling);                                      \
	LW_INLINE int name##_getprioceiling(const name##_t *mutex, int *ceiling);
#define LW__DECLARE_INTERRUPTIBLE(name)                                                               \
	LW_INLINE int name##_lock_interruptible(name##_t *mutex) LW_TRY_ACQUIRE(*mutex);
#define LW__DECLARE_TRACED(name)                                                                      \
	LW_INLINE int name##_init_hand_off(name##_t *mutex, uint32_t microseconds);                   \
	LW_INLINE int name##_lock_traced(name##_t *mutex, struct lw_tp_acquisition *how) LW_ACQUIRE(*mutex); \
	LW_INLINE int name##_unlock_traced(name##_t *mutex, int *released) LW_RELEASE(*mutex);
#define LW__DECLARE_CONSISTENT(name)                                                                  \
	LW_INLINE int name##_consistent(name##_t *mutex);                                             \
	LW_INLINE int name##_unlock_inconsistent(name##_t *mutex) LW_RELEASE(*mutex);

/* Whether a lock is where it cannot work: a region for any PID namespace, if its word names threads by their IDs. */
#define LW__WORKS_ANYWHERE(lock) 0
#define LW__NAMES_THREADS(lock) lw__spans_pid_namespaces(lock)

#ifndef __CHECKER__
#define LW__DEFINE(name, kind, take, give)                                                            \
	LW_INLINE LW_UNCHECKED int name##_destroy(name##_t *mutex)                                    \
	{                                                                                             \
		return mutex == NULL ? EINVAL : lw__is_locked(mutex, kind) ? EBUSY : 0;               \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_lock(name##_t *mutex)                                       \
	{                                                                                             \
		if (LW__LIKELY(mutex != NULL && take(mutex)))                                         \
			return 0;                                                                     \
		return lw__lock(mutex, kind, LW__ENDLESS, 0);                                         \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_trylock(name##_t *mutex)                                    \
	{                                                                                             \
		if (LW__LIKELY(mutex != NULL && take(mutex)))                                         \
			return 0;                                                                     \
		return lw__lock(mutex, kind, LW__TRY, 0);                                             \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_clocklock(name##_t *mutex, int clock,                       \
						    const struct timespec *time)                      \
	{                                                                                             \
		if (LW__LIKELY(mutex != NULL && take(mutex)))                                         \
			return 0;                                                                     \
		return lw__lock_until(mutex, kind, LW__UNTIL, clock, time);                           \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_timedlock(name##_t *mutex, const struct timespec *time)     \
	{                                                                                             \
		if (LW__LIKELY(mutex != NULL && take(mutex)))                                         \
			return 0;                                                                     \
		return lw__lock_until(mutex, kind, LW__UNTIL, 1 /* CLOCK_MONOTONIC */, time);         \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_unlock(name##_t *mutex)                                     \
	{                                                                                             \
		if (LW__LIKELY(mutex != NULL && give(mutex)))                                         \
			return 0;                                                                     \
		return lw__unlock(mutex, kind);                                                       \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_is_locked(const name##_t *mutex)                            \
	{                                                                                             \
		return mutex != NULL && lw__is_locked(mutex, kind);                                   \
	}
#define LW__DEFINE_INIT(name, initializer, is_misplaced)                                              \
	LW_INLINE LW_UNCHECKED int name##_init(name##_t *mutex)                                       \
	{                                                                                             \
		const name##_t fresh = initializer;                                                   \
		if (mutex == NULL)                                                                    \
			return EINVAL;                                                                \
		if (is_misplaced(mutex))                                                              \
			return EXDEV;                                                                 \
		*mutex = fresh;                                                                       \
		return 0;                                                                             \
	}
#define LW__DEFINE_INIT_CEILING(name, initializer, field, is_misplaced)                               \
	LW_INLINE LW_UNCHECKED int name##_init(name##_t *mutex, int ceiling)                          \
	{                                                                                             \
		const name##_t fresh = initializer((uint32_t)ceiling);                                \
		if (mutex == NULL || ceiling < 1 || ceiling > 99)                                     \
			return EINVAL;                                                                \
		if (is_misplaced(mutex))                                                              \
			return EXDEV;                                                                 \
		*mutex = fresh;                                                                       \
		return 0;                                                                             \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_getprioceiling(const name##_t *mutex, int *ceiling)         \
	{                                                                                             \
		if (mutex == NULL || ceiling == NULL)                                                 \
			return EINVAL;                                                                \
		*ceiling = (int)__atomic_load_n(&mutex->field, __ATOMIC_RELAXED);                     \
		return 0;                                                                             \
	}
#define LW__DEFINE_INTERRUPTIBLE(name, kind, take)                                                    \
	LW_INLINE LW_UNCHECKED int name##_lock_interruptible(name##_t *mutex)                         \
	{                                                                                             \
		if (LW__LIKELY(mutex != NULL && take(mutex)))                                         \
			return 0;                                                                     \
		return lw__lock(mutex, kind, LW__INTERRUPTIBLE, 0);                                   \
	}
#define LW__DEFINE_TRACED(name, kind, initializer, take, give, is_misplaced)                          \
	LW_INLINE LW_UNCHECKED int name##_init_hand_off(name##_t *mutex, uint32_t microseconds)       \
	{                                                                                             \
		const name##_t fresh = initializer(microseconds);                                     \
		if (mutex == NULL)                                                                    \
			return EINVAL;                                                                \
		if (is_misplaced(mutex))                                                              \
			return EXDEV;                                                                 \
		*mutex = fresh;                                                                       \
		return 0;                                                                             \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_lock_traced(name##_t *mutex, struct lw_tp_acquisition *how) \
	{                                                                                             \
		if (LW__LIKELY(mutex != NULL && how != NULL && take(mutex))) {                        \
			how->entry = LW_TP_ENTRY_FREE;                                                \
			how->sleeps = 0;                                                              \
			return 0;                                                                     \
		}                                                                                     \
		return lw__lock_traced(mutex, kind, how);                                             \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_unlock_traced(name##_t *mutex, int *released)               \
	{                                                                                             \
		if (LW__LIKELY(mutex != NULL && released != NULL && give(mutex))) {                   \
			*released = LW_TP_RELEASED_NO_SLEEPER;                                        \
			return 0;                                                                     \
		}                                                                                     \
		return lw__unlock_traced(mutex, kind, released);                                      \
	}
#define LW__DEFINE_CONSISTENT(name, kind)                                                             \
	LW_INLINE LW_UNCHECKED int name##_consistent(name##_t *mutex)                                 \
	{                                                                                             \
		return lw__consistent(mutex, kind);                                                   \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_unlock_inconsistent(name##_t *mutex)                        \
	{                                                                                             \
		return lw__unlock_inconsistent(mutex, kind);                                          \
	}
#else
#define LW__DEFINE(name, kind, take, give)
#define LW__DEFINE_INIT(name, initializer, is_misplaced)
#define LW__DEFINE_INIT_CEILING(name, initializer, field, is_misplaced)
#define LW__DEFINE_INTERRUPTIBLE(name, kind, take)
#define LW__DEFINE_TRACED(name, kind, initializer, take, give, is_misplaced)
#define LW__DEFINE_CONSISTENT(name, kind)
#endif

#define LW__INTERRUPTIBLE_KIND(name, kind, take, give)                                                \
	LW__DECLARE(name)                                                                             \
	LW__DECLARE_INTERRUPTIBLE(name)                                                               \
	LW__DEFINE(name, kind, take, give)                                                            \
	LW__DEFINE_INTERRUPTIBLE(name, kind, take)
#define LW__KIND(name, kind, take, give)                                                              \
	LW__DECLARE(name)                                                                             \
	LW__DEFINE(name, kind, take, give)

#ifndef __CHECKER__
/* Any value but 1 needs more: 2 means that a waiter must be woken; others are error numbers. */
#define LW__GIVE_BIT(m) lw__give_bit(&(m)->lw_word, 0)
#define LW__GIVE_SHARED_BIT(m) lw__give_bit(&(m)->lw_word, 1)
LW_INLINE int lw__give_bit(uint32_t *word, unsigned shared)
{
	uint32_t before = __atomic_exchange_n(word, 0, __ATOMIC_RELEASE);
	if (LW__UNLIKELY(before > 1))
		lw__wake(word, 1, shared);
	return before != 0;
}
#define LW__GIVE_SPIN(m) lw__give_spin(&(m)->lw_word)
LW_INLINE int lw__give_spin(uint32_t *word)
{
	if (__atomic_load_n(word, __ATOMIC_RELAXED) == 0)
		return 0;
	__atomic_store_n(word, 0, __ATOMIC_RELEASE);
	return 1;
}
#define LW__TAKE_AGAIN(m) lw__take_again(m)
LW_INLINE int lw__take_again(lw_recursive_mutex_t *mutex)
{
	uint32_t tid = LW__TID;
	if (LW__UNLIKELY(tid == 0))
		return 0;
	if (LW__UNLIKELY(__atomic_load_n(&mutex->lw_owner, __ATOMIC_RELAXED) == tid)) {
		if (mutex->lw_depth == UINT32_MAX)
			return 0;
		__atomic_store_n(&mutex->lw_depth, mutex->lw_depth + 1, __ATOMIC_RELAXED);
		return 1;
	}
	if (LW__UNLIKELY(!lw__take_word(&mutex->lw_word, 1)))
		return 0;
	__atomic_store_n(&mutex->lw_owner, tid, __ATOMIC_RELAXED);
	__atomic_store_n(&mutex->lw_depth, 1, __ATOMIC_RELAXED);
	return 1;
}
#define LW__GIVE_ONCE(m) lw__give_once(m)
LW_INLINE int lw__give_once(lw_recursive_mutex_t *mutex)
{
	uint32_t tid = LW__TID;
	if (LW__UNLIKELY(tid == 0 || __atomic_load_n(&mutex->lw_owner, __ATOMIC_RELAXED) != tid))
		return 0;
	if (LW__UNLIKELY(mutex->lw_depth > 1)) {
		__atomic_store_n(&mutex->lw_depth, mutex->lw_depth - 1, __ATOMIC_RELAXED);
		return 1;
	}
	__atomic_store_n(&mutex->lw_owner, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&mutex->lw_depth, 0, __ATOMIC_RELAXED);
	return lw__give_bit(&mutex->lw_word, 0);
}

/*
 * Robust locks: announce, acquire, link, settle; and announce, unlink, release, settle. All data but the word are the
 * calling thread's own, and the kernel reads them only when that thread is dead: only the order of the stores matters,
 * so compiler barriers suffice. "mark" is
 * LW__PI_MARK for locks that inherit priority.
 */
#define LW__ORDER() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#define LW__PREV_OF(link) ((uintptr_t *)(((link) & ~(uintptr_t)1) - sizeof(uintptr_t)))
#ifdef LW__MUSL
/* musl's head has no link back. */
#define LW__SET_PREV(head, link, to) ((link) == (uintptr_t)(head) ? (void)0 : (void)(*LW__PREV_OF(link) = (to)))
#else
#define LW__SET_PREV(head, link, to) ((void)(*LW__PREV_OF(link) = (to)))
#endif

LW_INLINE int lw__take_listed(uint32_t *word, uintptr_t *links, uintptr_t mark)
{
	struct lw__task *me = lw_this_task;
	struct lw__head *head = me->head;
	uintptr_t link = (uintptr_t)&links[1], before, next, *behind;
	int taken;

	if (me->budget <= 0)
		return 0;
	before = head->pending;
	head->pending = link | mark;
	LW__ORDER();
	taken = lw__take_word(word, me->tid);
	if (LW__LIKELY(taken)) {
		behind = (uintptr_t *)me->anchor;
		next = *behind;
		links[1] = next;
		links[0] = me->anchor;
		LW__ORDER();
		*behind = link | mark;
		LW__ORDER();
		if (LW__UNLIKELY(next != me->end)) {
			LW__SET_PREV(head, next, link);
			me->budget--;
		}
	}
	LW__ORDER();
	head->pending = before;
	return taken;
}

/* For a word that holds only the calling thread's ID. */
LW_INLINE int lw__give_listed(void *mutex, uint32_t *word, uintptr_t *links, uintptr_t mark, unsigned kind)
{
	struct lw__task *me = lw_this_task;
	struct lw__head *head = me->head;
	uint32_t tid = me->tid;
	uintptr_t before, next, prev;

	if (tid == 0 || __atomic_load_n(word, __ATOMIC_RELAXED) != tid || word[1] != 0)
		return 0;
	before = head->pending;
	head->pending = (uintptr_t)&links[1] | mark;
	LW__ORDER();
	next = links[1];
	prev = links[0];
	if (LW__UNLIKELY(next != me->end)) {
		LW__SET_PREV(head, next, prev);
		me->budget++;
	}
	*(uintptr_t *)(prev & ~(uintptr_t)1) = next;
	LW__ORDER();
	if (LW__UNLIKELY(!lw__give_word(word, tid))) {
		lw__free_unlinked(mutex, kind, before);
		return 1;
	}
	LW__ORDER();
	head->pending = before;
	return 1;
}

#define LW__TAKE_LISTED(m) lw__take_listed(&(m)->lw_word, &(m)->lw_prev, 0)
#define LW__GIVE_LISTED(m) \
	lw__give_listed(m, &(m)->lw_word, &(m)->lw_prev, 0, LW_WAIT_WAKE + LW_ROBUST)
#define LW__GIVE_LISTED_TP(m) \
	lw__give_listed(m, &(m)->lw_word, &(m)->lw_prev, 0, LW_THROUGHPUT + LW_ROBUST)
#define LW__TAKE_LISTED_PI(m) lw__take_listed_pi(m)
#define LW__GIVE_LISTED_PI(m) \
	lw__give_listed(m, &(m)->lw_word, &(m)->lw_prev, LW__PI_MARK, LW_INHERIT + LW_ROBUST)
/* The kernel may have passed a word on and dropped the flag that its owner died; the state keeps it. */
LW_INLINE int lw__take_listed_pi(lw_robust_pi_mutex_t *mutex)
{
	if (LW__UNLIKELY(!lw__take_listed(&mutex->lw_word, &mutex->lw_prev, LW__PI_MARK)))
		return 0;
	if (LW__LIKELY(__atomic_load_n(&mutex->lw_state, __ATOMIC_RELAXED) == 0))
		return 1;
	lw__give_back(mutex, LW_INHERIT + LW_ROBUST);
	return 0;
}

/*
 * Region mutexes: the path for a free one in the region that the thread became a task of first. The count says at the thread's
 * end that the task holds locks. It changes outside the critical section: a store in it delays the releasing instruction.
 */
#define LW__TAKE_IN_REGION(m) lw__take_in_region(&(m)->lw_state)
LW_INLINE int lw__take_in_region(uint64_t *word)
{
	struct lw__task *me = lw_this_task;
	uint32_t held = me->first_plain;
	uint64_t from = 0;

	if (LW__UNLIKELY((uintptr_t)word - me->first_base >= me->first_bytes))
		return 0;
	me->first_plain = held + 1;
	if (LW__LIKELY(__atomic_compare_exchange_n(word, &from, me->first_identity, 0, __ATOMIC_ACQUIRE,
						   __ATOMIC_RELAXED)))
		return 1;
	me->first_plain = held;
	return 0;
}

#define LW__GIVE_IN_REGION(m) lw__give_in_region(&(m)->lw_state)
LW_INLINE int lw__give_in_region(uint64_t *word)
{
	struct lw__task *me = lw_this_task;
	uint64_t from = me->first_identity;
	uint32_t held = me->first_plain;

	if (LW__UNLIKELY((uintptr_t)word - me->first_base >= me->first_bytes || held == 0))
		return 0;
	if (LW__UNLIKELY(!__atomic_compare_exchange_n(word, &from, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)))
		return 0;
	me->first_plain = held - 1;
	return 1;
}
#endif

LW__DECLARE_INIT(lw_mutex)
LW__DEFINE_INIT(lw_mutex, LW_MUTEX_INITIALIZER, LW__WORKS_ANYWHERE)
LW__INTERRUPTIBLE_KIND(lw_mutex, LW_WAIT_WAKE, LW__TAKE_BIT, LW__GIVE_BIT)
LW__DECLARE_INIT(lw_shared_mutex)
LW__DEFINE_INIT(lw_shared_mutex, LW_SHARED_MUTEX_INITIALIZER, LW__WORKS_ANYWHERE)
LW__INTERRUPTIBLE_KIND(lw_shared_mutex, LW_WAIT_WAKE + LW_SHARED, LW__TAKE_BIT, LW__GIVE_SHARED_BIT)
LW__DECLARE_INIT(lw_tp_mutex)
LW__DEFINE_INIT(lw_tp_mutex, LW_TP_MUTEX_INITIALIZER, LW__WORKS_ANYWHERE)
LW__INTERRUPTIBLE_KIND(lw_tp_mutex, LW_THROUGHPUT, LW__TAKE_TID, LW__GIVE_TID)
LW__DECLARE_TRACED(lw_tp_mutex)
LW__DEFINE_TRACED(lw_tp_mutex, LW_THROUGHPUT, LW_TP_MUTEX_HAND_OFF_INITIALIZER, LW__TAKE_TID, LW__GIVE_TID,
		  LW__WORKS_ANYWHERE)
LW__DECLARE_INIT(lw_shared_tp_mutex)
LW__DEFINE_INIT(lw_shared_tp_mutex, LW_SHARED_TP_MUTEX_INITIALIZER, LW__NAMES_THREADS)
LW__INTERRUPTIBLE_KIND(lw_shared_tp_mutex, LW_THROUGHPUT + LW_SHARED, LW__TAKE_TID, LW__GIVE_TID)
LW__DECLARE_TRACED(lw_shared_tp_mutex)
LW__DEFINE_TRACED(lw_shared_tp_mutex, LW_THROUGHPUT + LW_SHARED, LW_SHARED_TP_MUTEX_HAND_OFF_INITIALIZER,
		  LW__TAKE_TID, LW__GIVE_TID, LW__NAMES_THREADS)
LW__DECLARE_INIT(lw_pi_mutex)
LW__DEFINE_INIT(lw_pi_mutex, LW_PI_MUTEX_INITIALIZER, LW__WORKS_ANYWHERE)
LW__KIND(lw_pi_mutex, LW_INHERIT, LW__TAKE_TID, LW__GIVE_TID)
LW__DECLARE_INIT(lw_shared_pi_mutex)
LW__DEFINE_INIT(lw_shared_pi_mutex, LW_SHARED_PI_MUTEX_INITIALIZER, LW__NAMES_THREADS)
LW__KIND(lw_shared_pi_mutex, LW_INHERIT + LW_SHARED, LW__TAKE_TID,
	 LW__GIVE_TID)
LW__DECLARE_INIT(lw_plain_pi_mutex)
LW__DEFINE_INIT(lw_plain_pi_mutex, LW_PLAIN_PI_MUTEX_INITIALIZER, LW__WORKS_ANYWHERE)
LW__KIND(lw_plain_pi_mutex, LW_PLAIN_INHERIT, LW__TAKE_TID, LW__GIVE_TID)
LW__DECLARE_INIT(lw_shared_plain_pi_mutex)
LW__DEFINE_INIT(lw_shared_plain_pi_mutex, LW_SHARED_PLAIN_PI_MUTEX_INITIALIZER, LW__NAMES_THREADS)
LW__KIND(lw_shared_plain_pi_mutex, LW_PLAIN_INHERIT + LW_SHARED,
	 LW__TAKE_TID, LW__GIVE_TID)
LW__DECLARE_INIT_CEILING(lw_pp_mutex)
LW__DEFINE_INIT_CEILING(lw_pp_mutex, LW_PP_MUTEX_INITIALIZER, lw_gate, LW__WORKS_ANYWHERE)
LW__INTERRUPTIBLE_KIND(lw_pp_mutex, LW_PROTECT, LW__CALL, LW__CALL)
LW__DECLARE_INIT_CEILING(lw_shared_pp_mutex)
LW__DEFINE_INIT_CEILING(lw_shared_pp_mutex, LW_SHARED_PP_MUTEX_INITIALIZER, lw_gate,
		  LW__WORKS_ANYWHERE)
LW__INTERRUPTIBLE_KIND(lw_shared_pp_mutex, LW_PROTECT + LW_SHARED, LW__CALL, LW__CALL)
LW__DECLARE_INIT(lw_recursive_mutex)
LW__DEFINE_INIT(lw_recursive_mutex, LW_RECURSIVE_MUTEX_INITIALIZER, LW__WORKS_ANYWHERE)
LW__KIND(lw_recursive_mutex, LW_RECURSIVE, LW__TAKE_AGAIN, LW__GIVE_ONCE)
LW__DECLARE_INIT(lw_spin)
LW__DEFINE_INIT(lw_spin, LW_SPIN_INITIALIZER, LW__WORKS_ANYWHERE)
LW__KIND(lw_spin, LW_SPIN, LW__TAKE_BIT, LW__GIVE_SPIN)
LW__DECLARE_INIT(lw_robust_mutex)
LW__DECLARE_CONSISTENT(lw_robust_mutex)
LW__DEFINE_INIT(lw_robust_mutex, LW_ROBUST_MUTEX_INITIALIZER, LW__NAMES_THREADS)
LW__INTERRUPTIBLE_KIND(lw_robust_mutex, LW_WAIT_WAKE + LW_ROBUST, LW__TAKE_LISTED, LW__GIVE_LISTED)
LW__DEFINE_CONSISTENT(lw_robust_mutex, LW_WAIT_WAKE + LW_ROBUST)
LW__DECLARE_INIT(lw_robust_tp_mutex)
LW__DECLARE_CONSISTENT(lw_robust_tp_mutex)
LW__DEFINE_INIT(lw_robust_tp_mutex, LW_ROBUST_TP_MUTEX_INITIALIZER, LW__NAMES_THREADS)
LW__INTERRUPTIBLE_KIND(lw_robust_tp_mutex, LW_THROUGHPUT + LW_ROBUST, LW__TAKE_LISTED, LW__GIVE_LISTED_TP)
LW__DEFINE_CONSISTENT(lw_robust_tp_mutex, LW_THROUGHPUT + LW_ROBUST)
LW__DECLARE_TRACED(lw_robust_tp_mutex)
/* The inlined unlock does not say what its slow path did. */
LW__DEFINE_TRACED(lw_robust_tp_mutex, LW_THROUGHPUT + LW_ROBUST, LW_ROBUST_TP_MUTEX_HAND_OFF_INITIALIZER,
		  LW__TAKE_LISTED, LW__CALL, LW__NAMES_THREADS)
LW__DECLARE_CONSISTENT(lw_robust_pi_mutex)
LW__DECLARE_INIT(lw_robust_pi_mutex)
LW__DEFINE_INIT(lw_robust_pi_mutex, LW_ROBUST_PI_MUTEX_INITIALIZER, LW__NAMES_THREADS)
LW__KIND(lw_robust_pi_mutex, LW_INHERIT + LW_ROBUST, LW__TAKE_LISTED_PI, LW__GIVE_LISTED_PI)
LW__DEFINE_CONSISTENT(lw_robust_pi_mutex, LW_INHERIT + LW_ROBUST)
LW__DECLARE_CONSISTENT(lw_robust_pp_mutex)
LW__DECLARE_INIT_CEILING(lw_robust_pp_mutex)
LW__DEFINE_INIT_CEILING(lw_robust_pp_mutex, LW_ROBUST_PP_MUTEX_INITIALIZER, lw_extra,
		  LW__NAMES_THREADS)
LW__INTERRUPTIBLE_KIND(lw_robust_pp_mutex, LW_PROTECT + LW_ROBUST, LW__CALL, LW__CALL)
LW__DEFINE_CONSISTENT(lw_robust_pp_mutex, LW_PROTECT + LW_ROBUST)

LW__DECLARE_INIT(lw_region_mutex)
LW__DECLARE_CONSISTENT(lw_region_mutex)
LW__DEFINE_INIT(lw_region_mutex, LW_REGION_MUTEX_INITIALIZER, LW__WORKS_ANYWHERE)
LW__INTERRUPTIBLE_KIND(lw_region_mutex, LW_IN_REGION, LW__TAKE_IN_REGION, LW__GIVE_IN_REGION)
LW__DEFINE_CONSISTENT(lw_region_mutex, LW_IN_REGION)
LW__DECLARE_INIT(lw_region_tp_mutex)
LW__DECLARE_CONSISTENT(lw_region_tp_mutex)
LW__DEFINE_INIT(lw_region_tp_mutex, LW_REGION_TP_MUTEX_INITIALIZER, LW__WORKS_ANYWHERE)
LW__INTERRUPTIBLE_KIND(lw_region_tp_mutex, LW_IN_REGION_THROUGHPUT, LW__TAKE_IN_REGION, LW__GIVE_IN_REGION)
LW__DEFINE_CONSISTENT(lw_region_tp_mutex, LW_IN_REGION_THROUGHPUT)

/* Changes the ceiling, under the lock; stores the old one if "old" is not NULL. */
int lw_pp_mutex_setprioceiling(lw_pp_mutex_t *mutex, int ceiling, int *old);
int lw_shared_pp_mutex_setprioceiling(lw_shared_pp_mutex_t *mutex, int ceiling, int *old);

LW__END

#endif

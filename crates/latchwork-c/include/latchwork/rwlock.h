/* Part of latchwork.h: reader/writer locks. */
#ifndef LATCHWORK_RWLOCK_H
#define LATCHWORK_RWLOCK_H

#include "mutex.h"

LW__BEGIN

/* ---- reader/writer locks ---- */

#ifndef __CHECKER__
#define LW__READERS 0xffffffu
#define LW__WRITER 0x80000000u

LW_INLINE int lw__read_free(uint64_t *word)
{
	uint64_t state = __atomic_load_n(word, __ATOMIC_RELAXED);
	return state < LW__READERS &&
	       __atomic_compare_exchange_n(word, &state, state + 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

LW_INLINE int lw__write_free(uint64_t *word)
{
	uint64_t state = 0;
	return __atomic_compare_exchange_n(word, &state, LW__WRITER, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Succeeds if only readers are inside, or a writer without waiters. */
LW_INLINE int lw__leave(uint64_t *word)
{
	uint64_t state = __atomic_load_n(word, __ATOMIC_RELAXED);
	uint64_t to = state == LW__WRITER ? 0 : state - 1;
	if (state == 0 || (state != LW__WRITER && state > LW__READERS))
		return 0;
	return __atomic_compare_exchange_n(word, &state, to, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}
#endif

#define LW__DECLARE_RWLOCK(name)                                                                      \
	LW_INLINE int name##_init(name##_t *lock);                                                    \
	LW_INLINE int name##_destroy(name##_t *lock) LW_EXCLUDES(*lock);                              \
	LW_INLINE int name##_rdlock(name##_t *lock) LW_ACQUIRE_SHARED(*lock);                         \
	LW_INLINE int name##_tryrdlock(name##_t *lock) LW_TRY_ACQUIRE_SHARED(*lock);                  \
	LW_INLINE int name##_timedrdlock(name##_t *lock, const struct timespec *time)                 \
		LW_TRY_ACQUIRE_SHARED(*lock);                                                         \
	LW_INLINE int name##_clockrdlock(name##_t *lock, int clock, const struct timespec *time)      \
		LW_TRY_ACQUIRE_SHARED(*lock);                                                         \
	LW_INLINE int name##_wrlock(name##_t *lock) LW_ACQUIRE(*lock);                                \
	LW_INLINE int name##_trywrlock(name##_t *lock) LW_TRY_ACQUIRE(*lock);                         \
	LW_INLINE int name##_timedwrlock(name##_t *lock, const struct timespec *time)                 \
		LW_TRY_ACQUIRE(*lock);                                                                \
	LW_INLINE int name##_clockwrlock(name##_t *lock, int clock, const struct timespec *time)      \
		LW_TRY_ACQUIRE(*lock);                                                                \
	LW_INLINE int name##_unlock(name##_t *lock) LW_RELEASE_ANY(*lock);                            \
	LW_INLINE int name##_rdlock_traced(name##_t *lock, struct lw_rwlock_acquisition *how)         \
		LW_ACQUIRE_SHARED(*lock);                                                             \
	LW_INLINE int name##_wrlock_traced(name##_t *lock, struct lw_rwlock_acquisition *how)         \
		LW_ACQUIRE(*lock);                                                                    \
	LW_INLINE int name##_unlock_traced(name##_t *lock, int *released) LW_RELEASE_ANY(*lock);

#ifndef __CHECKER__
#define LW__DEFINE_ENTER(name, what, kind, writes, enter)                                             \
	LW_INLINE LW_UNCHECKED int name##_##what(name##_t *lock)                                      \
	{                                                                                             \
		if (LW__LIKELY(lock != NULL && enter(lock)))                                          \
			return 0;                                                                     \
		return lw__rwlock(lock, kind, writes, LW__ENDLESS, 1, NULL);                          \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_try##what(name##_t *lock)                                   \
	{                                                                                             \
		if (LW__LIKELY(lock != NULL && enter(lock)))                                          \
			return 0;                                                                     \
		return lw__rwlock(lock, kind, writes, LW__TRY, 1, NULL);                              \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_clock##what(name##_t *lock, int clock,                      \
						      const struct timespec *time)                    \
	{                                                                                             \
		if (LW__LIKELY(lock != NULL && enter(lock)))                                          \
			return 0;                                                                     \
		return lw__rwlock(lock, kind, writes, LW__UNTIL, clock, time);                        \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_timed##what(name##_t *lock, const struct timespec *time)    \
	{                                                                                             \
		if (LW__LIKELY(lock != NULL && enter(lock)))                                          \
			return 0;                                                                     \
		return lw__rwlock(lock, kind, writes, LW__UNTIL, 1, time);                            \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_##what##_traced(name##_t *lock,                             \
							  struct lw_rwlock_acquisition *how)          \
	{                                                                                             \
		if (LW__LIKELY(lock != NULL && how != NULL && enter(lock))) {                         \
			how->entry = LW_RWLOCK_ENTRY_FREE;                                            \
			how->sleeps = 0;                                                              \
			return 0;                                                                     \
		}                                                                                     \
		return lw__rwlock_traced(lock, kind, writes, how);                                    \
	}
#define LW__DEFINE_RWLOCK(name, kind, initializer, read, write, leave, is_free, is_misplaced)         \
	LW_INLINE LW_UNCHECKED int name##_init(name##_t *lock)                                        \
	{                                                                                             \
		const name##_t fresh = initializer;                                                   \
		if (lock == NULL)                                                                     \
			return EINVAL;                                                                \
		if (is_misplaced(lock))                                                               \
			return EXDEV;                                                                 \
		*lock = fresh;                                                                        \
		return 0;                                                                             \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_destroy(name##_t *lock)                                     \
	{                                                                                             \
		return lock == NULL ? EINVAL : is_free(lock) ? 0 : EBUSY;                             \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_unlock(name##_t *lock)                                      \
	{                                                                                             \
		if (LW__LIKELY(lock != NULL && leave(lock)))                                          \
			return 0;                                                                     \
		return lw__rwlock_unlock(lock, kind);                                                 \
	}                                                                                             \
	LW_INLINE LW_UNCHECKED int name##_unlock_traced(name##_t *lock, int *released)                \
	{                                                                                             \
		if (LW__LIKELY(lock != NULL && released != NULL && leave(lock))) {                    \
			*released = LW_RWLOCK_RELEASED_NO_SLEEPER;                                    \
			return 0;                                                                     \
		}                                                                                     \
		return lw__rwlock_unlock_traced(lock, kind, released);                                \
	}                                                                                             \
	LW__DEFINE_ENTER(name, rdlock, kind, 0, read)                                                 \
	LW__DEFINE_ENTER(name, wrlock, kind, 1, write)
#define LW__READ_FREE(l) lw__read_free(&(l)->lw_state)
#define LW__WRITE_FREE(l) lw__write_free(&(l)->lw_state)
#define LW__LEAVE(l) lw__leave(&(l)->lw_state)
#define LW__NOBODY_INSIDE(l)                                                                          \
	((__atomic_load_n(&(l)->lw_state, __ATOMIC_RELAXED) & (LW__WRITER | LW__READERS)) == 0)
#define LW__IS_UNUSED(l) (!lw__rwlock_is_used(l, 4))
#define LW__IS_UNUSED_IN_REGION(l) (!lw__rwlock_is_used(l, 5))
#else
#define LW__DEFINE_RWLOCK(name, kind, initializer, read, write, leave, is_free, is_misplaced)
#endif

#define LW__RWLOCK(name, kind, initializer)                                                           \
	LW__DECLARE_RWLOCK(name)                                                                      \
	LW__DEFINE_RWLOCK(name, kind, initializer, LW__READ_FREE, LW__WRITE_FREE, LW__LEAVE,          \
			  LW__NOBODY_INSIDE, LW__WORKS_ANYWHERE)
LW__RWLOCK(lw_rwlock, 0, LW_RWLOCK_INITIALIZER)
LW__RWLOCK(lw_shared_rwlock, 1, LW_SHARED_RWLOCK_INITIALIZER)
LW__RWLOCK(lw_rf_rwlock, 2, LW_RF_RWLOCK_INITIALIZER)
LW__RWLOCK(lw_shared_rf_rwlock, 3, LW_SHARED_RF_RWLOCK_INITIALIZER)
LW__DECLARE_RWLOCK(lw_robust_rwlock)
LW__DEFINE_RWLOCK(lw_robust_rwlock, 4, LW_ROBUST_RWLOCK_INITIALIZER, LW__CALL, LW__CALL, LW__CALL,
		  LW__IS_UNUSED, LW__NAMES_THREADS)
/* The same for the data of a region: it must lie in one. */
LW__DECLARE_RWLOCK(lw_region_rwlock)
LW__DEFINE_RWLOCK(lw_region_rwlock, 5, LW_REGION_RWLOCK_INITIALIZER, LW__CALL, LW__CALL, LW__CALL,
		  LW__IS_UNUSED_IN_REGION, LW__WORKS_ANYWHERE)
/* After a writer died inside: EOWNERDEAD makes the caller the writer, even if it wanted to read. */
LW_INLINE int lw_robust_rwlock_consistent(lw_robust_rwlock_t *lock);
LW_INLINE int lw_region_rwlock_consistent(lw_region_rwlock_t *lock);
/* For a writer: the next task gets EOWNERDEAD. */
LW_INLINE int lw_robust_rwlock_unlock_inconsistent(lw_robust_rwlock_t *lock) LW_RELEASE(*lock);
LW_INLINE int lw_region_rwlock_unlock_inconsistent(lw_region_rwlock_t *lock) LW_RELEASE(*lock);
/* With another time than 5,000 microseconds after which a waiter gets the lock handed off; or LW_TP_NEVER. */
LW_INLINE int lw_robust_rwlock_init_hand_off(lw_robust_rwlock_t *lock, uint32_t microseconds);
#ifndef __CHECKER__
LW_INLINE LW_UNCHECKED int lw_robust_rwlock_consistent(lw_robust_rwlock_t *lock)
{
	return lw__rwlock_consistent(lock);
}
LW_INLINE LW_UNCHECKED int lw_robust_rwlock_unlock_inconsistent(lw_robust_rwlock_t *lock)
{
	return lw__rwlock_unlock_inconsistent(lock);
}
LW_INLINE LW_UNCHECKED int lw_region_rwlock_consistent(lw_region_rwlock_t *lock)
{
	return lw__region_rwlock_consistent(lock);
}
LW_INLINE LW_UNCHECKED int lw_region_rwlock_unlock_inconsistent(lw_region_rwlock_t *lock)
{
	return lw__region_rwlock_unlock_inconsistent(lock);
}
LW_INLINE LW_UNCHECKED int lw_robust_rwlock_init_hand_off(lw_robust_rwlock_t *lock, uint32_t microseconds)
{
	const lw_robust_rwlock_t fresh = LW_ROBUST_RWLOCK_HAND_OFF_INITIALIZER(microseconds);
	if (lock == NULL)
		return EINVAL;
	if (LW__NAMES_THREADS(lock))
		return EXDEV;
	*lock = fresh;
	return 0;
}
#endif

LW__END

#endif

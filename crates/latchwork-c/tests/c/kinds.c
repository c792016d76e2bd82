/* The locks of latchwork.h, for the bodies that the locks of Rust run. */
#include "latchwork.h"

#include "kinds.h"

#include <latchwork/region.h>
#include <stdlib.h>

#define MUTEX(name, cond, initialise)                                                                 \
	static void name##_make(void *mutex) { initialise; }                                          \
	static int name##_take(void *mutex) { return lw_mutex_lock((name##_t *)mutex); }              \
	static int name##_try(void *mutex) { return lw_mutex_trylock((name##_t *)mutex); }            \
	static int name##_until(void *mutex, const struct timespec *time)                             \
	{                                                                                             \
		return lw_mutex_timedlock((name##_t *)mutex, time);                                   \
	}                                                                                             \
	static int name##_release(void *mutex) { return lw_mutex_unlock((name##_t *)mutex); }         \
	static int name##_wait(void *it, void *mutex)                                                 \
	{                                                                                             \
		return lw_cond_wait((cond##_t *)it, (name##_t *)mutex);                               \
	}                                                                                             \
	static int name##_wait_until(void *it, void *mutex, const struct timespec *time)              \
	{                                                                                             \
		return lw_cond_timedwait((cond##_t *)it, (name##_t *)mutex, time);                    \
	}                                                                                             \
	static void name##_notify(void *it, int all)                                                  \
	{                                                                                             \
		if (all)                                                                              \
			lw_cond_broadcast((cond##_t *)it);                                            \
		else                                                                                  \
			lw_cond_signal((cond##_t *)it);                                               \
	}
#define PLAIN(name, cond) MUTEX(name, cond, name##_init((name##_t *)mutex))
#define CEILING(name, cond) MUTEX(name, cond, name##_init((name##_t *)mutex, 1))
PLAIN(lw_mutex, lw_cond)
PLAIN(lw_shared_mutex, lw_shared_cond)
PLAIN(lw_tp_mutex, lw_cond)
PLAIN(lw_shared_tp_mutex, lw_shared_cond)
PLAIN(lw_pi_mutex, lw_cond)
PLAIN(lw_shared_pi_mutex, lw_shared_cond)
PLAIN(lw_plain_pi_mutex, lw_cond)
PLAIN(lw_shared_plain_pi_mutex, lw_shared_cond)
CEILING(lw_pp_mutex, lw_cond)
CEILING(lw_shared_pp_mutex, lw_shared_cond)
PLAIN(lw_recursive_mutex, lw_cond)
PLAIN(lw_robust_mutex, lw_shared_cond)
PLAIN(lw_robust_tp_mutex, lw_shared_cond)
PLAIN(lw_robust_pi_mutex, lw_shared_cond)
CEILING(lw_robust_pp_mutex, lw_shared_cond)

/* A region mutex lies in a region of its own, which lasts as long as the process: the body has a pointer to it. */
#define IN_REGION(name)                                                                               \
	static name##_t *name##_at(void *mutex) { return *(name##_t **)mutex; }                       \
	static void name##_make(void *mutex)                                                          \
	{                                                                                             \
		lw_region_t *region;                                                                  \
		void *object = NULL;                                                                  \
		if (lw_region_create(&region, NULL, NULL) != 0 ||                                     \
		    lw_region_object(region, "mutex", lw_type("mutex"), sizeof(name##_t), NULL, NULL, &object) != 0) \
			abort();                                                                      \
		*(void **)mutex = object;                                                             \
	}                                                                                             \
	static int name##_take(void *mutex) { return lw_mutex_lock(name##_at(mutex)); }               \
	static int name##_try(void *mutex) { return lw_mutex_trylock(name##_at(mutex)); }             \
	static int name##_until(void *mutex, const struct timespec *time)                             \
	{                                                                                             \
		return lw_mutex_timedlock(name##_at(mutex), time);                                    \
	}                                                                                             \
	static int name##_release(void *mutex) { return lw_mutex_unlock(name##_at(mutex)); }          \
	static int name##_wait(void *it, void *mutex)                                                 \
	{                                                                                             \
		return lw_cond_wait((lw_shared_cond_t *)it, name##_at(mutex));                        \
	}                                                                                             \
	static int name##_wait_until(void *it, void *mutex, const struct timespec *time)              \
	{                                                                                             \
		return lw_cond_timedwait((lw_shared_cond_t *)it, name##_at(mutex), time);             \
	}
IN_REGION(lw_region_mutex)
IN_REGION(lw_region_tp_mutex)
#define lw_region_mutex_notify lw_robust_mutex_notify
#define lw_region_tp_mutex_notify lw_robust_mutex_notify

#define TABLE(name, cond)                                                                             \
	{                                                                                             \
		name##_make, name##_take, name##_try, name##_until, name##_release, name##_wait,      \
			name##_wait_until, name##_notify, sizeof(name##_t), sizeof(cond##_t)          \
	}
const struct mutex_kind mutex_kinds[] = {
	TABLE(lw_mutex, lw_cond),
	TABLE(lw_shared_mutex, lw_shared_cond),
	TABLE(lw_tp_mutex, lw_cond),
	TABLE(lw_shared_tp_mutex, lw_shared_cond),
	TABLE(lw_pi_mutex, lw_cond),
	TABLE(lw_shared_pi_mutex, lw_shared_cond),
	TABLE(lw_plain_pi_mutex, lw_cond),
	TABLE(lw_shared_plain_pi_mutex, lw_shared_cond),
	TABLE(lw_pp_mutex, lw_cond),
	TABLE(lw_shared_pp_mutex, lw_shared_cond),
	TABLE(lw_recursive_mutex, lw_cond),
	TABLE(lw_robust_mutex, lw_shared_cond),
	TABLE(lw_robust_tp_mutex, lw_shared_cond),
	TABLE(lw_robust_pi_mutex, lw_shared_cond),
	TABLE(lw_robust_pp_mutex, lw_shared_cond),
	TABLE(lw_region_mutex, lw_shared_cond),
	TABLE(lw_region_tp_mutex, lw_shared_cond),
};

#define RWLOCK(name)                                                                                  \
	static void name##_make(void *lock) { name##_init((name##_t *)lock); }                        \
	static int name##_read(void *lock) { return lw_rwlock_rdlock((name##_t *)lock); }             \
	static int name##_try_read(void *lock) { return lw_rwlock_tryrdlock((name##_t *)lock); }      \
	static int name##_read_until(void *lock, const struct timespec *time)                         \
	{                                                                                             \
		return lw_rwlock_timedrdlock((name##_t *)lock, time);                                 \
	}                                                                                             \
	static int name##_write(void *lock) { return lw_rwlock_wrlock((name##_t *)lock); }            \
	static int name##_try_write(void *lock) { return lw_rwlock_trywrlock((name##_t *)lock); }     \
	static int name##_write_until(void *lock, const struct timespec *time)                        \
	{                                                                                             \
		return lw_rwlock_timedwrlock((name##_t *)lock, time);                                 \
	}                                                                                             \
	static int name##_leave(void *lock) { return lw_rwlock_unlock((name##_t *)lock); }
RWLOCK(lw_rwlock)
RWLOCK(lw_rf_rwlock)
RWLOCK(lw_shared_rwlock)
RWLOCK(lw_shared_rf_rwlock)
RWLOCK(lw_robust_rwlock)

/* One in a region of its own, as the region mutex. */
static lw_region_rwlock_t *rwlock_in_region(void *lock) { return *(lw_region_rwlock_t **)lock; }
static void lw_region_rwlock_make(void *lock)
{
	lw_region_t *region;
	void *object = NULL;
	if (lw_region_create(&region, NULL, NULL) != 0 ||
	    lw_region_object(region, "lock", lw_type("lock"), sizeof(lw_region_rwlock_t), NULL, NULL, &object) != 0)
		abort();
	*(void **)lock = object;
}
static int lw_region_rwlock_read(void *lock) { return lw_rwlock_rdlock(rwlock_in_region(lock)); }
static int lw_region_rwlock_try_read(void *lock) { return lw_rwlock_tryrdlock(rwlock_in_region(lock)); }
static int lw_region_rwlock_read_until(void *lock, const struct timespec *time)
{
	return lw_rwlock_timedrdlock(rwlock_in_region(lock), time);
}
static int lw_region_rwlock_write(void *lock) { return lw_rwlock_wrlock(rwlock_in_region(lock)); }
static int lw_region_rwlock_try_write(void *lock) { return lw_rwlock_trywrlock(rwlock_in_region(lock)); }
static int lw_region_rwlock_write_until(void *lock, const struct timespec *time)
{
	return lw_rwlock_timedwrlock(rwlock_in_region(lock), time);
}
static int lw_region_rwlock_leave(void *lock) { return lw_rwlock_unlock(rwlock_in_region(lock)); }

#define RWLOCK_TABLE(name)                                                                            \
	{                                                                                             \
		name##_make, name##_read, name##_try_read, name##_read_until, name##_write,           \
			name##_try_write, name##_write_until, name##_leave, name##_leave,             \
			sizeof(name##_t)                                                              \
	}
const struct rwlock_kind rwlock_kinds[] = {
	RWLOCK_TABLE(lw_rwlock),
	RWLOCK_TABLE(lw_rf_rwlock),
	RWLOCK_TABLE(lw_shared_rwlock),
	RWLOCK_TABLE(lw_shared_rf_rwlock),
	RWLOCK_TABLE(lw_robust_rwlock),
	RWLOCK_TABLE(lw_region_rwlock),
};

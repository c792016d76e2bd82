/* Reader/writer locks: how a call says that it acquired one, and what an unlock says that it did for the waiters. */
#include <errno.h>

#include "latchwork.h"

#include "check.h"

/* Bits of a lock that is not robust: a waiter has asked for a wake-up; a waiter has waited for too long. */
#define CALL (3ull << 62)
#define STARVING (0x3full << 24)
#define WAITERS 0x80000000u

/* The account that a waiter gets of its calls. */
struct wait {
	void *lock;
	int writes;
	struct lw_rwlock_acquisition how;
	int released;
};

#define TEST(name)                                                                                    \
	static void *name##_waits(void *argument)                                                     \
	{                                                                                             \
		struct wait *wait = (struct wait *)argument;                                          \
		/* lw_rwlock(3) says: lw_rwlock_rdlock_traced() and lw_rwlock_wrlock_traced() do what */ \
		/* lw_rwlock(3) says: lw_rwlock_unlock_traced() does what lw_rwlock_unlock() does, and stores in */ \
		/* lw_rwlock(3) says: If the call acquires the lock, it fills the structure how */    \
		name##_t *lock = (name##_t *)wait->lock;                                              \
		CHECK_IS(wait->writes ? lw_rwlock_wrlock_traced(lock, &wait->how)                     \
				      : lw_rwlock_rdlock_traced(lock, &wait->how),                    \
			 0);                                                                          \
		CHECK_IS(lw_rwlock_unlock_traced(lock, &wait->released), 0);                          \
		return NULL;                                                                          \
	}                                                                                             \
	/* What the unlock of a writer said, with a task that waits as "waits" says. */               \
	static int name##_unlocked(name##_t *lock, int writes, struct wait *wait, int (*waits)(const name##_t *)) \
	{                                                                                             \
		struct lw_rwlock_acquisition how = {9, 9};                                            \
		int released = 9;                                                                     \
		pthread_t waiter;                                                                     \
		memset(wait, 0, sizeof *wait);                                                        \
		wait->lock = lock;                                                                    \
		wait->writes = writes;                                                                \
		/* lw_rwlock(3) says: The lock admitted the caller at once */                         \
		/* lw_rwlock(3) says: how->sleeps says how often the caller went to sleep */          \
		CHECK_IS(lw_rwlock_wrlock_traced(lock, &how), 0);                                     \
		CHECK_IS(how.entry, LW_RWLOCK_ENTRY_FREE);                                            \
		CHECK_IS(how.sleeps, 0);                                                              \
		waiter = start(name##_waits, wait);                                                   \
		while (!waits(lock))                                                                  \
			sleep_ms(1);                                                                  \
		CHECK_IS(lw_rwlock_unlock_traced(lock, &released), 0);                                \
		join(waiter);                                                                         \
		return released;                                                                      \
	}                                                                                             \
	/* Handed over, to a waiter that has waited for too long. */                                  \
	static void name##_hands_over(name##_t *lock, int writes, int (*waits)(const name##_t *))     \
	{                                                                                             \
		struct wait wait;                                                                     \
		int attempt;                                                                          \
		/* lw_rwlock(3) says: The caller had waited for at least as long as the lock's hand-off time */ \
		/* lw_rwlock(3) says: It made such a call for tasks that had waited for at least as long as */ \
		/* lw_rwlock(3) says: Waits have a bound: a task that has waited for 5 ms gets the lock */ \
		/* A request of a robust lock's waiter may be served while the waiter is awake. */    \
		for (attempt = 0;; attempt++) {                                                       \
			CHECK(attempt < 1000);                                                          \
			if (name##_unlocked(lock, writes, &wait, waits) == LW_RWLOCK_RELEASED_HANDED_OFF && \
			    wait.how.entry == LW_RWLOCK_ENTRY_HANDED_OFF)                             \
				break;                                                                \
		}                                                                                     \
	}                                                                                             \
	/* Woken; unless the waiter has waited for too long by then, or has seen the lock free before its sleep. */ \
	static void name##_wakes(name##_t *lock, int writes, int (*waits)(const name##_t *))          \
	{                                                                                             \
		struct wait wait;                                                                     \
		int attempt;                                                                          \
		/* lw_rwlock(3) says: The lock admitted the caller after the caller had slept */      \
		/* lw_rwlock(3) says: It made a call to wake the tasks that are to enter next */      \
		for (attempt = 0;; attempt++) {                                                       \
			CHECK(attempt < 1000);                                                          \
			if (name##_unlocked(lock, writes, &wait, waits) == LW_RWLOCK_RELEASED_WOKE && \
			    wait.how.entry == LW_RWLOCK_ENTRY_WOKEN && wait.how.sleeps > 0)           \
				break;                                                                \
		}                                                                                     \
	}                                                                                             \
	static void name##_misused(void)                                                              \
	{                                                                                             \
		struct lw_rwlock_acquisition how = {9, 9};                                            \
		int released = 9;                                                                     \
		static name##_t made;                                                                 \
		CHECK_IS(lw_rwlock_init(&made), 0);                                                   \
		/* lw_rwlock(3), EINVAL: is NULL; the lock is as before */                            \
		CHECK_IS(lw_rwlock_rdlock_traced(&made, NULL), EINVAL);                               \
		CHECK_IS(lw_rwlock_wrlock_traced(&made, NULL), EINVAL);                               \
		CHECK_IS(lw_rwlock_rdlock_traced((name##_t *)NULL, &how), EINVAL);                    \
		CHECK_IS(lw_rwlock_wrlock_traced((name##_t *)NULL, &how), EINVAL);                    \
		/* lw_rwlock(3), EPERM: No task holds the lock */                                     \
		CHECK_IS(lw_rwlock_unlock_traced(&made, &released), EPERM);                           \
		CHECK_IS(how.entry, 9);                                                               \
		CHECK_IS(lw_rwlock_rdlock_traced(&made, &how), 0);                                    \
		CHECK_IS(how.entry, LW_RWLOCK_ENTRY_FREE);                                            \
		CHECK_IS(lw_rwlock_unlock_traced(&made, NULL), EINVAL);                               \
		CHECK_IS(lw_rwlock_unlock_traced((name##_t *)NULL, &released), EINVAL);               \
		CHECK_IS(released, 9);                                                                \
		CHECK_IS(lw_rwlock_trywrlock(&made), EBUSY);                                          \
		/* lw_rwlock(3) says: It woke no task */                                              \
		CHECK_IS(lw_rwlock_unlock_traced(&made, &released), 0);                               \
		CHECK_IS(released, LW_RWLOCK_RELEASED_NO_SLEEPER);                                    \
		CHECK_IS(lw_rwlock_destroy(&made), 0);                                                \
	}

#define TEST_COUNTED(name)                                                                            \
	TEST(name)                                                                                    \
	static int name##_asks(const name##_t *lock)                                                  \
	{                                                                                             \
		return (__atomic_load_n(&lock->lw_state, __ATOMIC_RELAXED) & CALL) != 0;              \
	}                                                                                             \
	static int name##_starves(const name##_t *lock)                                               \
	{                                                                                             \
		return (__atomic_load_n(&lock->lw_state, __ATOMIC_RELAXED) & STARVING) != 0;          \
	}                                                                                             \
	static void name##_test(void)                                                                 \
	{                                                                                             \
		static name##_t lock;                                                                 \
		int writes;                                                                           \
		CHECK_IS(lw_rwlock_init(&lock), 0);                                                   \
		for (writes = 0; writes < 2; writes++) {                                              \
			name##_hands_over(&lock, writes, name##_starves);                             \
			name##_wakes(&lock, writes, name##_asks);                                     \
		}                                                                                     \
		name##_misused();                                                                     \
	}
TEST_COUNTED(lw_rwlock)
TEST_COUNTED(lw_shared_rwlock)
TEST_COUNTED(lw_rf_rwlock)
TEST_COUNTED(lw_shared_rf_rwlock)
TEST(lw_robust_rwlock)

static int asks(const lw_robust_rwlock_t *lock)
{
	return (__atomic_load_n(&lock->lw_lines[0].lw_lock.lw_word, __ATOMIC_RELAXED) & WAITERS) != 0;
}

static int requests(const lw_robust_rwlock_t *lock)
{
	return asks(lock) && __atomic_load_n(&lock->lw_lines[0].lw_lock.lw_extra, __ATOMIC_RELAXED) != 0;
}

static void robust_locks(void)
{
	static lw_robust_rwlock_t at_once = LW_ROBUST_RWLOCK_HAND_OFF_INITIALIZER(0);
	static lw_robust_rwlock_t never = LW_ROBUST_RWLOCK_HAND_OFF_INITIALIZER(LW_TP_NEVER);
	static const lw_robust_rwlock_t fresh = LW_ROBUST_RWLOCK_HAND_OFF_INITIALIZER(0);
	static lw_robust_rwlock_t made;
	int writes;

	/* lw_rwlock(3) says: With 0, the lock is handed off to the first waiter, however short its wait was */
	/* lw_rwlock(3) says: With LW_TP_NEVER, the lock is never handed off, and a wait has no bound */
	for (writes = 0; writes < 2; writes++) {
		lw_robust_rwlock_hands_over(&at_once, writes, requests);
		lw_robust_rwlock_wakes(&never, writes, asks);
	}
	lw_robust_rwlock_misused();
	/* lw_rwlock(3) says: lw_rwlock_init_hand_off() initialises an lw_robust_rwlock_t with another time than 5 ms */
	/* lw_rwlock(3) says: LW_ROBUST_RWLOCK_HAND_OFF_INITIALIZER(microseconds) is the static initialiser */
	CHECK_IS(lw_rwlock_init_hand_off(&made, 0), 0);
	CHECK(memcmp(&made, &fresh, sizeof made) == 0);
	CHECK_IS(lw_rwlock_init_hand_off(&made, 250), 0);
	CHECK(memcmp(&made, &fresh, sizeof made) != 0);
	CHECK_IS(lw_rwlock_init_hand_off((lw_robust_rwlock_t *)NULL, 250), EINVAL);
}

static lw_robust_rwlock_t robust = LW_ROBUST_RWLOCK_INITIALIZER;

static void *die_writing(void *unused)
{
	CHECK_IS(lw_rwlock_wrlock(&robust), 0);
	return unused;
}

static void a_dead_writer_is_reported(void)
{
	struct lw_rwlock_acquisition how = {9, 9};
	int released = 9;
	join(start(die_writing, NULL));
	/* It came to read, and holds the lock to write. */
	CHECK_IS(lw_rwlock_rdlock_traced(&robust, &how), EOWNERDEAD);
	CHECK(how.entry != 9 && how.sleeps == 0);
	CHECK_IS(lw_rwlock_consistent(&robust), 0);
	CHECK_IS(lw_rwlock_unlock_traced(&robust, &released), 0);
	CHECK_IS(released, LW_RWLOCK_RELEASED_NO_SLEEPER);
	CHECK_IS(lw_rwlock_wrlock_traced(&robust, &how), 0);
	CHECK_IS(how.entry, LW_RWLOCK_ENTRY_FREE);
	/* A task that holds it does not wait for itself. */
	how.entry = 9;
	CHECK_IS(lw_rwlock_wrlock_traced(&robust, &how), EDEADLK);
	CHECK_IS(how.entry, 9);
	CHECK_IS(lw_rwlock_unlock(&robust), 0);
	/* Not repaired: for good. */
	join(start(die_writing, NULL));
	CHECK_IS(lw_rwlock_wrlock_traced(&robust, &how), EOWNERDEAD);
	CHECK_IS(lw_rwlock_unlock_traced(&robust, &released), 0);
	how.entry = 9;
	CHECK_IS(lw_rwlock_rdlock_traced(&robust, &how), ENOTRECOVERABLE);
	CHECK_IS(how.entry, 9);
}

int main(void)
{
	lw_rwlock_test();
	lw_shared_rwlock_test();
	lw_rf_rwlock_test();
	lw_shared_rf_rwlock_test();
	robust_locks();
	a_dead_writer_is_reported();
	puts("traced");
	return 0;
}

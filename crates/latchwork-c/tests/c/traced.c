/* Throughput mutexes: how a call says that it took one, and what an unlock says that it did for the waiters. */
#include <errno.h>

#include "latchwork.h"

#include "check.h"

#define WAITERS 0x80000000u

/* The account that a waiter gets of its lock call. The waiter sets the bit in the word when it is about to sleep, and requests a hand-off before that. */
struct wait {
	void *mutex;
	struct lw_tp_acquisition how;
	int released;
};

#define TEST(name, initializer, request)                                                              \
	static void *name##_waits(void *argument)                                                     \
	{                                                                                             \
		struct wait *wait = (struct wait *)argument;                                          \
		name##_t *mutex = (name##_t *)wait->mutex;                                            \
		/* lw_mutex(3) says: lw_mutex_lock_traced() does what lw_mutex_lock() does */         \
		/* lw_mutex(3) says: If the call acquires the mutex, it fills the structure how */    \
		/* lw_mutex(3) says: how->sleeps says how often the caller went to sleep */           \
		CHECK_IS(lw_mutex_lock_traced(mutex, &wait->how), 0);                                 \
		CHECK_IS(lw_mutex_unlock_traced(mutex, &wait->released), 0);                          \
		return NULL;                                                                          \
	}                                                                                             \
	/* What the unlock said, with a task that waits and, if "requests", has requested the hand-off. */ \
	static int name##_unlocked(name##_t *mutex, struct wait *wait, uint32_t requests)             \
	{                                                                                             \
		struct lw_tp_acquisition how = {9, 9};                                                \
		int released = 9;                                                                     \
		pthread_t waiter;                                                                     \
		memset(wait, 0, sizeof *wait);                                                        \
		wait->mutex = mutex;                                                                  \
		/* lw_mutex(3) says: The mutex was free when the call began */                        \
		CHECK_IS(lw_mutex_lock_traced(mutex, &how), 0);                                       \
		CHECK_IS(how.entry, LW_TP_ENTRY_FREE);                                                \
		CHECK_IS(how.sleeps, 0);                                                              \
		waiter = start(name##_waits, wait);                                                   \
		while (!(__atomic_load_n(&mutex->lw_word, __ATOMIC_RELAXED) & WAITERS) ||             \
		       __atomic_load_n(&mutex->request, __ATOMIC_RELAXED) != requests)                \
			sleep_ms(1);                                                                  \
		CHECK_IS(lw_mutex_unlock_traced(mutex, &released), 0);                                \
		join(waiter);                                                                         \
		return released;                                                                      \
	}                                                                                             \
	static void *name##_unlocks_anothers(void *argument)                                          \
	{                                                                                             \
		int released = 9;                                                                     \
		CHECK_IS(lw_mutex_unlock_traced((name##_t *)argument, &released), EPERM);             \
		CHECK_IS(released, 9);                                                                \
		return NULL;                                                                          \
	}                                                                                             \
	static void name##_test(void)                                                                 \
	{                                                                                             \
		static name##_t never = initializer(LW_TP_NEVER);                                     \
		static name##_t at_once = initializer(0);                                             \
		const name##_t fresh = initializer(0);                                                \
		struct lw_tp_acquisition how = {9, 9};                                                \
		struct wait wait;                                                                     \
		name##_t made;                                                                        \
		int released = 9, attempt;                                                            \
														\
		/* Handed off, as was requested. */                                                   \
		/* lw_mutex(3) says: The caller waited in the queue, and the mutex was handed off to it */ \
		/* lw_mutex(3) says: It handed the mutex off to a waiter, and woke one sleeper */     \
		/* lw_mutex(3) says: With 0, the first waiter in the queue gets the mutex handed off by the next unlock */ \
		/* lw_mutex(3) says: The next unlock then reserves the mutex for this waiter, and no other task can take it first */ \
		CHECK_IS(name##_unlocked(&at_once, &wait, 1), LW_TP_RELEASED_HANDED_OFF);             \
		CHECK_IS(wait.how.entry, LW_TP_ENTRY_HANDED_OFF);                                     \
		/* Woken, unless the waiter sets its bit in the middle of the unlock: then it is handed off. */ \
		/* lw_mutex(3) says: The caller waited in the queue, and took the mutex when it was free */ \
		/* lw_mutex(3) says: It woke every task that slept for the mutex */                   \
		/* lw_mutex(3) says: With LW_TP_NEVER, the mutex is never handed off, and a wait has no bound */ \
		for (attempt = 0; released != LW_TP_RELEASED_WOKE; attempt++) {                       \
			CHECK(attempt < 20);                                                          \
			released = name##_unlocked(&never, &wait, 0);                                 \
			CHECK(wait.how.sleeps > 0);                                                   \
			CHECK_IS(wait.how.entry, released == LW_TP_RELEASED_WOKE ?                    \
							 LW_TP_ENTRY_TOP_WAITER :                     \
							 LW_TP_ENTRY_HANDED_OFF);                     \
		}                                                                                     \
		/* By the function. */                                                                \
		/* lw_mutex(3) says: lw_mutex_init_hand_off() initialises a mutex with another time than 5 milliseconds */ \
		/* lw_mutex(3) says: LW_TP_MUTEX_HAND_OFF_INITIALIZER(microseconds), LW_SHARED_TP_MUTEX_HAND_OFF_INITIALIZER(microseconds) */ \
		CHECK_IS(lw_mutex_init_hand_off(&made, 0), 0);                                        \
		CHECK(memcmp(&made, &fresh, sizeof made) == 0);                                       \
		CHECK_IS(lw_mutex_init_hand_off(&made, 250), 0);                                      \
		CHECK_IS(lw_mutex_init_hand_off((name##_t *)NULL, 250), EINVAL);                      \
		/* Misuse leaves the mutex, and what was passed, as it was. */                        \
		/* lw_mutex(3), EINVAL: is NULL; the mutex is as before */                            \
		CHECK_IS(lw_mutex_lock_traced(&made, NULL), EINVAL);                                  \
		CHECK_IS(lw_mutex_lock_traced((name##_t *)NULL, &how), EINVAL);                       \
		CHECK(!lw_mutex_is_locked(&made));                                                    \
		CHECK_IS(lw_mutex_lock(&made), 0);                                                    \
		CHECK_IS(lw_mutex_lock_traced(&made, &how), EDEADLK);                                 \
		CHECK_IS(how.entry, 9);                                                               \
		join(start(name##_unlocks_anothers, &made));                                          \
		CHECK_IS(lw_mutex_unlock_traced(&made, NULL), EINVAL);                                \
		CHECK_IS(lw_mutex_unlock_traced((name##_t *)NULL, &released), EINVAL);                \
		CHECK(lw_mutex_is_locked(&made));                                                     \
		CHECK_IS(lw_mutex_unlock_traced(&made, &released), 0);                                \
		/* lw_mutex(3) says: It woke no task: the mutex was not marked as one for which tasks sleep */ \
		CHECK_IS(released, LW_TP_RELEASED_NO_SLEEPER);                                        \
		CHECK_IS(lw_mutex_unlock_traced(&made, &released), EPERM);                            \
		CHECK_IS(lw_mutex_destroy(&made), 0);                                                 \
	}
TEST(lw_tp_mutex, LW_TP_MUTEX_HAND_OFF_INITIALIZER, lw_request)
TEST(lw_shared_tp_mutex, LW_SHARED_TP_MUTEX_HAND_OFF_INITIALIZER, lw_request)
TEST(lw_robust_tp_mutex, LW_ROBUST_TP_MUTEX_HAND_OFF_INITIALIZER, lw_extra)

static lw_robust_tp_mutex_t robust = LW_ROBUST_TP_MUTEX_INITIALIZER;

static void *die_holding(void *unused)
{
	CHECK_IS(lw_mutex_lock(&robust), 0);
	return unused;
}

static void a_dead_owner_is_reported(void)
{
	struct lw_tp_acquisition how = {9, 9};
	int released = 9;
	join(start(die_holding, NULL));
	CHECK_IS(lw_mutex_lock_traced(&robust, &how), EOWNERDEAD);
	CHECK(how.entry != 9 && how.sleeps == 0);
	CHECK_IS(lw_mutex_consistent(&robust), 0);
	CHECK_IS(lw_mutex_unlock_traced(&robust, &released), 0);
	CHECK_IS(released, LW_TP_RELEASED_NO_SLEEPER);
	CHECK_IS(lw_mutex_lock_traced(&robust, &how), 0);
	CHECK_IS(how.entry, LW_TP_ENTRY_FREE);
	CHECK_IS(lw_mutex_unlock(&robust), 0);
	/* Not repaired: for good. */
	join(start(die_holding, NULL));
	CHECK_IS(lw_mutex_lock_traced(&robust, &how), EOWNERDEAD);
	CHECK_IS(lw_mutex_unlock_traced(&robust, &released), 0);
	how.entry = 9;
	CHECK_IS(lw_mutex_lock_traced(&robust, &how), ENOTRECOVERABLE);
	CHECK_IS(how.entry, 9);
}

int main(void)
{
	lw_tp_mutex_test();
	lw_shared_tp_mutex_test();
	lw_robust_tp_mutex_test();
	a_dead_owner_is_reported();
	puts("traced");
	return 0;
}

/*
 * Deaths: robust locks between processes, in a program that has one thread and may be static. NPTL's own robust
 * mutexes once did nothing there.
 */
#include "latchwork.h"

#include "check.h"

#include <signal.h>

static void die(void)
{
	raise(SIGKILL);
}

#define DEATH_TEST(name)                                                                              \
	static void name##_test(void)                                                                 \
	{                                                                                             \
		struct {                                                                              \
			name##_t lock;                                                                \
			int half;                                                                     \
		} *field = share(4096);                                                               \
		pid_t child;                                                                          \
		struct timespec soon;                                                                 \
		CHECK_IS(name##_init(&field->lock), 0);                                               \
		child = fork();                                                                       \
		if (child == 0) {                                                                     \
			if (lw_mutex_lock(&field->lock) != 0)                                         \
				_exit(1);                                                             \
			field->half = 1;                                                              \
			die();                                                                        \
		}                                                                                     \
		CHECK_IS(exit_of(child), 1000 + SIGKILL);                                             \
		/* lw_mutex(3), EOWNERDEAD: The previous owner died */                                \
		CHECK_IS(lw_mutex_lock(&field->lock), EOWNERDEAD);                                    \
		CHECK_IS(field->half, 1);                                                             \
		CHECK_IS(lw_mutex_consistent(&field->lock), 0);                                       \
		CHECK_IS(lw_mutex_consistent(&field->lock), EINVAL);                                  \
		CHECK_IS(lw_mutex_unlock(&field->lock), 0);                                           \
		CHECK_IS(lw_mutex_lock(&field->lock), 0);                                             \
		/* What is held here is not held by a child. */                                       \
		child = fork();                                                                       \
		if (child == 0)                                                                       \
			/* lw_mutex(3), EPERM: another task holds the mutex, and the mutex records its owner */ \
			_exit(lw_mutex_unlock(&field->lock) == EPERM &&                               \
					      lw_mutex_trylock(&field->lock) == EBUSY                 \
				      ? 0                                                             \
				      : 1);                                                           \
		CHECK_IS(exit_of(child), 0);                                                          \
		CHECK_IS(lw_mutex_unlock(&field->lock), 0);                                           \
		/* Left half changed, to the next one; not by one that does not hold it. */           \
		CHECK_IS(lw_mutex_lock(&field->lock), 0);                                             \
		CHECK_IS(lw_mutex_unlock_inconsistent(&field->lock), 0);                              \
		CHECK_IS(lw_mutex_unlock_inconsistent(&field->lock), EPERM);                          \
		CHECK_IS(lw_mutex_lock(&field->lock), EOWNERDEAD);                                    \
		CHECK_IS(lw_mutex_unlock_inconsistent(&field->lock), 0);                              \
		CHECK_IS(lw_mutex_trylock(&field->lock), EOWNERDEAD);                                 \
		CHECK_IS(lw_mutex_consistent(&field->lock), 0);                                       \
		CHECK_IS(lw_mutex_unlock(&field->lock), 0);                                           \
		/* Asleep as the owner dies; and given up permanently. */                              \
		child = fork();                                                                       \
		if (child == 0) {                                                                     \
			if (lw_mutex_lock(&field->lock) != 0)                                         \
				_exit(1);                                                             \
			field->half = 2;                                                              \
			sleep_ms(20);                                                                 \
			die();                                                                        \
		}                                                                                     \
		while (*(volatile int *)&field->half != 2)                                            \
			sleep_ms(1);                                                                  \
		soon = in_ms(CLOCK_MONOTONIC, 60000);                                                 \
		CHECK_IS(lw_mutex_timedlock(&field->lock, &soon), EOWNERDEAD);                        \
		CHECK_IS(lw_mutex_unlock(&field->lock), 0);                                           \
		/* lw_mutex(3), ENOTRECOVERABLE: a later owner unlocked the mutex without a call of lw_mutex_consistent() */ \
		CHECK_IS(lw_mutex_lock(&field->lock), ENOTRECOVERABLE);                               \
		CHECK_IS(exit_of(child), 1000 + SIGKILL);                                             \
		CHECK_IS(munmap(field, 4096), 0);                                                     \
	}
DEATH_TEST(lw_robust_mutex)
DEATH_TEST(lw_robust_tp_mutex)
DEATH_TEST(lw_robust_pi_mutex)

static void readers(void)
{
	lw_robust_rwlock_t *lock = share(4096);
	pid_t child;
	CHECK_IS(lw_robust_rwlock_init(lock), 0);
	child = fork();
	if (child == 0) {
		lw_rwlock_rdlock(lock);
		die();
	}
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	/* A dead reader holds nothing. */
	CHECK_IS(lw_rwlock_destroy(lock), 0);
	CHECK_IS(lw_rwlock_wrlock(lock), 0);
	CHECK_IS(lw_rwlock_rdlock(lock), EDEADLK);
	CHECK_IS(lw_rwlock_unlock(lock), 0);
	child = fork();
	if (child == 0) {
		lw_rwlock_wrlock(lock);
		die();
	}
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	CHECK_IS(lw_rwlock_rdlock(lock), EOWNERDEAD);
	CHECK_IS(lw_rwlock_unlock_inconsistent(lock), 0);
	CHECK_IS(lw_rwlock_wrlock(lock), EOWNERDEAD);
	CHECK_IS(lw_rwlock_consistent(lock), 0);
	CHECK_IS(lw_rwlock_consistent(lock), EINVAL);
	CHECK_IS(lw_rwlock_unlock(lock), 0);
	CHECK_IS(lw_rwlock_rdlock(lock), 0);
	CHECK_IS(lw_rwlock_unlock_inconsistent(lock), EPERM);
	CHECK_IS(lw_rwlock_unlock(lock), 0);
	CHECK_IS(lw_rwlock_wrlock(lock), 0);
	CHECK_IS(lw_rwlock_unlock_inconsistent(lock), 0);
	CHECK_IS(lw_rwlock_rdlock(lock), EOWNERDEAD);
	CHECK_IS(lw_rwlock_consistent(lock), 0);
	CHECK_IS(lw_rwlock_unlock(lock), 0);
}

/* One list: ours and libc's own, released in the order in which they were taken. */
static void neighbours(void)
{
	struct {
		pthread_mutex_t theirs;
		lw_robust_mutex_t ours, more;
	} *field = share(4096);
	pthread_mutexattr_t attributes;
	pid_t child;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&field->theirs, &attributes);
	lw_robust_mutex_init(&field->ours);
	lw_robust_mutex_init(&field->more);
	child = fork();
	if (child == 0) {
		lw_mutex_lock(&field->ours);
		pthread_mutex_lock(&field->theirs);
		lw_mutex_lock(&field->more);
		lw_mutex_unlock(&field->ours);
		die();
	}
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	CHECK_IS(lw_mutex_lock(&field->ours), 0);
	CHECK_IS(pthread_mutex_lock(&field->theirs), EOWNERDEAD);
	CHECK_IS(lw_mutex_lock(&field->more), EOWNERDEAD);
	CHECK_IS(pthread_mutex_consistent(&field->theirs), 0);
	CHECK_IS(pthread_mutex_unlock(&field->theirs), 0);
	CHECK_IS(lw_mutex_unlock(&field->ours), 0);
	CHECK_IS(lw_mutex_consistent(&field->more), 0);
	CHECK_IS(lw_mutex_unlock(&field->more), 0);
}

/* After a fork a thread's ID is another one: what it takes is its own. */
static void forks(void)
{
	struct {
		lw_shared_tp_mutex_t tp;
		lw_shared_pi_mutex_t pi;
		int count;
	} *field = share(4096);
	pid_t child;
	CHECK_IS(lw_mutex_lock(&field->tp), 0);
	CHECK_IS(lw_mutex_unlock(&field->tp), 0);
	child = fork();
	if (child == 0) {
		for (int round = 0; round < 2000; round++) {
			CHECK_IS(lw_mutex_lock(&field->tp), 0);
			CHECK_IS(lw_mutex_lock(&field->pi), 0);
			CHECK_IS(field->tp.lw_word & 0x3fffffff, getpid());
			field->count++;
			CHECK_IS(lw_mutex_unlock(&field->pi), 0);
			CHECK_IS(lw_mutex_unlock(&field->tp), 0);
		}
		_exit(0);
	}
	for (int round = 0; round < 2000; round++) {
		CHECK_IS(lw_mutex_lock(&field->tp), 0);
		CHECK_IS(lw_mutex_lock(&field->pi), 0);
		field->count++;
		CHECK_IS(lw_mutex_unlock(&field->pi), 0);
		CHECK_IS(lw_mutex_unlock(&field->tp), 0);
	}
	CHECK_IS(exit_of(child), 0);
	CHECK_IS(field->count, 4000);
	CHECK_IS(lw_mutex_lock(&field->tp), 0);
	child = fork();
	if (child == 0)
		_exit(lw_mutex_unlock(&field->tp) == EPERM ? 0 : 1);
	CHECK_IS(exit_of(child), 0);
	CHECK_IS(lw_mutex_unlock(&field->tp), 0);
}

/* musl has the pointer to them where glibc's list of robust locks has a link of its head. */
static void values_of_keys_stay(void)
{
	static char value;
	lw_robust_mutex_t *locks = share(4096);
	pthread_key_t key;

	CHECK_IS(pthread_key_create(&key, NULL), 0);
	CHECK_IS(pthread_setspecific(key, &value), 0);
	CHECK_IS(lw_robust_mutex_init(&locks[0]), 0);
	CHECK_IS(lw_robust_mutex_init(&locks[1]), 0);
	/* The first on the list, the second, and the first one out from behind it. */
	CHECK_IS(lw_mutex_lock(&locks[0]), 0);
	CHECK(pthread_getspecific(key) == &value);
	CHECK_IS(lw_mutex_lock(&locks[1]), 0);
	CHECK_IS(lw_mutex_unlock(&locks[0]), 0);
	CHECK(pthread_getspecific(key) == &value);
	CHECK_IS(lw_mutex_unlock(&locks[1]), 0);
	CHECK(pthread_getspecific(key) == &value);
	CHECK_IS(munmap(locks, 4096), 0);
}

int main(void)
{
	values_of_keys_stay();
	lw_robust_mutex_test();
	lw_robust_tp_mutex_test();
	lw_robust_pi_mutex_test();
	readers();
	neighbours();
	forks();
	puts("survived");
	return 0;
}

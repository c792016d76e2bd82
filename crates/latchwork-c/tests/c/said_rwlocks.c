/*
 * What lw_rwlock(3) says of reader/writer locks: each sentence of its description, before the lines that show it; those of
 * traced calls are in rwlock_traced.c. In C and in C++. The test in manual.rs compares these sentences with the page.
 */
#include "said.h"

#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>

static lw_rwlock_t plain = LW_RWLOCK_INITIALIZER;
static lw_shared_rwlock_t of_processes = LW_SHARED_RWLOCK_INITIALIZER;
static lw_rf_rwlock_t readers_first = LW_RF_RWLOCK_INITIALIZER;
static lw_shared_rf_rwlock_t readers_of_processes = LW_SHARED_RF_RWLOCK_INITIALIZER;
static lw_robust_rwlock_t robust = LW_ROBUST_RWLOCK_INITIALIZER;
static const lw_region_rwlock_t fresh_of_region = LW_REGION_RWLOCK_INITIALIZER;
static lw_region_rwlock_t *of_region;

/* Whether a thread sleeps as those do who wait for a lock. */
static int waits(int thread)
{
	int call = call_of(getpid(), thread);
	return call == SYS_futex || call == WAITS_IN_REGION;
}

/* For each type: another thread that reads, that writes, and whose waits time out. */
#define FOR_TYPE(name)                                                                                \
	static volatile int name##_id, name##_reads, name##_writes;                                   \
	static void *name##_reader(void *lock)                                                        \
	{                                                                                             \
		CHECK_IS(lw_rwlock_rdlock((name##_t *)lock), 0);                                      \
		name##_reads = 1;                                                                     \
		CHECK_IS(lw_rwlock_unlock((name##_t *)lock), 0);                                      \
		return NULL;                                                                          \
	}                                                                                             \
	static void *name##_writer(void *lock)                                                        \
	{                                                                                             \
		name##_id = (int)syscall(SYS_gettid);                                                 \
		CHECK_IS(lw_rwlock_wrlock((name##_t *)lock), 0);                                      \
		name##_writes = 1;                                                                    \
		CHECK_IS(lw_rwlock_unlock((name##_t *)lock), 0);                                      \
		return NULL;                                                                          \
	}                                                                                             \
	static void *name##_in_vain(void *lock)                                                       \
	{                                                                                             \
		struct timespec soon = in_ms(CLOCK_MONOTONIC, 2), date = in_ms(CLOCK_REALTIME, 2);    \
		CHECK_IS(lw_rwlock_timedwrlock((name##_t *)lock, &soon), ETIMEDOUT);                  \
		CHECK_IS(lw_rwlock_clockwrlock((name##_t *)lock, CLOCK_MONOTONIC, &soon), ETIMEDOUT); \
		CHECK_IS(lw_rwlock_clockwrlock((name##_t *)lock, CLOCK_REALTIME, &date), ETIMEDOUT);  \
		CHECK_IS(lw_rwlock_clockrdlock((name##_t *)lock, CLOCK_REALTIME, &date), 0);          \
		CHECK_IS(lw_rwlock_unlock((name##_t *)lock), 0);                                      \
		return NULL;                                                                          \
	}                                                                                             \
	/* lw_rwlock(3) says: While a writer waits, a lock that prefers writers admits no further readers, and */ \
	/* lw_rwlock(3) says: A robust lock prefers writers */                                        \
	static void name##_prefers_writers(name##_t *lock)                                            \
	{                                                                                             \
		pthread_t writer, reader;                                                             \
		CHECK_IS(lw_rwlock_rdlock(lock), 0);                                                  \
		name##_id = name##_reads = name##_writes = 0;                                         \
		writer = start(name##_writer, lock);                                                  \
		while (name##_id == 0 || !waits(name##_id))                                           \
			sleep_ms(1);                                                                  \
		reader = start(name##_reader, lock);                                                  \
		sleep_ms(2);                                                                          \
		CHECK(!name##_reads && !name##_writes);                                               \
		CHECK_IS(lw_rwlock_unlock(lock), 0);                                                  \
		join(writer);                                                                         \
		join(reader);                                                                         \
		CHECK(name##_reads && name##_writes);                                                 \
	}                                                                                             \
	static void name##_said(name##_t *lock, int prefers_writers)                                  \
	{                                                                                             \
		/* lw_rwlock(3) says: At any time, either many readers or one writer can hold */      \
		/* lw_rwlock(3) says: A reader is a task (a thread) that locks it for reading, and a writer is */ \
		/* lw_rwlock(3) says: The names in the synopsis are generic: they take a pointer to any of these */ \
		/* lw_rwlock(3) says: Each type has a static initialiser: LW_RWLOCK_INITIALIZER */    \
		CHECK_IS(lw_rwlock_rdlock(lock), 0);                                                  \
		name##_reads = name##_writes = 0;                                                     \
		join(start(name##_reader, lock));                                                     \
		CHECK(name##_reads);                                                                  \
		/* lw_rwlock(3) says: Timeouts are absolute times of the clock CLOCK_MONOTONIC */     \
		/* lw_rwlock(3) says: lw_rwlock_clockrdlock() and lw_rwlock_clockwrlock() take CLOCK_REALTIME */ \
		join(start(name##_in_vain, lock));                                                    \
		CHECK_IS(lw_rwlock_unlock(lock), 0);                                                  \
		join(start(name##_writer, lock));                                                     \
		CHECK(name##_writes);                                                                 \
		if (prefers_writers)                                                                  \
			name##_prefers_writers(lock);                                                 \
	}
FOR_TYPE(lw_rwlock)
FOR_TYPE(lw_shared_rwlock)
FOR_TYPE(lw_rf_rwlock)
FOR_TYPE(lw_shared_rf_rwlock)
FOR_TYPE(lw_robust_rwlock)
FOR_TYPE(lw_region_rwlock)

static void all_types(void)
{
	lw_rwlock_said(&plain, 1);
	lw_shared_rwlock_said(&of_processes, 1);
	lw_rf_rwlock_said(&readers_first, 0);
	lw_shared_rf_rwlock_said(&readers_of_processes, 0);
	lw_robust_rwlock_said(&robust, 1);
	lw_region_rwlock_said(of_region, 1);
}

static void of_robust_locks(void)
{
	lw_region_rwlock_t *many[40];
	/* lw_rwlock(3) says: If the lock is robust and the caller holds it already, a call that would have to wait fails with */
	/* lw_rwlock(3) says: A task that holds a lock must not lock it again */
	CHECK_IS(lw_rwlock_wrlock(&robust), 0);
	CHECK_IS(lw_rwlock_wrlock(&robust), EDEADLK);
	CHECK_IS(lw_rwlock_rdlock(&robust), EDEADLK);
	CHECK_IS(lw_rwlock_unlock(&robust), 0);
	CHECK_IS(lw_rwlock_wrlock(of_region), 0);
	CHECK_IS(lw_rwlock_rdlock(of_region), EDEADLK);
	CHECK_IS(lw_rwlock_unlock(of_region), 0);
	/* lw_rwlock(3) says: The address of a robust lock must be a multiple of 64: allocate it by aligned_alloc(3) and not by */
	CHECK_IS((uintptr_t)&robust % 64, 0);
	CHECK_IS((uintptr_t)of_region % 64, 0);
	/* lw_rwlock(3) says: It is robust, and records its readers and its writer as tasks of the region, as a region mutex */
	for (int i = 0; i < 40; i++) {
		many[i] = (lw_region_rwlock_t *)lw_region_aligned_alloc(region, 64, sizeof *many[i]);
		CHECK(many[i]);
		memset(many[i], 0, sizeof *many[i]);
		CHECK_IS(lw_rwlock_wrlock(many[i]), 0);
	}
	for (int i = 0; i < 40; i++) {
		CHECK_IS(lw_rwlock_unlock(many[i]), 0);
		lw_region_free(region, many[i]);
	}
}

/* A process that locks, and is killed. */
static void die_with(int writes)
{
	pid_t child = fork();
	if (child == 0) {
		CHECK_IS(writes ? lw_rwlock_wrlock(of_region) : lw_rwlock_rdlock(of_region), 0);
		raise(SIGKILL);
	}
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
}

static void *end_with_it(void *unused)
{
	CHECK_IS(lw_rwlock_wrlock(&robust), 0);
	return unused;
}

static void *end_with_plain(void *unused)
{
	CHECK_IS(lw_rwlock_wrlock(&plain), 0);
	return unused;
}

static void *read_in_vain(void *unused)
{
	CHECK_IS(lw_rwlock_tryrdlock(of_region), EBUSY);
	return unused;
}

static void owner_deaths(void)
{
	/* lw_rwlock(3) says: If a reader of a robust lock dies, the lock counts one reader less */
	die_with(0);
	CHECK_IS(lw_rwlock_wrlock(of_region), 0);
	CHECK_IS(lw_rwlock_unlock(of_region), 0);
	/* lw_rwlock(3) says: If a writer dies while it holds the lock, the next task that locks it gets EOWNERDEAD */
	/* lw_rwlock(3) says: This task holds the lock for writing, even if it called a function that locks for reading */
	/* lw_rwlock(3) says: The data may be half changed, and the lock marks it as inconsistent */
	die_with(1);
	CHECK_IS(lw_rwlock_rdlock(of_region), EOWNERDEAD);
	join(start(read_in_vain, NULL));
	/* lw_rwlock(3) says: This unlocks the lock, and the next task that locks it gets EOWNERDEAD */
	/* lw_rwlock(3) says: It calls lw_rwlock_unlock_inconsistent() */
	CHECK_IS(lw_rwlock_unlock_inconsistent(of_region), 0);
	CHECK_IS(lw_rwlock_wrlock(of_region), EOWNERDEAD);
	/* lw_rwlock(3) says: It repairs the data, calls lw_rwlock_consistent() and unlocks the lock */
	CHECK_IS(lw_rwlock_consistent(of_region), 0);
	CHECK_IS(lw_rwlock_unlock(of_region), 0);
	CHECK_IS(lw_rwlock_wrlock(of_region), 0);
	/* lw_rwlock(3) says: A writer that must leave the data half changed may call this function, too */
	CHECK_IS(lw_rwlock_unlock_inconsistent(of_region), 0);
	CHECK_IS(lw_rwlock_rdlock(of_region), EOWNERDEAD);
	/* lw_rwlock(3) says: It unlocks the lock without that call; the lock then becomes permanently unusable */
	CHECK_IS(lw_rwlock_unlock(of_region), 0);
	CHECK_IS(lw_rwlock_rdlock(of_region), ENOTRECOVERABLE);
	memset(of_region, 0, sizeof *of_region);
	/* lw_rwlock(3) says: A thread that ends while it holds a robust lock counts as dead, as for a robust mutex */
	join(start(end_with_it, NULL));
	CHECK_IS(lw_rwlock_rdlock(&robust), EOWNERDEAD);
	/* lw_rwlock(3) says: A lock that is not robust stays locked when a reader or writer of it dies */
	join(start(end_with_plain, NULL));
	CHECK_IS(lw_rwlock_tryrdlock(&plain), EBUSY);
}

int main(void)
{
	make_region();
	/* lw_rwlock(3) says: A lock of the type lw_region_rwlock_t must lie in a region (lw_region(3)) or in memory of */
	/* lw_rwlock(3) says: A thread becomes a task of the region by its first call that locks one of the region's locks */
	of_region = (lw_region_rwlock_t *)lw_region_aligned_alloc(region, 64, sizeof *of_region);
	CHECK(of_region);
	*of_region = fresh_of_region;
	all_types();
	of_robust_locks();
	owner_deaths();
	puts("said");
	return 0;
}

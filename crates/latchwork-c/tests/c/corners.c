/* What calls answer at their edges: a time that is none, an argument with a side effect, numbers that overflow. */
#include <sys/param.h>

#include "classic.h"
#include "coproc.h"
#include "migrate.h"

#include "check.h"

static lw_robust_mutex_t robust = LW_ROBUST_MUTEX_INITIALIZER;
static lw_robust_rwlock_t table = LW_ROBUST_RWLOCK_INITIALIZER;

static void *die_holding(void *unused)
{
	CHECK_IS(lw_mutex_lock(&robust), 0);
	CHECK_IS(lw_rwlock_wrlock(&table), 0);
	return unused;
}

/* A dead owner's lock that is taken although the time is none is not said to be free. */
static void owner_death_is_reported_at_any_deadline(void)
{
	struct timespec none = {0, 1000000000};
	join(start(die_holding, NULL));
	CHECK_IS(lw_mutex_timedlock(&robust, &none), EOWNERDEAD);
	CHECK_IS(lw_mutex_consistent(&robust), 0);
	CHECK_IS(lw_mutex_unlock(&robust), 0);
	CHECK_IS(lw_rwlock_timedrdlock(&table, &none), EOWNERDEAD);
	CHECK_IS(lw_robust_rwlock_consistent(&table), 0);
	CHECK_IS(lw_rwlock_unlock(&table), 0);
	CHECK_IS(lw_mutex_timedlock(&robust, &none), 0);
	CHECK_IS(lw_mutex_unlock(&robust), 0);
	CHECK_IS(lw_mutex_timedlock((lw_robust_mutex_t *)NULL, &none), EINVAL);
	CHECK_IS(lw_rwlock_timedwrlock((lw_robust_rwlock_t *)NULL, &none), EINVAL);
}

/* However long ago, on either clock. */
static void a_time_before_all_times_has_passed(void)
{
	struct timespec ages_ago = {INT64_MIN, 999999999};
	lw_mutex_t mutex = LW_MUTEX_INITIALIZER;
	lw_sem_t sem = LW_SEM_INITIALIZER(0);
	CHECK_IS(lw_mutex_lock(&mutex), 0);
	CHECK_IS(lw_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &ages_ago), ETIMEDOUT);
	CHECK_IS(lw_mutex_clocklock(&mutex, CLOCK_REALTIME, &ages_ago), ETIMEDOUT);
	CHECK_IS(lw_sem_clockwait(&sem, CLOCK_REALTIME, &ages_ago), ETIMEDOUT);
}

/* What is wrong is in the answer, and nothing in errno. */
static void a_wait_leaves_errno_alone(void)
{
	lw_rwlock_t lock = LW_RWLOCK_INITIALIZER;
	lw_mutex_t mutex = LW_MUTEX_INITIALIZER;
	lw_pi_mutex_t inheriting = LW_PI_MUTEX_INITIALIZER;
	lw_cond_t cond = LW_COND_INITIALIZER;
	struct timespec soon;
	CHECK_IS(lw_rwlock_wrlock(&lock), 0);
	CHECK_IS(lw_mutex_lock(&mutex), 0);
	CHECK_IS(lw_mutex_lock(&inheriting), 0);
	errno = 42;
	soon = in_ms(CLOCK_MONOTONIC, 1);
	CHECK_IS(lw_rwlock_timedrdlock(&lock, &soon), ETIMEDOUT);
	CHECK_IS(lw_rwlock_timedwrlock(&lock, &soon), ETIMEDOUT);
	CHECK_IS(lw_mutex_timedlock(&mutex, &soon), ETIMEDOUT);
	CHECK_IS(lw_cond_timedwait(&cond, &inheriting, &soon), ETIMEDOUT);
	CHECK_IS(errno, 42);
}

static int asked;

static int asked_clock(void)
{
	asked++;
	return CLOCK_MONOTONIC;
}

/* Every kind takes a clock, and looks at each argument once. */
static void arguments_are_evaluated_once(void)
{
	lw_tp_mutex_t mutex = LW_TP_MUTEX_INITIALIZER;
	lw_cond_t cond = LW_COND_INITIALIZER;
	lw_shared_cond_t shared = LW_SHARED_COND_INITIALIZER;
	lw_rf_rwlock_t lock = LW_RF_RWLOCK_INITIALIZER;
	lw_shared_sem_t sem = LW_SHARED_SEM_INITIALIZER(0);
	struct timespec past = {0, 0};
	CHECK_IS(lw_mutex_lock(&mutex), 0);
	CHECK_IS(lw_cond_clockwait(&cond, &mutex, asked_clock(), &past), ETIMEDOUT);
	CHECK_IS(lw_cond_clockwait(&shared, &mutex, asked_clock(), &past), ETIMEDOUT);
	CHECK_IS(lw_cond_clockwait(&cond, &mutex, -1, &past), EINVAL);
	CHECK_IS(lw_mutex_unlock(&mutex), 0);
	CHECK_IS(lw_rwlock_clockwrlock(&lock, asked_clock(), &past), 0);
	CHECK_IS(lw_rwlock_clockrdlock(&lock, asked_clock(), &past), ETIMEDOUT);
	CHECK_IS(lw_rwlock_unlock(&lock), 0);
	CHECK_IS(lw_sem_clockwait(&sem, asked_clock(), &past), ETIMEDOUT);
	CHECK_IS(asked, 5);
}

/* Who only looks may have a pointer to const. */
#define LOCKED(name, ...)                                                                             \
	do {                                                                                          \
		name##_t mutex = __VA_ARGS__;                                                         \
		const name##_t *look = &mutex;                                                        \
		CHECK(!lw_mutex_is_locked(look));                                                     \
		CHECK_IS(lw_mutex_lock(&mutex), 0);                                                   \
		CHECK(lw_mutex_is_locked(look) && lw_mutex_is_locked(&mutex));                        \
		CHECK_IS(lw_mutex_unlock(&mutex), 0);                                                 \
	} while (0)
static void a_look_needs_nothing_that_can_be_changed(void)
{
	static DEFINE_MUTEX(plain);
	static DEFINE_MUTEX_DEBUG(debug);
	static DECLARE_MUTEX(sem);
	static DECLARE_ARCH_MUTEX(arch);
	const struct mutex *look = &plain;
	const struct mutex_debug *look_debug = &debug;
	const struct semaphore *look_sem = &sem;
	const struct arch_semaphore *look_arch = &arch;
	LOCKED(lw_mutex, LW_MUTEX_INITIALIZER);
	LOCKED(lw_shared_tp_mutex, LW_SHARED_TP_MUTEX_INITIALIZER);
	LOCKED(lw_pi_mutex, LW_PI_MUTEX_INITIALIZER);
	LOCKED(lw_recursive_mutex, LW_RECURSIVE_MUTEX_INITIALIZER);
	LOCKED(lw_robust_mutex, LW_ROBUST_MUTEX_INITIALIZER);
	LOCKED(lw_spin, LW_SPIN_INITIALIZER);
	CHECK(!mutex_is_locked(look) && !mutex_is_locked(look_debug));
	CHECK(!sem_is_locked(look_sem) && !sem_is_locked(look_arch) && !sem_is_locked(look_debug));
	CHECK(sema_count(look_sem) == 1 && sema_count(look_arch) == 1 && sema_count(look_debug) == 1);
	CHECK(!arch_sem_is_locked(look_arch) && arch_sema_count(look_arch) == 1);
}

/* <sys/param.h> has an HZ of its own, for times(). */
static void a_second_has_as_many_jiffies_as_it_lasts_milliseconds(void)
{
	CHECK_IS(HZ, 1000);
}

static void a_time_that_is_not_zero_never_becomes_for_ever(void)
{
	CHECK_IS(lw_classic_ticks(0), RTEMS_NO_TIMEOUT);
	CHECK_IS(lw_classic_ticks(1), 1);
	CHECK_IS(lw_classic_ticks(UINT64_MAX), UINT32_MAX);
	/* In microseconds it is 2^64 and nearly nothing. */
	CHECK_IS(lw_classic_ticks(UINT64_MAX / 1000 + 1), UINT32_MAX);
	CHECK_IS(lw_classic_ticks((UINT64_MAX - 10000) / 1000 + 10), UINT32_MAX);
}

static void *initialise(void *count)
{
	int error;
	do
		error = coproc_init(1 << 20) == 0 ? 0 : errno;
	while (error == EAGAIN); /* another thread held a lock of the C library */
	if (error == 0)
		__atomic_fetch_add((int *)count, 1, __ATOMIC_RELAXED);
	else
		CHECK_IS(error, EBUSY);
	return NULL;
}

/* The second one would leave the first one's server process behind. */
static void one_of_many_initialisations_is_the_first(void)
{
	pthread_t threads[8];
	int first = 0;
	for (int i = 0; i < 8; i++)
		threads[i] = start(initialise, &first);
	for (int i = 0; i < 8; i++)
		join(threads[i]);
	CHECK_IS(first, 1);
	CHECK_IS(coproc_exit(), 0);
}

int main(void)
{
	owner_death_is_reported_at_any_deadline();
	a_time_before_all_times_has_passed();
	a_wait_leaves_errno_alone();
	arguments_are_evaluated_once();
	a_look_needs_nothing_that_can_be_changed();
	a_second_has_as_many_jiffies_as_it_lasts_milliseconds();
	a_time_that_is_not_zero_never_becomes_for_ever();
	one_of_many_initialisations_is_the_first();
	puts("cornered");
	return 0;
}

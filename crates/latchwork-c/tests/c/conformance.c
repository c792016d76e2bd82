/* What all kinds of locks have in common, and what each has of its own. Compiled as C and as C++. */
#include "latchwork.h"

#include "check.h"

#define TASKS 4
#define ROUNDS 2000

/* Counting under each kind of mutex, all calls that it has, and misuse. */
#define MUTEX_TEST(name, knows_owner)                                                                 \
	static struct {                                                                               \
		name##_t lock;                                                                        \
		long count;                                                                           \
	} name##_field;                                                                               \
	static void *name##_counter(void *argument)                                                   \
	{                                                                                             \
		for (int round = 0; round < ROUNDS; round++) {                                        \
			if (round % 3 == 0) {                                                         \
				struct timespec far = in_ms(CLOCK_MONOTONIC, 60000);                  \
				CHECK_IS(lw_mutex_timedlock(&name##_field.lock, &far), 0);            \
			} else                                                                        \
				CHECK_IS(lw_mutex_lock(&name##_field.lock), 0);                       \
			name##_field.count++;                                                         \
			CHECK_IS(lw_mutex_unlock(&name##_field.lock), 0);                             \
		}                                                                                     \
		return argument;                                                                      \
	}                                                                                             \
	static void *name##_other(void *argument)                                                     \
	{                                                                                             \
		struct timespec soon = in_ms(CLOCK_MONOTONIC, 5), real = in_ms(CLOCK_REALTIME, 5);    \
		struct timespec wrong = {0, 1000000000};                                              \
		/* lw_mutex(3), EBUSY: The mutex is locked */                                         \
		CHECK_IS(lw_mutex_trylock(&name##_field.lock), EBUSY);                                \
		/* lw_mutex(3), ETIMEDOUT: The time passed before the mutex could be locked */        \
		CHECK_IS(lw_mutex_timedlock(&name##_field.lock, &soon), ETIMEDOUT);                   \
		CHECK_IS(lw_mutex_clocklock(&name##_field.lock, CLOCK_REALTIME, &real), ETIMEDOUT);   \
		CHECK_IS(lw_mutex_clocklock(&name##_field.lock, 99, &soon), EINVAL);                  \
		/* lw_mutex(3), EINVAL: The time or the clock is invalid, and the mutex is not free */ \
		CHECK_IS(lw_mutex_timedlock(&name##_field.lock, &wrong), EINVAL);                     \
		CHECK_IS(lw_mutex_timedlock(&name##_field.lock, NULL), EINVAL);                       \
		CHECK(lw_mutex_is_locked(&name##_field.lock));                                        \
		CHECK_IS(lw_mutex_destroy(&name##_field.lock), EBUSY);                                \
		if (knows_owner)                                                                      \
			CHECK_IS(lw_mutex_unlock(&name##_field.lock), EPERM);                         \
		return argument;                                                                      \
	}                                                                                             \
	static void name##_test(void)                                                                 \
	{                                                                                             \
		pthread_t threads[TASKS];                                                             \
		name##_t *none = NULL;                                                                \
		for (int task = 0; task < TASKS; task++)                                              \
			threads[task] = start(name##_counter, NULL);                                  \
		for (int task = 0; task < TASKS; task++)                                              \
			join(threads[task]);                                                          \
		CHECK_IS(name##_field.count, (long)TASKS * ROUNDS);                                   \
		CHECK_IS(lw_mutex_trylock(&name##_field.lock), 0);                                    \
		join(start(name##_other, NULL));                                                      \
		CHECK_IS(lw_mutex_unlock(&name##_field.lock), 0);                                     \
		CHECK(!lw_mutex_is_locked(&name##_field.lock));                                       \
		CHECK_IS(lw_mutex_unlock(&name##_field.lock), EPERM);                                 \
		/* lw_mutex(3), EINVAL: The pointer is NULL */                                        \
		CHECK_IS(lw_mutex_lock(none), EINVAL);                                                \
		CHECK_IS(lw_mutex_trylock(none), EINVAL);                                             \
		CHECK_IS(lw_mutex_unlock(none), EINVAL);                                              \
		CHECK_IS(lw_mutex_destroy(&name##_field.lock), 0);                                    \
	}

MUTEX_TEST(lw_mutex, 0)
MUTEX_TEST(lw_shared_mutex, 0)
MUTEX_TEST(lw_tp_mutex, 1)
MUTEX_TEST(lw_shared_tp_mutex, 1)
MUTEX_TEST(lw_pi_mutex, 1)
MUTEX_TEST(lw_shared_pi_mutex, 1)
MUTEX_TEST(lw_plain_pi_mutex, 1)
MUTEX_TEST(lw_shared_plain_pi_mutex, 1)
MUTEX_TEST(lw_recursive_mutex, 1)
MUTEX_TEST(lw_robust_mutex, 1)
MUTEX_TEST(lw_robust_tp_mutex, 1)
MUTEX_TEST(lw_robust_pi_mutex, 1)
MUTEX_TEST(lw_spin, 0)
MUTEX_TEST(lw_pp_mutex, 0)
MUTEX_TEST(lw_shared_pp_mutex, 0)
MUTEX_TEST(lw_robust_pp_mutex, 1)

static void mutexes(void)
{
	CHECK_IS(lw_mutex_init(&lw_mutex_field.lock), 0);
	CHECK_IS(lw_mutex_init((lw_mutex_t *)NULL), EINVAL);
	lw_mutex_test();
	lw_shared_mutex_test();
	lw_tp_mutex_test();
	lw_shared_tp_mutex_test();
	lw_pi_mutex_test();
	lw_shared_pi_mutex_test();
	lw_plain_pi_mutex_test();
	lw_shared_plain_pi_mutex_test();
	lw_recursive_mutex_test();
	lw_robust_mutex_init(&lw_robust_mutex_field.lock);
	lw_robust_tp_mutex_init(&lw_robust_tp_mutex_field.lock);
	lw_robust_pi_mutex_init(&lw_robust_pi_mutex_field.lock);
	lw_robust_mutex_test();
	lw_robust_tp_mutex_test();
	lw_robust_pi_mutex_test();
	lw_spin_test();
}

static void owners(void)
{
	lw_tp_mutex_t tp = LW_TP_MUTEX_INITIALIZER;
	lw_pi_mutex_t pi = LW_PI_MUTEX_INITIALIZER;
	lw_robust_mutex_t robust = LW_ROBUST_MUTEX_INITIALIZER;
	LW_DEFINE_RECURSIVE_MUTEX(recursive);
	CHECK_IS(lw_mutex_lock(&tp), 0);
	/* lw_mutex(3), EDEADLK: The caller holds the mutex already */
	CHECK_IS(lw_mutex_lock(&tp), EDEADLK);
	CHECK_IS(lw_mutex_trylock(&tp), EBUSY);
	CHECK_IS(lw_mutex_unlock(&tp), 0);
	CHECK_IS(lw_mutex_lock(&pi), 0);
	CHECK_IS(lw_mutex_lock(&pi), EDEADLK);
	CHECK_IS(lw_mutex_unlock(&pi), 0);
	CHECK_IS(lw_mutex_lock(&robust), 0);
	CHECK_IS(lw_mutex_lock(&robust), EDEADLK);
	CHECK_IS(lw_mutex_trylock(&robust), EBUSY);
	/* lw_mutex(3), EINVAL: The data is not marked as inconsistent */
	CHECK_IS(lw_mutex_consistent(&robust), EINVAL);
	CHECK_IS(lw_mutex_unlock(&robust), 0);
	CHECK_IS(lw_mutex_lock(&recursive), 0);
	CHECK_IS(lw_mutex_lock(&recursive), 0);
	CHECK_IS(lw_mutex_trylock(&recursive), 0);
	for (int depth = 0; depth < 3; depth++)
		CHECK_IS(lw_mutex_unlock(&recursive), 0);
	/* lw_mutex(3), EPERM: No task holds the mutex */
	CHECK_IS(lw_mutex_unlock(&recursive), EPERM);
}

/* Ceilings need a privilege; without it they say so. */
static void ceilings(void)
{
	int ceiling = 0, old = 0;
	/* lw_mutex(3), EINVAL: The ceiling is not from 1 to 99 */
	CHECK_IS(lw_pp_mutex_init(&lw_pp_mutex_field.lock, 100), EINVAL);
	CHECK_IS(lw_pp_mutex_init(&lw_pp_mutex_field.lock, 40), 0);
	CHECK_IS(lw_shared_pp_mutex_init(&lw_shared_pp_mutex_field.lock, 40), 0);
	CHECK_IS(lw_robust_pp_mutex_init(&lw_robust_pp_mutex_field.lock, 40), 0);
	CHECK_IS(lw_pp_mutex_setprioceiling(&lw_pp_mutex_field.lock, 50, &old), 0);
	CHECK_IS(old, 40);
	CHECK_IS(lw_pp_mutex_getprioceiling(&lw_pp_mutex_field.lock, &ceiling), 0);
	CHECK_IS(ceiling, 50);
	switch (lw_mutex_lock(&lw_pp_mutex_field.lock)) {
	case EPERM:
		fprintf(stderr, "skipped: ceilings, without the right to a real-time priority\n");
		return;
	case 0:
		CHECK_IS(lw_mutex_unlock(&lw_pp_mutex_field.lock), 0);
		break;
	default:
		CHECK(0);
	}
	lw_pp_mutex_test();
	lw_shared_pp_mutex_test();
	lw_robust_pp_mutex_test();
}

#define RWLOCK_TEST(name)                                                                             \
	static struct {                                                                               \
		name##_t lock;                                                                        \
		long left, right;                                                                     \
	} name##_field;                                                                               \
	static void *name##_user(void *argument)                                                      \
	{                                                                                             \
		for (int round = 0; round < ROUNDS; round++)                                          \
			if (round % 4 == 0) {                                                         \
				CHECK_IS(lw_rwlock_wrlock(&name##_field.lock), 0);                    \
				name##_field.left++;                                                  \
				name##_field.right++;                                                 \
				CHECK_IS(lw_rwlock_unlock(&name##_field.lock), 0);                    \
			} else {                                                                      \
				CHECK_IS(lw_rwlock_rdlock(&name##_field.lock), 0);                    \
				CHECK_IS(name##_field.left, name##_field.right);                      \
				CHECK_IS(lw_rwlock_unlock(&name##_field.lock), 0);                    \
			}                                                                             \
		return argument;                                                                      \
	}                                                                                             \
	static void *name##_other(void *writer)                                                       \
	{                                                                                             \
		struct timespec soon = in_ms(CLOCK_MONOTONIC, 5);                                     \
		CHECK_IS(lw_rwlock_trywrlock(&name##_field.lock), EBUSY);                             \
		CHECK_IS(lw_rwlock_timedwrlock(&name##_field.lock, &soon), ETIMEDOUT);                \
		/* lw_rwlock(3), EINVAL: The time or the clock is invalid, and the lock does not admit the caller at once */ \
		CHECK_IS(lw_rwlock_timedwrlock(&name##_field.lock, NULL), EINVAL);                    \
		if (writer != NULL) {                                                                 \
			soon = in_ms(CLOCK_MONOTONIC, 5);                                             \
			CHECK_IS(lw_rwlock_tryrdlock(&name##_field.lock), EBUSY);                     \
			CHECK_IS(lw_rwlock_timedrdlock(&name##_field.lock, &soon), ETIMEDOUT);        \
		} else {                                                                              \
			CHECK_IS(lw_rwlock_rdlock(&name##_field.lock), 0);                            \
			CHECK_IS(lw_rwlock_unlock(&name##_field.lock), 0);                            \
		}                                                                                     \
		return NULL;                                                                          \
	}                                                                                             \
	static void name##_test(void)                                                                 \
	{                                                                                             \
		pthread_t threads[TASKS];                                                             \
		name##_t *none = NULL;                                                                \
		CHECK_IS(name##_init(&name##_field.lock), 0);                                         \
		for (int task = 0; task < TASKS; task++)                                              \
			threads[task] = start(name##_user, NULL);                                     \
		for (int task = 0; task < TASKS; task++)                                              \
			join(threads[task]);                                                          \
		CHECK_IS(name##_field.left, (long)TASKS * ROUNDS / 4);                                \
		CHECK_IS(lw_rwlock_rdlock(&name##_field.lock), 0);                                    \
		CHECK_IS(lw_rwlock_destroy(&name##_field.lock), EBUSY);                               \
		join(start(name##_other, NULL));                                                      \
		CHECK_IS(lw_rwlock_unlock(&name##_field.lock), 0);                                    \
		CHECK_IS(lw_rwlock_wrlock(&name##_field.lock), 0);                                    \
		join(start(name##_other, &name##_field));                                             \
		CHECK_IS(lw_rwlock_destroy(&name##_field.lock), EBUSY);                               \
		CHECK_IS(lw_rwlock_unlock(&name##_field.lock), 0);                                    \
		CHECK_IS(lw_rwlock_unlock(&name##_field.lock), EPERM);                                \
		CHECK_IS(lw_rwlock_rdlock(none), EINVAL);                                             \
		CHECK_IS(lw_rwlock_destroy(&name##_field.lock), 0);                                   \
	}
RWLOCK_TEST(lw_rwlock)
RWLOCK_TEST(lw_shared_rwlock)
RWLOCK_TEST(lw_rf_rwlock)
RWLOCK_TEST(lw_shared_rf_rwlock)
RWLOCK_TEST(lw_robust_rwlock)

/* Two tasks take turns: with each kind of mutex, and both kinds of condition variables. */
#define COND_TEST(name, cond)                                                                         \
	static struct {                                                                               \
		name##_t lock;                                                                        \
		cond##_t changed;                                                                     \
		int turn;                                                                             \
	} name##_##cond##_field;                                                                      \
	static void *name##_##cond##_player(void *argument)                                           \
	{                                                                                             \
		int me = *(int *)argument;                                                            \
		CHECK_IS(lw_mutex_lock(&name##_##cond##_field.lock), 0);                              \
		for (int round = 0; round < 200; round++) {                                           \
			while (name##_##cond##_field.turn % 3 != me)                                  \
				CHECK_IS(lw_cond_wait(&name##_##cond##_field.changed,                 \
						      &name##_##cond##_field.lock),                   \
					 0);                                                          \
			name##_##cond##_field.turn++;                                                 \
			CHECK_IS(lw_cond_broadcast(&name##_##cond##_field.changed), 0);               \
		}                                                                                     \
		CHECK_IS(lw_mutex_unlock(&name##_##cond##_field.lock), 0);                            \
		return NULL;                                                                          \
	}                                                                                             \
	static void name##_##cond##_test(void)                                                        \
	{                                                                                             \
		int numbers[3] = {0, 1, 2};                                                           \
		pthread_t threads[3];                                                                 \
		struct timespec soon;                                                                 \
		CHECK_IS(name##_init(&name##_##cond##_field.lock), 0);                                \
		CHECK_IS(cond##_init(&name##_##cond##_field.changed), 0);                             \
		for (int task = 0; task < 3; task++)                                                  \
			threads[task] = start(name##_##cond##_player, &numbers[task]);                \
		for (int task = 0; task < 3; task++)                                                  \
			join(threads[task]);                                                          \
		CHECK_IS(name##_##cond##_field.turn, 600);                                            \
		CHECK_IS(lw_cond_signal(&name##_##cond##_field.changed), 0);                          \
		CHECK_IS(lw_cond_wait(&name##_##cond##_field.changed, &name##_##cond##_field.lock), EPERM); \
		CHECK_IS(lw_mutex_lock(&name##_##cond##_field.lock), 0);                              \
		soon = in_ms(CLOCK_MONOTONIC, 5);                                                     \
		CHECK_IS(lw_cond_timedwait(&name##_##cond##_field.changed, &name##_##cond##_field.lock, \
					   &soon),                                                    \
			 ETIMEDOUT);                                                                  \
		CHECK_IS(lw_cond_timedwait(&name##_##cond##_field.changed, &name##_##cond##_field.lock, \
					   NULL),                                                     \
			 EINVAL);                                                                     \
		CHECK_IS(lw_mutex_unlock(&name##_##cond##_field.lock), 0);                            \
		CHECK_IS(cond##_destroy(&name##_##cond##_field.changed), 0);                          \
	}
COND_TEST(lw_mutex, lw_cond)
COND_TEST(lw_mutex, lw_shared_cond)
COND_TEST(lw_shared_mutex, lw_cond)
COND_TEST(lw_shared_mutex, lw_shared_cond)
COND_TEST(lw_tp_mutex, lw_cond)
COND_TEST(lw_pi_mutex, lw_cond)
COND_TEST(lw_plain_pi_mutex, lw_cond)
COND_TEST(lw_shared_pi_mutex, lw_shared_cond)
COND_TEST(lw_recursive_mutex, lw_cond)
COND_TEST(lw_robust_mutex, lw_cond)
COND_TEST(lw_robust_mutex, lw_shared_cond)
COND_TEST(lw_robust_pi_mutex, lw_cond)
COND_TEST(lw_robust_tp_mutex, lw_shared_cond)

static LW_DEFINE_SEM(items, 0);
static LW_DEFINE_COMPLETION(loaded);
static lw_barrier_t meeting = LW_BARRIER_INITIALIZER(TASKS);
static int serials;

static void *take_all(void *argument)
{
	for (int round = 0; round < ROUNDS; round++)
		CHECK_IS(lw_sem_wait(&items), 0);
	return argument;
}

static void *meet(void *argument)
{
	CHECK_IS(lw_completion_wait(&loaded), 0);
	for (int round = 0; round < 50; round++) {
		int answer = lw_barrier_wait(&meeting);
		CHECK(answer == 0 || answer == LW_BARRIER_SERIAL_TASK);
		if (answer == LW_BARRIER_SERIAL_TASK)
			__atomic_fetch_add(&serials, 1, __ATOMIC_RELAXED);
	}
	return argument;
}

/* ---- the memory goes as soon as a wait has ended ---- */

#define PAGE 4096
#define BRIEF 5000
static char *pages;
static int turn;

static void *let_go(void *argument)
{
	for (int round = 0; round < BRIEF; round++) {
		void *page = pages + (size_t)round * PAGE;
		while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) <= round)
			sched_yield();
		if (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) == INT32_MAX)
			break;
		/* Sometimes the waiter is still on its way to sleep. */
		for (volatile int spins = 0; spins < round % 256; spins = spins + 1)
			;
		if (round % 4 < 2)
			CHECK_IS(lw_sem_post((lw_sem_t *)page), 0);
		else if (round % 8 < 4)
			CHECK_IS(lw_completion_complete((lw_completion_t *)page), 0);
		else
			CHECK_IS(lw_completion_complete_all((lw_completion_t *)page), 0);
	}
	return argument;
}

/* Whoever lets the waiter go gets a fault otherwise. */
static void brief_lives(void)
{
	pthread_t thread;
	/* On a busy machine fewer rounds will do. */
	struct timespec now, enough = in_ms(CLOCK_MONOTONIC, 500);
	pages = (char *)mmap(NULL, (size_t)BRIEF * PAGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK((void *)pages != MAP_FAILED);
	thread = start(let_go, NULL);
	for (int round = 0; round < BRIEF; round++) {
		void *page = pages + (size_t)round * PAGE;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > enough.tv_sec || (now.tv_sec == enough.tv_sec && now.tv_nsec > enough.tv_nsec))
			break;
		__atomic_store_n(&turn, round + 1, __ATOMIC_RELEASE);
		/* Zeros are a semaphore without tokens, and a completion of which nothing is done. */
		if (round % 2 != 0)
			while ((round % 4 < 2 ? lw_sem_trywait((lw_sem_t *)page) :
						lw_completion_trywait((lw_completion_t *)page)) != 0)
				sched_yield();
		else if (round % 4 < 2)
			CHECK_IS(lw_sem_wait((lw_sem_t *)page), 0);
		else
			CHECK_IS(lw_completion_wait((lw_completion_t *)page), 0);
		CHECK_IS(munmap(page, PAGE), 0);
	}
	__atomic_store_n(&turn, INT32_MAX, __ATOMIC_RELEASE);
	join(thread);
	CHECK_IS(munmap(pages, (size_t)BRIEF * PAGE), 0);
}

static void waits(void)
{
	pthread_t threads[TASKS];
	struct timespec soon;
	int value = -1;
	lw_sem_t *none = NULL;
	lw_sem_t full = LW_SEM_INITIALIZER(LW_SEM_VALUE_MAX);
	for (int task = 0; task < 2; task++)
		threads[task] = start(take_all, NULL);
	for (int round = 0; round < 2 * ROUNDS; round++)
		CHECK_IS(lw_sem_post(&items), 0);
	for (int task = 0; task < 2; task++)
		join(threads[task]);
	CHECK_IS(lw_sem_trywait(&items), EAGAIN);
	soon = in_ms(CLOCK_MONOTONIC, 5);
	CHECK_IS(lw_sem_timedwait(&items, &soon), ETIMEDOUT);
	CHECK_IS(lw_sem_timedwait(&items, NULL), EINVAL);
	soon = in_ms(CLOCK_REALTIME, 5);
	CHECK_IS(lw_sem_clockwait(&items, CLOCK_REALTIME, &soon), ETIMEDOUT);
	CHECK_IS(lw_sem_post(&full), EOVERFLOW);
	CHECK_IS(lw_sem_getvalue(&full, &value), 0);
	CHECK_IS(value, 0x7fffffff);
	CHECK_IS(lw_sem_init(&items, LW_SEM_VALUE_MAX + 1u), EINVAL);
	CHECK_IS(lw_sem_wait(none), EINVAL);
	CHECK_IS(lw_sem_destroy(&items), 0);

	for (int task = 0; task < TASKS; task++)
		threads[task] = start(meet, NULL);
	CHECK(!lw_completion_is_done(&loaded));
	CHECK_IS(lw_completion_complete(&loaded), 0);
	CHECK_IS(lw_completion_complete_all(&loaded), 0);
	for (int task = 0; task < TASKS; task++)
		join(threads[task]);
	CHECK_IS(serials, 50);
	CHECK(lw_completion_is_done(&loaded));
	CHECK_IS(lw_completion_reset(&loaded), 0);
	soon = in_ms(CLOCK_MONOTONIC, 5);
	CHECK_IS(lw_completion_timedwait(&loaded, &soon), ETIMEDOUT);
	soon = in_ms(CLOCK_MONOTONIC, 5);
	CHECK_IS(lw_barrier_timedwait(&meeting, &soon), ETIMEDOUT);
	CHECK_IS(lw_barrier_init(&meeting, 0), EINVAL);
}

static lw_once_t first = LW_ONCE_INITIALIZER, inner = LW_ONCE_INITIALIZER;
static int runs, recursive_answer;

static void initialise(void)
{
	runs++;
	sleep_ms(2);
}

static void recurse(void)
{
	recursive_answer = lw_once(&inner, recurse);
}

static void *come(void *argument)
{
	CHECK_IS(lw_once(&first, initialise), 0);
	CHECK_IS(runs, 1);
	return argument;
}

static void leave_early(void)
{
	runs++;
	if (runs == 1)
		pthread_exit(NULL);
}

static void *come_again(void *once)
{
	lw_once((lw_once_t *)once, leave_early);
	return once;
}

static void onces(void)
{
	pthread_t threads[TASKS];
	lw_once_t left = LW_ONCE_INITIALIZER;
	for (int task = 0; task < TASKS; task++)
		threads[task] = start(come, NULL);
	for (int task = 0; task < TASKS; task++)
		join(threads[task]);
	CHECK_IS(lw_once(&inner, recurse), 0);
	/* lw_once(3), EDEADLK: The function was called from within initialise */
	CHECK_IS(recursive_answer, EDEADLK);
	/* lw_once(3), EINVAL: A pointer is NULL */
	CHECK_IS(lw_once((lw_once_t *)NULL, initialise), EINVAL);
	CHECK_IS(lw_once(&left, NULL), EINVAL);
	runs = 0;
	CHECK(join(start(come_again, &left)) == NULL);
	CHECK(join(start(come_again, &left)) == &left);
	CHECK_IS(runs, 2);
}

int main(void)
{
	mutexes();
	owners();
	ceilings();
	lw_rwlock_test();
	lw_shared_rwlock_test();
	lw_rf_rwlock_test();
	lw_shared_rf_rwlock_test();
	lw_robust_rwlock_test();
	lw_mutex_lw_cond_test();
	lw_mutex_lw_shared_cond_test();
	lw_shared_mutex_lw_cond_test();
	lw_shared_mutex_lw_shared_cond_test();
	lw_tp_mutex_lw_cond_test();
	lw_pi_mutex_lw_cond_test();
	lw_plain_pi_mutex_lw_cond_test();
	lw_shared_pi_mutex_lw_shared_cond_test();
	lw_recursive_mutex_lw_cond_test();
	lw_robust_mutex_lw_cond_test();
	lw_robust_mutex_lw_shared_cond_test();
	lw_robust_pi_mutex_lw_cond_test();
	lw_robust_tp_mutex_lw_shared_cond_test();
	waits();
	brief_lives();
	onces();
	CHECK(lw_task_id() != 0);
	puts("conforms");
	return 0;
}

/* pthread_cancel(): waits end where pthread's own do, with the mutex held, and lose nothing. */
#include "latchwork.h"

#include "check.h"

#ifdef LATCHWORK_TWIN
#include <sys/syscall.h>
#endif

static volatile int entered, cleaned;

/* A thread asleep in a wait for a condition: it is cancelled, and its handler has the mutex. */
#define COND_TEST(name, cond)                                                                         \
	static name##_t name##_##cond##_lock;                                                         \
	static cond##_t name##_##cond##_changed = LW_COND_INITIALIZER;                                \
	static void name##_##cond##_cleanup(void *argument)                                           \
	{                                                                                             \
		CHECK(argument == &cleaned);                                                          \
		cleaned++;                                                                            \
		CHECK_IS(lw_mutex_unlock(&name##_##cond##_lock), 0);                                  \
	}                                                                                             \
	static void *name##_##cond##_waiter(void *argument)                                           \
	{                                                                                             \
		CHECK_IS(lw_mutex_lock(&name##_##cond##_lock), 0);                                    \
		pthread_cleanup_push(name##_##cond##_cleanup, (void *)&cleaned);                      \
		entered = 1;                                                                          \
		for (;;)                                                                              \
			CHECK_IS(lw_cond_wait(&name##_##cond##_changed, &name##_##cond##_lock), 0);   \
		pthread_cleanup_pop(0);                                                               \
		return argument;                                                                      \
	}                                                                                             \
	static void name##_##cond##_test(void)                                                        \
	{                                                                                             \
		name##_init(&name##_##cond##_lock);                                                   \
		for (int round = 0; round < 20; round++) {                                            \
			pthread_t thread;                                                             \
			cleaned = entered = 0;                                                        \
			thread = start(name##_##cond##_waiter, NULL);                                 \
			if (round % 2 == 0)                                                           \
				while (!entered)                                                      \
					sleep_ms(1);                                                  \
			if (round % 4 == 0)                                                           \
				sleep_ms(2);                                                          \
			if (round % 5 == 0)                                                           \
				lw_cond_signal(&name##_##cond##_changed);                             \
			CHECK_IS(pthread_cancel(thread), 0);                                          \
			CHECK(join(thread) == PTHREAD_CANCELED);                                      \
			CHECK(cleaned == entered);                                                    \
			CHECK_IS(lw_mutex_trylock(&name##_##cond##_lock), 0);                         \
			CHECK_IS(lw_mutex_unlock(&name##_##cond##_lock), 0);                          \
			CHECK_IS(cond##_destroy(&name##_##cond##_changed), 0);                        \
		}                                                                                     \
	}
COND_TEST(lw_mutex, lw_cond)
COND_TEST(lw_mutex, lw_shared_cond)
COND_TEST(lw_tp_mutex, lw_cond)
COND_TEST(lw_pi_mutex, lw_cond)
COND_TEST(lw_plain_pi_mutex, lw_cond)
COND_TEST(lw_recursive_mutex, lw_cond)
COND_TEST(lw_robust_mutex, lw_cond)
COND_TEST(lw_robust_pi_mutex, lw_shared_cond)

/*
 * One notification, and one of two waiters cancelled at the same moment: unless the cancelled waiter returned
 * from its wait, the other one is notified.
 */
static lw_mutex_t lock;
static lw_cond_t changed = LW_COND_INITIALIZER;
static int waiting, flag, returned;

static void unlock(void *argument)
{
	CHECK(argument == NULL);
	CHECK_IS(lw_mutex_unlock(&lock), 0);
}

static void *wait_once(void *notified)
{
	CHECK_IS(lw_mutex_lock(&lock), 0);
	pthread_cleanup_push(unlock, NULL);
	waiting++;
	while (flag == 0)
		CHECK_IS(lw_cond_wait(&changed, &lock), 0);
	flag--;
	returned++;
	*(int *)notified = 1;
	pthread_cleanup_pop(1);
	return NULL;
}

static void notifications(void)
{
	for (int round = 0; round < 300; round++) {
		pthread_t threads[2];
		int notified[2] = {0, 0};
		waiting = flag = returned = 0;
		for (int task = 0; task < 2; task++)
			threads[task] = start(wait_once, &notified[task]);
		for (int both = 0; !both; sched_yield()) {
			lw_mutex_lock(&lock);
			both = waiting == 2;
			lw_mutex_unlock(&lock);
		}
		lw_mutex_lock(&lock);
		flag = 1;
		lw_mutex_unlock(&lock);
		if (round % 2)
			pthread_cancel(threads[0]);
		lw_cond_signal(&changed);
		if (round % 2 == 0)
			pthread_cancel(threads[0]);
		/* Not what join() says: glibc calls one cancelled, too, whose request comes after it has returned. */
		join(threads[0]);
		if (!notified[0]) {
			/* The other one gets it, or this hangs. */
			CHECK(join(threads[1]) == NULL);
		} else {
			pthread_cancel(threads[1]);
			CHECK(join(threads[1]) == PTHREAD_CANCELED);
		}
		CHECK_IS(returned, 1);
	}
}

/* Semaphores: a token is never lost, and a pending request is acted upon also where there is one. */
static lw_sem_t sem;

static void *take(void *taken)
{
	CHECK_IS(lw_sem_wait(&sem), 0);
	if (taken != NULL)
		*(int *)taken = 1;
	return NULL;
}

static void *take_late(void *argument)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	entered = 1;
	while (entered == 1)
		sleep_ms(1);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	return take(argument);
}

static void tokens(void)
{
	int value;
	pthread_t thread;
	for (int round = 0; round < 300; round++) {
		pthread_t other;
		int taken = 0;
		CHECK_IS(lw_sem_init(&sem, 0), 0);
		thread = start(take, &taken);
		other = start(take, NULL);
		if (round % 3 == 0)
			sleep_ms(1);
		lw_sem_post(&sem);
		pthread_cancel(thread);
		join(thread);
		if (taken)
			lw_sem_post(&sem);
		CHECK(join(other) == NULL);
		CHECK_IS(lw_sem_getvalue(&sem, &value), 0);
		CHECK_IS(value, 0);
		CHECK_IS(lw_sem_destroy(&sem), 0);
	}
	entered = 0;
	CHECK_IS(lw_sem_init(&sem, 1), 0);
	thread = start(take_late, NULL);
	while (!entered)
		sleep_ms(1);
	pthread_cancel(thread);
	entered = 2;
	CHECK(join(thread) == PTHREAD_CANCELED);
	CHECK_IS(lw_sem_trywait(&sem), 0);
}

/* A lock call is no cancellation point, nor is a wait of a thread that has disabled it. */
static void *lock_through(void *got)
{
	entered = 1;
	CHECK_IS(lw_mutex_lock(&lock), 0);
	*(int *)got = 1;
	CHECK_IS(lw_mutex_unlock(&lock), 0);
	pthread_testcancel();
	return NULL;
}

static void *wait_through(void *got)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	entered = 1;
	CHECK_IS(lw_sem_wait(&sem), 0);
	*(int *)got = 1;
	return NULL;
}

static void undisturbed(void)
{
	int got = 0;
	pthread_t thread;
	entered = 0;
	lw_mutex_lock(&lock);
	thread = start(lock_through, &got);
	while (!entered)
		sleep_ms(1);
	pthread_cancel(thread);
	sleep_ms(5);
	lw_mutex_unlock(&lock);
	CHECK(join(thread) == PTHREAD_CANCELED);
	CHECK_IS(got, 1);
	got = entered = 0;
	lw_sem_init(&sem, 0);
	thread = start(wait_through, &got);
	while (!entered)
		sleep_ms(1);
	pthread_cancel(thread);
	sleep_ms(5);
	CHECK_IS(got, 0);
	lw_sem_post(&sem);
	CHECK(join(thread) == NULL);
	CHECK_IS(got, 1);
}

static lw_once_t once = LW_ONCE_INITIALIZER;
static int runs;

static void hang(void)
{
	runs++;
	entered = 1;
	while (runs == 1)
		sleep_ms(1000);
}

static void *run_once(void *argument)
{
	CHECK_IS(lw_once(&once, hang), 0);
	return argument;
}

#ifdef LATCHWORK_TWIN
/* For wait.c, which says what it means. */
__thread int lw__lingers;

struct sleeper {
	pthread_t thread;
	volatile int id;
	int lingers, has_got;
};

static void *wait_for_notification(void *argument)
{
	struct sleeper *me = argument;
	lw__lingers = me->lingers;
	me->id = (int)syscall(SYS_gettid);
	return wait_once(&me->has_got);
}

static void *wait_for_token(void *argument)
{
	struct sleeper *me = argument;
	lw__lingers = me->lingers;
	me->id = (int)syscall(SYS_gettid);
	return take(&me->has_got);
}

/* Starts one that waits, and returns when it sleeps. */
static void let_wait(struct sleeper *it, void *(*body)(void *))
{
	char path[64], text[32];
	it->thread = start(body, it);
	while (it->id == 0)
		sched_yield();
	snprintf(path, sizeof path, "/proc/self/task/%d/syscall", it->id);
	for (;;) {
		FILE *file = fopen(path, "r");
		CHECK(file != NULL);
		CHECK(fgets(text, sizeof text, file) != NULL);
		fclose(file);
		/* One that does not sleep is "running". */
		if (text[0] != 'r' && atoi(text) == SYS_futex)
			return;
		sched_yield();
	}
}

/* Who was the first to sleep is the first to be woken. It is cancelled before it can have returned. */
static void cancel_woken(struct sleeper sleepers[2])
{
	pthread_cancel(sleepers[0].thread);
	CHECK(join(sleepers[0].thread) == PTHREAD_CANCELED);
	CHECK(join(sleepers[1].thread) == NULL);
	CHECK(!sleepers[0].has_got && sleepers[1].has_got);
}

int main(int argc, char **argv)
{
	struct sleeper notified[2] = {{.lingers = 1}, {.lingers = 0}}, woken[2] = {{.lingers = 1}, {.lingers = 0}};
	/* For a twin, which hangs. */
	if (argc > 1)
		alarm((unsigned)atoi(argv[1]));
	for (int task = 0; task < 2; task++)
		let_wait(&notified[task], wait_for_notification);
	lw_mutex_lock(&lock);
	flag = 1;
	lw_mutex_unlock(&lock);
	lw_cond_signal(&changed);
	cancel_woken(notified);
	CHECK_IS(lw_sem_init(&sem, 0), 0);
	for (int task = 0; task < 2; task++)
		let_wait(&woken[task], wait_for_token);
	lw_sem_post(&sem);
	cancel_woken(woken);
	puts("cancelled");
	return 0;
}
#else
int main(void)
{
	pthread_t thread;
	lw_mutex_lw_cond_test();
	lw_mutex_lw_shared_cond_test();
	lw_tp_mutex_lw_cond_test();
	lw_pi_mutex_lw_cond_test();
	lw_plain_pi_mutex_lw_cond_test();
	lw_recursive_mutex_lw_cond_test();
	lw_robust_mutex_lw_cond_test();
	lw_robust_pi_mutex_lw_shared_cond_test();
	notifications();
	tokens();
	undisturbed();
	entered = 0;
	thread = start(run_once, NULL);
	while (!entered)
		sleep_ms(1);
	pthread_cancel(thread);
	CHECK(join(thread) == PTHREAD_CANCELED);
	run_once(NULL);
	CHECK_IS(runs, 2);
	puts("cancelled");
	return 0;
}
#endif

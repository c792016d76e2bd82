/*
 * What lw_sem(3) says of semaphores, completions and barriers: each sentence of its description, before the lines that
 * show it. In C and in C++. The test in manual.rs compares these sentences with the page.
 */
#include "latchwork.h"
#include "latchwork/region.h"

#include "check.h"

#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>

LW_DEFINE_SEM(defined, 2);
LW_DEFINE_COMPLETION(completed);
static lw_sem_t posted = LW_SEM_INITIALIZER(0);
static lw_barrier_t of_three = LW_BARRIER_INITIALIZER(3);
static int arrived;

static int value_of(lw_sem_t *semaphore)
{
	int value = -1;
	CHECK_IS(lw_sem_getvalue(semaphore, &value), 0);
	return value;
}

static void post(int signal)
{
	(void)signal;
	lw_sem_post(&posted);
}

static void complete(int signal)
{
	(void)signal;
	lw_completion_complete(&completed);
}

static void complete_all(int signal)
{
	(void)signal;
	lw_completion_complete_all(&completed);
}

static void *wait_for_post(void *unused)
{
	CHECK_IS(lw_sem_wait(&posted), 0);
	return unused;
}

static void semaphores(void)
{
	lw_sem_t most;
	pthread_t waiter;
	/* lw_sem(3) says: A semaphore is a counter with values from 0 to LW_SEM_VALUE_MAX (2^31 - 1) */
	CHECK_IS(LW_SEM_VALUE_MAX, 2147483647L);
	CHECK_IS(lw_sem_init(&most, LW_SEM_VALUE_MAX), 0);
	CHECK_IS(lw_sem_post(&most), EOVERFLOW);
	CHECK_IS(lw_sem_init(&most, LW_SEM_VALUE_MAX + 1u), EINVAL);
	/* lw_sem(3) says: LW_DEFINE_SEM(name, count) and LW_DEFINE_COMPLETION(name) define an initialised object */
	/* lw_sem(3) says: lw_sem_getvalue() stores the present value, which another task (a thread) may change at once */
	CHECK_IS(value_of(&defined), 2);
	CHECK(!lw_completion_is_done(&completed));
	/* lw_sem(3) says: lw_sem_post() increments the counter */
	CHECK_IS(lw_sem_post(&defined), 0);
	CHECK_IS(value_of(&defined), 3);
	/* lw_sem(3) says: lw_sem_wait() waits while the counter is 0, and then decrements it */
	CHECK_IS(lw_sem_wait(&defined), 0);
	CHECK_IS(value_of(&defined), 2);
	waiter = start(wait_for_post, NULL);
	sleep_ms(2);
	CHECK_IS(lw_sem_post(&posted), 0);
	join(waiter);
	CHECK_IS(value_of(&posted), 0);
	CHECK_IS(lw_sem_trywait(&posted), EAGAIN);
	/* lw_sem(3) says: A signal handler may call this function */
	signal(SIGUSR1, post);
	CHECK_IS(raise(SIGUSR1), 0);
	CHECK_IS(value_of(&posted), 1);
	CHECK_IS(lw_sem_trywait(&posted), 0);
}

static void *wait_for_event(void *unused)
{
	CHECK_IS(lw_completion_wait(&completed), 0);
	return unused;
}

static void completions(void)
{
	struct timespec past = in_ms(CLOCK_MONOTONIC, 0);
	pthread_t waiter;
	/* lw_sem(3) says: A completion reports that an event has happened */
	CHECK_IS(lw_completion_timedwait(&completed, &past), ETIMEDOUT);
	/* lw_sem(3) says: Each call of lw_completion_complete() lets one wait return: one that has begun, or else the next one */
	waiter = start(wait_for_event, NULL);
	CHECK_IS(lw_completion_complete(&completed), 0);
	join(waiter);
	CHECK_IS(lw_completion_complete(&completed), 0);
	/* lw_sem(3) says: lw_completion_is_done() returns whether a wait would return at once */
	CHECK(lw_completion_is_done(&completed));
	CHECK_IS(lw_completion_wait(&completed), 0);
	CHECK(!lw_completion_is_done(&completed));
	CHECK_IS(lw_completion_timedwait(&completed, &past), ETIMEDOUT);
	/* lw_sem(3) says: A signal handler may call lw_completion_complete() and lw_completion_complete_all() */
	signal(SIGUSR1, complete);
	CHECK_IS(raise(SIGUSR1), 0);
	CHECK_IS(lw_completion_timedwait(&completed, &past), 0);
	/* lw_sem(3) says: After lw_completion_complete_all(), all waits return at once until lw_completion_reset() is called */
	signal(SIGUSR1, complete_all);
	CHECK_IS(raise(SIGUSR1), 0);
	for (int i = 0; i < 3; i++)
		CHECK_IS(lw_completion_timedwait(&completed, &past), 0);
	CHECK_IS(lw_completion_reset(&completed), 0);
	CHECK_IS(lw_completion_timedwait(&completed, &past), ETIMEDOUT);
}

static void *arrive(void *unused)
{
	int error;
	__atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST);
	error = lw_barrier_wait(&of_three);
	CHECK(error == 0 || error == LW_BARRIER_SERIAL_TASK);
	__atomic_sub_fetch(&arrived, 1, __ATOMIC_SEQ_CST);
	return unused;
}

/* What processes share. */
struct shared {
	lw_shared_sem_t semaphore;
	lw_shared_completion_t completion;
	lw_shared_barrier_t barrier;
	int arrives;
};

static void barriers(void)
{
	static lw_barrier_t other;
	struct timespec soon = in_ms(CLOCK_MONOTONIC, 2);
	pthread_t threads[2];
	/* lw_sem(3) says: A barrier is made for a number of tasks, from 1 to 65,535 */
	CHECK_IS(lw_barrier_init(&other, 0), EINVAL);
	CHECK_IS(lw_barrier_init(&other, 65536), EINVAL);
	CHECK_IS(lw_barrier_init(&other, 65535), 0);
	CHECK_IS(lw_barrier_init(&other, 1), 0);
	/* lw_sem(3) says: Each task that arrives waits until that number of tasks have arrived */
	/* lw_sem(3) says: The barrier can then be used again */
	for (int round = 0; round < 2; round++) {
		threads[0] = start(arrive, NULL);
		threads[1] = start(arrive, NULL);
		while (__atomic_load_n(&arrived, __ATOMIC_SEQ_CST) != 2)
			sleep_ms(1);
		arrive(NULL);
		join(threads[0]);
		join(threads[1]);
	}
	/* lw_sem(3) says: If lw_barrier_timedwait() times out, the caller no longer counts as arrived */
	CHECK_IS(lw_barrier_init(&other, 2), 0);
	CHECK_IS(lw_barrier_timedwait(&other, &soon), ETIMEDOUT);
	CHECK_IS(lw_barrier_timedwait(&other, &soon), ETIMEDOUT);
}

static void between_processes(void)
{
	static const lw_shared_sem_t semaphore = LW_SHARED_SEM_INITIALIZER(1);
	static const lw_shared_completion_t completion = LW_SHARED_COMPLETION_INITIALIZER;
	static const lw_shared_barrier_t barrier = LW_SHARED_BARRIER_INITIALIZER(2);
	struct shared *shared = (struct shared *)share(sizeof *shared);
	struct timespec soon;
	int error;
	pid_t child;
	/* lw_sem(3) says: lw_shared_sem_t, lw_shared_completion_t and lw_shared_barrier_t are for memory that processes share */
	/* lw_sem(3) says: Their initialisers are LW_SHARED_SEM_INITIALIZER(count), LW_SHARED_COMPLETION_INITIALIZER and */
	/* lw_sem(3) says: The names in the synopsis are generic: they take a pointer to either kind, by means of _Generic in C */
	shared->semaphore = semaphore;
	shared->completion = completion;
	shared->barrier = barrier;
	if ((child = fork()) == 0) {
		CHECK_IS(lw_sem_wait(&shared->semaphore), 0);
		CHECK_IS(lw_completion_wait(&shared->completion), 0);
		lw_barrier_wait(&shared->barrier);
		_exit(0);
	}
	CHECK_IS(lw_completion_complete(&shared->completion), 0);
	lw_barrier_wait(&shared->barrier);
	CHECK_IS(exit_of(child), 0);
	CHECK_IS(lw_sem_trywait(&shared->semaphore), EAGAIN);
	/* lw_sem(3) says: A task that is killed while it waits still counts as arrived */
	if ((child = fork()) == 0) {
		lw_barrier_wait(&shared->barrier);
		_exit(0);
	}
	while (call_of(child, child) != SYS_futex)
		sleep_ms(1);
	CHECK_IS(kill(child, SIGKILL), 0);
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	error = lw_barrier_wait(&shared->barrier);
	CHECK(error == 0 || error == LW_BARRIER_SERIAL_TASK);
	/* lw_sem(3) says: If a task is killed before it arrives, the others wait for ever in lw_barrier_wait() */
	/* lw_sem(3) says: Where tasks may be killed, use lw_barrier_timedwait() */
	if ((child = fork()) == 0)
		raise(SIGKILL);
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	soon = in_ms(CLOCK_MONOTONIC, 2);
	CHECK_IS(lw_barrier_timedwait(&shared->barrier, &soon), ETIMEDOUT);
}

static volatile int slept, ended;

static void nothing(int signal)
{
	(void)signal;
}

static void *sleep_interruptibly(void *unused)
{
	slept = 1;
	ended = lw_sem_wait_interruptible(&posted);
	return unused;
}

/* Sends signals to a thread until its wait has ended. */
static void interrupt(pthread_t sleeper)
{
	while (!ended) {
		if (slept)
			pthread_kill(sleeper, SIGUSR1);
		sleep_ms(1);
	}
	join(sleeper);
	/* lw_sem(3) says: The functions whose names end with _interruptible fail with EINTR if a signal handler ran while */
	CHECK_IS(ended, EINTR);
	slept = ended = 0;
}

static void waits(void)
{
	struct timespec soon = in_ms(CLOCK_MONOTONIC, 2), soon_by_date = in_ms(CLOCK_REALTIME, 2);
	/* lw_sem(3) says: Timeouts are absolute times of the clock CLOCK_MONOTONIC */
	CHECK_IS(lw_sem_timedwait(&posted, &soon), ETIMEDOUT);
	CHECK_IS(lw_completion_timedwait(&completed, &soon), ETIMEDOUT);
	/* lw_sem(3) says: lw_sem_clockwait() and lw_completion_clockwait() take CLOCK_REALTIME as well */
	CHECK_IS(lw_sem_clockwait(&posted, CLOCK_REALTIME, &soon_by_date), ETIMEDOUT);
	CHECK_IS(lw_completion_clockwait(&completed, CLOCK_REALTIME, &soon_by_date), ETIMEDOUT);
	signal(SIGUSR1, nothing);
	interrupt(start(sleep_interruptibly, NULL));
}

/* In a region. */
struct there {
	lw_region_t *region;
	lw_shared_sem_t *semaphore;
	lw_shared_completion_t *completion;
	volatile int has_ended;
};

static void *sleep_in_region(void *argument)
{
	struct there *there = (struct there *)argument;
	CHECK_IS(lw_region_join(there->region, "sleeps"), 0);
	slept = 1;
	CHECK_IS(lw_sem_wait_interruptible(there->semaphore), EINTR);
	ended = lw_completion_wait_interruptible(there->completion);
	return NULL;
}

static void *sleep_until_cancelled(void *argument)
{
	struct there *there = (struct there *)argument;
	CHECK_IS(lw_region_join(there->region, "is cancelled"), 0);
	slept = 1;
	lw_sem_wait_interruptible(there->semaphore);
	return NULL;
}

static void note_end(void *there) { ((struct there *)there)->has_ended = 1; }

/* In a region its sleeps have a limit; here each one is ended before, so that the limit is never reached. */
static void *wait_until_cancelled(void *argument)
{
	struct there *there = (struct there *)argument;
	CHECK_IS(lw_region_join(there->region, "is cancelled"), 0);
	pthread_cleanup_push(note_end, argument);
	slept = 2;
	lw_sem_wait(there->semaphore);
	pthread_cleanup_pop(0);
	return NULL;
}

static void waits_in_region(void)
{
	void *result = NULL;
	static const lw_shared_sem_t semaphore = LW_SHARED_SEM_INITIALIZER(0);
	static const lw_shared_completion_t completion = LW_SHARED_COMPLETION_INITIALIZER;
	struct lw_region_options options;
	struct there there;
	pthread_t sleeper;

	memset(&options, 0, sizeof options);
	options.max_bytes = 2 << 20;
	CHECK_IS(lw_region_create(&there.region, NULL, &options), 0);
	there.semaphore = (lw_shared_sem_t *)lw_region_alloc(there.region, sizeof semaphore);
	there.completion = (lw_shared_completion_t *)lw_region_alloc(there.region, sizeof completion);
	CHECK(there.semaphore != NULL && there.completion != NULL);
	*there.semaphore = semaphore;
	*there.completion = completion;
	interrupt(start(sleep_in_region, &there));
	sleeper = start(sleep_until_cancelled, &there);
	while (!slept)
		sleep_ms(1);
	sleep_ms(20);
	CHECK_IS(pthread_cancel(sleeper), 0);
	CHECK_IS(pthread_join(sleeper, &result), 0);
	CHECK(result == PTHREAD_CANCELED);
	there.has_ended = 0;
	sleeper = start(wait_until_cancelled, &there);
	while (slept != 2)
		sleep_ms(1);
	sleep_ms(20);
	CHECK_IS(pthread_cancel(sleeper), 0);
	while (!there.has_ended) {
		syscall(SYS_futex, lw__tokens(&there.semaphore->lw_state), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
		sleep_ms(10);
	}
	CHECK_IS(pthread_join(sleeper, &result), 0);
	CHECK(result == PTHREAD_CANCELED);
	lw_region_free(there.region, there.semaphore);
	lw_region_free(there.region, there.completion);
	CHECK_IS(lw_region_detach(there.region), 0);
}

int main(void)
{
	alarm(WATCHDOG);
	semaphores();
	completions();
	barriers();
	between_processes();
	waits();
	waits_in_region();
	puts("said");
	return 0;
}

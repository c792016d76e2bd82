/*
 * What lies in a region beside its mutexes: reader/writer locks and initialisations whose words name tasks of the region.
 * Which locks a region for any PID namespace refuses. Errors, owners that are killed or end, forks, several regions. (The bodies of the other reader/writer locks try
 * exclusion; the tests in Rust kill at each instruction.)
 */
#include "latchwork.h"

#include "check.h"

#include <latchwork/region.h>
#include <signal.h>

struct field {
	lw_region_rwlock_t lock, other;
	lw_region_once_t once;
	volatile int state, runs;
};

static struct field *here;

static lw_region_t *make_region(void)
{
	struct lw_region_options options;
	lw_region_t *region = NULL;
	memset(&options, 0, sizeof options);
	options.max_bytes = 8 << 20;
	options.max_tasks = 16;
	CHECK_IS(lw_region_create(&region, NULL, &options), 0);
	return region;
}

static struct field *field_in(lw_region_t *region)
{
	void *object = NULL;
	CHECK_IS(lw_region_object(region, "field", lw_type("field"), sizeof(struct field), NULL, NULL, &object), 0);
	return (struct field *)object;
}

static void wait_for(struct field *field, int state)
{
	while (field->state != state)
		sleep_ms(1);
}

/* Enters, sets the state, and waits to be killed. */
static pid_t fork_holder(struct field *field, int writes)
{
	pid_t child;
	field->state = 0;
	child = fork();
	if (child == 0) {
		CHECK_IS(writes ? lw_rwlock_wrlock(&field->lock) : lw_rwlock_rdlock(&field->lock), 0);
		field->state = 1;
		for (;;)
			pause();
	}
	wait_for(field, 1);
	return child;
}

static void end_by_kill(pid_t child)
{
	CHECK_IS(kill(child, SIGKILL), 0);
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
}

static void leave_to_dead(struct field *field, int writes)
{
	end_by_kill(fork_holder(field, writes));
}

static void repair(lw_region_rwlock_t *lock)
{
	/* lw_rwlock(3), EOWNERDEAD: Robust locks only; see lw_mutex(3) */
	CHECK_IS(lw_rwlock_rdlock(lock), EOWNERDEAD);
	CHECK_IS(lw_rwlock_consistent(lock), 0);
	/* lw_rwlock(3), EINVAL: The data is not marked as inconsistent */
	CHECK_IS(lw_rwlock_consistent(lock), EINVAL);
	CHECK_IS(lw_rwlock_unlock(lock), 0);
}

static void check_free(lw_region_rwlock_t *lock)
{
	CHECK_IS(lw_rwlock_trywrlock(lock), 0);
	CHECK_IS(lw_rwlock_unlock(lock), 0);
	CHECK_IS(lw_rwlock_unlock(lock), EPERM);
	CHECK_IS(lw_rwlock_destroy(lock), 0);
}

static void check_outside(lw_region_rwlock_t *lock)
{
	struct timespec soon = in_ms(CLOCK_MONOTONIC, 1);
	struct lw_rwlock_acquisition how;
	int released;
	/* lw_rwlock(3), EINVAL: the lock lies in no region of the process */
	CHECK_IS(lw_rwlock_rdlock(lock), EINVAL);
	CHECK_IS(lw_rwlock_tryrdlock(lock), EINVAL);
	CHECK_IS(lw_rwlock_wrlock(lock), EINVAL);
	CHECK_IS(lw_rwlock_trywrlock(lock), EINVAL);
	CHECK_IS(lw_rwlock_timedrdlock(lock, &soon), EINVAL);
	CHECK_IS(lw_rwlock_timedwrlock(lock, &soon), EINVAL);
	CHECK_IS(lw_rwlock_rdlock_traced(lock, &how), EINVAL);
	CHECK_IS(lw_rwlock_wrlock_traced(lock, &how), EINVAL);
	CHECK_IS(lw_rwlock_unlock(lock), EPERM);
	CHECK_IS(lw_rwlock_unlock_traced(lock, &released), EPERM);
	CHECK_IS(lw_rwlock_consistent(lock), EINVAL);
	CHECK_IS(lw_rwlock_unlock_inconsistent(lock), EPERM);
	CHECK_IS(lw_rwlock_destroy(lock), 0);
}

static lw_region_rwlock_t outside = LW_REGION_RWLOCK_INITIALIZER;
static lw_region_once_t once_outside = LW_REGION_ONCE_INITIALIZER;

static void run(void)
{
	here->runs++;
}

static void lie_outside(void)
{
	lw_region_rwlock_t on_the_stack = LW_REGION_RWLOCK_INITIALIZER, *none = NULL;
	check_outside(&outside);
	check_outside(&on_the_stack);
	/* lw_once(3), EINVAL: The object lies in no region of the process */
	CHECK_IS(lw_once(&once_outside, run), EINVAL);
	CHECK_IS(lw_rwlock_init(none), EINVAL);
	/* lw_rwlock(3), EINVAL: The pointer is NULL */
	CHECK_IS(lw_rwlock_rdlock(none), EINVAL);
	CHECK_IS(lw_rwlock_wrlock(none), EINVAL);
	CHECK_IS(lw_rwlock_unlock(none), EINVAL);
	CHECK_IS(lw_rwlock_consistent(none), EINVAL);
	CHECK_IS(lw_rwlock_unlock_inconsistent(none), EINVAL);
}

/* ---- reader/writer locks ---- */

static void *meet_writer(void *argument)
{
	struct field *field = (struct field *)argument;
	struct timespec soon = in_ms(CLOCK_MONOTONIC, 20);
	/* lw_rwlock(3), EPERM: the lock is robust, and the caller does not hold it */
	CHECK_IS(lw_rwlock_unlock(&field->lock), EPERM);
	/* lw_rwlock(3), EPERM: The caller does not hold the lock for writing */
	CHECK_IS(lw_rwlock_unlock_inconsistent(&field->lock), EPERM);
	CHECK_IS(lw_rwlock_consistent(&field->lock), EINVAL);
	/* lw_rwlock(3), EBUSY: The call would have to wait */
	CHECK_IS(lw_rwlock_tryrdlock(&field->lock), EBUSY);
	CHECK_IS(lw_rwlock_trywrlock(&field->lock), EBUSY);
	/* lw_rwlock(3), ETIMEDOUT: The time passed before the lock could be acquired */
	CHECK_IS(lw_rwlock_timedrdlock(&field->lock, &soon), ETIMEDOUT);
	CHECK_IS(lw_rwlock_timedwrlock(&field->lock, &soon), ETIMEDOUT);
	CHECK_IS(lw_rwlock_unlock(&field->lock), EPERM);
	return NULL;
}

static void *meet_reader(void *argument)
{
	struct field *field = (struct field *)argument;
	struct timespec soon = in_ms(CLOCK_MONOTONIC, 20);
	CHECK_IS(lw_rwlock_rdlock(&field->lock), 0);
	CHECK_IS(lw_rwlock_unlock_inconsistent(&field->lock), EPERM);
	CHECK_IS(lw_rwlock_unlock(&field->lock), 0);
	CHECK_IS(lw_rwlock_trywrlock(&field->lock), EBUSY);
	CHECK_IS(lw_rwlock_timedwrlock(&field->lock, &soon), ETIMEDOUT);
	CHECK_IS(lw_rwlock_unlock(&field->lock), EPERM);
	return NULL;
}

static void errors(struct field *field)
{
	struct lw_rwlock_acquisition how = {9, 9};
	int released = 9;
	CHECK_IS(lw_rwlock_init(&field->lock), 0);
	CHECK_IS(lw_rwlock_wrlock(&field->lock), 0);
	CHECK_IS(lw_rwlock_destroy(&field->lock), EBUSY);
	/* lw_rwlock(3), EDEADLK: Robust locks only; see lw_mutex(3) */
	CHECK_IS(lw_rwlock_wrlock(&field->lock), EDEADLK);
	CHECK_IS(lw_rwlock_rdlock(&field->lock), EDEADLK);
	CHECK_IS(lw_rwlock_trywrlock(&field->lock), EBUSY);
	CHECK_IS(lw_rwlock_consistent(&field->lock), EINVAL);
	join(start(meet_writer, field));
	CHECK_IS(lw_rwlock_unlock(&field->lock), 0);
	/* The unlock handed the lock off to the writer that has given up, and the next task finds it so. */
	CHECK_IS(lw_rwlock_rdlock(&field->lock), 0);
	CHECK_IS(lw_rwlock_unlock(&field->lock), 0);
	CHECK_IS(lw_rwlock_rdlock_traced(&field->lock, &how), 0);
	CHECK_IS(how.entry, LW_RWLOCK_ENTRY_FREE);
	CHECK_IS(how.sleeps, 0);
	CHECK_IS(lw_rwlock_wrlock(&field->lock), EDEADLK);
	CHECK_IS(lw_rwlock_destroy(&field->lock), EBUSY);
	join(start(meet_reader, field));
	CHECK_IS(lw_rwlock_unlock_traced(&field->lock, &released), 0);
	CHECK(released == LW_RWLOCK_RELEASED_NO_SLEEPER || released == LW_RWLOCK_RELEASED_WOKE);
	check_free(&field->lock);
}

static void deaths(struct field *field)
{
	struct timespec late = in_ms(CLOCK_MONOTONIC, 60000);
	/* That of a reader is not reported. There are more of them than seats. */
	for (int round = 0; round < 20; round++) {
		leave_to_dead(field, 0);
		CHECK_IS(lw_rwlock_destroy(&field->lock), 0);
	}
	check_free(&field->lock);
	leave_to_dead(field, 1);
	repair(&field->lock);
	leave_to_dead(field, 1);
	CHECK_IS(lw_rwlock_tryrdlock(&field->lock), EOWNERDEAD);
	/* Left to the next one, by any number of writers. */
	for (int round = 0; round < 3; round++) {
		CHECK_IS(lw_rwlock_unlock_inconsistent(&field->lock), 0);
		CHECK_IS(lw_rwlock_timedwrlock(&field->lock, &late), EOWNERDEAD);
		CHECK_IS(lw_rwlock_wrlock(&field->lock), EDEADLK);
	}
	CHECK_IS(lw_rwlock_unlock_inconsistent(&field->lock), 0);
	repair(&field->lock);
	/* Asleep as the holder dies: in the first sleep, and in a later one. */
	for (int ms = 1; ms <= 50; ms *= 50)
		for (int writes = 0; writes < 2; writes++) {
			pid_t child = fork_holder(field, writes);
			if (fork() == 0) {
				sleep_ms(ms);
				_exit(kill(child, SIGKILL));
			}
			CHECK_IS(lw_rwlock_timedwrlock(&field->lock, &late), writes ? EOWNERDEAD : 0);
			CHECK_IS(lw_rwlock_consistent(&field->lock), writes ? 0 : EINVAL);
			CHECK_IS(lw_rwlock_unlock(&field->lock), 0);
			while (wait(NULL) > 0)
				;
		}
	/* Given up. */
	leave_to_dead(field, 1);
	CHECK_IS(lw_rwlock_wrlock(&field->lock), EOWNERDEAD);
	CHECK_IS(lw_rwlock_unlock(&field->lock), 0);
	/* lw_rwlock(3), ENOTRECOVERABLE: Robust locks only; see lw_mutex(3) */
	CHECK_IS(lw_rwlock_rdlock(&field->lock), ENOTRECOVERABLE);
	CHECK_IS(lw_rwlock_trywrlock(&field->lock), ENOTRECOVERABLE);
	CHECK_IS(lw_rwlock_init(&field->lock), 0);
	check_free(&field->lock);
}

static void *end_as_reader(void *lock)
{
	CHECK_IS(lw_rwlock_rdlock((lw_region_rwlock_t *)lock), 0);
	return NULL;
}

static void *end_as_writer(void *lock)
{
	CHECK_IS(lw_rwlock_wrlock((lw_region_rwlock_t *)lock), 0);
	return NULL;
}

/* The end of a thread hands on what it holds. Many more threads than the region has slots: none stays behind. */
static void ends(struct field *field)
{
	for (int round = 0; round < 40; round++) {
		join(start(end_as_reader, &field->lock));
		check_free(&field->lock);
		join(start(end_as_writer, &field->lock));
		repair(&field->lock);
	}
}

static void forks(struct field *field)
{
	for (int writes = 0; writes < 2; writes++) {
		pid_t child;
		CHECK_IS(writes ? lw_rwlock_wrlock(&field->lock) : lw_rwlock_rdlock(&field->lock), 0);
		child = fork();
		if (child == 0) {
			CHECK_IS(lw_rwlock_unlock(&field->lock), EPERM);
			CHECK_IS(lw_rwlock_unlock_inconsistent(&field->lock), EPERM);
			CHECK_IS(lw_rwlock_trywrlock(&field->lock), EBUSY);
			CHECK_IS(lw_rwlock_wrlock(&field->other), 0);
			CHECK_IS(lw_rwlock_unlock(&field->other), 0);
			_exit(0);
		}
		CHECK_IS(exit_of(child), 0);
		CHECK_IS(lw_rwlock_unlock(&field->lock), 0);
	}
	check_free(&field->lock);
}

/* The thread's first region and others: each counts its locks. */
static void *in_several(void *argument)
{
	lw_region_t *regions[3];
	struct field *fields[3];
	for (int index = 0; index < 3; index++) {
		regions[index] = make_region();
		fields[index] = field_in(regions[index]);
		CHECK_IS(lw_rwlock_rdlock(&fields[index]->lock), 0);
		CHECK_IS(lw_rwlock_wrlock(&fields[index]->other), 0);
	}
	for (int index = 0; index < 3; index++) {
		CHECK_IS(lw_region_detach(regions[index]), EBUSY);
		CHECK(strstr(lw_error_text(), "holds 2 robust locks") != NULL);
		CHECK_IS(lw_rwlock_unlock(&fields[index]->lock), 0);
		CHECK_IS(lw_region_detach(regions[index]), EBUSY);
		CHECK_IS(lw_rwlock_unlock(&fields[index]->other), 0);
		CHECK_IS(lw_region_detach(regions[index]), 0);
	}
	return argument;
}

/* ---- initialisations ---- */

static int recursive_answer;

static void call_itself(void)
{
	recursive_answer = lw_once(&here->once, call_itself);
}

static void hang(void)
{
	here->state = 1;
	for (;;)
		pause();
}

static void end_inside(void)
{
	pthread_exit(NULL);
}

static void *run_and_end(void *argument)
{
	CHECK_IS(lw_once(&here->once, end_inside), 0);
	return argument;
}

static void initialise_once(void)
{
	static const lw_region_once_t fresh = LW_REGION_ONCE_INITIALIZER;
	pid_t child, waiters[3];
	CHECK_IS(lw_region_once(NULL, run), EINVAL);
	CHECK_IS(lw_once(&here->once, NULL), EINVAL);
	here->state = 0;
	child = fork();
	if (child == 0) {
		lw_once(&here->once, hang);
		_exit(1);
	}
	wait_for(here, 1);
	for (int index = 0; index < 3; index++) {
		waiters[index] = fork();
		if (waiters[index] == 0)
			_exit(lw_once(&here->once, run) == 0 && here->runs == 1 ? 0 : 1);
	}
	sleep_ms(10);
	CHECK_IS(here->runs, 0);
	end_by_kill(child);
	for (int index = 0; index < 3; index++)
		CHECK_IS(exit_of(waiters[index]), 0);
	CHECK_IS(lw_once(&here->once, run), 0);
	CHECK_IS(here->runs, 1);
	here->once = fresh;
	/* Left early, by a thread that ends; then by itself. */
	join(start(run_and_end, NULL));
	CHECK_IS(lw_once(&here->once, call_itself), 0);
	CHECK_IS(recursive_answer, EDEADLK);
	CHECK_IS(lw_once(&here->once, run), 0);
	CHECK_IS(here->runs, 1);
	CHECK_IS(sizeof here->once, 16);
}

/* Locks whose words name threads by their IDs. */
static void locks_of_one_namespace(void)
{
	lw_region_t *region = NULL;
	struct lw_region_options options;
	void *place = NULL;
	int round;

	memset(&options, 0, sizeof options);
	for (round = 0; round < 2; round++) {
		/* lw_rwlock(3), EXDEV: The lock is a robust one, and lies in a region for tasks of any PID namespace */
		/* lw_mutex(3), EXDEV: The mutex would name its owner by a thread ID */
		const int expected = round == 0 ? 0 : EXDEV;
		options.flags = round == 0 ? 0 : LW_REGION_ANY_PID_NAMESPACE;
		CHECK_IS(lw_region_create(&region, NULL, &options), 0);
		CHECK_IS(lw_region_object(region, "place", 1, sizeof(lw_robust_rwlock_t), NULL, NULL, &place), 0);
		CHECK_IS(lw_robust_mutex_init((lw_robust_mutex_t *)place), expected);
		CHECK_IS(lw_robust_tp_mutex_init((lw_robust_tp_mutex_t *)place), expected);
		CHECK_IS(lw_robust_tp_mutex_init_hand_off((lw_robust_tp_mutex_t *)place, 100), expected);
		CHECK_IS(lw_robust_pi_mutex_init((lw_robust_pi_mutex_t *)place), expected);
		CHECK_IS(lw_robust_pp_mutex_init((lw_robust_pp_mutex_t *)place, 1), expected);
		CHECK_IS(lw_robust_rwlock_init((lw_robust_rwlock_t *)place), expected);
		CHECK_IS(lw_robust_rwlock_init_hand_off((lw_robust_rwlock_t *)place, 100), expected);
		CHECK_IS(lw_shared_tp_mutex_init((lw_shared_tp_mutex_t *)place), expected);
		CHECK_IS(lw_shared_tp_mutex_init_hand_off((lw_shared_tp_mutex_t *)place, 100), expected);
		CHECK_IS(lw_shared_pi_mutex_init((lw_shared_pi_mutex_t *)place), expected);
		CHECK_IS(lw_shared_plain_pi_mutex_init((lw_shared_plain_pi_mutex_t *)place), expected);
		/* These name tasks of the region, or nobody. */
		CHECK_IS(lw_region_mutex_init((lw_region_mutex_t *)place), 0);
		CHECK_IS(lw_region_tp_mutex_init((lw_region_tp_mutex_t *)place), 0);
		CHECK_IS(lw_region_rwlock_init((lw_region_rwlock_t *)place), 0);
		CHECK_IS(lw_shared_mutex_init((lw_shared_mutex_t *)place), 0);
		CHECK_IS(lw_shared_pp_mutex_init((lw_shared_pp_mutex_t *)place, 1), 0);
		CHECK_IS(lw_shared_rwlock_init((lw_shared_rwlock_t *)place), 0);
		CHECK_IS(lw_region_detach(region), 0);
	}
}

int main(void)
{
	lw_region_t *region;
	locks_of_one_namespace();
	lie_outside();
	region = make_region();
	here = field_in(region);
	CHECK_IS((uintptr_t)&here->lock % 64, 0);
	lie_outside();
	errors(here);
	deaths(here);
	ends(here);
	forks(here);
	initialise_once();
	join(start(in_several, NULL));
	CHECK_IS(lw_region_detach(region), 0);
	puts("regional");
	return 0;
}

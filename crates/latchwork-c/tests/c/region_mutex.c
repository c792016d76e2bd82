/*
 * Region mutexes: errors, owners that are killed or end, forks, several regions, condition variables. (The bodies of
 * the other mutexes try mutual exclusion; with_rust.rs has C and Rust at one word.)
 */
#include "latchwork.h"

#include "check.h"

#include <latchwork/region.h>
#include <signal.h>

/* Of the form that is tested. */
typedef LOCK lock_t;

struct field {
	lock_t lock, other;
	lw_shared_cond_t changed;
	volatile int state;
};

static lw_region_t *make_region(unsigned tasks)
{
	struct lw_region_options options;
	lw_region_t *region = NULL;
	memset(&options, 0, sizeof options);
	options.max_bytes = 8 << 20;
	options.max_tasks = tasks;
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

/* Locks the mutex, sets the state, and waits for the next state. */
static pid_t fork_owner(struct field *field)
{
	pid_t child;
	field->state = 0;
	child = fork();
	if (child == 0) {
		CHECK_IS(lw_mutex_lock(&field->lock), 0);
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

static void leave_to_dead_owner(struct field *field)
{
	end_by_kill(fork_owner(field));
}

static void repair(lock_t *lock)
{
	CHECK_IS(lw_mutex_lock(lock), EOWNERDEAD);
	CHECK_IS(lw_mutex_consistent(lock), 0);
	CHECK_IS(lw_mutex_consistent(lock), EINVAL);
	CHECK_IS(lw_mutex_unlock(lock), 0);
	CHECK_IS(lock->lw_state, 0);
}

static void check_outside(lock_t *lock)
{
	struct timespec soon = in_ms(CLOCK_MONOTONIC, 1);
	CHECK_IS(lw_mutex_lock(lock), EINVAL);
	CHECK_IS(lw_mutex_trylock(lock), EINVAL);
	CHECK_IS(lw_mutex_timedlock(lock, &soon), EINVAL);
	CHECK_IS(lw_mutex_lock_interruptible(lock), EINVAL);
	CHECK_IS(lw_mutex_unlock(lock), EPERM);
	CHECK_IS(lw_mutex_consistent(lock), EINVAL);
	CHECK_IS(lw_mutex_unlock_inconsistent(lock), EPERM);
	CHECK_IS(lw_mutex_is_locked(lock), 0);
	CHECK_IS(lw_mutex_destroy(lock), 0);
}

static lock_t outside = LOCK_INITIALIZER;

static void lies_outside(lw_region_t *region)
{
	lock_t on_the_stack = outside;
	check_outside(&outside);
	check_outside(&on_the_stack);
	if (region != NULL)
		/* Behind the region's last byte. */
		check_outside((lock_t *)share(4096));
}

static void *use_as_another(void *argument)
{
	struct field *field = (struct field *)argument;
	struct timespec past = {0, 0}, bad = {0, 1000000000}, soon = in_ms(CLOCK_MONOTONIC, 20);
	CHECK_IS(lw_mutex_unlock(&field->lock), EPERM);
	CHECK_IS(lw_mutex_unlock_inconsistent(&field->lock), EPERM);
	CHECK_IS(lw_mutex_consistent(&field->lock), EINVAL);
	CHECK_IS(lw_mutex_trylock(&field->lock), EBUSY);
	CHECK_IS(lw_mutex_unlock(&field->lock), EPERM);
	CHECK_IS(lw_mutex_timedlock(&field->lock, &past), ETIMEDOUT);
	CHECK_IS(lw_mutex_timedlock(&field->lock, &bad), EINVAL);
	CHECK_IS(lw_mutex_timedlock(&field->lock, &soon), ETIMEDOUT);
	soon = in_ms(CLOCK_REALTIME, 2);
	CHECK_IS(lw_mutex_clocklock(&field->lock, CLOCK_REALTIME, &soon), ETIMEDOUT);
	CHECK_IS(lw_mutex_clocklock(&field->lock, CLOCK_PROCESS_CPUTIME_ID, &soon), EINVAL);
	CHECK_IS(lw_cond_wait(&field->changed, &field->lock), EPERM);
	CHECK_IS(lw_mutex_lock(&field->other), 0);
	CHECK_IS(lw_mutex_unlock(&field->other), 0);
	return NULL;
}

static void errors(struct field *field)
{
	lock_t *none = NULL;
	CHECK_IS(lw_mutex_init(&field->lock), 0);
	CHECK_IS(field->lock.lw_state, 0);
	CHECK_IS(lw_mutex_init(none), EINVAL);
	CHECK_IS(lw_mutex_lock(none), EINVAL);
	CHECK_IS(lw_mutex_unlock(none), EINVAL);
	CHECK_IS(lw_mutex_unlock(&field->lock), EPERM);
	CHECK_IS(lw_mutex_lock(&field->lock), 0);
	CHECK(field->lock.lw_state != 0);
	CHECK_IS(lw_mutex_lock(&field->lock), EDEADLK);
	CHECK_IS(lw_mutex_trylock(&field->lock), EBUSY);
	CHECK_IS(lw_mutex_is_locked(&field->lock), 1);
	CHECK_IS(lw_mutex_destroy(&field->lock), EBUSY);
	join(start(use_as_another, field));
	CHECK_IS(lw_mutex_unlock(&field->lock), 0);
	/* A waiter may have left its mark. */
	CHECK_IS(lw_mutex_trylock(&field->lock), 0);
	CHECK_IS(lw_mutex_unlock(&field->lock), 0);
	CHECK_IS(lw_mutex_unlock(&field->lock), EPERM);
	CHECK_IS(field->lock.lw_state, 0);
	CHECK_IS(lw_mutex_destroy(&field->lock), 0);
}

static void deaths(struct field *field)
{
	struct timespec late = in_ms(CLOCK_MONOTONIC, 60000);
	pid_t child;
	leave_to_dead_owner(field);
	repair(&field->lock);
	leave_to_dead_owner(field);
	CHECK_IS(lw_mutex_trylock(&field->lock), EOWNERDEAD);
	/* Left to the next one, by any number of owners. */
	for (int round = 0; round < 3; round++) {
		CHECK_IS(lw_mutex_unlock_inconsistent(&field->lock), 0);
		CHECK_IS(lw_mutex_timedlock(&field->lock, &late), EOWNERDEAD);
		CHECK_IS(lw_mutex_lock(&field->lock), EDEADLK);
	}
	CHECK_IS(lw_mutex_unlock_inconsistent(&field->lock), 0);
	repair(&field->lock);
	/* Half changed by an owner that lives. */
	CHECK_IS(lw_mutex_lock(&field->lock), 0);
	CHECK_IS(lw_mutex_unlock_inconsistent(&field->lock), 0);
	repair(&field->lock);
	/* Asleep as the owner dies: in the first sleep, and in a later one. */
	for (int ms = 1; ms <= 50; ms *= 50) {
		child = fork_owner(field);
		if (fork() == 0) {
			sleep_ms(ms);
			_exit(kill(child, SIGKILL));
		}
		CHECK_IS(lw_mutex_timedlock(&field->lock, &late), EOWNERDEAD);
		CHECK_IS(lw_mutex_consistent(&field->lock), 0);
		CHECK_IS(lw_mutex_unlock(&field->lock), 0);
		while (wait(NULL) > 0)
			;
	}
}

static void gives_up(struct field *field)
{
	pid_t waiters[3];
	leave_to_dead_owner(field);
	CHECK_IS(lw_mutex_lock(&field->lock), EOWNERDEAD);
	for (int index = 0; index < 3; index++) {
		waiters[index] = fork();
		if (waiters[index] == 0)
			_exit(lw_mutex_lock(&field->lock) == ENOTRECOVERABLE ? 0 : 1);
	}
	sleep_ms(10);
	CHECK_IS(lw_mutex_unlock(&field->lock), 0);
	for (int index = 0; index < 3; index++)
		CHECK_IS(exit_of(waiters[index]), 0);
	CHECK_IS(lw_mutex_trylock(&field->lock), ENOTRECOVERABLE);
	CHECK_IS(lw_mutex_init(&field->lock), 0);
	CHECK_IS(lw_mutex_lock(&field->lock), 0);
	CHECK_IS(lw_mutex_unlock(&field->lock), 0);
}

static void *end_with_lock(void *argument)
{
	CHECK_IS(lw_mutex_lock(&((struct field *)argument)->lock), 0);
	return NULL;
}

static void *end_when_told(void *argument)
{
	struct field *field = (struct field *)argument;
	CHECK_IS(lw_mutex_lock(&field->lock), 0);
	field->state = 1;
	wait_for(field, 2);
	return NULL;
}

static pthread_key_t at_end;
static void unlock_at_end(void *argument)
{
	CHECK_IS(lw_mutex_unlock(&((struct field *)argument)->lock), 0);
}

static void *end_with_destructor(void *argument)
{
	CHECK_IS(pthread_setspecific(at_end, argument), 0);
	CHECK_IS(lw_mutex_lock(&((struct field *)argument)->lock), 0);
	return NULL;
}

static void ends(struct field *field)
{
	pthread_t thread;
	pid_t child;
	/* Nobody waits; then a thread of this process does, then another process. */
	for (int round = 0; round < 3; round++) {
		field->state = 0;
		thread = start(end_when_told, field);
		wait_for(field, 1);
		CHECK_IS(lw_mutex_trylock(&field->lock), EBUSY);
		child = round == 2 ? fork() : -1;
		if (child == 0) {
			field->state = 2;
			repair(&field->lock);
			_exit(0);
		}
		if (round != 2)
			field->state = 2;
		if (round == 0)
			join(thread);
		if (round != 2)
			repair(&field->lock);
		else
			CHECK_IS(exit_of(child), 0);
		if (round != 0)
			join(thread);
		CHECK_IS(lw_mutex_lock(&field->lock), 0);
		CHECK_IS(lw_mutex_unlock(&field->lock), 0);
	}
	/* Many more threads than the region has slots: none stays behind. */
	for (int round = 0; round < 40; round++) {
		join(start(end_with_lock, field));
		repair(&field->lock);
	}
	/* A destructor may still release it. */
	CHECK_IS(pthread_key_create(&at_end, unlock_at_end), 0);
	for (int round = 0; round < 40; round++) {
		join(start(end_with_destructor, field));
		CHECK_IS(lw_mutex_trylock(&field->lock), 0);
		CHECK_IS(lw_mutex_unlock(&field->lock), 0);
	}
	CHECK_IS(pthread_key_delete(at_end), 0);
}

static void forks(struct field *field)
{
	pid_t child;
	CHECK_IS(lw_mutex_lock(&field->lock), 0);
	child = fork();
	if (child == 0) {
		CHECK_IS(lw_mutex_unlock(&field->lock), EPERM);
		CHECK_IS(lw_mutex_unlock_inconsistent(&field->lock), EPERM);
		CHECK_IS(lw_mutex_trylock(&field->lock), EBUSY);
		CHECK_IS(lw_mutex_unlock(&field->lock), EPERM);
		CHECK_IS(lw_mutex_lock(&field->other), 0);
		CHECK_IS(lw_mutex_unlock(&field->other), 0);
		_exit(0);
	}
	CHECK_IS(exit_of(child), 0);
	CHECK_IS(lw_mutex_unlock(&field->lock), 0);
}

static void *occupy(void *argument)
{
	struct field *field = (struct field *)argument;
	CHECK_IS(lw_mutex_lock(&field->other), 0);
	CHECK_IS(lw_mutex_unlock(&field->other), 0);
	field->state = 1;
	wait_for(field, 2);
	return NULL;
}

static void *find_no_slot(void *lock)
{
	CHECK_IS(lw_mutex_lock((lock_t *)lock), EAGAIN);
	CHECK_IS(lw_mutex_trylock((lock_t *)lock), EAGAIN);
	CHECK_IS(lw_mutex_unlock((lock_t *)lock), EPERM);
	CHECK_IS(lw_mutex_is_locked((lock_t *)lock), 0);
	return NULL;
}

static void slots(void)
{
	lw_region_t *region = make_region(2);
	struct field *field = field_in(region);
	pthread_t thread = start(occupy, field);
	wait_for(field, 1);
	CHECK_IS(lw_mutex_lock(&field->lock), 0);
	CHECK_IS(lw_mutex_unlock(&field->lock), 0);
	join(start(find_no_slot, &field->lock));
	field->state = 2;
	join(thread);
	/* The slot is free again. */
	join(start(end_with_lock, field));
	repair(&field->lock);
	CHECK_IS(lw_region_detach(region), 0);
}

/* The thread's first region and others: each counts its locks. */
static void *in_several(void *argument)
{
	lw_region_t *regions[3];
	struct field *fields[3];
	for (int index = 0; index < 3; index++) {
		regions[index] = make_region(4);
		fields[index] = field_in(regions[index]);
		CHECK_IS(lw_mutex_lock(&fields[index]->lock), 0);
		CHECK_IS(lw_mutex_lock(&fields[index]->other), 0);
	}
	for (int index = 0; index < 3; index++) {
		CHECK_IS(lw_region_detach(regions[index]), EBUSY);
		CHECK(strstr(lw_error_text(), "holds 2 robust locks") != NULL);
		CHECK_IS(lw_mutex_unlock(&fields[index]->lock), 0);
		CHECK_IS(lw_region_detach(regions[index]), EBUSY);
		CHECK_IS(lw_mutex_lock(&fields[index]->lock), 0);
		CHECK_IS(lw_mutex_lock(&fields[index]->lock), EDEADLK);
		CHECK_IS(lw_mutex_unlock(&fields[index]->other), 0);
		CHECK_IS(lw_mutex_unlock(&fields[index]->lock), 0);
		CHECK_IS(lw_region_detach(regions[index]), 0);
	}
	return argument;
}

/* Of other robust mutexes, a thread can hold 1,920. */
#define MANY 20000
static void holds_many(lw_region_t *region)
{
	size_t bytes = MANY * sizeof(lock_t);
	void *object = NULL;
	lock_t *locks;
	pid_t child;
	CHECK_IS(lw_region_object(region, "many", lw_type("many"), bytes, NULL, NULL, &object), 0);
	locks = (lock_t *)object;
	child = fork();
	if (child == 0) {
		for (int index = 0; index < MANY; index++)
			CHECK_IS(lw_mutex_lock(&locks[index]), 0);
		raise(SIGKILL);
	}
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	for (int index = 0; index < MANY; index++)
		repair(&locks[index]);
	CHECK_IS(lw_region_remove(region, "many", lw_type("many"), bytes), 0);
}

static void ignore(int number)
{
	(void)number;
}

static void *be_interrupted(void *argument)
{
	struct field *field = (struct field *)argument;
	CHECK_IS(lw_mutex_lock_interruptible(&field->lock), EINTR);
	field->state = 1;
	return NULL;
}

static void interrupts(struct field *field)
{
	struct sigaction action;
	pthread_t thread;
	memset(&action, 0, sizeof action);
	action.sa_handler = ignore;
	CHECK_IS(sigaction(SIGUSR1, &action, NULL), 0);
	CHECK_IS(lw_mutex_lock_interruptible(&field->lock), 0);
	field->state = 0;
	thread = start(be_interrupted, field);
	while (field->state == 0) {
		sleep_ms(1);
		CHECK_IS(pthread_kill(thread, SIGUSR1), 0);
	}
	join(thread);
	CHECK_IS(lw_mutex_unlock(&field->lock), 0);
}

static void conditions(struct field *field)
{
	struct timespec soon = in_ms(CLOCK_MONOTONIC, 5);
	lw_cond_t here = LW_COND_INITIALIZER;
	pid_t child;
	int error;
	CHECK_IS(lw_cond_wait(&field->changed, &field->lock), EPERM);
	CHECK_IS(lw_mutex_lock(&field->lock), 0);
	CHECK_IS(lw_cond_timedwait(&here, &field->lock, &soon), ETIMEDOUT);
	do
		error = lw_cond_timedwait(&field->changed, &field->lock, &soon);
	while (error == 0);
	CHECK_IS(error, ETIMEDOUT);
	/* Turns of two processes. */
	field->state = 0;
	child = fork();
	if (child == 0)
		CHECK_IS(lw_mutex_lock(&field->lock), 0);
	for (int round = 0; round < 500; round++) {
		while (field->state % 2 != (child == 0))
			CHECK_IS(lw_cond_wait(&field->changed, &field->lock), 0);
		field->state++;
		CHECK_IS(lw_cond_signal(&field->changed), 0);
	}
	CHECK_IS(lw_mutex_unlock(&field->lock), 0);
	if (child == 0)
		_exit(0);
	CHECK_IS(exit_of(child), 0);
	CHECK_IS(field->state, 1000);
	/* An owner dies during the wait; the next one gives the lock up during another. */
	for (int gives_up = 0; gives_up < 2; gives_up++) {
		CHECK_IS(lw_mutex_lock(&field->lock), 0);
		child = fork();
		if (child == 0) {
			CHECK_IS(lw_mutex_lock(&field->lock), 0);
			if (gives_up) {
				CHECK_IS(lw_mutex_unlock_inconsistent(&field->lock), 0);
				CHECK_IS(lw_mutex_lock(&field->lock), EOWNERDEAD);
				CHECK_IS(lw_mutex_unlock(&field->lock), 0);
			}
			lw_cond_broadcast(&field->changed);
			raise(SIGKILL);
		}
		do
			error = lw_cond_wait(&field->changed, &field->lock);
		while (error == 0);
		/* It woke without a signal, just before the other one came back to give the lock up. */
		for (int round = 0; gives_up && error == EOWNERDEAD; round++) {
			CHECK(round < 10000);
			CHECK_IS(lw_mutex_unlock_inconsistent(&field->lock), 0);
			sleep_ms(1);
			error = lw_mutex_lock(&field->lock);
		}
		CHECK_IS(error, gives_up ? ENOTRECOVERABLE : EOWNERDEAD);
		CHECK_IS(exit_of(child), 1000 + SIGKILL);
		if (!gives_up) {
			CHECK_IS(lw_mutex_consistent(&field->lock), 0);
			CHECK_IS(lw_mutex_unlock(&field->lock), 0);
		}
	}
	CHECK_IS(lw_mutex_unlock(&field->lock), EPERM);
	CHECK_IS(lw_mutex_init(&field->lock), 0);
}

int main(void)
{
	lw_region_t *region;
	struct field *field;
	alarm(WATCHDOG);
	lies_outside(NULL);
	/* Fewer slots than the threads of this program, one after another. */
	region = make_region(8);
	field = field_in(region);
	errors(field);
	lies_outside(region);
	deaths(field);
	gives_up(field);
	ends(field);
	forks(field);
	slots();
	join(start(in_several, NULL));
	holds_many(region);
	interrupts(field);
	conditions(field);
	CHECK_IS(lw_region_detach(region), 0);
	puts("regional");
	return 0;
}

/*
 * What lw_migrate(3) says of reports: each sentence of its description, before the lines that show it. said_migrate.c has
 * those of the steps of a migration and of the rules. In C and in C++.
 */
#include "told.h"

static volatile pid_t locking;
static lw_barrier_t meeting = LW_BARRIER_INITIALIZER(2);
static DEFINE_MUTEX_DEBUG(left);
static DEFINE_MUTEX_DEBUG(right);

/* ---- the reports ---- */

static volatile int went_on;
__attribute__((noinline)) static void the_caller(void)
{
	static DEFINE_MUTEX_DEBUG(free_one);
	mutex_unlock(&free_one);
	/* Not the last call of this function, which might leave no frame. */
	went_on = 1;
}

static void a_stack(void)
{
	const char *stack = (the_caller(), strstr(reported, "stack:"));
	/* lw_migrate(3) says: It also shows the stack of the calling task */
	CHECK(went_on && stack && strstr(stack, "the_caller"));
	reported[0] = 0;
}

static void unlock_at_one_place(struct mutex_debug *it)
{
	mutex_unlock(it);
}

static void a_finding_is_reported_once(void)
{
	static DEFINE_MUTEX_DEBUG(free_one);
	unlock_at_one_place(&free_one);
	CHECK_TOLD("[no-double-unlock]");
	/* lw_migrate(3) says: A finding that occurs again at the same places is not reported again */
	unlock_at_one_place(&free_one);
	CHECK_SILENT();
	mutex_unlock(&free_one);
	CHECK_TOLD("[no-double-unlock]");
}

/* What an action writes to standard error. */
static void hear(void (*act)(void), char *text, size_t bytes)
{
	int ends[2], own = dup(2);
	ssize_t length;
	CHECK_IS(pipe(ends), 0);
	CHECK_IS(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
	CHECK_IS(dup2(ends[1], 2), 2);
	act();
	CHECK_IS(dup2(own, 2), 2);
	close(own);
	close(ends[1]);
	/* It is all in the pipe, which has room for more. */
	length = read(ends[0], text, bytes - 1);
	text[length > 0 ? length : 0] = 0;
	close(ends[0]);
}

static void unlock_free_ones(void)
{
	static DEFINE_MUTEX_DEBUG(written);
	static DEFINE_MUTEX_DEBUG(passed);
	mutex_unlock(&written);
	mutex_debug_on_violation(tell);
	mutex_unlock(&passed);
	mutex_debug_on_violation(NULL);
}

static void unlock_another_free_one(void)
{
	static DEFINE_MUTEX_DEBUG(later);
	mutex_unlock(&later);
}

/* In a process in which the checker has not begun, since it keeps the standard error of that time. */
static void two_ways_of_a_report(void)
{
	static char text[16384];
	pid_t child = fork();
	if (child != 0) {
		CHECK_IS(exit_of(child), 0);
		return;
	}
	/* lw_migrate(3) says: The checker writes a report of each finding to standard error, or passes the text of the report to */
	hear(unlock_free_ones, text, sizeof text);
	CHECK(strstr(text, "[no-double-unlock]") && strstr(text, "mutex written") && !strstr(text, "mutex passed"));
	CHECK(tells("[no-double-unlock]") && tells("mutex passed") && !tells("mutex written"));
	/* lw_migrate(3) says: The checker writes to the file that was standard error when the program first used a checked mutex */
	hear(unlock_another_free_one, text, sizeof text);
	CHECK_IS(text[0], 0);
	_exit(0);
}

static volatile int handler_is_over;

static void tell_slowly(const char *text)
{
	tell(text);
	/* A cancellation point. */
	sleep_ms(1);
	handler_is_over = 1;
}

static void *be_cancelled(void *has_returned)
{
	static DEFINE_MUTEX_DEBUG(free_one);
	pthread_cancel(pthread_self());
	mutex_unlock(&free_one);
	*(volatile int *)has_returned = 1;
	pthread_testcancel();
	return NULL;
}

static void a_cancelled_thread(void)
{
	int has_returned = 0;
	void *result;
	/* lw_migrate(3) says: Cancellation of the thread (pthread_cancel(3)) is disabled while the handler runs */
	mutex_debug_on_violation(tell_slowly);
	result = join(start(be_cancelled, &has_returned));
	CHECK_TOLD("[no-double-unlock]");
	CHECK(handler_is_over && has_returned);
	CHECK(result == PTHREAD_CANCELED);
	mutex_debug_on_violation(tell);
}

static void *hold(void *unused)
{
	locking = (pid_t)lw_task_id();
	mutex_lock(&left);
	lw_barrier_wait(&meeting);
	lw_barrier_wait(&meeting);
	mutex_unlock(&left);
	return unused;
}

static void what_is_held(void)
{
	static char text[4096];
	char by_other[80], by_main[80];
	pthread_t holder = start(hold, NULL);
	mutex_lock(&right);
	lw_barrier_wait(&meeting);
	/* lw_migrate(3) says: mutex_debug_show_held() writes to standard error which mutexes each task holds */
	hear(mutex_debug_show_held, text, sizeof text);
	snprintf(by_other, sizeof by_other, "(%d)", (int)locking);
	snprintf(by_main, sizeof by_main, "(%d)", (int)getpid());
	CHECK(strstr(text, "mutex left,") && strstr(strstr(text, "mutex left,"), by_other));
	CHECK(strstr(text, "mutex right,") && strstr(strstr(text, "mutex right,"), by_main));
	lw_barrier_wait(&meeting);
	join(holder);
	mutex_unlock(&right);
	hear(mutex_debug_show_held, text, sizeof text);
	CHECK(!strstr(text, "mutex left,") && !strstr(text, "mutex right,"));
	CHECK_SILENT();
}

int main(void)
{
	alarm(WATCHDOG);
	/* No report says that a wait is long: a machine may be slow. */
	setenv("LATCHWORK_CHECK", "long=0", 1);
	two_ways_of_a_report();
	mutex_debug_on_violation(tell);
	a_stack();
	a_finding_is_reported_once();
	a_cancelled_thread();
	what_is_held();
	puts("said");
	return 0;
}

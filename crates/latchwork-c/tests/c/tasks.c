/* Tasks of the classic interface: deletion of those that run, and priorities. Compiled as C and as C++. */
#include "classic.h"

#include "check.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define NAME rtems_build_name('T', 'A', 'S', 'K')

static rtems_id gate, queue, owned, mother;
static int handled, got;

static rtems_id make(rtems_task_priority priority, rtems_task_entry entry, rtems_task_argument argument)
{
	rtems_id id;
	CHECK_IS(rtems_task_create(NAME, priority, 0, RTEMS_DEFAULT_MODES, RTEMS_DEFAULT_ATTRIBUTES, &id),
		 RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_start(id, entry, argument), RTEMS_SUCCESSFUL);
	return id;
}

static void notify_creator(rtems_event_set events)
{
	CHECK_IS(rtems_event_send(mother, events), RTEMS_SUCCESSFUL);
}

static void hear(rtems_event_set events)
{
	CHECK_IS(rtems_event_receive(events, RTEMS_WAIT | RTEMS_EVENT_ALL, RTEMS_NO_TIMEOUT, &events),
		 RTEMS_SUCCESSFUL);
}

/* ---- deletion ---- */

/* Deletes a task that ends once it runs. On a busy machine it may not run for the 2 seconds of a call. */
static void end_task(rtems_id task)
{
	rtems_status_code first = rtems_task_delete(task), last = first;
	while (last == RTEMS_TIMEOUT)
		last = rtems_task_delete(task);
	CHECK(last == RTEMS_SUCCESSFUL || (first == RTEMS_TIMEOUT && last == RTEMS_INVALID_ID));
}

static void handle(void *argument)
{
	/* A handler may wait. */
	CHECK_IS(rtems_semaphore_obtain(*(rtems_id *)argument, RTEMS_WAIT, RTEMS_NO_TIMEOUT), RTEMS_SUCCESSFUL);
	handled++;
}

static rtems_task wait_in(rtems_task_argument where)
{
	rtems_id answer;
	rtems_event_set events;
	char buffer[8];
	size_t size;
	CHECK_IS(rtems_semaphore_create(NAME, 1, RTEMS_COUNTING_SEMAPHORE, 0, &answer), RTEMS_SUCCESSFUL);
	pthread_cleanup_push(handle, &answer);
	notify_creator(RTEMS_EVENT_0);
	switch (where) {
	case 0:
		rtems_semaphore_obtain(gate, RTEMS_WAIT, RTEMS_NO_TIMEOUT);
		break;
	case 1:
		rtems_semaphore_obtain(gate, RTEMS_WAIT, 1000000);
		break;
	case 2:
		rtems_event_receive(RTEMS_EVENT_7, RTEMS_WAIT, RTEMS_NO_TIMEOUT, &events);
		break;
	case 3:
		rtems_event_transient_receive(RTEMS_WAIT, RTEMS_NO_TIMEOUT);
		break;
	case 4:
		rtems_message_queue_receive(queue, buffer, &size, RTEMS_WAIT, RTEMS_NO_TIMEOUT);
		break;
	case 5:
		rtems_task_wake_after(1000000);
		break;
	case 6:
		pause();
		break;
	case 7:
		/* Never waits for long, and must end nevertheless. */
		for (;;)
			rtems_semaphore_obtain(gate, RTEMS_WAIT, 1);
	default:
		for (;;)
			rtems_task_wake_after(RTEMS_YIELD_PROCESSOR);
	}
	CHECK(0);
	pthread_cleanup_pop(0);
}

static void each_wait_ends(void)
{
	for (rtems_task_argument where = 0; where < 18; where++) {
		rtems_id task = make(40, wait_in, where % 9), answer;
		hear(RTEMS_EVENT_0);
		/* Before it waits, or in the midst of it. */
		if (where >= 9)
			sleep_ms(3);
		handled = 0;
		/* lw_classic(3) says: If the task waits in a directive or in a cancellation point of libc, the call ends the wait, and */
		end_task(task);
		/* lw_classic(3) says: The cleanup handlers of the task run before it ends */
		CHECK_IS(handled, 1);
		/* lw_classic(3) says: The call returns when the task has ended, or after 2 seconds (see below) */
		CHECK_IS(rtems_event_send(task, RTEMS_EVENT_0), RTEMS_INVALID_ID);
		CHECK_IS(rtems_task_delete(task), RTEMS_INVALID_ID);
		CHECK_IS(rtems_task_ident(NAME, RTEMS_SEARCH_ALL_NODES, &task), RTEMS_INVALID_NAME);
		CHECK_IS(rtems_semaphore_ident(NAME, RTEMS_SEARCH_ALL_NODES, &answer), RTEMS_SUCCESSFUL);
		CHECK_IS(rtems_semaphore_delete(answer), RTEMS_SUCCESSFUL);
	}
}

static rtems_task own(rtems_task_argument unused)
{
	(void)unused;
	CHECK_IS(rtems_semaphore_obtain(owned, RTEMS_WAIT, RTEMS_NO_TIMEOUT), RTEMS_SUCCESSFUL);
	notify_creator(RTEMS_EVENT_1);
	rtems_semaphore_obtain(gate, RTEMS_WAIT, RTEMS_NO_TIMEOUT);
	CHECK(0);
}

static rtems_task inherit_from_dead_owner(rtems_task_argument unused)
{
	(void)unused;
	notify_creator(RTEMS_EVENT_2);
	/* lw_classic(3) says: The semaphores that it owned go to their next owners, which get LW_RTEMS_OWNER_DIED */
	/* lw_classic(3) says: If rtems_semaphore_obtain() returns LW_RTEMS_OWNER_DIED, the caller has obtained the semaphore, and */
	CHECK_IS(rtems_semaphore_obtain(owned, RTEMS_WAIT, RTEMS_NO_TIMEOUT), LW_RTEMS_OWNER_DIED);
	CHECK_IS(rtems_semaphore_release(owned), RTEMS_SUCCESSFUL);
	notify_creator(RTEMS_EVENT_3);
}

/* What it owned goes to its waiters, and to later callers. */
static void owned_objects_are_handed_on(void)
{
	rtems_id task = make(40, own, 0);
	hear(RTEMS_EVENT_1);
	make(41, inherit_from_dead_owner, 0);
	hear(RTEMS_EVENT_2);
	sleep_ms(2);
	end_task(task);
	hear(RTEMS_EVENT_3);
	task = make(40, own, 0);
	hear(RTEMS_EVENT_1);
	end_task(task);
	CHECK_IS(rtems_semaphore_obtain(owned, RTEMS_WAIT, RTEMS_NO_TIMEOUT), LW_RTEMS_OWNER_DIED);
	CHECK_IS(rtems_semaphore_release(owned), RTEMS_SUCCESSFUL);
}

static rtems_task take(rtems_task_argument which)
{
	if (rtems_semaphore_obtain(gate, RTEMS_WAIT, RTEMS_NO_TIMEOUT) == RTEMS_SUCCESSFUL)
		__atomic_fetch_or(&got, 1 << which, __ATOMIC_RELAXED);
	if (which == 1)
		notify_creator(RTEMS_EVENT_4);
}

/* One token, and one of two waiters deleted at the same moment: the other one gets it, or the deleted one has. */
static void no_token_is_lost(void)
{
	for (int round = 0; round < 100; round++) {
		rtems_id task = make(40, take, 0);
		rtems_status_code status;
		make(41, take, 1);
		got = 0;
		if (round % 3 == 0)
			sleep_ms(1);
		CHECK_IS(rtems_semaphore_release(gate), RTEMS_SUCCESSFUL);
		status = rtems_task_delete(task);
		/* It may have ended by itself. */
		CHECK(status == RTEMS_SUCCESSFUL || status == RTEMS_INVALID_ID);
		if (__atomic_load_n(&got, __ATOMIC_RELAXED) & 1)
			CHECK_IS(rtems_semaphore_release(gate), RTEMS_SUCCESSFUL);
		hear(RTEMS_EVENT_4);
		CHECK_IS(rtems_semaphore_obtain(gate, RTEMS_NO_WAIT, 0), RTEMS_UNSATISFIED);
	}
}

static rtems_task do_not_disturb(rtems_task_argument unused)
{
	(void)unused;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	notify_creator(RTEMS_EVENT_5);
	CHECK_IS(rtems_semaphore_obtain(gate, RTEMS_WAIT, RTEMS_NO_TIMEOUT), RTEMS_SUCCESSFUL);
	got = 1;
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	rtems_semaphore_obtain(gate, RTEMS_WAIT, RTEMS_NO_TIMEOUT);
	CHECK(0);
}

static void a_task_that_disabled_cancellation_is_notified(void)
{
	rtems_id task = make(40, do_not_disturb, 0);
	rtems_status_code status;
	struct timespec now, then;
	got = 0;
	hear(RTEMS_EVENT_5);
	then = in_ms(CLOCK_MONOTONIC, 2000);
	/* lw_classic(3) says: A call of rtems_task_delete() for another task requests the end of that task, like pthread_cancel(3) */
	/* lw_classic(3) says: rtems_task_delete() fails with RTEMS_TIMEOUT if the task has not ended after 2 seconds, because it */
	CHECK_IS(rtems_task_delete(task), RTEMS_TIMEOUT);
	now = in_ms(CLOCK_MONOTONIC, 0);
	CHECK(now.tv_sec > then.tv_sec || (now.tv_sec == then.tv_sec && now.tv_nsec >= then.tv_nsec));
	CHECK_IS(got, 0);
	CHECK_IS(rtems_semaphore_release(gate), RTEMS_SUCCESSFUL);
	/* The request was not forgotten: it may have ended by now. */
	status = rtems_task_delete(task);
	CHECK(status == RTEMS_SUCCESSFUL || status == RTEMS_INVALID_ID);
	CHECK_IS(got, 1);
}

#ifdef __cplusplus
extern "C"
#endif
	/* What C++ has the destructors of a thread's variables called by: the last one first. */
	int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *of_module);

static void end_slowly(void *unused)
{
	(void)unused;
	__atomic_store_n(&got, 2, __ATOMIC_RELAXED);
	sleep_ms(20);
	__atomic_store_n(&got, 3, __ATOMIC_RELAXED);
}

static rtems_task end_by_itself(rtems_task_argument unused)
{
	(void)unused;
	/* glibc takes no null pointer for the module in a thread's first call. */
	CHECK_IS(__cxa_thread_atexit_impl(end_slowly, NULL, (void *)&gate), 0);
}

/* Its handlers have run, and not yet its destructors: when the call returns, the id is free. */
static void an_ending_task_is_waited_for(void)
{
	rtems_id task, other;
	__atomic_store_n(&got, 0, __ATOMIC_RELAXED);
	task = make(40, end_by_itself, 0);
	while (__atomic_load_n(&got, __ATOMIC_RELAXED) != 2)
		sleep_ms(1);
	CHECK_IS(rtems_task_ident(NAME, RTEMS_SEARCH_ALL_NODES, &other), RTEMS_INVALID_NAME);
	CHECK_IS(rtems_task_start(task, end_by_itself, 0), RTEMS_INVALID_ID);
	CHECK_IS(rtems_task_delete(task), RTEMS_INVALID_ID);
	CHECK_IS(__atomic_load_n(&got, __ATOMIC_RELAXED), 3);
	CHECK_IS(rtems_event_send(task, RTEMS_EVENT_0), RTEMS_INVALID_ID);
}

static void *create_at_the_end(void *created)
{
	rtems_id id;
	pthread_cancel(pthread_self());
	*(rtems_status_code *)created =
		rtems_task_create(rtems_build_name('L', 'A', 'S', 'T'), 3, 0, RTEMS_DEFAULT_MODES, RTEMS_DEFAULT_ATTRIBUTES, &id);
	pthread_testcancel();
	return NULL;
}

/* Otherwise it would wait to be started, unknown to any task. */
static void a_task_deleted_while_it_creates_one_leaves_a_known_task(void)
{
	rtems_status_code created = RTEMS_INTERNAL_ERROR;
	rtems_id id;
	CHECK(join(start(create_at_the_end, &created)) == PTHREAD_CANCELED);
	CHECK_IS(created, RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_ident(rtems_build_name('L', 'A', 'S', 'T'), RTEMS_SEARCH_ALL_NODES, &id), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_delete(id), RTEMS_SUCCESSFUL);
}

static void a_child_of_a_fork_leaves_its_parents_alone(void)
{
	rtems_id task = make(40, wait_in, 2), unstarted, answer;
	pid_t child;
	int status;
	hear(RTEMS_EVENT_0);
	CHECK_IS(rtems_task_create(rtems_build_name('I', 'D', 'L', 'E'), 40, 0, RTEMS_DEFAULT_MODES,
				   RTEMS_DEFAULT_ATTRIBUTES, &unstarted),
		 RTEMS_SUCCESSFUL);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		/* lw_classic(3) says: for tasks of other processes, the call fails with RTEMS_NOT_IMPLEMENTED */
		CHECK_IS(rtems_task_delete(task), RTEMS_NOT_IMPLEMENTED);
		/* lw_classic(3) says: A task is started by the process that has created it */
		/* lw_classic(3) says: for tasks of other processes, rtems_task_start() fails with RTEMS_INCORRECT_STATE */
		CHECK_IS(rtems_task_start(task, wait_in, 2), RTEMS_INCORRECT_STATE);
		CHECK_IS(rtems_task_start(unstarted, wait_in, 2), RTEMS_INCORRECT_STATE);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK_IS(status, 0);
	end_task(task);
	CHECK_IS(rtems_task_delete(unstarted), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_ident(NAME, RTEMS_SEARCH_ALL_NODES, &answer), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_delete(answer), RTEMS_SUCCESSFUL);
}

/* ---- priorities ---- */

static int threads[3];
static int served[3], count;

static rtems_task wait_in_order(rtems_task_argument which)
{
	char buffer[8];
	size_t size;
	threads[which % 3] = (int)syscall(SYS_gettid);
	notify_creator(RTEMS_EVENT_0 << which % 3);
	if (which < 3)
		CHECK_IS(rtems_semaphore_obtain(gate, RTEMS_WAIT, RTEMS_NO_TIMEOUT), RTEMS_SUCCESSFUL);
	else
		CHECK_IS(rtems_message_queue_receive(queue, buffer, &size, RTEMS_WAIT, RTEMS_NO_TIMEOUT),
			 RTEMS_SUCCESSFUL);
	served[count++] = (int)which % 3;
	notify_creator(RTEMS_EVENT_8);
}

static void until_it_sleeps(int thread)
{
	for (;;) {
		char path[64], text[32] = "";
		FILE *file;
		snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
		file = fopen(path, "r");
		CHECK(file != NULL);
		CHECK(fgets(text, sizeof text, file) != NULL);
		fclose(file);
		/* futex_waitv(), on all architectures. */
		if (atoi(text) == 449)
			return;
		sleep_ms(1);
	}
}

/* A waiting task's place in a queue by priority follows its priority. */
static void a_waiting_task_is_moved(rtems_task_argument where)
{
	rtems_id tasks[3];
	rtems_task_priority old;
	count = 0;
	for (rtems_task_argument which = 0; which < 3; which++) {
		tasks[which] = make(50 + (rtems_task_priority)which, wait_in_order, where + which);
		hear(RTEMS_EVENT_0 << which);
		until_it_sleeps(threads[which]);
	}
	CHECK_IS(rtems_task_set_priority(tasks[2], 30, &old), RTEMS_SUCCESSFUL);
	CHECK_IS(old, 52);
	CHECK_IS(rtems_task_set_priority(tasks[0], 80, &old), RTEMS_SUCCESSFUL);
	for (int round = 0; round < 3; round++) {
		if (where == 0)
			CHECK_IS(rtems_semaphore_release(gate), RTEMS_SUCCESSFUL);
		else
			CHECK_IS(rtems_message_queue_send(queue, "x", 1), RTEMS_SUCCESSFUL);
		hear(RTEMS_EVENT_8);
	}
	CHECK(served[0] == 2 && served[1] == 1 && served[2] == 0);
}

static int real_time_of(int thread)
{
	struct sched_param parameter;
	CHECK_IS(syscall(SYS_sched_getparam, thread, &parameter), 0);
	CHECK_IS(syscall(SYS_sched_getscheduler, thread) == SCHED_FIFO, parameter.sched_priority != 0);
	return parameter.sched_priority;
}

static rtems_task hold(rtems_task_argument which)
{
	threads[which] = (int)syscall(SYS_gettid);
	notify_creator(RTEMS_EVENT_0);
	CHECK_IS(rtems_semaphore_obtain(owned, RTEMS_WAIT, RTEMS_NO_TIMEOUT), RTEMS_SUCCESSFUL);
	notify_creator(RTEMS_EVENT_1);
	CHECK_IS(rtems_semaphore_obtain(gate, RTEMS_WAIT, RTEMS_NO_TIMEOUT), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_release(owned), RTEMS_SUCCESSFUL);
	notify_creator(RTEMS_EVENT_2);
	CHECK_IS(rtems_semaphore_obtain(gate, RTEMS_WAIT, RTEMS_NO_TIMEOUT), RTEMS_SUCCESSFUL);
}

static void priorities_reach_the_kernel(void)
{
	/* RTEMS priorities, and SCHED_FIFO priorities; 0 is that of an ordinary thread. */
	const int passed[][2] = {{1, 99}, {98, 2}, {99, 1}, {200, 1}, {254, 1}, {255, 0}};
	static struct sched_param one, none;
	rtems_task_priority old;
	rtems_id low, high;
	one.sched_priority = 1;
	if (sched_setscheduler(0, SCHED_FIFO, &one) != 0) {
		fprintf(stderr, "skipped: what the kernel is told, without the right to a real-time priority\n");
		return;
	}
	CHECK_IS(sched_setscheduler(0, SCHED_OTHER, &none), 0);
	low = make(90, hold, 0);
	hear(RTEMS_EVENT_0 | RTEMS_EVENT_1);
	until_it_sleeps(threads[0]);
	CHECK_IS(real_time_of(threads[0]), 10);
	CHECK_IS(rtems_task_set_priority(low, 85, &old), RTEMS_SUCCESSFUL);
	CHECK_IS(real_time_of(threads[0]), 15);
	/* A waiter for a lock that it owns lends it the waiter's priority. */
	high = make(20, hold, 1);
	hear(RTEMS_EVENT_0);
	until_it_sleeps(threads[1]);
	CHECK_IS(real_time_of(threads[1]), 80);
	CHECK_IS(real_time_of(threads[0]), 80);
	CHECK_IS(rtems_task_set_priority(high, 40, &old), RTEMS_SUCCESSFUL);
	CHECK_IS(real_time_of(threads[0]), 60);
	CHECK_IS(rtems_semaphore_release(gate), RTEMS_SUCCESSFUL);
	hear(RTEMS_EVENT_1 | RTEMS_EVENT_2);
	until_it_sleeps(threads[0]);
	CHECK_IS(real_time_of(threads[0]), 15);
	/* lw_classic(3) says: RTEMS priority p from 1 to 98 becomes the SCHED_FIFO priority 100 - p */
	/* lw_classic(3) says: RTEMS priorities from 99 to 254 become the SCHED_FIFO priority 1 */
	/* lw_classic(3) says: A task of RTEMS priority 255 is an ordinary thread */
	for (int i = 0; i < 6; i++) {
		CHECK_IS(rtems_task_set_priority(low, (rtems_task_priority)passed[i][0], &old), RTEMS_SUCCESSFUL);
		CHECK_IS(real_time_of(threads[0]), passed[i][1]);
	}
	end_task(low);
	end_task(high);
}

static void create_objects(void)
{
	const rtems_attribute inherit = RTEMS_BINARY_SEMAPHORE | RTEMS_PRIORITY | RTEMS_INHERIT_PRIORITY;
	mother = rtems_task_self();
	CHECK_IS(rtems_semaphore_create(rtems_build_name('G', 'A', 'T', 'E'), 0, RTEMS_PRIORITY, 0, &gate),
		 RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_create(rtems_build_name('O', 'W', 'N', 'D'), 1, inherit, 0, &owned),
		 RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_message_queue_create(NAME, 4, 8, RTEMS_PRIORITY, &queue), RTEMS_SUCCESSFUL);
}

/* Without the right to real-time priorities: that is reported once, and the queues are ordered by them nevertheless. */
static void without_the_right(int is_alone)
{
	const struct rlimit none = {0, 0};
	char said[4096] = "", *first;
	size_t length = 0;
	ssize_t more;
	int status, ends[2];
	pid_t child;
	CHECK_IS(pipe(ends), 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		static struct sched_param parameter;
		parameter.sched_priority = 1;
		CHECK(dup2(ends[1], 2) == 2);
		CHECK_IS(setrlimit(RLIMIT_RTPRIO, &none), 0);
		if (geteuid() == 0)
			CHECK_IS(setuid(65534), 0);
		/* So that /proc may be read. */
		CHECK_IS(prctl(PR_SET_DUMPABLE, 1), 0);
		CHECK(sched_setscheduler(0, SCHED_FIFO, &parameter) != 0);
		if (is_alone) {
			rtems_task_priority old;
			CHECK_IS(rtems_task_set_priority(RTEMS_SELF, 50, &old), RTEMS_SUCCESSFUL);
			_exit(0);
		}
		create_objects();
		a_waiting_task_is_moved(0);
		a_waiting_task_is_moved(3);
		_exit(0);
	}
	close(ends[1]);
	while (length < sizeof said - 1 && (more = read(ends[0], said + length, sizeof said - 1 - length)) > 0)
		length += (size_t)more;
	close(ends[0]);
	CHECK(waitpid(child, &status, 0) == child);
	if (status != 0)
		fprintf(stderr, "%s", said);
	CHECK_IS(status, 0);
	/* lw_classic(3) says: To pass priorities on, the process needs CAP_SYS_NICE or a sufficient RLIMIT_RTPRIO */
	/* lw_classic(3) says: If the process does not have this right, the library writes one line about this to standard error when a task */
	first = strstr(said, "the kernel does not schedule by them");
	CHECK(first != NULL && strstr(first + 1, "the kernel does not schedule by them") == NULL);
}

int main(void)
{
	without_the_right(0);
	without_the_right(1);
	create_objects();
	each_wait_ends();
	owned_objects_are_handed_on();
	no_token_is_lost();
	a_task_that_disabled_cancellation_is_notified();
	an_ending_task_is_waited_for();
	a_task_deleted_while_it_creates_one_leaves_a_known_task();
	a_child_of_a_fork_leaves_its_parents_alone();
	a_waiting_task_is_moved(0);
	a_waiting_task_is_moved(3);
	priorities_reach_the_kernel();
	puts("ended");
	return 0;
}

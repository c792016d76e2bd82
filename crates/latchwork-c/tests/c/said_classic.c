/*
 * What lw_classic(3) says of the directives: each sentence of its description, before the lines that show it; others are
 * in classic.c, directives.c, events.c, queues.c, schedulers.c and tasks.c. A process can be configured once, so each part
 * is a process of its own. In C and in C++. The test in manual.rs compares these sentences with the page.
 */
#include "classic_waiters.h"

#include <errno.h>
#include <latchwork/region.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static struct lw_classic_options options;
static struct lw_classic_scheduler schedulers[33];
static rtems_id queue;

static void make_queue(uint32_t count, size_t size)
{
	CHECK_IS(rtems_message_queue_create(NAME, count, size, RTEMS_FIFO, &queue), OK);
}

/* ---- tasks, and what is so without a configuration ---- */

static void *be_a_task(void *mother)
{
	rtems_task_priority priority = 0;
	rtems_id scheduler;
	/* lw_classic(3) says: A task is a thread that has used a directive */
	/* lw_classic(3) says: Its priority is then 255, the lowest */
	CHECK_IS(priority_of(RTEMS_SELF), 255);
	CHECK(rtems_task_self() != 0 && rtems_task_self() != *(rtems_id *)mother);
	CHECK_IS(rtems_scheduler_ident(LW_CLASSIC_SCHEDULER_NAME, &scheduler), OK);
	CHECK_IS(rtems_scheduler_get_maximum_priority(scheduler, &priority), OK);
	CHECK_IS(priority, 255);
	return NULL;
}

static void *be_a_real_time_task(void *policy)
{
	struct sched_param parameter;
	parameter.sched_priority = 10;
	if (pthread_setschedparam(pthread_self(), *(int *)policy, &parameter) != 0) {
		fprintf(stderr, "skipped: a real-time thread cannot be made here\n");
		return NULL;
	}
	/* lw_classic(3) says: If the thread has the SCHED_FIFO or SCHED_RR priority n, the task's priority is 100 - n instead */
	CHECK_IS(priority_of(RTEMS_SELF), 90);
	return NULL;
}

static rtems_task tell_policy(rtems_task_argument place)
{
	*(volatile int *)place = 1 + sched_getscheduler(0);
}

static int policy_with(rtems_mode modes)
{
	volatile int policy = 0;
	rtems_id task;
	CHECK_IS(rtems_task_create(NAME, 50, 0, modes, 0, &task), OK);
	CHECK_IS(rtems_task_start(task, tell_policy, (rtems_task_argument)&policy), OK);
	while (policy == 0)
		sleep_ms(1);
	return policy;
}

static void by_default(void)
{
	int policies[2] = {SCHED_FIFO, SCHED_RR};
	rtems_id mother = rtems_task_self(), scheduler, id;
	struct waiter waiter;
	char buffer[2] = "";
	cpu_set_t all;
	size_t size;
	join(start(be_a_task, &mother));
	join(start(be_a_real_time_task, &policies[0]));
	join(start(be_a_real_time_task, &policies[1]));
	/* lw_classic(3) says: Task modes have no effect */
	CHECK_IS(policy_with(RTEMS_NO_PREEMPT | RTEMS_TIMESLICE), policy_with(RTEMS_DEFAULT_MODES));
	/* lw_classic(3) says: NULL and 0 mean a single scheduler of all processors, with the name LW_CLASSIC_SCHEDULER_NAME */
	CHECK_IS(rtems_scheduler_ident(LW_CLASSIC_SCHEDULER_NAME, &scheduler), OK);
	CHECK_IS(rtems_scheduler_get_processor_set(scheduler, sizeof all, &all), OK);
	CHECK_IS(CPU_COUNT(&all), rtems_scheduler_get_processor_maximum());
	/* lw_classic(3) says: As a timeout, 0 (RTEMS_NO_TIMEOUT) means a wait without limit */
	make_semaphore(0, RTEMS_FIFO);
	start_waiter(&waiter, 0, 255, 0, 0);
	CHECK_IS(rtems_semaphore_obtain(gate, RTEMS_WAIT, 3), RTEMS_TIMEOUT);
	CHECK_IS(waiter.status, -1);
	CHECK_IS(rtems_semaphore_release(gate), OK);
	join(waiter.thread);
	CHECK_IS(waiter.status, OK);
	/* lw_classic(3) says: lw_message_queue_receive() receives a message like rtems_message_queue_receive() */
	make_queue(2, 1);
	CHECK_IS(rtems_message_queue_send(queue, "a", 1), OK);
	CHECK_IS(rtems_message_queue_send(queue, "b", 1), OK);
	CHECK_IS(rtems_message_queue_receive(queue, buffer, &size, RTEMS_WAIT, 0), OK);
	CHECK(size == 1 && buffer[0] == 'a');
	CHECK_IS(lw_message_queue_receive(queue, buffer, 1, &size, RTEMS_WAIT, 0), OK);
	CHECK(size == 1 && buffer[0] == 'b');
	/* lw_classic(3) says: The maximum numbers of semaphores and of message queues that exist at a time; 0 means 64 */
	for (int made = 1; made <= 64; made++) {
		CHECK_IS(rtems_semaphore_create(NAME, 0, 0, 0, &id), made == 64 ? RTEMS_TOO_MANY : OK);
		CHECK_IS(rtems_message_queue_create(NAME, 1, 1, 0, &id), made == 64 ? RTEMS_TOO_MANY : OK);
	}
}

static void *end_before(void *unused)
{
	pthread_cancel(pthread_self());
	rtems_semaphore_obtain(gate, RTEMS_NO_WAIT, 0);
	return unused;
}

static void *wake_late(void *unused)
{
	rtems_task_wake_after(UINT32_MAX);
	return unused;
}

static void cancellation(void)
{
	struct waiter waiter;
	pthread_t thread;
	/* lw_classic(3) says: A directive that may wait is a cancellation point when it is called, and when it returns without */
	make_semaphore(1, RTEMS_FIFO);
	CHECK(join(start(end_before, NULL)) == PTHREAD_CANCELED);
	CHECK_IS(rtems_semaphore_obtain(gate, RTEMS_NO_WAIT, 0), OK);
	start_waiter(&waiter, 0, 255, 0, 0);
	pthread_cancel(waiter.thread);
	CHECK_IS(rtems_semaphore_flush(gate), OK);
	CHECK(join(waiter.thread) == PTHREAD_CANCELED);
	CHECK_IS(waiter.status, -1);
	/* lw_classic(3) says: pthread_cancel(3) ends a wait that has begun in rtems_task_wake_after() or rtems_task_delete() */
	/* lw_classic(3) says: It does not end a wait in another directive; rtems_task_delete() does */
	start_waiter(&waiter, 0, 255, 0, 0);
	pthread_cancel(waiter.thread);
	CHECK_IS(rtems_semaphore_obtain(gate, RTEMS_WAIT, 3), RTEMS_TIMEOUT);
	CHECK_IS(rtems_semaphore_release(gate), OK);
	CHECK(join(waiter.thread) == NULL);
	CHECK_IS(waiter.status, OK);
	thread = start(wake_late, NULL);
	pthread_cancel(thread);
	CHECK(join(thread) == PTHREAD_CANCELED);
}

/* ---- configurations ---- */

static char name[40];
static struct told {
	rtems_id semaphore, queue;
	volatile int made, done;
} *told;

/* Makes objects. Neither process has the region from a fork. */
static void make_objects(void)
{
	char letter = 0;
	size_t size;
	if (options.flags != 0)
		CHECK_IS(lw_classic_configure(&options), 0);
	make_semaphore(0, RTEMS_FIFO);
	make_queue(1, 1);
	told->semaphore = gate;
	told->queue = queue;
	told->made = 1;
	if (options.region != NULL) {
		CHECK_IS(rtems_semaphore_obtain(gate, RTEMS_WAIT, RTEMS_NO_TIMEOUT), OK);
		CHECK_IS(rtems_message_queue_receive(queue, &letter, &size, RTEMS_WAIT, RTEMS_NO_TIMEOUT), OK);
		CHECK_IS(letter, 'x');
	}
	while (!told->done)
		sleep_ms(1);
}

static void find_objects(void)
{
	lw_region_t *region;
	size_t memory = options.memory;
	rtems_id id;
	while (!told->made)
		sleep_ms(1);
	options.memory = 32 << 20;
	if (options.flags != 0)
		CHECK_IS(lw_classic_configure(&options), 0);
	if (options.region == NULL) {
		/* lw_classic(3) says: By default, the process has a region of its own */
		/* lw_classic(3) says: The name of the region, or NULL for the process's own region */
		CHECK_IS(rtems_semaphore_ident(NAME, RTEMS_SEARCH_ALL_NODES, &id), RTEMS_INVALID_NAME);
		CHECK_IS(rtems_semaphore_release(told->semaphore), RTEMS_INVALID_ID);
	} else {
		/* lw_classic(3) says: A call of lw_classic_configure() before the first directive can choose a named region, which */
		/* lw_classic(3) says: An ID then denotes the same object in all these processes */
		/* lw_classic(3) says: All semaphores, message queues and messages lie in a region (lw_region(3)) */
		CHECK_IS(rtems_semaphore_ident(NAME, RTEMS_SEARCH_ALL_NODES, &id), OK);
		CHECK_IS(id, told->semaphore);
		CHECK_IS(rtems_message_queue_send(told->queue, "x", 1), OK);
		CHECK_IS(rtems_semaphore_release(told->semaphore), OK);
		/* lw_classic(3) says: The size in bytes of the region that is made; 0 means 16 MiB */
		CHECK_IS(lw_region_attach(&region, name, NULL), 0);
		CHECK_IS(lw_region_max_bytes(region), memory == 0 ? 16 << 20 : 4 << 20);
		/* lw_classic(3) says: A named region that exists keeps its size */
		CHECK(lw_region_max_bytes(region) != options.memory);
	}
	told->done = 1;
}

static void unrelated(int is_configured, const char *region, size_t memory)
{
	pid_t maker;
	told = (struct told *)share(sizeof *told);
	memset(&options, 0, sizeof options);
	options.flags = is_configured ? LW_CLASSIC_UNSCHEDULED : 0;
	options.region = region;
	options.memory = memory;
	if ((maker = fork()) == 0) {
		alarm(WATCHDOG);
		make_objects();
		_exit(0);
	}
	in_process(find_objects);
	CHECK_IS(exit_of(maker), 0);
	if (region != NULL)
		CHECK_IS(lw_region_unlink(region), 0);
	memset(&options, 0, sizeof options);
}

/* A scheduler with this processor; -1: with none. */
static void add_scheduler(int processor)
{
	static cpu_set_t all[33];
	struct lw_classic_scheduler *next = &schedulers[options.scheduler_count];
	cpu_set_t *set = &all[options.scheduler_count++];
	CPU_ZERO(set);
	if (processor >= 0)
		CPU_SET(processor, set);
	next->name = (rtems_name)options.scheduler_count;
	next->cpusetsize = sizeof *set;
	next->cpuset = set;
	options.schedulers = schedulers;
}

static void limits(void)
{
	rtems_id id;
	/* lw_classic(3) says: A processor belongs to one scheduler at most */
	add_scheduler(0);
	add_scheduler(0);
	CHECK_IS(lw_classic_configure(&options), EINVAL);
	/* lw_classic(3) says: An array of at most 32 schedulers, and the number of its elements */
	/* lw_classic(3) says: Each has a name, which is not 0, and a set of processors */
	/* lw_classic(3) says: The set, cpuset, is a cpu_set_t of cpusetsize bytes, which is a multiple of the size of a long */
	/* lw_classic(3) says: It has no processor above 1,023 */
	options.scheduler_count = 1;
	while (options.scheduler_count < 33)
		add_scheduler(-1);
	CHECK_IS(lw_classic_configure(&options), EINVAL);
	options.scheduler_count = 32;
	/* lw_classic(3) says: The length of a clock tick in microseconds; 0 means 10,000 */
	options.microseconds_per_tick = 2500;
	CHECK_IS(lw_classic_configure(&options), 0);
	CHECK_IS(rtems_clock_get_ticks_per_second(), 400);
	CHECK_IS(lw_classic_ticks(5), 2);
	CHECK_IS(rtems_scheduler_ident(32, &id), OK);
	CHECK_IS(rtems_scheduler_ident(33, &id), RTEMS_INVALID_NAME);
}

/* ---- priorities ---- */

/* The caller owns what it inherits from; what the kernel knows of that. */
static void inherit(int is_told)
{
	struct waiter waiter;
	make_semaphore(0, INHERIT);
	start_waiter(&waiter, 0, 30, 0, 1);
	CHECK_IS(priority_of(RTEMS_SELF), 30);
	CHECK_IS(real_time_of(0), 0);
	CHECK_IS(real_time_of(waiter.number), is_told ? 70 : 0);
	CHECK_IS(rtems_semaphore_release(gate), OK);
	join(waiter.thread);
	CHECK_IS(priority_of(RTEMS_SELF), 255);
	CHECK_IS(rtems_semaphore_delete(gate), OK);
	set_priority(RTEMS_SELF, 90);
	CHECK_IS(real_time_of(0), is_told ? 10 : 0);
	set_priority(RTEMS_SELF, 255);
}

static void without_a_flag(void)
{
	struct sched_param parameter;
	parameter.sched_priority = 1;
	if (sched_setscheduler(0, SCHED_FIFO, &parameter) != 0) {
		fprintf(stderr, "skipped: priorities in the kernel: the right to a real-time priority is missing\n");
		return;
	}
	parameter.sched_priority = 0;
	CHECK_IS(sched_setscheduler(0, SCHED_OTHER, &parameter), 0);
	/* lw_classic(3) says: Priorities are passed on to the kernel only for tasks that rtems_task_create() makes, and for */
	inherit(1);
	CHECK_IS(policy_with(RTEMS_DEFAULT_MODES), 1 + SCHED_FIFO);
}

static void with_the_flag(void)
{
	/* lw_classic(3) says: 0, or LW_CLASSIC_UNSCHEDULED: priorities are not passed on to the kernel */
	options.flags = LW_CLASSIC_UNSCHEDULED;
	CHECK_IS(lw_classic_configure(&options), 0);
	inherit(0);
	CHECK_IS(policy_with(RTEMS_DEFAULT_MODES), 1 + SCHED_OTHER);
	/* lw_classic(3) says: The library itself serves waiting tasks by priority, and lets owners inherit priorities, where the */
	CHECK_IS(order(RTEMS_PRIORITY, 0, 0), 231);
	CHECK_IS(order(RTEMS_FIFO, 0, 0), 123);
	CHECK_IS(order(INHERIT, 0, 0), 231);
}

static void without_the_right(void)
{
	const struct rlimit none = {0, 0};
	CHECK_IS(setrlimit(RLIMIT_RTPRIO, &none), 0);
	if (geteuid() == 0)
		CHECK_IS(setuid(65534), 0);
	/* So that /proc may be read. */
	CHECK_IS(prctl(PR_SET_DUMPABLE, 1), 0);
	/* lw_classic(3) says: Waiting tasks are then still served by priority, and owners still inherit priorities, but the */
	inherit(0);
	CHECK_IS(order(RTEMS_PRIORITY, 0, 0), 231);
}

/* ---- deletion ---- */

static volatile pid_t receiver;
static volatile int stands, may_go, received;

/* No point at which the task could end. */
static void stand_still(int signal)
{
	(void)signal;
	stands = 1;
	while (!may_go)
		sched_yield();
}

static rtems_task receive_twice(rtems_task_argument unused)
{
	char letter;
	size_t size;
	(void)unused;
	receiver = (pid_t)syscall(SYS_gettid);
	CHECK_IS(rtems_message_queue_receive(queue, &letter, &size, RTEMS_WAIT, RTEMS_NO_TIMEOUT), OK);
	received = letter;
	rtems_message_queue_receive(queue, &letter, &size, RTEMS_WAIT, RTEMS_NO_TIMEOUT);
	CHECK(0);
}

static void deletion(void)
{
	rtems_id task;
	signal(SIGUSR1, stand_still);
	make_queue(1, 1);
	CHECK_IS(rtems_task_create(NAME, 255, 0, 0, 0, &task), OK);
	CHECK_IS(rtems_task_start(task, receive_twice, 0), OK);
	while (receiver == 0)
		sleep_ms(1);
	until_asleep(receiver);
	CHECK_IS(syscall(SYS_tgkill, getpid(), receiver, SIGUSR1), 0);
	while (!stands)
		sleep_ms(1);
	CHECK_IS(rtems_message_queue_send(queue, "x", 1), OK);
	/* lw_classic(3) says: rtems_task_delete() fails with RTEMS_TIMEOUT if the task has not ended after 2 seconds, because it */
	CHECK_IS(rtems_task_delete(task), RTEMS_TIMEOUT);
	CHECK_IS(received, 0);
	CHECK_IS(rtems_event_send(task, RTEMS_EVENT_1), OK);
	may_go = 1;
	/* lw_classic(3) says: The request remains: the task ends when it next waits with cancellation enabled */
	/* lw_classic(3) says: If the task does not wait, it ends when it next waits in one of these */
	/* lw_classic(3) says: If the task's wait succeeds before the call can end it, the directive returns as usual, and the task */
	while (rtems_event_send(task, RTEMS_EVENT_1) != RTEMS_INVALID_ID)
		sleep_ms(1);
	CHECK_IS(received, 'x');
}

/* ---- what the system refuses ---- */

/* From now on these system calls fail. Returns whether the kernel can do that. */
static int refuse(unsigned one, unsigned other)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, one, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, other, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter;
	filter.len = sizeof code / sizeof *code;
	filter.filter = code;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0)
		return 1;
	fprintf(stderr, "skipped: what the kernel refuses, without seccomp\n");
	return 0;
}

static void refusals(void)
{
	rtems_id task, scheduler;
	cpu_set_t set;
	int processor = 0;
	CHECK_IS(sched_getaffinity(0, sizeof set, &set), 0);
	while (!CPU_ISSET(processor, &set))
		processor++;
	add_scheduler(processor);
	add_scheduler(-1);
	options.flags = LW_CLASSIC_UNSCHEDULED;
	CHECK_IS(lw_classic_configure(&options), 0);
	CHECK_IS(rtems_scheduler_ident(1, &scheduler), OK);
	CHECK_IS(rtems_task_create(NAME, 255, 0, 0, 0, &task), OK);
	CHECK_IS(rtems_task_delete(task), OK);
	if (rtems_scheduler_get_processor_maximum() > 1 && refuse(SYS_sched_setaffinity, SYS_sched_setaffinity)) {
		/* lw_classic(3) says: If that scheduler does not have all processors, this task may run only */
		CHECK_IS(rtems_task_create(NAME, 255, 0, 0, 0, &task), RTEMS_UNSATISFIED);
		/* lw_classic(3) says: It fails with RTEMS_UNSATISFIED if the affinity contains no processor of the scheduler, or if */
		CHECK_IS(rtems_task_set_scheduler(RTEMS_SELF, scheduler, 255), RTEMS_UNSATISFIED);
		/* lw_classic(3) says: The call fails with RTEMS_INVALID_NUMBER if the task's scheduler has none of the given processors, or if */
		CHECK_IS(rtems_task_set_affinity(RTEMS_SELF, sizeof set, &set), RTEMS_INVALID_NUMBER);
	}
	/* lw_classic(3) says: rtems_task_create() fails with RTEMS_TOO_MANY if the system cannot create another thread, if it cannot */
	if (refuse(SYS_clone, SYS_clone3))
		CHECK_IS(rtems_task_create(NAME, 255, 0, 0, 0, &task), RTEMS_TOO_MANY);
}

static void too_many_tasks(void)
{
	static rtems_id ids[256];
	rtems_status_code status;
	int count = 0;
	/* lw_classic(3) says: or if the region has 256 tasks already */
	while ((status = rtems_task_create(NAME, 255, 0, 0, 0, &ids[count])) == OK && count < 255)
		count++;
	CHECK_IS(status, RTEMS_TOO_MANY);
	CHECK(rtems_task_self() != 0);
	CHECK_IS(count, 255);
}

int main(void)
{
	alarm(WATCHDOG);
	snprintf(name, sizeof name, "said-classic-%d", (int)getpid());
	in_process(by_default);
	in_process(cancellation);
	unrelated(0, NULL, 0);
	unrelated(1, NULL, 0);
	unrelated(1, name, 0);
	unrelated(1, name, 4 << 20);
	in_process(limits);
	in_process(without_a_flag);
	in_process(with_the_flag);
	in_process(without_the_right);
	in_process(deletion);
	in_process(refusals);
	in_process(too_many_tasks);
	puts("said");
	return 0;
}

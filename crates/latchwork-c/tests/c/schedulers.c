/* Schedulers as C configures them: processors of tasks, and ceilings in each scheduler. */
#include "classic_waiters.h"

#include <errno.h>
#include <sched.h>

#define ONE rtems_build_name('O', 'N', 'E', ' ')
#define TWO rtems_build_name('T', 'W', 'O', ' ')

static cpu_set_t sets[2];
static int processors[2];
static rtems_id ids[2], bus, other_bus, mother;

/* Whether the calling thread may run on the processors of this scheduler, and on no other. */
static int runs_on(int scheduler)
{
	cpu_set_t set;
	CHECK_IS(sched_getaffinity(0, sizeof set, &set), 0);
	return CPU_EQUAL(&set, &sets[scheduler]);
}

static rtems_id scheduler_of(rtems_id task)
{
	rtems_id id = 0;
	CHECK_IS(rtems_task_get_scheduler(task, &id), RTEMS_SUCCESSFUL);
	return id;
}

/* A task of the second scheduler, whose creator is one. */
static rtems_task child(rtems_task_argument argument)
{
	CHECK_IS(argument, 7);
	/* lw_classic(3) says: A task that rtems_task_create() makes belongs to the scheduler of its creator */
	CHECK_IS(scheduler_of(RTEMS_SELF), ids[1]);
	/* lw_classic(3) says: If that scheduler does not have all processors, this task may run only */
	CHECK(runs_on(1));
	/* lw_classic(3) says: A MrsP semaphore has a ceiling in each scheduler */
	CHECK_IS(rtems_semaphore_obtain(bus, RTEMS_NO_WAIT, 0), RTEMS_SUCCESSFUL);
	CHECK_IS(priority_of(RTEMS_SELF), 20);
	CHECK_IS(rtems_task_set_scheduler(RTEMS_SELF, ids[0], 50), RTEMS_RESOURCE_IN_USE);
	CHECK_IS(rtems_semaphore_release(bus), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_set_scheduler(RTEMS_SELF, ids[0], 50), RTEMS_SUCCESSFUL);
	CHECK(runs_on(0));
	CHECK_IS(rtems_semaphore_obtain(bus, RTEMS_NO_WAIT, 0), RTEMS_SUCCESSFUL);
	CHECK_IS(priority_of(RTEMS_SELF), 30);
	CHECK_IS(rtems_semaphore_release(bus), RTEMS_SUCCESSFUL);
	/* lw_classic(3) says: While the ceiling is 0, tasks of that scheduler obtain the semaphore at priority 1 */
	CHECK_IS(rtems_semaphore_obtain(other_bus, RTEMS_NO_WAIT, 0), RTEMS_SUCCESSFUL);
	CHECK_IS(priority_of(RTEMS_SELF), 1);
	CHECK_IS(rtems_semaphore_release(other_bus), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_event_send(mother, RTEMS_EVENT_1), RTEMS_SUCCESSFUL);
	rtems_task_exit();
}

static void check_statuses(void)
{
	cpu_set_t set;
	rtems_id id = 7;
	rtems_task_priority priority = 0;
	uint32_t all = rtems_scheduler_get_processor_maximum();
	CHECK(rtems_scheduler_get_processor() < all);
	CHECK_IS(rtems_scheduler_ident(ONE, NULL), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_scheduler_ident(LW_CLASSIC_SCHEDULER_NAME, &id), RTEMS_INVALID_NAME);
	CHECK_IS(rtems_scheduler_ident_by_processor(all, &id), RTEMS_INVALID_NAME);
	CHECK_IS(rtems_scheduler_ident_by_processor(0, NULL), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_scheduler_ident_by_processor_set(sizeof set, NULL, &id), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_scheduler_ident_by_processor_set(sizeof set - 1, &sets[0], &id), RTEMS_INVALID_SIZE);
	CPU_ZERO(&set);
	CHECK_IS(rtems_scheduler_ident_by_processor_set(sizeof set, &set, &id), RTEMS_INVALID_NAME);
	CHECK_IS(id, 7);
	for (int index = 0; index < 2; index++) {
		CHECK_IS(rtems_scheduler_ident_by_processor((uint32_t)processors[index], &id), RTEMS_SUCCESSFUL);
		CHECK_IS(id, ids[index]);
		CHECK_IS(rtems_scheduler_ident_by_processor_set(sizeof set, &sets[index], &id), RTEMS_SUCCESSFUL);
		CHECK_IS(id, ids[index]);
		CHECK_IS(rtems_scheduler_get_processor_set(id, sizeof set, &set), RTEMS_SUCCESSFUL);
		CHECK(CPU_EQUAL(&set, &sets[index]));
		CHECK_IS(rtems_scheduler_get_processor_set(id, 0, &set), RTEMS_INVALID_SIZE);
		CHECK_IS(rtems_scheduler_get_maximum_priority(id, &priority), RTEMS_SUCCESSFUL);
		CHECK_IS(priority, RTEMS_MAXIMUM_PRIORITY);
	}
	CHECK_IS(rtems_scheduler_get_processor_set(RTEMS_ID_NONE, sizeof set, NULL), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_scheduler_get_processor_set(RTEMS_ID_NONE, sizeof set, &set), RTEMS_INVALID_ID);
	CHECK_IS(rtems_scheduler_get_maximum_priority(ids[0], NULL), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_scheduler_get_maximum_priority(RTEMS_ID_NONE, &priority), RTEMS_INVALID_ID);
	CHECK_IS(rtems_task_get_scheduler(RTEMS_SELF, NULL), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_task_get_scheduler(ids[0], &id), RTEMS_INVALID_ID);
	CHECK_IS(rtems_task_set_scheduler(RTEMS_SELF, RTEMS_ID_NONE, 256), RTEMS_INVALID_ID);
	CHECK_IS(rtems_task_set_scheduler(ids[0], ids[0], 256), RTEMS_INVALID_PRIORITY);
	CHECK_IS(rtems_task_set_scheduler(ids[0], ids[0], 1), RTEMS_INVALID_ID);
	CHECK_IS(rtems_task_get_affinity(RTEMS_SELF, sizeof set, NULL), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_task_get_affinity(ids[0], sizeof set, &set), RTEMS_INVALID_ID);
	CHECK_IS(rtems_task_get_affinity(RTEMS_SELF, 1, &set), RTEMS_INVALID_SIZE);
	CHECK_IS(rtems_task_set_affinity(RTEMS_SELF, sizeof set, NULL), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_task_set_affinity(ids[0], sizeof set, &sets[0]), RTEMS_INVALID_ID);
	/* lw_classic(3) says: The call fails with RTEMS_INVALID_NUMBER if the task's scheduler has none of the given processors, or if */
	CHECK_IS(rtems_task_set_affinity(RTEMS_SELF, 1, &sets[0]), RTEMS_INVALID_NUMBER);
	CHECK_IS(rtems_task_set_affinity(RTEMS_SELF, sizeof set, &sets[1]), RTEMS_INVALID_NUMBER);
}

/* What a task of a scheduler gets that waits for a semaphore with a ceiling of 20, which the caller owns at first. */
static int outcome(int scheduler, rtems_task_priority priority, int is_flushed)
{
	struct waiter waiter;
	make_semaphore(0, CEILING);
	start_waiter(&waiter, ids[scheduler], priority, 0, 0);
	if (is_flushed)
		CHECK_IS(rtems_semaphore_flush(gate), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_release(gate), RTEMS_SUCCESSFUL);
	join(waiter.thread);
	return waiter.status;
}

/* The caller is a task of the first scheduler, with the priority 60. */
static void waiters_of_two_schedulers(void)
{
	struct waiter waiter;
	cpu_set_t both;
	CPU_OR(&both, &sets[0], &sets[1]);
	/* lw_classic(3) says: The waiters of all schedulers are in one queue, by priority or in order of arrival */
	CHECK_IS(order(RTEMS_PRIORITY, ids[0], ids[1]), 231);
	CHECK_IS(order(RTEMS_FIFO, ids[0], ids[1]), 123);
	/* lw_classic(3) says: waiters are served in order of arrival, and a waiter that spins lets the owner run on */
	CHECK_IS(order(MRSP, ids[0], ids[1]), 123);
	/* lw_classic(3) says: A task has one priority, whatever the scheduler */
	make_semaphore(0, INHERIT);
	start_waiter(&waiter, ids[1], 30, 0, 0);
	CHECK_IS(priority_of(RTEMS_SELF), 30);
	/* lw_classic(3) says: if the task waits for a semaphore, owns a semaphore that has a ceiling, or inherits a priority */
	CHECK_IS(rtems_task_set_scheduler(RTEMS_SELF, ids[0], 60), RTEMS_RESOURCE_IN_USE);
	CHECK_IS(rtems_task_set_scheduler(waiter.task, ids[1], 30), RTEMS_RESOURCE_IN_USE);
	CHECK_IS(rtems_semaphore_release(gate), RTEMS_SUCCESSFUL);
	join(waiter.thread);
	CHECK_IS(waiter.status, RTEMS_SUCCESSFUL);
	make_semaphore(0, CEILING);
	CHECK_IS(rtems_task_set_scheduler(RTEMS_SELF, ids[0], 60), RTEMS_RESOURCE_IN_USE);
	CHECK_IS(rtems_semaphore_release(gate), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_set_scheduler(RTEMS_SELF, ids[0], 60), RTEMS_SUCCESSFUL);
	/* lw_classic(3) says: It fails with RTEMS_RESOURCE_IN_USE if the task owns a MrsP semaphore (see below) or waits for one */
	make_semaphore(0, MRSP);
	start_waiter(&waiter, ids[1], 60, 0, 1);
	CHECK_IS(rtems_task_set_affinity(RTEMS_SELF, sizeof sets[0], &sets[0]), RTEMS_RESOURCE_IN_USE);
	CHECK_IS(rtems_task_set_affinity(waiter.task, sizeof sets[1], &sets[1]), RTEMS_RESOURCE_IN_USE);
	CHECK_IS(rtems_semaphore_release(gate), RTEMS_SUCCESSFUL);
	join(waiter.thread);
	CHECK_IS(waiter.status, RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_set_affinity(RTEMS_SELF, sizeof both, &both), RTEMS_SUCCESSFUL);
	CHECK(runs_on(0));
	/* lw_classic(3) says: If another task owns the semaphore, the schedulers make no difference: the call waits, and then */
	for (int scheduler = 0; scheduler < 2; scheduler++) {
		CHECK_IS(outcome(scheduler, 40, 0), RTEMS_SUCCESSFUL);
		/* As in RTEMS, a waiter may have a priority above the ceiling. */
		CHECK_IS(outcome(scheduler, 10, 0), RTEMS_SUCCESSFUL);
		CHECK_IS(outcome(scheduler, 40, 1), RTEMS_UNSATISFIED);
	}
}

/* A task cannot be moved by the process of another user. */
static void another_user(void)
{
	pid_t process;
	if (geteuid() != 0) {
		fprintf(stderr, "skipped: another user's process, which only root can make\n");
		return;
	}
	if ((process = fork()) == 0) {
		alarm(WATCHDOG);
		CHECK_IS(setuid(65534), 0);
		/* lw_classic(3) says: The kernel refuses if a control group (cpuset(7)) excludes all of these processors, or if the */
		CHECK_IS(rtems_task_set_scheduler(mother, ids[1], 60), RTEMS_UNSATISFIED);
		CHECK_IS(rtems_task_set_affinity(mother, sizeof sets[0], &sets[0]), RTEMS_INVALID_NUMBER);
		_exit(0);
	}
	CHECK_IS(exit_of(process), 0);
}

/* A thread that the kernel has bound to one processor, and that goes to the scheduler of the other one. */
static void *bind_and_move(void *argument)
{
	CHECK_IS(sched_setaffinity(0, sizeof sets[0], &sets[0]), 0);
	/* lw_classic(3) says: Before the first such call, the affinity is all processors, whatever sched_setaffinity(2) has chosen */
	CHECK_IS(rtems_task_set_scheduler(RTEMS_SELF, ids[1], 60), RTEMS_SUCCESSFUL);
	CHECK(runs_on(1));
	return argument;
}

static void *run(void *argument)
{
	cpu_set_t set;
	rtems_id task, ceiling;
	rtems_event_set events;
	pid_t process;
	rtems_task_priority old = 999;
	(void)argument;
	mother = rtems_task_self();
	check_statuses();
	/* lw_classic(3) says: rtems_task_set_scheduler() binds the thread to those processors of the scheduler that are in the */
	CHECK_IS(rtems_task_set_scheduler(RTEMS_SELF, ids[0], 60), RTEMS_SUCCESSFUL);
	CHECK(runs_on(0));
	CHECK_IS(priority_of(RTEMS_SELF), 60);
	another_user();
	CHECK_IS(rtems_semaphore_create(ONE, 1, MRSP, 30, &bus), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_create(TWO, 1, RTEMS_BINARY_SEMAPHORE | RTEMS_PRIORITY | RTEMS_PRIORITY_CEILING, 30,
					&ceiling),
		 RTEMS_SUCCESSFUL);
	/* lw_classic(3) says: In each scheduler other than that of the semaphore's creator, the ceiling is 0 until */
	CHECK_IS(rtems_semaphore_set_priority(bus, ids[1], 20, &old), RTEMS_SUCCESSFUL);
	CHECK_IS(old, 0);
	CHECK_IS(rtems_semaphore_set_priority(bus, ids[0], RTEMS_CURRENT_PRIORITY, &old), RTEMS_SUCCESSFUL);
	CHECK_IS(old, 30);
	/* lw_classic(3) says: A semaphore with the attribute RTEMS_PRIORITY_CEILING has one ceiling and belongs to the scheduler of */
	CHECK_IS(rtems_semaphore_set_priority(ceiling, ids[1], 20, &old), RTEMS_NOT_DEFINED);
	CHECK_IS(rtems_semaphore_set_priority(ceiling, ids[0], RTEMS_CURRENT_PRIORITY, &old), RTEMS_SUCCESSFUL);
	CHECK_IS(old, 30);
	waiters_of_two_schedulers();

	/* lw_classic(3) says: A task belongs to one scheduler */
	CHECK_IS(rtems_task_set_scheduler(mother, ids[1], 60), RTEMS_SUCCESSFUL);
	CHECK(runs_on(1));
	CHECK_IS(scheduler_of(mother), ids[1]);
	CHECK_IS(rtems_semaphore_create(ONE, 1, MRSP, 30, &other_bus), RTEMS_SUCCESSFUL);
	/* lw_classic(3) says: If a task of another scheduler tries to obtain such a semaphore while it is free, the call fails with */
	CHECK_IS(rtems_semaphore_obtain(ceiling, RTEMS_WAIT, RTEMS_NO_TIMEOUT), RTEMS_NOT_DEFINED);
	CHECK_IS(rtems_task_create(TWO, 40, 0, 0, 0, &task), RTEMS_SUCCESSFUL);
	CHECK_IS(scheduler_of(task), ids[1]);
	CHECK_IS(rtems_task_start(task, child, 7), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_event_receive(RTEMS_EVENT_1, RTEMS_WAIT, RTEMS_NO_TIMEOUT, &events), RTEMS_SUCCESSFUL);

	/* lw_classic(3) says: After a fork(2) the child's thread is a new task, of the first scheduler, on the processors of its */
	if ((process = fork()) == 0) {
		alarm(WATCHDOG);
		CHECK(rtems_task_self() != mother);
		CHECK_IS(scheduler_of(RTEMS_SELF), ids[0]);
		CHECK(runs_on(1));
		_exit(0);
	}
	CHECK_IS(exit_of(process), 0);
	/* lw_classic(3) says: rtems_task_set_affinity() sets the processors that the task may use: the task's affinity */
	CPU_OR(&set, &sets[0], &sets[1]);
	CHECK_IS(sched_setaffinity(0, sizeof set, &set), 0);
	CHECK_IS(rtems_task_set_affinity(RTEMS_SELF, sizeof set, &sets[1]), RTEMS_SUCCESSFUL);
	CHECK(runs_on(1));
	CHECK_IS(rtems_task_get_affinity(mother, sizeof set, &set), RTEMS_SUCCESSFUL);
	CHECK(CPU_EQUAL(&set, &sets[1]));
	/* lw_classic(3) says: It fails with RTEMS_UNSATISFIED if the affinity contains no processor of the scheduler, or if the kernel */
	CHECK_IS(rtems_task_set_scheduler(RTEMS_SELF, ids[0], 60), RTEMS_UNSATISFIED);
	CHECK_IS(scheduler_of(RTEMS_SELF), ids[1]);
	return NULL;
}

int main(void)
{
	struct lw_classic_scheduler schedulers[2];
	struct lw_classic_options options;
	cpu_set_t allowed, now;
	int found = 0;

	alarm(WATCHDOG);
	CHECK_IS(sched_getaffinity(0, sizeof allowed, &allowed), 0);
	for (int processor = 0; processor < CPU_SETSIZE && found < 2; processor++)
		if (CPU_ISSET(processor, &allowed))
			processors[found++] = processor;
	if (found < 2) {
		fputs("skipped: schedulers.c: two schedulers need two processors\n", stderr);
		puts("partitioned");
		return 0;
	}
	memset(&options, 0, sizeof options);
	for (int index = 0; index < 2; index++) {
		CPU_ZERO(&sets[index]);
		CPU_SET(processors[index], &sets[index]);
		schedulers[index].name = ONE;
		schedulers[index].cpusetsize = sizeof sets[index];
		schedulers[index].cpuset = &sets[index];
	}
	options.flags = LW_CLASSIC_UNSCHEDULED;
	options.scheduler_count = 2;
	CHECK_IS(lw_classic_configure(&options), EINVAL);
	options.schedulers = schedulers;
	/* Two of one name; and a set that is no whole number of words. */
	CHECK_IS(lw_classic_configure(&options), EINVAL);
	schedulers[1].name = TWO;
	schedulers[1].cpusetsize = 3;
	CHECK_IS(lw_classic_configure(&options), EINVAL);
	schedulers[1].cpusetsize = sizeof sets[1];
	CHECK_IS(lw_classic_configure(&options), 0);
	CHECK_IS(rtems_scheduler_ident(ONE, &ids[0]), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_scheduler_ident(TWO, &ids[1]), RTEMS_SUCCESSFUL);
	/* lw_classic(3) says: A thread that becomes a task belongs to the first scheduler, and may run on the same processors as */
	CHECK_IS(scheduler_of(RTEMS_SELF), ids[0]);
	CHECK_IS(sched_getaffinity(0, sizeof now, &now), 0);
	CHECK(CPU_EQUAL(&now, &allowed) && CPU_COUNT(&now) >= 2);
	join(start(bind_and_move, NULL));
	join(start(run, NULL));
	puts("partitioned");
	return 0;
}

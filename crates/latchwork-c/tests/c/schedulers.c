/* Schedulers as C configures them: processors of tasks, and ceilings in each scheduler. */
#include "classic.h"

#include "check.h"

#include <errno.h>
#include <sched.h>

#define ONE rtems_build_name('O', 'N', 'E', ' ')
#define TWO rtems_build_name('T', 'W', 'O', ' ')
#define MRSP (RTEMS_BINARY_SEMAPHORE | RTEMS_PRIORITY | RTEMS_MULTIPROCESSOR_RESOURCE_SHARING)

static cpu_set_t sets[2];
static int processors[2];
static rtems_id ids[2], bus, mother;

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
	rtems_task_priority now = 0;
	CHECK_IS(argument, 7);
	CHECK_IS(scheduler_of(RTEMS_SELF), ids[1]);
	CHECK(runs_on(1));
	CHECK_IS(rtems_semaphore_obtain(bus, RTEMS_NO_WAIT, 0), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_set_priority(RTEMS_SELF, RTEMS_CURRENT_PRIORITY, &now), RTEMS_SUCCESSFUL);
	CHECK_IS(now, 20);
	CHECK_IS(rtems_task_set_scheduler(RTEMS_SELF, ids[0], 50), RTEMS_RESOURCE_IN_USE);
	CHECK_IS(rtems_semaphore_release(bus), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_set_scheduler(RTEMS_SELF, ids[0], 50), RTEMS_SUCCESSFUL);
	CHECK(runs_on(0));
	CHECK_IS(rtems_semaphore_obtain(bus, RTEMS_NO_WAIT, 0), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_set_priority(RTEMS_SELF, RTEMS_CURRENT_PRIORITY, &now), RTEMS_SUCCESSFUL);
	CHECK_IS(now, 30);
	CHECK_IS(rtems_semaphore_release(bus), RTEMS_SUCCESSFUL);
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
	CHECK_IS(rtems_task_set_affinity(RTEMS_SELF, 1, &sets[0]), RTEMS_INVALID_NUMBER);
	CHECK_IS(rtems_task_set_affinity(RTEMS_SELF, sizeof set, &sets[1]), RTEMS_INVALID_NUMBER);
}

static void *run(void *argument)
{
	cpu_set_t set;
	rtems_id task, ceiling;
	rtems_event_set events;
	rtems_task_priority old = 999;
	(void)argument;
	mother = rtems_task_self();
	check_statuses();
	CHECK_IS(rtems_task_set_scheduler(RTEMS_SELF, ids[0], 60), RTEMS_SUCCESSFUL);
	CHECK(runs_on(0));
	CHECK_IS(rtems_semaphore_create(ONE, 1, MRSP, 30, &bus), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_create(TWO, 1, RTEMS_BINARY_SEMAPHORE | RTEMS_PRIORITY | RTEMS_PRIORITY_CEILING, 30,
					&ceiling),
		 RTEMS_SUCCESSFUL);
	/* The other scheduler's ceiling is 0 until it is set. */
	CHECK_IS(rtems_semaphore_set_priority(bus, ids[1], 20, &old), RTEMS_SUCCESSFUL);
	CHECK_IS(old, 0);
	CHECK_IS(rtems_semaphore_set_priority(bus, ids[0], RTEMS_CURRENT_PRIORITY, &old), RTEMS_SUCCESSFUL);
	CHECK_IS(old, 30);
	CHECK_IS(rtems_semaphore_set_priority(ceiling, ids[1], 20, &old), RTEMS_NOT_DEFINED);

	CHECK_IS(rtems_task_set_scheduler(mother, ids[1], 60), RTEMS_SUCCESSFUL);
	CHECK(runs_on(1));
	CHECK_IS(rtems_semaphore_obtain(ceiling, RTEMS_WAIT, RTEMS_NO_TIMEOUT), RTEMS_NOT_DEFINED);
	CHECK_IS(rtems_task_create(TWO, 40, 0, 0, 0, &task), RTEMS_SUCCESSFUL);
	CHECK_IS(scheduler_of(task), ids[1]);
	CHECK_IS(rtems_task_start(task, child, 7), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_event_receive(RTEMS_EVENT_1, RTEMS_WAIT, RTEMS_NO_TIMEOUT, &events), RTEMS_SUCCESSFUL);

	CHECK_IS(rtems_task_set_affinity(RTEMS_SELF, sizeof set, &sets[1]), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_get_affinity(mother, sizeof set, &set), RTEMS_SUCCESSFUL);
	CHECK(CPU_EQUAL(&set, &sets[1]));
	CHECK_IS(rtems_task_set_scheduler(RTEMS_SELF, ids[0], 60), RTEMS_UNSATISFIED);
	CHECK_IS(scheduler_of(RTEMS_SELF), ids[1]);
	return NULL;
}

int main(void)
{
	struct lw_classic_scheduler schedulers[2];
	struct lw_classic_options options;
	cpu_set_t allowed;
	int found = 0;

	CHECK_IS(sched_getaffinity(0, sizeof allowed, &allowed), 0);
	for (int processor = 0; processor < CPU_SETSIZE && found < 2; processor++)
		if (CPU_ISSET(processor, &allowed))
			processors[found++] = processor;
	if (found < 2) {
		fputs("SKIPPED: schedulers.c: two schedulers need two processors\n", stderr);
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
	/* A task is bound when a directive says so, not before. */
	CHECK_IS(scheduler_of(RTEMS_SELF), ids[0]);
	CHECK_IS(sched_getaffinity(0, sizeof allowed, &allowed), 0);
	CHECK(CPU_COUNT(&allowed) >= 2);
	join(start(run, NULL));
	puts("partitioned");
	return 0;
}

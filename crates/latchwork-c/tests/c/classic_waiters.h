/* For programs of the classic interface: tasks that wait for a semaphore. */
#ifndef CLASSIC_WAITERS_H
#define CLASSIC_WAITERS_H

#include "classic.h"

#include "check.h"

#include <sched.h>
#include <sys/syscall.h>

#define NAME rtems_build_name('S', 'A', 'I', 'D')
#define OK RTEMS_SUCCESSFUL
#define INHERIT (RTEMS_BINARY_SEMAPHORE | RTEMS_PRIORITY | RTEMS_INHERIT_PRIORITY)
#define CEILING (RTEMS_BINARY_SEMAPHORE | RTEMS_PRIORITY | RTEMS_PRIORITY_CEILING)
#define MRSP (RTEMS_BINARY_SEMAPHORE | RTEMS_PRIORITY | RTEMS_MULTIPROCESSOR_RESOURCE_SHARING)

/* What they wait for. */
static rtems_id gate;

static inline rtems_task_priority priority_of(rtems_id task)
{
	rtems_task_priority priority = 0;
	CHECK_IS(rtems_task_set_priority(task, RTEMS_CURRENT_PRIORITY, &priority), OK);
	return priority;
}

static inline void set_priority(rtems_id task, rtems_task_priority priority)
{
	rtems_task_priority old;
	CHECK_IS(rtems_task_set_priority(task, priority, &old), OK);
}

static inline void make_semaphore(uint32_t count, rtems_attribute attributes)
{
	CHECK_IS(rtems_semaphore_create(NAME, count, attributes, 20, &gate), OK);
}

struct waiter {
	pthread_t thread;
	volatile pid_t number;
	rtems_id task, scheduler;
	rtems_task_priority priority;
	int digit, releases;
	/* -1 while it waits. */
	volatile int status;
};

/* The digits of those that have the semaphore. */
static volatile int served;

static inline void until_asleep(pid_t thread)
{
	while (call_of(getpid(), thread) != WAITS_IN_REGION)
		sleep_ms(1);
}

static inline void *obtain(void *argument)
{
	struct waiter *me = (struct waiter *)argument;
	me->task = rtems_task_self();
	if (me->scheduler != 0)
		CHECK_IS(rtems_task_set_scheduler(RTEMS_SELF, me->scheduler, me->priority), OK);
	else
		set_priority(RTEMS_SELF, me->priority);
	me->number = (pid_t)syscall(SYS_gettid);
	me->status = rtems_semaphore_obtain(gate, RTEMS_WAIT, RTEMS_NO_TIMEOUT);
	served = served * 10 + me->digit;
	if (me->releases)
		CHECK_IS(rtems_semaphore_release(gate), OK);
	return NULL;
}

/* A task of this scheduler, if it is not 0, that waits for the semaphore. */
static inline void start_waiter(struct waiter *waiter, rtems_id scheduler, rtems_task_priority priority, int digit, int releases)
{
	memset(waiter, 0, sizeof *waiter);
	waiter->scheduler = scheduler;
	waiter->priority = priority;
	waiter->digit = digit;
	waiter->releases = releases;
	waiter->status = -1;
	waiter->thread = start(obtain, waiter);
	while (waiter->number == 0)
		sleep_ms(1);
	until_asleep(waiter->number);
}

/* The order in which three tasks get a semaphore. They arrive in the order 1, 2, 3, with the priorities 50, 30, 40. */
static inline int order(rtems_attribute attributes, rtems_id one, rtems_id other)
{
	struct waiter waiters[3];
	int has_owner = (attributes & RTEMS_BINARY_SEMAPHORE) != 0;
	served = 0;
	make_semaphore(0, attributes);
	start_waiter(&waiters[0], one, 50, 1, has_owner);
	start_waiter(&waiters[1], other, 30, 2, has_owner);
	start_waiter(&waiters[2], one, 40, 3, has_owner);
	for (int least = has_owner ? 100 : 1; least <= 100; least *= 10) {
		CHECK_IS(rtems_semaphore_release(gate), OK);
		while (served < least)
			sleep_ms(1);
	}
	for (int i = 0; i < 3; i++)
		join(waiters[i].thread);
	CHECK_IS(rtems_semaphore_delete(gate), OK);
	return served;
}

static inline int real_time_of(pid_t thread)
{
	struct sched_param parameter;
	CHECK_IS(sched_getparam(thread, &parameter), 0);
	return parameter.sched_priority;
}

#endif

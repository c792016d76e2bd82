/*
 * Tasks of the classic interface: threads that wait to be started. What the classic objects know of a task (its
 * id, its priority) is the region's; here is who was created under which name.
 */
#include "classic.h"
#include "internal.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

uint64_t latchwork_classic_tick(void);

enum state { WAITS, STARTED, DELETED };

struct task {
	struct task *next;
	rtems_id id;
	rtems_name name;
	enum state state;
	rtems_task_entry entry;
	rtems_task_argument argument;
	lw_completion_t ready, started;
	rtems_task_priority priority;
	rtems_status_code status;
};

static LW_DEFINE_MUTEX(lock);
static struct task *tasks;

static void forget(void *argument)
{
	struct task *task = argument, **place;
	lw_mutex_lock(&lock);
	for (place = &tasks; *place != NULL; place = &(*place)->next)
		if (*place == task) {
			*place = task->next;
			break;
		}
	lw_mutex_unlock(&lock);
	free(task);
}

static void *run(void *argument)
{
	struct task *task = argument;
	rtems_task_priority before;
	enum state state;
	char name[5] = {(char)(task->name >> 24), (char)(task->name >> 16), (char)(task->name >> 8),
			(char)task->name, 0};

	/* What ps shows of the thread. */
	pthread_setname_np(pthread_self(), name);
	task->id = rtems_task_self();
	task->status = task->id == 0 ? RTEMS_TOO_MANY
				     : rtems_task_set_priority(RTEMS_SELF, task->priority, &before);
	if (task->status != RTEMS_SUCCESSFUL) {
		lw_completion_complete(&task->ready);
		return NULL;
	}
	pthread_cleanup_push(forget, task);
	lw_completion_complete(&task->ready);
	lw_completion_wait(&task->started);
	lw_mutex_lock(&lock);
	state = task->state;
	lw_mutex_unlock(&lock);
	if (state == STARTED)
		task->entry(task->argument);
	pthread_cleanup_pop(1);
	return NULL;
}

static struct task *find(rtems_id id)
{
	struct task *task = tasks;
	while (task != NULL && task->id != id)
		task = task->next;
	return task;
}

rtems_status_code rtems_task_create(rtems_name name, rtems_task_priority initial_priority, size_t stack_size,
				    rtems_mode initial_modes, rtems_attribute attribute_set, rtems_id *id)
{
	struct task *task;
	pthread_attr_t attributes;
	pthread_t thread;
	rtems_status_code status;
	int error;

	(void)initial_modes, (void)attribute_set;
	if (name == 0)
		return RTEMS_INVALID_NAME;
	if (id == NULL)
		return RTEMS_INVALID_ADDRESS;
	if (initial_priority < RTEMS_MINIMUM_PRIORITY || initial_priority > RTEMS_MAXIMUM_PRIORITY)
		return RTEMS_INVALID_PRIORITY;
	task = calloc(1, sizeof *task);
	if (task == NULL)
		return RTEMS_NO_MEMORY;
	task->name = name;
	task->priority = initial_priority;
	if (stack_size < RTEMS_MINIMUM_STACK_SIZE)
		stack_size = RTEMS_MINIMUM_STACK_SIZE;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	error = pthread_attr_setstacksize(&attributes, stack_size);
	if (error == 0)
		error = pthread_create(&thread, &attributes, run, task);
	pthread_attr_destroy(&attributes);
	if (error != 0) {
		free(task);
		return RTEMS_UNSATISFIED;
	}
	lw_completion_wait(&task->ready);
	if (task->status != RTEMS_SUCCESSFUL) {
		status = task->status;
		free(task);
		return status;
	}
	*id = task->id;
	lw_mutex_lock(&lock);
	task->next = tasks;
	tasks = task;
	lw_mutex_unlock(&lock);
	return RTEMS_SUCCESSFUL;
}

rtems_status_code rtems_task_ident(rtems_name name, uint32_t node, rtems_id *id)
{
	rtems_status_code status = RTEMS_INVALID_NAME;
	(void)node;
	if (id == NULL)
		return RTEMS_INVALID_ADDRESS;
	/* RTEMS_SELF, as a name. */
	if (name == 0) {
		*id = rtems_task_self();
		return RTEMS_SUCCESSFUL;
	}
	lw_mutex_lock(&lock);
	for (struct task *task = tasks; task != NULL; task = task->next)
		if (task->name == name) {
			*id = task->id;
			status = RTEMS_SUCCESSFUL;
		}
	lw_mutex_unlock(&lock);
	return status;
}

/* From "waits" to another state. */
static rtems_status_code release(rtems_id id, enum state to, rtems_task_entry entry, rtems_task_argument argument)
{
	rtems_status_code status = RTEMS_SUCCESSFUL;
	struct task *task;
	lw_mutex_lock(&lock);
	task = find(id);
	if (task == NULL)
		status = RTEMS_INVALID_ID;
	else if (task->state != WAITS)
		status = RTEMS_INCORRECT_STATE;
	else {
		task->state = to;
		task->entry = entry;
		task->argument = argument;
		lw_completion_complete(&task->started);
	}
	lw_mutex_unlock(&lock);
	return status;
}

rtems_status_code rtems_task_start(rtems_id id, rtems_task_entry entry_point, rtems_task_argument argument)
{
	if (entry_point == NULL)
		return RTEMS_INVALID_ADDRESS;
	return release(id, STARTED, entry_point, argument);
}

void rtems_task_exit(void)
{
	pthread_exit(NULL);
}

rtems_status_code rtems_task_delete(rtems_id id)
{
	rtems_status_code status;
	if (id == RTEMS_SELF || id == rtems_task_self())
		rtems_task_exit();
	status = release(id, DELETED, NULL, 0);
	return status == RTEMS_INCORRECT_STATE ? RTEMS_NOT_IMPLEMENTED : status;
}

/* ---- time ---- */

static uint64_t microseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

rtems_status_code rtems_task_wake_after(rtems_interval ticks)
{
	uint64_t end, tick = latchwork_classic_tick();
	struct timespec at;
	if (ticks == RTEMS_YIELD_PROCESSOR) {
		sched_yield();
		return RTEMS_SUCCESSFUL;
	}
	if (tick == 0)
		return RTEMS_INTERNAL_ERROR;
	end = microseconds() + ticks * tick;
	at.tv_sec = (time_t)(end / 1000000);
	at.tv_nsec = (long)(end % 1000000) * 1000;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
	return RTEMS_SUCCESSFUL;
}

rtems_interval rtems_clock_get_ticks_per_second(void)
{
	uint64_t tick = latchwork_classic_tick();
	return tick == 0 ? 0 : (rtems_interval)(1000000 / tick);
}

rtems_interval rtems_clock_get_ticks_since_boot(void)
{
	uint64_t tick = latchwork_classic_tick();
	return tick == 0 ? 0 : (rtems_interval)(microseconds() / tick);
}

rtems_interval lw_classic_ticks(uint64_t milliseconds)
{
	uint64_t tick = latchwork_classic_tick(), ticks;
	if (tick == 0)
		return 0;
	ticks = (milliseconds * 1000 + tick - 1) / tick;
	return ticks > UINT32_MAX ? UINT32_MAX : (rtems_interval)ticks;
}

const char *rtems_status_text(rtems_status_code status)
{
	static const char *const texts[] = {
		"RTEMS_SUCCESSFUL",	   "RTEMS_TASK_EXITTED",    "RTEMS_MP_NOT_CONFIGURED",
		"RTEMS_INVALID_NAME",	   "RTEMS_INVALID_ID",	    "RTEMS_TOO_MANY",
		"RTEMS_TIMEOUT",	   "RTEMS_OBJECT_WAS_DELETED", "RTEMS_INVALID_SIZE",
		"RTEMS_INVALID_ADDRESS",   "RTEMS_INVALID_NUMBER",  "RTEMS_NOT_DEFINED",
		"RTEMS_RESOURCE_IN_USE",   "RTEMS_UNSATISFIED",	    "RTEMS_INCORRECT_STATE",
		"RTEMS_ALREADY_SUSPENDED", "RTEMS_ILLEGAL_ON_SELF", "RTEMS_ILLEGAL_ON_REMOTE_OBJECT",
		"RTEMS_CALLED_FROM_ISR",   "RTEMS_INVALID_PRIORITY", "RTEMS_INVALID_CLOCK",
		"RTEMS_INVALID_NODE",	   "RTEMS_NOT_CONFIGURED",  "RTEMS_NOT_OWNER_OF_RESOURCE",
		"RTEMS_NOT_IMPLEMENTED",   "RTEMS_INTERNAL_ERROR",  "RTEMS_NO_MEMORY",
		"RTEMS_IO_ERROR",	   "RTEMS_INTERRUPTED",	    "RTEMS_PROXY_BLOCKING",
	};
	if (status == LW_RTEMS_OWNER_DIED)
		return "LW_RTEMS_OWNER_DIED";
	return (size_t)status < sizeof texts / sizeof *texts ? texts[status] : "?";
}

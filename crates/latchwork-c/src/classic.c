/*
 * Tasks of the classic interface: threads that wait to be started, and the directives in which they may wait. What the
 * classic objects know of a task (its id, its priority) is in the region; this file knows which tasks this process
 * created, under which names.
 *
 * Deleting another task cancels it, as by pthread_cancel(): it ends at its next wait in a directive or in libc. libc's
 * own waits handle that. A wait in a directive is Rust code, and no Rust frame may be unwound. So the task's word
 * `stop` is set, and the sleepers of the region are woken: the wait ends as if it had timed out, and the C frame that
 * called it acts on the cancellation request. If the wait has succeeded before, its result is kept, and the task ends
 * at its next wait.
 */
#include "classic.h"
#include "internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

void latchwork_classic_wake(void);
void latchwork_task_stops_by(const uint32_t *stop);
rtems_status_code latchwork_semaphore_obtain(rtems_id id, rtems_option options, rtems_interval timeout);
rtems_status_code latchwork_event_receive(rtems_event_set in, rtems_option options, rtems_interval ticks,
					  rtems_event_set *out);
rtems_status_code latchwork_event_system_receive(rtems_event_set in, rtems_option options, rtems_interval ticks,
						 rtems_event_set *out);
rtems_status_code latchwork_event_transient_receive(rtems_option options, rtems_interval ticks);
rtems_status_code latchwork_message_queue_receive(rtems_id id, void *buffer, size_t room, size_t *size,
						  rtems_option options, rtems_interval timeout);
rtems_status_code latchwork_rtems_message_queue_receive(rtems_id id, void *buffer, size_t *size,
							rtems_option options, rtems_interval timeout);

/* ---- tasks ---- */

/* ENDED: its cleanup handlers have run; its id stays taken until the destructors of its thread have run, too. */
enum state { WAITS, STARTED, DELETED, ENDED };

struct task {
	struct task *next;
	/* The list of the process that has the thread. */
	struct latchwork_own *list;
	pthread_t thread;
	rtems_id id;
	rtems_name name;
	enum state state;
	/* Held by the task itself, and by the tasks that delete it. Under the lock. */
	unsigned references;
	/* Not 0 once the task must end. */
	uint32_t stop;
	rtems_task_entry entry;
	rtems_task_argument argument;
	lw_completion_t ready, started, ended;
	rtems_task_priority priority;
	rtems_id scheduler;
	rtems_status_code status;
};

/* The one node. */
#define LOCAL_NODE 1u
#define FIRST_SCHEDULER 0xf0000001u
/* The index in an id. */
#define INDEX(id) ((id) & 0xffffu)

/* Of struct task. */
static struct latchwork_own *tasks;
/* The calling thread's task, if rtems_task_create() has made the thread. */
static __thread struct task *me;

/* ---- directives that may wait ---- */

static void begin_wait(void)
{
	/*
	 * Acquire: the cancellation request came before the word was set. So a thread that finds the word set and
	 * passes pthread_testcancel() has disabled cancellation, or is ending: its handlers may wait.
	 */
	int ignores_stop = me != NULL && __atomic_load_n(&me->stop, __ATOMIC_ACQUIRE) != 0;
	pthread_testcancel();
	if (me != NULL)
		latchwork_task_stops_by(ignores_stop ? NULL : &me->stop);
}

/* Acts on a request to end that came before, and on one that came during a wait that did not succeed. */
#define WAIT(call)                                                                                    \
	do {                                                                                          \
		rtems_status_code status_;                                                            \
		begin_wait();                                                                         \
		status_ = call;                                                                       \
		if (status_ != RTEMS_SUCCESSFUL && status_ != LW_RTEMS_OWNER_DIED)                    \
			pthread_testcancel();                                                         \
		return status_;                                                                       \
	} while (0)

rtems_status_code rtems_semaphore_obtain(rtems_id id, rtems_option option_set, rtems_interval timeout)
{
	WAIT(latchwork_semaphore_obtain(id, option_set, timeout));
}

rtems_status_code rtems_event_receive(rtems_event_set event_in, rtems_option option_set, rtems_interval ticks,
				      rtems_event_set *event_out)
{
	WAIT(latchwork_event_receive(event_in, option_set, ticks, event_out));
}

rtems_status_code rtems_event_system_receive(rtems_event_set event_in, rtems_option option_set,
					     rtems_interval ticks, rtems_event_set *event_out)
{
	WAIT(latchwork_event_system_receive(event_in, option_set, ticks, event_out));
}

rtems_status_code rtems_event_transient_receive(rtems_option option_set, rtems_interval ticks)
{
	WAIT(latchwork_event_transient_receive(option_set, ticks));
}

rtems_status_code rtems_message_queue_receive(rtems_id id, void *buffer, size_t *size, rtems_option option_set,
					      rtems_interval timeout)
{
	WAIT(latchwork_rtems_message_queue_receive(id, buffer, size, option_set, timeout));
}

rtems_status_code lw_message_queue_receive(rtems_id id, void *buffer, size_t room, size_t *size,
					   rtems_option option_set, rtems_interval timeout)
{
	WAIT(latchwork_message_queue_receive(id, buffer, room, size, option_set, timeout));
}

/* ---- the lives of tasks ---- */

static void drop(struct task *task)
{
	unsigned left;
	lw_mutex_lock(&task->list->lock);
	left = --task->references;
	lw_mutex_unlock(&task->list->lock);
	if (left == 0)
		free(task);
}

/* The task stays on the list: a thread that deletes it waits until its id is free. */
static void forget(void *argument)
{
	struct task *task = argument;
	latchwork_task_stops_by(NULL);
	me = NULL;
	/* In the child of the task's fork nobody else knows the thread as this task. */
	if (task->list != latchwork_own(&tasks))
		return;
	lw_mutex_lock(&task->list->lock);
	task->state = ENDED;
	lw_mutex_unlock(&task->list->lock);
	lw_completion_complete_all(&task->ended);
}

static int is_gone(rtems_id id)
{
	rtems_task_priority priority;
	return rtems_task_set_priority(id, RTEMS_CURRENT_PRIORITY, &priority) == RTEMS_INVALID_ID;
}

/* Frees the tasks that have ended and whose ids are free. Under the lock. */
static void clear_away(struct latchwork_own *list)
{
	struct task *kept = NULL, *next;
	for (struct task *task = list->first; task != NULL; task = next) {
		next = task->next;
		if (task->state == ENDED && is_gone(task->id)) {
			if (--task->references == 0)
				free(task);
		} else {
			task->next = kept;
			kept = task;
		}
	}
	list->first = kept;
}

static void *run(void *argument)
{
	struct task *task = argument;
	enum state state;
	char name[5] = {(char)(task->name >> 24), (char)(task->name >> 16), (char)(task->name >> 8),
			(char)task->name, 0};

	/* The name that ps shows for the thread. */
	pthread_setname_np(pthread_self(), name);
	task->id = rtems_task_self();
	task->status = task->id == 0 ? RTEMS_TOO_MANY
				     : rtems_task_set_scheduler(RTEMS_SELF, task->scheduler, task->priority);
	if (task->status != RTEMS_SUCCESSFUL) {
		lw_completion_complete(&task->ready);
		drop(task);
		return NULL;
	}
	task->thread = pthread_self();
	pthread_cleanup_push(forget, task);
	me = task;
	lw_completion_complete(&task->ready);
	lw_completion_wait(&task->started);
	lw_mutex_lock(&task->list->lock);
	state = task->state;
	lw_mutex_unlock(&task->list->lock);
	if (state == STARTED)
		task->entry(task->argument);
	pthread_cleanup_pop(1);
	return NULL;
}

/* Not inlined: next to a cleanup handler, which uses setjmp, gcc takes its variable to be clobbered. */
__attribute__((noinline)) static struct task *find(struct latchwork_own *list, rtems_id id)
{
	struct task *task = list->first;
	while (task != NULL && task->id != id)
		task = task->next;
	return task;
}

rtems_status_code rtems_task_create(rtems_name name, rtems_task_priority initial_priority, size_t stack_size,
				    rtems_mode initial_modes, rtems_attribute attribute_set, rtems_id *id)
{
	struct latchwork_own *list;
	struct task *task;
	pthread_attr_t attributes;
	pthread_t thread;
	rtems_status_code status;
	int error, cancels;

	(void)initial_modes, (void)attribute_set;
	if (name == 0)
		return RTEMS_INVALID_NAME;
	if (id == NULL)
		return RTEMS_INVALID_ADDRESS;
	if (initial_priority < RTEMS_MINIMUM_PRIORITY || initial_priority > RTEMS_MAXIMUM_PRIORITY)
		return RTEMS_INVALID_PRIORITY;
	list = latchwork_own(&tasks);
	task = list == NULL ? NULL : calloc(1, sizeof *task);
	if (task == NULL)
		return RTEMS_TOO_MANY;
	task->list = list;
	task->name = name;
	task->priority = initial_priority;
	if (rtems_task_get_scheduler(RTEMS_SELF, &task->scheduler) != RTEMS_SUCCESSFUL)
		/* The caller cannot become a task. */
		task->scheduler = FIRST_SCHEDULER;
	/* One for the thread and one for this call. */
	task->references = 2;
	if (stack_size < RTEMS_MINIMUM_STACK_SIZE)
		stack_size = RTEMS_MINIMUM_STACK_SIZE;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	error = pthread_attr_setstacksize(&attributes, stack_size);
	if (error == 0)
		error = pthread_create(&thread, &attributes, run, task);
	pthread_attr_destroy(&attributes);
	if (error != 0) {
		/* The thread, or a stack of that size, could not be made. */
		free(task);
		return RTEMS_TOO_MANY;
	}
	/*
	 * The wait is short; and if this task were deleted in it, the new task would be left behind, and its id be
	 * lost.
	 */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
	lw_completion_wait(&task->ready);
	pthread_setcancelstate(cancels, NULL);
	if (task->status != RTEMS_SUCCESSFUL) {
		status = task->status;
		drop(task);
		return status;
	}
	*id = task->id;
	lw_mutex_lock(&list->lock);
	clear_away(list);
	task->next = list->first;
	list->first = task;
	lw_mutex_unlock(&list->lock);
	drop(task);
	return RTEMS_SUCCESSFUL;
}

rtems_status_code rtems_task_ident(rtems_name name, uint32_t node, rtems_id *id)
{
	rtems_status_code status = RTEMS_INVALID_NAME;
	struct latchwork_own *list;
	if (id == NULL)
		return RTEMS_INVALID_ADDRESS;
	/* The name 0 means RTEMS_SELF, on any node. */
	if (name == 0) {
		*id = rtems_task_self();
		return RTEMS_SUCCESSFUL;
	}
	if (node != RTEMS_SEARCH_ALL_NODES && node != RTEMS_SEARCH_LOCAL_NODE && node != LOCAL_NODE)
		return RTEMS_INVALID_NAME;
	list = latchwork_own(&tasks);
	if (list == NULL)
		return status;
	lw_mutex_lock(&list->lock);
	for (struct task *task = list->first; task != NULL; task = task->next)
		/* If several tasks have this name, the one with the lowest index. */
		if (task->name == name && task->state != ENDED &&
		    (status != RTEMS_SUCCESSFUL || INDEX(task->id) < INDEX(*id))) {
			*id = task->id;
			status = RTEMS_SUCCESSFUL;
		}
	lw_mutex_unlock(&list->lock);
	return status;
}

rtems_status_code rtems_task_start(rtems_id id, rtems_task_entry entry_point, rtems_task_argument argument)
{
	rtems_status_code status = RTEMS_SUCCESSFUL;
	struct latchwork_own *list;
	struct task *task;
	if (entry_point == NULL)
		return RTEMS_INVALID_ADDRESS;
	list = latchwork_own(&tasks);
	if (list == NULL)
		return is_gone(id) ? RTEMS_INVALID_ID : RTEMS_INCORRECT_STATE;
	lw_mutex_lock(&list->lock);
	task = find(list, id == RTEMS_SELF ? rtems_task_self() : id);
	if (task == NULL)
		/* If it exists, it runs already, or another process has created it and starts it. */
		status = is_gone(id) ? RTEMS_INVALID_ID : RTEMS_INCORRECT_STATE;
	else if (task->state == ENDED)
		status = RTEMS_INVALID_ID;
	else if (task->state != WAITS)
		status = RTEMS_INCORRECT_STATE;
	else {
		task->state = STARTED;
		task->entry = entry_point;
		task->argument = argument;
		lw_completion_complete(&task->started);
	}
	lw_mutex_unlock(&list->lock);
	return status;
}

void rtems_task_exit(void)
{
	pthread_exit(NULL);
}

static void drop_it(void *task)
{
	drop(task);
}

/* How long a deletion waits for a task that does not wait anywhere, in seconds. */
#define DELETE_TIMEOUT 2

static struct timespec now_and(long nanoseconds)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	time.tv_nsec += nanoseconds;
	if (time.tv_nsec >= 1000000000) {
		time.tv_sec++;
		time.tv_nsec -= 1000000000;
	}
	return time;
}

static int is_before(const struct timespec *one, const struct timespec *other)
{
	return one->tv_sec != other->tv_sec ? one->tv_sec < other->tv_sec : one->tv_nsec < other->tv_nsec;
}

static rtems_status_code wait_for_end(struct task *task)
{
	unsigned pause = 1;
	struct timespec now, end = now_and(0);
	end.tv_sec += DELETE_TIMEOUT;
	for (;;) {
		struct timespec until = now_and((long)pause * 1000000);
		/* Repeated, since the task may have been about to sleep. */
		latchwork_classic_wake();
		/* Its cleanup handlers and destructors have run, and the region has removed it: its id is free. */
		if (lw_completion_timedwait(&task->ended, &until) == 0) {
			if (is_gone(task->id))
				return RTEMS_SUCCESSFUL;
			until = (struct timespec){.tv_nsec = 100000};
			nanosleep(&until, NULL);
		}
		now = now_and(0);
		if (is_before(&end, &now))
			return RTEMS_TIMEOUT;
		if (pause < 32)
			pause *= 2;
	}
}

rtems_status_code rtems_task_delete(rtems_id id)
{
	rtems_status_code status;
	/* Volatile, since pushing a cleanup handler may call setjmp(). */
	volatile rtems_status_code at_end = RTEMS_SUCCESSFUL;
	struct latchwork_own *list;
	struct task *task = NULL;
	if (id == RTEMS_SELF || id == rtems_task_self())
		rtems_task_exit();
	list = latchwork_own(&tasks);
	if (list == NULL)
		return is_gone(id) ? RTEMS_INVALID_ID : RTEMS_NOT_IMPLEMENTED;
	lw_mutex_lock(&list->lock);
	clear_away(list);
	task = find(list, id);
	if (task != NULL) {
		task->references++;
		if (task->state == WAITS) {
			task->state = DELETED;
			lw_completion_complete(&task->started);
		} else if (task->state == ENDED) {
			at_end = RTEMS_INVALID_ID;
		} else {
			/* Its thread exists: it takes the lock before it ends. */
			pthread_cancel(task->thread);
			/* Release: see begin_wait(). */
			__atomic_store_n(&task->stop, 1, __ATOMIC_RELEASE);
		}
	}
	lw_mutex_unlock(&list->lock);
	if (task == NULL)
		return is_gone(id) ? RTEMS_INVALID_ID : RTEMS_NOT_IMPLEMENTED;
	pthread_cleanup_push(drop_it, task);
	status = wait_for_end(task);
	pthread_cleanup_pop(1);
	return status == RTEMS_SUCCESSFUL ? at_end : status;
}

/* ---- names ---- */

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

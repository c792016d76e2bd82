/* Where pthread_cancel() ends a thread that uses the classic directives: as classic.h and the manual have it. */
#include "classic.h"

#include "check.h"

#include <sched.h>

static rtems_id semaphore, queue;
static volatile int waits, passed;

static rtems_status_code obtain(rtems_interval timeout)
{
	return rtems_semaphore_obtain(semaphore, RTEMS_WAIT, timeout);
}

static void call(long which, rtems_interval timeout)
{
	rtems_event_set events;
	char message[8];
	size_t size;
	switch (which) {
	case 0:
		obtain(timeout);
		break;
	case 1:
		rtems_event_receive(RTEMS_EVENT_0, RTEMS_WAIT | RTEMS_EVENT_ANY, timeout, &events);
		break;
	case 2:
		rtems_message_queue_receive(queue, message, &size, RTEMS_WAIT, timeout);
		break;
	default:
		lw_message_queue_receive(queue, message, sizeof message, &size, RTEMS_WAIT, timeout);
	}
}

/* The request comes before the call, which would otherwise wait for ever. */
static void *asked_before(void *which)
{
	pthread_cancel(pthread_self());
	call((long)which, RTEMS_NO_TIMEOUT);
	return NULL;
}

/* It comes during the call, or before; and nothing comes but the end of the time. */
static void *asked_during(void *which)
{
	call((long)which, 1);
	pthread_cancel(pthread_self());
	call((long)which, 1);
	return NULL;
}

/* Releasing is no wait. */
static void *releases(void *none)
{
	pthread_cancel(pthread_self());
	CHECK_IS(rtems_semaphore_release(semaphore), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_event_send(RTEMS_SELF, RTEMS_EVENT_1), RTEMS_SUCCESSFUL);
	passed++;
	pthread_testcancel();
	return none;
}

static void *waiter(void *none)
{
	waits = gettid();
	CHECK_IS(obtain(RTEMS_NO_TIMEOUT), RTEMS_SUCCESSFUL);
	passed++;
	pthread_testcancel();
	return none;
}

static int sleeps(int thread)
{
	char path[64], state = 0;
	FILE *file;
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
	file = fopen(path, "r");
	CHECK(file != NULL);
	CHECK_IS(fscanf(file, "%*d %*s %c", &state), 1);
	fclose(file);
	return state == 'S';
}

/* A request does not end a wait that is under way; one that brings what it was for leaves the request pending. */
static void during(void)
{
	pthread_t thread = start(waiter, NULL);
	int before = passed;
	while (!waits || !sleeps(waits))
		sched_yield();
	pthread_cancel(thread);
	CHECK_IS(rtems_semaphore_release(semaphore), RTEMS_SUCCESSFUL);
	CHECK(join(thread) == PTHREAD_CANCELED);
	/* It may have slept for another cause, before it was called. */
	CHECK(passed == before + 1 || obtain(RTEMS_NO_TIMEOUT) == RTEMS_SUCCESSFUL);
}

/* libc's own sleep is one throughout. */
static void *naps(void *none)
{
	waits = gettid();
	rtems_task_wake_after(UINT32_MAX);
	return none;
}

static void asleep(void)
{
	pthread_t thread;
	waits = 0;
	thread = start(naps, NULL);
	while (!waits || !sleeps(waits))
		sched_yield();
	pthread_cancel(thread);
	CHECK(join(thread) == PTHREAD_CANCELED);
}

int main(void)
{
	long which;
	CHECK_IS(rtems_semaphore_create(rtems_build_name('S', 'E', 'M', 'A'), 0, RTEMS_COUNTING_SEMAPHORE, 0,
					&semaphore),
		 RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_message_queue_create(rtems_build_name('M', 'A', 'I', 'L'), 2, 8, RTEMS_FIFO, &queue),
		 RTEMS_SUCCESSFUL);
	for (which = 0; which < 4; which++) {
		CHECK(join(start(asked_before, (void *)which)) == PTHREAD_CANCELED);
		CHECK(join(start(asked_during, (void *)which)) == PTHREAD_CANCELED);
	}
	CHECK(join(start(releases, NULL)) == PTHREAD_CANCELED);
	CHECK_IS(passed, 1);
	CHECK_IS(obtain(RTEMS_NO_TIMEOUT), RTEMS_SUCCESSFUL);
	during();
	asleep();
	puts("pointed");
	return 0;
}

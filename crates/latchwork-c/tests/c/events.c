/* Events of the classic interface: a send takes those with which it satisfies a task. Compiled as C and as C++. */
#include "classic.h"

#include "check.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

#define ROUNDS 300
#define BOTH (RTEMS_EVENT_1 | RTEMS_EVENT_2)
#define NAME rtems_build_name('E', 'V', 'N', 'T')

static int rounds, thread_id;

static rtems_task receive(rtems_task_argument argument)
{
	rtems_event_set got = 0, left = 0;
	int round;
	(void)argument;
	__atomic_store_n(&thread_id, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	for (round = 1; round <= ROUNDS; round++) {
		rtems_event_set second = round % 2 ? RTEMS_EVENT_1 : RTEMS_EVENT_2;
		rtems_option how = round % 3 ? RTEMS_EVENT_ANY : RTEMS_EVENT_ALL;
		rtems_event_set in = round % 3 ? BOTH : RTEMS_EVENT_1;
		__atomic_store_n(&rounds, round, __ATOMIC_SEQ_CST);
		CHECK_IS(rtems_event_receive(in, RTEMS_WAIT | how, RTEMS_NO_TIMEOUT, &got), RTEMS_SUCCESSFUL);
		CHECK_IS(got, RTEMS_EVENT_1);
		CHECK_IS(rtems_event_receive(second, RTEMS_WAIT, RTEMS_NO_TIMEOUT, &left), RTEMS_SUCCESSFUL);
		CHECK_IS(left, second);
		CHECK_IS(rtems_event_receive(RTEMS_PENDING_EVENTS, RTEMS_WAIT, RTEMS_NO_TIMEOUT, &left),
			 RTEMS_SUCCESSFUL);
		CHECK_IS(left, 0);
	}
	__atomic_store_n(&rounds, round, __ATOMIC_SEQ_CST);
}

/* Whether the receiver is asleep in a futex. */
static int is_asleep(void)
{
	char path[64], text[32] = "";
	FILE *file;
	long call = -1;
	snprintf(path, sizeof path, "/proc/self/task/%d/syscall", __atomic_load_n(&thread_id, __ATOMIC_SEQ_CST));
	file = fopen(path, "r");
	if (file == NULL)
		return 0;
	if (fgets(text, sizeof text, file) != NULL)
		call = strtol(text, NULL, 10);
	fclose(file);
	/* futex(), futex_waitv() */
	return call == SYS_futex || call == 449;
}

static volatile int statuses[2] = {-1, -1};

static void send_to_oneself(int signal)
{
	(void)signal;
	statuses[0] = rtems_event_send(RTEMS_SELF, RTEMS_EVENT_1);
	statuses[1] = rtems_event_system_send(RTEMS_SELF, RTEMS_EVENT_2);
}

static void *receive_from_oneself(void *unused)
{
	rtems_event_set got;
	CHECK(rtems_task_self() != 0);
	__atomic_store_n(&thread_id, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	CHECK_IS(rtems_event_receive(RTEMS_EVENT_1, RTEMS_WAIT, RTEMS_NO_TIMEOUT, &got), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_event_system_receive(RTEMS_EVENT_2, RTEMS_WAIT, RTEMS_NO_TIMEOUT, &got), RTEMS_SUCCESSFUL);
	return unused;
}

/* The handler interrupts a directive. */
static void a_signal_handler_sends(void)
{
	pthread_t thread;
	__atomic_store_n(&thread_id, 0, __ATOMIC_SEQ_CST);
	signal(SIGUSR1, send_to_oneself);
	thread = start(receive_from_oneself, NULL);
	while (__atomic_load_n(&thread_id, __ATOMIC_SEQ_CST) == 0 || !is_asleep())
		sched_yield();
	CHECK_IS(pthread_kill(thread, SIGUSR1), 0);
	join(thread);
	/* lw_classic(3) says: A signal handler may call rtems_event_send() and rtems_event_system_send(), if a directive has */
	CHECK_IS(statuses[0], RTEMS_SUCCESSFUL);
	CHECK_IS(statuses[1], RTEMS_SUCCESSFUL);
}

int main(void)
{
	rtems_id task;
	int round;
	CHECK_IS(rtems_task_create(NAME, RTEMS_MAXIMUM_PRIORITY, 0, 0, 0, &task), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_start(task, receive, 0), RTEMS_SUCCESSFUL);
	for (round = 1; round <= ROUNDS; round++) {
		while (__atomic_load_n(&rounds, __ATOMIC_SEQ_CST) != round || !is_asleep())
			sched_yield();
		CHECK_IS(rtems_event_send(task, RTEMS_EVENT_1), RTEMS_SUCCESSFUL);
		CHECK_IS(rtems_event_send(task, round % 2 ? RTEMS_EVENT_1 : RTEMS_EVENT_2), RTEMS_SUCCESSFUL);
	}
	while (__atomic_load_n(&rounds, __ATOMIC_SEQ_CST) <= ROUNDS)
		sched_yield();
	a_signal_handler_sends();
	puts("received");
	return 0;
}

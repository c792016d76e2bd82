/* Message queues whose receivers wait and do not run: what is on its way to them takes no place. */
#include "classic.h"

#include "check.h"

#include <signal.h>
#include <sys/syscall.h>

#define NAME rtems_build_name('M', 'A', 'I', 'L')
#define MOST 8

struct receiver {
	pthread_t thread;
	pid_t id;
	/* The message's first byte. */
	int got;
};

static rtems_id queue;
static struct receiver receivers[MOST];
/* One byte for each that stands still, and one for each that is to go on. */
static int stopped[2], go[2];

static void stand_still(int signal)
{
	char byte = (char)signal;
	if (write(stopped[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1)
		abort();
}

static void *receive(void *argument)
{
	struct receiver *me = (struct receiver *)argument;
	char buffer[16];
	size_t size = 0;
	__atomic_store_n(&me->id, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	CHECK_IS(rtems_message_queue_receive(queue, buffer, &size, RTEMS_WAIT, RTEMS_NO_TIMEOUT), RTEMS_SUCCESSFUL);
	CHECK_IS(size, 1);
	me->got = buffer[0];
	return NULL;
}

/* A receiver that waits, and does not run. */
static void wait_and_stop(struct receiver *receiver)
{
	char byte;
	pid_t id;
	receiver->id = 0;
	receiver->thread = start(receive, receiver);
	while ((id = __atomic_load_n(&receiver->id, __ATOMIC_ACQUIRE)) == 0 || call_of(getpid(), id) != WAITS_IN_REGION)
		sleep_ms(1);
	CHECK_IS(pthread_kill(receiver->thread, SIGUSR1), 0);
	CHECK_IS(read(stopped[0], &byte, 1), 1);
}

static void let_go(int count)
{
	for (int i = 0; i < count; i++)
		CHECK_IS(write(go[1], "", 1), 1);
	for (int i = 0; i < count; i++)
		join(receivers[i].thread);
}

static void make(rtems_attribute attributes)
{
	CHECK_IS(rtems_message_queue_create(NAME, 1, 16, attributes, &queue), RTEMS_SUCCESSFUL);
}

/* One message is pending, and there is no place for another one. */
static void check_room_for_one(void)
{
	uint32_t pending = 0;
	CHECK_IS(rtems_message_queue_send(queue, "x", 1), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_message_queue_send(queue, "y", 1), RTEMS_TOO_MANY);
	CHECK_IS(rtems_message_queue_urgent(queue, "y", 1), RTEMS_TOO_MANY);
	CHECK_IS(rtems_message_queue_get_number_pending(queue, &pending), RTEMS_SUCCESSFUL);
	CHECK_IS(pending, 1);
	CHECK_IS(rtems_message_queue_flush(queue, &pending), RTEMS_SUCCESSFUL);
	CHECK_IS(pending, 1);
}

static void messages_take_no_place(rtems_attribute attributes)
{
	make(attributes);
	for (int i = 0; i < 3; i++)
		wait_and_stop(&receivers[i]);
	for (char number = 1; number <= 3; number++)
		CHECK_IS(rtems_message_queue_send(queue, &number, 1), RTEMS_SUCCESSFUL);
	check_room_for_one();
	let_go(3);
	for (int i = 0; i < 3; i++)
		CHECK_IS(receivers[i].got, i + 1);
	check_room_for_one();
	CHECK_IS(rtems_message_queue_delete(queue), RTEMS_SUCCESSFUL);
}

static void broadcasts_take_no_place(rtems_attribute attributes)
{
	uint32_t count = 99;
	make(attributes);
	CHECK_IS(rtems_message_queue_broadcast(queue, "z", 1, &count), RTEMS_SUCCESSFUL);
	CHECK_IS(count, 0);
	for (int i = 0; i < MOST; i++) {
		char number = (char)(i + 1);
		wait_and_stop(&receivers[i]);
		CHECK_IS(rtems_message_queue_broadcast(queue, &number, 1, &count), RTEMS_SUCCESSFUL);
		CHECK_IS(count, 1);
	}
	check_room_for_one();
	let_go(MOST);
	for (int i = 0; i < MOST; i++)
		CHECK_IS(receivers[i].got, i + 1);
	check_room_for_one();
	CHECK_IS(rtems_message_queue_delete(queue), RTEMS_SUCCESSFUL);
}

static void *listen_on(void *unused)
{
	char buffer[16];
	size_t size;
	rtems_status_code status;
	(void)unused;
	do
		status = rtems_message_queue_receive(queue, buffer, &size, RTEMS_WAIT, RTEMS_NO_TIMEOUT);
	while (status == RTEMS_SUCCESSFUL);
	/* Or it came too late to wait. */
	CHECK(status == RTEMS_OBJECT_WAS_DELETED || status == RTEMS_INVALID_ID);
	return NULL;
}

static void broadcasts_in_a_loop_succeed(rtems_attribute attributes)
{
	pthread_t listeners[3];
	uint32_t count, reached = 0;
	make(attributes);
	/* Two have something to read all the while. */
	for (int i = 0; i < 2; i++) {
		wait_and_stop(&receivers[i]);
		CHECK_IS(rtems_message_queue_broadcast(queue, "a", 1, &count), RTEMS_SUCCESSFUL);
		CHECK_IS(count, 1);
	}
	for (int i = 0; i < 3; i++)
		listeners[i] = start(listen_on, NULL);
	/* Some of them reach a receiver. */
	for (int i = 0; i < 20000 || reached < 100; i++) {
		CHECK_IS(rtems_message_queue_broadcast(queue, "b", 1, &count), RTEMS_SUCCESSFUL);
		reached += count;
	}
	let_go(2);
	CHECK_IS(rtems_message_queue_send(queue, "x", 1), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_message_queue_delete(queue), RTEMS_SUCCESSFUL);
	for (int i = 0; i < 3; i++)
		join(listeners[i]);
}

int main(void)
{
	const rtems_attribute disciplines[] = {RTEMS_FIFO, RTEMS_PRIORITY};
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = stand_still;
	CHECK_IS(sigaction(SIGUSR1, &action, NULL), 0);
	CHECK_IS(pipe(stopped), 0);
	CHECK_IS(pipe(go), 0);
	for (int i = 0; i < 2; i++) {
		messages_take_no_place(disciplines[i]);
		broadcasts_take_no_place(disciplines[i]);
		broadcasts_in_a_loop_succeed(disciplines[i]);
	}
	puts("placed");
	return 0;
}

/*
 * Message queues whose receivers wait and do not run: what is on its way to them takes no place. And the memory of queues,
 * in regions that are full.
 */
#include "classic.h"

#include "check.h"

#include <sched.h>
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
	/* lw_classic(3) says: If a receiver waits, a send hands its message to that receiver, and the message is not pending */
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

/* ---- memory ---- */

#define LARGE 8000

/* A process of its own, with a region of this many MiB. */
static void with_memory(size_t memory, uint16_t queues, void (*body)(void))
{
	pid_t child = fork();
	if (child == 0) {
		struct lw_classic_options options;
		memset(&options, 0, sizeof options);
		options.memory = memory << 20;
		options.message_queues = queues;
		alarm(WATCHDOG);
		CHECK_IS(lw_classic_configure(&options), 0);
		body();
		_exit(0);
	}
	CHECK_IS(exit_of(child), 0);
}

static rtems_status_code create(uint32_t count, size_t size, rtems_id *id)
{
	return rtems_message_queue_create(NAME, count, size, RTEMS_FIFO, id);
}

/* Of 4 MiB this takes more than a half. */
static rtems_status_code create_most(rtems_id *id)
{
	return create(5, 1 << 19, id);
}

static void memory_of_queues(void)
{
	rtems_id other;
	/* lw_classic(3) says: A message queue's memory is allocated when the queue is created, and freed when the queue is deleted */
	CHECK_IS(create_most(&queue), RTEMS_SUCCESSFUL);
	CHECK_IS(create_most(&other), RTEMS_UNSATISFIED);
	CHECK_IS(rtems_message_queue_delete(queue), RTEMS_SUCCESSFUL);
	CHECK_IS(create_most(&other), RTEMS_SUCCESSFUL);
}

/* Until the region has no memory for the smallest queue. */
static void fill_region(void)
{
	rtems_id id;
	for (size_t size = 1 << 20; size > 0; size /= 2) {
		rtems_status_code status;
		do
			status = create(1, size, &id);
		while (status == RTEMS_SUCCESSFUL);
		CHECK_IS(status, RTEMS_UNSATISFIED);
	}
}

static volatile int is_over;

struct large {
	pthread_t thread;
	volatile pid_t id;
	/* -1 while it waits. */
	volatile int status;
	char message[LARGE];
};

static void *receive_large(void *argument)
{
	struct large *me = (struct large *)argument;
	size_t size;
	me->id = (pid_t)syscall(SYS_gettid);
	me->status = rtems_message_queue_receive(queue, me->message, &size, RTEMS_WAIT, RTEMS_NO_TIMEOUT);
	/* So that it can be looked at. */
	while (!is_over)
		sleep_ms(1);
	return NULL;
}

static void wait_with_memory(struct large *receiver)
{
	receiver->status = -1;
	receiver->thread = start(receive_large, receiver);
	while (receiver->id == 0 || (receiver->status == -1 && call_of(getpid(), receiver->id) != WAITS_IN_REGION))
		sleep_ms(1);
}

static void send_large(char letter)
{
	static char message[LARGE];
	uint32_t pending = 99;
	message[LARGE - 1] = letter;
	CHECK_IS(rtems_message_queue_send(queue, message, LARGE), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_message_queue_get_number_pending(queue, &pending), RTEMS_SUCCESSFUL);
	CHECK_IS(pending, 0);
}

static void receivers_in_a_full_region(void)
{
	static struct large receivers[60];
	static char message[LARGE];
	uint32_t reached = 0;
	int waiting = 0;
	size_t size;
	char byte;
	CHECK_IS(create(3, LARGE, &queue), RTEMS_SUCCESSFUL);
	while (waiting < 8)
		wait_with_memory(&receivers[waiting++]);
	fill_region();
	/* lw_classic(3) says: If the memory cannot be allocated, the receive fails with RTEMS_INTERNAL_ERROR */
	do {
		CHECK(waiting < 60);
		wait_with_memory(&receivers[waiting]);
	} while (receivers[waiting++].status == -1);
	waiting--;
	CHECK_IS(receivers[waiting].status, RTEMS_INTERNAL_ERROR);
	/* lw_classic(3) says: Such a message needs additional memory until the receiver has run */
	CHECK_IS(pthread_kill(receivers[0].thread, SIGUSR1), 0);
	CHECK_IS(read(stopped[0], &byte, 1), 1);
	send_large('m');
	CHECK_IS(rtems_message_queue_receive(queue, message, &size, RTEMS_WAIT, 1), RTEMS_INTERNAL_ERROR);
	CHECK_IS(write(go[1], "", 1), 1);
	while (receivers[0].status == -1)
		sleep_ms(1);
	CHECK_IS(rtems_message_queue_receive(queue, message, &size, RTEMS_WAIT, 1), RTEMS_TIMEOUT);
	/* lw_classic(3) says: Before a receive waits, it allocates this memory if the queue has too little of it */
	/* lw_classic(3) says: The queue keeps the memory */
	/* lw_classic(3) says: Sends and broadcasts allocate nothing */
	for (int i = 1; i < 4; i++)
		send_large('m');
	message[LARGE - 1] = 'm';
	CHECK_IS(rtems_message_queue_broadcast(queue, message, LARGE, &reached), RTEMS_SUCCESSFUL);
	CHECK_IS(reached, waiting - 4);
	is_over = 1;
	for (int i = 0; i <= waiting; i++) {
		join(receivers[i].thread);
		CHECK_IS(receivers[i].status, i < waiting ? RTEMS_SUCCESSFUL : RTEMS_INTERNAL_ERROR);
		CHECK_IS(receivers[i].message[LARGE - 1], i < waiting ? 'm' : 0);
	}
	/* lw_classic(3) says: It suffices for the maximum number of pending messages */
	for (int i = 0; i < 4; i++)
		CHECK_IS(rtems_message_queue_send(queue, message, LARGE), i < 3 ? RTEMS_SUCCESSFUL : RTEMS_TOO_MANY);
}

/* ---- deletion while a task copies ---- */

static char *far_away;
static volatile int copies, may_copy;

/* The task has come to memory that it may not use yet. */
static void stand_in_copy(int signal)
{
	(void)signal;
	copies = 1;
	while (!may_copy)
		sched_yield();
}

static void *copy_in(void *unused)
{
	CHECK_IS(rtems_message_queue_send(queue, far_away, LARGE), RTEMS_INVALID_ID);
	return unused;
}

static void *copy_out(void *unused)
{
	size_t size = 0;
	CHECK_IS(lw_message_queue_receive(queue, far_away, LARGE, &size, RTEMS_WAIT, 0), RTEMS_SUCCESSFUL);
	CHECK_IS(size, LARGE);
	return unused;
}

static void deletion_while_a_task_copies(void)
{
	static char message[LARGE];
	signal(SIGSEGV, stand_in_copy);
	far_away = (char *)share(LARGE);
	for (int is_out = 0; is_out < 2; is_out++) {
		pthread_t thread;
		rtems_id other, next;
		CHECK_IS(create_most(&queue), RTEMS_SUCCESSFUL);
		if (is_out)
			CHECK_IS(rtems_message_queue_send(queue, message, LARGE), RTEMS_SUCCESSFUL);
		CHECK_IS(mprotect(far_away, LARGE, PROT_NONE), 0);
		copies = may_copy = 0;
		thread = start(is_out ? copy_out : copy_in, NULL);
		while (!copies)
			sleep_ms(1);
		CHECK_IS(rtems_message_queue_delete(queue), RTEMS_SUCCESSFUL);
		CHECK_IS(rtems_message_queue_send(queue, "", 1), RTEMS_INVALID_ID);
		/* lw_classic(3) says: The memory of a deleted queue is freed at once, unless a task is copying a message out of it or */
		CHECK_IS(create_most(&next), RTEMS_UNSATISFIED);
		/* lw_classic(3) says: Until that task has finished, the deleted queue still counts towards the maximum */
		CHECK_IS(create(1, 1, &other), RTEMS_SUCCESSFUL);
		CHECK_IS(create(1, 1, &next), RTEMS_TOO_MANY);
		CHECK_IS(mprotect(far_away, LARGE, PROT_READ | PROT_WRITE), 0);
		may_copy = 1;
		join(thread);
		for (int i = 0; i < 3; i++) {
			CHECK_IS(create_most(&next), RTEMS_SUCCESSFUL);
			CHECK_IS(rtems_message_queue_delete(next), RTEMS_SUCCESSFUL);
		}
		CHECK_IS(rtems_message_queue_delete(other), RTEMS_SUCCESSFUL);
	}
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
	with_memory(4, 2, memory_of_queues);
	with_memory(4, 2000, receivers_in_a_full_region);
	with_memory(4, 2, deletion_while_a_task_copies);
	for (int i = 0; i < 2; i++) {
		messages_take_no_place(disciplines[i]);
		broadcasts_take_no_place(disciplines[i]);
		broadcasts_in_a_loop_succeed(disciplines[i]);
	}
	puts("placed");
	return 0;
}

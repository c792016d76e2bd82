/*
 * What lw_queue(3) says of queues, orders and waits: each sentence of its description, before the lines that show it. In C and in C++.
 * The test in manual.rs compares these sentences with the page.
 */
#include "said.h"

#include <sched.h>
#include <sys/syscall.h>

/* A thread that waits for one message. */
struct receiver {
	lw_queue_t *queue;
	pthread_t thread;
	int real_time;
	pid_t id;
	int error;
	char letter;
	size_t bytes;
	unsigned priority;
};

static void *receive(void *argument)
{
	struct receiver *me = (struct receiver *)argument;
	struct sched_param own;
	char buffer[64] = "";
	own.sched_priority = me->real_time;
	if (me->real_time)
		CHECK_IS(pthread_setschedparam(pthread_self(), SCHED_FIFO, &own), 0);
	__atomic_store_n(&me->id, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	me->error = lw_queue_receive(me->queue, buffer, sizeof buffer, &me->bytes, &me->priority);
	me->letter = buffer[0];
	return NULL;
}

/* Starts a receiver, and waits until it sleeps. */
static void begin(struct receiver *receiver, lw_queue_t *queue, int real_time)
{
	pid_t id;
	memset(receiver, 0, sizeof *receiver);
	receiver->queue = queue;
	receiver->real_time = real_time;
	receiver->thread = start(receive, receiver);
	while ((id = __atomic_load_n(&receiver->id, __ATOMIC_ACQUIRE)) == 0 || call_of(getpid(), id) != WAITS_IN_REGION)
		sleep_ms(1);
}

static char end(struct receiver *receiver)
{
	join(receiver->thread);
	CHECK_IS(receiver->error, 0);
	return receiver->letter;
}

static void kinds_of_queues(void)
{
	lw_queue_t *of_region = made(region, "of region", 4, LW_QUEUE_RACING), *own, *again, *none;
	pid_t child;
	/* lw_queue(3) says: A queue of a region (lw_region(3)) has a name, and all tasks of the region can use it */
	/* lw_queue(3) says: lw_queue_open() opens the queue of this name, which a region must contain already */
	CHECK_IS(lw_queue_open(&again, region, "of region"), 0);
	CHECK_IS(lw_queue_open(&none, region, "no such"), ENOENT);
	CHECK_IS(send_letter(again, 'a', 0), 0);
	CHECK_IS(letter_of(of_region), 'a');
	CHECK_IS(lw_queue_close(again), 0);
	/* lw_queue(3) says: If a queue of this name exists with the same capacity, max_message and order, the call */
	/* lw_queue(3) says: The call stores a handle, which the other functions take */
	CHECK_IS(lw_queue_create(&again, region, "of region", 4, 64, LW_QUEUE_RACING), 0);
	CHECK_IS(send_letter(of_region, 'c', 0), 0);
	CHECK_IS(letter_of(again), 'c');
	CHECK_IS(lw_queue_create(&none, region, "of region", 5, 64, LW_QUEUE_RACING), EEXIST);
	CHECK_IS(lw_queue_create(&none, region, "of region", 4, 65, LW_QUEUE_RACING), EEXIST);
	CHECK_IS(lw_queue_create(&none, region, "of region", 4, 64, LW_QUEUE_FIFO), EEXIST);
	/* lw_queue(3) says: Both numbers are from 1 to 2^30 */
	CHECK_IS(lw_queue_create(&none, region, "n", 0, 64, LW_QUEUE_FIFO), EINVAL);
	CHECK_IS(lw_queue_create(&none, region, "n", 4, 0, LW_QUEUE_FIFO), EINVAL);
	CHECK_IS(lw_queue_create(&none, region, "n", (1u << 30) + 1, 64, LW_QUEUE_FIFO), EINVAL);
	CHECK_IS(lw_queue_create(&none, region, "n", 4, (1u << 30) + 1, LW_QUEUE_FIFO), EINVAL);
	/* lw_queue(3) says: A queue of a region continues to exist */
	CHECK_IS(send_letter(again, 'd', 0), 0);
	CHECK_IS(lw_queue_close(again), 0);
	CHECK_IS(lw_queue_close(of_region), 0);
	CHECK_IS(lw_queue_open(&again, region, "of region"), 0);
	CHECK_IS(letter_of(again), 'd');
	gone(again);
	/* lw_queue(3) says: If region is NULL, the call makes a queue without a region */
	/* lw_queue(3) says: The name of such a queue may be NULL */
	own = made(NULL, NULL, 2, LW_QUEUE_FIFO);
	/* lw_queue(3) says: A queue without a region belongs to the process that made it, and to the children of */
	/* lw_queue(3) says: A queue without a region ceases to exist when all its processes have closed their */
	if ((child = fork()) == 0) {
		CHECK_IS(send_letter(own, 'e', 0), 0);
		CHECK_IS(lw_queue_close(own), 0);
		_exit(0);
	}
	CHECK_IS(exit_of(child), 0);
	CHECK_IS(letter_of(own), 'e');
	CHECK_IS(lw_queue_close(own), 0);
	/* lw_queue(3) says: latchwork(1) shows this name, but lw_queue_open() does not find the queue */
	own = made(NULL, "own", 2, LW_QUEUE_FIFO);
	CHECK_IS(lw_queue_open(&none, region, "own"), ENOENT);
	gone(own);
}

static void limits(void)
{
	lw_queue_t *queue = made(region, "limits", 2, LW_QUEUE_RACING);
	char message[65];
	memset(message, 'm', sizeof message);
	/* lw_queue(3) says: The queue has room for capacity messages of at most max_message bytes each */
	CHECK_IS(lw_queue_trysend(queue, message, 65, 0), EMSGSIZE);
	CHECK_IS(lw_queue_trysend(queue, message, 64, 0), 0);
	CHECK_IS(lw_queue_trysend(queue, message, 64, 0), 0);
	CHECK_IS(lw_queue_trysend(queue, message, 1, 0), EAGAIN);
	/* lw_queue(3) says: The values with which the queue was made */
	CHECK(state_of(queue).capacity == 2 && state_of(queue).max_message == 64);
	/* lw_queue(3) says: The number of messages that could be received now */
	CHECK_IS(state_of(queue).ready, 2);
	gone(queue);
}

static void priorities(void)
{
	lw_queue_t *queue = made(region, "priorities", 8, LW_QUEUE_RACING);
	char buffer[64];
	size_t bytes = 0;
	unsigned priority = 0;
	/* lw_queue(3) says: Messages are received by priority */
	/* lw_queue(3) says: Messages of the same priority are received in the order in which they were sent; */
	/* lw_queue(3) says: Urgent messages are received before all others */
	/* lw_queue(3) says: Of several urgent messages, the one that was sent last is received first */
	CHECK_IS(send_letter(queue, 'e', 1), 0);
	CHECK_IS(send_letter(queue, 'c', 2), 0);
	CHECK_IS(send_letter(queue, 'f', 1), 0);
	CHECK_IS(send_letter(queue, 'd', 2), 0);
	CHECK_IS(send_letter(queue, 'b', LW_QUEUE_URGENT), 0);
	CHECK_IS(send_letter(queue, 'a', LW_QUEUE_URGENT), 0);
	for (char letter = 'a'; letter <= 'f'; letter++)
		CHECK_IS(letter_of(queue), letter);
	/* lw_queue(3) says: A priority is a number from 0 (the lowest) to LW_QUEUE_PRIORITY_MAX (32767), or */
	CHECK_IS(LW_QUEUE_PRIORITY_MAX, 32767);
	CHECK_IS(send_letter(queue, 'h', 0), 0);
	CHECK_IS(send_letter(queue, 'g', LW_QUEUE_PRIORITY_MAX), 0);
	CHECK_IS(send_letter(queue, 'x', LW_QUEUE_PRIORITY_MAX + 1), EINVAL);
	CHECK(letter_of(queue) == 'g' && letter_of(queue) == 'h');
	/* lw_queue(3) says: A receive copies the message to buffer; the argument room is the size of this buffer */
	/* lw_queue(3) says: It stores the length of the message in *bytes, and its priority in *priority, unless */
	CHECK_IS(lw_queue_send(queue, "three", 5, 7), 0);
	CHECK_IS(lw_queue_tryreceive(queue, buffer, 4, NULL, NULL), EMSGSIZE);
	CHECK_IS(lw_queue_tryreceive(queue, buffer, 5, &bytes, &priority), 0);
	CHECK(bytes == 5 && priority == 7 && memcmp(buffer, "three", 5) == 0);
	gone(queue);
}

static void orders(void)
{
	struct receiver first, second;
	struct sched_param none;
	lw_queue_t *queue = made(region, "racing", 4, LW_QUEUE_RACING);
	/* lw_queue(3) says: The receiver that runs first, even if it has not waited */
	/* lw_queue(3) says: A message never has to wait for one particular task to run */
	begin(&first, queue, 0);
	CHECK_IS(send_letter(queue, 'a', 0), 0);
	if (letter_of(queue) == 'a')
		CHECK_IS(send_letter(queue, 'a', 0), 0);
	CHECK_IS(end(&first), 'a');
	gone(queue);
	/* lw_queue(3) says: The receiver that has waited longest */
	queue = made(region, "in order", 4, LW_QUEUE_FIFO);
	begin(&first, queue, 0);
	begin(&second, queue, 0);
	CHECK_IS(send_letter(queue, 'b', 0), 0);
	CHECK_IS(letter_of(queue), 0);
	CHECK_IS(send_letter(queue, 'c', 0), 0);
	CHECK_IS(end(&first), 'b');
	CHECK_IS(end(&second), 'c');
	gone(queue);
	/* lw_queue(3) says: Of receivers with the same priority, the one that has waited longest */
	queue = made(region, "by priority", 4, LW_QUEUE_PRIORITY);
	begin(&first, queue, 0);
	begin(&second, queue, 0);
	CHECK_IS(send_letter(queue, 'd', 0), 0);
	CHECK_IS(send_letter(queue, 'e', 0), 0);
	CHECK_IS(end(&first), 'd');
	CHECK_IS(end(&second), 'e');
	none.sched_priority = 1;
	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &none) != 0) {
		fprintf(stderr, "skipped: real-time priorities, without the right to them\n");
		gone(queue);
		return;
	}
	none.sched_priority = 0;
	CHECK_IS(pthread_setschedparam(pthread_self(), SCHED_OTHER, &none), 0);
	/* lw_queue(3) says: The receiver of the highest real-time priority */
	begin(&first, queue, 2);
	begin(&second, queue, 3);
	CHECK_IS(send_letter(queue, 'f', 0), 0);
	CHECK_IS(send_letter(queue, 'g', 0), 0);
	CHECK_IS(end(&second), 'f');
	CHECK_IS(end(&first), 'g');
	gone(queue);
}

static void broadcasts(void)
{
	struct receiver first, second;
	uint32_t reached = 0;
	lw_queue_t *queue = made(region, "broadcasts", 1, LW_QUEUE_RACING);
	begin(&first, queue, 0);
	begin(&second, queue, 0);
	/* lw_queue(3) says: lw_queue_broadcast() gives a copy of the message to each task that waits in a receive */
	/* lw_queue(3) says: If receivers is not NULL, the call stores the number of these tasks in *receivers */
	CHECK_IS(lw_queue_broadcast(queue, "b", 1, &reached), 0);
	CHECK_IS(reached, 2);
	CHECK(end(&first) == 'b' && end(&second) == 'b');
	/* lw_queue(3) says: The receives of these tasks store LW_QUEUE_BROADCAST as the priority of the message */
	CHECK(first.priority == LW_QUEUE_BROADCAST && second.priority == LW_QUEUE_BROADCAST);
	/* lw_queue(3) says: It never waits */
	CHECK_IS(send_letter(queue, 'c', 0), 0);
	CHECK_IS(lw_queue_broadcast(queue, "b", 1, NULL), 0);
	CHECK_IS(letter_of(queue), 'c');
	gone(queue);
}

static void ends(void)
{
	lw_queue_t *queue = made(region, "ends", 1, LW_QUEUE_FIFO), *other;
	lw_message_t message;
	struct receiver waits;
	uint32_t count = 9;
	/* lw_queue(3) says: lw_queue_close() closes the handle */
	/* lw_queue(3) says: It fails with EBUSY while a thread still has a message or a batch in hand that it got */
	CHECK_IS(lw_queue_reserve(queue, &message, 0, NULL), 0);
	CHECK_IS(lw_queue_close(queue), EBUSY);
	CHECK_IS(lw_message_cancel(&message), 0);
	/* lw_queue(3) says: lw_queue_flush() discards the messages that could be received now */
	/* lw_queue(3) says: If count is not NULL, it stores their number in *count */
	CHECK_IS(send_letter(queue, 'a', 0), 0);
	CHECK_IS(lw_queue_flush(queue, &count), 0);
	CHECK_IS(count, 1);
	CHECK_IS(letter_of(queue), 0);
	CHECK_IS(lw_queue_flush(queue, NULL), 0);
	/* lw_queue(3) says: lw_queue_delete() deletes the queue */
	/* lw_queue(3) says: From then on, every task's calls for this queue fail with EIDRM */
	/* lw_queue(3) says: Calls that are waiting fail at once */
	CHECK_IS(lw_queue_open(&other, region, "ends"), 0);
	begin(&waits, other, 0);
	CHECK_IS(lw_queue_delete(queue), 0);
	join(waits.thread);
	CHECK_IS(waits.error, EIDRM);
	CHECK_IS(send_letter(other, 'b', 0), EIDRM);
	CHECK_IS(send_letter(queue, 'b', 0), EIDRM);
	/* lw_queue(3) says: The handle still has to be closed */
	CHECK_IS(lw_queue_close(queue), 0);
	CHECK_IS(lw_queue_close(other), 0);
}

static void *send_one(void *queue)
{
	CHECK_IS(lw_queue_send((lw_queue_t *)queue, "s", 1, 0), 0);
	return NULL;
}

static void waits_and_times(void)
{
	lw_queue_t *queue = made(region, "waits", 1, LW_QUEUE_FIFO);
	struct timespec soon = in_ms(CLOCK_MONOTONIC, 2), soon_by_date = in_ms(CLOCK_REALTIME, 2);
	struct receiver waits;
	pthread_t sender;
	lw_message_t message;
	char buffer[64];
	/* lw_queue(3) says: lw_queue_send() waits while the queue is full */
	CHECK_IS(send_letter(queue, 'a', 0), 0);
	sender = start(send_one, queue);
	sleep_ms(2);
	CHECK_IS(letter_of(queue), 'a');
	join(sender);
	CHECK_IS(letter_of(queue), 's');
	/* lw_queue(3) says: lw_queue_receive() waits while the queue is empty */
	begin(&waits, queue, 0);
	CHECK_IS(send_letter(queue, 'b', 0), 0);
	CHECK(end(&waits) == 'b' && waits.bytes == 1);
	/* lw_queue(3) says: The functions with try in their names do not wait */
	CHECK_IS(lw_queue_tryreceive(queue, buffer, sizeof buffer, NULL, NULL), EAGAIN);
	/* lw_queue(3) says: The functions with timed in their names stop waiting at the given time of */
	CHECK_IS(lw_queue_timedreceive(queue, buffer, sizeof buffer, NULL, NULL, &soon), ETIMEDOUT);
	/* lw_queue(3) says: The functions with clock in their names take the clock as an argument, which may also */
	CHECK_IS(lw_queue_clockreceive(queue, buffer, sizeof buffer, NULL, NULL, CLOCK_REALTIME, &soon_by_date),
		 ETIMEDOUT);
	CHECK_IS(lw_queue_clockreceive(queue, buffer, sizeof buffer, NULL, NULL, CLOCK_MONOTONIC, &soon),
		 ETIMEDOUT);
	/* lw_queue(3) says: These functions stop waiting at this time of CLOCK_MONOTONIC */
	CHECK_IS(lw_queue_hold(queue, &message, &soon), ETIMEDOUT);
	/* lw_queue(3) says: They wait without limit if time is NULL, and do not wait if it is &lw_no_wait */
	CHECK_IS(lw_queue_hold(queue, &message, &lw_no_wait), EAGAIN);
	sender = start(send_one, queue);
	CHECK_IS(lw_queue_hold(queue, &message, NULL), 0);
	CHECK_IS(lw_message_done(&message), 0);
	join(sender);
	gone(queue);
}

int main(void)
{
	make_region();
	kinds_of_queues();
	limits();
	priorities();
	orders();
	broadcasts();
	ends();
	waits_and_times();
	puts("said");
	return 0;
}

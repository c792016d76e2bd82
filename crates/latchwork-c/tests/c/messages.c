/* Queues in C: orders, limits, deaths, descriptors, cancellation, and each error that the header names. */
#include "check.h"

#include <latchwork.h>
#include <latchwork/queue.h>
#include <poll.h>
#include <signal.h>

static lw_region_t *region;

static void receives(lw_queue_t *queue, const char *text, unsigned priority)
{
	char buffer[64];
	size_t bytes = 99;
	unsigned got = 99;
	CHECK_IS(lw_queue_tryreceive(queue, buffer, sizeof buffer, &bytes, &got), 0);
	CHECK_IS(bytes, strlen(text));
	CHECK(memcmp(buffer, text, bytes) == 0);
	CHECK_IS(got, priority);
}

static int send_text(lw_queue_t *queue, const char *text, unsigned priority)
{
	return lw_queue_trysend(queue, text, strlen(text), priority);
}

static void test_order_and_limits(lw_queue_t *queue)
{
	char buffer[64];
	size_t bytes = 0;
	struct timespec soon, never = {0, -1};
	struct lw_queue_state state;
	uint32_t count = 99;

	CHECK_IS(send_text(queue, "low", 0), 0);
	CHECK_IS(send_text(queue, "high", LW_QUEUE_PRIORITY_MAX), 0);
	CHECK_IS(send_text(queue, "low too", 0), 0);
	CHECK_IS(send_text(queue, "at once", LW_QUEUE_URGENT), 0);
	/* lw_queue(3), EAGAIN: The call would have to wait, but must not */
	CHECK_IS(send_text(queue, "more", 1), EAGAIN);
	soon = in_ms(CLOCK_MONOTONIC, 5);
	/* lw_queue(3), ETIMEDOUT: The time has passed */
	CHECK_IS(lw_queue_timedsend(queue, "more", 4, 1, &soon), ETIMEDOUT);
	soon = in_ms(CLOCK_REALTIME, 5);
	CHECK_IS(lw_queue_clocksend(queue, "more", 4, 1, CLOCK_REALTIME, &soon), ETIMEDOUT);
	/* lw_queue(3), EINVAL: a number or a time is out of range */
	CHECK_IS(lw_queue_timedsend(queue, "more", 4, 1, &never), EINVAL);
	CHECK_IS(lw_queue_timedsend(queue, "more", 4, 1, NULL), EINVAL);
	CHECK_IS(lw_queue_clocksend(queue, "more", 4, 1, 12345, &soon), EINVAL);
	CHECK_IS(lw_queue_get_state(queue, &state), 0);
	CHECK(state.capacity == 4 && state.max_message == 32 && state.ready == 4 && state.in_flight == 0);
	receives(queue, "at once", LW_QUEUE_URGENT);
	receives(queue, "high", LW_QUEUE_PRIORITY_MAX);
	receives(queue, "low", 0);
	/* A time that is invalid does not matter if there is a message. */
	CHECK_IS(lw_queue_timedreceive(queue, buffer, sizeof buffer, &bytes, NULL, &never), 0);
	CHECK_IS(bytes, 7);
	CHECK_IS(lw_queue_timedreceive(queue, buffer, sizeof buffer, &bytes, NULL, &never), EINVAL);
	soon = in_ms(CLOCK_MONOTONIC, 5);
	CHECK_IS(lw_queue_timedreceive(queue, buffer, sizeof buffer, NULL, NULL, &soon), ETIMEDOUT);
	soon = in_ms(CLOCK_REALTIME, 5);
	CHECK_IS(lw_queue_clockreceive(queue, buffer, sizeof buffer, NULL, NULL, CLOCK_REALTIME, &soon), ETIMEDOUT);
	CHECK_IS(lw_queue_tryreceive(queue, buffer, sizeof buffer, NULL, NULL), EAGAIN);
	CHECK(strstr(lw_error_text(), "empty") != NULL);

	/* lw_queue(3), EMSGSIZE: The message is longer than the queue's max_message */
	CHECK_IS(lw_queue_send(queue, buffer, 33, 0), EMSGSIZE);
	CHECK_IS(lw_queue_send(queue, NULL, 1, 0), EINVAL);
	CHECK_IS(lw_queue_send(queue, buffer, 1, LW_QUEUE_PRIORITY_MAX + 1), EINVAL);
	CHECK_IS(lw_queue_send(NULL, buffer, 1, 0), EINVAL);
	CHECK_IS(send_text(queue, "", 3), 0);
	receives(queue, "", 3);
	CHECK_IS(send_text(queue, "0123456789", 0), 0);
	CHECK_IS(lw_queue_receive(queue, buffer, 9, &bytes, NULL), EMSGSIZE);
	CHECK_IS(bytes, 10);
	CHECK_IS(lw_queue_receive(queue, NULL, 10, &bytes, NULL), EINVAL);
	receives(queue, "0123456789", 0);
	CHECK_IS(send_text(queue, "a", 0), 0);
	CHECK_IS(send_text(queue, "b", 0), 0);
	CHECK_IS(lw_queue_flush(queue, &count), 0);
	CHECK_IS(count, 2);
	CHECK_IS(lw_queue_flush(queue, NULL), 0);
	CHECK_IS(lw_queue_broadcast(queue, "all", 3, &count), 0);
	CHECK_IS(count, 0);
}

static void *end_it(void *message)
{
	return (void *)(intptr_t)lw_message_done((lw_message_t *)message);
}

static void test_in_place(lw_queue_t *queue)
{
	lw_message_t place, other, held;
	char buffer[8];
	size_t bytes;

	CHECK_IS(lw_queue_reserve(queue, &place, 5, &lw_no_wait), 0);
	CHECK_IS(place.bytes, 32);
	memcpy(place.data, "in place", 8);
	CHECK_IS(lw_queue_hold(queue, &held, &lw_no_wait), EAGAIN);
	CHECK_IS(lw_message_done(&place), EINVAL);
	CHECK_IS(lw_message_send(&place, 8), 0);
	CHECK_IS(lw_message_send(&place, 8), EINVAL);
	CHECK_IS(lw_queue_reserve(queue, &other, 0, NULL), 0);
	CHECK_IS(lw_message_cancel(&other), 0);
	CHECK_IS(lw_queue_reserve(queue, &other, 0, NULL), 0);
	CHECK_IS(lw_message_send(&other, 33), EMSGSIZE);
	CHECK_IS(lw_message_cancel(&other), EINVAL);

	CHECK_IS(lw_queue_hold(queue, &held, NULL), 0);
	CHECK(held.bytes == 8 && memcmp(held.data, "in place", 8) == 0);
	CHECK(held.priority == 5 && held.deliveries == 1);
	CHECK_IS(lw_message_cancel(&held), EINVAL);
	/* A message belongs to one thread. */
	/* lw_queue(3), EPERM: The message or the batch is in hand of another thread */
	CHECK_IS((intptr_t)join(start(end_it, &held)), EPERM);
	CHECK_IS(lw_message_give_back(&held), 0);
	CHECK_IS(lw_message_give_back(&held), EINVAL);
	CHECK_IS(lw_queue_hold(queue, &held, NULL), 0);
	CHECK_IS(held.deliveries, 2);
	CHECK_IS(lw_message_done(&held), 0);
	CHECK_IS(lw_queue_tryreceive(queue, buffer, sizeof buffer, &bytes, NULL), EAGAIN);
}

/* A receiver that is killed with a message in hand: the next one gets it. */
static void test_death(lw_queue_t *queue)
{
	lw_message_t held;
	pid_t child;
	CHECK_IS(send_text(queue, "work", 7), 0);
	child = fork();
	if (child == 0) {
		CHECK_IS(lw_queue_hold(queue, &held, NULL), 0);
		raise(SIGKILL);
	}
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	CHECK_IS(lw_queue_hold(queue, &held, NULL), 0);
	CHECK(held.deliveries == 2 && held.priority == 7 && memcmp(held.data, "work", 4) == 0);
	child = fork();
	if (child == 0)
		_exit(lw_message_done(&held));
	/* lw_queue(3), EPERM: or of the process from which this one was forked */
	CHECK_IS(exit_of(child), EPERM);
	CHECK_IS(lw_message_done(&held), 0);
}

/* A message in hand keeps the task alive after its thread, and with it the thread's region mutexes. */
struct kept {
	lw_queue_t *queue;
	lw_region_mutex_t *lock;
};

static void *end_with_both(void *argument)
{
	struct kept *kept = (struct kept *)argument;
	lw_message_t message;
	CHECK_IS(lw_queue_hold(kept->queue, &message, NULL), 0);
	CHECK_IS(lw_mutex_lock(kept->lock), 0);
	return NULL;
}

static void test_end_with_a_region_mutex(lw_queue_t *queue)
{
	struct kept kept;
	pid_t child;
	kept.queue = queue;
	kept.lock = (lw_region_mutex_t *)lw_region_zalloc(region, sizeof *kept.lock);
	CHECK(kept.lock != NULL);
	CHECK_IS(send_text(queue, "in hand", 0), 0);
	child = fork();
	if (child == 0) {
		struct timespec soon;
		join(start(end_with_both, &kept));
		soon = in_ms(CLOCK_MONOTONIC, 20);
		CHECK_IS(lw_mutex_timedlock(kept.lock, &soon), ETIMEDOUT);
		raise(SIGKILL);
	}
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	CHECK_IS(lw_mutex_lock(kept.lock), EOWNERDEAD);
	CHECK_IS(lw_mutex_consistent(kept.lock), 0);
	CHECK_IS(lw_mutex_unlock(kept.lock), 0);
	receives(queue, "in hand", 0);
	lw_region_free(region, kept.lock);
}

static void test_blocks(lw_queue_t *queue)
{
	size_t bytes = 0;
	void *received = NULL;
	char *block = (char *)lw_region_alloc(region, 100000), local[8] = "small";
	CHECK(block != NULL);
	memset(block, 6, 100000);
	/* lw_queue(3), EXDEV: The block is not in the region of the queue */
	CHECK_IS(lw_queue_send_block(queue, local, 8, 0, NULL), EXDEV);
	CHECK_IS(lw_queue_send_block(queue, block, 1 << 20, 0, NULL), EMSGSIZE);
	CHECK_IS(lw_queue_send_block(queue, NULL, 8, 0, NULL), EINVAL);
	CHECK_IS(lw_queue_send_block(queue, block, 100000, 2, NULL), 0);
	CHECK_IS(lw_queue_receive_block(queue, &received, &bytes, NULL), 0);
	CHECK(received == block && bytes == 100000);
	lw_region_free(region, received);
	/* A message that was copied is received as a block of its own. */
	CHECK_IS(send_text(queue, "copied", 0), 0);
	CHECK_IS(lw_queue_receive_block(queue, &received, &bytes, &lw_no_wait), 0);
	CHECK(bytes == 6 && memcmp(received, "copied", 6) == 0);
	lw_region_free(region, received);
	/* A full queue leaves the block with the caller. */
	for (int number = 0; number < 4; number++)
		CHECK_IS(send_text(queue, "full", 0), 0);
	block = (char *)lw_region_alloc(region, 64);
	CHECK_IS(lw_queue_send_block(queue, block, 64, 0, &lw_no_wait), EAGAIN);
	lw_region_free(region, block);
	CHECK_IS(lw_queue_flush(queue, NULL), 0);
}

static void test_batches(lw_queue_t *queue)
{
	char texts[5][4] = {"one", "two", "thr", "fou", "fiv"};
	struct iovec messages[5];
	lw_batch_t batch;
	uint32_t sent = 0;
	for (int number = 0; number < 5; number++) {
		messages[number].iov_base = texts[number];
		messages[number].iov_len = 3;
	}
	CHECK_IS(lw_queue_send_batch(queue, messages, 5, 0, &sent, &lw_no_wait), 0);
	CHECK_IS(sent, 4);
	CHECK_IS(lw_queue_send_batch(queue, messages, 5, 0, &sent, &lw_no_wait), EAGAIN);
	CHECK_IS(lw_queue_hold_batch(queue, &batch, messages, 3, NULL), 0);
	CHECK_IS(batch.count, 3);
	CHECK(messages[2].iov_len == 3 && memcmp(messages[2].iov_base, "thr", 3) == 0);
	CHECK_IS(lw_batch_give_back(&batch), 0);
	CHECK_IS(lw_batch_give_back(&batch), EINVAL);
	CHECK_IS(lw_queue_hold_batch(queue, &batch, messages, 5, NULL), 0);
	CHECK_IS(batch.count, 4);
	CHECK_IS(lw_batch_done(&batch), 0);
	CHECK_IS(lw_queue_hold_batch(queue, &batch, messages, 5, &lw_no_wait), EAGAIN);
	CHECK_IS(lw_queue_hold_batch(queue, &batch, messages, 0, NULL), EINVAL);
}

static int is_readable(int fd)
{
	struct pollfd entry = {fd, POLLIN, 0};
	return poll(&entry, 1, 0);
}

static void test_descriptor(lw_queue_t *queue)
{
	char buffer[8];
	struct pollfd entry;
	int fd = -1, again = -1;
	CHECK_IS(lw_queue_clear(queue), EINVAL);
	CHECK_IS(lw_queue_fd(queue, &fd), 0);
	CHECK_IS(lw_queue_fd(queue, &again), 0);
	CHECK_IS(fd, again);
	CHECK_IS(is_readable(fd), 0);
	CHECK_IS(send_text(queue, "poll", 0), 0);
	entry.fd = fd;
	entry.events = POLLIN;
	CHECK_IS(poll(&entry, 1, 60000), 1);
	CHECK_IS(lw_queue_clear(queue), 0);
	CHECK_IS(is_readable(fd), 1);
	CHECK_IS(lw_queue_tryreceive(queue, buffer, sizeof buffer, NULL, NULL), 0);
	/* The watching thread may say once more what it saw before. */
	do
		CHECK_IS(lw_queue_clear(queue), 0);
	while (is_readable(fd));
}

static lw_completion_t waits = LW_COMPLETION_INITIALIZER;

static void *receive_for_ever(void *queue)
{
	char buffer[32];
	lw_completion_complete(&waits);
	return (void *)(intptr_t)lw_queue_receive((lw_queue_t *)queue, buffer, sizeof buffer, NULL, NULL);
}

static void test_cancellation(lw_queue_t *queue)
{
	pthread_t thread;
	char buffer[32];
	/* A request that was there before the call is acted on, whether or not there is a message. */
	CHECK_IS(send_text(queue, "stays", 0), 0);
	CHECK_IS(pthread_create(&thread, NULL, receive_for_ever, queue), 0);
	/* The thread may have received already; so a second one, which is cancelled before it starts to. */
	lw_completion_wait(&waits);
	CHECK_IS((intptr_t)join(thread), 0);
	CHECK_IS(send_text(queue, "stays", 0), 0);
	CHECK_IS(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL), 0);
	CHECK_IS(pthread_cancel(pthread_self()), 0);
	CHECK_IS(lw_queue_receive(queue, buffer, sizeof buffer, NULL, NULL), 0);
}

static void *cancelled_before_it_waits(void *queue)
{
	char buffer[32];
	CHECK_IS(pthread_cancel(pthread_self()), 0);
	lw_queue_receive((lw_queue_t *)queue, buffer, sizeof buffer, NULL, NULL);
	abort();
}

static void *test_in_a_thread(void *queue)
{
	test_cancellation((lw_queue_t *)queue);
	return NULL;
}

static void test_ends(void)
{
	lw_queue_t *queue = NULL, *other = NULL;
	pthread_t thread;
	char buffer[8];
	lw_message_t held;
	void *object = NULL;
	CHECK_IS(lw_queue_create(&queue, region, "ends", 4, 32, LW_QUEUE_FIFO), 0);
	/* lw_queue(3), EEXIST: it belongs to a queue with another */
	CHECK_IS(lw_queue_create(&other, region, "ends", 4, 32, LW_QUEUE_PRIORITY), EEXIST);
	CHECK_IS(lw_queue_create(&other, region, "ends", 5, 32, LW_QUEUE_FIFO), EEXIST);
	CHECK_IS(lw_queue_create(&other, region, "none", 0, 32, LW_QUEUE_FIFO), EINVAL);
	CHECK_IS(lw_queue_create(&other, region, "none", 1, 32, (enum lw_queue_order)9), EINVAL);
	CHECK_IS(lw_queue_create(&other, region, NULL, 1, 32, LW_QUEUE_FIFO), EINVAL);
	/* lw_queue(3), ENOMEM: The region has no room for the queue */
	CHECK_IS(lw_queue_create(&other, region, "none", 1 << 30, 1 << 30, LW_QUEUE_FIFO), ENOMEM);
	/* lw_queue(3), ENOENT: There is no queue of this name */
	CHECK_IS(lw_queue_open(&other, region, "none"), ENOENT);
	CHECK_IS(lw_region_object(region, "object", 1, 8, NULL, NULL, &object), 0);
	/* lw_queue(3), EEXIST: The name belongs to an object that is not a queue */
	CHECK_IS(lw_queue_open(&other, region, "object"), EEXIST);
	CHECK_IS(lw_queue_create(&other, region, "object", 4, 32, LW_QUEUE_FIFO), EEXIST);
	CHECK_IS(lw_region_remove(region, "object", 1, 8), 0);
	CHECK_IS(lw_queue_open(&other, region, "ends"), 0);
	/* Queues are open by the handle. */
	CHECK_IS(lw_region_detach(region), EBUSY);
	CHECK(strstr(lw_error_text(), "queues are open") != NULL);
	CHECK_IS(send_text(queue, "last", 0), 0);
	CHECK_IS(lw_queue_hold(queue, &held, NULL), 0);
	CHECK_IS(lw_completion_init(&waits), 0);
	thread = start(receive_for_ever, other);
	lw_completion_wait(&waits);
	CHECK_IS(lw_queue_delete(queue), 0);
	/* lw_queue(3), EIDRM: The queue was deleted */
	CHECK_IS((intptr_t)join(thread), EIDRM);
	CHECK_IS(lw_queue_delete(other), EIDRM);
	CHECK_IS(send_text(other, "none", 0), EIDRM);
	CHECK_IS(lw_queue_tryreceive(other, buffer, sizeof buffer, NULL, NULL), EIDRM);
	/* What is in hand can still be read and ended. */
	CHECK(memcmp(held.data, "last", 4) == 0);
	CHECK_IS(lw_message_done(&held), 0);
	CHECK_IS(lw_queue_close(queue), 0);
	CHECK_IS(lw_queue_close(other), 0);
	CHECK_IS(lw_queue_close(NULL), EINVAL);
}

/* A queue of this process's own leaves nothing behind, and a child's close does not end its parent's. */
static void test_own(void)
{
	struct lw_queue_state state;
	lw_message_t message;
	lw_batch_t batch;
	struct iovec place;
	lw_queue_t *queue = NULL;
	pid_t child;
	int status;
	/* More than a process can have regions, at one time. */
	for (int i = 0; i < 5000; i++) {
		CHECK_IS(lw_queue_create(&queue, NULL, "own", 2, 16, LW_QUEUE_RACING), 0);
		if (i % 1000 == 0)
			CHECK_IS(send_text(queue, "text", 0), 0);
		CHECK_IS(lw_queue_close(queue), 0);
	}
	queue = NULL;
	CHECK_IS(lw_queue_create(&queue, NULL, NULL, 1u << 30, 1u << 30, LW_QUEUE_RACING), EINVAL);
	CHECK_IS(lw_queue_create(&queue, NULL, NULL, UINT32_MAX, UINT32_MAX, LW_QUEUE_RACING), EINVAL);
	CHECK_IS(lw_queue_create(&queue, NULL, NULL, 0, 0, LW_QUEUE_RACING), EINVAL);
	CHECK(queue == NULL);

	CHECK_IS(lw_queue_create(&queue, NULL, NULL, 4, 16, LW_QUEUE_RACING), 0);
	child = fork();
	if (child == 0) {
		CHECK_IS(send_text(queue, "child", 0), 0);
		CHECK_IS(lw_queue_close(queue), 0);
		_exit(0);
	}
	CHECK(child > 0);
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	receives(queue, "child", 0);

	/* The handle stays as long as something is in hand. */
	CHECK_IS(lw_queue_reserve(queue, &message, 0, NULL), 0);
	/* lw_queue(3), EBUSY: A message or a batch is in hand that was reserved or held with this handle */
	CHECK_IS(lw_queue_close(queue), EBUSY);
	CHECK_IS(lw_message_done(&message), EINVAL);
	CHECK_IS(lw_queue_close(queue), EBUSY);
	CHECK_IS(lw_message_send(&message, 1), 0);
	CHECK_IS(lw_queue_hold_batch(queue, &batch, &place, 1, NULL), 0);
	CHECK_IS(lw_queue_close(queue), EBUSY);
	CHECK_IS(lw_batch_give_back(&batch), 0);
	CHECK_IS(lw_queue_get_state(queue, &state), 0);
	CHECK_IS(state.ready, 1);
	CHECK_IS(state.in_flight, 0);
	CHECK_IS(lw_queue_close(queue), 0);
}

int main(void)
{
	struct lw_region_options options;
	lw_queue_t *queue = NULL;
	memset(&options, 0, sizeof options);
	alarm(WATCHDOG);
	options.max_bytes = 16 << 20;
	CHECK_IS(lw_region_create(&region, NULL, &options), 0);
	for (int round = 0; round < 2; round++) {
		/* In a region, and of this process's own. */
		lw_region_t *in = round == 0 ? region : NULL;
		CHECK_IS(lw_queue_create(&queue, in, round == 0 ? "queue" : NULL, 4, 32, LW_QUEUE_RACING), 0);
		test_order_and_limits(queue);
		test_in_place(queue);
		test_batches(queue);
		test_death(queue);
		test_descriptor(queue);
		join(start(test_in_a_thread, queue));
		CHECK_IS(send_text(queue, "stays", 0), 0);
		CHECK(join(start(cancelled_before_it_waits, queue)) == PTHREAD_CANCELED);
		receives(queue, "stays", 0);
		if (round == 0) {
			test_blocks(queue);
			test_end_with_a_region_mutex(queue);
		}
		CHECK_IS(lw_queue_close(queue), 0);
	}
	test_ends();
	test_own();
	CHECK_IS(lw_region_detach(region), 0);
	puts("delivered");
	return 0;
}

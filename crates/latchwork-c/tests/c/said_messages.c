/*
 * What lw_queue(3) says of messages in hand, blocks, batches and descriptors: each sentence of its description, before the lines that show it. In C and in C++.
 * The test in manual.rs compares these sentences with the page.
 */
#include "said.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/uio.h>

static void *done_elsewhere(void *message)
{
	/* lw_queue(3) says: If another thread calls one of these functions for that message, the call fails with */
	CHECK_IS(lw_message_done((lw_message_t *)message), EPERM);
	return NULL;
}

static void without_a_copy(void)
{
	lw_queue_t *queue = made(region, "places", 2, LW_QUEUE_FIFO), *other;
	lw_message_t message;
	pid_t child;
	/* lw_queue(3) says: lw_queue_reserve() reserves a place for a message in the queue */
	/* lw_queue(3) says: message->data points to this place, which has room for message->bytes bytes: the */
	CHECK_IS(lw_queue_reserve(queue, &message, 3, NULL), 0);
	CHECK_IS(message.bytes, 64);
	memset(message.data, 'r', 64);
	/* lw_queue(3) says: The number of messages that tasks are writing or reading at this moment */
	/* lw_queue(3) says: These include the messages that are in hand */
	CHECK_IS(state_of(queue).in_flight, 1);
	/* lw_queue(3) says: lw_message_send() sends the message that was written to the place; the argument bytes */
	CHECK_IS(lw_message_send(&message, 5), 0);
	CHECK(state_of(queue).in_flight == 0 && state_of(queue).ready == 1);
	/* lw_queue(3) says: lw_queue_hold() receives a message without copying it: the message stays in the memory */
	/* lw_queue(3) says: message->data and message->bytes are its address and length, and message->priority is */
	/* lw_queue(3) says: message->deliveries says how many times the message has been delivered, including this */
	CHECK_IS(lw_queue_hold(queue, &message, NULL), 0);
	CHECK(message.bytes == 5 && message.priority == 3 && message.deliveries == 1);
	CHECK(memcmp(message.data, "rrrrr", 5) == 0);
	CHECK(state_of(queue).in_flight == 1 && state_of(queue).ready == 0);
	join(start(done_elsewhere, &message));
	/* lw_queue(3) says: If the receiving task is killed before this call, or calls lw_message_give_back(), the */
	/* lw_queue(3) says: How often, so far, a message has returned from a receiver that died or gave it back */
	CHECK_IS(send_letter(queue, 'n', 3), 0);
	CHECK_IS(lw_message_give_back(&message), 0);
	CHECK_IS(state_of(queue).redelivered, 1);
	CHECK_IS(lw_queue_hold(queue, &message, NULL), 0);
	CHECK(message.bytes == 5 && message.deliveries == 2);
	/* lw_queue(3) says: The receipt is complete when lw_message_done() is called */
	/* lw_queue(3) says: A message that a thread has reserved or held is in hand until that thread calls one of */
	CHECK_IS(lw_message_done(&message), 0);
	CHECK_IS(lw_message_done(&message), EINVAL);
	CHECK_IS(letter_of(queue), 'n');
	/* lw_queue(3) says: So a task loses no message if it calls lw_message_done() only after it has done its */
	/* lw_queue(3) says: If a receiver is killed before it has received a message completely, another task */
	CHECK_IS(send_letter(queue, 'k', 0), 0);
	if ((child = fork()) == 0) {
		CHECK_IS(lw_queue_hold(queue, &message, NULL), 0);
		raise(SIGKILL);
	}
	CHECK_IS(waitpid(child, NULL, 0), child);
	CHECK_IS(lw_queue_hold(queue, &message, NULL), 0);
	CHECK(message.deliveries == 2 && *(char *)message.data == 'k');
	CHECK_IS(lw_message_done(&message), 0);
	/* lw_queue(3) says: If ready and in_flight are 0, every message that was sent has been received or */
	CHECK(state_of(queue).ready == 0 && state_of(queue).in_flight == 0);
	/* lw_queue(3) says: lw_message_cancel() frees the place instead, and sends nothing */
	CHECK_IS(lw_queue_reserve(queue, &message, 0, NULL), 0);
	CHECK_IS(lw_message_cancel(&message), 0);
	CHECK(state_of(queue).ready == 0 && state_of(queue).in_flight == 0);
	/* lw_queue(3) says: If it fails with EMSGSIZE or EIDRM, the place is free again */
	CHECK_IS(lw_queue_reserve(queue, &message, 0, NULL), 0);
	CHECK_IS(lw_message_send(&message, 65), EMSGSIZE);
	CHECK_IS(state_of(queue).in_flight, 0);
	CHECK_IS(lw_queue_reserve(queue, &message, 0, NULL), 0);
	CHECK_IS(lw_queue_open(&other, region, "places"), 0);
	CHECK_IS(lw_queue_delete(other), 0);
	CHECK_IS(lw_message_send(&message, 1), EIDRM);
	CHECK_IS(lw_queue_close(other), 0);
	CHECK_IS(lw_queue_close(queue), 0);
}

static void blocks(void)
{
	lw_queue_t *queue = made(region, "blocks", 1, LW_QUEUE_FIFO), *own = made(NULL, NULL, 1, LW_QUEUE_FIFO);
	void *block, *got;
	size_t bytes = 0;
	/* lw_queue(3) says: lw_queue_send_block() sends a block of the region's heap without copying it */
	/* lw_queue(3) says: The block may be of any size */
	/* lw_queue(3) says: The message begins where the block begins; the argument bytes is its length */
	block = lw_region_alloc(region, 100000);
	CHECK(block);
	memset(block, 'q', 100000);
	CHECK_IS(lw_queue_send_block(queue, block, 70000, 0, NULL), 0);
	CHECK_IS(lw_queue_receive_block(queue, &got, &bytes, NULL), 0);
	CHECK(got == block && bytes == 70000 && ((char *)got)[69999] == 'q');
	/* lw_queue(3) says: If the call fails, the block still belongs to the caller */
	CHECK_IS(send_letter(queue, 'f', 0), 0);
	CHECK_IS(lw_queue_send_block(queue, got, 1, 0, &lw_no_wait), EAGAIN);
	/* lw_queue(3) says: The receiver frees the block with lw_region_free(3) */
	lw_region_free(region, got);
	/* lw_queue(3) says: lw_queue_receive_block() receives a message as a block, in whatever way the message */
	CHECK_IS(lw_queue_receive_block(queue, &got, &bytes, NULL), 0);
	CHECK(bytes == 1 && *(char *)got == 'f');
	/* lw_queue(3) says: These two functions are for queues of a region */
	CHECK_IS(lw_queue_send_block(own, got, 1, 0, NULL), EXDEV);
	lw_region_free(region, got);
	gone(queue);
	gone(own);
}

static void batches(void)
{
	lw_queue_t *queue = made(region, "batches", 3, LW_QUEUE_FIFO);
	char text[] = "abcd";
	struct iovec messages[4];
	lw_batch_t batch;
	uint32_t sent = 9;
	for (int index = 0; index < 4; index++) {
		messages[index].iov_base = text + index;
		messages[index].iov_len = 1;
	}
	/* lw_queue(3) says: lw_queue_send_batch() waits until there is room for one message */
	/* lw_queue(3) says: It then sends as many messages of the array as there is room for (the argument count */
	CHECK_IS(lw_queue_send_batch(queue, messages, 4, 0, &sent, NULL), 0);
	CHECK_IS(sent, 3);
	CHECK_IS(lw_queue_send_batch(queue, messages, 4, 0, NULL, &lw_no_wait), EAGAIN);
	/* lw_queue(3) says: It then receives the messages that are there, without copying them; the argument most */
	/* lw_queue(3) says: It stores their number in batch->count, and their addresses and lengths in the array */
	CHECK_IS(lw_queue_hold_batch(queue, &batch, messages, 2, NULL), 0);
	CHECK_IS(batch.count, 2);
	CHECK(messages[0].iov_len == 1 && *(char *)messages[0].iov_base == 'a');
	CHECK(messages[1].iov_len == 1 && *(char *)messages[1].iov_base == 'b');
	/* lw_queue(3) says: These messages are in hand until lw_batch_done() or lw_batch_give_back() is called */
	CHECK_IS(state_of(queue).in_flight, 2);
	CHECK_IS(lw_batch_give_back(&batch), 0);
	CHECK_IS(state_of(queue).ready, 3);
	CHECK_IS(lw_queue_hold_batch(queue, &batch, messages, 4, NULL), 0);
	CHECK_IS(batch.count, 3);
	CHECK_IS(lw_batch_done(&batch), 0);
	/* lw_queue(3) says: lw_queue_hold_batch() waits until there is a message */
	CHECK_IS(lw_queue_hold_batch(queue, &batch, messages, 4, &lw_no_wait), EAGAIN);
	gone(queue);
}

static int is_readable(int descriptor, int ms)
{
	struct pollfd poll_it;
	poll_it.fd = descriptor;
	poll_it.events = POLLIN;
	poll_it.revents = 0;
	return poll(&poll_it, 1, ms) == 1 && (poll_it.revents & POLLIN);
}

/* The number of threads of this process, and of those that block all signals which can be blocked. */
static int threads(int *deaf)
{
	int count = 0;
	struct dirent *entry;
	DIR *folder = opendir("/proc/self/task");
	CHECK(folder);
	*deaf = 0;
	while ((entry = readdir(folder)) != NULL) {
		char path[300], line[100];
		FILE *file;
		snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		while (fgets(line, sizeof line, file)) {
			unsigned long long blocked = 0;
			if (sscanf(line, "SigBlk: %llx", &blocked) != 1)
				continue;
			count++;
			/* But SIGKILL, SIGSTOP, and the two of libc. */
			*deaf += (blocked | 1 << 8 | 1 << 18 | 3ull << 31) == ~0ull;
		}
		fclose(file);
	}
	closedir(folder);
	return count;
}

static void descriptors(void)
{
	lw_queue_t *queue = made(region, "descriptors", 3, LW_QUEUE_FIFO), *again;
	pid_t child;
	int descriptor = -1, deaf, deaf_before, before = threads(&deaf_before);
	/* lw_queue(3) says: lw_queue_fd() stores a descriptor for poll(2) and epoll(7) */
	CHECK_IS(lw_queue_fd(queue, &descriptor), 0);
	/* lw_queue(3) says: The first call of lw_queue_fd() for a handle starts a thread in this process */
	/* lw_queue(3) says: That thread blocks all signals */
	CHECK_IS(threads(&deaf), before + 1);
	CHECK_IS(deaf, deaf_before + 1);
	CHECK_IS(lw_queue_fd(queue, &descriptor), 0);
	CHECK_IS(threads(&deaf), before + 1);
	CHECK_IS(is_readable(descriptor, 0), 0);
	/* lw_queue(3) says: It does not exist in the child of a fork(2) */
	/* lw_queue(3) says: lw_queue_fd() and lw_queue_clear() fail there with EPERM for such a handle */
	/* lw_queue(3) says: Open the queue again */
	/* lw_queue(3), EPERM: Or the descriptor of the handle is that process's */
	child = fork();
	if (child == 0) {
		CHECK_IS(lw_queue_fd(queue, &descriptor), EPERM);
		CHECK_IS(lw_queue_clear(queue), EPERM);
		CHECK_IS(lw_queue_open(&again, region, "descriptors"), 0);
		CHECK_IS(lw_queue_fd(again, &descriptor), 0);
		_exit(0);
	}
	CHECK_IS(exit_of(child), 0);
	/* lw_queue(3) says: The descriptor becomes readable when there are messages, or when the queue is deleted */
	CHECK_IS(send_letter(queue, 'a', 0), 0);
	CHECK(is_readable(descriptor, -1));
	/* lw_queue(3) says: It stays readable until lw_queue_clear() is called, even if another task has received */
	CHECK_IS(letter_of(queue), 'a');
	CHECK(is_readable(descriptor, 0));
	/* lw_queue(3) says: When the descriptor is readable, call lw_queue_tryreceive() until it fails with */
	CHECK_IS(letter_of(queue), 0);
	CHECK_IS(lw_queue_clear(queue), 0);
	CHECK_IS(is_readable(descriptor, 0), 0);
	/* lw_queue(3) says: lw_queue_clear() discards no message */
	CHECK_IS(send_letter(queue, 'b', 0), 0);
	CHECK(is_readable(descriptor, -1));
	CHECK_IS(lw_queue_clear(queue), 0);
	CHECK_IS(letter_of(queue), 'b');
	CHECK_IS(lw_queue_delete(queue), 0);
	CHECK(is_readable(descriptor, -1));
	CHECK_IS(lw_queue_close(queue), 0);
}

int main(void)
{
	make_region();
	/* First: a thread that was joined may still be listed. */
	descriptors();
	without_a_copy();
	blocks();
	batches();
	puts("said");
	return 0;
}

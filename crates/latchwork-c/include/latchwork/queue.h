/*
 * latchwork/queue.h: message queues for threads and processes, in the manner of mq_overview(7).
 *
 * A queue is a named object of a region (latchwork/region.h), or belongs to this process alone. Messages are received
 * by priority, and within one priority in the order of their sends. The death of any task at any instruction leaves the
 * queue whole: a message that is not sent completely is not there, and one that was not received completely is received
 * again, by another task.
 *
 *     like POSIX          lw_queue_send(), lw_queue_receive(), and their "try", "timed" and "clock" forms
 *     without a copy      lw_queue_reserve() and lw_message_send(); lw_queue_hold() and lw_message_done()
 *     of any size         lw_queue_send_block(), lw_queue_receive_block()
 *     several at once     lw_queue_send_batch(), lw_queue_hold_batch()
 *     to all who wait     lw_queue_broadcast()
 *     for poll(2)         lw_queue_fd()
 *
 * Functions return 0 or a positive error number; lw_error_text() then tells more. Those that may wait are cancellation
 * points when they are called: a request that comes while one waits is acted on when the wait has ended, unless that was
 * with success. The others are none, nor is a call with lw_no_wait. They are not for signal handlers, nor for threads
 * with asynchronous cancellation. Manual: lw_queue(3).
 */
#ifndef LATCHWORK_QUEUE_H
#define LATCHWORK_QUEUE_H

#include "region.h"

#include <sys/uio.h>

LW__BEGIN

/* A process's handle on a queue. Threads may share it. */
typedef struct lw_queue lw_queue_t;

/* Which of several waiting receivers gets a message. */
enum lw_queue_order {
	/* The one that runs first: the fastest. */
	LW_QUEUE_RACING = 0,
	/* The one that has waited longest. */
	LW_QUEUE_FIFO = 1,
	/* The one of the highest real-time priority; among equals, the one that has waited longest. */
	LW_QUEUE_PRIORITY = 2,
};

/* The greatest priority of a message, which is received first; and one before all, of which the last sent is first. */
#define LW_QUEUE_PRIORITY_MAX 32767u
#define LW_QUEUE_URGENT 65536u
/* Only received: the message was broadcast, and has no priority. */
#define LW_QUEUE_BROADCAST 65537u

/* In place of a time, where the header says so: the call returns EAGAIN where it would have to wait. */
static const struct timespec lw_no_wait = {0, 0};

/* ---- queues ---- */

/*
 * Makes the queue of this name for "capacity" messages of at most "max_message" bytes each, both 1 to 2^30, or opens it
 * if there is one like that. With NULL in place of the region the queue is this process's own, and needs no name. The
 * name shares its space with objects. EEXIST: the name is that of another object, or of a queue with other numbers.
 * EINVAL: a number is out of range, or the messages would need more than the largest region. ENOMEM, ENOSPC: the region
 * has no room for the queue, or for the name.
 */
int lw_queue_create(lw_queue_t **queue, lw_region_t *region, const char *name, uint32_t capacity,
		    uint32_t max_message, enum lw_queue_order order);

/* Opens the queue of this name. ENOENT: there is none. EEXIST: something else has the name. */
int lw_queue_open(lw_queue_t **queue, lw_region_t *region, const char *name);

/*
 * Gives up the handle, and the descriptor of lw_queue_fd(). A queue of a region stays. One of this process's own is gone
 * when the process and its forks have closed it or ended; the memory stays mapped in a fork until that ends. EBUSY:
 * messages are in hand by this handle (in a child of a fork also those of the parent).
 */
int lw_queue_close(lw_queue_t *queue);

/*
 * Ends the queue for all tasks and frees its name: their calls fail with EIDRM, those that wait at once. Messages in
 * flight may still be ended. The handle remains, to be closed.
 */
int lw_queue_delete(lw_queue_t *queue);

struct lw_queue_state {
	uint32_t capacity, max_message;
	/* Messages that could be received now; it exceeds the capacity if messages came back from receivers that died. */
	uint32_t ready;
	/* Messages that are being written or have been received but not ended. */
	uint32_t in_flight;
	/* How many messages were delivered again so far. */
	uint64_t redelivered;
};
/* The numbers of ready messages and of messages in flight are of one moment. */
int lw_queue_get_state(lw_queue_t *queue, struct lw_queue_state *state);

/* Discards the ready messages; stores how many, if "count" is not NULL. */
int lw_queue_flush(lw_queue_t *queue, uint32_t *count);

/* ---- sending and receiving ---- */

/*
 * Sends a message of "bytes" bytes; waits while the queue is full. The priority is 0, the lowest, to
 * LW_QUEUE_PRIORITY_MAX, or LW_QUEUE_URGENT. EMSGSIZE: the message is longer than the queue takes. EIDRM: the queue was
 * deleted. EINVAL: no such priority. EAGAIN: (trysend) the queue is full. ETIMEDOUT: (timedsend, clocksend) the time has
 * passed. Times are points in time, of CLOCK_MONOTONIC if no clock is given.
 */
int lw_queue_send(lw_queue_t *queue, const void *message, size_t bytes, unsigned priority);
int lw_queue_trysend(lw_queue_t *queue, const void *message, size_t bytes, unsigned priority);
int lw_queue_timedsend(lw_queue_t *queue, const void *message, size_t bytes, unsigned priority,
		       const struct timespec *time);
int lw_queue_clocksend(lw_queue_t *queue, const void *message, size_t bytes, unsigned priority, int clock,
		       const struct timespec *time);

/*
 * Copies the first message to the buffer, and its length and priority to where "bytes" and "priority" point, if they are
 * not NULL; waits while there is none. EMSGSIZE: the message has more than "room" bytes: "bytes" says how many; it stays
 * in the queue (a broadcast message is missed). EIDRM, EAGAIN, ETIMEDOUT: as for sends.
 */
int lw_queue_receive(lw_queue_t *queue, void *buffer, size_t room, size_t *bytes, unsigned *priority);
int lw_queue_tryreceive(lw_queue_t *queue, void *buffer, size_t room, size_t *bytes, unsigned *priority);
int lw_queue_timedreceive(lw_queue_t *queue, void *buffer, size_t room, size_t *bytes, unsigned *priority,
			  const struct timespec *time);
int lw_queue_clockreceive(lw_queue_t *queue, void *buffer, size_t room, size_t *bytes, unsigned *priority,
			  int clock, const struct timespec *time);

/* Sends the message to each task that waits for one now; stores how many, if "receivers" is not NULL. Never waits. */
int lw_queue_broadcast(lw_queue_t *queue, const void *message, size_t bytes, uint32_t *receivers);

/*
 * The functions below wait until a point in time of CLOCK_MONOTONIC; without end, if "time" is NULL; not at all, if it
 * is &lw_no_wait.
 */

/* ---- without a copy ---- */

/*
 * A message in its place in the queue, in the hands of one thread: to be written (lw_queue_reserve()) or read
 * (lw_queue_hold()). The thread must end it, by one of the functions of lw_message_; if the thread is killed, a message
 * that it was writing is gone, and one that it was reading is received again.
 */
typedef struct lw_message {
	void *data;
	size_t bytes;
	/* For readers: how it was sent, and how often it was received, this time included. */
	unsigned priority;
	uint32_t deliveries;
	uint64_t lw_opaque[12];
} lw_message_t;

/* Takes a place for a message: "data" has room for the longest one, and holds anything at first. */
int lw_queue_reserve(lw_queue_t *queue, lw_message_t *message, unsigned priority, const struct timespec *time);
/* Sends the first "bytes" bytes. EMSGSIZE, EIDRM: nothing is sent, and the place is free again. */
int lw_message_send(lw_message_t *message, size_t bytes);
/* Frees the place; nothing is sent. */
int lw_message_cancel(lw_message_t *message);

/* Receives a message without copying it. It counts as received when it is done. */
int lw_queue_hold(lw_queue_t *queue, lw_message_t *message, const struct timespec *time);
/* The message has been received, and is received by nobody else. */
int lw_message_done(lw_message_t *message);
/* Puts the message back where it was, for another receiver. */
int lw_message_give_back(lw_message_t *message);

/*
 * These return EPERM if another thread has the message, or another process, of which this one is a fork; EINVAL, if it
 * has ended.
 */

/* ---- messages of any size ---- */

/*
 * Sends a block of the queue's region, which lw_region_alloc() returned, without copying it. It belongs to the queue if 0
 * is returned, and to the caller otherwise. EXDEV: the block is not of the queue's region. EMSGSIZE: the block has fewer
 * than "bytes" bytes.
 */
int lw_queue_send_block(lw_queue_t *queue, void *block, size_t bytes, unsigned priority,
			const struct timespec *time);
/* Receives a message as a block that belongs to the caller, to be freed with lw_region_free(). */
int lw_queue_receive_block(lw_queue_t *queue, void **block, size_t *bytes, const struct timespec *time);

/* ---- several at once ---- */

/*
 * Sends the first of "count" messages, as many as there is room for, and waits for room for one; stores how many it sent.
 * If the caller is killed, the first few of them have been sent, or none.
 */
int lw_queue_send_batch(lw_queue_t *queue, const struct iovec *messages, uint32_t count, unsigned priority,
			uint32_t *sent, const struct timespec *time);

/* Messages in the hands of one thread, which ends them together. */
typedef struct lw_batch {
	uint32_t count;
	uint64_t lw_opaque[13];
} lw_batch_t;

/* Receives up to "most" messages without copying them; "messages", for as many, then tells where they are. */
int lw_queue_hold_batch(lw_queue_t *queue, lw_batch_t *batch, struct iovec *messages, uint32_t most,
			const struct timespec *time);
/* As for single messages. */
int lw_batch_done(lw_batch_t *batch);
int lw_batch_give_back(lw_batch_t *batch);

/* ---- poll ---- */

/*
 * Stores a descriptor that poll(2) finds readable while the queue has messages, or when it was deleted. It belongs to the
 * handle: it is not to be read or closed. The first call starts a thread, which watches the queue. Readable means that
 * there was a message: another task may take it first, so receive with lw_queue_tryreceive(), until EAGAIN, and then
 * call lw_queue_clear(), which makes the descriptor unreadable unless there are messages. In the child of a fork both
 * calls fail with EPERM for a handle whose descriptor the parent has: open the queue again there.
 */
int lw_queue_fd(lw_queue_t *queue, int *fd);
int lw_queue_clear(lw_queue_t *queue);

LW__END

#endif

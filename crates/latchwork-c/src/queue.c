/*
 * Queues: what their waits are in C. A wait itself is Rust code, and no Rust frame may be unwound: so a request to cancel
 * the thread is acted on before the wait, and after one that did not succeed.
 */
#include "internal.h"

#include "latchwork/queue.h"

#include <pthread.h>

int latchwork_queue_send(lw_queue_t *queue, const void *message, size_t bytes, unsigned priority, unsigned how,
			 uint64_t deadline);
int latchwork_queue_receive(lw_queue_t *queue, void *buffer, size_t room, size_t *bytes, unsigned *priority,
			    unsigned how, uint64_t deadline);
int latchwork_queue_reserve(lw_queue_t *queue, lw_message_t *message, unsigned priority, unsigned how,
			    uint64_t deadline);
int latchwork_queue_hold(lw_queue_t *queue, lw_message_t *message, unsigned how, uint64_t deadline);
int latchwork_queue_send_block(lw_queue_t *queue, void *block, size_t bytes, unsigned priority, unsigned how,
			       uint64_t deadline);
int latchwork_queue_receive_block(lw_queue_t *queue, void **block, size_t *bytes, unsigned how,
				  uint64_t deadline);
int latchwork_queue_send_batch(lw_queue_t *queue, const struct iovec *messages, uint32_t count, unsigned priority,
			       uint32_t *sent, unsigned how, uint64_t deadline);
int latchwork_queue_hold_batch(lw_queue_t *queue, lw_batch_t *batch, struct iovec *messages, uint32_t most,
			       unsigned how, uint64_t deadline);

/* How a call waits that is given a time, NULL or zeros (lw_no_wait). EINVAL: the time is invalid. */
static int read_wait(int clock, const struct timespec *time, unsigned *how, uint64_t *deadline)
{
	if (time == NULL)
		*how = LW__ENDLESS;
	else
		*how = time->tv_sec == 0 && time->tv_nsec == 0 ? LW__TRY : LW__UNTIL;
	*deadline = 0;
	return *how == LW__UNTIL ? latchwork_read_time(clock, time, deadline) : 0;
}

/* As POSIX requires, an invalid time does not matter if there is no need to wait: so the call is tried first. */
#define WAIT(clock, time, call)                                                                       \
	do {                                                                                          \
		unsigned how;                                                                         \
		uint64_t deadline;                                                                    \
		int error, invalid = read_wait(clock, time, &how, &deadline);                         \
		if (invalid != 0)                                                                     \
			how = LW__TRY;                                                                \
		if (how != LW__TRY)                                                                   \
			pthread_testcancel();                                                         \
		error = call;                                                                         \
		if (error != 0 && how != LW__TRY)                                                     \
			pthread_testcancel();                                                         \
		return error == EAGAIN && invalid != 0 ? invalid : error;                             \
	} while (0)

/* In the forms with a time NULL is an invalid one, and zeros are a time that has passed. */
static const struct timespec invalid_time = {0, -1}, passed_time = {0, 1};

static const struct timespec *given(const struct timespec *time)
{
	if (time == NULL)
		return &invalid_time;
	return time->tv_sec == 0 && time->tv_nsec == 0 ? &passed_time : time;
}

static int send_message(lw_queue_t *queue, const void *message, size_t bytes, unsigned priority, int clock,
			const struct timespec *time)
{
	WAIT(clock, time, latchwork_queue_send(queue, message, bytes, priority, how, deadline));
}

int lw_queue_send(lw_queue_t *queue, const void *message, size_t bytes, unsigned priority)
{
	return send_message(queue, message, bytes, priority, CLOCK_MONOTONIC, NULL);
}

int lw_queue_trysend(lw_queue_t *queue, const void *message, size_t bytes, unsigned priority)
{
	return send_message(queue, message, bytes, priority, CLOCK_MONOTONIC, &lw_no_wait);
}

int lw_queue_timedsend(lw_queue_t *queue, const void *message, size_t bytes, unsigned priority,
		       const struct timespec *time)
{
	return send_message(queue, message, bytes, priority, CLOCK_MONOTONIC, given(time));
}

int lw_queue_clocksend(lw_queue_t *queue, const void *message, size_t bytes, unsigned priority, int clock,
		       const struct timespec *time)
{
	return send_message(queue, message, bytes, priority, clock, given(time));
}

static int receive(lw_queue_t *queue, void *buffer, size_t room, size_t *bytes, unsigned *priority, int clock,
		   const struct timespec *time)
{
	WAIT(clock, time, latchwork_queue_receive(queue, buffer, room, bytes, priority, how, deadline));
}

int lw_queue_receive(lw_queue_t *queue, void *buffer, size_t room, size_t *bytes, unsigned *priority)
{
	return receive(queue, buffer, room, bytes, priority, CLOCK_MONOTONIC, NULL);
}

int lw_queue_tryreceive(lw_queue_t *queue, void *buffer, size_t room, size_t *bytes, unsigned *priority)
{
	return receive(queue, buffer, room, bytes, priority, CLOCK_MONOTONIC, &lw_no_wait);
}

int lw_queue_timedreceive(lw_queue_t *queue, void *buffer, size_t room, size_t *bytes, unsigned *priority,
			  const struct timespec *time)
{
	return receive(queue, buffer, room, bytes, priority, CLOCK_MONOTONIC, given(time));
}

int lw_queue_clockreceive(lw_queue_t *queue, void *buffer, size_t room, size_t *bytes, unsigned *priority,
			  int clock, const struct timespec *time)
{
	return receive(queue, buffer, room, bytes, priority, clock, given(time));
}

int lw_queue_reserve(lw_queue_t *queue, lw_message_t *message, unsigned priority, const struct timespec *time)
{
	WAIT(CLOCK_MONOTONIC, time, latchwork_queue_reserve(queue, message, priority, how, deadline));
}

int lw_queue_hold(lw_queue_t *queue, lw_message_t *message, const struct timespec *time)
{
	WAIT(CLOCK_MONOTONIC, time, latchwork_queue_hold(queue, message, how, deadline));
}

int lw_queue_send_block(lw_queue_t *queue, void *block, size_t bytes, unsigned priority,
			const struct timespec *time)
{
	WAIT(CLOCK_MONOTONIC, time, latchwork_queue_send_block(queue, block, bytes, priority, how, deadline));
}

int lw_queue_receive_block(lw_queue_t *queue, void **block, size_t *bytes, const struct timespec *time)
{
	WAIT(CLOCK_MONOTONIC, time, latchwork_queue_receive_block(queue, block, bytes, how, deadline));
}

int lw_queue_send_batch(lw_queue_t *queue, const struct iovec *messages, uint32_t count, unsigned priority,
			uint32_t *sent, const struct timespec *time)
{
	WAIT(CLOCK_MONOTONIC, time,
	     latchwork_queue_send_batch(queue, messages, count, priority, sent, how, deadline));
}

int lw_queue_hold_batch(lw_queue_t *queue, lw_batch_t *batch, struct iovec *messages, uint32_t most,
			const struct timespec *time)
{
	WAIT(CLOCK_MONOTONIC, time, latchwork_queue_hold_batch(queue, batch, messages, most, how, deadline));
}

/* For the programs that show what the manual says: a region, and queues in it. */
#ifndef SAID_H
#define SAID_H

#include "latchwork.h"

#include "check.h"

#include <latchwork/queue.h>

/* The region of the queues. */
static lw_region_t *region;

static inline lw_queue_t *made(lw_region_t *in, const char *name, uint32_t capacity, enum lw_queue_order order)
{
	lw_queue_t *queue;
	CHECK_IS(lw_queue_create(&queue, in, name, capacity, 64, order), 0);
	return queue;
}

static inline void gone(lw_queue_t *queue)
{
	CHECK_IS(lw_queue_delete(queue), 0);
	CHECK_IS(lw_queue_close(queue), 0);
}

static inline int send_letter(lw_queue_t *queue, char letter, unsigned priority)
{
	return lw_queue_trysend(queue, &letter, 1, priority);
}

/* The letter that a receive gets; 0 if there is none. */
static inline char letter_of(lw_queue_t *queue)
{
	char buffer[64];
	return lw_queue_tryreceive(queue, buffer, sizeof buffer, NULL, NULL) == 0 ? buffer[0] : 0;
}

static inline struct lw_queue_state state_of(lw_queue_t *queue)
{
	struct lw_queue_state state;
	CHECK_IS(lw_queue_get_state(queue, &state), 0);
	return state;
}

static inline void make_region(void)
{
	struct lw_region_options options;
	alarm(WATCHDOG);
	memset(&options, 0, sizeof options);
	CHECK_IS(lw_region_create(&region, NULL, &options), 0);
}

#endif

/*
 * Lists that belong to one process. The child of a fork begins with an empty one: the parent's may have been in the middle
 * of a change, and another thread of the parent's may have held its lock, which no thread of the child would ever release.
 */
#include "internal.h"

#include <stdlib.h>

uint64_t latchwork_process_mark(void);

struct latchwork_own *latchwork_own(struct latchwork_own **place)
{
	/* 0 if there is no memory for a mark. */
	uint64_t mark = latchwork_process_mark();
	/* Acquire: pairs with the exchange below. */
	struct latchwork_own *found = __atomic_load_n(place, __ATOMIC_ACQUIRE), *own;
	if (found != NULL && found->made_by == mark)
		return found;
	own = mark == 0 ? NULL : calloc(1, sizeof *own);
	if (own == NULL)
		return NULL;
	own->made_by = mark;
	lw_mutex_init(&own->lock);
	/* The parent's stays allocated: the calling thread may have been one of its tasks. */
	if (__atomic_compare_exchange_n(place, &found, own, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return own;
	/* Another thread of this process was faster. */
	free(own);
	return found;
}

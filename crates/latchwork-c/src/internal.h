/* The internal interface between the C half and the Rust half of the library. Not exported. */
#ifndef LATCHWORK_INTERNAL_H
#define LATCHWORK_INTERNAL_H

#include "latchwork.h"

/* Storage for a wait that has begun, on the waiter's stack. */
struct latchwork_pause {
	uint64_t opaque[24];
};

/* A futex call that the C half is to make. */
struct latchwork_call {
	const uint32_t *word;
	const uint32_t *target;
	uint64_t deadline;
	int operation;
	uint32_t expected;
};

/* No deadline; and no result of the kernel's. */
#define LATCHWORK_NEVER UINT64_MAX
#define LATCHWORK_AGAIN (-1)
#define LATCHWORK_NOT_IN_REGION (-2)

/* A list that belongs to one process, and its lock. */
struct latchwork_own {
	uint64_t made_by;
	lw_mutex_t lock;
	void *first;
};

/* This process's list; NULL if there is no memory for one. */
struct latchwork_own *latchwork_own(struct latchwork_own **place);

/* Converts a time to nanoseconds of CLOCK_MONOTONIC; EINVAL if it is invalid. */
int latchwork_read_time(int clock, const struct timespec *time, uint64_t *deadline);
int latchwork_lock(void *mutex, unsigned kind, unsigned how, uint64_t deadline);
int latchwork_rwlock(void *lock, unsigned kind, unsigned writes, unsigned how, uint64_t deadline);
int latchwork_barrier_wait(void *barrier, unsigned shared, uint64_t deadline);
/* "inconsistent": the mutex is robust, and is released with its data inconsistent. */
int latchwork_pause_begin(struct latchwork_pause *pause, void *cond, unsigned shared, void *mutex, unsigned kind,
			  int inconsistent, uint64_t deadline);
int latchwork_pause_nap(struct latchwork_pause *pause);
void latchwork_pause_call(struct latchwork_pause *pause, struct latchwork_call *call);
int latchwork_pause_goes_on(struct latchwork_pause *pause, int error);
int latchwork_pause_end(struct latchwork_pause *pause, int error, int cancelled);
int latchwork_nap(const uint32_t *word, uint32_t expected, uint64_t deadline, int interruptible);

#endif

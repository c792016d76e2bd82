/* Part of latchwork.h: layouts, static initialisers, and the library's slow paths. */
#ifndef LATCHWORK_TYPES_H
#define LATCHWORK_TYPES_H

#include "base.h"

LW__BEGIN

/* Kinds of mutexes, for lw_cond_wait() and the slow paths. */
enum {
	LW_WAIT_WAKE = 0,
	LW_THROUGHPUT = 1,
	LW_INHERIT = 2,
	LW_PLAIN_INHERIT = 3,
	LW_PROTECT = 4,
	LW_RECURSIVE = 5,
	LW_SPIN = 6,
	LW_IN_REGION = 7,
	LW_SHARED = 8,
	LW_ROBUST = 16,
	LW_IN_REGION_THROUGHPUT = 23
};

/* The wait modes of a slow path. */
enum { LW__ENDLESS = 0, LW__TRY = 1, LW__UNTIL = 2, LW__INTERRUPTIBLE = 3 };

/* ---- layouts ---- */

#define LW__PLAIN(name)                                                                               \
	typedef struct LW_CAPABILITY("mutex") name {                                                  \
		uint32_t lw_word;                                                                     \
	} name##_t;                                                                                   \
	LW__ASSERT(sizeof(name##_t) == 4 && __alignof__(name##_t) == 4, #name " is frozen")
#define LW__GATED(name)                                                                               \
	typedef struct LW_CAPABILITY("mutex") name {                                                  \
		uint32_t lw_word;                                                                     \
		uint32_t lw_gate;                                                                     \
	} name##_t;                                                                                   \
	LW__ASSERT(sizeof(name##_t) == 8 && __alignof__(name##_t) == 4, #name " is frozen")
#define LW__QUEUED(name)                                                                              \
	typedef struct LW_CAPABILITY("mutex") name {                                                  \
		uint32_t lw_word;                                                                     \
		uint32_t lw_gate;                                                                     \
		uint32_t lw_request;                                                                  \
		uint32_t lw_threshold;                                                                \
	} name##_t;                                                                                   \
	LW__ASSERT(sizeof(name##_t) == 16 && __alignof__(name##_t) == 4, #name " is frozen")
/* As the C library lays out its own robust mutexes, which are on the same list. */
#ifdef LW__MUSL
#define LW__NODE                                                                                      \
	uint32_t lw_kind;                                                                             \
	uint32_t lw_word;                                                                             \
	uint32_t lw_state;                                                                            \
	uint32_t lw_queue;                                                                            \
	uint32_t lw_extra;                                                                            \
	uint32_t lw_setting;
#define LW__NODE_INITIALIZER(extra, setting) {128, 0, 0, 0, (extra), (setting), 0, 0}
#define LW__PI_MARK 0
#else
#define LW__NODE                                                                                      \
	uint32_t lw_word;                                                                             \
	uint32_t lw_state;                                                                            \
	uint32_t lw_queue;                                                                            \
	uint32_t lw_extra;                                                                            \
	uint32_t lw_kind;                                                                             \
	uint32_t lw_setting;
#define LW__NODE_INITIALIZER(extra, setting) {0, 0, 0, (extra), 16, (setting), 0, 0}
#define LW__PI_MARK 1
#endif
#define LW__LISTED(name)                                                                              \
	typedef struct LW_CAPABILITY("mutex") name {                                                  \
		LW__NODE                                                                              \
		uintptr_t lw_prev;                                                                    \
		uintptr_t lw_next;                                                                    \
	} name##_t;                                                                                   \
	LW__ASSERT(sizeof(name##_t) == 40 && __alignof__(name##_t) == 8, #name " is frozen");            \
	LW__ASSERT(offsetof(name##_t, lw_next) == 32, #name " is frozen")

LW__PLAIN(lw_mutex);
LW__PLAIN(lw_shared_mutex);
LW__PLAIN(lw_plain_pi_mutex);
LW__PLAIN(lw_shared_plain_pi_mutex);
LW__PLAIN(lw_spin);
LW__GATED(lw_pi_mutex);
LW__GATED(lw_shared_pi_mutex);
LW__GATED(lw_pp_mutex);
LW__GATED(lw_shared_pp_mutex);
LW__QUEUED(lw_tp_mutex);
LW__QUEUED(lw_shared_tp_mutex);
LW__LISTED(lw_robust_mutex);
LW__LISTED(lw_robust_tp_mutex);
LW__LISTED(lw_robust_pi_mutex);
LW__LISTED(lw_robust_pp_mutex);

/* Its word names its owner as a task of the region that the lock lies in. */
typedef struct LW_CAPABILITY("mutex") lw_region_mutex {
	uint64_t lw_state;
} lw_region_mutex_t;
LW__ASSERT(sizeof(lw_region_mutex_t) == 8 && __alignof__(lw_region_mutex_t) == 8, "lw_region_mutex is frozen");

/* The same, with the name of the first waiter. */
typedef struct LW_CAPABILITY("mutex") lw_region_tp_mutex {
	uint64_t lw_state;
	uint64_t lw_gate;
} lw_region_tp_mutex_t;
LW__ASSERT(sizeof(lw_region_tp_mutex_t) == 16 && __alignof__(lw_region_tp_mutex_t) == 8,
	   "lw_region_tp_mutex is frozen");

typedef struct LW_CAPABILITY("mutex") lw_recursive_mutex {
	uint32_t lw_word;
	uint32_t lw_owner;
	uint32_t lw_depth;
} lw_recursive_mutex_t;
LW__ASSERT(sizeof(lw_recursive_mutex_t) == 12, "lw_recursive_mutex is frozen");

#define LW__COUNTED(name)                                                                             \
	typedef struct LW_CAPABILITY("rwlock") name {                                                 \
		uint64_t lw_state;                                                                    \
	} name##_t;                                                                                   \
	LW__ASSERT(sizeof(name##_t) == 8 && __alignof__(name##_t) == 8, #name " is frozen")
LW__COUNTED(lw_rwlock);
LW__COUNTED(lw_shared_rwlock);
LW__COUNTED(lw_rf_rwlock);
LW__COUNTED(lw_shared_rf_rwlock);

/* The most concurrent readers; further ones wait for a seat. */
#define LW_ROBUST_READERS 16

typedef struct LW_CAPABILITY("rwlock") lw_robust_rwlock {
	struct {
		lw_robust_mutex_t lw_lock;
		uint32_t lw_writing;
		uint32_t lw_unused[5];
	} lw_lines[1 + LW_ROBUST_READERS];
} __attribute__((aligned(64))) lw_robust_rwlock_t;
LW__ASSERT(sizeof(lw_robust_rwlock_t) == 64 * (1 + LW_ROBUST_READERS), "lw_robust_rwlock is frozen");

/* Its words name their owners as tasks of the region that the lock lies in. */
typedef struct LW_CAPABILITY("rwlock") lw_region_rwlock {
	lw_region_tp_mutex_t lw_gate;
	uint32_t lw_writing;
	uint32_t lw_unused[11];
	struct {
		lw_region_mutex_t lw_lock;
		uint64_t lw_unused[7];
	} lw_seats[LW_ROBUST_READERS];
} __attribute__((aligned(64))) lw_region_rwlock_t;
LW__ASSERT(sizeof(lw_region_rwlock_t) == 64 * (1 + LW_ROBUST_READERS), "lw_region_rwlock is frozen");

#define LW__CONDITION(name)                                                                           \
	typedef struct name {                                                                         \
		uint64_t lw_state;                                                                    \
		uint32_t lw_ticket;                                                                   \
		uint32_t lw_relay;                                                                    \
		uint32_t lw_crowd_ticket;                                                             \
		uint32_t lw_crowd;                                                                    \
	} name##_t;                                                                                   \
	LW__ASSERT(sizeof(name##_t) == 24 && offsetof(name##_t, lw_crowd) == 20, #name " is frozen")
LW__CONDITION(lw_cond);
LW__CONDITION(lw_shared_cond);

/* Tokens in the high half, waiters in the low half: adding a token shows in one step whether to wake a waiter. */
#define LW__COUNTER(name)                                                                             \
	typedef struct name {                                                                         \
		uint64_t lw_state;                                                                    \
	} name##_t;                                                                                   \
	LW__ASSERT(sizeof(name##_t) == 8 && __alignof__(name##_t) == 8, #name " is frozen")
LW__COUNTER(lw_sem);
LW__COUNTER(lw_shared_sem);
LW__COUNTER(lw_completion);
LW__COUNTER(lw_shared_completion);

#define LW__MEETING(name)                                                                             \
	typedef struct name {                                                                         \
		uint32_t lw_word;                                                                     \
		uint32_t lw_tasks;                                                                    \
	} name##_t;                                                                                   \
	LW__ASSERT(sizeof(name##_t) == 8, #name " is frozen")
LW__MEETING(lw_barrier);
LW__MEETING(lw_shared_barrier);

/* Not struct lw_once: a function of that name would hide the constructor from C++. */
typedef struct lw_once_control {
	uint32_t lw_done;
	uint32_t lw_unused;
	lw_robust_mutex_t lw_lock;
} lw_once_t;
LW__ASSERT(sizeof(lw_once_t) == 48 && offsetof(lw_once_t, lw_lock) == 8, "lw_once is frozen");

/* The same for the data of a region: its word names the task that runs the initialisation. */
typedef struct lw_region_once_control {
	uint32_t lw_done;
	uint32_t lw_unused;
	lw_region_mutex_t lw_lock;
} lw_region_once_t;
LW__ASSERT(sizeof(lw_region_once_t) == 16 && offsetof(lw_region_once_t, lw_lock) == 8, "lw_region_once is frozen");

/* How a lock call took a throughput mutex. */
struct lw_tp_acquisition {
	uint32_t entry; /* LW_TP_ENTRY_... */
	uint32_t sleeps; /* how often the caller went to sleep */
};
enum {
	LW_TP_ENTRY_FREE = 0, /* the mutex was free */
	LW_TP_ENTRY_STOLEN = 1, /* it was held; then the caller took it ahead of the waiters in the queue */
	LW_TP_ENTRY_TOP_WAITER = 2, /* the caller waited in the queue, and took it when it was free */
	LW_TP_ENTRY_HANDED_OFF = 3 /* the caller had waited for too long: it was handed off, past all newcomers */
};
/* What an unlock of a throughput mutex did for the tasks that wait. */
enum {
	LW_TP_RELEASED_NO_SLEEPER = 0, /* it freed the mutex, on which no task slept */
	LW_TP_RELEASED_WOKE = 1, /* it freed the mutex, on which tasks might sleep, and woke those that did */
	LW_TP_RELEASED_HANDED_OFF = 2 /* it reserved the mutex for a waiter, and woke one sleeper, if there was one */
};

/* How a call acquired a reader/writer lock. */
struct lw_rwlock_acquisition {
	uint32_t entry; /* LW_RWLOCK_ENTRY_... */
	uint32_t sleeps; /* how often the caller went to sleep */
};
enum {
	LW_RWLOCK_ENTRY_FREE = 0, /* the lock admitted the caller at once */
	LW_RWLOCK_ENTRY_POLLED = 1, /* it did so while the caller polled */
	LW_RWLOCK_ENTRY_WOKEN = 2, /* the caller went to sleep before that */
	LW_RWLOCK_ENTRY_HANDED_OFF = 3 /* the caller had waited for too long: it entered past tasks that came later */
};
/* What an unlock of a reader/writer lock did for the tasks that wait. */
enum {
	LW_RWLOCK_RELEASED_NO_SLEEPER = 0, /* it woke no task */
	LW_RWLOCK_RELEASED_WOKE = 1, /* it woke the tasks that are to enter next, if they slept */
	LW_RWLOCK_RELEASED_HANDED_OFF = 2 /* the same, for tasks that had waited for too long; later ones stay out */
};

/* ---- static initialisers ---- */

#define LW_MUTEX_INITIALIZER {0}
#define LW_SHARED_MUTEX_INITIALIZER {0}
#define LW_PLAIN_PI_MUTEX_INITIALIZER {0}
#define LW_SHARED_PLAIN_PI_MUTEX_INITIALIZER {0}
#define LW_SPIN_INITIALIZER {0}
#define LW_REGION_MUTEX_INITIALIZER {0}
#define LW_REGION_TP_MUTEX_INITIALIZER {0, 0}
#define LW_PI_MUTEX_INITIALIZER {0, 0}
#define LW_SHARED_PI_MUTEX_INITIALIZER {0, 0}
/* The ceiling: a SCHED_FIFO priority, 1 to 99. */
#define LW_PP_MUTEX_INITIALIZER(ceiling) {0, (ceiling)}
#define LW_SHARED_PP_MUTEX_INITIALIZER(ceiling) {0, (ceiling)}
#define LW_TP_MUTEX_INITIALIZER {0, 0, 0, 0}
#define LW_SHARED_TP_MUTEX_INITIALIZER {0, 0, 0, 0}
#define LW_RECURSIVE_MUTEX_INITIALIZER {0, 0, 0}
#define LW__LISTED_INITIALIZER(extra) LW__NODE_INITIALIZER(extra, 0)
/* After how many microseconds a waiter gets the mutex handed off; 0 is "at once". The default is 5,000. */
#define LW_TP_MUTEX_HAND_OFF_INITIALIZER(microseconds) {0, 0, 0, LW__THRESHOLD(microseconds)}
#define LW_SHARED_TP_MUTEX_HAND_OFF_INITIALIZER(microseconds) {0, 0, 0, LW__THRESHOLD(microseconds)}
#define LW_ROBUST_TP_MUTEX_HAND_OFF_INITIALIZER(microseconds) \
	LW__NODE_INITIALIZER(0, LW__THRESHOLD(microseconds))
/* In a lock, 0 is the default. */
#define LW__THRESHOLD(microseconds) ((microseconds) == 0 ? 1u : (uint32_t)(microseconds))
/* Instead of microseconds: the lock is never handed off, and a wait has no bound. */
#define LW_TP_NEVER 0xffffffffu
#define LW_ROBUST_MUTEX_INITIALIZER LW__LISTED_INITIALIZER(0)
#define LW_ROBUST_TP_MUTEX_INITIALIZER LW__LISTED_INITIALIZER(0)
#define LW_ROBUST_PI_MUTEX_INITIALIZER LW__LISTED_INITIALIZER(0)
#define LW_ROBUST_PP_MUTEX_INITIALIZER(ceiling) LW__LISTED_INITIALIZER(ceiling)
#define LW_RWLOCK_INITIALIZER {0}
#define LW_SHARED_RWLOCK_INITIALIZER {0}
#define LW_RF_RWLOCK_INITIALIZER {0}
#define LW_SHARED_RF_RWLOCK_INITIALIZER {0}
#define LW__LINE(threshold) {LW__NODE_INITIALIZER(0, threshold), 0, {0, 0, 0, 0, 0}}
#define LW__SEAT LW__LINE(0)
#define LW__SEATS4 LW__SEAT, LW__SEAT, LW__SEAT, LW__SEAT
#define LW_ROBUST_RWLOCK_INITIALIZER {{LW__SEAT, LW__SEATS4, LW__SEATS4, LW__SEATS4, LW__SEATS4}}
/* After how many microseconds a waiter gets the lock handed off, as for throughput mutexes; or LW_TP_NEVER. */
#define LW_ROBUST_RWLOCK_HAND_OFF_INITIALIZER(microseconds) \
	{{LW__LINE(LW__THRESHOLD(microseconds)), LW__SEATS4, LW__SEATS4, LW__SEATS4, LW__SEATS4}}
#define LW_REGION_RWLOCK_INITIALIZER {{0, 0}, 0, {0}, {{{0}, {0}}}}
#define LW_COND_INITIALIZER {0, 0, 0, 0, 0}
#define LW_SHARED_COND_INITIALIZER {0, 0, 0, 0, 0}
#define LW_SEM_INITIALIZER(count) {(uint64_t)(count) << 32}
#define LW_SHARED_SEM_INITIALIZER(count) {(uint64_t)(count) << 32}
#define LW_COMPLETION_INITIALIZER {0}
#define LW_SHARED_COMPLETION_INITIALIZER {0}
#define LW_BARRIER_INITIALIZER(tasks) {0, (tasks)}
#define LW_SHARED_BARRIER_INITIALIZER(tasks) {0, (tasks)}
#define LW_ONCE_INITIALIZER {0, 0, LW__LISTED_INITIALIZER(0)}
#define LW_REGION_ONCE_INITIALIZER {0, 0, {0}}

#define LW_DEFINE_MUTEX(name) lw_mutex_t name = LW_MUTEX_INITIALIZER
#define LW_DEFINE_SHARED_MUTEX(name) lw_shared_mutex_t name = LW_SHARED_MUTEX_INITIALIZER
#define LW_DEFINE_TP_MUTEX(name) lw_tp_mutex_t name = LW_TP_MUTEX_INITIALIZER
#define LW_DEFINE_PI_MUTEX(name) lw_pi_mutex_t name = LW_PI_MUTEX_INITIALIZER
#define LW_DEFINE_PP_MUTEX(name, ceiling) lw_pp_mutex_t name = LW_PP_MUTEX_INITIALIZER(ceiling)
#define LW_DEFINE_RECURSIVE_MUTEX(name) lw_recursive_mutex_t name = LW_RECURSIVE_MUTEX_INITIALIZER
#define LW_DEFINE_ROBUST_MUTEX(name) lw_robust_mutex_t name = LW_ROBUST_MUTEX_INITIALIZER
#define LW_DEFINE_RWLOCK(name) lw_rwlock_t name = LW_RWLOCK_INITIALIZER
#define LW_DEFINE_COND(name) lw_cond_t name = LW_COND_INITIALIZER
#define LW_DEFINE_SEM(name, count) lw_sem_t name = LW_SEM_INITIALIZER(count)
#define LW_DEFINE_COMPLETION(name) lw_completion_t name = LW_COMPLETION_INITIALIZER
#define LW_DEFINE_ONCE(name) lw_once_t name = LW_ONCE_INITIALIZER

/* The most that a semaphore counts. */
#define LW_SEM_VALUE_MAX 0x7fffffffu
/* lw_barrier_wait() returns this to one of the tasks, and 0 to the others. */
#define LW_BARRIER_SERIAL_TASK (-1)

/* ---- slow paths, in the library ---- */

int lw__lock(void *mutex, unsigned kind, unsigned how, uint64_t deadline);
int lw__lock_until(void *mutex, unsigned kind, unsigned how, int clock, const struct timespec *time);
int lw__unlock(void *mutex, unsigned kind);
int lw__lock_traced(void *mutex, unsigned kind, struct lw_tp_acquisition *how);
int lw__unlock_traced(void *mutex, unsigned kind, int *released);
int lw__consistent(void *mutex, unsigned kind);
int lw__unlock_inconsistent(void *mutex, unsigned kind);
int lw__is_locked(const void *mutex, unsigned kind);
int lw__spans_pid_namespaces(const void *address);
int lw__rwlock(void *lock, unsigned kind, unsigned writes, unsigned how, int clock, const struct timespec *time);
int lw__rwlock_unlock(void *lock, unsigned kind);
int lw__rwlock_is_used(const void *lock, unsigned kind);
int lw__rwlock_traced(void *lock, unsigned kind, unsigned writes, struct lw_rwlock_acquisition *how);
int lw__rwlock_unlock_traced(void *lock, unsigned kind, int *released);
int lw__rwlock_consistent(void *lock);
int lw__rwlock_unlock_inconsistent(void *lock);
int lw__region_rwlock_consistent(void *lock);
int lw__region_rwlock_unlock_inconsistent(void *lock);
int lw__cond_wait(void *cond, unsigned shared, void *mutex, unsigned kind, int clock,
		  const struct timespec *time);
/*
 * For lw::condition: the wait sets "released" if it has begun, so that the mutex was released, and 0 if not. With
 * "inconsistent" it releases a robust mutex as lw__unlock_inconsistent() does.
 */
int lw__condition_wait(void *cond, unsigned shared, void *mutex, unsigned kind, int inconsistent,
		       const struct timespec *time, int *released);
void lw__cond_notify(void *cond, unsigned shared, unsigned all);
int lw__take(void *counter, unsigned shared, unsigned how, int clock, const struct timespec *time);
void lw__wake(const void *word, uint32_t count, unsigned shared);
int lw__barrier_wait(void *barrier, unsigned shared, int clock, const struct timespec *time);

void lw__free_unlinked(void *mutex, unsigned kind, uintptr_t before);
void lw__give_back(void *mutex, unsigned kind);

/*
 * The library's state of the calling thread, in memory that the kernel wipes in the child of a fork. In a child, and in
 * a new thread, ID, budget and "first_bytes" are 0, so that fast paths take the slow path.
 */
struct lw__task {
	uint32_t tid;
	uint32_t stamp;
	int32_t budget;
	struct lw__head *head;
	uintptr_t anchor;
	uintptr_t end;
	/* The region that the thread became a task of first, and its name as a task there. */
	uintptr_t first_base;
	size_t first_bytes;
	uint64_t first_identity;
	/* The region mutexes that it holds there: acquired in Rust; acquired by this interface. */
	uint64_t first_lending;
	uint32_t first_plain;
};
LW__ASSERT(offsetof(struct lw__task, end) == 32, "the thread's record is frozen");
LW__ASSERT(offsetof(struct lw__task, first_plain) == 72, "the thread's record is frozen");

/* libc's robust list. */
struct lw__head {
	uintptr_t next;
	intptr_t word_offset;
	uintptr_t pending;
};
LW__ASSERT(sizeof(struct lw__head) == 24, "libc's robust list is frozen");

extern __thread struct lw__task *lw_this_task __attribute__((tls_model("initial-exec")));
#define LW__TID (lw_this_task->tid)

/* The calling task's thread ID. */
uint32_t lw_task_id(void);

LW__END

#endif

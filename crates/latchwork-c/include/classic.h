/*
 * classic.h: RTEMS's classic interface on Linux: semaphores, events and message queues with RTEMS's names, constants,
 * status codes and order of checks, between the threads of a process, or between processes; and the task directives
 * that such programs need. (Names and behaviour are those of the RTEMS Classic API Guide.)
 *
 *     RTEMS                   here
 *     one system              one region: this process's own, or a named one (lw_classic_configure)
 *     a task                  a thread; each thread that uses a directive becomes one, with a priority of 255
 *     priorities 1 to 255     recorded; they order queues, and apply to ceilings and inheritance
 *     schedulers              one of all processors, unless configured
 *     nodes                   one
 *     clock ticks             10 ms, unless configured
 *     fatal errors            of mutexes after owner death: LW_RTEMS_OWNER_DIED, in addition to RTEMS's statuses
 *
 * A task that is killed has carried out a directive completely or not at all, and the death is reported to the next
 * owner of what it owned. A directive that may wait is a cancellation point when it is called, and when it returns
 * without success. pthread_cancel() alone ends the waits of rtems_task_wake_after() and rtems_task_delete(), and no
 * other; rtems_task_delete() ends all waits. A directive that fails for lack of memory returns RTEMS_INTERNAL_ERROR.
 *
 * Manual: lw_classic(3).
 */
#ifndef LATCHWORK_CLASSIC_H
#define LATCHWORK_CLASSIC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t rtems_id;
typedef uint32_t rtems_name;
typedef uint32_t rtems_attribute;
typedef uint32_t rtems_option;
typedef uint32_t rtems_interval;
typedef uint32_t rtems_event_set;
typedef uint32_t rtems_task_priority;
typedef uint32_t rtems_mode;
typedef uintptr_t rtems_task_argument;
typedef void rtems_task;
typedef rtems_task (*rtems_task_entry)(rtems_task_argument);

typedef enum {
	RTEMS_SUCCESSFUL = 0,
	RTEMS_TASK_EXITTED = 1,
	RTEMS_MP_NOT_CONFIGURED = 2,
	RTEMS_INVALID_NAME = 3,
	RTEMS_INVALID_ID = 4,
	RTEMS_TOO_MANY = 5,
	RTEMS_TIMEOUT = 6,
	RTEMS_OBJECT_WAS_DELETED = 7,
	RTEMS_INVALID_SIZE = 8,
	RTEMS_INVALID_ADDRESS = 9,
	RTEMS_INVALID_NUMBER = 10,
	RTEMS_NOT_DEFINED = 11,
	RTEMS_RESOURCE_IN_USE = 12,
	RTEMS_UNSATISFIED = 13,
	RTEMS_INCORRECT_STATE = 14,
	RTEMS_ALREADY_SUSPENDED = 15,
	RTEMS_ILLEGAL_ON_SELF = 16,
	RTEMS_ILLEGAL_ON_REMOTE_OBJECT = 17,
	RTEMS_CALLED_FROM_ISR = 18,
	RTEMS_INVALID_PRIORITY = 19,
	RTEMS_INVALID_CLOCK = 20,
	RTEMS_INVALID_NODE = 21,
	RTEMS_NOT_CONFIGURED = 22,
	RTEMS_NOT_OWNER_OF_RESOURCE = 23,
	RTEMS_NOT_IMPLEMENTED = 24,
	RTEMS_INTERNAL_ERROR = 25,
	RTEMS_NO_MEMORY = 26,
	RTEMS_IO_ERROR = 27,
	RTEMS_INTERRUPTED = 28,
	RTEMS_PROXY_BLOCKING = 29,
	/*
	 * Latchwork's: the semaphore is obtained, and its previous owner died: the data that it protects may be
	 * inconsistent.
	 */
	LW_RTEMS_OWNER_DIED = 64
} rtems_status_code;

#define rtems_build_name(a, b, c, d)                                                                  \
	((rtems_name)(((uint32_t)(unsigned char)(a) << 24) | ((uint32_t)(unsigned char)(b) << 16) |       \
		      ((uint32_t)(unsigned char)(c) << 8) | (uint32_t)(unsigned char)(d)))

/* Attributes. */
#define RTEMS_DEFAULT_ATTRIBUTES 0x00000000u
#define RTEMS_LOCAL 0x00000000u
/* There is one node, so this has no effect. */
#define RTEMS_GLOBAL 0x00000002u
#define RTEMS_APPLICATION_TASK 0x00000000u
#define RTEMS_FIFO 0x00000000u
#define RTEMS_PRIORITY 0x00000004u
#define RTEMS_COUNTING_SEMAPHORE 0x00000000u
#define RTEMS_BINARY_SEMAPHORE 0x00000010u
#define RTEMS_SIMPLE_BINARY_SEMAPHORE 0x00000020u
#define RTEMS_NO_INHERIT_PRIORITY 0x00000000u
#define RTEMS_INHERIT_PRIORITY 0x00000040u
#define RTEMS_NO_PRIORITY_CEILING 0x00000000u
#define RTEMS_PRIORITY_CEILING 0x00000080u
#define RTEMS_NO_MULTIPROCESSOR_RESOURCE_SHARING 0x00000000u
#define RTEMS_MULTIPROCESSOR_RESOURCE_SHARING 0x00000100u
#define RTEMS_NO_FLOATING_POINT 0x00000000u
#define RTEMS_FLOATING_POINT 0x00000001u

/* Options. */
#define RTEMS_DEFAULT_OPTIONS 0x00000000u
#define RTEMS_WAIT 0x00000000u
#define RTEMS_NO_WAIT 0x00000001u
#define RTEMS_EVENT_ALL 0x00000000u
#define RTEMS_EVENT_ANY 0x00000002u
#define RTEMS_NO_TIMEOUT ((rtems_interval)0)
#define RTEMS_MILLISECONDS_TO_TICKS(ms) lw_classic_ticks(ms)

/* Modes are accepted and have no effect: tasks are threads of Linux. */
#define RTEMS_DEFAULT_MODES 0x00000000u
#define RTEMS_PREEMPT 0x00000000u
#define RTEMS_NO_PREEMPT 0x00000100u
#define RTEMS_NO_TIMESLICE 0x00000000u
#define RTEMS_TIMESLICE 0x00000200u

#define RTEMS_SELF ((rtems_id)0)
#define RTEMS_ID_NONE ((rtems_id)0)
#define RTEMS_CURRENT_PRIORITY 0u
#define RTEMS_MINIMUM_PRIORITY 1u
#define RTEMS_MAXIMUM_PRIORITY 255u
#define RTEMS_NO_PRIORITY RTEMS_CURRENT_PRIORITY
#define RTEMS_MINIMUM_STACK_SIZE ((size_t)65536)
#define RTEMS_CONFIGURED_MINIMUM_STACK_SIZE ((size_t)0)
#define RTEMS_YIELD_PROCESSOR RTEMS_NO_TIMEOUT

#define RTEMS_SEARCH_ALL_NODES 0x00000000u
#define RTEMS_SEARCH_OTHER_NODES 0x7ffffffeu
#define RTEMS_SEARCH_LOCAL_NODE 0x7fffffffu

#define RTEMS_PENDING_EVENTS 0u
#define RTEMS_ALL_EVENTS 0xffffffffu
#define RTEMS_EVENT_0 0x00000001u
#define RTEMS_EVENT_1 0x00000002u
#define RTEMS_EVENT_2 0x00000004u
#define RTEMS_EVENT_3 0x00000008u
#define RTEMS_EVENT_4 0x00000010u
#define RTEMS_EVENT_5 0x00000020u
#define RTEMS_EVENT_6 0x00000040u
#define RTEMS_EVENT_7 0x00000080u
#define RTEMS_EVENT_8 0x00000100u
#define RTEMS_EVENT_9 0x00000200u
#define RTEMS_EVENT_10 0x00000400u
#define RTEMS_EVENT_11 0x00000800u
#define RTEMS_EVENT_12 0x00001000u
#define RTEMS_EVENT_13 0x00002000u
#define RTEMS_EVENT_14 0x00004000u
#define RTEMS_EVENT_15 0x00008000u
#define RTEMS_EVENT_16 0x00010000u
#define RTEMS_EVENT_17 0x00020000u
#define RTEMS_EVENT_18 0x00040000u
#define RTEMS_EVENT_19 0x00080000u
#define RTEMS_EVENT_20 0x00100000u
#define RTEMS_EVENT_21 0x00200000u
#define RTEMS_EVENT_22 0x00400000u
#define RTEMS_EVENT_23 0x00800000u
#define RTEMS_EVENT_24 0x01000000u
#define RTEMS_EVENT_25 0x02000000u
#define RTEMS_EVENT_26 0x04000000u
#define RTEMS_EVENT_27 0x08000000u
#define RTEMS_EVENT_28 0x10000000u
#define RTEMS_EVENT_29 0x20000000u
#define RTEMS_EVENT_30 0x40000000u
#define RTEMS_EVENT_31 0x80000000u
/* System events. */
#define RTEMS_EVENT_SYSTEM_NETWORK_SBWAIT RTEMS_EVENT_24
#define RTEMS_EVENT_SYSTEM_NETWORK_SOSLEEP RTEMS_EVENT_25
#define RTEMS_EVENT_SYSTEM_NETWORK_CLOSE RTEMS_EVENT_26
#define RTEMS_EVENT_SYSTEM_SERVER_RESUME RTEMS_EVENT_29
#define RTEMS_EVENT_SYSTEM_SERVER RTEMS_EVENT_30
#define RTEMS_EVENT_SYSTEM_TRANSIENT RTEMS_EVENT_31

/* ---- configuration: before the first directive; optional ---- */

/*
 * A scheduler: a set of processors, as sched_setaffinity(2) takes it (void, since <sched.h> has cpu_set_t with
 * _GNU_SOURCE only). A processor belongs to one scheduler at most; a scheduler may have none.
 */
struct lw_classic_scheduler {
	/* Not 0. */
	rtems_name name;
	/* The size of the set in bytes. */
	size_t cpusetsize;
	const void *cpuset;
};

struct lw_classic_options {
	/* A region's name, which is created if it does not exist; NULL for a region of this process's own. */
	const char *region;
	/* Its size in bytes; 0 for 16 MiB. */
	size_t memory;
	/* The most objects of each kind; 0 for 64. */
	uint16_t semaphores, message_queues;
	/* 0 for 10,000. */
	uint32_t microseconds_per_tick;
	/* LW_CLASSIC_UNSCHEDULED, or 0. */
	uint32_t flags;
	/* At most 32; NULL and 0 for one of all processors, LW_CLASSIC_SCHEDULER_NAME. Tasks begin in the first. */
	const struct lw_classic_scheduler *schedulers;
	size_t scheduler_count;
};

#define LW_CLASSIC_SCHEDULER_NAME rtems_build_name('M', 'E', 'D', 'F')

/* Tasks' priorities are not set in the kernel: they only order queues, and are inherited. */
#define LW_CLASSIC_UNSCHEDULED 1u

/*
 * Returns 0, or an error number: EBUSY if a directive was used before, EINVAL if the table exists with other options, or
 * a scheduler is wrong (its name is 0 or used twice, a processor is another's or does not fit a set of 1024).
 */
int lw_classic_configure(const struct lw_classic_options *options);
/* Converts to ticks, rounded up: a time that is not 0 never becomes "for ever". */
rtems_interval lw_classic_ticks(uint64_t milliseconds);

/* ---- semaphores ---- */

rtems_status_code rtems_semaphore_create(rtems_name name, uint32_t count, rtems_attribute attribute_set,
					 rtems_task_priority priority_ceiling, rtems_id *id);
rtems_status_code rtems_semaphore_ident(rtems_name name, uint32_t node, rtems_id *id);
rtems_status_code rtems_semaphore_delete(rtems_id id);
rtems_status_code rtems_semaphore_obtain(rtems_id id, rtems_option option_set, rtems_interval timeout);
rtems_status_code rtems_semaphore_release(rtems_id id);
rtems_status_code rtems_semaphore_flush(rtems_id id);
/*
 * A MrsP semaphore has a ceiling in each scheduler, 0 (for tasks: priority 1) until it is set, except in its creator's.
 * A semaphore with a priority ceiling belongs to its creator's scheduler: RTEMS_NOT_DEFINED for others, here and where
 * a task of another could obtain it at once.
 */
rtems_status_code rtems_semaphore_set_priority(rtems_id semaphore_id, rtems_id scheduler_id,
					       rtems_task_priority new_priority,
					       rtems_task_priority *old_priority);

/* ---- events ---- */

rtems_status_code rtems_event_send(rtems_id id, rtems_event_set event_in);
rtems_status_code rtems_event_receive(rtems_event_set event_in, rtems_option option_set, rtems_interval ticks,
				      rtems_event_set *event_out);
rtems_status_code rtems_event_system_send(rtems_id id, rtems_event_set event_in);
rtems_status_code rtems_event_system_receive(rtems_event_set event_in, rtems_option option_set,
					     rtems_interval ticks, rtems_event_set *event_out);
rtems_status_code rtems_event_transient_send(rtems_id id);
rtems_status_code rtems_event_transient_receive(rtems_option option_set, rtems_interval ticks);
void rtems_event_transient_clear(void);

/* ---- message queues ---- */

rtems_status_code rtems_message_queue_create(rtems_name name, uint32_t count, size_t max_message_size,
					     rtems_attribute attribute_set, rtems_id *id);
/*
 * A queue for which the program provides memory. The messages lie in the region nevertheless, where other processes
 * find them. The memory's size is checked (RTEMS_UNSATISFIED), and the memory is kept until the queue is deleted. Then
 * the process that constructed the queue calls storage_free with it, if that is not NULL; if another process has
 * deleted the queue, this happens when the first one next constructs or deletes a queue.
 */
typedef struct {
	rtems_name name;
	uint32_t maximum_pending_messages;
	size_t maximum_message_size;
	void *storage_area;
	size_t storage_size;
	void (*storage_free)(void *);
	rtems_attribute attributes;
} rtems_message_queue_config;

/* The memory is an array of these, one for each message. */
#define RTEMS_MESSAGE_QUEUE_BUFFER(maximum_message_size_)                                             \
	struct {                                                                                      \
		struct {                                                                              \
			void *links_[2];                                                              \
			size_t size_;                                                                 \
		} buffer_;                                                                            \
		char message_[maximum_message_size_];                                                 \
	}

rtems_status_code rtems_message_queue_construct(const rtems_message_queue_config *config, rtems_id *id);
rtems_status_code rtems_message_queue_ident(rtems_name name, uint32_t node, rtems_id *id);
rtems_status_code rtems_message_queue_delete(rtems_id id);
rtems_status_code rtems_message_queue_send(rtems_id id, const void *buffer, size_t size);
rtems_status_code rtems_message_queue_urgent(rtems_id id, const void *buffer, size_t size);
rtems_status_code rtems_message_queue_broadcast(rtems_id id, const void *buffer, size_t size, uint32_t *count);
/* The buffer must have room for the queue's longest message, as RTEMS requires. */
rtems_status_code rtems_message_queue_receive(rtems_id id, void *buffer, size_t *size, rtems_option option_set,
					      rtems_interval timeout);
rtems_status_code rtems_message_queue_get_number_pending(rtems_id id, uint32_t *count);
rtems_status_code rtems_message_queue_flush(rtems_id id, uint32_t *count);
/* Latchwork's: with the buffer's size. A longer message stays in the queue: RTEMS_INVALID_SIZE. */
rtems_status_code lw_message_queue_receive(rtems_id id, void *buffer, size_t room, size_t *size,
					   rtems_option option_set, rtems_interval timeout);

/* ---- tasks ---- */

/*
 * Creates a thread, with its id, that waits to be started. Attributes and modes have no effect. RTEMS_UNSATISFIED: the
 * kernel lets no thread run on the processors of the creator's scheduler.
 */
rtems_status_code rtems_task_create(rtems_name name, rtems_task_priority initial_priority, size_t stack_size,
				    rtems_mode initial_modes, rtems_attribute attribute_set, rtems_id *id);
/* Searches this process's tasks, by the names with which they were created. */
rtems_status_code rtems_task_ident(rtems_name name, uint32_t node, rtems_id *id);
/*
 * RTEMS_INCORRECT_STATE: the task was started before, as the calling task was, or is not of this process, or its thread
 * was not made by rtems_task_create().
 */
rtems_status_code rtems_task_start(rtems_id id, rtems_task_entry entry_point, rtems_task_argument argument);
/*
 * For another task, this returns when that task has ended: at its next wait in a directive or in a libc function that
 * is a cancellation point, or at once if it waits there now. Its handlers (pthread_cleanup_push(), C++ destructors)
 * run; what it owns is handed on, and the next owner gets LW_RTEMS_OWNER_DIED. The end is deferred while the task has
 * disabled cancellation. RTEMS_TIMEOUT: the task computes, or spins for a MrsP semaphore, and has not ended within 2
 * seconds; it will end at its next wait. RTEMS_NOT_IMPLEMENTED: a thread that rtems_task_create() has not made, or one
 * of another process.
 */
rtems_status_code rtems_task_delete(rtems_id id);
void rtems_task_exit(void) __attribute__((noreturn));
rtems_id rtems_task_self(void);
/*
 * Takes effect at once: the waiting task's place in a queue by priority changes, and so does its kernel priority, where
 * permitted: 1 to 98 are SCHED_FIFO 99 to 2, 99 to 254 are SCHED_FIFO 1, 255 is an ordinary thread. Without the
 * privilege (CAP_SYS_NICE, RLIMIT_RTPRIO), which is reported once, the priority counts among tasks only.
 */
rtems_status_code rtems_task_set_priority(rtems_id id, rtems_task_priority new_priority,
					  rtems_task_priority *old_priority);
/*
 * The task's scheduler; that of the creator for a task that rtems_task_create() makes, else the first. Setting it binds
 * the thread to those processors of the scheduler that are in the task's affinity, and sets the priority.
 * RTEMS_RESOURCE_IN_USE: the task waits for a semaphore, or has a ceiling, or inherits. RTEMS_UNSATISFIED: there is no
 * such processor, or the kernel refuses.
 */
rtems_status_code rtems_task_get_scheduler(rtems_id task_id, rtems_id *scheduler_id);
rtems_status_code rtems_task_set_scheduler(rtems_id task_id, rtems_id scheduler_id, rtems_task_priority priority);
/* cpuset: a cpu_set_t of cpusetsize bytes. RTEMS_RESOURCE_IN_USE: the task owns or awaits a MrsP semaphore. */
rtems_status_code rtems_task_get_affinity(rtems_id id, size_t cpusetsize, void *cpuset);
rtems_status_code rtems_task_set_affinity(rtems_id id, size_t cpusetsize, const void *cpuset);
/* 0 ticks: yields the processor. */
rtems_status_code rtems_task_wake_after(rtems_interval ticks);

/* ---- schedulers ---- */

rtems_status_code rtems_scheduler_ident(rtems_name name, rtems_id *id);
rtems_status_code rtems_scheduler_ident_by_processor(uint32_t cpu_index, rtems_id *id);
rtems_status_code rtems_scheduler_ident_by_processor_set(size_t cpusetsize, const void *cpuset, rtems_id *id);
rtems_status_code rtems_scheduler_get_maximum_priority(rtems_id scheduler_id, rtems_task_priority *priority);
rtems_status_code rtems_scheduler_get_processor_set(rtems_id scheduler_id, size_t cpusetsize, void *cpuset);
/* The processor on which the caller runs at this moment, and the number of processors. */
uint32_t rtems_scheduler_get_processor(void);
uint32_t rtems_scheduler_get_processor_maximum(void);

/* ---- time ---- */

rtems_interval rtems_clock_get_ticks_per_second(void);
rtems_interval rtems_clock_get_ticks_since_boot(void);

/* Returns "RTEMS_TIMEOUT" and the like. */
const char *rtems_status_text(rtems_status_code status);

#ifdef __cplusplus
}
#endif

#endif

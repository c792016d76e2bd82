/*
 * coproc.h: co-processes, which share as much as they need. The interface of the CoProc library (G. Ben-Yossef,
 * "On Threads, Processes and Co-Processes", 2009), over Latchwork's regions and coprocs.
 *
 * A coproc is a process of its own, with a name that ps shows, attributes that are set before its routine runs,
 * and one piece of memory that it shares with its creator at the same address: pointers into it, and within it,
 * mean the same in all of them.
 *
 * Answers are those of the system's own calls: -1 or NULL for a failure, with errno. A program that was never
 * initialised gets EINVAL.
 *
 * What a coproc finds: without a sharing flag it is a clean copy of the process as it was when coproc_init() was
 * called; statics have the values that they had then, and no lock is held. Call that early. With COPROC_SNAPSHOT
 * or a flag that shares, it is a copy of the calling thread as it is now, with all its memory; other threads do
 * not exist in it, but locks that they held do, malloc's among them.
 *
 * Manual: coproc(3).
 */
#ifndef COPROC_H
#define COPROC_H

#include <sched.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef CPU_SETSIZE
#error "coproc.h needs cpu_set_t: define _GNU_SOURCE before the first header"
#endif

struct coproc_attributes {
	/* The maximum size of the process address space in bytes */
	rlim_t address_space_size;
	/* Maximum size of core file */
	rlim_t core_file_size;
	/* CPU time limit in seconds */
	rlim_t cpu_time;
	/* The maximum size of the process stack, in bytes */
	rlim_t stack_size;
	/* Scheduling policy */
	int scheduling_policy;
	/* Scheduling priority (SCHED_FIFO, SCHED_RR) or nice level (others) */
	int scheduling_param;
	/* The CPU mask of the coproc */
	cpu_set_t cpu_affinity_mask;
};

/* Which attributes are to be set; the others are inherited. Each has a bit of its own. */
#define COPROC_SET_AS_SIZE 0x0010
#define COPROC_SET_CORE_SIZE 0x0020
#define COPROC_SET_CPU_TIME 0x0040
#define COPROC_SET_STACK_SIZE 0x0080
#define COPROC_SET_SCHED 0x0100
#define COPROC_SET_CPU_AFFINITY 0x0200

/* The table of descriptors, the working directory, the root and the umask are one for both. */
#define COPROC_SHARE_FS 0x0002
/* System V semaphore adjustments are undone when the last of the sharers ends. */
#define COPROC_SHARE_SYSVSEM 0x0008
/* Nobody will join it. It lives until it ends by itself, or by coproc_exit(). */
#define COPROC_DETACHED 0x0004
/* To make it a child of the creator's parent: refused, ENOTSUP, since nobody could join it. */
#define COPROC_NOTIFY_PARENT 0x0001
/* Ours: a copy of now; to be killed when its creator ends. */
#define COPROC_SNAPSHOT 0x0400
#define COPROC_DIE_WITH_PARENT 0x0800

/*
 * Makes the shared memory, of which so many bytes can be allocated, and the server process that clean coprocs
 * are copies of. EBUSY: it was called before, without a coproc_exit() since. EAGAIN: threads of this process hold
 * locks of the C library. After coproc_exit() it starts a new server process, over the memory that there is;
 * ENOMEM: that is smaller.
 */
int coproc_init(size_t shm_max_size);

/*
 * Starts a coproc. "attrib" may be NULL where no COPROC_SET_ flag is given. The argument is a pointer into
 * the shared memory, or one that means something in the copy that the coproc is. If an attribute cannot be set,
 * nothing has run, and coproc_failed_attribute() says which.
 */
pid_t coproc_create(const char *coproc_name, struct coproc_attributes *attrib, int flags,
		    int (*start_routine)(void *), void *arg);

/* The attribute for which the calling thread's last coproc_create() failed; NULL if it was not for one. */
const char *coproc_failed_attribute(void);

/*
 * Ends what coproc_init() began: each coproc of the calling process that still runs, detached or not, gets SIGTERM,
 * and SIGKILL if it runs a second later, and is joined; a coproc_join() in another thread returns. The server process
 * ends. No other process is touched: coprocs of coprocs are their creators'.
 *
 * Afterwards coproc_create() and coproc_exit() are EINVAL, as before coproc_init(), which may be called again. A
 * coproc_create() that runs at the same time creates nothing that lives on, and answers EINVAL. The shared memory
 * stays, and coproc_alloc() and coproc_free() go on to work. EPERM: the calling process is a fork of the one that
 * called coproc_init().
 */
int coproc_exit(void);

/* Shared memory, aligned for everything; it outlives the coproc that asked for it. NULL: ENOMEM. */
void *coproc_alloc(size_t size);

/* NULL is nothing. What is no such block aborts the program, with a line that says so. */
void coproc_free(void *ptr);

/*
 * Waits for the coproc's end. The status is one for WIFEXITED(), WEXITSTATUS(), WTERMSIG() ...; NULL if it does
 * not matter. ECHILD: no such coproc of the calling process, or it was joined before, or is detached.
 */
int coproc_join(pid_t pid, int *status);

#ifdef __cplusplus
}
#endif

#endif

/*
 * coproc.h: co-processes, which share as much as they need. The interface of the CoProc library (G. Ben-Yossef, "On
 * Threads, Processes and Co-Processes", 2009), built on Latchwork's regions and coprocs.
 *
 * A coproc is a separate process, with a name that ps shows and attributes that are set before its routine runs. It
 * shares one memory area with its creator at the same address: pointers into the area, and within it, mean the same in
 * all of them.
 *
 * Failures are reported as by system calls: -1 or NULL, with errno. A program that was never initialised gets EINVAL.
 *
 * The state of a coproc: without a sharing flag it is a clean copy of the process as it was when coproc_init() was
 * called: statics have the values that they had then, the regions of that time are attached, and no lock is held. Call
 * coproc_init() early. With COPROC_SNAPSHOT or a sharing flag, it is a copy of the calling thread as it is now, with all
 * memory of its process. Other threads do not exist in the copy, but locks that they held stay held, malloc's among them.
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

/* The attributes to set; the others are inherited. Each has its own bit. */
#define COPROC_SET_AS_SIZE 0x0010
#define COPROC_SET_CORE_SIZE 0x0020
#define COPROC_SET_CPU_TIME 0x0040
#define COPROC_SET_STACK_SIZE 0x0080
#define COPROC_SET_SCHED 0x0100
#define COPROC_SET_CPU_AFFINITY 0x0200

/* Share the table of descriptors, the working directory, the root and the umask. */
#define COPROC_SHARE_FS 0x0002
/* System V semaphore adjustments are undone when the last sharing process ends. */
#define COPROC_SHARE_SYSVSEM 0x0008
/* It will not be joined. It lives until it ends by itself, or until coproc_exit(). */
#define COPROC_DETACHED 0x0004
/* Make it a child of the creator's parent: refused with ENOTSUP, since no process could join it. */
#define COPROC_NOTIFY_PARENT 0x0001
/* Latchwork's extensions: a copy of the process as it is now; kill it when its creator ends. */
#define COPROC_SNAPSHOT 0x0400
#define COPROC_DIE_WITH_PARENT 0x0800

/*
 * Creates the shared memory, and the server process of which clean coprocs are copies. At least so many bytes can be
 * allocated, in blocks of 16 bytes or more, if threads leave at most 256 pieces of 64 KiB unfilled. EBUSY: it was called before, without a coproc_exit() since, or the caller
 * holds robust mutexes. EAGAIN: threads of this process hold locks of the C library. After coproc_exit() it starts a new
 * server process, over the existing memory; ENOMEM if that is smaller.
 */
int coproc_init(size_t shm_max_size);

/*
 * Starts a coproc. "attrib" may be NULL if no COPROC_SET_ flag is given. The argument is a pointer into the shared
 * memory, or one that is meaningful in the copy that the coproc is. If an attribute cannot be set, the routine has not
 * run, and coproc_failed_attribute() returns the attribute.
 */
pid_t coproc_create(const char *coproc_name, struct coproc_attributes *attrib, int flags,
		    int (*start_routine)(void *), void *arg);

/* Latchwork's extensions of the attributes. Zero in a field sets nothing: memset() all of it first. */
struct coproc_extras {
	/* The directory of the control group to start it in; NULL: the creator's group */
	const char *cgroup;
	/* Descriptors of which the coproc gets copies; they stay open in the creator. At most 32, less one each for a cgroup
	 * and the confinements of files and calls */
	const int *descriptors;
	/* How many descriptors there are */
	size_t descriptor_count;
	/* COPROC_NO_NEW_PRIVS and others, below, or 0 */
	unsigned confinement;
	/* With COPROC_CONFINE_FILES: lists of paths, which end in NULL; NULL: none */
	const char *const *readable;
	const char *const *writable;
	/* With COPROC_CONFINE_CALLS: the numbers (SYS_...) of calls beside those that the library needs */
	const long *calls;
	size_t call_count;
};

/* No exec gains privileges (PR_SET_NO_NEW_PRIVS). COPROC_CONFINE_FILES and COPROC_CONFINE_CALLS include it. */
#define COPROC_NO_NEW_PRIVS 1u
/* It opens no file but those that are listed, or beneath a directory that is (Landlock, Linux 6.2). */
#define COPROC_CONFINE_FILES 2u
/* It makes no system call (seccomp) but those that the library needs, and those that are listed: others fail with ENOSYS. */
#define COPROC_CONFINE_CALLS 4u
/* With COPROC_CONFINE_CALLS: other calls kill it, by SIGSYS. */
#define COPROC_DENIED_KILLS 8u
/* What the kernel lacks of these is left out, and is no error. */
#define COPROC_BEST_EFFORT 16u

/*
 * As coproc_create(), with these, too; "extras" may be NULL. The attributes that it may fail for are also "cgroup",
 * "descriptors" (EBADF, one of them is not open; E2BIG, they are too many; EINVAL, the pointer is NULL), "confinement"
 * (EINVAL, a flag that there is not), "files" (ENOENT, a path is not there; ENOSYS, EOPNOTSUPP, the kernel has no Landlock,
 * or an old one) and "system_calls" (ENOSYS; EINVAL).
 */
pid_t coproc_create_with(const char *coproc_name, struct coproc_attributes *attrib,
			 const struct coproc_extras *extras, int flags, int (*start_routine)(void *), void *arg);

/*
 * In a coproc: the number of the copy that it got of descriptors[place]. It is closed by exec, and the coproc may close
 * it. EBADF: it was passed fewer, or the caller is no coproc.
 */
int coproc_descriptor(size_t place);

/* The attribute that made the calling thread's last coproc_create() fail; NULL if it did not fail for an attribute. */
const char *coproc_failed_attribute(void);

/*
 * Ends what coproc_init() began. Each coproc of the calling process that still runs, detached or not, gets SIGTERM,
 * then SIGKILL if it still runs a second later, and is joined; a coproc_join() in another thread returns. The server
 * process ends. No other process is affected: coprocs of coprocs belong to their creators.
 *
 * Afterwards coproc_create() and coproc_exit() fail with EINVAL, as before coproc_init(), which may be called again. A
 * coproc_create() that runs at the same time leaves no coproc behind, and fails with EINVAL. The shared memory stays,
 * and coproc_alloc() and coproc_free() still work. EPERM, also of coproc_init() and coproc_create(): the calling process is a
 * fork of the one that called coproc_init().
 */
int coproc_exit(void);

/* Allocates shared memory, aligned for every type; it outlives the coproc that allocated it. NULL: ENOMEM. */
void *coproc_alloc(size_t size);

/* Frees such memory; NULL does nothing. A pointer to anything else aborts the program with a message. */
void coproc_free(void *ptr);

/*
 * Waits for the coproc's end. The status is for WIFEXITED(), WEXITSTATUS(), WTERMSIG() ...; "status" may be NULL.
 * ECHILD: the calling process has no such coproc, or it was joined before, or is detached.
 */
int coproc_join(pid_t pid, int *status);

#ifdef __cplusplus
}
#endif

#endif

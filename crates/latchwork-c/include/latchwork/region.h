/*
 * latchwork/region.h: memory that processes share at one address, with a heap, named objects, and tasks whose deaths
 * are noticed.
 *
 * A pointer into a region means the same in every process that has attached it. Locks of the kinds lw_shared_... and
 * lw_robust_... work there between processes, and so do queues (latchwork/queue.h); those of the kinds lw_region_... work
 * only there. Programs in Rust and in C may use the same region: see "Objects" below for the types.
 *
 * Each thread that uses a region becomes a task of it at its first use, and leaves it when it ends. The death of a
 * task is noticed at once by those who wait for it, and what only it knew of is freed.
 *
 * Functions return 0 or a positive error number, if not said otherwise; lw_error_text() then tells more. They are not
 * for signal handlers. Manual: lw_region(3).
 */
#ifndef LATCHWORK_REGION_H
#define LATCHWORK_REGION_H

#include "base.h"

LW__BEGIN

/* A process's handle on a region. Threads may share it. In the child of a fork it is a handle of the child's own. */
typedef struct lw_region lw_region_t;

/* What a new region is like. Zeros, or a null pointer in place of the whole, are the defaults. */
struct lw_region_options {
	/* The largest size of the heap in bytes, 1 MiB to 1 TiB: 256 MiB. Memory is taken as it is needed. */
	uint64_t max_bytes;
	/* The largest number of tasks at a time, 1 to 16,384: 256; and of names, 1 to 1,048,576: 1024. */
	uint32_t max_tasks, max_names;
	/* The permission bits of a named region's file: 0600. */
	uint32_t mode;
	/* LW_REGION_... below. Used by the attaching functions as well. */
	uint32_t flags;
	/* Where the region is to be, a multiple of 64 KiB: at any free address. */
	void *address;
	/* What `latchwork ps` shows for a region without a name: "anonymous". */
	const char *label;
};

/* The name goes with the last process that detaches or exits in good order. By default it stays. */
#define LW_REGION_UNLINK_AT_LAST_DETACH 1u
/*
 * Attaches regions of other users, too. By default only the calling user's own are attached, by root as well. A region
 * holds pointers: whoever may write the file can have each program that attaches it run any code.
 */
#define LW_REGION_TRUST_ANY_OWNER 2u
/*
 * Maps the region for reading only, for monitors: the right to read its file suffices. The process is no task of the
 * region and disturbs none; it may be in another PID namespace. With such a handle, lw_region_base(),
 * lw_region_max_bytes(), lw_region_fd(), lw_region_find(), lw_region_heap_stats() and lw_region_detach() work; the others
 * fail with EROFS. An object is read by atomic loads if tasks change it meanwhile; a write to it raises SIGSEGV. For
 * lw_region_attach() and lw_region_attach_fd(), in a process that has not attached the region.
 */
#define LW_REGION_READ_ONLY 4u
/*
 * A new region is for tasks of any PID namespace, such as those of several containers. By default it is for the namespace
 * in which it is made. Locks that name a thread by its ID must not be placed there: those of the kinds lw_robust_...,
 * lw_shared_tp_..., lw_shared_pi_... and lw_shared_plain_pi_..., whose initialisation fails there with EXDEV (a copy of an
 * initialiser is not checked), and pthread's robust and inheriting mutexes. Those of the kinds lw_region_... take their place.
 * Queues, and shared locks of the other kinds, work there.
 */
#define LW_REGION_ANY_PID_NAMESPACE 8u
/*
 * Attaches a region only after a validation of what the library's own objects in it hold: queues, rings, semaphores, and
 * the tables of <latchwork/classic.h>. (Header, heap and names are always validated.) Objects that the program named are
 * blocks of the size that they claim; what is in them is the program's to check. The region must be one that no process
 * has: EBUSY otherwise. EBADMSG: an object is not sound; lw_error_text() names it.
 */
#define LW_REGION_CHECKED 16u

/* ---- regions ---- */

/*
 * Makes a region. A name, of at most 63 bytes without '/', lets other programs attach it. If the name is NULL, the
 * region is for this process, for copies of it that are made later (forks; coprocs with COPROC_SNAPSHOT; other coprocs,
 * if coproc_init() is called later), and for processes that are sent its descriptor. EEXIST: the name is taken. EINVAL: an option is out of range, or the name is unfit. EADDRINUSE: something else is at the address. EMFILE:
 * this process has 4096 regions mapped.
 */
int lw_region_create(lw_region_t **region, const char *name, const struct lw_region_options *options);

/*
 * Attaches the region of this name. ENOENT: there is none. EACCES: the file's mode forbids it, or another user owns it.
 * EBADMSG: the file is no region, or is damaged. EPROTO: it was made by another version of the library. EADDRINUSE:
 * this process has something else at the region's address. EXDEV: it belongs to another PID namespace, and was made
 * without LW_REGION_ANY_PID_NAMESPACE; or /proc does not say to which this process belongs.
 */
int lw_region_attach(lw_region_t **region, const char *name, const struct lw_region_options *options);

/* The same for a descriptor of a region's file, as lw_region_fd() returns it; the descriptor stays the caller's. */
int lw_region_attach_fd(lw_region_t **region, int fd, const struct lw_region_options *options);

/* Attaches the region of this name, or makes it if there is none, as one step. */
int lw_region_attach_or_create(lw_region_t **region, const char *name, const struct lw_region_options *options);

/*
 * Removes the name. Processes that have attached the region keep it; the memory is freed when the last of them is
 * gone. ENOENT: there is no such name.
 */
int lw_region_unlink(const char *name);

/*
 * Gives up the handle; the calling thread leaves the region. The mapping stays while other threads of the process are
 * tasks of it. EBUSY: queues are open by this handle, or the calling thread holds robust locks or region mutexes of the region,
 * or has messages of its queues in hand; nothing has changed then.
 */
int lw_region_detach(lw_region_t *region);

/* The first address, the largest size of the heap, and a descriptor for lw_region_attach_fd(), which stays the handle's. */
void *lw_region_base(const lw_region_t *region);
uint64_t lw_region_max_bytes(const lw_region_t *region);
int lw_region_fd(const lw_region_t *region);

/*
 * Makes the calling thread a task of the region now, under a name (of at most 32 bytes, or NULL) that `latchwork ps`
 * shows. EAGAIN: the region has its largest number of tasks. EMFILE: the thread is a task of too many regions. EXDEV: as
 * for lw_region_attach(), in the child of a fork that belongs to another PID namespace than its parent.
 */
int lw_region_join(lw_region_t *region, const char *task_name);

/* ---- the heap ---- */

/*
 * Blocks, aligned for every type, or to a power of two up to 4096. A block belongs to the thread that allocated it: if
 * that is killed, the block is freed, unless it was kept. Returns NULL, and sets errno, if it fails: ENOMEM: the region
 * is full, or the system has no memory. EINVAL: the alignment is unfit.
 */
void *lw_region_alloc(lw_region_t *region, size_t bytes);
void *lw_region_zalloc(lw_region_t *region, size_t bytes);
void *lw_region_aligned_alloc(lw_region_t *region, size_t alignment, size_t bytes);

/* Frees a block, whichever task allocated it; NULL does nothing. Anything else ends the program, with a message. */
void lw_region_free(lw_region_t *region, void *block);

/* Lets a block outlive the thread that allocated it. To be called before another task learns of the block. */
int lw_region_keep(lw_region_t *region, void *block);

/* Gives memory that the heap does not use back to the system; stores how many bytes, if "freed" is not NULL. */
int lw_region_trim(lw_region_t *region, size_t *freed);

struct lw_heap_stats {
	/* What the blocks in use may hold, what the heap has taken from the system, and what it may take. */
	uint64_t used_bytes, committed_bytes, max_bytes;
};
int lw_region_heap_stats(const lw_region_t *region, struct lw_heap_stats *stats);

/* ---- objects ---- */

/*
 * The object of this name, which is made if there is none: "bytes" zero bytes, aligned to 64, on which
 * make(object, argument) is called; both may be NULL. It is made once, however many tasks ask at the same time: "make"
 * runs under the lock of the names, and must not use names itself, nor leave by longjmp(). If its task is killed in
 * "make", the name stays free. The object does not move, and stays until it is removed.
 *
 * "type" is a number that says what the object is: programs of one type, and one version of it, use the same number,
 * such as the type's name and version in ASCII, or LW_TYPE("org.example.accounts 2"). EEXIST: the object of this name
 * has another type or size. ENOSPC: all names of the region are in use. ENOMEM. EINVAL: the name is longer than 64
 * bytes, or empty.
 */
int lw_region_object(lw_region_t *region, const char *name, uint64_t type, size_t bytes,
		     void (*make)(void *object, void *argument), void *argument, void **object);

/* The object of this name. ENOENT: there is none. EEXIST: it has another type or size. */
int lw_region_find(lw_region_t *region, const char *name, uint64_t type, size_t bytes, void **object);

/*
 * Removes the name, and frees the object, of which no task may make use any more. ENOENT, EEXIST: as for
 * lw_region_find().
 */
int lw_region_remove(lw_region_t *region, const char *name, uint64_t type, size_t bytes);

/* A number for a type, from a name of it: the 64-bit FNV-1a hash. */
LW_INLINE uint64_t lw_type(const char *name);
#ifndef __CHECKER__
LW_INLINE uint64_t lw_type(const char *name)
{
	uint64_t hash = 0xcbf29ce484222325u;
	for (; *name != '\0'; name++)
		hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
	return hash;
}
#endif

/*
 * Why the calling thread's last failed call of this header or of latchwork/queue.h failed, in words. Valid until the
 * thread's next call that fails. Empty if none has failed.
 */
const char *lw_error_text(void);

LW__END

#endif

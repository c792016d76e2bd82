/* Locks as tables of functions, for bodies that know no more of them. */
#ifndef KINDS_H
#define KINDS_H

#include <stddef.h>
#include <time.h>

/* Answers are 0, or an error number; an exception's of C++, too. */
struct mutex_kind {
	void (*make)(void *mutex);
	int (*lock)(void *mutex);
	int (*trylock)(void *mutex);
	int (*lock_until)(void *mutex, const struct timespec *monotonic);
	int (*unlock)(void *mutex);
	int (*wait)(void *cond, void *mutex);
	int (*wait_until)(void *cond, void *mutex, const struct timespec *monotonic);
	void (*notify)(void *cond, int all);
	size_t size, cond_size;
};

struct rwlock_kind {
	void (*make)(void *lock);
	int (*read)(void *lock);
	int (*try_read)(void *lock);
	int (*read_until)(void *lock, const struct timespec *monotonic);
	int (*write)(void *lock);
	int (*try_write)(void *lock);
	int (*write_until)(void *lock, const struct timespec *monotonic);
	int (*leave_read)(void *lock);
	int (*leave_write)(void *lock);
	size_t size;
};

/* In the order in which the bodies name them. */
#ifdef __cplusplus
extern "C" {
#endif
extern const struct mutex_kind mutex_kinds[];
extern const struct rwlock_kind rwlock_kinds[];
#ifdef __cplusplus
}
#endif

#endif

/*
 * lw_once() and lw_region_once(): the program's function runs in a C frame, so that it may be left in any way: a return, a C++ exception,
 * pthread_exit(), cancellation. Compiled with -fexceptions: the handler below runs in each case but the first. If its
 * owner dies, the next task's lock call reports that.
 */
#include "latchwork.h"

#include <stdlib.h>

#define ONCE(name, call, mutex)                                                                       \
	/* The state is still "not done", unless it was set: the next task runs the function again. */ \
	static void leave_##name(name##_t **once)                                                     \
	{                                                                                             \
		mutex##_unlock(&(*once)->lw_lock);                                                    \
	}                                                                                             \
	static void run_##name(name##_t *once, void (*initialise)(void))                              \
	{                                                                                             \
		name##_t *left __attribute__((cleanup(leave_##name))) = once;                         \
		initialise();                                                                         \
		__atomic_store_n(&once->lw_done, 1, __ATOMIC_RELEASE);                                \
	}                                                                                             \
	int call(name##_t *once, void (*initialise)(void))                                            \
	{                                                                                             \
		int error;                                                                            \
		if (once == NULL || initialise == NULL)                                               \
			return EINVAL;                                                                \
		error = mutex##_lock(&once->lw_lock);                                                 \
		if (error == EOWNERDEAD)                                                              \
			error = mutex##_consistent(&once->lw_lock);                                   \
		if (error != 0)                                                                       \
			return error;                                                                 \
		if (once->lw_done != 0)                                                               \
			mutex##_unlock(&once->lw_lock);                                               \
		else                                                                                  \
			run_##name(once, initialise);                                                 \
		return 0;                                                                             \
	}
ONCE(lw_once, lw__once, lw_robust_mutex)
ONCE(lw_region_once, lw__region_once, lw_region_mutex)

/*
 * A coproc's routine, called from Rust code: anything that unwinds it (pthread_exit(), for example) ends the coproc
 * here and never reaches a Rust frame. A C++ exception has no handler, so std::terminate() ends the process before any
 * unwinding.
 */
int latchwork_run(int (*start)(void *), void *argument);

static void end(const int *has_returned)
{
	if (!*has_returned)
		exit(EXIT_SUCCESS);
}

int latchwork_run(int (*start)(void *), void *argument)
{
	int has_returned __attribute__((cleanup(end))) = 0;
	int result = start(argument);
	has_returned = 1;
	return result;
}

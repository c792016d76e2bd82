/*
 * A library to be preloaded: it ends a program in which a thread of the program's comes from the C library of Latchwork
 * to a cancellation point of libc, and could be cancelled there. With TWIN set in the environment nothing disables
 * cancellation, and each such point ends the program.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* libc's own function of this name. */
static void find(void *function, const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);
	memcpy(function, &found, sizeof found);
}

static int set_state(int state, int *before)
{
	static int (*set)(int, int *);
	if (set == NULL)
		find(&set, "pthread_setcancelstate");
	return set(state, before);
}

int pthread_setcancelstate(int state, int *before)
{
	if (getenv("TWIN") == NULL)
		return set_state(state, before);
	if (before != NULL)
		*before = PTHREAD_CANCEL_ENABLE;
	return 0;
}

static void reach(const char *name, const void *caller)
{
	Dl_info module;
	char thread[16] = "";
	int before;
	if (dladdr(caller, &module) == 0 || strstr(module.dli_fname, "/liblatchwork.so") == NULL)
		return;
	/* The library's own threads are known to nobody who could cancel them. */
	pthread_getname_np(pthread_self(), thread, sizeof thread);
	if (strncmp(thread, "latchwork", 9) == 0)
		return;
	set_state(PTHREAD_CANCEL_DISABLE, &before);
	if (before == PTHREAD_CANCEL_ENABLE) {
		fprintf(stderr, "%s at %#zx of the library may end the thread\n", name,
			(size_t)((const char *)caller - (const char *)module.dli_fbase));
		abort();
	}
}

#define POINT(type, name, parameters, arguments)                                                      \
	type name parameters                                                                          \
	{                                                                                             \
		static type(*next) parameters;                                                        \
		if (next == NULL)                                                                     \
			find(&next, #name);                                                           \
		reach(#name, __builtin_return_address(0));                                            \
		return next arguments;                                                                \
	}

POINT(int, close, (int file), (file))
POINT(int, closedir, (DIR *directory), (directory))
POINT(int, fflush, (FILE *file), (file))
POINT(DIR *, opendir, (const char *path), (path))
POINT(int, pthread_join, (pthread_t thread, void **result), (thread, result))
POINT(ssize_t, read, (int file, void *buffer, size_t bytes), (file, buffer, bytes))
POINT(struct dirent64 *, readdir64, (DIR *directory), (directory))
POINT(ssize_t, readlink, (const char *path, char *buffer, size_t bytes), (path, buffer, bytes))
POINT(int, sigtimedwait, (const sigset_t *set, siginfo_t *info, const struct timespec *time), (set, info, time))
POINT(pid_t, wait4, (pid_t child, int *status, int flags, struct rusage *usage), (child, status, flags, usage))
POINT(int, waitid, (idtype_t kind, id_t id, siginfo_t *info, int flags), (kind, id, info, flags))
POINT(ssize_t, write, (int file, const void *bytes, size_t count), (file, bytes, count))
POINT(ssize_t, writev, (int file, const struct iovec *parts, int count), (file, parts, count))

int open64(const char *path, int flags, ...)
{
	static int (*next)(const char *, int, ...);
	va_list rest;
	mode_t mode;
	va_start(rest, flags);
	mode = va_arg(rest, mode_t);
	va_end(rest);
	if (next == NULL)
		find(&next, "open64");
	reach("open64", __builtin_return_address(0));
	return next(path, flags, mode);
}

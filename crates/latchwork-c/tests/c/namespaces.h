/* For the programs whose processes are in several PID namespaces. */
#ifndef NAMESPACES_H
#define NAMESPACES_H

#include "check.h"

#include <sched.h>

/* What in_namespace() returns if there may be no namespace. */
#define NO_NAMESPACE 77

/* Runs a function as the first process of a new PID namespace. Returns the process's exit status. */
static inline int in_namespace(void (*body)(void *), void *argument)
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWPID | CLONE_NEWUSER) != 0)
			_exit(NO_NAMESPACE);
		child = fork();
		if (child == 0) {
			CHECK_IS(getpid(), 1);
			body(argument);
			_exit(0);
		}
		CHECK_IS(waitpid(child, &status, 0), child);
		_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
	}
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

#endif

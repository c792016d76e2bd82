/* For the programs that start coprocs: their ends. */
#ifndef COPROCS_H
#define COPROCS_H

#include "coproc.h"

#include "check.h"

#include <signal.h>

/* The watchdog of a process; it must do whatever is awaited within that time. */
#define AWAIT(condition)                                                                              \
	do {                                                                                          \
		while (!(condition))                                                                  \
			sleep_ms(1);                                                                  \
	} while (0)

static inline int done(pid_t pid)
{
	int status;
	CHECK(pid > 0);
	CHECK_IS(coproc_join(pid, &status), 0);
	return status;
}

static inline int returned(pid_t pid)
{
	int status = done(pid);
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* Whether a process runs: one that nobody has waited for yet has ended, and undone what it had to. */
static inline int runs(pid_t pid)
{
	char path[64], text[512], *state;
	size_t length;
	FILE *file;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	file = fopen(path, "r");
	if (file == NULL)
		return 0;
	length = fread(text, 1, sizeof text - 1, file);
	fclose(file);
	text[length] = 0;
	state = strrchr(text, ')');
	return state != NULL && state[2] != 'Z' && state[2] != 'X';
}

#endif

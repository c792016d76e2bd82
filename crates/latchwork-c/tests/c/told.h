/* For the programs that show what lw_migrate(3) says: the reports that a handler has got, and threads of few calls. */
#ifndef TOLD_H
#define TOLD_H

#include "migrate.h"

#include "check.h"

#include <signal.h>

static pthread_mutex_t telling = PTHREAD_MUTEX_INITIALIZER;
static char reported[16384];

/* One call may cause several reports, and tasks may report at the same time. */
static void tell(const char *text)
{
	size_t length;
	pthread_mutex_lock(&telling);
	length = strlen(reported);
	snprintf(reported + length, sizeof reported - length, "%s", text);
	pthread_mutex_unlock(&telling);
}

static int tells(const char *text)
{
	int does;
	pthread_mutex_lock(&telling);
	does = strstr(reported, text) != NULL;
	pthread_mutex_unlock(&telling);
	return does;
}

#define CHECK_TOLD(text)                                                                              \
	do {                                                                                          \
		if (!tells(text))                                                                         \
			fprintf(stderr, "reported, instead of %s: %s\n", text, reported);                     \
		CHECK(tells(text));                                                                       \
		reported[0] = 0;                                                                          \
	} while (0)
#define CHECK_SILENT()                                                                                \
	do {                                                                                          \
		fputs(reported, stderr);                                                                  \
		CHECK_IS(reported[0], 0);                                                                 \
	} while (0)

/* A thread that makes one call, or several. */
#define THREAD(name, type, does)                                                                      \
	static void *name(void *argument)                                                             \
	{                                                                                             \
		struct type *it = (struct type *)argument;                                                \
		does;                                                                                     \
		return NULL;                                                                              \
	}

#endif

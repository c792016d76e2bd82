/*
 * The usage example of the talk "On Threads, Processes and Co-Processes" (slide 33), with nothing added but what
 * the slide leaves out: the attributes, the name of their variable, and the routine.
 */
#define _GNU_SOURCE
#include "coproc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static int test_coproc_func(void *arg)
{
	strcpy(arg, "written by the coproc");
	return 7;
}

int main(void)
{
	int pid, ret;
	char * test_mem;
	struct coproc_attributes test_coproc_attr = {
		.scheduling_policy = SCHED_OTHER,
		.scheduling_param = 0,
	};

	coproc_init(1024 * 1024);

	test_mem = coproc_alloc(1024);

	if(!test_mem) abort();

	pid = coproc_create("test_coproc", &test_coproc_attr, \
		COPROC_SHARE_FS, test_coproc_func, test_mem);

	if(pid < 0) abort();

	coproc_join(pid, &ret);

	printf("%s; it returned %d\n", test_mem, WEXITSTATUS(ret));

	coproc_free(test_mem);

	return 0;
}

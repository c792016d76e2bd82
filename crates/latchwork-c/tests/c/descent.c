/*
 * The first process of a PID namespace forks the first one of another. The child has its parent's ID and a copy of its
 * memory; its parent's coprocs, tasks and messages in hand are not its own.
 */
#include "classic.h"
#include "latchwork/queue.h"

#include "coprocs.h"
#include "namespaces.h"

#include <errno.h>

#define IDLE rtems_build_name('I', 'D', 'L', 'E')

static volatile int *has_begun;
static rtems_id unstarted;
static lw_message_t message;

static int stay(void *argument)
{
	*(volatile int *)argument = 1;
	for (;;)
		pause();
	return 0;
}

/* In a child of a coproc, which has started no coproc either. */
static int forks(void *argument)
{
	int status;
	pid_t child = fork();
	(void)argument;
	if (child == 0)
		_exit(coproc_create("another", NULL, 0, stay, NULL) == -1 && errno == EPERM ? 0 : 1);
	return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

static rtems_task never(rtems_task_argument argument)
{
	(void)argument;
	abort();
}

static rtems_status_code finds(rtems_id *id)
{
	return rtems_task_ident(IDLE, RTEMS_SEARCH_ALL_NODES, id);
}

static void inner(void *argument)
{
	pid_t coproc = *(pid_t *)argument;
	rtems_id id;
	CHECK(coproc_exit() == -1 && errno == EPERM);
	CHECK(coproc_join(coproc, NULL) == -1 && errno == ECHILD);
	CHECK(coproc_create("another", NULL, 0, stay, (void *)has_begun) == -1 && errno == EPERM);
	CHECK_IS(lw_message_done(&message), EPERM);
	CHECK_IS(lw_message_cancel(&message), EPERM);
	CHECK_IS(rtems_task_start(unstarted, never, 0), RTEMS_INCORRECT_STATE);
	CHECK_IS(rtems_task_delete(unstarted), RTEMS_NOT_IMPLEMENTED);
	CHECK_IS(finds(&id), RTEMS_INVALID_NAME);
}

static void outer(void *unused)
{
	lw_queue_t *queue;
	pid_t coproc;
	rtems_id id;
	int status;
	(void)unused;
	CHECK_IS(coproc_init(1 << 20), 0);
	coproc = coproc_create("stays", NULL, 0, stay, (void *)has_begun);
	CHECK(coproc > 0);
	AWAIT(*has_begun);
	CHECK_IS(returned(coproc_create("forks", NULL, 0, forks, NULL)), 0);
	CHECK_IS(rtems_task_create(IDLE, 40, 0, RTEMS_DEFAULT_MODES, RTEMS_DEFAULT_ATTRIBUTES, &unstarted),
		 RTEMS_SUCCESSFUL);
	CHECK_IS(finds(&id), RTEMS_SUCCESSFUL);
	CHECK_IS(id, unstarted);

	CHECK_IS(lw_queue_create(&queue, NULL, NULL, 1, 1, LW_QUEUE_FIFO), 0);
	CHECK_IS(lw_queue_send(queue, "m", 1, 0), 0);
	CHECK_IS(lw_queue_hold(queue, &message, NULL), 0);

	status = in_namespace(inner, &coproc);
	CHECK(status == 0 || status == NO_NAMESPACE);

	/* None of them has ended, or been started. */
	CHECK_IS(lw_message_done(&message), 0);
	CHECK_IS(lw_queue_close(queue), 0);
	CHECK_IS(kill(coproc, 0), 0);
	CHECK_IS(rtems_task_delete(unstarted), RTEMS_SUCCESSFUL);
	CHECK_IS(coproc_exit(), 0);
	_exit(status);
}

int main(void)
{
	int status;
	alarm(WATCHDOG);
	has_begun = (volatile int *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(has_begun != MAP_FAILED);
	status = in_namespace(outer, NULL);
	if (status == NO_NAMESPACE)
		fprintf(stderr, "skipped: PID namespaces cannot be made here\n");
	else
		CHECK_IS(status, 0);
	puts("apart");
	return 0;
}

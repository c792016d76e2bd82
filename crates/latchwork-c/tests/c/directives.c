/* Statuses, constants and orders of checks; objects that are made and deleted again and again. C and C++. */
#include "classic.h"

#include "check.h"

#define NAME rtems_build_name('S', 'T', 'A', 'T')
#define OTHER rtems_build_name('O', 'T', 'H', 'R')

static rtems_task end_at_once(rtems_task_argument argument)
{
	(void)argument;
}

typedef void (*directive)(void);
static const directive of_tasks[] = {
	(directive)rtems_task_create,	     (directive)rtems_task_start,	 (directive)rtems_task_ident,
	(directive)rtems_task_self,	     (directive)rtems_task_set_priority, (directive)rtems_task_get_scheduler,
	(directive)rtems_task_set_scheduler, (directive)rtems_task_get_affinity, (directive)rtems_task_set_affinity,
	(directive)rtems_task_wake_after,    (directive)rtems_task_delete,	 (directive)rtems_task_exit,
};
static const directive of_schedulers[] = {
	(directive)rtems_scheduler_ident,
	(directive)rtems_scheduler_ident_by_processor,
	(directive)rtems_scheduler_ident_by_processor_set,
	(directive)rtems_scheduler_get_maximum_priority,
	(directive)rtems_scheduler_get_processor_set,
	(directive)rtems_scheduler_get_processor,
	(directive)rtems_scheduler_get_processor_maximum,
};

static int count_different(const directive *directives, size_t count)
{
	int different = 0;
	for (size_t i = 0; i < count; i++) {
		size_t j = 0;
		while (directives[j] != directives[i])
			j++;
		different += i == j;
	}
	return different;
}

static void check_declarations(void)
{
	/* These names are free. */
	enum { rtems_task_suspend = 1, rtems_task_resume = 2, rtems_task_restart = 4 };
	enum { rtems_scheduler_add_processor = 8, rtems_scheduler_remove_processor = 16 };
	/* lw_classic(3) says: From RTEMS's task manager it declares */
	CHECK_IS(count_different(of_tasks, sizeof of_tasks / sizeof *of_tasks), 12);
	/* lw_classic(3) says: From RTEMS's scheduler manager it declares */
	CHECK_IS(count_different(of_schedulers, sizeof of_schedulers / sizeof *of_schedulers), 7);
	/* lw_classic(3) says: Tasks cannot be suspended, resumed or restarted */
	CHECK_IS(rtems_task_suspend + rtems_task_resume + rtems_task_restart, 7);
	/* lw_classic(3) says: Processors cannot be added to schedulers or removed from them */
	CHECK_IS(rtems_scheduler_add_processor + rtems_scheduler_remove_processor, 24);
}

static void check_constants(void)
{
	/* lw_classic(3) says: This header declares the directives of RTEMS's semaphore, event and message-queue managers, with */
	CHECK_IS(RTEMS_GLOBAL, 2);
	CHECK_IS(RTEMS_ID_NONE, 0);
	CHECK_IS(RTEMS_EVENT_SYSTEM_NETWORK_SBWAIT, 1 << 24);
	CHECK_IS(RTEMS_EVENT_SYSTEM_NETWORK_SOSLEEP, 1 << 25);
	CHECK_IS(RTEMS_EVENT_SYSTEM_NETWORK_CLOSE, 1 << 26);
	CHECK_IS(RTEMS_EVENT_SYSTEM_SERVER_RESUME, 1 << 29);
	CHECK_IS(RTEMS_EVENT_SYSTEM_SERVER, 1 << 30);
	CHECK(RTEMS_EVENT_SYSTEM_TRANSIENT == 0x80000000u);
}

static void check_sizes(void)
{
	const size_t largest = SIZE_MAX - 31;
	rtems_id id = 7;
	CHECK_IS(rtems_message_queue_create(NAME, UINT32_MAX, largest, 0, &id), RTEMS_INVALID_NUMBER);
	CHECK_IS(rtems_message_queue_create(NAME, 2, largest, 0, &id), RTEMS_INVALID_NUMBER);
	CHECK_IS(rtems_message_queue_create(NAME, UINT32_MAX, 1, 0, &id), RTEMS_INVALID_NUMBER);
	CHECK_IS(rtems_message_queue_create(NAME, UINT32_MAX, SIZE_MAX, 0, &id), RTEMS_INVALID_SIZE);
	CHECK_IS(rtems_message_queue_create(NAME, 1, SIZE_MAX, 0, &id), RTEMS_INVALID_SIZE);
	CHECK_IS(rtems_message_queue_create(NAME, 1, largest, 0, &id), RTEMS_UNSATISFIED);
	CHECK_IS(rtems_message_queue_create(NAME, 1, (size_t)1 << 33, 0, &id), RTEMS_UNSATISFIED);
	CHECK_IS(id, 7);
	CHECK_IS(rtems_message_queue_create(NAME, 1, 1, RTEMS_GLOBAL, &id), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_message_queue_delete(id), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_create(NAME, 1, RTEMS_GLOBAL, 0, &id), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_delete(id), RTEMS_SUCCESSFUL);
}

static int freed;

static void free_storage(void *area)
{
	CHECK(area != NULL);
	freed++;
}

static void check_construction(void)
{
	static RTEMS_MESSAGE_QUEUE_BUFFER(13) buffers[3];
	rtems_message_queue_config config;
	rtems_id id = 7;
	char buffer[13];
	size_t size;
	/* lw_classic(3) says: The memory is an array of RTEMS_MESSAGE_QUEUE_BUFFER(size), with one element for each message */
	CHECK_IS(sizeof buffers, 3 * 40);
	memset(&config, 0, sizeof config);
	CHECK_IS(rtems_message_queue_construct(NULL, &id), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_message_queue_construct(&config, &id), RTEMS_INVALID_NAME);
	config.name = NAME;
	CHECK_IS(rtems_message_queue_construct(&config, NULL), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_message_queue_construct(&config, &id), RTEMS_INVALID_NUMBER);
	config.maximum_pending_messages = 3;
	CHECK_IS(rtems_message_queue_construct(&config, &id), RTEMS_INVALID_SIZE);
	config.maximum_message_size = SIZE_MAX;
	CHECK_IS(rtems_message_queue_construct(&config, &id), RTEMS_INVALID_SIZE);
	config.maximum_message_size = SIZE_MAX - 31;
	CHECK_IS(rtems_message_queue_construct(&config, &id), RTEMS_INVALID_NUMBER);
	config.maximum_message_size = 13;
	config.storage_size = sizeof buffers;
	CHECK_IS(rtems_message_queue_construct(&config, &id), RTEMS_UNSATISFIED);
	config.storage_area = buffers;
	/* lw_classic(3) says: The directive checks the size of that memory, but no message is stored there */
	config.storage_size = SIZE_MAX;
	CHECK_IS(rtems_message_queue_construct(&config, &id), RTEMS_UNSATISFIED);
	CHECK_IS(id, 7);
	config.storage_size = sizeof buffers;
	for (int round = 0; round < 2; round++) {
		config.storage_free = round == 0 ? NULL : free_storage;
		config.attributes = round == 0 ? RTEMS_FIFO : RTEMS_PRIORITY;
		/* lw_classic(3) says: rtems_message_queue_construct() takes an rtems_message_queue_config and memory */
		CHECK_IS(rtems_message_queue_construct(&config, &id), RTEMS_SUCCESSFUL);
		for (int message = 0; message < 3; message++)
			CHECK_IS(rtems_message_queue_send(id, "thirteen byte", 13), RTEMS_SUCCESSFUL);
		CHECK_IS(rtems_message_queue_send(id, "", 1), RTEMS_TOO_MANY);
		for (size_t byte = 0; byte < sizeof buffers; byte++)
			CHECK_IS(((const char *)buffers)[byte], 0);
		CHECK_IS(rtems_message_queue_receive(id, buffer, &size, RTEMS_NO_WAIT, 0), RTEMS_SUCCESSFUL);
		CHECK(size == 13 && memcmp(buffer, "thirteen byte", 13) == 0);
		/* lw_classic(3) says: The handler storage_free of the configuration is called when the queue is deleted */
		CHECK_IS(freed, 0);
		CHECK_IS(rtems_message_queue_delete(id), RTEMS_SUCCESSFUL);
		CHECK_IS(freed, round);
		CHECK_IS(rtems_message_queue_delete(id), RTEMS_INVALID_ID);
	}
	CHECK_IS(freed, 1);
	/* lw_classic(3) says: If another process deletes the queue, the process that constructed it calls the handler in its next call of */
	for (int constructs = 0; constructs < 2; constructs++) {
		rtems_id other;
		pid_t child;
		CHECK_IS(rtems_message_queue_create(NAME, 1, 1, 0, &other), RTEMS_SUCCESSFUL);
		CHECK_IS(rtems_message_queue_construct(&config, &id), RTEMS_SUCCESSFUL);
		if ((child = fork()) == 0) {
			alarm(WATCHDOG);
			/* lw_classic(3) says: A child of fork(2) calls no handler of a queue that its parent has constructed */
			CHECK_IS(rtems_message_queue_delete(id), RTEMS_SUCCESSFUL);
			CHECK_IS(freed, 1 + constructs);
			_exit(0);
		}
		CHECK_IS(exit_of(child), 0);
		CHECK_IS(rtems_message_queue_send(id, "", 1), RTEMS_INVALID_ID);
		CHECK_IS(freed, 1 + constructs);
		if (constructs)
			CHECK_IS(rtems_message_queue_construct(&config, &id), RTEMS_SUCCESSFUL);
		else
			CHECK_IS(rtems_message_queue_delete(other), RTEMS_SUCCESSFUL);
		CHECK_IS(freed, 2 + constructs);
		if (constructs) {
			CHECK_IS(rtems_message_queue_delete(other), RTEMS_SUCCESSFUL);
			CHECK_IS(rtems_message_queue_delete(id), RTEMS_SUCCESSFUL);
		}
	}
	CHECK_IS(freed, 4);
}

static void check_ident(void)
{
	const uint32_t here[] = {RTEMS_SEARCH_ALL_NODES, RTEMS_SEARCH_LOCAL_NODE, 1};
	const uint32_t elsewhere[] = {RTEMS_SEARCH_OTHER_NODES, 2, UINT32_MAX};
	rtems_id queue, semaphore, tasks[3], id;
	CHECK_IS(rtems_message_queue_create(NAME, 1, 1, RTEMS_GLOBAL, &queue), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_create(NAME, 1, RTEMS_GLOBAL, 0, &semaphore), RTEMS_SUCCESSFUL);
	for (int task = 0; task < 3; task++)
		CHECK_IS(rtems_task_create(NAME, 9, 0, 0, 0, &tasks[task]), RTEMS_SUCCESSFUL);
	for (int node = 0; node < 3; node++) {
		/* lw_classic(3) says: There is one node, with the number 1 */
		CHECK_IS(rtems_message_queue_ident(NAME, here[node], &id), RTEMS_SUCCESSFUL);
		CHECK_IS(id, queue);
		CHECK_IS(rtems_semaphore_ident(NAME, here[node], &id), RTEMS_SUCCESSFUL);
		CHECK_IS(id, semaphore);
		CHECK_IS(rtems_task_ident(NAME, here[node], &id), RTEMS_SUCCESSFUL);
		CHECK_IS(id, tasks[0]);
		CHECK_IS(rtems_task_ident(OTHER, here[node], &id), RTEMS_INVALID_NAME);
		/* lw_classic(3) says: RTEMS_GLOBAL has no effect, and no name is found on other nodes */
		CHECK_IS(rtems_message_queue_ident(NAME, elsewhere[node], &id), RTEMS_INVALID_NAME);
		CHECK_IS(rtems_semaphore_ident(NAME, elsewhere[node], &id), RTEMS_INVALID_NAME);
		CHECK_IS(rtems_task_ident(NAME, elsewhere[node], &id), RTEMS_INVALID_NAME);
		CHECK_IS(id, tasks[0]);
		CHECK_IS(rtems_task_ident(NAME, elsewhere[node], NULL), RTEMS_INVALID_ADDRESS);
		/* RTEMS_SELF, as a name. */
		CHECK_IS(rtems_task_ident(0, elsewhere[node], &id), RTEMS_SUCCESSFUL);
		CHECK_IS(id, rtems_task_self());
	}
	/* The lowest index is that of a later one then. */
	CHECK_IS(rtems_task_delete(tasks[0]), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_create(NAME, 9, 0, 0, 0, &tasks[0]), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_ident(NAME, RTEMS_SEARCH_ALL_NODES, &id), RTEMS_SUCCESSFUL);
	for (int task = 0; task < 3; task++)
		CHECK((id & 0xffff) <= (tasks[task] & 0xffff));
	for (int task = 0; task < 3; task++)
		CHECK_IS(rtems_task_delete(tasks[task]), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_delete(semaphore), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_message_queue_delete(queue), RTEMS_SUCCESSFUL);
}

static void check_tasks(void)
{
	static rtems_id tasks[5000];
	rtems_task_priority old = 1000;
	rtems_status_code status = RTEMS_SUCCESSFUL;
	rtems_id id = 7;
	int made = 0;
	CHECK_IS(rtems_task_set_priority(RTEMS_SELF, 256, &old), RTEMS_INVALID_PRIORITY);
	CHECK_IS(old, 255);
	CHECK_IS(rtems_task_set_priority(12345, 256, &old), RTEMS_INVALID_ID);
	/* lw_classic(3) says: rtems_task_create() fails with RTEMS_TOO_MANY if the system cannot create another thread, if it cannot */
	CHECK_IS(rtems_task_create(NAME, 9, SIZE_MAX, 0, 0, &id), RTEMS_TOO_MANY);
	CHECK_IS(rtems_task_create(NAME, 9, SIZE_MAX / 2, 0, 0, &id), RTEMS_TOO_MANY);
	CHECK_IS(rtems_task_create(NAME, 9, (size_t)1 << 50, 0, 0, &id), RTEMS_TOO_MANY);
	CHECK_IS(id, 7);
	/* Until there is no place for one more. */
	while (made < 5000 && status == RTEMS_SUCCESSFUL) {
		status = rtems_task_create(NAME, 255, 0, 0, 0, &tasks[made]);
		made += status == RTEMS_SUCCESSFUL;
	}
	CHECK_IS(status, RTEMS_TOO_MANY);
	CHECK(made > 1);
	while (made > 0)
		CHECK_IS(rtems_task_delete(tasks[--made]), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_create(NAME, 9, 0, 0, 0, &id), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_delete(id), RTEMS_SUCCESSFUL);
}

/* Each with other sizes. */
static void check_cycles(void)
{
	static char message[9001];
	const rtems_attribute kinds[] = {
		RTEMS_COUNTING_SEMAPHORE,
		RTEMS_SIMPLE_BINARY_SEMAPHORE,
		RTEMS_BINARY_SEMAPHORE,
		RTEMS_BINARY_SEMAPHORE | RTEMS_PRIORITY | RTEMS_INHERIT_PRIORITY,
		RTEMS_BINARY_SEMAPHORE | RTEMS_PRIORITY | RTEMS_PRIORITY_CEILING,
	};
	rtems_id queue, semaphore, task;
	for (unsigned cycle = 0; cycle < 1500; cycle++) {
		size_t size = 1 + cycle * 37 % 9001;
		uint32_t count = 1 + cycle % 61;
		CHECK_IS(rtems_message_queue_create(NAME, count, size, cycle % 2 ? RTEMS_PRIORITY : RTEMS_FIFO, &queue),
			 RTEMS_SUCCESSFUL);
		CHECK_IS(rtems_message_queue_send(queue, message, size), RTEMS_SUCCESSFUL);
		CHECK_IS(rtems_message_queue_delete(queue), RTEMS_SUCCESSFUL);
		CHECK_IS(rtems_message_queue_send(queue, message, size), RTEMS_INVALID_ID);
		CHECK_IS(rtems_semaphore_create(NAME, 1, kinds[cycle % 5], 9, &semaphore), RTEMS_SUCCESSFUL);
		CHECK_IS(rtems_semaphore_delete(semaphore), RTEMS_SUCCESSFUL);
		CHECK_IS(rtems_semaphore_release(semaphore), RTEMS_INVALID_ID);
		if (cycle % 3 == 0) {
			CHECK_IS(rtems_task_create(NAME, 255, 0, 0, 0, &task), RTEMS_SUCCESSFUL);
			if (cycle % 2 == 0)
				CHECK_IS(rtems_task_start(task, end_at_once, 0), RTEMS_SUCCESSFUL);
			/* It may have ended meanwhile. */
			rtems_task_delete(task);
		}
	}
}

int main(void)
{
	struct lw_classic_options options;
	memset(&options, 0, sizeof options);
	/* Room for the largest queue of the cycles, and not for many. */
	options.memory = 3 << 20;
	options.semaphores = 2;
	options.message_queues = 2;
	options.flags = LW_CLASSIC_UNSCHEDULED;
	CHECK_IS(lw_classic_configure(&options), 0);
	check_declarations();
	check_constants();
	check_sizes();
	check_construction();
	check_ident();
	check_tasks();
	check_cycles();
	puts("answered");
	return 0;
}

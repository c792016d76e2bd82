/* The classic interface as C sees it: constants, order of checks, null pointers, tasks. */
#include "classic.h"

#include "check.h"

#include <errno.h>

#define NAME rtems_build_name('T', 'E', 'S', 'T')

static rtems_id queue, gate, mother;
static int ran;

static rtems_task body(rtems_task_argument argument)
{
	char buffer[8];
	size_t size = 0;
	rtems_event_set events = 0;
	rtems_task_priority old = 0;
	CHECK_IS(argument, 77);
	CHECK_IS(rtems_task_set_priority(RTEMS_SELF, RTEMS_CURRENT_PRIORITY, &old), RTEMS_SUCCESSFUL);
	CHECK_IS(old, 40);
	CHECK_IS(rtems_message_queue_receive(queue, buffer, &size, RTEMS_WAIT, RTEMS_NO_TIMEOUT), RTEMS_SUCCESSFUL);
	CHECK_IS(size, 5);
	CHECK_IS(memcmp(buffer, "hello", 5), 0);
	CHECK_IS(rtems_event_receive(RTEMS_EVENT_1 | RTEMS_EVENT_2, RTEMS_WAIT | RTEMS_EVENT_ALL, RTEMS_NO_TIMEOUT,
				     &events),
		 RTEMS_SUCCESSFUL);
	CHECK_IS(events, RTEMS_EVENT_1 | RTEMS_EVENT_2);
	CHECK_IS(rtems_event_transient_receive(RTEMS_WAIT, RTEMS_NO_TIMEOUT), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_obtain(gate, RTEMS_WAIT, RTEMS_NO_TIMEOUT), RTEMS_UNSATISFIED);
	/* A thread of the program's own. */
	/* lw_classic(3) says: for tasks of other processes, the call fails with RTEMS_NOT_IMPLEMENTED */
	CHECK_IS(rtems_task_delete(mother), RTEMS_NOT_IMPLEMENTED);
	CHECK_IS(rtems_task_delete(gate), RTEMS_INVALID_ID);
	CHECK_IS(rtems_task_start(RTEMS_SELF, body, 77), RTEMS_INCORRECT_STATE);
	ran++;
	CHECK_IS(rtems_event_send(mother, RTEMS_EVENT_9), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_delete(RTEMS_SELF), 1000);
}

int main(void)
{
	rtems_id id = 0, task = 0, idle = 0;
	rtems_event_set events = 0;
	uint32_t count = 99, old = 0;
	char buffer[8];
	size_t size;

	/* lw_classic(3) says: This header declares the directives of RTEMS's semaphore, event and message-queue managers, with */
	CHECK_IS(rtems_semaphore_create(0, 1, 0, 0, &id), RTEMS_INVALID_NAME);
	CHECK_IS(rtems_semaphore_create(NAME, 1, 0, 0, NULL), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_semaphore_create(NAME, 1, RTEMS_BINARY_SEMAPHORE | RTEMS_INHERIT_PRIORITY, 0, &id),
		 RTEMS_NOT_DEFINED);
	CHECK_IS(rtems_semaphore_create(NAME, 2, RTEMS_BINARY_SEMAPHORE, 0, &id), RTEMS_INVALID_NUMBER);
	CHECK_IS(rtems_semaphore_create(NAME, 0, RTEMS_COUNTING_SEMAPHORE, 0, &gate), RTEMS_SUCCESSFUL);
	CHECK_IS(lw_classic_configure(NULL), EINVAL);
	{
		struct lw_classic_options options;
		memset(&options, 0, sizeof options);
		CHECK_IS(lw_classic_configure(&options), EBUSY);
	}
	CHECK_IS(rtems_semaphore_obtain(gate, RTEMS_NO_WAIT, 0), RTEMS_UNSATISFIED);
	CHECK_IS(rtems_semaphore_obtain(gate, RTEMS_WAIT, 1), RTEMS_TIMEOUT);
	CHECK_IS(rtems_semaphore_obtain(12345, RTEMS_WAIT, 1), RTEMS_INVALID_ID);
	CHECK_IS(rtems_semaphore_ident(NAME, RTEMS_SEARCH_ALL_NODES, &id), RTEMS_SUCCESSFUL);
	CHECK_IS(id, gate);
	CHECK_IS(rtems_semaphore_ident(NAME, RTEMS_SEARCH_ALL_NODES, NULL), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_semaphore_set_priority(gate, 0xf0000001, 3, &old), RTEMS_NOT_DEFINED);

	CHECK_IS(rtems_message_queue_create(NAME, 0, 8, 0, &queue), RTEMS_INVALID_NUMBER);
	CHECK_IS(rtems_message_queue_create(NAME, 3, 0, 0, &queue), RTEMS_INVALID_SIZE);
	CHECK_IS(rtems_message_queue_create(NAME, 2, 8, RTEMS_FIFO, &queue), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_message_queue_send(queue, NULL, 1), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_message_queue_send(queue, "too long!", 9), RTEMS_INVALID_SIZE);
	CHECK_IS(rtems_message_queue_send(0, "x", 1), RTEMS_INVALID_ID);
	CHECK_IS(rtems_message_queue_send(queue, "a", 1), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_message_queue_urgent(queue, "b", 1), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_message_queue_send(queue, "c", 1), RTEMS_TOO_MANY);
	CHECK_IS(rtems_message_queue_get_number_pending(queue, &count), RTEMS_SUCCESSFUL);
	CHECK_IS(count, 2);
	CHECK_IS(rtems_message_queue_receive(queue, NULL, &size, RTEMS_WAIT, 0), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_message_queue_receive(0, buffer, &size, RTEMS_WAIT, 0), RTEMS_INVALID_ID);
	/* lw_classic(3) says: It has one parameter more: room is the size of the buffer in bytes */
	CHECK_IS(lw_message_queue_receive(queue, buffer, 0, &size, RTEMS_NO_WAIT, 0), RTEMS_INVALID_SIZE);
	CHECK_IS(rtems_message_queue_receive(queue, buffer, &size, RTEMS_NO_WAIT, 0), RTEMS_SUCCESSFUL);
	CHECK(size == 1 && buffer[0] == 'b');
	CHECK_IS(rtems_message_queue_flush(queue, &count), RTEMS_SUCCESSFUL);
	CHECK_IS(count, 1);
	CHECK_IS(rtems_message_queue_receive(queue, buffer, &size, RTEMS_WAIT, 1), RTEMS_TIMEOUT);
	CHECK_IS(rtems_message_queue_broadcast(queue, "x", 1, &count), RTEMS_SUCCESSFUL);
	CHECK_IS(count, 0);

	mother = rtems_task_self();
	CHECK(mother != 0);
	CHECK_IS(rtems_event_send(mother, RTEMS_EVENT_3), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_event_receive(RTEMS_PENDING_EVENTS, RTEMS_DEFAULT_OPTIONS, 0, &events), RTEMS_SUCCESSFUL);
	CHECK_IS(events, RTEMS_EVENT_3);
	CHECK_IS(rtems_event_receive(RTEMS_EVENT_3 | RTEMS_EVENT_4, RTEMS_NO_WAIT, 0, &events), RTEMS_UNSATISFIED);
	CHECK_IS(rtems_event_receive(RTEMS_EVENT_3, RTEMS_NO_WAIT, 0, NULL), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_event_receive(RTEMS_EVENT_3, RTEMS_WAIT, 0, &events), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_event_system_send(mother, RTEMS_EVENT_5), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_event_system_receive(RTEMS_EVENT_5, RTEMS_WAIT, 0, &events), RTEMS_SUCCESSFUL);
	rtems_event_transient_clear();

	CHECK_IS(rtems_task_create(0, 40, 0, 0, 0, &task), RTEMS_INVALID_NAME);
	CHECK_IS(rtems_task_create(NAME, 0, 0, 0, 0, &task), RTEMS_INVALID_PRIORITY);
	CHECK_IS(rtems_task_create(NAME, 40, 0, 0, 0, NULL), RTEMS_INVALID_ADDRESS);
	CHECK_IS(rtems_task_create(NAME, 40, RTEMS_MINIMUM_STACK_SIZE, RTEMS_DEFAULT_MODES, RTEMS_DEFAULT_ATTRIBUTES,
				   &task),
		 RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_create(rtems_build_name('I', 'D', 'L', 'E'), 50, 0, 0, 0, &idle), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_ident(NAME, RTEMS_SEARCH_ALL_NODES, &id), RTEMS_SUCCESSFUL);
	CHECK_IS(id, task);
	CHECK_IS(rtems_task_start(task, NULL, 0), RTEMS_INVALID_ADDRESS);
	/* The caller runs, and nobody created its thread as a task. */
	/* lw_classic(3) says: for tasks of other processes, rtems_task_start() fails with RTEMS_INCORRECT_STATE */
	CHECK_IS(rtems_task_start(RTEMS_SELF, body, 77), RTEMS_INCORRECT_STATE);
	CHECK_IS(rtems_task_start(mother, body, 77), RTEMS_INCORRECT_STATE);
	CHECK_IS(rtems_task_start(gate, body, 77), RTEMS_INVALID_ID);
	CHECK_IS(rtems_task_start(12345, body, 77), RTEMS_INVALID_ID);
	/* Events count from the creation on. */
	CHECK_IS(rtems_event_send(task, RTEMS_EVENT_1), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_start(task, body, 77), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_start(task, body, 77), RTEMS_INCORRECT_STATE);
	CHECK_IS(rtems_task_delete(idle), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_message_queue_send(queue, "hello", 5), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_event_send(task, RTEMS_EVENT_2), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_event_transient_send(task), RTEMS_SUCCESSFUL);
	/* Until it waits, and is flushed. */
	while (rtems_event_receive(RTEMS_EVENT_9, RTEMS_WAIT, 1, &events) == RTEMS_TIMEOUT)
		CHECK_IS(rtems_semaphore_flush(gate), RTEMS_SUCCESSFUL);
	CHECK_IS(ran, 1);
	while (rtems_task_ident(NAME, RTEMS_SEARCH_ALL_NODES, &id) == RTEMS_SUCCESSFUL)
		CHECK_IS(rtems_task_wake_after(RTEMS_YIELD_PROCESSOR), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_message_queue_delete(queue), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_message_queue_ident(NAME, RTEMS_SEARCH_ALL_NODES, &id), RTEMS_INVALID_NAME);
	CHECK_IS(rtems_semaphore_release(gate), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_delete(gate), RTEMS_SUCCESSFUL);
	/* lw_classic(3) says: The length of a clock tick in microseconds; 0 means 10,000 */
	CHECK_IS(rtems_clock_get_ticks_per_second(), 100);
	/* lw_classic(3) says: lw_classic_ticks() converts milliseconds to ticks */
	CHECK_IS(lw_classic_ticks(1000), 100);
	/* lw_classic(3) says: It rounds up */
	CHECK_IS(lw_classic_ticks(11), 2);
	/* lw_classic(3) says: So a short time does not become 0 */
	CHECK_IS(lw_classic_ticks(1), 1);
	CHECK_IS(lw_classic_ticks(0), 0);
	CHECK_IS(strcmp(rtems_status_text(RTEMS_NOT_OWNER_OF_RESOURCE), "RTEMS_NOT_OWNER_OF_RESOURCE"), 0);
	puts("directed");
	return 0;
}

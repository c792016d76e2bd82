/*
 * A small plant control, written for RTEMS's classic interface, on Linux: fourteen tasks, and each kind of object.
 *
 *     SEN0..SEN5  sensors     send readings to the queue READ, urgently when they are out of range
 *     CTL         control     receives readings, keeps the state (a semaphore that inherits priority), wakes
 *                             actuators by events
 *     ACT0..ACT2  actuators   wait for any of two events; use the bus (a semaphore with a ceiling)
 *     LOG0, LOG1  loggers     take buffers (a counting semaphore), wait for whatever is broadcast
 *     TIM         timer       ticks by an event to the supervisor
 *     SUP         supervisor  waits for all of tick and report; feeds the watchdog (a simple binary semaphore),
 *                             broadcasts the state, replaces a sensor now and then, wherever it is, and ends it all
 *
 * Usage: plant [seconds]. It checks what must hold and ends with 0 if it did.
 */
#include "classic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SENSORS 6
#define ACTUATORS 3
#define LOGGERS 2
#define BUFFERS 4

#define EVENT_OPEN RTEMS_EVENT_0
#define EVENT_CLOSE RTEMS_EVENT_1
#define EVENT_TICK RTEMS_EVENT_2
#define EVENT_REPORT RTEMS_EVENT_3
#define EVENT_STOP RTEMS_EVENT_31

struct reading {
	uint32_t sensor, number;
	int32_t value;
};

struct state {
	uint32_t readings, alarms, moves;
	int32_t sum, sum_again;
};

static rtems_id readings, broadcasts, state_lock, bus, buffers, watchdog, done;
static rtems_id sensors[SENSORS], actuators[ACTUATORS], loggers[LOGGERS], control, timer, supervisor;
static struct state state;
static volatile int stopping;
static uint32_t bus_users, sent[SENSORS], next_number[SENSORS], disorder, logged, fed, bitten, buffers_in_use, replaced;

static void must_at(rtems_status_code status, const char *what, int line)
{
	if (status != RTEMS_SUCCESSFUL) {
		fprintf(stderr, "plant.c:%d: %s: %s\n", line, what, rtems_status_text(status));
		abort();
	}
}
#define must(call) must_at(call, #call, __LINE__)

static void check_at(int holds, const char *what, int line)
{
	if (!holds) {
		fprintf(stderr, "plant.c:%d: %s\n", line, what);
		abort();
	}
}
#define check(what) check_at(what, #what, __LINE__)

/* The task that ends first; its id is then free. */
static void tell(rtems_id task, rtems_event_set event)
{
	rtems_status_code status = rtems_event_send(task, event);
	check(status == RTEMS_SUCCESSFUL || (stopping && status == RTEMS_INVALID_ID));
}

static void end(void)
{
	must(rtems_semaphore_release(done));
	rtems_task_exit();
}

static rtems_task sensor(rtems_task_argument argument)
{
	/* One that takes another's place goes on with its numbers. */
	struct reading reading = {(uint32_t)argument, sent[argument], 0};
	uint32_t noise = (uint32_t)argument * 7919 + 1;
	while (!stopping) {
		rtems_status_code status;
		noise = noise * 1103515245 + 12345;
		reading.value = (int32_t)(noise >> 16 & 1023) - 512;
		/* Full: RTEMS never has a sender wait. */
		status = rtems_message_queue_send(readings, &reading, sizeof reading);
		if (status == RTEMS_TOO_MANY) {
			must(rtems_task_wake_after(1));
			continue;
		}
		must(status);
		reading.number++;
		sent[reading.sensor]++;
		if (reading.number % 16 == 0)
			must(rtems_task_wake_after(1));
	}
	end();
}

static rtems_task controller(rtems_task_argument unused)
{
	(void)unused;
	for (;;) {
		struct reading reading;
		size_t size;
		rtems_status_code status =
			rtems_message_queue_receive(readings, &reading, &size, RTEMS_WAIT, 5);
		if (status == RTEMS_TIMEOUT && stopping)
			break;
		if (status == RTEMS_TIMEOUT)
			continue;
		must(status);
		check(size == sizeof reading);
		if (reading.sensor >= SENSORS) {
			check(reading.sensor == 99); /* the supervisor's probe: it was sent urgently */
			tell(supervisor, EVENT_REPORT);
			continue;
		}
		if (reading.number != next_number[reading.sensor])
			disorder++;
		next_number[reading.sensor] = reading.number + 1;
		must(rtems_semaphore_obtain(state_lock, RTEMS_WAIT, RTEMS_NO_TIMEOUT));
		/* It nests. */
		must(rtems_semaphore_obtain(state_lock, RTEMS_WAIT, RTEMS_NO_TIMEOUT));
		state.readings++;
		state.sum += reading.value;
		state.sum_again += reading.value;
		if (reading.value > 500)
			state.alarms++;
		must(rtems_semaphore_release(state_lock));
		must(rtems_semaphore_release(state_lock));
		if (reading.value > 400 || reading.value < -400)
			tell(actuators[reading.number % ACTUATORS],
			     reading.value > 0 ? EVENT_OPEN : EVENT_CLOSE);
	}
	end();
}

static rtems_task actuator(rtems_task_argument unused)
{
	(void)unused;
	for (;;) {
		rtems_event_set events;
		must(rtems_event_receive(EVENT_OPEN | EVENT_CLOSE | EVENT_STOP, RTEMS_WAIT | RTEMS_EVENT_ANY,
					 RTEMS_NO_TIMEOUT, &events));
		if (events & EVENT_STOP)
			break;
		must(rtems_semaphore_obtain(bus, RTEMS_WAIT, RTEMS_NO_TIMEOUT));
		check(bus_users++ == 0);
		must(rtems_semaphore_obtain(state_lock, RTEMS_WAIT, RTEMS_NO_TIMEOUT));
		state.moves++;
		check(state.sum == state.sum_again);
		must(rtems_semaphore_release(state_lock));
		check(--bus_users == 0);
		must(rtems_semaphore_release(bus));
	}
	end();
}

static rtems_task logger(rtems_task_argument unused)
{
	(void)unused;
	for (;;) {
		struct state seen;
		size_t size;
		rtems_status_code status;
		must(rtems_semaphore_obtain(buffers, RTEMS_WAIT, RTEMS_NO_TIMEOUT));
		check(__atomic_add_fetch(&buffers_in_use, 1, __ATOMIC_RELAXED) <= BUFFERS);
		status = lw_message_queue_receive(broadcasts, &seen, sizeof seen, &size, RTEMS_WAIT,
						  RTEMS_NO_TIMEOUT);
		__atomic_sub_fetch(&buffers_in_use, 1, __ATOMIC_RELAXED);
		must(rtems_semaphore_release(buffers));
		if (status == RTEMS_OBJECT_WAS_DELETED || status == RTEMS_INVALID_ID)
			break;
		must(status);
		check(size == sizeof seen && seen.sum == seen.sum_again);
		__atomic_add_fetch(&logged, 1, __ATOMIC_RELAXED);
	}
	end();
}

static rtems_task tick(rtems_task_argument unused)
{
	(void)unused;
	while (!stopping) {
		must(rtems_task_wake_after(2));
		tell(supervisor, EVENT_TICK);
		/* The watchdog fires unless a task has reset it meanwhile. */
		if (rtems_semaphore_obtain(watchdog, RTEMS_NO_WAIT, RTEMS_NO_TIMEOUT) == RTEMS_SUCCESSFUL)
			fed++;
		else
			bitten++;
	}
	end();
}

static rtems_id task(const char *name, rtems_task_priority priority)
{
	rtems_id id;
	must(rtems_task_create(rtems_build_name(name[0], name[1], name[2], name[3]), priority,
			       RTEMS_MINIMUM_STACK_SIZE, RTEMS_DEFAULT_MODES, RTEMS_DEFAULT_ATTRIBUTES, &id));
	return id;
}

static rtems_id sensor_task(int index)
{
	return task((const char[]){'S', 'E', 'N', (char)('0' + index)}, 30);
}

static void replace(int index)
{
	must(rtems_task_delete(sensors[index]));
	check(rtems_event_send(sensors[index], EVENT_STOP) == RTEMS_INVALID_ID);
	sensors[index] = sensor_task(index);
	must(rtems_task_start(sensors[index], sensor, (rtems_task_argument)index));
	replaced++;
}

static rtems_task supervise(rtems_task_argument seconds)
{
	rtems_interval last = rtems_clock_get_ticks_since_boot() +
			      (rtems_interval)seconds * rtems_clock_get_ticks_per_second();
	struct reading probe = {99, 0, 0};
	rtems_event_set events;
	uint32_t reached;
	while ((int32_t)(rtems_clock_get_ticks_since_boot() - last) < 0) {
		struct state seen;
		rtems_status_code status = rtems_message_queue_urgent(readings, &probe, sizeof probe);
		if (status == RTEMS_TOO_MANY) {
			must(rtems_task_wake_after(RTEMS_YIELD_PROCESSOR));
			continue;
		}
		must(status);
		must(rtems_event_receive(EVENT_TICK | EVENT_REPORT, RTEMS_WAIT | RTEMS_EVENT_ALL, RTEMS_NO_TIMEOUT,
					 &events));
		must(rtems_semaphore_release(watchdog));
		must(rtems_semaphore_obtain(state_lock, RTEMS_WAIT, RTEMS_NO_TIMEOUT));
		seen = state;
		must(rtems_semaphore_release(state_lock));
		must(rtems_message_queue_broadcast(broadcasts, &seen, sizeof seen, &reached));
		check(reached <= LOGGERS);
		if (fed % 25 == 24)
			replace((int)(replaced % SENSORS));
	}
	stopping = 1;
	for (int index = 0; index < ACTUATORS; index++)
		must(rtems_event_send(actuators[index], EVENT_STOP));
	must(rtems_message_queue_delete(broadcasts));
	end();
}

int main(int argc, char **argv)
{
	const int seconds = argc > 1 ? atoi(argv[1]) : 1;
	const rtems_attribute binary = RTEMS_BINARY_SEMAPHORE | RTEMS_PRIORITY;
	rtems_id found;
	rtems_task_priority old;
	uint32_t total = 0, flushed;
	const struct lw_classic_options options = {.microseconds_per_tick = 5000};

	if (lw_classic_configure(&options) != 0)
		return 1;
	must(rtems_message_queue_create(rtems_build_name('R', 'E', 'A', 'D'), 32, sizeof(struct reading),
					RTEMS_FIFO, &readings));
	must(rtems_message_queue_create(rtems_build_name('B', 'C', 'S', 'T'), 4, sizeof(struct state),
					RTEMS_PRIORITY, &broadcasts));
	must(rtems_semaphore_create(rtems_build_name('S', 'T', 'A', 'T'), 1, binary | RTEMS_INHERIT_PRIORITY, 0,
				    &state_lock));
	must(rtems_semaphore_create(rtems_build_name('B', 'U', 'S', ' '), 1, binary | RTEMS_PRIORITY_CEILING, 5,
				    &bus));
	must(rtems_semaphore_create(rtems_build_name('B', 'U', 'F', 'S'), BUFFERS, RTEMS_COUNTING_SEMAPHORE, 0,
				    &buffers));
	must(rtems_semaphore_create(rtems_build_name('W', 'D', 'O', 'G'), 0, RTEMS_SIMPLE_BINARY_SEMAPHORE, 0,
				    &watchdog));
	must(rtems_semaphore_create(rtems_build_name('D', 'O', 'N', 'E'), 0, RTEMS_COUNTING_SEMAPHORE, 0, &done));
	must(rtems_semaphore_ident(rtems_build_name('B', 'U', 'S', ' '), RTEMS_SEARCH_ALL_NODES, &found));
	check(found == bus);

	supervisor = task("SUP ", 10);
	timer = task("TIM ", 8);
	control = task("CTL ", 20);
	for (int index = 0; index < ACTUATORS; index++)
		actuators[index] = task((const char[]){'A', 'C', 'T', (char)('0' + index)}, 12);
	for (int index = 0; index < SENSORS; index++)
		sensors[index] = sensor_task(index);
	for (int index = 0; index < LOGGERS; index++)
		loggers[index] = task((const char[]){'L', 'O', 'G', (char)('0' + index)}, 100);
	must(rtems_task_ident(rtems_build_name('C', 'T', 'L', ' '), RTEMS_SEARCH_ALL_NODES, &found));
	check(found == control);
	must(rtems_task_set_priority(control, 15, &old));
	check(old == 20);

	for (int index = 0; index < LOGGERS; index++)
		must(rtems_task_start(loggers[index], logger, 0));
	for (int index = 0; index < ACTUATORS; index++)
		must(rtems_task_start(actuators[index], actuator, 0));
	must(rtems_task_start(control, controller, 0));
	must(rtems_task_start(timer, tick, 0));
	for (int index = 0; index < SENSORS; index++)
		must(rtems_task_start(sensors[index], sensor, (rtems_task_argument)index));
	must(rtems_task_start(supervisor, supervise, (rtems_task_argument)seconds));
	check(rtems_task_start(control, controller, 0) == RTEMS_INCORRECT_STATE);

	for (int index = 0; index < SENSORS + ACTUATORS + LOGGERS + 3; index++)
		must(rtems_semaphore_obtain(done, RTEMS_WAIT, RTEMS_NO_TIMEOUT));
	must(rtems_message_queue_flush(readings, &flushed));
	for (int index = 0; index < SENSORS; index++)
		total += sent[index];
	check(disorder == 0);
	check(state.readings == total - flushed || state.readings == total);
	check(state.sum == state.sum_again);
	check(fed > 0 && state.readings > 0);
	must(rtems_semaphore_delete(bus));
	check(rtems_semaphore_obtain(bus, RTEMS_WAIT, RTEMS_NO_TIMEOUT) == RTEMS_INVALID_ID);
	printf("%u readings of %u sent, %u alarms, %u moves, %u logged, fed %u times, bitten %u, %u sensors replaced\n",
	       state.readings, total, state.alarms, state.moves, logged, fed, bitten, replaced);
	return 0;
}

/*
 * The receiver of a queue whose sender is a program in Rust, `readings` of examples/rust. Its argument is the name of
 * the region that the other program makes. docs/examples/rust-and-c.md walks through both.
 */
#include <latchwork/queue.h>
#include <latchwork/region.h>

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A message: `Reading` of the program in Rust has the same fields. */
struct reading {
	uint32_t sensor;
	uint32_t number;
	double value;
};

_Static_assert(sizeof(struct reading) == 16, "a message has no gaps");

static void must(int error)
{
	if (error != 0) {
		fprintf(stderr, "%s\n", lw_error_text());
		exit(1);
	}
}

/* The sender makes the region, then the queue: until both are there, the calls return ENOENT. */
static void attach(const char *name, lw_region_t **region, lw_queue_t **queue)
{
	const struct timespec moment = {0, 1000000};
	int error;

	while ((error = lw_region_attach(region, name, NULL)) == ENOENT)
		nanosleep(&moment, NULL);
	must(error);
	while ((error = lw_queue_open(queue, *region, "readings")) == ENOENT)
		nanosleep(&moment, NULL);
	must(error);
}

int main(int argc, char **argv)
{
	lw_region_t *region;
	lw_queue_t *queue;
	lw_message_t message;
	long received = 0, alarms = 0;
	double sum = 0;
	size_t bytes;

	if (argc != 2) {
		fprintf(stderr, "usage: readings REGION\n");
		return 2;
	}
	attach(argv[1], &region, &queue);
	do {
		struct reading reading;
		/* The message stays in its place in the queue, and is this thread's until lw_message_done(). */
		must(lw_queue_hold(queue, &message, NULL));
		bytes = message.bytes;
		if (bytes == sizeof reading) {
			memcpy(&reading, message.data, sizeof reading);
			received++;
			alarms += reading.value >= 99;
			sum += reading.value;
		}
		must(lw_message_done(&message));
	} while (bytes != 0);
	printf("C received %ld readings, %ld of them alarms, their mean %.3f\n", received, alarms, sum / received);
	must(lw_queue_close(queue));
	must(lw_region_detach(region));
	return 0;
}

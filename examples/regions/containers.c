/*
 * Two containers count in one region. One of them is killed while it holds the lock; the other gets EOWNERDEAD, repairs the
 * count, and goes on. Each is process 1 of its own PID namespace: a lock that names its owner by a thread ID would take the
 * one for the other. docs/containers.md explains it, and containers.sh runs it.
 *
 *     containers hold NAME    locks, changes one of two counts, and waits for its end, ten minutes at most
 *     containers take NAME    waits for the lock for a minute at most, and repairs
 */
#define _POSIX_C_SOURCE 200809L
#include <latchwork.h>
#include <latchwork/region.h>

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct counts {
	lw_region_mutex_t lock; /* zeros are an unlocked mutex, and a new object is zeros */
	long begun, done;
};

static int hold(struct counts *counts)
{
	if (lw_mutex_lock(&counts->lock) != 0)
		return 1;
	counts->begun++;
	printf("process %d holds the lock\n", (int)getpid());
	fflush(stdout);
	alarm(600);
	for (;;)
		pause();
}

static int take(struct counts *counts)
{
	const struct timespec pause_between = {0, 10000000};
	struct timespec end;
	int error, tries;
	printf("process %d waits for the lock\n", (int)getpid());
	fflush(stdout);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += 60;
	/* The other container may not have come to the lock yet. */
	for (tries = 0; (error = lw_mutex_timedlock(&counts->lock, &end)) == 0 && counts->begun == 0; tries++) {
		lw_mutex_unlock(&counts->lock);
		if (tries == 6000)
			break;
		nanosleep(&pause_between, NULL);
	}
	if (error != EOWNERDEAD) {
		printf("process %d: the lock says %s\n", (int)getpid(), strerror(error));
		return 1;
	}
	printf("process %d learns that the owner has died: %ld begun, %ld done\n", (int)getpid(), counts->begun, counts->done);
	counts->begun = counts->done;
	if (lw_mutex_consistent(&counts->lock) != 0 || lw_mutex_unlock(&counts->lock) != 0)
		return 1;
	if (lw_mutex_lock(&counts->lock) != 0)
		return 1;
	counts->begun++;
	counts->done++;
	printf("process %d has repaired the counts and goes on: %ld begun, %ld done\n", (int)getpid(), counts->begun,
	       counts->done);
	return lw_mutex_unlock(&counts->lock) != 0;
}

int main(int argc, char **argv)
{
	struct lw_region_options options;
	lw_region_t *region = NULL;
	void *object = NULL;
	int (*role)(struct counts *);

	if (argc != 3 || (strcmp(argv[1], "hold") != 0 && strcmp(argv[1], "take") != 0)) {
		fprintf(stderr, "usage: containers hold|take NAME\n");
		return 2;
	}
	role = strcmp(argv[1], "hold") == 0 ? hold : take;
	memset(&options, 0, sizeof options);
	options.max_bytes = 4 << 20;
	options.flags = LW_REGION_ANY_PID_NAMESPACE;
	if (lw_region_attach_or_create(&region, argv[2], &options) != 0 || lw_region_join(region, argv[1]) != 0 ||
	    lw_region_object(region, "counts", lw_type("org.example.counts 1"), sizeof(struct counts), NULL, NULL,
			     &object) != 0) {
		fprintf(stderr, "%s\n", lw_error_text());
		return 1;
	}
	return role((struct counts *)object);
}

/*
 * Two numbers in a file that must stay equal, whatever happens to the process that changes them. It changes them with a
 * journal, and a process that finds the journal finishes the change. docs/crashtest.md explains the program.
 *
 *     cc -g pair.c -o pair $(pkg-config --cflags latchwork) && latchwork crashtest --recoverer -- ./pair
 *
 * Faults for `latchwork crashtest` to find:
 *
 *   -DTORN    the numbers are changed without the journal
 *   -DHANG    the change takes a lock that a killed process leaves locked
 *   -DHASTY   the journal is closed before the repair is complete: --recoverer finds it
 *
 * Without a fault: -DTHREAD, the repair is done by a second thread.
 */
#include <crashtest.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct pair {
	volatile unsigned one, other;
	/* The value that both are to have, while `is_open`. */
	volatile unsigned next, is_open;
	volatile unsigned is_locked;
};

static struct pair *attach(const char *folder)
{
	char path[4096];
	void *memory;
	int file;

	snprintf(path, sizeof path, "%s/pair", folder);
	file = open(path, O_RDWR | O_CREAT, 0600);
	if (file < 0 || ftruncate(file, sizeof(struct pair)) != 0)
		return NULL;
	memory = mmap(NULL, sizeof(struct pair), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	return memory == MAP_FAILED ? NULL : (struct pair *)memory;
}

#ifdef HANG
static void lock(struct pair *pair)
{
	while (__sync_lock_test_and_set(&pair->is_locked, 1) != 0)
		sched_yield();
}

static void unlock(struct pair *pair) { __sync_lock_release(&pair->is_locked); }
#else
static void lock(struct pair *pair) { (void)pair; }
static void unlock(struct pair *pair) { (void)pair; }
#endif

static void update(struct pair *pair, unsigned value)
{
	lock(pair);
#ifdef TORN
	pair->one = value;
	pair->other = value;
#else
	pair->next = value;
	pair->is_open = 1;
	pair->one = value;
	pair->other = value;
	pair->is_open = 0;
#endif
	unlock(pair);
}

static void recover(struct pair *pair)
{
	lock(pair);
	if (pair->is_open != 0) {
		pair->one = pair->next;
#ifdef HASTY
		pair->is_open = 0;
#endif
		pair->other = pair->next;
		pair->is_open = 0;
	}
	unlock(pair);
}

static void *recover_marked(void *pair)
{
	lw_crashtest_recovery_begin();
	recover(pair);
	lw_crashtest_recovery_end();
	return NULL;
}

static int check(struct pair *pair)
{
#ifdef THREAD
	pthread_t thread;
	if (pthread_create(&thread, NULL, recover_marked, pair) != 0 || pthread_join(thread, NULL) != 0)
		return 2;
#else
	recover_marked(pair);
#endif
	if (pair->one != pair->other) {
		printf("torn: %u and %u\n", pair->one, pair->other);
		return 1;
	}
	puts(pair->one == 1 ? "the old value" : "the new value");
	return 0;
}

int main(void)
{
	const char *phase = getenv("LATCHWORK_CRASHTEST");
	const char *folder = getenv("LATCHWORK_CRASHTEST_DIR");
	struct pair *pair = attach(folder != NULL ? folder : "/tmp");

	if (pair == NULL) {
		perror("pair");
		return 2;
	}
	if (phase != NULL && strcmp(phase, "check") == 0)
		return check(pair);
	update(pair, 1);
	lw_crashtest_begin();
	update(pair, 2);
	lw_crashtest_end();
	return check(pair);
}

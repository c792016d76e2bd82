/* Step 5: what stays a semaphore has its plain names back. See README.md. */
#define _GNU_SOURCE
/* A program of several files says this to the compiler instead: -DLATCHWORK_MIGRATED. */
#ifndef LATCHWORK_MIGRATED
#define LATCHWORK_MIGRATED
#endif
#include "migrate.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

/* The most tasks that have a file open at a time. */
#define OPEN_FILES 8

static DEFINE_MUTEX(directory);
static DECLARE_COMPLETION(begin);
static struct semaphore files;

static volatile int over;

struct task {
	pthread_t thread;
	int number;
	unsigned long loops;
};

static void *work(void *argument)
{
	struct task *task = argument;
	char name[64];
	int file;

	snprintf(name, sizeof name, "test-mutex.%d.%d", (int)getpid(), task->number);
	wait_for_completion(&begin);
	while (!over) {
		down(&files);
		mutex_lock(&directory);
		file = open(name, O_CREAT | O_RDWR, 0600);
		mutex_unlock(&directory);
		if (file < 0) {
			perror(name);
			exit(1);
		}
		mutex_lock(&directory);
		unlink(name);
		mutex_unlock(&directory);
		close(file);
		up(&files);
		task->loops++;
	}
	return NULL;
}

static double seconds_of(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

int main(int argc, char **argv)
{
	int tasks = argc > 2 ? atoi(argv[2]) : 16, seconds = argc > 3 ? atoi(argv[3]) : 10;
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	struct task *all;
	struct rusage before, after;
	unsigned long loops = 0;
	double used, cpu;

	if (argc < 2 || argv[1][0] != 'V' || tasks < 1 || seconds < 1) {
		fprintf(stderr, "usage: %s V [tasks] [seconds]\n", argv[0]);
		return 2;
	}
	all = calloc((size_t)tasks, sizeof *all);
	if (all == NULL)
		return 1;
	sema_init(&files, OPEN_FILES);
	printf("%ld CPUs, running %d tasks.\nchecking VFS performance.\n", processors, tasks);
	for (int number = 0; number < tasks; number++) {
		all[number].number = number;
		if (pthread_create(&all[number].thread, NULL, work, &all[number]) != 0)
			return 1;
	}
	getrusage(RUSAGE_SELF, &before);
	complete_all(&begin);
	sleep((unsigned)seconds);
	over = 1;
	for (int number = 0; number < tasks; number++) {
		pthread_join(all[number].thread, NULL);
		loops += all[number].loops;
	}
	getrusage(RUSAGE_SELF, &after);
	used = seconds_of(after.ru_utime) + seconds_of(after.ru_stime) - seconds_of(before.ru_utime) -
	       seconds_of(before.ru_stime);
	cpu = 100 * used / seconds / (double)processors;
	printf("avg loops/sec: %lu\nCPU utilization: %.0f%%\n", loops / (unsigned)seconds, cpu);
	printf("loops/sec per 1%% of CPU: %.0f\n", cpu > 0 ? (double)loops / seconds / cpu : 0);
	free(all);
	return 0;
}

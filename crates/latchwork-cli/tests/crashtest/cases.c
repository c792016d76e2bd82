/* Programs for `latchwork crashtest`, by their first argument. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <crashtest.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned number;

static void sleep_for(long milliseconds)
{
	struct timespec time = {0, 0};

	time.tv_nsec = milliseconds * 1000000;
	nanosleep(&time, NULL);
}

/* Writes this process's ID to a file, which is complete as soon as it exists. */
static void announce(const char *path)
{
	char new_path[4096];
	FILE *file;

	snprintf(new_path, sizeof(new_path), "%s.new", path);
	file = fopen(new_path, "w");
	if (file == NULL)
		exit(9);
	fprintf(file, "%d\n", (int)getpid());
	fclose(file);
	if (rename(new_path, path) != 0)
		exit(9);
}

static void *spin(void *end)
{
	while (!*(volatile int *)end)
		number++;
	return NULL;
}

/* A file that is written in two calls. */
static int calls(const char *path, int checks)
{
	char text[8] = "";
	int file = open(path, O_RDWR | O_CREAT, 0600);
	ssize_t length;

	if (checks) {
		length = read(file, text, 8);
		printf("%d bytes\n", (int)length);
		return 0;
	}
	lw_crashtest_begin();
	length = write(file, "a", 1);
	number++;
	length += write(file, "b", 1);
	lw_crashtest_end();
	return length == 2 ? 0 : 9;
}

static int threads(void)
{
	volatile int end = 0;
	pthread_t thread;

	if (pthread_create(&thread, NULL, spin, (void *)&end) != 0)
		return 9;
	lw_crashtest_begin();
	for (int i = 0; i < 5; i++)
		number++;
	lw_crashtest_end();
	end = 1;
	return pthread_join(thread, NULL);
}

static int forks(void)
{
	pid_t child;

	lw_crashtest_begin();
	child = fork();
	if (child == 0)
		_exit(number == 0 ? 0 : 1);
	waitpid(child, NULL, 0);
	lw_crashtest_end();
	return 0;
}

int main(int argc, char **argv)
{
	const char *phase = getenv("LATCHWORK_CRASHTEST");
	int checks = phase != NULL && strcmp(phase, "check") == 0;
	const char *which = argc > 1 ? argv[1] : "";
	char path[4096];

	snprintf(path, sizeof path, "%s/file", getenv("LATCHWORK_CRASHTEST_DIR"));
	if (strcmp(which, "calls") == 0)
		return calls(path, checks);
	if (strcmp(which, "unmarked") == 0) {
		fprintf(stderr, "a complaint\n");
		return 3;
	}
	if (strcmp(which, "fails") == 0) {
		lw_crashtest_begin();
		lw_crashtest_end();
		return checks ? 4 : 0;
	}
	if (checks) {
		puts("checked");
		return 0;
	}
	if (strcmp(which, "unended") == 0) {
		lw_crashtest_begin();
		_exit(0);
	}
	if (strcmp(which, "stuck") == 0) {
		lw_crashtest_begin();
		for (;;)
			pause();
	}
	if (strcmp(which, "sleeps") == 0) {
		lw_crashtest_begin();
		sleep_for(300);
		lw_crashtest_end();
		return 0;
	}
	if (strcmp(which, "threads") == 0)
		return threads();
	if (strcmp(which, "forks") == 0)
		return forks();
	if (strcmp(which, "daemon") == 0) {
		/* A process that would outlive the program. */
		if (fork() == 0) {
			setsid();
			announce(argv[2]);
			for (;;)
				pause();
		}
		while (access(argv[2], F_OK) != 0)
			sleep_for(1);
		lw_crashtest_begin();
		number++;
		lw_crashtest_end();
		if (argc > 3)
			for (;;)
				pause();
		return 0;
	}
	return 9;
}

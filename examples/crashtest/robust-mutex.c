/*
 * A robust mutex of POSIX between processes, for `latchwork crashtest`. docs/crashtest.md explains the program.
 *
 *     cc -g robust-mutex.c -o robust-mutex $(pkg-config --cflags latchwork) -lpthread
 *     latchwork crashtest -- ./robust-mutex owner     a child locks, changes two numbers, unlocks, and is killed
 *     latchwork crashtest -- ./robust-mutex waiter    a child waits for the mutex, and is killed; another child waits, too
 *
 * The killed task is a child, so the first process goes on after its death, and its exit status is the result.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <crashtest.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct shared {
	pthread_mutex_t mutex;
	volatile unsigned one, other;
};

static struct shared *shared;

static void must(int is_so, const char *what)
{
	if (!is_so) {
		printf("failed: %s\n", what);
		exit(2);
	}
}

/* Whether the owner had died. */
static int lock(void)
{
	int error = pthread_mutex_lock(&shared->mutex);

	must(error == 0 || error == EOWNERDEAD, "to lock");
	if (error == EOWNERDEAD) {
		shared->other = shared->one;
		must(pthread_mutex_consistent(&shared->mutex) == 0, "to make the mutex consistent");
	}
	if (shared->one != shared->other) {
		puts("torn data without EOWNERDEAD");
		exit(1);
	}
	return error == EOWNERDEAD;
}

static void change(void)
{
	shared->one++;
	shared->other++;
}

static void unlock(void) { must(pthread_mutex_unlock(&shared->mutex) == 0, "to unlock"); }

static void pause_for(long microseconds)
{
	struct timespec time = {0, 0};

	time.tv_nsec = microseconds * 1000;
	nanosleep(&time, NULL);
}

/* Whether a child sleeps. */
static int sleeps(pid_t child)
{
	char path[64], line[256] = "";
	const char *state;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)child);
	file = fopen(path, "r");
	if (file == NULL || fgets(line, sizeof line, file) == NULL)
		line[0] = 0;
	if (file != NULL)
		fclose(file);
	state = strrchr(line, ')');
	return state != NULL && state[1] != 0 && state[2] == 'S';
}

static int ended(pid_t *child)
{
	if (*child != 0 && waitpid(*child, NULL, WNOHANG) == *child)
		*child = 0;
	return *child == 0;
}

static pid_t start(void (*body)(void))
{
	pid_t child = fork();

	must(child >= 0, "to fork");
	if (child == 0) {
		body();
		_exit(0);
	}
	return child;
}

static void own(void)
{
	lw_crashtest_begin();
	lock();
	change();
	unlock();
	lw_crashtest_end();
}

static void wait_and_own(void)
{
	lock();
	change();
	unlock();
}

static int owner(void)
{
	pid_t victim = start(own);
	int has_died;

	waitpid(victim, NULL, 0);
	has_died = lock();
	unlock();
	puts(has_died ? "EOWNERDEAD" : shared->one == 0 ? "free, not changed" : "free, changed");
	return 0;
}

static int waiter(void)
{
	pid_t victim, other;
	int looks;

	lock();
	victim = start(own);
	while (!ended(&victim) && !sleeps(victim))
		pause_for(200);
	other = start(wait_and_own);
	while (!sleeps(other))
		pause_for(200);
	/* The victim is woken, but a newcomer has the mutex before the victim runs. */
	unlock();
	lock();
	/* Whoever kills the victim does so now. */
	for (looks = 0; looks < 100 && !ended(&victim); looks++)
		pause_for(1000);
	unlock();
	/* The other waiter hangs here if its wake-up is lost. */
	waitpid(other, NULL, 0);
	if (!ended(&victim))
		waitpid(victim, NULL, 0);
	lock();
	unlock();
	puts("the other waiter had the mutex");
	return 0;
}

int main(int argc, char **argv)
{
	pthread_mutexattr_t attributes;

	shared = (struct shared *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(shared != (struct shared *)MAP_FAILED, "to map memory");
	must(pthread_mutexattr_init(&attributes) == 0, "to make attributes");
	must(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0, "to share the mutex");
	must(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0, "to make the mutex robust");
	must(pthread_mutex_init(&shared->mutex, &attributes) == 0, "to make the mutex");
	if (argc == 2 && strcmp(argv[1], "owner") == 0)
		return owner();
	if (argc == 2 && strcmp(argv[1], "waiter") == 0)
		return waiter();
	fprintf(stderr, "usage: %s owner | waiter\n", argv[0]);
	return 2;
}

/* For the test programs: an assertion that says where, and threads in few words. */
#ifndef CHECK_H
#define CHECK_H

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                              \
	do {                                                                                          \
		if (!(condition)) {                                                                   \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);               \
			abort();                                                                      \
		}                                                                                     \
	} while (0)
#define CHECK_IS(expression, expected)                                                                \
	do {                                                                                          \
		long is_ = (long)(expression), expected_ = (long)(expected);                          \
		if (is_ != expected_) {                                                               \
			fprintf(stderr, "%s:%d: %s is %ld, not %ld\n", __FILE__, __LINE__, #expression, \
				is_, expected_);                                                      \
			abort();                                                                      \
		}                                                                                     \
	} while (0)

/* A program that hangs is ended after so many seconds: `alarm(WATCHDOG)`. A busy machine takes a hundredfold of the usual time. */
#define WATCHDOG 900

static inline pthread_t start(void *(*body)(void *), void *argument)
{
	pthread_t thread;
	CHECK_IS(pthread_create(&thread, NULL, body, argument), 0);
	return thread;
}

static inline void *join(pthread_t thread)
{
	void *result;
	CHECK_IS(pthread_join(thread, &result), 0);
	return result;
}

/* That many milliseconds from now. */
static inline struct timespec in_ms(clockid_t clock, long ms)
{
	struct timespec now;
	clock_gettime(clock, &now);
	now.tv_sec += ms / 1000;
	now.tv_nsec += ms % 1000 * 1000000;
	if (now.tv_nsec >= 1000000000) {
		now.tv_sec += 1;
		now.tv_nsec -= 1000000000;
	}
	return now;
}

static inline void sleep_ms(long ms)
{
	struct timespec time;
	time.tv_sec = ms / 1000;
	time.tv_nsec = ms % 1000 * 1000000;
	nanosleep(&time, NULL);
}

/* Memory that children of fork() share. */
static inline void *share(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

/* The system call in which a thread of this process, or of another one, sleeps; -1 if it runs. */
static inline int call_of(pid_t process, pid_t thread)
{
	char path[64], call[8] = "";
	int file;
	snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", (int)process, (int)thread);
	file = open(path, O_RDONLY);
	CHECK(file >= 0);
	CHECK(read(file, call, sizeof call - 1) > 0);
	close(file);
	return call[0] >= '0' && call[0] <= '9' ? atoi(call) : -1;
}

/* futex_waitv: the system call in which tasks of a region sleep. */
#define WAITS_IN_REGION 449

static inline int exit_of(pid_t child)
{
	int status;
	CHECK_IS(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Runs a part of the program in a process of its own. */
static inline void in_process(void (*part)(void))
{
	pid_t child = fork();
	if (child == 0) {
		alarm(WATCHDOG);
		part();
		_exit(0);
	}
	CHECK_IS(exit_of(child), 0);
}

#ifdef __cplusplus
/* A child that ends with what the function returns. */
template <class Body>
static inline pid_t in_a_process(Body body)
{
	pid_t child = fork();
	if (child == 0) {
		alarm(WATCHDOG);
		_exit(body());
	}
	return child;
}
#endif

#endif

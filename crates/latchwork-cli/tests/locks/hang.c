/* A program that hangs in every way that a pthread program can: prints "ready" and never ends by itself. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t inherit, robust, dead, recursive;
pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER, being_read = PTHREAD_RWLOCK_INITIALIZER;
pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
pthread_mutex_t of_condition = PTHREAD_MUTEX_INITIALIZER;
sem_t semaphore;
static pthread_barrier_t both;

static void make(pthread_mutex_t *mutex, int protocol, int robustness, int type)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setprotocol(&attributes, protocol);
	pthread_mutexattr_setrobust(&attributes, robustness);
	pthread_mutexattr_settype(&attributes, type);
	if (pthread_mutex_init(mutex, &attributes))
		abort();
}

#define TASK(name, body)                                  \
	static void *name(void *argument)                 \
	{                                                 \
		pthread_setname_np(pthread_self(), #name); \
		body;                                     \
		return argument;                          \
	}

TASK(ada, pthread_mutex_lock(&first); pthread_barrier_wait(&both); pthread_mutex_lock(&second))
TASK(bob, pthread_mutex_lock(&second); pthread_barrier_wait(&both); pthread_mutex_lock(&first))
TASK(for_inherit, pthread_mutex_lock(&inherit))
TASK(for_robust, pthread_mutex_lock(&robust))
TASK(for_recursive, pthread_mutex_lock(&recursive))
TASK(reader, pthread_rwlock_rdlock(&written))
TASK(writer, pthread_rwlock_wrlock(&being_read))
TASK(waiter, pthread_mutex_lock(&of_condition); pthread_cond_wait(&condition, &of_condition))
TASK(counter, sem_wait(&semaphore))
TASK(dies, pthread_mutex_lock(&dead))
TASK(joiner, pthread_join(*(pthread_t *)argument, NULL))

/* Keeps a robust mutex in a process of its own, which is visible only in its robust list. */
struct page {
	pthread_mutex_t mutex[3];
	pthread_barrier_t all;
};

/* Three processes in a cycle, through a file that no other process has open. */
static void cycle(void)
{
	struct page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t attributes;
	pthread_barrierattr_t of_barrier;
	int me = 0;

	if (page == MAP_FAILED)
		abort();
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&page->mutex[0], &attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&page->mutex[1], &attributes);
	pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&page->mutex[2], &attributes);
	pthread_barrierattr_init(&of_barrier);
	pthread_barrierattr_setpshared(&of_barrier, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&page->all, &of_barrier, 3);
	if (fork() == 0)
		me = 1;
	else if (fork() == 0)
		me = 2;
	pthread_mutex_lock(&page->mutex[me]);
	pthread_barrier_wait(&page->all);
	if (me == 0) {
		puts("ready");
		fflush(stdout);
	}
	pthread_mutex_lock(&page->mutex[(me + 1) % 3]);
}

static void start(void *(*task)(void *), void *argument)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, task, argument))
		abort();
}

/* In memory that is mapped right behind the program's variables. */
static pthread_mutex_t *page;
TASK(for_page, pthread_mutex_lock(page))
static void behind(void)
{
	extern char end[];
	long bytes = sysconf(_SC_PAGESIZE);

	page = mmap((void *)(((long)end + bytes - 1) & -bytes), bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (page == MAP_FAILED)
		abort();
	pthread_mutex_lock(page);
	start(for_page, NULL);
	puts("ready");
	fflush(stdout);
	pause();
}

int main(int count, char **arguments)
{
	static pthread_t thread;

	if (count > 1 && strcmp(arguments[1], "behind") == 0) {
		behind();
		return 0;
	}
	if (count > 1) {
		cycle();
		return 0;
	}
	make(&inherit, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED, PTHREAD_MUTEX_NORMAL);
	make(&robust, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_ROBUST, PTHREAD_MUTEX_NORMAL);
	make(&dead, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED, PTHREAD_MUTEX_NORMAL);
	make(&recursive, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED, PTHREAD_MUTEX_RECURSIVE);
	sem_init(&semaphore, 0, 0);
	pthread_barrier_init(&both, NULL, 2);
	pthread_mutex_lock(&inherit);
	pthread_mutex_lock(&robust);
	pthread_mutex_lock(&recursive);
	pthread_rwlock_wrlock(&written);
	pthread_rwlock_rdlock(&being_read);
	pthread_create(&thread, NULL, dies, NULL);
	pthread_join(thread, NULL);
	pthread_create(&thread, NULL, ada, NULL);
	start(bob, NULL);
	start(joiner, &thread);
	start(for_inherit, NULL);
	start(for_robust, NULL);
	start(for_recursive, NULL);
	start(reader, NULL);
	start(writer, NULL);
	start(waiter, NULL);
	start(waiter, NULL);
	start(counter, NULL);
	puts("ready");
	fflush(stdout);
	/* Its owner has ended, and no task is notified. */
	pthread_mutex_lock(&dead);
	return 0;
}

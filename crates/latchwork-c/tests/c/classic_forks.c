/*
 * The classic interface in the child of a fork that another thread's directive was in the middle of; a deletion of a task
 * that takes its time to end; and configurations that fail. In C and in C++.
 */
#include "classic.h"

#include "check.h"

#include <errno.h>
#include <latchwork/region.h>

#define NAME rtems_build_name('F', 'O', 'R', 'K')
#define FORKS 150

static int must_end;

/* ---- forks ---- */

static void storage_free(void *area)
{
	(void)area;
}

static void construct_and_delete(void)
{
	static RTEMS_MESSAGE_QUEUE_BUFFER(8) buffers[1];
	rtems_message_queue_config config;
	rtems_id id;
	memset(&config, 0, sizeof config);
	config.name = NAME;
	config.maximum_pending_messages = 1;
	config.maximum_message_size = 8;
	config.storage_area = buffers;
	config.storage_size = sizeof buffers;
	config.storage_free = storage_free;
	CHECK_IS(rtems_message_queue_construct(&config, &id), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_message_queue_delete(id), RTEMS_SUCCESSFUL);
}

/* It is nearly always in the middle of a list. */
static void *use_lists(void *unused)
{
	rtems_id id;
	while (!__atomic_load_n(&must_end, __ATOMIC_RELAXED)) {
		for (int round = 0; round < 50; round++)
			CHECK_IS(rtems_task_ident(1, RTEMS_SEARCH_ALL_NODES, &id), RTEMS_INVALID_NAME);
		construct_and_delete();
	}
	return unused;
}

static rtems_task end_at_once(rtems_task_argument unused)
{
	(void)unused;
}

static void use_all(void)
{
	rtems_id task, found;
	CHECK_IS(rtems_task_create(NAME, 255, 0, 0, 0, &task), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_ident(NAME, RTEMS_SEARCH_ALL_NODES, &found), RTEMS_SUCCESSFUL);
	CHECK_IS(found, task);
	CHECK_IS(rtems_task_start(task, end_at_once, 0), RTEMS_SUCCESSFUL);
	construct_and_delete();
}

static void forks(void)
{
	pthread_t user;
	rtems_id waits;
	CHECK_IS(rtems_task_create(NAME, 255, 0, 0, 0, &waits), RTEMS_SUCCESSFUL);
	user = start(use_lists, NULL);
	for (int round = 0; round < FORKS; round++) {
		pid_t child = fork();
		if (child == 0) {
			rtems_id id;
			alarm(WATCHDOG);
			/* The parent's tasks are not this process's. */
			CHECK_IS(rtems_task_ident(NAME, RTEMS_SEARCH_ALL_NODES, &id), RTEMS_INVALID_NAME);
			CHECK_IS(rtems_task_start(waits, end_at_once, 0), RTEMS_INCORRECT_STATE);
			CHECK_IS(rtems_task_delete(waits), RTEMS_NOT_IMPLEMENTED);
			use_all();
			_exit(0);
		}
		CHECK_IS(exit_of(child), 0);
	}
	__atomic_store_n(&must_end, 1, __ATOMIC_RELAXED);
	join(user);
	CHECK_IS(rtems_task_delete(waits), RTEMS_SUCCESSFUL);
}

/* A task forks, and its copy ends. */
static rtems_task fork_and_end(rtems_task_argument place)
{
	pid_t child = fork();
	if (child == 0) {
		alarm(WATCHDOG);
		use_all();
		/* The process ends with its only thread, after the cleanup handlers of the task. */
		pthread_exit(NULL);
	}
	*(volatile int *)place = exit_of(child) == 0 ? 1 : 2;
}

static void fork_of_a_task(void)
{
	volatile int ended = 0;
	rtems_id task;
	CHECK_IS(rtems_task_create(NAME, 255, 0, 0, 0, &task), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_start(task, fork_and_end, (rtems_task_argument)&ended), RTEMS_SUCCESSFUL);
	while (ended == 0)
		sleep_ms(1);
	CHECK_IS(ended, 1);
}

/* ---- deletion ---- */

static void take_time(void *milliseconds)
{
	sleep_ms((long)(intptr_t)milliseconds);
}

#ifdef __GLIBC__
#ifdef __cplusplus
extern "C"
#else
extern
#endif
int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern void *__dso_handle;

/* As a destructor of C++: these run before the thread leaves the region. */
static void at_thread_end(void (*destructor)(void *), void *argument)
{
	CHECK_IS(__cxa_thread_atexit_impl(destructor, argument, &__dso_handle), 0);
}
#else
static pthread_key_t key;

static void at_thread_end(void (*destructor)(void *), void *argument)
{
	CHECK_IS(pthread_key_create(&key, destructor), 0);
	CHECK_IS(pthread_setspecific(key, argument), 0);
}
#endif

static rtems_task end_slowly(rtems_task_argument place)
{
	at_thread_end(take_time, (void *)(intptr_t)700);
	*(volatile int *)place = 1;
	rtems_task_wake_after(1000000);
}

/* Destructors run after the task's handlers. The deletion waits for them as for what comes before. */
static void slow_end(void)
{
	volatile int runs = 0;
	rtems_id task;
	rtems_status_code status;
	struct timespec begin, end;
	CHECK_IS(rtems_task_create(NAME, 255, 0, 0, 0, &task), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_task_start(task, end_slowly, (rtems_task_argument)&runs), RTEMS_SUCCESSFUL);
	while (runs == 0)
		sleep_ms(1);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	status = rtems_task_delete(task);
	clock_gettime(CLOCK_MONOTONIC, &end);
	/* On a busy machine it may take longer. */
	CHECK(status == RTEMS_SUCCESSFUL || (status == RTEMS_TIMEOUT && end.tv_sec - begin.tv_sec >= 2));
}

/* ---- configuration ---- */

static struct lw_classic_options options;
static char region_name[40];

static void configuration(void)
{
	lw_region_t *region;
	struct lw_classic_scheduler scheduler;
	memset(&scheduler, 0, sizeof scheduler);
	/* lw_classic(3), EINVAL: A pointer is NULL */
	CHECK_IS(lw_classic_configure(NULL), EINVAL);
	/* lw_classic(3), EINVAL: a flag is unknown */
	options.flags = 1u << 9;
	CHECK_IS(lw_classic_configure(&options), EINVAL);
	options.flags = 0;
	/* lw_classic(3), EINVAL: an option is out of range */
	options.microseconds_per_tick = UINT32_MAX;
	CHECK_IS(lw_classic_configure(&options), EINVAL);
	options.microseconds_per_tick = 0;
	options.memory = 1;
	CHECK_IS(lw_classic_configure(&options), EINVAL);
	options.memory = 0;
	options.region = "no/name";
	CHECK_IS(lw_classic_configure(&options), EINVAL);
	options.region = NULL;
	/* lw_classic(3), EINVAL: or a scheduler is invalid */
	options.schedulers = &scheduler;
	options.scheduler_count = 1;
	CHECK_IS(lw_classic_configure(&options), EINVAL);
	options.schedulers = NULL;
	options.scheduler_count = 0;
	/* lw_classic(3), ENOMEM: The region is too small, or the system has no memory */
	options.memory = 1 << 20;
	options.semaphores = options.message_queues = 60000;
	CHECK_IS(lw_classic_configure(&options), ENOMEM);
	options.region = region_name;
	CHECK_IS(lw_classic_configure(&options), ENOMEM);
	/* lw_classic(3) says: A call that fails leaves no region that it has created */
	CHECK_IS(lw_region_attach(&region, region_name, 0), ENOENT);
	options.memory = 0;
	options.semaphores = options.message_queues = 0;
	CHECK_IS(lw_classic_configure(&options), 0);
	/* lw_classic(3), EBUSY: The process has a configuration */
	CHECK_IS(lw_classic_configure(&options), EBUSY);
}

static void another_configuration(void)
{
	/* lw_classic(3), EEXIST: The named region was configured with other options */
	options.region = region_name;
	options.semaphores = 3;
	CHECK_IS(lw_classic_configure(&options), EEXIST);
	options.semaphores = 0;
	CHECK_IS(lw_classic_configure(&options), 0);
}

static void ticks_first(void)
{
	CHECK_IS(lw_classic_ticks(20), 2);
	/* lw_classic(3), EBUSY: has called lw_classic_ticks(), or has used a directive */
	CHECK_IS(lw_classic_configure(&options), EBUSY);
}

int main(void)
{
	alarm(WATCHDOG);
	snprintf(region_name, sizeof region_name, "classic-forks-%d", (int)getpid());
	in_process(configuration);
	in_process(another_configuration);
	CHECK_IS(lw_region_unlink(region_name), 0);
	in_process(ticks_first);
	in_process(slow_end);
	in_process(fork_of_a_task);
	forks();
	puts("forked");
	return 0;
}

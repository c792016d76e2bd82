/*
 * What lw_region(3) says of regions, their heap and their objects: each sentence of its description, before the lines that
 * show it. In C and in C++. The test in manual.rs compares these sentences with the page.
 */
#include "latchwork.h"

#include "check.h"

#include <latchwork/queue.h>
#include <latchwork/region.h>
#include <signal.h>
#include <stdint.h>
#include <sys/stat.h>

static char name[40], other_name[44];

static lw_region_t *made(const char *called, const struct lw_region_options *options)
{
	lw_region_t *region;
	CHECK_IS(lw_region_create(&region, called, options), 0);
	return region;
}

static void names_and_handles(void)
{
	lw_region_t *region = made(name, NULL), *again, *none;
	int *word = (int *)lw_region_alloc(region, sizeof *word), *seen, descriptor;
	void *base;
	pid_t child;
	CHECK(word);
	/* lw_region(3) says: lw_region_create() makes a region, and fails if there is a region of this name */
	CHECK_IS(lw_region_create(&none, name, NULL), EEXIST);
	/* lw_region(3) says: A region is memory that each process maps at the same address */
	/* lw_region(3) says: So a pointer into a region is valid in all these processes */
	/* lw_region(3) says: lw_region_attach() attaches the region of this name: it maps the region, which another process has */
	/* lw_region(3) says: Each of these functions stores a handle, which the functions below take */
	*word = 1;
	if ((child = fork()) == 0) {
		base = lw_region_base(region);
		CHECK_IS(lw_region_detach(region), 0);
		CHECK_IS(lw_region_attach(&again, name, NULL), 0);
		CHECK(lw_region_base(again) == base);
		*word += 1;
		_exit(*word);
	}
	CHECK_IS(exit_of(child), 2);
	CHECK_IS(*word, 2);
	/* lw_region(3) says: lw_region_attach_or_create() attaches the region of this name, or makes it if there is no such */
	/* lw_region(3) says: So several programs can start in any order */
	CHECK_IS(lw_region_attach_or_create(&again, name, NULL), 0);
	CHECK(lw_region_base(again) == lw_region_base(region));
	/* lw_region(3) says: The region stays mapped while the process has another handle of it, or a thread that is a task of it */
	CHECK_IS(lw_region_detach(again), 0);
	CHECK_IS(*word, 2);
	CHECK_IS(lw_region_attach_or_create(&again, other_name, NULL), 0);
	CHECK(lw_region_base(again) != lw_region_base(region));
	CHECK_IS(lw_region_unlink(other_name), 0);
	CHECK_IS(lw_region_detach(again), 0);
	/* lw_region(3) says: lw_region_unlink() removes the name of a region */
	/* lw_region(3) says: Processes that have the region attached can still use it */
	/* lw_region(3) says: Without this flag, the name stays until lw_region_unlink() or latchwork gc */
	CHECK_IS(lw_region_unlink(name), 0);
	CHECK_IS(lw_region_unlink(name), ENOENT);
	CHECK_IS(lw_region_attach(&again, name, NULL), ENOENT);
	seen = (int *)lw_region_alloc(region, sizeof *seen);
	CHECK(seen && *word == 2);
	/* lw_region(3) says: Its memory is freed when no process has the region attached any more */
	base = lw_region_base(region);
	descriptor = lw_region_fd(region);
	CHECK_IS(msync(base, 4096, MS_ASYNC), 0);
	CHECK(fcntl(descriptor, F_GETFD) >= 0);
	/* lw_region(3) says: lw_region_detach() closes the handle, and the calling thread is then no task of the region any more */
	CHECK_IS(lw_region_detach(region), 0);
	CHECK(msync(base, 4096, MS_ASYNC) == -1 && errno == ENOMEM);
	CHECK(fcntl(descriptor, F_GETFD) == -1 && errno == EBADF);
	/* lw_region(3) says: The name is removed when the last process that has the region attached detaches the region or exits */
	{
		struct lw_region_options options;
		memset(&options, 0, sizeof options);
		options.flags = LW_REGION_UNLINK_AT_LAST_DETACH;
		region = made(name, &options);
		CHECK_IS(lw_region_attach(&again, name, NULL), 0);
		CHECK_IS(lw_region_detach(again), 0);
		CHECK_IS(lw_region_detach(region), 0);
		CHECK_IS(lw_region_attach(&again, name, NULL), ENOENT);
	}
}

static void names_that_stay(void)
{
	struct lw_region_options options;
	lw_region_t *region;
	memset(&options, 0, sizeof options);
	options.flags = LW_REGION_UNLINK_AT_LAST_DETACH;
	/* lw_region(3) says: If that process is killed, the name stays; and also if it exits while another of its threads is a task */
	for (int is_killed = 0; is_killed < 2; is_killed++) {
		pid_t child = fork();
		if (child == 0) {
			CHECK_IS(lw_region_join(made(name, &options), "last"), 0);
			if (is_killed)
				raise(SIGKILL);
			exit(0);
		}
		CHECK_IS(exit_of(child), is_killed ? 1000 + SIGKILL : 0);
		CHECK_IS(lw_region_attach(&region, name, NULL), 0);
		CHECK_IS(lw_region_unlink(name), 0);
		CHECK_IS(lw_region_detach(region), 0);
	}
	/* lw_region(3) says: The flag has no effect on a region that is made */
	options.flags = LW_REGION_CHECKED;
	region = made(name, &options);
	CHECK_IS(lw_region_unlink(name), 0);
	CHECK_IS(lw_region_detach(region), 0);
}

static lw_region_mutex_t *of_the_region;
static volatile int has_joined, is_detached;

static void *stay_a_task(void *region)
{
	CHECK_IS(lw_region_join((lw_region_t *)region, "stays"), 0);
	CHECK_IS(lw_mutex_lock(of_the_region), 0);
	has_joined = 1;
	while (!is_detached)
		sleep_ms(1);
	CHECK_IS(lw_mutex_unlock(of_the_region), 0);
	CHECK_IS(lw_mutex_lock(of_the_region), 0);
	CHECK_IS(lw_mutex_unlock(of_the_region), 0);
	return NULL;
}

static void tasks_that_stay(void)
{
	lw_region_t *region = made(NULL, NULL);
	pthread_t thread;
	of_the_region = (lw_region_mutex_t *)lw_region_zalloc(region, sizeof *of_the_region);
	CHECK_IS(lw_region_keep(region, of_the_region), 0);
	thread = start(stay_a_task, region);
	while (!has_joined)
		sleep_ms(1);
	/* lw_region(3) says: Other threads of the process remain tasks */
	CHECK_IS(lw_region_detach(region), 0);
	is_detached = 1;
	join(thread);
}

static void without_a_name(void)
{
	lw_region_t *region = made(NULL, NULL), *again;
	int *word = (int *)lw_region_alloc(region, sizeof *word), descriptor = lw_region_fd(region);
	pid_t child;
	/* lw_region(3) says: If name is NULL, lw_region_create() makes a region without a name */
	/* lw_region(3) says: The process that made it can use it */
	/* lw_region(3) says: So can each copy of this process, if the copy is made after the region */
	/* lw_region(3) says: The child of a fork(2) */
	CHECK(word);
	*word = 3;
	if ((child = fork()) == 0) {
		*word = 4;
		_exit(lw_region_alloc(region, 1) ? 0 : 1);
	}
	CHECK_IS(exit_of(child), 0);
	CHECK_IS(*word, 4);
	/* lw_region(3) says: Any other process can use the region if it receives a descriptor of the region */
	/* lw_region(3) says: lw_region_fd() returns such a descriptor */
	/* lw_region(3) says: lw_region_attach_fd() attaches the region to which a descriptor refers, and leaves that descriptor */
	CHECK_IS(lw_region_attach_fd(&again, descriptor, NULL), 0);
	CHECK(lw_region_base(again) == lw_region_base(region));
	CHECK_IS(lw_region_detach(again), 0);
	CHECK(fcntl(descriptor, F_GETFD) >= 0);
	CHECK_IS(lw_region_detach(region), 0);
}

static void options_of_regions(void)
{
	struct lw_region_options options;
	struct stat status;
	char path[80];
	lw_region_t *region, *again;
	memset(&options, 0, sizeof options);
	/* lw_region(3) says: options may be NULL */
	/* lw_region(3) says: The maximum size of the heap in bytes, from 1 MiB to 1 TiB; the default is 256 MiB */
	/* lw_region(3) says: lw_region_base() returns the address of the region */
	/* lw_region(3) says: lw_region_max_bytes() returns the maximum size of its heap */
	region = made(NULL, NULL);
	CHECK_IS(lw_region_max_bytes(region), 256 << 20);
	CHECK(lw_region_base(region));
	CHECK_IS(lw_region_detach(region), 0);
	options.max_bytes = (1 << 20) - 1;
	CHECK_IS(lw_region_create(&region, NULL, &options), EINVAL);
	options.max_bytes = (1ull << 40) + 1;
	CHECK_IS(lw_region_create(&region, NULL, &options), EINVAL);
	options.max_bytes = 1 << 20;
	/* lw_region(3) says: The maximum number of tasks at a time, up to 16,384; the default is 256 */
	options.max_tasks = 16385;
	CHECK_IS(lw_region_create(&region, NULL, &options), EINVAL);
	options.max_tasks = 16384;
	/* lw_region(3) says: The maximum number of names of objects and queues, up to 1,048,576; the default is 1024 */
	options.max_names = 1048577;
	CHECK_IS(lw_region_create(&region, NULL, &options), EINVAL);
	options.max_names = 2;
	/* lw_region(3) says: The address of the region, a multiple of 64 KiB; the default is any free address */
	options.address = (void *)(uintptr_t)0x700000001000;
	CHECK_IS(lw_region_create(&region, NULL, &options), EINVAL);
	options.address = (void *)(uintptr_t)0x2a0000000000;
	/* lw_region(3) says: The permission bits of the file of a named region; the default is 0600 */
	options.mode = 0640;
	region = made(name, &options);
	CHECK(lw_region_base(region) == options.address);
	snprintf(path, sizeof path, "/dev/shm/latchwork-%s", name);
	CHECK_IS(stat(path, &status), 0);
	CHECK_IS(status.st_mode & 0777, 0640);
	/* lw_region(3) says: If the call attaches a region that exists, only the flags LW_REGION_TRUST_ANY_OWNER */
	options.max_bytes = 2 << 20;
	options.address = NULL;
	CHECK_IS(lw_region_attach_or_create(&again, name, &options), 0);
	CHECK_IS(lw_region_max_bytes(again), 1 << 20);
	CHECK_IS(lw_region_detach(again), 0);
	CHECK_IS(lw_region_unlink(name), 0);
	CHECK_IS(lw_region_detach(region), 0);
}

static void read_only(void)
{
	struct lw_region_options options;
	lw_region_t *region, *seen;
	struct lw_heap_stats stats;
	volatile int *is_made = (int *)share(sizeof *is_made);
	void *object;
	pid_t child;
	memset(&options, 0, sizeof options);
	/* Before the region is made, so that it has no mapping of it. */
	if ((child = fork()) == 0) {
		options.flags = LW_REGION_READ_ONLY;
		while (!*is_made)
			sleep_ms(1);
		/* lw_region(3) says: lw_region_attach() and lw_region_attach_fd() map the region for reading only */
		/* lw_region(3) says: With such a handle, these functions work: lw_region_base(), lw_region_max_bytes(), lw_region_fd() */
		CHECK_IS(lw_region_attach(&seen, name, &options), 0);
		CHECK(lw_region_base(seen) && lw_region_max_bytes(seen) && lw_region_fd(seen) >= 0);
		CHECK_IS(lw_region_find(seen, "object", 1, 8, &object), 0);
		CHECK_IS(lw_region_heap_stats(seen, &stats), 0);
		/* lw_region(3) says: Its threads do not become tasks */
		/* lw_region(3) says: The other functions fail with EROFS */
		CHECK_IS(lw_region_join(seen, "nobody"), EROFS);
		CHECK_IS(lw_region_remove(seen, "object", 1, 8), EROFS);
		CHECK_IS(lw_region_trim(seen, NULL), EROFS);
		/* lw_region(3) says: A write to the region raises SIGSEGV */
		*(volatile int *)object = 1;
		CHECK(!"reached");
	}
	region = made(name, NULL);
	options.flags = LW_REGION_READ_ONLY;
	CHECK_IS(lw_region_object(region, "object", 1, 8, NULL, NULL, &object), 0);
	/* lw_region(3) says: The process must not have the region attached already */
	CHECK_IS(lw_region_attach(&seen, name, &options), EADDRINUSE);
	/* lw_region(3) says: The other functions that take options fail with EINVAL */
	CHECK_IS(lw_region_create(&seen, other_name, &options), EINVAL);
	CHECK_IS(lw_region_attach_or_create(&seen, name, &options), EINVAL);
	*is_made = 1;
	CHECK_IS(exit_of(child), 1000 + SIGSEGV);
	/* lw_region(3) says: In the child of a fork(2), the tasks of the parent count as well: if there were any, the region */
	if ((child = fork()) == 0) {
		CHECK_IS(lw_region_detach(region), 0);
		CHECK_IS(lw_region_attach(&seen, name, &options), EADDRINUSE);
		_exit(0);
	}
	CHECK_IS(exit_of(child), 0);
	CHECK_IS(lw_region_unlink(name), 0);
	CHECK_IS(lw_region_detach(region), 0);
}

/* What a task that is killed tells. */
struct told {
	void *kept;
	volatile int ready;
};

static void deaths_of_tasks(lw_region_t *region)
{
	lw_region_mutex_t *mutex = (lw_region_mutex_t *)lw_region_zalloc(region, sizeof *mutex);
	struct lw_heap_stats before, after;
	struct told *told = (struct told *)share(sizeof *told);
	pid_t child;
	CHECK(mutex);
	CHECK_IS(lw_region_heap_stats(region, &before), 0);
	if ((child = fork()) == 0) {
		/* lw_region(3) says: lw_region_join() makes the calling thread a task at once, and gives the task a name of at most */
		/* lw_region(3) says: A thread becomes a task of a region when it first uses the region */
		/* lw_region(3) says: With NULL, the task has no name */
		CHECK_IS(lw_region_join(region, NULL), 0);
		CHECK_IS(lw_region_join(region, "killed"), 0);
		CHECK_IS(lw_mutex_lock(mutex), 0);
		CHECK(lw_region_alloc(region, 100000));
		told->kept = lw_region_alloc(region, 50000);
		/* lw_region(3) says: Call lw_region_keep() before another task learns of the address of the block */
		CHECK_IS(lw_region_keep(region, told->kept), 0);
		memset(told->kept, 'k', 50000);
		told->ready = 1;
		/* So that the other one sleeps. */
		sleep_ms(20);
		raise(SIGKILL);
	}
	while (!told->ready)
		sleep_ms(1);
	/* lw_region(3) says: A task that waits for a robust lock of the killed task is woken */
	CHECK_IS(lw_mutex_lock(mutex), EOWNERDEAD);
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	CHECK_IS(lw_mutex_consistent(mutex), 0);
	CHECK_IS(lw_mutex_unlock(mutex), 0);
	/* lw_region(3) says: Blocks that the killed task had allocated are freed; the exceptions are described under The heap */
	/* lw_region(3) says: If the task that allocated a block is killed, the block is freed */
	/* lw_region(3) says: There are two exceptions: a block that was passed to lw_region_keep(), and a block that was sent */
	/* lw_region(3) says: Any task may free a block with lw_region_free() */
	CHECK_IS(((char *)told->kept)[49999], 'k');
	lw_region_free(region, told->kept);
	CHECK_IS(lw_region_heap_stats(region, &after), 0);
	CHECK_IS(after.used_bytes, before.used_bytes);
	lw_region_free(region, mutex);
}

static void the_heap(lw_region_t *region)
{
	struct lw_heap_stats before, with, after;
	size_t freed = 0;
	char *block, *zeros, *aligned, *large;
	lw_queue_t *queue;
	/* lw_region(3) says: A region contains a heap, and objects that are found by name */
	/* lw_region(3) says: It can also contain queues (lw_queue(3)) */
	CHECK_IS(lw_queue_create(&queue, region, "queue", 1, 8, LW_QUEUE_FIFO), 0);
	CHECK_IS(lw_queue_delete(queue), 0);
	CHECK_IS(lw_queue_close(queue), 0);
	/* lw_region(3) says: lw_region_alloc() allocates a block, which is aligned to 16 bytes */
	block = (char *)lw_region_alloc(region, 33);
	CHECK(block && (uintptr_t)block % 16 == 0);
	memset(block, 'x', 33);
	lw_region_free(region, block);
	/* lw_region(3) says: lw_region_zalloc() also fills the block with zeros */
	zeros = (char *)lw_region_zalloc(region, 33);
	for (int i = 0; i < 33; i++)
		CHECK_IS(zeros[i], 0);
	/* lw_region(3) says: lw_region_aligned_alloc() aligns the block to a power of two up to 4096 */
	aligned = (char *)lw_region_aligned_alloc(region, 4096, 1);
	CHECK(aligned && (uintptr_t)aligned % 4096 == 0);
	CHECK(!lw_region_aligned_alloc(region, 8192, 1));
	CHECK(!lw_region_aligned_alloc(region, 48, 1));
	/* lw_region(3) says: lw_region_heap_stats() stores the state of the heap, in bytes */
	/* lw_region(3) says: The size of all blocks that are in use */
	/* lw_region(3) says: The memory that the heap has taken from the system */
	/* lw_region(3) says: The memory that the heap may take */
	CHECK_IS(lw_region_heap_stats(region, &before), 0);
	large = (char *)lw_region_alloc(region, 8 << 20);
	CHECK(large);
	memset(large, 1, 8 << 20);
	CHECK_IS(lw_region_heap_stats(region, &with), 0);
	CHECK(with.used_bytes >= before.used_bytes + (8 << 20));
	CHECK(with.committed_bytes >= with.used_bytes && with.committed_bytes <= with.max_bytes);
	CHECK_IS(with.max_bytes, lw_region_max_bytes(region));
	/* lw_region(3) says: lw_region_trim() returns unused memory of the heap to the system, and stores the number of bytes in */
	lw_region_free(region, large);
	CHECK_IS(lw_region_trim(region, &freed), 0);
	CHECK(freed >= 8 << 20);
	CHECK_IS(lw_region_heap_stats(region, &after), 0);
	CHECK(after.committed_bytes + freed <= with.committed_bytes);
	CHECK_IS(lw_region_trim(region, NULL), 0);
	lw_region_free(region, zeros);
	lw_region_free(region, aligned);
}

static int makes;
static lw_region_t *makes_in;

static void make(void *object, void *argument)
{
	void *other;
	makes++;
	*(int *)object = *(int *)argument;
	/* lw_region(3) says: make runs while the lock of the region's names is held */
	/* lw_region(3) says: So it must not find, make or remove an object or a queue of the region; such a call fails with EDEADLK */
	CHECK_IS(lw_region_find(makes_in, "other", 1, 8, &other), EDEADLK);
	CHECK_IS(lw_region_remove(makes_in, "other", 1, 8), EDEADLK);
}

static void make_and_die(void *object, void *argument)
{
	(void)object;
	(void)argument;
	raise(SIGKILL);
}

static void objects(lw_region_t *region)
{
	void *object, *again;
	int seven = 7;
	pid_t child;
	makes_in = region;
	/* lw_region(3) says: lw_region_object() stores the address of the object of this name */
	/* lw_region(3) says: If there is no such object, the call makes one */
	/* lw_region(3) says: It allocates zeroed memory for the object, at an address that is a multiple of 64; the argument bytes */
	/* lw_region(3) says: It then calls make with this address and argument, unless make is NULL */
	CHECK_IS(lw_region_object(region, "plain", 1, 100, NULL, NULL, &object), 0);
	CHECK_IS((uintptr_t)object % 64, 0);
	for (int i = 0; i < 100; i++)
		CHECK_IS(((char *)object)[i], 0);
	CHECK_IS(lw_region_object(region, "seven", 1, 8, make, &seven, &object), 0);
	CHECK_IS(*(int *)object, 7);
	CHECK_IS(lw_region_object(region, "seven", 1, 8, make, &seven, &again), 0);
	CHECK(again == object && makes == 1);
	/* lw_region(3) says: lw_region_find() also stores the address of the object of this name, but makes no object */
	CHECK_IS(lw_region_find(region, "seven", 1, 8, &again), 0);
	CHECK(again == object);
	CHECK_IS(lw_region_find(region, "none", 1, 8, &again), ENOENT);
	/* lw_region(3) says: type is a number that identifies the type of the object */
	/* lw_region(3) says: All programs that use the object pass the same number */
	/* lw_region(3) says: lw_type() computes such a number from a text */
	CHECK_IS(lw_region_object(region, "seven", 2, 8, make, &seven, &again), EEXIST);
	CHECK(lw_type("accounts 1") == lw_type("accounts 1") && lw_type("accounts 1") != lw_type("accounts 2"));
	/* lw_region(3) says: If the task that runs make is killed, the object does not exist, and the next call makes it */
	if ((child = fork()) == 0) {
		lw_region_object(region, "late", 1, 8, make_and_die, NULL, &object);
		_exit(0);
	}
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	CHECK_IS(lw_region_find(region, "late", 1, 8, &again), ENOENT);
	/* lw_region(3) says: The object exists until it is removed, even if the task that made it is killed */
	if ((child = fork()) == 0) {
		CHECK_IS(lw_region_object(region, "late", 1, 8, make, &seven, &object), 0);
		raise(SIGKILL);
	}
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	CHECK_IS(lw_region_find(region, "late", 1, 8, &again), 0);
	CHECK_IS(*(int *)again, 7);
	/* lw_region(3) says: lw_region_remove() removes the name of an object and frees the object */
	CHECK_IS(lw_region_remove(region, "late", 1, 8), 0);
	CHECK_IS(lw_region_find(region, "late", 1, 8, &again), ENOENT);
}

static void of_any_namespace(void)
{
	struct lw_region_options options;
	lw_region_t *region;
	lw_robust_mutex_t *names_threads;
	lw_region_mutex_t *names_tasks;
	memset(&options, 0, sizeof options);
	options.flags = LW_REGION_ANY_PID_NAMESPACE;
	/* lw_region(3) says: A new region is for tasks of any PID namespace, for example of several containers */
	/* lw_region(3) says: So the program must not place in such a region a lock that names a thread by its ID */
	/* lw_region(3) says: Their functions lw_..._init() fail there with EXDEV; a copy of an initialiser is not checked */
	/* lw_region(3) says: The kinds lw_region_... take their place */
	region = made(NULL, &options);
	names_threads = (lw_robust_mutex_t *)lw_region_alloc(region, sizeof *names_threads);
	names_tasks = (lw_region_mutex_t *)lw_region_zalloc(region, sizeof *names_tasks);
	CHECK(names_threads && names_tasks);
	CHECK_IS(lw_mutex_init(names_threads), EXDEV);
	CHECK_IS(lw_mutex_lock(names_tasks), 0);
	CHECK_IS(lw_mutex_unlock(names_tasks), 0);
	CHECK_IS(lw_region_detach(region), 0);
}

int main(void)
{
	lw_region_t *region;
	alarm(WATCHDOG);
	snprintf(name, sizeof name, "said-%d", (int)getpid());
	snprintf(other_name, sizeof other_name, "%s-2", name);
	names_and_handles();
	names_that_stay();
	tasks_that_stay();
	without_a_name();
	options_of_regions();
	read_only();
	region = made(NULL, NULL);
	the_heap(region);
	deaths_of_tasks(region);
	objects(region);
	CHECK_IS(lw_region_detach(region), 0);
	of_any_namespace();
	puts("said");
	return 0;
}

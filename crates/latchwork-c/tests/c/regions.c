/* Regions in C: handles, the heap, objects, deaths, and each error that the header names. */
#include "namespaces.h"

#include <latchwork.h>
#include <latchwork/queue.h>
#include <latchwork/region.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

struct accounts {
	lw_robust_mutex_t lock;
	long money[2];
	int made;
};
#define ACCOUNTS "org.example.accounts 1"

static void make(void *object, void *argument)
{
	struct accounts *accounts = (struct accounts *)object;
	CHECK_IS(accounts->made, 0);
	CHECK_IS(lw_robust_mutex_init(&accounts->lock), 0);
	accounts->money[0] = *(long *)argument;
	accounts->made = 1;
}

static struct accounts *find(lw_region_t *region)
{
	void *object = NULL;
	CHECK_IS(lw_region_find(region, "accounts", lw_type(ACCOUNTS), sizeof(struct accounts), &object), 0);
	return (struct accounts *)object;
}

/* A child that dies where `body` ends. */
static void die_after(void (*body)(lw_region_t *), lw_region_t *region)
{
	pid_t child = fork();
	int status;
	if (child == 0) {
		body(region);
		raise(SIGKILL);
	}
	CHECK(child > 0);
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void die_in_transfer(lw_region_t *region)
{
	struct accounts *accounts = find(region);
	CHECK_IS(lw_robust_mutex_lock(&accounts->lock), 0);
	accounts->money[0] -= 30;
}

static void *kept;

static void die_with_blocks(lw_region_t *region)
{
	void *block = lw_region_alloc(region, 100000);
	CHECK(block != NULL && kept != NULL);
	memset(block, 7, 100000);
	*(void **)kept = lw_region_zalloc(region, 5000);
	CHECK_IS(lw_region_keep(region, *(void **)kept), 0);
	memset(*(void **)kept, 9, 5000);
}

static void test_objects(lw_region_t *region)
{
	long money = 100;
	void *object = NULL, *again = NULL;
	size_t bytes = sizeof(struct accounts);
	uint64_t type = lw_type(ACCOUNTS);
	struct accounts *accounts;

	/* lw_region(3), ENOENT: There is no region, or no object, of this name */
	CHECK_IS(lw_region_find(region, "accounts", type, bytes, &object), ENOENT);
	CHECK(strstr(lw_error_text(), "no object") != NULL);
	CHECK_IS(lw_region_object(region, "accounts", type, bytes, make, &money, &object), 0);
	CHECK_IS((uintptr_t)object % 64, 0);
	CHECK_IS(lw_region_object(region, "accounts", type, bytes, make, &money, &again), 0);
	CHECK(again == object);
	/* lw_region(3), EEXIST: the object of this name has another type or size */
	CHECK_IS(lw_region_object(region, "accounts", lw_type("another"), bytes, make, &money, &again), EEXIST);
	CHECK_IS(lw_region_object(region, "accounts", type, bytes + 1, make, &money, &again), EEXIST);
	CHECK_IS(lw_region_find(region, "accounts", type, bytes - 1, &again), EEXIST);
	/* lw_region(3), EINVAL: The name of an object has 1 to 64 bytes */
	CHECK_IS(lw_region_object(region, "", type, bytes, make, &money, &again), EINVAL);
	CHECK_IS(lw_region_object(region, NULL, type, bytes, make, &money, &again), EINVAL);
	CHECK_IS(lw_region_object(region, "huge", type, SIZE_MAX, NULL, NULL, &again), ENOMEM);
	/* lw_region(3), ENOMEM: The region is full */
	CHECK_IS(lw_region_object(region, "huge", type, 1 << 30, NULL, NULL, &again), ENOMEM);
	CHECK_IS(lw_region_find(region, "huge", type, 1 << 30, &again), ENOENT);
	CHECK_IS(lw_region_object(NULL, "name", type, bytes, make, &money, &again), EINVAL);
	CHECK(lw_type("a") != lw_type("b"));

	die_after(die_in_transfer, region);
	accounts = find(region);
	CHECK_IS(lw_robust_mutex_lock(&accounts->lock), EOWNERDEAD);
	CHECK_IS(accounts->money[0], 70);
	accounts->money[1] = 30;
	CHECK_IS(lw_robust_mutex_consistent(&accounts->lock), 0);
	/* A thread that holds a lock of the region stays. */
	CHECK_IS(lw_region_detach(region), EBUSY);
	CHECK(strstr(lw_error_text(), "holds 1 robust lock") != NULL);
	CHECK_IS(lw_robust_mutex_unlock(&accounts->lock), 0);

	CHECK_IS(lw_region_remove(region, "accounts", type, bytes + 1), EEXIST);
	CHECK_IS(lw_region_remove(region, "accounts", type, bytes), 0);
	CHECK_IS(lw_region_remove(region, "accounts", type, bytes), ENOENT);
	/* A thousand objects one after another, though the region has room for a few names. */
	for (int round = 0; round < 1000; round++) {
		char name[16];
		snprintf(name, sizeof name, "object %d", round);
		CHECK_IS(lw_region_object(region, name, type, 1000 + (size_t)round, NULL, NULL, &object), 0);
		CHECK_IS(((char *)object)[999], 0);
		memset(object, 1, 1000);
		CHECK_IS(lw_region_remove(region, name, type, 1000 + (size_t)round), 0);
	}
	for (int number = 0; number < 16; number++) {
		char name[2] = {(char)('a' + number), 0};
		CHECK_IS(lw_region_object(region, name, type, 8, NULL, NULL, &object), 0);
	}
	/* lw_region(3), ENOSPC: All names of the region are in use */
	CHECK_IS(lw_region_object(region, "one more", type, 8, NULL, NULL, &object), ENOSPC);
	for (int number = 0; number < 16; number++) {
		char name[2] = {(char)('a' + number), 0};
		CHECK_IS(lw_region_remove(region, name, type, 8), 0);
	}
}

static void test_heap(lw_region_t *region)
{
	struct lw_heap_stats before, now;
	size_t freed = 0;
	char *block;

	CHECK_IS(lw_region_heap_stats(region, &before), 0);
	CHECK_IS(before.max_bytes, 8 << 20);
	block = (char *)lw_region_aligned_alloc(region, 4096, 10);
	CHECK_IS((uintptr_t)block % 4096, 0);
	CHECK((char *)lw_region_base(region) < block && block < (char *)lw_region_base(region) + (16 << 20));
	lw_region_free(region, block);
	lw_region_free(region, NULL);
	errno = 0;
	CHECK(lw_region_aligned_alloc(region, 3, 10) == NULL && errno == EINVAL);
	CHECK(lw_region_aligned_alloc(region, 8192, 10) == NULL && errno == EINVAL);
	CHECK(lw_region_alloc(region, 1 << 30) == NULL && errno == ENOMEM);
	CHECK(lw_region_alloc(region, SIZE_MAX) == NULL && errno == ENOMEM);
	CHECK(lw_region_alloc(NULL, 1) == NULL && errno == EINVAL);
	CHECK_IS(lw_region_keep(region, &freed), EINVAL);
	CHECK_IS(lw_region_keep(region, NULL), EINVAL);
	block = (char *)lw_region_zalloc(region, 1000);
	for (int at = 0; at < 1000; at++)
		CHECK_IS(block[at], 0);
	lw_region_free(region, block);

	/* What only the dead task knew is freed; what it kept is there. */
	kept = lw_region_zalloc(region, sizeof(void *));
	CHECK_IS(lw_region_keep(region, kept), 0);
	CHECK_IS(lw_region_heap_stats(region, &before), 0);
	die_after(die_with_blocks, region);
	block = *(char **)kept;
	for (int at = 0; at < 5000; at++)
		CHECK_IS(block[at], 9);
	CHECK_IS(lw_region_trim(region, &freed), 0);
	/* The dead are found when a task joins. */
	do {
		pid_t child = fork();
		if (child == 0)
			_exit(lw_region_join(region, "joins"));
		CHECK_IS(exit_of(child), 0);
		CHECK_IS(lw_region_heap_stats(region, &now), 0);
	} while (now.used_bytes > before.used_bytes + 50000);
	lw_region_free(region, block);
	lw_region_free(region, kept);
}

static void test_names(void)
{
	char name[64];
	lw_region_t *region = NULL, *other = NULL;
	struct lw_region_options options;
	void *object = NULL, *same = NULL;
	pid_t child;
	int fd;

	memset(&options, 0, sizeof options);
	snprintf(name, sizeof name, "c-test-%d", getpid());
	options.max_bytes = 4 << 20;
	CHECK_IS(lw_region_attach(&region, name, NULL), ENOENT);
	CHECK_IS(lw_region_unlink(name), ENOENT);
	CHECK_IS(lw_region_create(&region, name, &options), 0);
	/* lw_region(3), EEXIST: A region of this name exists */
	CHECK_IS(lw_region_create(&other, name, &options), EEXIST);
	CHECK_IS(lw_region_max_bytes(region), 4 << 20);
	CHECK_IS(lw_region_object(region, "object", 1, 64, NULL, NULL, &object), 0);
	/* Once more in this process: the same mapping. */
	CHECK_IS(lw_region_attach(&other, name, NULL), 0);
	CHECK(lw_region_base(other) == lw_region_base(region));
	CHECK_IS(lw_region_find(other, "object", 1, 64, &same), 0);
	CHECK(same == object);
	CHECK_IS(lw_region_detach(other), 0);
	other = NULL;
	/* By another process, under its own handle. */
	child = fork();
	if (child == 0) {
		lw_region_t *mine = NULL;
		CHECK_IS(lw_region_attach_or_create(&mine, name, NULL), 0);
		CHECK_IS(lw_region_join(mine, "child"), 0);
		CHECK_IS(lw_region_find(mine, "object", 1, 64, &same), 0);
		CHECK(same == object);
		((char *)same)[63] = 5;
		CHECK_IS(lw_region_detach(mine), 0);
		_exit(0);
	}
	CHECK_IS(exit_of(child), 0);
	CHECK_IS(((char *)object)[63], 5);
	/* By its descriptor. */
	fd = dup(lw_region_fd(region));
	CHECK_IS(lw_region_attach_fd(&other, fd, NULL), 0);
	CHECK(lw_region_base(other) == lw_region_base(region));
	CHECK_IS(lw_region_detach(other), 0);
	CHECK_IS(close(fd), 0);
	CHECK_IS(lw_region_attach_fd(&other, fd, NULL), EBADF);
	CHECK_IS(lw_region_attach_fd(&other, -1, NULL), EINVAL);
	fd = open("/dev/null", O_RDWR);
	/* lw_region(3), EBADMSG: The file is not a region */
	CHECK_IS(lw_region_attach_fd(&other, fd, NULL), EBADMSG);
	close(fd);
	CHECK_IS(lw_region_unlink(name), 0);
	CHECK_IS(lw_region_attach(&other, name, NULL), ENOENT);
	/* It is still there for those who have it. */
	CHECK_IS(lw_region_find(region, "object", 1, 64, &same), 0);
	CHECK_IS(lw_region_detach(region), 0);
	/* A name that goes with the last process. */
	options.flags = LW_REGION_UNLINK_AT_LAST_DETACH;
	CHECK_IS(lw_region_create(&region, name, &options), 0);
	CHECK_IS(lw_region_detach(region), 0);
	CHECK_IS(lw_region_attach(&region, name, NULL), ENOENT);
}

/* A region that this process can only read: another one has made it. */
static void test_read_only(void)
{
	char name[64];
	lw_region_t *region = NULL, *again = NULL;
	struct lw_region_options options;
	struct lw_heap_stats stats;
	lw_queue_t *queue = NULL;
	void *object = NULL;
	pid_t child;
	int status;

	memset(&options, 0, sizeof options);
	snprintf(name, sizeof name, "c-test-read-%d", getpid());
	child = fork();
	if (child == 0) {
		options.max_bytes = 4 << 20;
		CHECK_IS(lw_region_create(&region, name, &options), 0);
		CHECK_IS(lw_region_object(region, "object", 1, 64, NULL, NULL, &object), 0);
		strcpy((char *)object, "written");
		CHECK_IS(lw_queue_create(&queue, region, "queue", 1, 8, LW_QUEUE_FIFO), 0);
		_exit(0);
	}
	CHECK_IS(exit_of(child), 0);
	options.flags = LW_REGION_READ_ONLY;
	CHECK_IS(lw_region_attach(&region, name, &options), 0);
	CHECK_IS(lw_region_max_bytes(region), 4 << 20);
	CHECK_IS(lw_region_find(region, "object", 1, 64, &object), 0);
	CHECK((char *)object > (char *)lw_region_base(region));
	CHECK(strcmp((char *)object, "written") == 0);
	CHECK_IS(lw_region_find(region, "object", 2, 64, &object), EEXIST);
	CHECK_IS(lw_region_find(region, "none", 1, 64, &object), ENOENT);
	CHECK_IS(lw_region_heap_stats(region, &stats), 0);
	CHECK(stats.used_bytes >= 64 && stats.max_bytes == 4 << 20);
	/* What would write is refused. */
	/* lw_region(3), EROFS: The handle is for reading only */
	CHECK_IS(lw_region_object(region, "another", 1, 64, NULL, NULL, &object), EROFS);
	CHECK(strstr(lw_error_text(), "reading only") != NULL);
	CHECK_IS(lw_region_remove(region, "object", 1, 64), EROFS);
	CHECK_IS(lw_region_join(region, NULL), EROFS);
	CHECK_IS(lw_region_trim(region, NULL), EROFS);
	/* lw_queue(3), EROFS: The region's handle is for reading only */
	CHECK_IS(lw_queue_open(&queue, region, "queue"), EROFS);
	errno = 0;
	CHECK(lw_region_alloc(region, 8) == NULL && errno == EROFS);
	lw_region_free(region, object);
	/* lw_region(3), EADDRINUSE: the process has mapped it already */
	CHECK_IS(lw_region_attach_fd(&again, lw_region_fd(region), &options), EADDRINUSE);
	child = fork();
	if (child == 0) {
		*(volatile char *)object = 'W';
		_exit(0);
	}
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	CHECK_IS(lw_region_detach(region), 0);
	CHECK_IS(lw_region_attach(&region, name, NULL), 0);
	CHECK_IS(lw_region_detach(region), 0);
	CHECK_IS(lw_region_unlink(name), 0);
}

static void is_refused(void *name)
{
	lw_region_t *region = NULL;
	/* lw_region(3), EXDEV: The region belongs to another PID namespace */
	CHECK_IS(lw_region_attach(&region, (char *)name, NULL), EXDEV);
	CHECK(strstr(lw_error_text(), "PID namespace") != NULL);
}

/* It ends without an unlock. (The first process of a namespace survives the signals that it sends itself.) */
static void dies_as_owner(void *name)
{
	lw_region_t *region = NULL;
	void *object = NULL;
	CHECK_IS(lw_region_attach(&region, (char *)name, NULL), 0);
	CHECK_IS(lw_region_find(region, "lock", 1, sizeof(lw_region_mutex_t), &object), 0);
	CHECK_IS(lw_mutex_lock((lw_region_mutex_t *)object), 0);
	_exit(42);
}

/* A region for any PID namespace, and one for that of its creator. */
static void test_namespaces(void)
{
	char name[64];
	lw_region_t *region = NULL;
	struct lw_region_options options;
	void *object = NULL;
	int status;

	memset(&options, 0, sizeof options);
	options.max_bytes = 4 << 20;
	snprintf(name, sizeof name, "c-test-namespaces-%d", getpid());
	CHECK_IS(lw_region_create(&region, name, &options), 0);
	CHECK_IS(lw_region_detach(region), 0);
	status = in_namespace(is_refused, name);
	CHECK_IS(lw_region_unlink(name), 0);
	options.flags = LW_REGION_ANY_PID_NAMESPACE;
	CHECK_IS(lw_region_create(&region, name, &options), 0);
	CHECK_IS(lw_region_object(region, "lock", 1, sizeof(lw_region_mutex_t), NULL, NULL, &object), 0);
	if (status == NO_NAMESPACE) {
		fprintf(stderr, "skipped: PID namespaces cannot be made here\n");
	} else {
		CHECK_IS(status, 0);
		CHECK_IS(lw_region_detach(region), 0);
		CHECK_IS(in_namespace(dies_as_owner, name), 42);
		CHECK_IS(lw_region_attach(&region, name, NULL), 0);
		CHECK_IS(lw_region_find(region, "lock", 1, sizeof(lw_region_mutex_t), &object), 0);
		CHECK_IS(lw_mutex_lock((lw_region_mutex_t *)object), EOWNERDEAD);
		CHECK_IS(lw_mutex_consistent((lw_region_mutex_t *)object), 0);
		CHECK_IS(lw_mutex_unlock((lw_region_mutex_t *)object), 0);
	}
	CHECK_IS(lw_region_detach(region), 0);
	CHECK_IS(lw_region_unlink(name), 0);
}

static void test_bad_options(void)
{
	lw_region_t *region = NULL;
	struct lw_region_options options;
	memset(&options, 0, sizeof options);
	CHECK_IS(lw_region_create(NULL, NULL, NULL), EINVAL);
	CHECK_IS(lw_region_create(&region, "with/slash", NULL), EINVAL);
	CHECK_IS(lw_region_create(&region, "\xff", NULL), EINVAL);
	CHECK_IS(lw_region_attach(&region, NULL, NULL), EINVAL);
	options.max_bytes = 1;
	CHECK_IS(lw_region_create(&region, NULL, &options), EINVAL);
	CHECK(strstr(lw_error_text(), "max_bytes") != NULL);
	options.max_bytes = 0;
	options.max_tasks = 70000;
	CHECK_IS(lw_region_create(&region, NULL, &options), EINVAL);
	options.max_tasks = 0;
	options.flags = 32;
	CHECK_IS(lw_region_create(&region, NULL, &options), EINVAL);
	/* A region for reading only must exist. */
	options.flags = LW_REGION_READ_ONLY;
	CHECK_IS(lw_region_attach_or_create(&region, "c-test-never", &options), EINVAL);
	CHECK_IS(lw_region_create(&region, NULL, &options), EINVAL);
	options.flags = 0;
	options.address = (void *)1;
	CHECK_IS(lw_region_create(&region, NULL, &options), EINVAL);
	CHECK_IS(lw_region_detach(NULL), EINVAL);
	CHECK(lw_region_base(NULL) == NULL && lw_region_fd(NULL) == -1);
}

static void *use_and_fail(void *region)
{
	CHECK_IS(lw_region_join((lw_region_t *)region, "thread"), 0);
	/* Each thread has a text of its own. */
	CHECK_IS(lw_error_text()[0], 0);
	CHECK_IS(lw_region_join(NULL, NULL), EINVAL);
	CHECK(lw_error_text()[0] != 0);
	return NULL;
}

/* With LW_REGION_CHECKED, a queue whose words were overwritten is refused, and a sound one is attached. */
static void test_checked(void)
{
	struct lw_region_options options, checked;
	lw_region_t *region = NULL, *other = NULL;
	lw_queue_t *queue = NULL;
	char name[64], path[128];
	uint64_t base, word, wrong;
	off_t size, place;
	int fd, refused = 0;
	memset(&options, 0, sizeof options);
	memset(&checked, 0, sizeof checked);
	options.max_bytes = 1 << 20;
	checked.flags = LW_REGION_CHECKED;
	snprintf(name, sizeof name, "c-checked-%d", (int)getpid());
	snprintf(path, sizeof path, "/dev/shm/latchwork-%s", name);
	CHECK_IS(lw_region_create(&region, name, &options), 0);
	CHECK_IS(lw_queue_create(&queue, region, "queue", 4, 100, LW_QUEUE_RACING), 0);
	CHECK_IS(lw_queue_close(queue), 0);
	base = (uint64_t)(uintptr_t)lw_region_base(region);
	/* lw_region(3), EBUSY: A process has the region */
	CHECK_IS(lw_region_attach(&other, name, &checked), EBUSY);
	CHECK_IS(lw_region_detach(region), 0);
	CHECK_IS(lw_region_attach(&region, name, &checked), 0);
	CHECK_IS(lw_queue_open(&queue, region, "queue"), 0);
	CHECK_IS(lw_queue_close(queue), 0);
	CHECK_IS(lw_region_detach(region), 0);
	/* Each pointer of the heap, one after the other: those of the queue are among them. */
	fd = open(path, O_RDWR);
	CHECK(fd >= 0);
	size = lseek(fd, 0, SEEK_END);
	for (place = 64 << 10; place < size; place += 8) {
		CHECK_IS(pread(fd, &word, 8, place), 8);
		if (word < base || word >= base + (uint64_t)size)
			continue;
		wrong = base + 8;
		CHECK_IS(pwrite(fd, &wrong, 8, place), 8);
		if (lw_region_attach(&region, name, &checked) == 0) {
			CHECK_IS(lw_region_detach(region), 0);
		} else {
			CHECK_IS(lw_region_attach(&region, name, &checked), EBADMSG);
			refused++;
		}
		CHECK_IS(pwrite(fd, &word, 8, place), 8);
	}
	CHECK(refused >= 5);
	close(fd);
	CHECK_IS(lw_region_unlink(name), 0);
}

int main(void)
{
	lw_region_t *region = NULL;
	struct lw_region_options options;
	memset(&options, 0, sizeof options);
	alarm(WATCHDOG);
	test_bad_options();
	test_names();
	test_read_only();
	test_namespaces();
	test_checked();
	options.max_bytes = 8 << 20;
	options.max_tasks = 8;
	options.max_names = 16;
	options.label = "test";
	CHECK_IS(lw_region_create(&region, NULL, &options), 0);
	test_heap(region);
	test_objects(region);
	/* More threads, one after another, than the region has places for tasks. */
	for (int round = 0; round < 20; round++)
		join(start(use_and_fail, region));
	CHECK_IS(lw_region_detach(region), 0);
	puts("shared");
	return 0;
}

/* What flags and attributes of a coproc do: each is seen to work, and seen not to without it. */
#include "coproc.h"
#include "latchwork.h"
#include "latchwork/region.h"

#include "coprocs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* A process that runs "body" until "may_end" is set. The coprocs that it creates are its own. */
struct host {
	volatile int is_ready, may_end;
	volatile pid_t pids[2];
	int semaphore;
};

static pid_t fork_host(void (*body)(struct host *), struct host *host)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		/* It outlives no test that fails. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(WATCHDOG);
		CHECK_IS(coproc_init(1 << 20), 0);
		body(host);
		host->is_ready = 1;
		AWAIT(host->may_end);
		_exit(0);
	}
	AWAIT(host->is_ready || waitpid(pid, NULL, WNOHANG) != 0);
	CHECK(host->is_ready);
	return pid;
}

/* ---- adjustments of System V semaphores ---- */

static int add_with_undo(void *argument)
{
	struct sembuf operation;
	memset(&operation, 0, sizeof operation);
	operation.sem_op = 1;
	operation.sem_flg = SEM_UNDO;
	return semop((int)(long)argument, &operation, 1) == 0 ? 0 : errno;
}

static int value_of(int semaphore)
{
	return semctl(semaphore, 0, GETVAL);
}

static void add_by_itself(struct host *host)
{
	pid_t pid = coproc_create("own undo", NULL, COPROC_SNAPSHOT, add_with_undo,
				  (void *)(long)host->semaphore);
	CHECK_IS(returned(pid), 0);
	AWAIT(!runs(pid));
}

static void add_in_common(struct host *host)
{
	pid_t pid = coproc_create("shared undo", NULL, COPROC_SHARE_SYSVSEM, add_with_undo,
				  (void *)(long)host->semaphore);
	CHECK_IS(returned(pid), 0);
	AWAIT(!runs(pid));
}

static void adjustments_are_undone_by_the_last_that_shares_them(void)
{
	struct host *host = (struct host *)share(sizeof *host);
	pid_t pid;
	int semaphore = semget(IPC_PRIVATE, 1, 0600);
	if (semaphore < 0) {
		fprintf(stderr, "skipped: no System V semaphore can be made here: %s\n", strerror(errno));
		return;
	}
	host->semaphore = semaphore;
	/* The coproc has ended; its creator lives. */
	/* coproc(3) says: Without this flag, a coproc has adjustments of its own, which are undone when the coproc ends */
	pid = fork_host(add_by_itself, host);
	CHECK_IS(value_of(semaphore), 0);
	host->may_end = 1;
	CHECK_IS(exit_of(pid), 0);

	host->is_ready = host->may_end = 0;
	/* coproc(3) says: The creator and the coproc share System V semaphore adjustments (SEM_UNDO of semop(2)) */
	/* coproc(3) says: The adjustments are undone when the last process that shares them ends */
	pid = fork_host(add_in_common, host);
	CHECK_IS(value_of(semaphore), 1);
	host->may_end = 1;
	CHECK_IS(exit_of(pid), 0);
	CHECK_IS(value_of(semaphore), 0);
	CHECK_IS(semctl(semaphore, 0, IPC_RMID), 0);
	munmap(host, sizeof *host);
}

/* ---- the stack ---- */

/* Recurses until so many bytes of stack are in use. (It reads its caller's frame: otherwise a compiler may make a loop of it.) */
static long deeper(long bytes, volatile char *caller)
{
	volatile char frame[1024];
	frame[0] = (char)bytes;
	frame[sizeof frame - 1] = caller[0];
	return bytes <= (long)sizeof frame ? frame[0] : deeper(bytes - (long)sizeof frame, frame) + frame[1023];
}

static int recurse(void *bytes)
{
	return deeper((long)bytes, (volatile char *)&bytes) == -1;
}

static void a_stack_has_its_size(void)
{
	struct coproc_attributes attributes;
	int flags = COPROC_SET_STACK_SIZE | COPROC_SET_CORE_SIZE, kinds[] = {0, COPROC_SNAPSHOT}, status;
	memset(&attributes, 0, sizeof attributes);
	for (int kind = 0; kind < 2; kind++) {
		/* 16 MiB is more than any default; 128 KiB is less than what is used. */
		attributes.stack_size = 32 << 20;
		CHECK_IS(returned(coproc_create("big", &attributes, flags | kinds[kind], recurse,
						(void *)(16L << 20))),
			 0);
		attributes.stack_size = 128 << 10;
		CHECK_IS(returned(coproc_create("small", &attributes, flags | kinds[kind], recurse,
						(void *)(16L << 10))),
			 0);
		status = done(coproc_create("overflows", &attributes, flags | kinds[kind], recurse,
					    (void *)(1L << 20)));
		CHECK(WIFSIGNALED(status));
		CHECK_IS(WTERMSIG(status), SIGSEGV);
	}
}

/* ---- the creator's death ---- */

static int hang(void *argument)
{
	(void)argument;
	alarm(WATCHDOG);
	for (;;)
		sleep_ms(1000);
	return 0;
}

static void create_both(struct host *host)
{
	host->pids[0] = coproc_create("dies", NULL, COPROC_DIE_WITH_PARENT | COPROC_DETACHED, hang, NULL);
	host->pids[1] = coproc_create("stays", NULL, COPROC_DETACHED, hang, NULL);
	CHECK(host->pids[0] > 0 && host->pids[1] > 0);
}

static void a_coproc_dies_with_its_creator_on_request(void)
{
	struct host *host = (struct host *)share(sizeof *host);
	pid_t pid = fork_host(create_both, host);
	/* coproc(3) says: Without this flag, the coproc continues */
	CHECK(runs(host->pids[0]) && runs(host->pids[1]));
	CHECK_IS(kill(pid, SIGKILL), 0);
	CHECK_IS(exit_of(pid), 1000 + SIGKILL);
	AWAIT(!runs(host->pids[0]));
	CHECK(runs(host->pids[1]));
	CHECK_IS(kill(host->pids[1], SIGKILL), 0);
	AWAIT(!runs(host->pids[1]));
	munmap(host, sizeof *host);
}

/* ---- the control group ---- */

static int wait_for_more(void *argument)
{
	volatile int *state = (volatile int *)argument;
	*state = 1;
	AWAIT(*state == 2);
	return 0;
}

static int is_in(pid_t pid, const char *group)
{
	char path[64], line[512];
	int found = 0;
	FILE *file;
	snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
	file = fopen(path, "r");
	CHECK(file != NULL);
	while (fgets(line, sizeof line, file) != NULL)
		found = found || strstr(line, group) != NULL;
	fclose(file);
	return found;
}

static void a_coproc_starts_in_its_control_group(void)
{
	static const char *roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"};
	struct coproc_extras extras;
	char name[64], group[128], members[160];
	volatile int *state = (volatile int *)coproc_alloc(sizeof *state);
	size_t place;
	pid_t pid;

	memset(&extras, 0, sizeof extras);
	extras.cgroup = "/nowhere/at/all";
	*state = 0;
	CHECK_IS(coproc_create_with("nowhere", NULL, &extras, 0, wait_for_more, (void *)state), -1);
	CHECK_IS(errno, ENOENT);
	CHECK_IS(strcmp(coproc_failed_attribute(), "cgroup"), 0);
	CHECK_IS(*state, 0);
	snprintf(name, sizeof name, "latchwork-in-c-%d", (int)getpid());
	for (place = 0; place < 3; place++) {
		snprintf(group, sizeof group, "%s/%s", roots[place], name);
		snprintf(members, sizeof members, "%s/cgroup.procs", group);
		if (mkdir(group, 0700) != 0)
			continue;
		if (access(members, W_OK) == 0)
			break;
		rmdir(group);
	}
	if (place == 3) {
		fprintf(stderr, "skipped: no control group can be made here\n");
		coproc_free((void *)state);
		return;
	}
	/* coproc(3) says: The directory of a control group */
	/* coproc(3) says: The coproc is in this control group before the routine runs */
	extras.cgroup = group;
	for (int kind = 0; kind < 2; kind++) {
		*state = 0;
		pid = coproc_create_with("grouped", NULL, &extras, kind ? COPROC_SNAPSHOT : 0, wait_for_more,
					 (void *)state);
		CHECK(pid > 0);
		AWAIT(*state == 1);
		CHECK(is_in(pid, name) && !is_in(getpid(), name));
		*state = 2;
		CHECK_IS(returned(pid), 0);
		AWAIT(!runs(pid));
	}
	/* A process that has ended leaves its group a moment later. */
	AWAIT(rmdir(group) == 0);
	coproc_free((void *)state);
}

/* ---- regions ---- */

static lw_region_t *before, *later;

static void make_region(lw_region_t **region)
{
	void *object;
	CHECK_IS(lw_region_create(region, NULL, NULL), 0);
	CHECK_IS(lw_region_object(*region, "number", 1, sizeof(int), NULL, NULL, &object), 0);
}

/* Uses a region by the handle of the copied process: an object, and memory for which the region must grow. */
static int uses(void *argument)
{
	lw_region_t *region = *(lw_region_t **)argument;
	void *object;
	CHECK_IS(lw_region_find(region, "number", 1, sizeof(int), &object), 0);
	++*(int *)object;
	object = lw_region_alloc(region, (size_t)16 << 20);
	CHECK(object != NULL);
	memset(object, 1, (size_t)16 << 20);
	lw_region_free(region, object);
	return 0;
}

/* What is mapped at an address of the creator's. */
static int lacks(void *address)
{
	return msync(address, 4096, MS_ASYNC) != 0 && errno == ENOMEM && later == NULL ? 0 : 1;
}

static int attaches(void *address)
{
	lw_region_t *region;
	CHECK_IS(lw_region_attach_fd(&region, coproc_descriptor(0), NULL), 0);
	CHECK(lw_region_base(region) == address);
	return uses(&region);
}

/* "before" was made before coproc_init(). */
static void coprocs_have_the_regions_of_the_copied_process(void)
{
	struct coproc_extras extras;
	int descriptor;
	void *object;

	CHECK_IS(returned(coproc_create("as it was", NULL, 0, uses, &before)), 0);
	CHECK_IS(lw_region_find(before, "number", 1, sizeof(int), &object), 0);
	CHECK_IS(*(int *)object, 1);

	make_region(&later);
	CHECK_IS(returned(coproc_create("too early", NULL, 0, lacks, lw_region_base(later))), 0);
	CHECK_IS(returned(coproc_create("as it is", NULL, COPROC_SNAPSHOT, uses, &later)), 0);
	descriptor = lw_region_fd(later);
	memset(&extras, 0, sizeof extras);
	extras.descriptors = &descriptor;
	extras.descriptor_count = 1;
	CHECK_IS(returned(coproc_create_with("sent", NULL, &extras, 0, attaches, lw_region_base(later))), 0);
	CHECK_IS(lw_region_find(later, "number", 1, sizeof(int), &object), 0);
	CHECK_IS(*(int *)object, 2);
}

/* A copy would hold them, too. */
static void no_server_is_started_by_an_owner_of_robust_mutexes(void)
{
	static lw_robust_mutex_t mutex = LW_ROBUST_MUTEX_INITIALIZER;
	CHECK_IS(lw_robust_mutex_lock(&mutex), 0);
	CHECK_IS(coproc_init(1 << 20), -1);
	CHECK_IS(errno, EBUSY);
	CHECK_IS(lw_robust_mutex_unlock(&mutex), 0);
}

int main(void)
{
	alarm(WATCHDOG);
	/* These fork their creators, which have no coprocs yet. */
	adjustments_are_undone_by_the_last_that_shares_them();
	a_coproc_dies_with_its_creator_on_request();
	CHECK_IS(coproc_descriptor(0), -1);
	CHECK_IS(errno, EBADF);
	no_server_is_started_by_an_owner_of_robust_mutexes();
	make_region(&before);
	CHECK_IS(coproc_init(1 << 20), 0);
	coprocs_have_the_regions_of_the_copied_process();
	a_stack_has_its_size();
	a_coproc_starts_in_its_control_group();
	CHECK_IS(coproc_exit(), 0);
	puts("took effect");
	return 0;
}

/* The CoProc interface: attributes, flags, ends, and none of the original's faults. */
#include "coproc.h"
#include "latchwork.h"

#include "check.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

struct field {
	int value;
	pid_t parent, group;
	rlim_t core, cpu, stack, space;
	int policy, nice_level, cpus, is_closed;
	char name[32];
};

static int seen = 1;
/* In memory that all copies of the process share. */
static int *handlers;

static void at_exit(void)
{
	++*handlers;
}

static int look(void *argument)
{
	struct field *field = (struct field *)argument;
	struct rlimit limit;
	cpu_set_t mask;
	int file = open("/proc/self/comm", O_RDONLY);
	ssize_t length = read(file, field->name, sizeof field->name - 1);
	close(file);
	if (length > 0)
		field->name[length - 1] = 0;
	getrlimit(RLIMIT_CORE, &limit);
	field->core = limit.rlim_cur;
	getrlimit(RLIMIT_CPU, &limit);
	field->cpu = limit.rlim_cur;
	getrlimit(RLIMIT_AS, &limit);
	field->space = limit.rlim_cur;
	field->policy = (int)syscall(SYS_sched_getscheduler, 0); /* musl has only a stub */
	field->nice_level = getpriority(PRIO_PROCESS, 0);
	sched_getaffinity(0, sizeof mask, &mask);
	field->cpus = CPU_COUNT(&mask);
	field->parent = getppid();
	field->group = getpgrp();
	field->value = seen;
	return 300 + 5;
}

static int leave_thread(void *argument)
{
	pthread_exit(argument);
}

static int leave_program(void *argument)
{
	(void)argument;
	exit(9);
}

static int hang(void *argument)
{
	*(volatile int *)argument = 1;
	for (;;)
		sleep_ms(1000);
	return 0;
}

static int close_file(void *argument)
{
	return close(*(int *)argument);
}

static int leave_locked(void *mutex)
{
	CHECK_IS(lw_mutex_lock((lw_region_mutex_t *)mutex), 0);
	raise(SIGKILL);
	return 0;
}

static int nest(void *argument)
{
	int status;
	pid_t child = coproc_create("grandchild", NULL, 0, look, argument);
	if (child < 0 || coproc_join(child, &status) != 0)
		return 1;
	return WEXITSTATUS(status) == ((300 + 5) & 0xff) ? 0 : 2;
}

static int done(pid_t pid)
{
	int status;
	CHECK(pid > 0);
	CHECK_IS(coproc_join(pid, &status), 0);
	return status;
}

int main(void)
{
	struct field *field;
	struct coproc_attributes attributes;
	lw_region_mutex_t *mutex;
	int *number, status;
	pid_t pid, child, group = getpgrp();

	handlers = (int *)share(sizeof *handlers);
	atexit(at_exit);
	CHECK_IS(coproc_create("early", NULL, 0, look, NULL), -1);
	/* coproc(3), EINVAL: coproc_init() has not been called yet */
	CHECK_IS(errno, EINVAL);
	CHECK(coproc_alloc(1) == NULL);
	CHECK_IS(coproc_init(1024 * 1024), 0);
	CHECK_IS(coproc_init(1024 * 1024), -1);
	/* coproc(3), EBUSY: The process, or the process of which this coproc is a copy, has called coproc_init() already */
	CHECK_IS(errno, EBUSY);
	CHECK_IS(getpgrp(), group);
	field = (struct field *)coproc_alloc(sizeof *field);
	CHECK(field != NULL);

	/* As it was then, and as it is now. */
	seen = 2;
	/* coproc(3) says: coproc_create() starts a coproc */
	/* coproc(3) says: The coproc calls start_routine with arg */
	/* coproc(3) says: The low 8 bits of the routine's return value are the exit status of the coproc */
	/* coproc(3) says: ps(1) shows the first 15 bytes of coproc_name as the name of the coproc */
	status = done(coproc_create("a_long_name_of_a_coproc", NULL, 0, look, field));
	CHECK(WIFEXITED(status));
	CHECK_IS(WEXITSTATUS(status), (300 + 5) & 0xff);
	CHECK_IS(field->value, 1);
	CHECK_IS(strcmp(field->name, "a_long_name_of_"), 0);
	CHECK_IS(field->parent, getpid());
	CHECK_IS(field->group, group);
	done(coproc_create("now", NULL, COPROC_SNAPSHOT, look, field));
	CHECK_IS(field->value, 2);

	/* Each attribute by its own flag, and only those. */
	memset(&attributes, 0, sizeof attributes);
	attributes.cpu_time = 77;
	attributes.core_file_size = 4096;
	attributes.stack_size = 1024 * 1024;
	attributes.address_space_size = (rlim_t)1 << 40;
	attributes.scheduling_policy = SCHED_BATCH;
	/* Not less than one has, and a processor that one has. */
	attributes.scheduling_param = 19;
	CPU_SET((size_t)sched_getcpu(), &attributes.cpu_affinity_mask);
	done(coproc_create("limits", &attributes, COPROC_SET_CPU_TIME | COPROC_SET_AS_SIZE, look, field));
	CHECK_IS(field->cpu, 77);
	CHECK_IS(field->space, (rlim_t)1 << 40);
	CHECK_IS(field->policy, SCHED_OTHER);
	done(coproc_create("all", &attributes,
			   COPROC_SET_CORE_SIZE | COPROC_SET_STACK_SIZE | COPROC_SET_SCHED |
				   COPROC_SET_CPU_AFFINITY,
			   look, field));
	CHECK_IS(field->core, 4096);
	CHECK(field->cpu != 77);
	CHECK_IS(field->policy, SCHED_BATCH);
	CHECK_IS(field->nice_level, 19);
	CHECK_IS(field->cpus, 1);

	/* One that cannot be set: it is named, and nothing has run. */
	field->value = 0;
	attributes.scheduling_policy = SCHED_FIFO;
	attributes.scheduling_param = 1000;
	CHECK_IS(coproc_create("refused", &attributes, COPROC_SET_SCHED, look, field), -1);
	CHECK(coproc_failed_attribute() != NULL);
	CHECK_IS(strcmp(coproc_failed_attribute(), "scheduling_policy"), 0);
	CHECK_IS(field->value, 0);
	CHECK_IS(coproc_create("no attributes", NULL, COPROC_SET_SCHED, look, field), -1);
	/* coproc(3), EINVAL: flag is given although attrib is NULL */
	CHECK_IS(errno, EINVAL);
	CHECK(coproc_failed_attribute() == NULL);
	CHECK_IS(coproc_create("no routine", NULL, 0, NULL, field), -1);
	CHECK_IS(coproc_create("flags", NULL, 1 << 20, look, field), -1);
	CHECK_IS(coproc_create("sibling", NULL, COPROC_NOTIFY_PARENT, look, field), -1);
	/* coproc(3), ENOTSUP: The flags contain COPROC_NOTIFY_PARENT */
	CHECK_IS(errno, ENOTSUP);

	/* Descriptors: shared, or not. */
	number = (int *)coproc_alloc(sizeof *number);
	*number = dup(0);
	CHECK_IS(WEXITSTATUS(done(coproc_create("copy", NULL, COPROC_SNAPSHOT, close_file, number))), 0);
	CHECK(fcntl(*number, F_GETFD) >= 0);
	/* coproc(3) says: Do not close a descriptor that the other process uses: it would be closed for both */
	CHECK_IS(WEXITSTATUS(done(coproc_create("shares", NULL, COPROC_SHARE_FS, close_file, number))), 0);
	CHECK_IS(fcntl(*number, F_GETFD), -1);

	/* Ends. */
	/* coproc(3) says: A coproc ends when its routine returns, when it calls exit(3) or pthread_exit(3), or when a signal ends it */
	CHECK_IS(WEXITSTATUS(done(coproc_create("thread", NULL, 0, leave_thread, NULL))), 0);
	CHECK_IS(WEXITSTATUS(done(coproc_create("program", NULL, 0, leave_program, NULL))), 9);
	CHECK_IS(WEXITSTATUS(done(coproc_create("nested", NULL, 0, nest, field))), 0);
	*number = 0;
	pid = coproc_create("killed", NULL, 0, hang, number);
	while (*(volatile int *)number == 0)
		sleep_ms(1);
	CHECK_IS(waitpid(-1, NULL, WNOHANG), -1);
	CHECK_IS(kill(pid, SIGKILL), 0);
	status = done(pid);
	CHECK(WIFSIGNALED(status));
	CHECK_IS(WTERMSIG(status), SIGKILL);
	CHECK_IS(coproc_join(pid, NULL), -1);
	/* coproc(3), ECHILD: the coproc was joined already */
	CHECK_IS(errno, ECHILD);
	CHECK(coproc_create("detached", NULL, COPROC_DETACHED, leave_program, NULL) > 0);

	/* The shared memory is a region: region mutexes work there. */
	mutex = (lw_region_mutex_t *)coproc_alloc(sizeof *mutex);
	CHECK_IS(lw_mutex_init(mutex), 0);
	/* coproc(3) says: If the coproc held robust mutexes (lw_mutex(3)) in the shared memory when it ended, the next owners */
	CHECK_IS(WTERMSIG(done(coproc_create("owner", NULL, 0, leave_locked, mutex))), SIGKILL);
	CHECK_IS(lw_mutex_lock(mutex), EOWNERDEAD);
	CHECK_IS(lw_mutex_consistent(mutex), 0);
	CHECK_IS(coproc_create("copy", NULL, COPROC_SNAPSHOT, look, field), -1);
	/* coproc(3), EBUSY: The caller holds robust mutexes, and the call would copy the calling process */
	CHECK_IS(errno, EBUSY);
	CHECK_IS(lw_mutex_unlock(mutex), 0);
	coproc_free(mutex);

	/* Ends all of them and no other process; another process cannot call it. */
	*number = 0;
	pid = coproc_create("left", NULL, 0, hang, number);
	while (*(volatile int *)number == 0)
		sleep_ms(1);
	child = fork();
	if (child == 0) {
		alarm(WATCHDOG);
		CHECK_IS(coproc_join(pid, NULL), -1);
		CHECK_IS(errno, ECHILD);
		/* coproc(3) says: In the child of a fork(2), coproc_exit() has no effect and fails with EPERM */
		CHECK_IS(coproc_exit(), -1);
		/* coproc(3), EPERM: coproc_exit() was called in the child of a fork(2) */
		CHECK_IS(errno, EPERM);
		/* coproc(3), EPERM: coproc_init(), */
		CHECK(coproc_init(4096) == -1 && errno == EPERM);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK_IS(status, 0);
	CHECK_IS(WEXITSTATUS(done(coproc_create("still", NULL, 0, leave_program, NULL))), 9);
	CHECK_IS(kill(pid, 0), 0);
	CHECK_IS(coproc_create("more", NULL, COPROC_DETACHED, leave_program, NULL) > 0, 1);
	CHECK_IS(coproc_exit(), 0);
	/* coproc(3) says: The atexit(3) handlers of its creator do not run in the coproc */
	CHECK_IS(*handlers, 0);
	CHECK(coproc_alloc((size_t)1 << 40) == NULL);
	/* coproc(3), ENOMEM: There is not enough memory */
	CHECK_IS(errno, ENOMEM);
	coproc_free(NULL);
	coproc_free(number);
	coproc_free(field);
	puts("joined");
	return 0;
}

/* coproc_exit() ends every coproc of the calling process; what the calls answer afterwards. */
#include "coproc.h"

#include "check.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>

struct field {
	volatile int runs[8];
	volatile int seen, terms;
};

static struct field *field;
static int seen = 1;

/* Says that it runs, and never ends by itself. */
static int stay(void *argument)
{
	*(volatile int *)argument = 1;
	for (;;)
		pause();
	return 0;
}

static int stay_deaf(void *argument)
{
	signal(SIGTERM, SIG_IGN);
	return stay(argument);
}

static void end_politely(int signal)
{
	(void)signal;
	field->terms++;
	_exit(0);
}

/* A copy of the process as it is now: the server's knows no field. */
static int stay_polite(void *argument)
{
	signal(SIGTERM, end_politely);
	return stay(argument);
}

static int look(void *argument)
{
	((struct field *)argument)->seen = seen;
	return 3;
}

/* A coproc of a coproc belongs to its creator alone. */
static int nest(void *argument)
{
	struct field *shared = (struct field *)argument;
	pid_t child = coproc_create("inner", NULL, COPROC_DETACHED | COPROC_DIE_WITH_PARENT, stay, (void *)&shared->runs[1]);
	if (child < 0)
		return 1;
	while (!shared->runs[1])
		sched_yield();
	if (coproc_exit() != 0 || kill(child, 0) == 0)
		return 2;
	if (coproc_create("after", NULL, 0, look, shared) != -1 || errno != EINVAL)
		return 3;
	if (kill(getppid(), 0) != 0 || coproc_init(4096) != 0)
		return 4;
	child = coproc_create("again", NULL, 0, look, shared);
	return child > 0 && coproc_join(child, NULL) == 0 && coproc_exit() == 0 ? 0 : 5;
}

static volatile pid_t joiner_id;

/* The order of the two ends is open where the join has not begun: then there is nothing left to join. */
static void *join_one(void *pid)
{
	int status = 0;
	joiner_id = gettid();
	if (coproc_join(*(pid_t *)pid, &status) == 0)
		CHECK(WIFSIGNALED(status));
	else
		CHECK_IS(errno, ECHILD);
	return NULL;
}

static int sleeps(pid_t thread)
{
	char path[64], state = 0;
	FILE *file;
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
	file = fopen(path, "r");
	CHECK(file != NULL);
	CHECK_IS(fscanf(file, "%*d %*s %c", &state), 1);
	fclose(file);
	return state == 'S';
}

static pid_t begin(const char *name, int flags, int (*routine)(void *), int index)
{
	/* Should this program fail, nothing of it stays. */
	pid_t pid = coproc_create(name, NULL, flags | COPROC_DIE_WITH_PARENT, routine, (void *)&field->runs[index]);
	CHECK(pid > 0);
	while (!field->runs[index])
		sched_yield();
	return pid;
}

/* Ended and reaped: the kernel knows it no more. */
static void is_gone(pid_t pid)
{
	CHECK_IS(kill(pid, 0), -1);
	CHECK_IS(errno, ESRCH);
}

static volatile int stops, created;

static void *create_on(void *none)
{
	while (!stops) {
		pid_t pid = coproc_create("storm", NULL, COPROC_DETACHED | COPROC_DIE_WITH_PARENT, stay,
					  (void *)&field->runs[0]);
		if (pid > 0)
			__atomic_add_fetch(&created, 1, __ATOMIC_RELAXED);
		else
			sched_yield();
	}
	return none;
}

/* One that was being created when coproc_exit() was called ends, too: its creator ends it. */
static void storm(void)
{
	pthread_t creators[2];
	int round, before;
	creators[0] = start(create_on, NULL);
	creators[1] = start(create_on, NULL);
	for (round = 0; round < 20; round++) {
		/* Another thread may hold a lock of the allocator's at each attempt. */
		while (coproc_init(4096) != 0)
			CHECK_IS(errno, EAGAIN);
		before = created;
		while (created == before)
			sched_yield();
		CHECK_IS(coproc_exit(), 0);
	}
	stops = 1;
	join(creators[0]);
	join(creators[1]);
	CHECK_IS(waitpid(-1, NULL, WNOHANG | __WALL), -1);
	CHECK_IS(errno, ECHILD);
}

/* One that ends at SIGTERM does so at once. But on a busy machine the second may pass before it runs. */
static void end_one_politely(void)
{
	struct timespec begun, ended;
	do {
		CHECK_IS(coproc_init(4096), 0);
		field->terms = field->runs[0] = 0;
		begin("polite", COPROC_DETACHED | COPROC_SNAPSHOT, stay_polite, 0);
		begun = in_ms(CLOCK_MONOTONIC, 0);
		CHECK_IS(coproc_exit(), 0);
		ended = in_ms(CLOCK_MONOTONIC, 0);
	} while (field->terms == 0 && (ended.tv_sec - begun.tv_sec) * 1000 + (ended.tv_nsec - begun.tv_nsec) / 1000000 >= 1000);
	CHECK_IS(field->terms, 1);
}

int main(void)
{
	pid_t pids[8];
	pthread_t joiner;
	int status, round;
	char *kept;
	void *more;

	alarm(WATCHDOG);
	CHECK_IS(coproc_exit(), -1);
	CHECK_IS(errno, EINVAL);
	CHECK_IS(coproc_init(1024 * 1024), 0);
	field = (struct field *)coproc_alloc(sizeof *field);
	memset(field, 0, sizeof *field);
	kept = (char *)coproc_alloc(16);
	strcpy(kept, "kept");

	/* Many that end by themselves, without a join: only the last few may be zombies. */
	for (round = 0; round < 50; round++)
		CHECK(coproc_create("brief", NULL, COPROC_DETACHED, look, field) > 0);

	pids[0] = begin("joinable", 0, stay, 0);
	pids[1] = begin("detached", COPROC_DETACHED, stay, 1);
	pids[2] = begin("deaf", COPROC_DETACHED, stay_deaf, 2);
	pids[3] = begin("snapshot", COPROC_DETACHED | COPROC_SNAPSHOT, stay_polite, 3);
	/* One that another thread waits for. */
	pids[4] = begin("awaited", 0, stay, 4);
	joiner = start(join_one, &pids[4]);
	while (joiner_id == 0 || !sleeps(joiner_id))
		sched_yield();
	/* coproc(3) says: coproc_join() cannot be called for the coproc */
	CHECK_IS(coproc_join(pids[1], NULL), -1);
	CHECK_IS(errno, ECHILD);

	/* coproc(3) says: coproc_exit() ends all coprocs of the calling process, including detached ones, and waits for their ends */
	/* coproc(3) says: The coproc lives until it ends, or until its creator calls coproc_exit() */
	/* coproc(3) says: It sends SIGTERM to each of them, and SIGKILL to each that still runs a second later */
	/* coproc(3) says: If another thread waits for one of them in coproc_join(), that call returns */
	CHECK_IS(coproc_exit(), 0);
	join(joiner);
	for (round = 0; round < 5; round++)
		is_gone(pids[round]);
	CHECK_IS(waitpid(-1, NULL, WNOHANG | __WALL), -1);
	CHECK_IS(errno, ECHILD);

	/* As before coproc_init(), but for the memory. */
	/* coproc(3) says: coproc_create() and coproc_exit() fail with EINVAL, and there are no coprocs to join */
	CHECK_IS(coproc_create("late", NULL, 0, look, field), -1);
	CHECK_IS(errno, EINVAL);
	CHECK_IS(coproc_exit(), -1);
	CHECK_IS(errno, EINVAL);
	CHECK_IS(coproc_join(pids[0], NULL), -1);
	CHECK_IS(errno, ECHILD);
	/* coproc(3) says: The shared memory stays at its address, with everything that was allocated in it */
	/* coproc(3) says: coproc_alloc() and coproc_free() still work */
	CHECK_IS(strcmp(kept, "kept"), 0);
	more = coproc_alloc(64);
	CHECK(more != NULL);
	coproc_free(more);

	/* And it begins again, with a copy of the process as it is now, over the same memory. */
	/* coproc(3) says: The next coproc_init() uses the same memory, and must not ask for a larger size */
	CHECK_IS(coproc_init((size_t)1 << 30), -1);
	/* coproc(3), ENOMEM: after coproc_exit(), coproc_init() asks for more */
	CHECK_IS(errno, ENOMEM);
	/* coproc(3) says: coproc_init() may be called again */
	/* coproc(3) says: It starts a new server process, which is a copy of the process at the time of that call */
	seen = 2;
	CHECK_IS(coproc_init(1024 * 1024), 0);
	CHECK_IS(coproc_init(1024 * 1024), -1);
	CHECK_IS(errno, EBUSY);
	CHECK_IS(strcmp(kept, "kept"), 0);
	pids[0] = coproc_create("again", NULL, 0, look, field);
	CHECK_IS(coproc_join(pids[0], &status), 0);
	CHECK_IS(WEXITSTATUS(status), 3);
	CHECK_IS(field->seen, 2);
	memset((void *)field->runs, 0, sizeof field->runs);
	pids[0] = coproc_create("nested", NULL, 0, nest, field);
	CHECK_IS(coproc_join(pids[0], &status), 0);
	CHECK(WIFEXITED(status));
	CHECK_IS(WEXITSTATUS(status), 0);
	coproc_free(kept);
	for (round = 0; round < 20; round++) {
		CHECK_IS(coproc_exit(), 0);
		CHECK_IS(coproc_init(4096), 0);
	}
	CHECK_IS(coproc_exit(), 0);
	end_one_politely();
	storm();
	coproc_free(field);
	puts("ended");
	return 0;
}

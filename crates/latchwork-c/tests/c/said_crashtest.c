/*
 * What lw_crashtest(3) says of the marks: each sentence of its description, before the lines that show it. A process traces
 * its child, as the command does, and sees each system call with its arguments. In C and in C++, optimised, since a compiler
 * might move accesses to memory. The test in manual.rs compares these sentences with the page.
 */
#include <crashtest.h>

#include "check.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

/* The first argument of a mark. */
#define MAGIC 0x6c77637261736874u
/* For the tracer: changes the shared word now. */
#define CHANGE 90
/* The exit status of a child that may not be traced. */
#define FORBIDDEN 77

/* What the traced tasks and their tracer share. A compiler knows no other task that changes it. */
struct shared {
	int word;
	/* The main thread, another one, and a child of fork. */
	pid_t tasks[3];
};
static struct shared *shared;

/* A system call of a traced task, and the shared word at its begin. */
struct call {
	pid_t task;
	uint64_t number, arguments[2];
	int64_t result;
	int word, is_over;
};
static struct call calls[2000];
static int count;

/* struct ptrace_syscall_info of the kernel, which not each C library has. */
struct stop {
	uint8_t kind, unused[3];
	uint32_t machine;
	uint64_t instruction, stack;
	/* At the end of a call this is its result. */
	uint64_t number;
	uint64_t arguments[7];
};
enum { KIND_OF_BEGIN = 1, KIND_OF_END = 2, GET_SYSCALL_INFO = 0x420e };

static int is_mark(const struct call *call)
{
	return call->number == SYS_getpid && call->arguments[0] == MAGIC;
}

static long tracing(int request, pid_t task, long address, void *data)
{
	return syscall(SYS_ptrace, (long)request, (long)task, address, data);
}

static void note(pid_t task)
{
	struct stop stop;
	struct call *call = &calls[count];
	memset(&stop, 0, sizeof stop);
	CHECK(tracing(GET_SYSCALL_INFO, task, sizeof stop, &stop) > 0);
	if (stop.kind == KIND_OF_BEGIN) {
		CHECK(count++ < 2000);
		call->task = task;
		call->number = stop.number;
		call->arguments[0] = stop.arguments[0];
		call->arguments[1] = stop.arguments[1];
		call->word = *(volatile int *)&shared->word;
		if (is_mark(call) && call->arguments[1] == CHANGE)
			*(volatile int *)&shared->word = 1000;
	} else if (stop.kind == KIND_OF_END) {
		/* A new task begins with the end of a call that another one made. */
		int at = count - 1;
		while (at >= 0 && (calls[at].task != task || calls[at].is_over))
			at--;
		if (at >= 0) {
			calls[at].result = (int64_t)stop.number;
			calls[at].is_over = 1;
		}
	}
}

/* Runs the body in a child, to the end of all its tasks, and notes their calls. False if this may not be done. */
static int trace(void (*body)(void))
{
	const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
			     PTRACE_O_EXITKILL;
	int status, end = -1;
	pid_t task, child = fork();
	if (child == 0) {
		if (tracing(PTRACE_TRACEME, 0, 0, NULL) != 0)
			_exit(FORBIDDEN);
		raise(SIGSTOP);
		body();
		_exit(0);
	}
	CHECK_IS(waitpid(child, &status, __WALL), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == FORBIDDEN)
		return 0;
	CHECK(WIFSTOPPED(status));
	CHECK_IS(tracing(PTRACE_SETOPTIONS, child, 0, (void *)options), 0);
	count = 0;
	memset(calls, 0, sizeof calls);
	for (task = child; task > 0; task = waitpid(-1, &status, __WALL)) {
		long signal = 0;
		if (!WIFSTOPPED(status)) {
			if (task == child)
				end = status;
			continue;
		}
		if (WSTOPSIG(status) == (SIGTRAP | 0x80))
			note(task);
		else if (status >> 16 == 0 && WSTOPSIG(status) != SIGSTOP)
			signal = WSTOPSIG(status);
		tracing(PTRACE_SYSCALL, task, 0, (void *)signal);
	}
	CHECK_IS(end, 0);
	return 1;
}

/* The calls of a task that are marks, one after the other. */
static const struct call *next_mark(const struct call *call, pid_t task)
{
	while (call < calls + count && !(call->task == task && is_mark(call)))
		call++;
	CHECK(call < calls + count);
	return call;
}

static void make_each(void)
{
	lw_crashtest_begin();
	lw_crashtest_end();
	lw_crashtest_recovery_begin();
	lw_crashtest_recovery_end();
	lw_crashtest_mark(7);
}

/* ---- the marks, and nothing else ---- */

static void make_each_between_others(void)
{
	syscall(SYS_getppid);
	make_each();
	syscall(SYS_getppid);
}

static void marks(void)
{
	const struct call *call = calls;
	while (call->number != SYS_getppid)
		CHECK(++call < calls + count);
	/* lw_crashtest(3) says: lw_crashtest_begin() and lw_crashtest_end() mark where the operation begins and ends */
	/* lw_crashtest(3) says: lw_crashtest_recovery_begin() and lw_crashtest_recovery_end() mark where that repair begins and */
	/* lw_crashtest(3) says: lw_crashtest_mark() makes the mark with the number which */
	/* lw_crashtest(3) says: The other functions make the marks 1 to 4, in the order of the synopsis */
	/* lw_crashtest(3) says: A mark is the system call getpid(2) with two arguments, which the kernel ignores */
	/* lw_crashtest(3) says: Without the command a mark has no effect, and takes as long as a getpid() */
	for (uint64_t which = 1; which <= 5; which++) {
		call++;
		CHECK_IS(call->number, SYS_getpid);
		CHECK(is_mark(call));
		CHECK_IS(call->arguments[1], which < 5 ? which : 7);
		CHECK(call->is_over);
		CHECK_IS(call->result, call->task);
	}
	CHECK_IS(call[1].number, SYS_getppid);
}

/* ---- accesses to memory ---- */

static void access_between(void)
{
	shared->tasks[0] = (pid_t)syscall(SYS_gettid);
	shared->word = 1;
	lw_crashtest_begin();
	shared->word = 2;
	lw_crashtest_end();
	shared->word = 3;
	lw_crashtest_recovery_begin();
	shared->word = 4;
	lw_crashtest_recovery_end();
	shared->word = 5;
	lw_crashtest_mark(CHANGE);
	/* A load after the mark. */
	shared->word += 1;
	lw_crashtest_mark(7);
	shared->word = 0;
}

static void accesses(void)
{
	const struct call *call = next_mark(calls, shared->tasks[0]);
	/* lw_crashtest(3) says: The compiler moves no access to memory across a mark */
	for (int word = 1; word <= 5; word++) {
		CHECK_IS(call->word, word);
		call = next_mark(call + 1, shared->tasks[0]);
	}
	CHECK_IS(call->word, 1001);
}

/* ---- callers ---- */

static void make_each_and_keep_errno(int task)
{
	shared->tasks[task] = (pid_t)syscall(SYS_gettid);
	errno = EDOM;
	make_each();
	CHECK_IS(errno, EDOM);
}

static void handle(int number)
{
	(void)number;
	make_each_and_keep_errno(0);
}

static void *be_another(void *unused)
{
	make_each_and_keep_errno(1);
	return unused;
}

static void make_each_everywhere(void)
{
	pthread_t thread;
	pid_t child;
	make_each_and_keep_errno(0);
	signal(SIGUSR1, handle);
	raise(SIGUSR1);
	thread = start(be_another, NULL);
	if ((child = fork()) == 0) {
		make_each_and_keep_errno(2);
		_exit(0);
	}
	CHECK_IS(exit_of(child), 0);
	join(thread);
}

static void callers(void)
{
	/* The main thread makes them twice: in its handler, too. */
	static const int times[] = {2, 1, 1};
	/* lw_crashtest(3) says: Each function may be called by any thread, in a signal handler, and in a child after fork(2) */
	for (int task = 0; task < 3; task++) {
		const struct call *call = calls;
		for (int which = 1; which <= 5 * times[task]; which++) {
			call = next_mark(call, shared->tasks[task]);
			CHECK_IS(call->arguments[1], which % 5 ? which % 5 : 7);
			CHECK_IS(call->result, task == 1 ? shared->tasks[0] : shared->tasks[task]);
			call++;
		}
	}
}

/* ---- errno ---- */

/* Makes getpid fail for this process and its children: a filter for its system calls. */
static int forbid_getpid(void)
{
	struct step {
		uint16_t code;
		uint8_t if_so, if_not;
		uint32_t operand;
	} steps[] = {{0x20, 0, 0, 0}, {0x15, 0, 1, SYS_getpid}, {0x06, 0, 0, 0x00050000 | EPERM}, {0x06, 0, 0, 0x7fff0000}};
	struct {
		uint16_t length;
		struct step *steps;
	} filter = {4, steps};
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, 2, &filter, 0, 0) == 0;
}

static void a_call_that_fails(void)
{
	int end;
	pid_t child = fork();
	if (child == 0) {
		if (!forbid_getpid())
			_exit(FORBIDDEN);
		errno = 0;
		if (syscall(SYS_getpid) != -1 || errno != EPERM)
			_exit(1);
		errno = EDOM;
		make_each();
		_exit(errno == EDOM ? 0 : 2);
	}
	end = exit_of(child);
	/* lw_crashtest(3) says: a mark does not change errno */
	if (end != FORBIDDEN)
		CHECK_IS(end, 0);
	else
		fprintf(stderr, "skipped: a filter of system calls is forbidden here\n");
}

int main(void)
{
	alarm(WATCHDOG);
	shared = (struct shared *)share(sizeof *shared);
	a_call_that_fails();
	if (trace(make_each_between_others)) {
		marks();
		CHECK(trace(access_between));
		accesses();
		CHECK(trace(make_each_everywhere));
		callers();
	} else {
		fprintf(stderr, "skipped: tracing is forbidden here\n");
	}
	puts("said");
	return 0;
}

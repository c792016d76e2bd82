/*
 * A robust mutex that loses a wake-up when a waiter is killed: the other waiters sleep for ever, although the mutex is
 * free. docs/robust-mutexes.md explains the fault. In each round this program brings about the events that cause it:
 *
 *   1. The program holds the mutex. Several processes come to wait for it, one after another, and fall asleep.
 *   2. The program unlocks the mutex: the word becomes 0, and the kernel wakes the waiter that came first.
 *   3. The program takes the free mutex again, as any other task could do now: the word is its thread ID, and no bit in
 *      the word says that tasks wait.
 *   4. The program kills the waiter that was woken.
 *   5. The program unlocks the mutex. From now on nobody holds it for longer than an instant: each other waiter must
 *      get it, and ends then.
 *
 * The program plays three tasks that are different processes in real life: the owner that unlocks, the newcomer that
 * takes the mutex before the woken waiter runs, and whoever kills that waiter (a person, a supervisor, the kernel when
 * memory is short). Each uses ordinary calls only.
 *
 * The fault needs the steps 3 and 4 to come before the woken waiter has run its first instructions. That is the usual
 * order: a task that wakes needs some microseconds, and longer on a machine with much to do. If a waiter is faster, it
 * gets the mutex, or sets the bit itself; the round ends well then, and the next one begins. With a third argument, all
 * processes share one processor: then a waiter can hardly be faster on any machine.
 *
 * Compile it without further options for pthread_mutex_t, robust and shared between processes, or with one of these:
 *
 *   -DINHERIT                   the same with the protocol PTHREAD_PRIO_INHERIT
 *   -DTIMED                     the same without it; each wait ends after a second, and is repeated
 *   -DLATCHWORK=lw_robust_mutex Latchwork's robust mutex (or another kind: lw_robust_tp_mutex, lw_robust_pi_mutex)
 *
 * Arguments: how many waiters to kill (50), how many wait in each round (4), "one" for one processor. Rounds in which
 * the waiter was too fast to be killed do not count, up to 20 for each kill.
 *
 * Exit status: 0, all waiters that were not killed got the mutex; 3, they hang; 1, the test itself failed; 2, usage.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_WAITERS 64
/* The watchdog looks this often, at this distance, before it says that the waiters hang. A second must pass several
   times: the waits of some mutexes end by themselves after a second. */
#define LOOKS 40
#define LOOK_MS 100
#define HANGS 3

/* What the kernel knows in the word of a robust mutex. */
#define OWNER 0x3fffffffu
#define WAITERS 0x80000000u

#ifdef LATCHWORK

#include <latchwork.h>

#define JOIN(a, b) a##b
#define NAMED(a, b) JOIN(a, b)
#define NAME_OF(text) #text
#define TEXT_OF(macro) NAME_OF(macro)
#define KIND TEXT_OF(LATCHWORK)
#define WORD_AT 0

typedef NAMED(LATCHWORK, _t) mutex_type;

static int mutex_init(mutex_type *mutex)
{
	NAMED(LATCHWORK, _init)(mutex);
	return 0;
}

static int mutex_lock(mutex_type *mutex) { return NAMED(LATCHWORK, _lock)(mutex); }
static int mutex_trylock(mutex_type *mutex) { return NAMED(LATCHWORK, _trylock)(mutex); }
static int mutex_consistent(mutex_type *mutex) { return NAMED(LATCHWORK, _consistent)(mutex); }
static int mutex_unlock(mutex_type *mutex) { return NAMED(LATCHWORK, _unlock)(mutex); }

#else

#if defined INHERIT
#define KIND "pthread_mutex_t, robust, PTHREAD_PRIO_INHERIT"
#elif defined TIMED
#define KIND "pthread_mutex_t, robust, waits of a second"
#else
#define KIND "pthread_mutex_t, robust"
#endif

/* Where the word is. POSIX does not say; this is how glibc and musl have it. */
#ifdef __GLIBC__
#define WORD_AT 0
#else
#define WORD_AT 4
#endif

typedef pthread_mutex_t mutex_type;

static int mutex_init(mutex_type *mutex)
{
	pthread_mutexattr_t attributes;
	int error = pthread_mutexattr_init(&attributes);
	if (error == 0)
		error = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	if (error == 0)
		error = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
#ifdef INHERIT
	if (error == 0)
		error = pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
#endif
	return error != 0 ? error : pthread_mutex_init(mutex, &attributes);
}

static int mutex_lock(mutex_type *mutex)
{
#ifdef TIMED
	struct timespec end;
	int error;
	do {
		clock_gettime(CLOCK_REALTIME, &end);
		end.tv_sec++;
		error = pthread_mutex_timedlock(mutex, &end);
	} while (error == ETIMEDOUT);
	return error;
#else
	return pthread_mutex_lock(mutex);
#endif
}

static int mutex_trylock(mutex_type *mutex) { return pthread_mutex_trylock(mutex); }
static int mutex_consistent(mutex_type *mutex) { return pthread_mutex_consistent(mutex); }
static int mutex_unlock(mutex_type *mutex) { return pthread_mutex_unlock(mutex); }

#endif

/* In memory that all processes share. */
static struct shared {
	mutex_type mutex;
	/* How many waiters of this round are about to call mutex_lock(). */
	volatile int arrived;
} *shared;

static struct waiter {
	pid_t process; /* 0: it has ended. */
	char state;    /* 'R' runs or waits for a processor, 'S' sleeps; of /proc/PID/stat. */
	long call;     /* The system call in which it sleeps, -1 if none, -2 if unknown; of /proc/PID/syscall. */
	uintptr_t at;  /* That call's first argument. */
	long operation;
	long switches; /* How often it has gone to sleep so far; of /proc/PID/status. */
} waiters[MOST_WAITERS];

static int waiter_count = 4;

/* A child is killed when its parent ends: none stays behind, however this program ends. */
static void fail(const char *what, int error)
{
	fprintf(stderr, "%s%s%s\n", what, error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
	exit(1);
}

static uint32_t word(void)
{
	uint32_t value;
	__atomic_load((uint32_t *)(void *)((char *)&shared->mutex + WORD_AT), &value, __ATOMIC_ACQUIRE);
	return value;
}

static void sleep_ms(long ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000};
	nanosleep(&time, NULL);
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* --- the waiters --- */

/* Takes a mutex that was taken by `taken`, which is 0 or EOWNERDEAD, as it is: it protects no data here. */
static int settle(int taken)
{
	return taken == EOWNERDEAD ? mutex_consistent(&shared->mutex) : taken;
}

static void wait_for_mutex(pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		fail("prctl", errno);
	if (getppid() != parent)
		_exit(1);
	__atomic_add_fetch(&shared->arrived, 1, __ATOMIC_RELEASE);
	int error = settle(mutex_lock(&shared->mutex));
	if (error == 0)
		error = mutex_unlock(&shared->mutex);
	if (error != 0)
		fprintf(stderr, "a waiter: %s\n", strerror(error));
	_exit(error != 0);
}

static FILE *open_proc(pid_t process, const char *file)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/%s", (int)process, file);
	return fopen(path, "r");
}

/* What a waiter does now. */
static void look(struct waiter *waiter)
{
	char line[512];
	FILE *file = open_proc(waiter->process, "stat");
	waiter->state = '?';
	if (file != NULL) {
		const char *name_end = fgets(line, sizeof line, file) == NULL ? NULL : strrchr(line, ')');
		if (name_end != NULL && name_end[1] == ' ')
			waiter->state = name_end[2];
		fclose(file);
	}
	file = open_proc(waiter->process, "status");
	while (file != NULL && fgets(line, sizeof line, file) != NULL)
		sscanf(line, "voluntary_ctxt_switches: %ld", &waiter->switches);
	if (file != NULL)
		fclose(file);
	waiter->call = -2;
	file = open_proc(waiter->process, "syscall");
	if (file != NULL) {
		unsigned long at = 0, operation = 0;
		if (fscanf(file, "%ld %lx %lx", &waiter->call, &at, &operation) < 1)
			waiter->call = -1;
		waiter->at = at;
		waiter->operation = (long)operation;
		fclose(file);
	}
}

/* Whether a system call of the waiter names a place in the mutex. */
static int is_at_mutex(const struct waiter *waiter)
{
	uintptr_t start = (uintptr_t)&shared->mutex;
	return waiter->call >= 0 && waiter->at >= start && waiter->at < start + sizeof shared->mutex;
}

/* Where the kernel does not show the system call, a sleep is enough: a waiter sleeps nowhere else. */
static int sleeps(const struct waiter *waiter)
{
	return waiter->state == 'S' && (waiter->call == -2 || is_at_mutex(waiter));
}

static void start(int number)
{
	struct waiter *waiter = &waiters[number];
	pid_t parent = getpid();
	waiter->process = fork();
	if (waiter->process == 0)
		wait_for_mutex(parent);
	if (waiter->process < 0)
		fail("fork", errno);
	for (;;) {
		if (__atomic_load_n(&shared->arrived, __ATOMIC_ACQUIRE) > number) {
			look(waiter);
			if (sleeps(waiter))
				return;
		}
		if (waitpid(waiter->process, NULL, WNOHANG) != 0) {
			waiter->process = 0;
			fail("a waiter has ended before it slept", 0);
		}
		sleep_ms(1);
	}
}

/* Waits for the end of a waiter, or looks whether it has ended; returns whether it was killed. */
static int reap(struct waiter *waiter, int options)
{
	int status;
	pid_t ended = waitpid(waiter->process, &status, options);
	if (ended < 0)
		fail("waitpid", errno);
	if (ended == 0)
		return 0;
	waiter->process = 0;
	if (!WIFSIGNALED(status) && WEXITSTATUS(status) != 0)
		exit(1);
	return WIFSIGNALED(status);
}

/* --- the watchdog --- */

static void report(int kills, double since)
{
	uint32_t now = word();
	printf("hang after %d kill%s\n", kills, kills == 1 ? "" : "s");
	printf("  the word is 0x%08x: %s, %s\n", (unsigned)now, (now & OWNER) == 0 ? "free" : "held",
	       now & WAITERS ? "with the bit that says that tasks wait" : "no bit says that tasks wait");
	for (int i = 0; i < waiter_count; i++) {
		const struct waiter *waiter = &waiters[i];
		if (waiter->process == 0)
			continue;
		printf("  waiter %d: state %c, ", (int)waiter->process, waiter->state);
		if (is_at_mutex(waiter))
			printf("in system call %ld (operation 0x%lx) at byte %d of the mutex, ", waiter->call,
			       (unsigned long)waiter->operation, (int)(waiter->at - (uintptr_t)&shared->mutex));
		printf("has not run for %.1f s\n", seconds() - since);
	}
}

/*
 * Waits until every waiter has got the mutex and ended. Meanwhile the program takes the mutex and frees it, again and
 * again, as others would that come by. Returns 0 if the waiters hang instead: at LOOKS looks in succession none has
 * run, each sleeps for the mutex, and the mutex is free. (A count of looks, and not only a time: a machine that was
 * stopped for a while does not look like a hang.)
 */
static int all_get_it(int kills)
{
	double since = seconds();
	for (int looks = 0;;) {
		int left = 0, has_changed = 0;
		for (int i = 0; i < waiter_count; i++) {
			struct waiter *waiter = &waiters[i];
			long before = waiter->switches;
			if (waiter->process == 0)
				continue;
			reap(waiter, WNOHANG);
			if (waiter->process == 0) {
				has_changed = 1;
				continue;
			}
			left++;
			look(waiter);
			has_changed |= !sleeps(waiter) || waiter->switches != before;
		}
		if (left == 0)
			return 1;
		int error = mutex_trylock(&shared->mutex);
		if (error == 0 || error == EOWNERDEAD)
			error = settle(error) != 0 ? EINVAL : mutex_unlock(&shared->mutex);
		else
			has_changed = 1;
		if (error != 0 && error != EBUSY)
			fail("the mutex", error);
		if (has_changed) {
			looks = 0;
			since = seconds();
		} else if (++looks == LOOKS) {
			report(kills, since);
			return 0;
		}
		/* Waiters that are getting the mutex need a moment only. */
		sleep_ms(looks == 0 ? 1 : LOOK_MS);
	}
}

/* --- the rounds --- */

static struct {
	int rounds, kills;
	/* Rounds in which the newcomer's word lacked the bit that says that tasks wait. */
	int unmarked;
	/* Those of them in which the death of the woken waiter woke another one. */
	int passed_on;
	double longest;
} sums;

static int play_round(void)
{
	shared->arrived = 0;
	int error = settle(mutex_lock(&shared->mutex));
	for (int i = 0; error == 0 && i < waiter_count; i++)
		start(i);
	if (error == 0)
		error = mutex_unlock(&shared->mutex);
	int taken = mutex_trylock(&shared->mutex);
	kill(waiters[0].process, SIGKILL);
	/* The kernel hands a mutex with inheritance over to the waiter: then the newcomer does not get it. */
	int is_mine = taken == 0 || taken == EOWNERDEAD;
	if (error == 0 && taken != EBUSY)
		error = settle(taken);
	if (error != 0)
		fail("the mutex", error);
	int is_unmarked = taken == 0 && (word() & WAITERS) == 0;
	int was_killed = reap(&waiters[0], 0);
	/* A waiter that the death has woken runs by now, or has run. While the mutex is held nothing else wakes one. */
	int passed_on = 0;
	for (int i = 1; i < waiter_count; i++) {
		long before = waiters[i].switches;
		look(&waiters[i]);
		passed_on |= waiters[i].state == 'R' || waiters[i].switches != before;
	}
	if (is_mine && (error = mutex_unlock(&shared->mutex)) != 0)
		fail("the mutex", error);
	sums.rounds++;
	sums.kills += was_killed;
	sums.unmarked += is_unmarked;
	sums.passed_on += is_unmarked && was_killed && passed_on;
	double since = seconds();
	int ended = all_get_it(sums.kills);
	double time = seconds() - since;
	if (ended && time > sums.longest)
		sums.longest = time;
	return ended;
}

static void share_one_processor(void)
{
	cpu_set_t mine, one;
	if (sched_getaffinity(0, sizeof mine, &mine) != 0)
		fail("sched_getaffinity", errno);
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &mine)) {
			CPU_SET(cpu, &one);
			break;
		}
	if (sched_setaffinity(0, sizeof one, &one) != 0)
		fail("sched_setaffinity", errno);
}

int main(int count, char **arguments)
{
	int kills = count > 1 ? atoi(arguments[1]) : 50;
	waiter_count = count > 2 ? atoi(arguments[2]) : waiter_count;
	int is_bound = count == 4 && strcmp(arguments[3], "one") == 0;
	if (count > 3 + is_bound || kills < 1 || kills > 1000000 || waiter_count < 2 || waiter_count > MOST_WAITERS) {
		fprintf(stderr, "usage: %s [KILLS [WAITERS (2 to %d) [one]]]\n", arguments[0], MOST_WAITERS);
		return 2;
	}
	void *memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		fail("mmap", errno);
	shared = memory;
	int error = mutex_init(&shared->mutex);
	if (error != 0)
		fail("the mutex", error);
	if (is_bound)
		share_one_processor();
	struct utsname system;
	uname(&system);
	printf("%s; Linux %s; %d waiters in a round\n", KIND, system.release, waiter_count);
	fflush(stdout);
	double since = seconds();
	int ends = 1;
	while (ends && sums.kills < kills && sums.rounds < 20 * kills)
		ends = play_round();
	for (int i = 0; i < waiter_count; i++)
		if (waiters[i].process != 0) {
			kill(waiters[i].process, SIGKILL);
			reap(&waiters[i], 0);
		}
	printf("%s: rounds %d, kills %d, taken unmarked %d, passed on %d; %.1f s, longest wait %.2f s\n",
	       ends ? "no hang" : "hang", sums.rounds, sums.kills, sums.unmarked, sums.passed_on, seconds() - since,
	       sums.longest);
	return ends ? 0 : HANGS;
}

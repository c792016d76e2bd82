/*
 * What lw_migrate(3) says of a migration's steps and of the rules: each sentence of its description, before the lines that
 * show it; those of the macros and of the last step are in migrate.c and migrated.c, those of reports in said_reports.c. In C
 * and in C++. The test in manual.rs compares these sentences with the page.
 */
#include "told.h"

#include <sys/syscall.h>

THREAD(unlock_others, mutex_debug, mutex_unlock(it))
THREAD(lock_and_end, mutex_debug, mutex_lock(it))
THREAD(lock_and_unlock, mutex_debug, mutex_lock(it); mutex_unlock(it))
THREAD(fail_to_lock, mutex_debug, CHECK_IS(mutex_trylock(it), 0))
THREAD(up_mutex, mutex_debug, up(it))
THREAD(up_semaphore, arch_semaphore, up(it))
THREAD(complete_it, completion, complete(it))

/* ---- the steps ---- */

#define ROUNDS 5000
/* What a lock protects. */
#define COUNTER(of, lock, unlock)                                                                     \
	static long of##_count;                                                                       \
	static void *of##_add(void *unused)                                                           \
	{                                                                                             \
		for (int round = 0; round < ROUNDS; round++) {                                            \
			lock(&of);                                                                            \
			of##_count++;                                                                         \
			unlock(&of);                                                                          \
		}                                                                                         \
		return unused;                                                                            \
	}                                                                                             \
	static long of##_counted(void)                                                                \
	{                                                                                             \
		pthread_t other = start(of##_add, NULL);                                                  \
		of##_add(NULL);                                                                           \
		join(other);                                                                              \
		return of##_count;                                                                        \
	}

static DECLARE_MUTEX(before);
static DEFINE_MUTEX_DEBUG(between);
static DEFINE_MUTEX(after);
COUNTER(before, down, up)
COUNTER(between, down, up)
COUNTER(after, mutex_lock, mutex_unlock)

static void a_semaphore_that_is_a_mutex(void)
{
	CHECK_IS(before_counted(), 2 * ROUNDS);
	/* lw_migrate(3) says: First change the type from struct semaphore to struct mutex_debug, and leave the calls as they are */
	CHECK_IS(between_counted(), 2 * ROUNDS);
	CHECK_IS(down_interruptible(&between), 0);
	CHECK_IS(down_trylock(&between), 1);
	CHECK_IS(sema_count(&between), 0);
	up(&between);
	CHECK_IS(sema_count(&between), 1);
	/* lw_migrate(3) says: If the program breaks no rule, change the type to struct mutex and use the mutex calls */
	CHECK_SILENT();
	CHECK_IS(after_counted(), 2 * ROUNDS);
	CHECK_SILENT();
}

static void a_semaphore_that_is_none(void)
{
	static struct mutex_debug mutex;
	DECLARE_ARCH_MUTEX_LOCKED(semaphore);
	DECLARE_COMPLETION(completion);
	/* lw_migrate(3) says: (A mutex that was initialised as locked has no owner */
	/* lw_migrate(3) says: Any task may unlock it for the first time */
	init_MUTEX_LOCKED(&mutex);
	join(start(up_mutex, &mutex));
	down(&mutex);
	CHECK_SILENT();
	join(start(up_mutex, &mutex));
	CHECK_TOLD("[owner-unlocks]");
	/* For the checker it is this task's until now. */
	up(&mutex);
	CHECK_SILENT();
	/* lw_migrate(3) says: If the program breaks a rule, change the type to struct arch_semaphore or to struct completion */
	for (int event = 0; event < 2; event++) {
		join(start(up_semaphore, &semaphore));
		CHECK_IS(sema_count(&semaphore), 1);
		down(&semaphore);
		join(start(complete_it, &completion));
		CHECK(completion_done(&completion));
		wait_for_completion(&completion);
	}
	CHECK_IS(arch_sema_count(&semaphore), 0);
	CHECK(!completion_done(&completion));
	CHECK_SILENT();
}

/* ---- the rules ---- */

static DEFINE_MUTEX_DEBUG(mutex);
static volatile pid_t locking;
static volatile int has_both;
THREAD(lock_twice, mutex_debug,
       locking = (pid_t)lw_task_id(); mutex_lock(it); mutex_lock(it); has_both = 1; mutex_unlock(it))

static void rules_of_owners(void)
{
	pthread_t thread;
	/* lw_migrate(3) says: Only one task holds a mutex at a time */
	mutex_lock(&mutex);
	join(start(fail_to_lock, &mutex));
	CHECK_SILENT();
	/* lw_migrate(3) says: Only the owner unlocks the mutex, and only once */
	/* lw_migrate(3) says: Unless a setting of LATCHWORK_CHECK says otherwise, the program then goes on as it would with a mutex that is not */
	join(start(unlock_others, &mutex));
	CHECK_TOLD("[owner-unlocks]");
	CHECK(!mutex_is_locked(&mutex));
	/* So two tasks hold it. */
	join(start(lock_and_unlock, &mutex));
	CHECK_TOLD("[one-holder]");
	mutex_unlock(&mutex);
	CHECK_SILENT();
	mutex_unlock(&mutex);
	CHECK_TOLD("[no-double-unlock]");
	/* lw_migrate(3) says: The owner does not lock the mutex again */
	thread = start(lock_twice, &mutex);
	while (!tells("[no-recursion]") || call_of(getpid(), locking) != SYS_futex)
		sleep_ms(1);
	/* It waits, and its wait ends as any other. */
	CHECK(!has_both);
	mutex_unlock(&mutex);
	join(thread);
	CHECK(has_both && !mutex_is_locked(&mutex));
	reported[0] = 0;
}

static void rules_of_ends(void)
{
	static struct mutex_debug of_ended;
	struct mutex_debug *memory = (struct mutex_debug *)malloc(2 * sizeof *memory);
	/* lw_migrate(3) says: No task ends while it holds a mutex */
	mutex_init(&of_ended);
	join(start(lock_and_unlock, &of_ended));
	CHECK_SILENT();
	join(start(lock_and_end, &of_ended));
	CHECK_TOLD("[no-exit-holding]");
	/* lw_migrate(3) says: if the owner of a mutex has ended, the mutex stays locked, since an unlock by another task has no */
	mutex_unlock(&of_ended);
	CHECK_TOLD("[no-double-unlock]");
	CHECK(mutex_is_locked(&of_ended));
	/* lw_migrate(3) says: Memory that contains a held mutex is not freed */
	/* lw_migrate(3) says: The program can have this checked: it calls mutex_debug_check_free() before it frees memory */
	CHECK(memory);
	mutex_init(&memory[0]);
	mutex_init(&memory[1]);
	mutex_lock(&memory[1]);
	mutex_debug_check_free(memory, sizeof *memory);
	CHECK_SILENT();
	mutex_debug_check_free(memory, 2 * sizeof *memory);
	CHECK_TOLD("[no-free-holding]");
	free(memory);
}

/* What is used after a finding is released, as far as the checker can tell; it reports that, too. */
static void drop(struct mutex_debug *it)
{
	mutex_unlock(it);
	reported[0] = 0;
}

static void rules_of_memory(void)
{
	static DEFINE_MUTEX_DEBUG(original);
	static struct mutex_debug copy, moved, zeroed, overwritten;
	/* lw_migrate(3) says: The mutex is initialised by the calls of this header */
	CHECK_IS(mutex_trylock(&zeroed), 1);
	CHECK_TOLD("[initialised-by-interface]");
	drop(&zeroed);
	mutex_lock(&original);
	mutex_unlock(&original);
	CHECK_SILENT();
	/* lw_migrate(3) says: It is neither copied nor moved */
	copy = original;
	mutex_lock(&copy);
	CHECK_TOLD("[not-copied]");
	drop(&copy);
	memcpy(&moved, &original, sizeof moved);
	memset(&original, 0, sizeof original);
	CHECK_IS(mutex_trylock(&moved), 1);
	CHECK_TOLD("[not-copied]");
	drop(&moved);
	/* lw_migrate(3) says: Only these calls overwrite it, and only while no task holds it */
	for (int times = 0; times < 2; times++) {
		mutex_init(&overwritten);
		mutex_lock(&overwritten);
		mutex_unlock(&overwritten);
	}
	CHECK_SILENT();
	memset(&overwritten, 0xa5, sizeof overwritten);
	CHECK_IS(mutex_trylock(&overwritten), 0);
	CHECK_TOLD("uses an overwritten mutex");
}

/* ---- orders and deadlocks ---- */

static DEFINE_MUTEX_DEBUG(one);
static DEFINE_MUTEX_DEBUG(two);
static DEFINE_MUTEX_DEBUG(three);
static DEFINE_MUTEX_DEBUG(four);
static DEFINE_MUTEX_DEBUG(five);
static DEFINE_MUTEX_DEBUG(six);

static void nest(struct mutex_debug *outer, struct mutex_debug *inner)
{
	mutex_lock(outer);
	mutex_lock(inner);
	mutex_unlock(inner);
	mutex_unlock(outer);
}

THREAD(nest_back, mutex_debug, nest(&four, it))
THREAD(not_nested, mutex_debug, lock_and_unlock(&six); lock_and_unlock(it))
THREAD(nested, mutex_debug, nest(&six, it))
THREAD(nested_without_a_wait, mutex_debug, mutex_lock(&six); CHECK_IS(mutex_trylock(it), 1); mutex_unlock(it);
       CHECK_IS(down_trylock(it), 0); mutex_unlock(it); mutex_unlock(&six))

static void orders(void)
{
	/* lw_migrate(3) says: If one task alone has locked A before B, and at another time B before A, the rule in a report is one-task-order */
	nest(&one, &two);
	CHECK_SILENT();
	nest(&two, &one);
	CHECK(tells("a deadlock is suspected"));
	CHECK_TOLD("[one-task-order]");
	/* lw_migrate(3) says: Tasks lock mutexes in one order, and do not wait for each other in a cycle */
	nest(&three, &four);
	CHECK_SILENT();
	join(start(nest_back, &three));
	CHECK_TOLD("[one-order]");
	/* lw_migrate(3) says: A task that locks mutex B while it holds mutex A has locked A before B */
	nest(&five, &six);
	join(start(not_nested, &five));
	CHECK_SILENT();
	/* lw_migrate(3) says: (If mutex_trylock() or down_trylock() locks B, this does not count */
	join(start(nested_without_a_wait, &five));
	CHECK_SILENT();
	join(start(nested, &five));
	CHECK_TOLD("[one-order]");
}

/* A task of a cycle, and the lines where it took its mutex and wants the other one. */
struct side {
	pthread_t thread;
	pid_t task;
	int held_at, wanted_at, result;
	int has_ended;
};
static struct side sides[2];
static lw_barrier_t meeting = LW_BARRIER_INITIALIZER(2);
static DEFINE_MUTEX_DEBUG(left);
static DEFINE_MUTEX_DEBUG(right);

static void *cross(void *argument)
{
	struct side *me = (struct side *)argument;
	struct mutex_debug *mine = me == sides ? &left : &right, *others = me == sides ? &right : &left;
	me->task = (pid_t)lw_task_id();
	me->held_at = __LINE__, mutex_lock(mine);
	lw_barrier_wait(&meeting);
	me->wanted_at = __LINE__, me->result = mutex_lock_interruptible(others);
	if (me->result == 0)
		mutex_unlock(others);
	mutex_unlock(mine);
	__atomic_store_n(&me->has_ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Whether the report has a line with this use of a mutex, at this line of this file. */
static int shows(const char *use, int at)
{
	char place[40];
	const char *line = strstr(reported, use), *found;
	snprintf(place, sizeof place, "said_migrate.c:%d", at);
	found = line ? strstr(line, place) : NULL;
	return found && found < strchr(line, '\n');
}

static void nothing(int number)
{
	(void)number;
}

static void a_deadlock(void)
{
	char name[2][40];
	signal(SIGUSR1, nothing);
	for (int side = 0; side < 2; side++)
		sides[side].thread = start(cross, &sides[side]);
	while (!tells("[no-deadlock]"))
		sleep_ms(1);
	/* lw_migrate(3) says: do not wait for each other in a cycle */
	/* They wait, as without the checker. A signal ends the wait of one. */
	for (int side = 0; side < 2; side++) {
		while (!__atomic_load_n(&sides[side].has_ended, __ATOMIC_ACQUIRE)) {
			pthread_kill(sides[side].thread, SIGUSR1);
			sleep_ms(1);
		}
		join(sides[side].thread);
		snprintf(name[side], sizeof name[side], "(%d/%d)", (int)getpid(), (int)sides[side].task);
	}
	CHECK(sides[0].result == -EINTR || sides[1].result == -EINTR);
	/* lw_migrate(3) says: The report names the rule, the mutexes and the tasks */
	CHECK(tells("rule: tasks must not wait for each other in a cycle"));
	CHECK(tells("lock left at 0x") && tells("lock right at 0x"));
	CHECK(tells(name[0]) && tells(name[1]));
	/* lw_migrate(3) says: For each task, the report shows where the task locked the mutex that it holds, and where it requests the */
	CHECK(shows("holds mutex left,", sides[0].held_at));
	CHECK(shows("wants mutex right,", sides[0].wanted_at));
	CHECK(shows("holds mutex right,", sides[1].held_at));
	CHECK(shows("wants mutex left,", sides[1].wanted_at));
	reported[0] = 0;
}

int main(void)
{
	alarm(WATCHDOG);
	/* No report says that a wait is long: a machine may be slow. */
	setenv("LATCHWORK_CHECK", "long=0", 1);
	mutex_debug_on_violation(tell);
	a_semaphore_that_is_a_mutex();
	a_semaphore_that_is_none();
	rules_of_owners();
	rules_of_ends();
	rules_of_memory();
	orders();
	a_deadlock();
	puts("said");
	return 0;
}

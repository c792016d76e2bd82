/*
 * After the last step of the migration: plain names, two kinds of objects, and nothing that served the way there.
 * Compiled as C and as C++, with mutexes that check their rules and without. With an argument it prints the sizes.
 */
#ifndef LATCHWORK_MIGRATED
#define LATCHWORK_MIGRATED
#endif
#include "migrate.h"

#include "check.h"

/* The names are the program's own again. */
struct arch_semaphore_of_the_program {
	int arch_count;
};

static DEFINE_MUTEX(mutex);
static DECLARE_MUTEX(one);
static DECLARE_MUTEX_LOCKED(none);
static DECLARE_COMPLETION(done);
static struct semaphore slots;
static int inside, most, total;

static void *work(void *argument)
{
	for (int round = 0; round < 1000; round++) {
		down(&slots);
		mutex_lock(&mutex);
		inside++;
		if (inside > most)
			most = inside;
		mutex_unlock(&mutex);
		mutex_lock(&mutex);
		inside--;
		total++;
		mutex_unlock(&mutex);
		up(&slots);
	}
	down(&none);
	complete(&done);
	return argument;
}

static void semaphores(void)
{
	const struct semaphore *looks = &slots;
	pthread_t threads[4];

	/* lw_migrate(3) says: The sizes and the behaviour of mutexes, semaphores and completions do not change */
	CHECK_IS(sizeof(struct semaphore), sizeof(lw_sem_t));
	CHECK_IS(sizeof(struct completion), sizeof(lw_completion_t));
	sema_init(&slots, 3);
	for (int task = 0; task < 4; task++)
		threads[task] = start(work, NULL);
	for (int task = 0; task < 4; task++)
		up(&none);
	for (int task = 0; task < 4; task++)
		wait_for_completion(&done);
	for (int task = 0; task < 4; task++)
		join(threads[task]);
	CHECK_IS(total, 4000);
	CHECK(most >= 1 && most <= 3);
	CHECK_IS(sema_count(looks), 3);
	CHECK_IS(down_interruptible(&slots), 0);
	CHECK_IS(down_trylock(&slots), 0);
	CHECK_IS(down_trylock(&slots), 0);
	CHECK_IS(down_trylock(&slots), 1);
	CHECK(sem_is_locked(looks));
	init_MUTEX(&slots);
	CHECK_IS(sema_count(&slots), 1);
	init_MUTEX_LOCKED(&slots);
	CHECK_IS(sema_count(&slots), 0);
	/* It counts: whoever did not take a unit may give one. */
	up(&one);
	CHECK_IS(sema_count(&one), 2);
}

static void mutexes(void)
{
	struct mutex local;
#ifdef LATCHWORK_DEBUG_MUTEXES
	CHECK_IS(sizeof local, sizeof(struct mutex_debug));
#else
	CHECK_IS(sizeof local, sizeof(lw_mutex_t));
#endif
	mutex_init(&local);
	CHECK_IS(mutex_trylock(&local), 1);
	CHECK(mutex_is_locked(&local));
	mutex_unlock(&local);
	CHECK_IS(mutex_lock_interruptible(&local), 0);
	mutex_unlock(&local);
	CHECK(!mutex_is_locked(&local));
	mutex_debug_check_free(&local, sizeof local);
}

#ifdef LATCHWORK_DEBUG_MUTEXES
static char reported[8192];

static void tell(const char *text)
{
	snprintf(reported, sizeof reported, "%s", text);
}

static void rules(void)
{
	/* lw_migrate(3) says: LATCHWORK_DEBUG_MUTEXES works as before */
	mutex_debug_on_violation(tell);
	mutex_unlock(&mutex);
	CHECK(strstr(reported, "[no-double-unlock]") != NULL);
	mutex_debug_on_violation(NULL);
}
#else
static void rules(void)
{
}
#endif

int main(int count, char **arguments)
{
	(void)arguments;
	if (count > 1) {
		printf("mutex %zu\nsemaphore %zu\n", sizeof(struct mutex), sizeof(struct semaphore));
		printf("mutex_debug %zu\n", sizeof(struct mutex_debug));
		printf("lw_tp_mutex_t %zu\n", sizeof(lw_tp_mutex_t));
		return 0;
	}
	alarm(WATCHDOG);
	semaphores();
	mutexes();
	rules();
	puts("plain");
	return 0;
}

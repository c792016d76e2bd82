/* The migration's types and calls, and the rules of mutexes. Compiled as C and as C++, plain and switched over. */
#include "migrate.h"

#include "check.h"

#include <signal.h>

static DEFINE_MUTEX(plain);
static DEFINE_MUTEX_DEBUG(checked);
static DECLARE_MUTEX(sem);
static DECLARE_ARCH_MUTEX(arch);
static DECLARE_ARCH_MUTEX_LOCKED(arch_locked);
static DECLARE_COMPLETION(done);
static long counts[4];

static void *count(void *argument)
{
	for (int round = 0; round < 2000; round++) {
		mutex_lock(&plain);
		counts[0]++;
		mutex_unlock(&plain);
		/* Either set of calls. */
		if (round % 2) {
			mutex_lock(&checked);
			counts[1]++;
			up(&checked);
		} else {
			down(&checked);
			counts[1]++;
			mutex_unlock(&checked);
		}
		down(&sem);
		counts[2]++;
		up(&sem);
		arch_down(&arch);
		counts[3]++;
		up(&arch);
	}
	return argument;
}

static char told[512];

static void tell(const char *text)
{
	snprintf(told, sizeof told, "%s", text);
}

#define TOLD(text)                                                                                    \
	do {                                                                                          \
		CHECK(strstr(told, text) != NULL);                                                    \
		told[0] = 0;                                                                          \
	} while (0)

static void *unlock_others(void *argument)
{
	mutex_unlock((struct mutex_debug *)argument);
	return NULL;
}

static void *end_with(void *argument)
{
	mutex_lock((struct mutex_debug *)argument);
	return NULL;
}

static void handle(int number)
{
	(void)number;
}

static pthread_t main_thread;

static void *interrupt(void *argument)
{
	/* Until it has been seen: a handler that runs before the sleep does not end it. */
	while (!__atomic_load_n((int *)argument, __ATOMIC_ACQUIRE)) {
		sleep_ms(2);
		pthread_kill(main_thread, SIGUSR1);
	}
	return NULL;
}

static void rules(void)
{
	struct mutex_debug other, copy;
	char memory[sizeof(struct mutex_debug)];
	mutex_debug_on_violation(tell);
	mutex_init(&other);
	mutex_lock(&other);
	mutex_lock(&other);
	TOLD("taken again by its holder");
	CHECK(strstr(told, "other") == NULL);
	CHECK_IS(mutex_trylock(&other), 0);
	mutex_debug_check_free(&other, sizeof other);
	TOLD("memory is freed where a held mutex lies");
	mutex_debug_check_free(memory, sizeof memory);
	CHECK_IS(told[0], 0);
	join(start(unlock_others, &other));
	TOLD("by a task that does not hold it");
	copy = other;
	mutex_unlock(&copy);
	TOLD("copy of a mutex");
	mutex_unlock(&other);
	mutex_unlock(&other);
	TOLD("\"&other\"");
	mutex_unlock(&other);
	TOLD("not held");
	join(start(end_with, &other));
	TOLD("ended with a mutex held");
	memset(&other, 0, sizeof other);
	mutex_lock(&other);
	TOLD("not initialised");
	mutex_debug_on_violation(NULL);
}

int main(void)
{
	pthread_t threads[4];
	struct sigaction action;
	int seen = 0;
	struct semaphore counting;
	struct arch_semaphore slots;

	for (int task = 0; task < 4; task++)
		threads[task] = start(count, NULL);
	for (int task = 0; task < 4; task++)
		join(threads[task]);
	for (int kind = 0; kind < 4; kind++)
		CHECK_IS(counts[kind], 8000);

	CHECK_IS(mutex_trylock(&plain), 1);
	CHECK_IS(mutex_trylock(&plain), 0);
	CHECK(mutex_is_locked(&plain));
	mutex_unlock(&plain);
	CHECK(!mutex_is_locked(&plain));
	CHECK_IS(mutex_lock_interruptible(&plain), 0);
	mutex_unlock(&plain);
	mutex_init(&plain);
	CHECK_IS(down_trylock(&sem), 0);
	CHECK_IS(down_trylock(&sem), 1);
	CHECK(sem_is_locked(&sem));
	up(&sem);
	CHECK_IS(sema_count(&sem), 1);
	init_MUTEX(&counting);
	down(&counting);
	up(&counting);
	init_MUTEX_LOCKED(&counting);
	CHECK_IS(down_trylock(&counting), 1);
	up(&counting);
	arch_sema_init(&slots, 3);
	sema_init(&slots, 2);
	arch_down(&slots);
	CHECK_IS(arch_down_trylock(&slots), 0);
	CHECK_IS(arch_down_trylock(&slots), 1);
	CHECK(arch_sem_is_locked(&slots));
	arch_up(&slots);
	CHECK_IS(arch_sema_count(&slots), 1);
	CHECK_IS(arch_down_interruptible(&slots), 0);
	arch_init_MUTEX(&slots);
	arch_init_MUTEX_LOCKED(&slots);
	CHECK(arch_sem_is_locked(&slots) && arch_sem_is_locked(&arch_locked));

	CHECK_IS(wait_for_completion_timeout(&done, 5), 0);
	complete(&done);
	CHECK(wait_for_completion_timeout(&done, 5 * HZ) > 0);
	complete_all(&done);
	wait_for_completion(&done);
	CHECK(completion_done(&done) && try_wait_for_completion(&done));
	INIT_COMPLETION(done);
	CHECK(!completion_done(&done));

	/* A signal ends the interruptible waits. */
	memset(&action, 0, sizeof action);
	action.sa_handler = handle;
	action.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &action, NULL);
	main_thread = pthread_self();
	threads[0] = start(interrupt, &seen);
	CHECK_IS(arch_down_interruptible(&slots), -EINTR);
	CHECK_IS(wait_for_completion_interruptible(&done), -EINTR);
	__atomic_store_n(&seen, 1, __ATOMIC_RELEASE);
	join(threads[0]);

	rules();
	puts("migrated");
	return 0;
}

/* Mutexes with a static initialiser, in the child of a fork that another thread's first use of one was in the middle of. */
#include "migrate.h"

#include "check.h"

#define MUTEXES 500
#define FORKS 100

static int must_end;

/* As the initialiser makes it. */
static void begin(struct mutex_debug *mutex)
{
	memset(mutex, 0, sizeof *mutex);
	mutex->lw_magic = LW__MAGIC;
	mutex->lw_line = __LINE__;
	mutex->lw_self = mutex;
	mutex->lw_name = "&mutex";
	mutex->lw_file = __FILE__;
}

static void use(struct mutex_debug *mutex)
{
	mutex_debug_lock(mutex, LW__ENDLESS, __FILE__, __LINE__);
	mutex_debug_unlock(mutex, __FILE__, __LINE__);
}

static void *use_new_ones(void *unused)
{
	static struct mutex_debug mutexes[MUTEXES];
	while (!__atomic_load_n(&must_end, __ATOMIC_RELAXED)) {
		for (int index = 0; index < MUTEXES; index++)
			begin(&mutexes[index]);
		for (int index = 0; index < MUTEXES; index++)
			use(&mutexes[index]);
		mutex_debug_check_free(mutexes, sizeof mutexes);
	}
	return unused;
}

int main(void)
{
	pthread_t user;
	alarm(WATCHDOG);
	user = start(use_new_ones, NULL);
	for (int round = 0; round < FORKS; round++) {
		pid_t child = fork();
		if (child == 0) {
			static struct mutex_debug mutex;
			alarm(WATCHDOG);
			begin(&mutex);
			use(&mutex);
			_exit(0);
		}
		CHECK_IS(exit_of(child), 0);
	}
	__atomic_store_n(&must_end, 1, __ATOMIC_RELAXED);
	join(user);
	puts("forked");
	return 0;
}

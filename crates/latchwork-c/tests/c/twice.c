/* A second copy of the library, whose path is the argument: what one has taken the other one releases. */
#include <dlfcn.h>

#include "latchwork.h"

#include "check.h"

static lw_robust_mutex_t robust = LW_ROBUST_MUTEX_INITIALIZER;
static lw_robust_rwlock_t table = LW_ROBUST_RWLOCK_INITIALIZER;
static lw_tp_mutex_t throughput = LW_TP_MUTEX_INITIALIZER;
static void *other;

static int by_other(const char *name, void *lock)
{
	int (*function)(void *);
	*(void **)&function = dlsym(other, name);
	CHECK(function != NULL);
	return function(lock);
}

/* Of which the other copy knows nothing yet. */
static void *in_a_thread(void *unused)
{
	CHECK_IS(lw_mutex_lock(&robust), 0);
	CHECK_IS(by_other("lw_robust_mutex_unlock", &robust), 0);
	CHECK_IS(by_other("lw_robust_mutex_lock", &robust), 0);
	CHECK_IS(lw_mutex_unlock(&robust), 0);
	return unused;
}

static void *through_readers(void *unused)
{
	CHECK_IS(lw_rwlock_rdlock(&table), 0);
	CHECK_IS(by_other("lw_robust_rwlock_unlock", &table), 0);
	CHECK_IS(by_other("lw_robust_rwlock_wrlock", &table), 0);
	CHECK_IS(lw_rwlock_unlock(&table), 0);
	return unused;
}

static void *through_owners(void *unused)
{
	CHECK_IS(lw_mutex_lock(&throughput), 0);
	CHECK_IS(by_other("lw_tp_mutex_unlock", &throughput), 0);
	return unused;
}

/* Nor does a fork's child hold there what its parent does. */
static void in_a_child(void)
{
	int status;
	pid_t child;
	CHECK_IS(lw_mutex_lock(&robust), 0);
	child = fork();
	if (child == 0)
		_exit(by_other("lw_robust_mutex_unlock", &robust) == EPERM ? 0 : 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK_IS(lw_mutex_unlock(&robust), 0);
}

int main(int count, char **arguments)
{
	CHECK_IS(count, 2);
	other = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
	CHECK(other != NULL && dlsym(other, "lw_task_id") != (void *)lw_task_id);
	join(start(in_a_thread, NULL));
	join(start(through_readers, NULL));
	join(start(through_owners, NULL));
	in_a_child();
	puts("twice");
	return 0;
}

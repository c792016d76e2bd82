/*
 * Mutexes that check their rules: struct mutex_debug of migrate.h. A small checker: what one task can know by
 * itself. Who holds which mutex is known to the holder only: the held ones are linked, the last one first.
 */
#include "migrate.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef mutex_lock
#undef mutex_unlock

static void (*handler)(const char *text);
static __thread struct mutex_debug *held;
static pthread_key_t ends;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;

static void describe(const struct mutex_debug *mutex, char *text, size_t room)
{
	if (mutex->lw_file != NULL)
		snprintf(text, room, "\"%s\" (%p), taken by task %u at %s:%u", mutex->lw_name, (const void *)mutex,
			 __atomic_load_n(&mutex->lw_owner, __ATOMIC_RELAXED), mutex->lw_file, mutex->lw_line);
	else
		snprintf(text, room, "\"%s\" (%p)", mutex->lw_name, (const void *)mutex);
}

static void violation(const struct mutex_debug *mutex, const char *what, const char *file, unsigned line)
{
	char which[256], text[512];
	/* One that was overwritten has no name to be printed. */
	if (mutex->lw_magic == LW__MAGIC && mutex->lw_self == mutex)
		describe(mutex, which, sizeof which);
	else
		snprintf(which, sizeof which, "%p", (const void *)mutex);
	if (file != NULL)
		snprintf(text, sizeof text, "latchwork: %s: mutex %s; task %u at %s:%u", what, which, lw_task_id(),
			 file, line);
	else
		snprintf(text, sizeof text, "latchwork: %s: mutex %s; task %u", what, which, lw_task_id());
	void (*told)(const char *) = __atomic_load_n(&handler, __ATOMIC_ACQUIRE);
	if (told != NULL) {
		told(text);
		return;
	}
	fprintf(stderr, "%s\n", text);
	abort();
}

void mutex_debug_on_violation(void (*told)(const char *text))
{
	__atomic_store_n(&handler, told, __ATOMIC_RELEASE);
}

static int is_sound(const struct mutex_debug *mutex, const char *file, unsigned line)
{
	if (mutex->lw_magic != LW__MAGIC) {
		violation(mutex, "use of a mutex that was not initialised, or was overwritten", file, line);
		return 0;
	}
	if (mutex->lw_self != mutex) {
		violation(mutex, "use of a copy of a mutex", file, line);
		return 0;
	}
	return 1;
}

/* A task ends. */
static void look_at_held(void *unused)
{
	(void)unused;
	while (held != NULL) {
		struct mutex_debug *mutex = held;
		held = mutex->lw_next;
		violation(mutex, "a task ended with a mutex held", NULL, 0);
	}
}

static void look_at_held_at_exit(void)
{
	look_at_held(NULL);
}

static void prepare(void)
{
	pthread_key_create(&ends, look_at_held);
	/* exit() runs no destructors of the calling thread's keys. */
	atexit(look_at_held_at_exit);
}

void mutex_debug_init(struct mutex_debug *mutex, const char *name, int locked)
{
	const struct mutex_debug fresh = {{locked ? 1u : 0u}, locked ? LW__ANYBODY : 0, LW__MAGIC, 0, mutex, name,
					  NULL, NULL};
	for (const struct mutex_debug *mine = held; mine != NULL; mine = mine->lw_next)
		if (mine == mutex) {
			violation(mutex, "initialisation of a mutex that is held", NULL, 0);
			return;
		}
	*mutex = fresh;
}

void mutex_debug_sema_init(struct mutex_debug *mutex, const char *name, int count)
{
	char what[64];
	mutex_debug_init(mutex, name, count == 0);
	if (count == 0 || count == 1)
		return;
	snprintf(what, sizeof what, "a semaphore that counts to %d is no mutex", count);
	violation(mutex, what, NULL, 0);
}

int mutex_debug_lock(struct mutex_debug *mutex, unsigned how, const char *file, unsigned line)
{
	uint32_t me = lw_task_id();
	int error;

	if (!is_sound(mutex, file, line))
		return EINVAL;
	if (__atomic_load_n(&mutex->lw_owner, __ATOMIC_RELAXED) == me) {
		if (how == LW__TRY)
			return EBUSY;
		violation(mutex, "a mutex was taken again by its holder", file, line);
		return EDEADLK;
	}
	if (how == LW__TRY)
		error = (lw_mutex_trylock)(&mutex->lw_lock);
	else if (how == LW__INTERRUPTIBLE)
		error = lw_mutex_lock_interruptible(&mutex->lw_lock);
	else
		error = (lw_mutex_lock)(&mutex->lw_lock);
	if (error != 0)
		return error;
	pthread_once(&prepared, prepare);
	pthread_setspecific(ends, mutex);
	mutex->lw_file = file;
	mutex->lw_line = line;
	mutex->lw_next = held;
	held = mutex;
	__atomic_store_n(&mutex->lw_owner, me, __ATOMIC_RELAXED);
	return 0;
}

void mutex_debug_unlock(struct mutex_debug *mutex, const char *file, unsigned line)
{
	uint32_t owner, me = lw_task_id();
	struct mutex_debug **place = &held;

	if (!is_sound(mutex, file, line))
		return;
	owner = __atomic_load_n(&mutex->lw_owner, __ATOMIC_RELAXED);
	if (owner == 0) {
		violation(mutex, "unlock of a mutex that is not held", file, line);
		return;
	}
	if (owner != me && owner != LW__ANYBODY) {
		violation(mutex, "unlock of a mutex by a task that does not hold it", file, line);
		return;
	}
	while (*place != NULL && *place != mutex)
		place = &(*place)->lw_next;
	if (*place != NULL)
		*place = mutex->lw_next;
	mutex->lw_file = NULL;
	__atomic_store_n(&mutex->lw_owner, 0, __ATOMIC_RELAXED);
	(lw_mutex_unlock)(&mutex->lw_lock);
}

int mutex_debug_is_locked(const struct mutex_debug *mutex)
{
	return (lw_mutex_is_locked)(&mutex->lw_lock);
}

void mutex_debug_check_free(const void *memory, size_t bytes)
{
	for (const struct mutex_debug *mutex = held; mutex != NULL; mutex = mutex->lw_next)
		if ((uintptr_t)mutex - (uintptr_t)memory < bytes ||
		    (uintptr_t)memory - (uintptr_t)mutex < sizeof *mutex) {
			violation(mutex, "memory is freed where a held mutex lies", NULL, 0);
			return;
		}
}

void mutex_debug_show_held(void)
{
	char which[256];
	for (const struct mutex_debug *mutex = held; mutex != NULL; mutex = mutex->lw_next) {
		describe(mutex, which, sizeof which);
		fprintf(stderr, "latchwork: held: mutex %s\n", which);
	}
}

unsigned long lw__wait_for_completion(lw_completion_t *done, unsigned long jiffies)
{
	struct timespec now, end;
	long left;

	clock_gettime(CLOCK_MONOTONIC, &now);
	end = now;
	end.tv_sec += (time_t)(jiffies / HZ > 1000000000 ? 1000000000 : jiffies / HZ);
	end.tv_nsec += (long)(jiffies % HZ) * (1000000000 / HZ);
	if (end.tv_nsec >= 1000000000) {
		end.tv_sec++;
		end.tv_nsec -= 1000000000;
	}
	if ((lw_completion_timedwait)(done, &end) != 0)
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &now);
	left = (long)(end.tv_sec - now.tv_sec) * HZ + (end.tv_nsec - now.tv_nsec) / (1000000000 / HZ);
	return left < 1 ? 1 : (unsigned long)left;
}

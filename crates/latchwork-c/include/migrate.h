/*
 * migrate.h: from semaphores to mutexes, one at a time. The types and calls of the generic mutex subsystem of
 * Linux (I. Molnár, 2005), for programs in user space.
 *
 *     type                    calls                      is
 *     struct semaphore        down(), up() ...           a counting semaphore: not reviewed yet
 *     struct arch_semaphore   the same calls, and arch_  a counting semaphore: reviewed, and to stay one
 *     struct mutex_debug      both sets of calls         a mutex that checks its rules
 *     struct mutex            mutex_lock() ...           a mutex of four bytes
 *     struct completion       wait_for_completion() ...  an object that signals that something is done
 *
 * To migrate a semaphore: make it a struct mutex_debug and run the program; the calls stay. If it breaks a rule, a
 * mutex cannot replace it: make it an arch_semaphore, or a completion. If it does not, make it a struct mutex, and
 * change the calls. A mutex call on a semaphore, or the reverse, does not compile, and the message names the calls that
 * do.
 *
 * LATCHWORK_DEBUG_MUTEX_FULL, defined before the include, makes each struct semaphore a mutex that checks its rules;
 * only the arch_ ones stay semaphores. LATCHWORK_DEBUG_MUTEXES makes each struct mutex check its rules, too.
 *
 * The last step, when each semaphore is one of the three: define LATCHWORK_MIGRATED, and give what stays a semaphore its
 * plain names back (struct arch_semaphore becomes struct semaphore, arch_down() down() ...). The types and names that
 * served the migration are then refused: what still uses struct arch_semaphore or an arch_ call, or gives a struct
 * mutex_debug to a call of this header, does not compile. Sizes and initial values of mutexes, semaphores and
 * completions are the same before and after.
 *
 * The rules: one task holds a mutex at a time, and only it unlocks it, once; it does not lock it again while it holds
 * it; a mutex is initialised by the calls here, and neither copied nor overwritten while it is in use; a task does not
 * end while it holds one, and memory that contains a held one is not freed (mutex_debug_check_free()); tasks lock
 * mutexes in one order, and do not wait for each other in a cycle. The library's checker enforces them: its report
 * names the mutexes, the tasks, and the places of acquisition and request, and the program goes on as it would without
 * the checker. LATCHWORK_CHECK=fatal in the environment aborts the program; mutex_debug_on_violation() passes the text
 * to a function.
 *
 * Return values are those of Linux: mutex_trylock() returns 1 if it acquired the mutex, down_trylock() returns 0 if it
 * did; interruptible calls return 0 or -EINTR. Time-outs are in jiffies, which are milliseconds here (HZ is 1000).
 *
 * C11 with _Generic; C++17 with overloads. Manual: lw_migrate(3).
 */
#ifndef LATCHWORK_MIGRATE_H
#define LATCHWORK_MIGRATE_H

#include "latchwork.h"

#if defined(LATCHWORK_MIGRATED) && defined(LATCHWORK_DEBUG_MUTEX_FULL)
#error "after the migration (LATCHWORK_MIGRATED) each struct semaphore counts, so LATCHWORK_DEBUG_MUTEX_FULL is wrong"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A mutex that checks its rules. Initialise it by the calls here: the fields are the library's. */
struct mutex_debug {
	lw_mutex_t lw_lock;
	uint32_t lw_magic;
	uint32_t lw_state;
	uint32_t lw_line;
	const struct mutex_debug *lw_self;
	const char *lw_name;
	const char *lw_file;
};

#define LW__MAGIC 0x6d757478u
/* In lw_state: it was initialised as locked, without an owner; the first task that unlocks it may do so. */
#define LW__NOBODYS 2u

int mutex_debug_lock(struct mutex_debug *mutex, unsigned how, const char *file, unsigned line);
void mutex_debug_unlock(struct mutex_debug *mutex, const char *file, unsigned line);
int mutex_debug_is_locked(const struct mutex_debug *mutex);
void mutex_debug_init(struct mutex_debug *mutex, const char *name, int locked, const char *file, unsigned line);
/* As sema_init(): 1 is unlocked, 0 is locked, and any other count is invalid for a mutex. */
void mutex_debug_sema_init(struct mutex_debug *mutex, const char *name, int count, const char *file,
			   unsigned line);
/* To be called before memory is freed: it must contain no held mutexes, and the mutexes in it cease to exist. */
#define mutex_debug_check_free(memory, bytes) mutex_debug_freed(memory, bytes, __FILE__, __LINE__)
void mutex_debug_freed(const void *memory, size_t bytes, const char *file, unsigned line);
/*
 * Passes the text of each finding to a function instead of standard error; NULL restores standard error. Cancellation of
 * the thread is disabled while the function runs.
 */
void mutex_debug_on_violation(void (*handler)(const char *text));
/* Writes to standard error which locks each task of the process holds. */
void mutex_debug_show_held(void);

/* Returns 0 if the time has passed, else the remaining time, at least 1. */
unsigned long lw__wait_for_completion(lw_completion_t *done, unsigned long jiffies);

struct mutex {
#ifdef LATCHWORK_DEBUG_MUTEXES
	struct mutex_debug lw_mutex;
#else
	lw_mutex_t lw_mutex;
#endif
};

#ifndef LATCHWORK_MIGRATED
struct arch_semaphore {
	lw_sem_t lw_sem;
};
#endif

struct semaphore {
#ifdef LATCHWORK_DEBUG_MUTEX_FULL
	struct mutex_debug lw_mutex;
#else
	lw_sem_t lw_sem;
#endif
};

struct completion {
	lw_completion_t lw_done;
};

#define LW__DEBUG_INITIALIZER(name, self, state, word)                                                \
	{                                                                                             \
		{word}, LW__MAGIC, state, __LINE__, self, #name, __FILE__                             \
	}
#ifdef LATCHWORK_DEBUG_MUTEXES
#define __MUTEX_INITIALIZER(name) {LW__DEBUG_INITIALIZER(name, &(name).lw_mutex, 0, 0)}
#else
#define __MUTEX_INITIALIZER(name) {LW_MUTEX_INITIALIZER}
#endif
#ifdef LATCHWORK_DEBUG_MUTEX_FULL
#define LW__SEMAPHORE_MUTEX(name) {LW__DEBUG_INITIALIZER(name, &(name).lw_mutex, 0, 0)}
#define LW__SEMAPHORE_LOCKED(name) {LW__DEBUG_INITIALIZER(name, &(name).lw_mutex, LW__NOBODYS, 1)}
#else
#define LW__SEMAPHORE_MUTEX(name) {LW_SEM_INITIALIZER(1)}
#define LW__SEMAPHORE_LOCKED(name) {LW_SEM_INITIALIZER(0)}
#endif
#define __COMPLETION_INITIALIZER(name) {LW_COMPLETION_INITIALIZER}

#define DEFINE_MUTEX(name) struct mutex name = __MUTEX_INITIALIZER(name)
#define DECLARE_MUTEX(name) struct semaphore name = LW__SEMAPHORE_MUTEX(name)
#define DECLARE_MUTEX_LOCKED(name) struct semaphore name = LW__SEMAPHORE_LOCKED(name)
#ifndef LATCHWORK_MIGRATED
#define __MUTEX_DEBUG_INITIALIZER(name) LW__DEBUG_INITIALIZER(name, &(name), 0, 0)
#define DEFINE_MUTEX_DEBUG(name) struct mutex_debug name = __MUTEX_DEBUG_INITIALIZER(name)
#define __ARCH_SEMAPHORE_INITIALIZER(name, count) {LW_SEM_INITIALIZER(count)}
#define DECLARE_ARCH_MUTEX(name) struct arch_semaphore name = __ARCH_SEMAPHORE_INITIALIZER(name, 1)
#define DECLARE_ARCH_MUTEX_LOCKED(name) struct arch_semaphore name = __ARCH_SEMAPHORE_INITIALIZER(name, 0)
#endif
#define DECLARE_COMPLETION(name) struct completion name = __COMPLETION_INITIALIZER(name)

/* <sys/param.h> defines another one. */
#undef HZ
#define HZ 1000

#ifdef __cplusplus
}
#endif

/* ---- what the calls do, by type ---- */

/* For a wait that fails for another reason than a signal: the object is invalid. */
#define LW__MUST(call)                                                                                \
	do {                                                                                          \
		if ((call) != 0)                                                                      \
			__builtin_trap();                                                             \
	} while (0)

/* Counting semaphores, through the pointer type that they share. */
static inline void lw__down(lw_sem_t *sem) { LW__MUST((lw_sem_wait)(sem)); }
static inline void lw__up(lw_sem_t *sem) { LW__MUST((lw_sem_post)(sem)); }
static inline int lw__down_interruptible(lw_sem_t *sem) { return -lw_sem_wait_interruptible(sem); }
static inline int lw__down_trylock(lw_sem_t *sem) { return (lw_sem_trywait)(sem) != 0; }
static inline int lw__sema_count(const lw_sem_t *sem)
{
	int count = 0;
	lw_sem_getvalue(sem, &count);
	return count;
}
static inline void lw__sema_init(lw_sem_t *sem, int count) { LW__MUST(lw_sem_init(sem, (unsigned)count)); }

/* Mutexes that check their rules. */
static inline int lw__debug_interruptible(struct mutex_debug *mutex, const char *file, unsigned line)
{
	return -mutex_debug_lock(mutex, LW__INTERRUPTIBLE, file, line);
}
static inline int lw__debug_trylock(struct mutex_debug *mutex, const char *file, unsigned line)
{
	return mutex_debug_lock(mutex, LW__TRY, file, line) == 0;
}
#define LW__PLACE const char *file, unsigned line

/* struct mutex */
#ifdef LATCHWORK_DEBUG_MUTEXES
static inline void lw__mutex_lock(struct mutex *mutex, LW__PLACE)
{
	mutex_debug_lock(&mutex->lw_mutex, LW__ENDLESS, file, line);
}
static inline void lw__mutex_unlock(struct mutex *mutex, LW__PLACE)
{
	mutex_debug_unlock(&mutex->lw_mutex, file, line);
}
static inline int lw__mutex_lock_interruptible(struct mutex *mutex, LW__PLACE)
{
	return lw__debug_interruptible(&mutex->lw_mutex, file, line);
}
static inline int lw__mutex_trylock(struct mutex *mutex, LW__PLACE)
{
	return lw__debug_trylock(&mutex->lw_mutex, file, line);
}
static inline int lw__mutex_is_locked(const struct mutex *mutex)
{
	return mutex_debug_is_locked(&mutex->lw_mutex);
}
static inline void lw__mutex_init(struct mutex *mutex, const char *name, LW__PLACE)
{
	mutex_debug_init(&mutex->lw_mutex, name, 0, file, line);
}
#else
static inline LW_UNCHECKED void lw__mutex_lock(struct mutex *mutex, LW__PLACE)
{
	(void)file, (void)line;
	(void)(lw_mutex_lock)(&mutex->lw_mutex);
}
static inline LW_UNCHECKED void lw__mutex_unlock(struct mutex *mutex, LW__PLACE)
{
	(void)file, (void)line;
	(void)(lw_mutex_unlock)(&mutex->lw_mutex);
}
static inline int lw__mutex_lock_interruptible(struct mutex *mutex, LW__PLACE)
{
	(void)file, (void)line;
	return -lw_mutex_lock_interruptible(&mutex->lw_mutex);
}
static inline int lw__mutex_trylock(struct mutex *mutex, LW__PLACE)
{
	(void)file, (void)line;
	return (lw_mutex_trylock)(&mutex->lw_mutex) == 0;
}
static inline int lw__mutex_is_locked(const struct mutex *mutex)
{
	return (lw_mutex_is_locked)(&mutex->lw_mutex);
}
static inline void lw__mutex_init(struct mutex *mutex, const char *name, LW__PLACE)
{
	(void)name, (void)file, (void)line;
	(void)lw_mutex_init(&mutex->lw_mutex);
}
#endif

/* struct mutex_debug */
static inline void lw__debug_lock(struct mutex_debug *mutex, LW__PLACE)
{
	mutex_debug_lock(mutex, LW__ENDLESS, file, line);
}
static inline void lw__debug_unlock(struct mutex_debug *mutex, LW__PLACE)
{
	mutex_debug_unlock(mutex, file, line);
}
static inline int lw__debug_down_trylock(struct mutex_debug *mutex, LW__PLACE)
{
	return !lw__debug_trylock(mutex, file, line);
}
static inline void lw__debug_init(struct mutex_debug *mutex, const char *name, LW__PLACE)
{
	mutex_debug_init(mutex, name, 0, file, line);
}
static inline int lw__debug_count(const struct mutex_debug *mutex) { return !mutex_debug_is_locked(mutex); }

#ifndef LATCHWORK_MIGRATED
/* struct arch_semaphore */
static inline void lw__arch_down(struct arch_semaphore *sem, LW__PLACE)
{
	(void)file, (void)line;
	lw__down(&sem->lw_sem);
}
static inline void lw__arch_up(struct arch_semaphore *sem, LW__PLACE)
{
	(void)file, (void)line;
	lw__up(&sem->lw_sem);
}
static inline int lw__arch_down_interruptible(struct arch_semaphore *sem, LW__PLACE)
{
	(void)file, (void)line;
	return lw__down_interruptible(&sem->lw_sem);
}
static inline int lw__arch_down_trylock(struct arch_semaphore *sem, LW__PLACE)
{
	(void)file, (void)line;
	return lw__down_trylock(&sem->lw_sem);
}
static inline int lw__arch_count(const struct arch_semaphore *sem) { return lw__sema_count(&sem->lw_sem); }
static inline void lw__arch_sema_init(struct arch_semaphore *sem, const char *name, int count, LW__PLACE)
{
	(void)name, (void)file, (void)line;
	lw__sema_init(&sem->lw_sem, count);
}
#endif

/* struct semaphore */
#ifdef LATCHWORK_DEBUG_MUTEX_FULL
static inline void lw__sem_down(struct semaphore *sem, LW__PLACE)
{
	mutex_debug_lock(&sem->lw_mutex, LW__ENDLESS, file, line);
}
static inline void lw__sem_up(struct semaphore *sem, LW__PLACE) { mutex_debug_unlock(&sem->lw_mutex, file, line); }
static inline int lw__sem_down_interruptible(struct semaphore *sem, LW__PLACE)
{
	return lw__debug_interruptible(&sem->lw_mutex, file, line);
}
static inline int lw__sem_down_trylock(struct semaphore *sem, LW__PLACE)
{
	return lw__debug_down_trylock(&sem->lw_mutex, file, line);
}
static inline int lw__sem_count(const struct semaphore *sem) { return lw__debug_count(&sem->lw_mutex); }
static inline void lw__sem_sema_init(struct semaphore *sem, const char *name, int count, LW__PLACE)
{
	mutex_debug_sema_init(&sem->lw_mutex, name, count, file, line);
}
#else
static inline void lw__sem_down(struct semaphore *sem, LW__PLACE)
{
	(void)file, (void)line;
	lw__down(&sem->lw_sem);
}
static inline void lw__sem_up(struct semaphore *sem, LW__PLACE)
{
	(void)file, (void)line;
	lw__up(&sem->lw_sem);
}
static inline int lw__sem_down_interruptible(struct semaphore *sem, LW__PLACE)
{
	(void)file, (void)line;
	return lw__down_interruptible(&sem->lw_sem);
}
static inline int lw__sem_down_trylock(struct semaphore *sem, LW__PLACE)
{
	(void)file, (void)line;
	return lw__down_trylock(&sem->lw_sem);
}
static inline int lw__sem_count(const struct semaphore *sem) { return lw__sema_count(&sem->lw_sem); }
static inline void lw__sem_sema_init(struct semaphore *sem, const char *name, int count, LW__PLACE)
{
	(void)name, (void)file, (void)line;
	lw__sema_init(&sem->lw_sem, count);
}
#endif

/* ---- arch_ calls: of arch_semaphores, always ---- */

#ifndef LATCHWORK_MIGRATED
static inline void arch_sema_init(struct arch_semaphore *sem, int val) { lw__sema_init(&sem->lw_sem, val); }
static inline void arch_init_MUTEX(struct arch_semaphore *sem) { lw__sema_init(&sem->lw_sem, 1); }
static inline void arch_init_MUTEX_LOCKED(struct arch_semaphore *sem) { lw__sema_init(&sem->lw_sem, 0); }
static inline void arch_down(struct arch_semaphore *sem) { lw__down(&sem->lw_sem); }
static inline int arch_down_interruptible(struct arch_semaphore *sem)
{
	return lw__down_interruptible(&sem->lw_sem);
}
static inline int arch_down_trylock(struct arch_semaphore *sem) { return lw__down_trylock(&sem->lw_sem); }
static inline void arch_up(struct arch_semaphore *sem) { lw__up(&sem->lw_sem); }
static inline int arch_sem_is_locked(const struct arch_semaphore *sem)
{
	return lw__sema_count(&sem->lw_sem) == 0;
}
static inline int arch_sema_count(const struct arch_semaphore *sem) { return lw__sema_count(&sem->lw_sem); }
#endif

/* ---- completions ---- */

static inline void init_completion(struct completion *done) { lw_completion_init(&done->lw_done); }
#define INIT_COMPLETION(done) ((void)lw_completion_reset(&(done).lw_done))
static inline void reinit_completion(struct completion *done) { lw_completion_reset(&done->lw_done); }
static inline void complete(struct completion *done) { (lw_completion_complete)(&done->lw_done); }
static inline void complete_all(struct completion *done) { (lw_completion_complete_all)(&done->lw_done); }
static inline void wait_for_completion(struct completion *done)
{
	LW__MUST((lw_completion_wait)(&done->lw_done));
}
static inline int wait_for_completion_interruptible(struct completion *done)
{
	return -lw_completion_wait_interruptible(&done->lw_done);
}
static inline unsigned long wait_for_completion_timeout(struct completion *done, unsigned long jiffies)
{
	return lw__wait_for_completion(&done->lw_done, jiffies);
}
static inline int try_wait_for_completion(struct completion *done)
{
	return lw_completion_trywait(&done->lw_done) == 0;
}
static inline int completion_done(const struct completion *done) { return lw_completion_is_done(&done->lw_done); }

#ifdef __cplusplus
#include "latchwork/migrate.hpp"
#else
#include "latchwork/migrate-generic.h"
#endif

#endif

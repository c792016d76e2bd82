/* Part of migrate.h: the calls, by type, in C. */
#ifndef LATCHWORK_MIGRATE_GENERIC_H
#define LATCHWORK_MIGRATE_GENERIC_H

#define LW__IS(x, type) _Generic((x), type *: 1, const type *: 1, default: 0)
/*
 * What the messages tell the caller to do, and which types take which calls: while the migration lasts, and after it.
 * Only named there, struct arch_semaphore and struct mutex_debug have no calls.
 */
#ifdef LATCHWORK_MIGRATED
struct arch_semaphore;
#define LW__TO_MUTEX ""
#define LW__TO_BOTH ""
#define LW__IN_USE(x, call)                                                                           \
	LW__ONLY_IF(!LW__IS(x, struct mutex_debug),                                                   \
		    call " takes no struct mutex_debug after the migration (LATCHWORK_MIGRATED): make it " \
			 "a struct mutex"),                                                           \
		LW__ONLY_IF(!LW__IS(x, struct arch_semaphore),                                        \
			    call " takes no struct arch_semaphore after the migration "               \
				 "(LATCHWORK_MIGRATED): it is called struct semaphore again")
#define LW__DEBUG(function)
#define LW__ARCH(function)
#define LW__LOOK_DEBUG(function)
#define LW__LOOK_ARCH(function)
#else
#define LW__TO_MUTEX ", or change its type to struct mutex_debug, then struct mutex"
#define LW__TO_BOTH ", or change its type to struct mutex_debug, which takes both"
#define LW__IN_USE(x, call) (void)0
#define LW__DEBUG(function) struct mutex_debug *: function,
#define LW__ARCH(function) struct arch_semaphore *: function,
#define LW__LOOK_DEBUG(function) LW__DEBUG(function) const LW__DEBUG(function)
#define LW__LOOK_ARCH(function) LW__ARCH(function) const LW__ARCH(function)
#endif

#define LW__NEEDS_MUTEX(x, call)                                                                      \
	LW__IN_USE(x, call),                                                                          \
		LW__ONLY_IF(!LW__IS(x, struct semaphore) && !LW__IS(x, struct arch_semaphore),        \
			    call " takes a struct mutex, and this is a semaphore: use down() and up()" LW__TO_MUTEX), \
		LW__ONLY_IF(LW__IS(x, struct mutex) || LW__IS(x, struct mutex_debug) ||               \
				    LW__IS(x, struct semaphore) || LW__IS(x, struct arch_semaphore),  \
			    call " takes a pointer to a struct mutex")
#define LW__NEEDS_SEMAPHORE(x, call)                                                                  \
	LW__IN_USE(x, call),                                                                          \
		LW__ONLY_IF(!LW__IS(x, struct mutex), call " takes a semaphore, and this is a struct mutex: " \
							   "use mutex_lock() and mutex_unlock()" LW__TO_BOTH), \
		LW__ONLY_IF(LW__IS(x, struct mutex) || LW__IS(x, struct mutex_debug) ||               \
				    LW__IS(x, struct semaphore) || LW__IS(x, struct arch_semaphore),  \
			    call " takes a pointer to a semaphore")
/* A const object would select the function for arguments that do not belong together. */
#define LW__CHANGES(x, call)                                                                          \
	LW__ONLY_IF(_Generic((x),                                                                     \
			     const struct mutex *: 0,                                                 \
			     const struct mutex_debug *: 0,                                           \
			     const struct semaphore *: 0,                                             \
			     const struct arch_semaphore *: 0,                                        \
			     default: 1),                                                             \
		    call " changes its object, and this is a pointer to a const one")
#define LW__HERE __FILE__, __LINE__

#define LW__MUTEX_CALL(x, call, plain, debug)                                                         \
	(LW__NEEDS_MUTEX(x, call), LW__CHANGES(x, call),                                              \
	 _Generic((x), struct mutex *: plain, LW__DEBUG(debug) default: lw__wrong_type)(x, LW__HERE))
#define mutex_lock(x) LW__MUTEX_CALL(x, "mutex_lock()", lw__mutex_lock, lw__debug_lock)
#define mutex_unlock(x) LW__MUTEX_CALL(x, "mutex_unlock()", lw__mutex_unlock, lw__debug_unlock)
#define mutex_trylock(x) LW__MUTEX_CALL(x, "mutex_trylock()", lw__mutex_trylock, lw__debug_trylock)
#define mutex_lock_interruptible(x)                                                                   \
	LW__MUTEX_CALL(x, "mutex_lock_interruptible()", lw__mutex_lock_interruptible, lw__debug_interruptible)
#define mutex_is_locked(x)                                                                            \
	(LW__NEEDS_MUTEX(x, "mutex_is_locked()"),                                                     \
	 _Generic((x),                                                                                \
		 struct mutex *: lw__mutex_is_locked,                                                 \
		 const struct mutex *: lw__mutex_is_locked,                                           \
		 LW__LOOK_DEBUG(mutex_debug_is_locked)                                                \
		 default: lw__wrong_type)(x))
#define mutex_init(x)                                                                                 \
	(LW__NEEDS_MUTEX(x, "mutex_init()"), LW__CHANGES(x, "mutex_init()"),                          \
	 _Generic((x), struct mutex *: lw__mutex_init, LW__DEBUG(lw__debug_init)                      \
		  default: lw__wrong_type)(x, #x, LW__HERE))

#define LW__SEMAPHORE_CALL(x, call, plain, arch, debug)                                               \
	(LW__NEEDS_SEMAPHORE(x, call), LW__CHANGES(x, call),                                          \
	 _Generic((x),                                                                                \
		 struct semaphore *: plain,                                                           \
		 LW__ARCH(arch)                                                                       \
		 LW__DEBUG(debug)                                                                     \
		 default: lw__wrong_type)(x, LW__HERE))
#define down(x) LW__SEMAPHORE_CALL(x, "down()", lw__sem_down, lw__arch_down, lw__debug_lock)
#define up(x) LW__SEMAPHORE_CALL(x, "up()", lw__sem_up, lw__arch_up, lw__debug_unlock)
#define down_trylock(x)                                                                               \
	LW__SEMAPHORE_CALL(x, "down_trylock()", lw__sem_down_trylock, lw__arch_down_trylock,          \
			   lw__debug_down_trylock)
#define down_interruptible(x)                                                                         \
	LW__SEMAPHORE_CALL(x, "down_interruptible()", lw__sem_down_interruptible,                     \
			   lw__arch_down_interruptible, lw__debug_interruptible)
#define sema_count(x)                                                                                 \
	(LW__NEEDS_SEMAPHORE(x, "sema_count()"),                                                      \
	 _Generic((x),                                                                                \
		 struct semaphore *: lw__sem_count,                                                   \
		 const struct semaphore *: lw__sem_count,                                             \
		 LW__LOOK_ARCH(lw__arch_count)                                                        \
		 LW__LOOK_DEBUG(lw__debug_count)                                                      \
		 default: lw__wrong_type)(x))
#define sem_is_locked(x) (sema_count(x) == 0)
#define sema_init(x, count)                                                                           \
	(LW__NEEDS_SEMAPHORE(x, "sema_init()"), LW__CHANGES(x, "sema_init()"),                        \
	 _Generic((x),                                                                                \
		 struct semaphore *: lw__sem_sema_init,                                               \
		 LW__ARCH(lw__arch_sema_init)                                                         \
		 LW__DEBUG(mutex_debug_sema_init)                                                     \
		 default: lw__wrong_type)(x, #x, count, LW__HERE))
#define init_MUTEX(x) sema_init(x, 1)
#define init_MUTEX_LOCKED(x) sema_init(x, 0)

#ifdef LATCHWORK_MIGRATED
/* The old names are refused by name. */
#define LW__AGAIN(name)                                                                               \
	LW__ONLY_IF(0, "arch_" name " is called " name " again after the migration (LATCHWORK_MIGRATED)")
#define arch_sema_init(x, count) LW__AGAIN("sema_init()")
#define arch_init_MUTEX(x) LW__AGAIN("init_MUTEX()")
#define arch_init_MUTEX_LOCKED(x) LW__AGAIN("init_MUTEX_LOCKED()")
#define arch_down(x) LW__AGAIN("down()")
#define arch_down_interruptible(x) LW__AGAIN("down_interruptible()")
#define arch_down_trylock(x) LW__AGAIN("down_trylock()")
#define arch_up(x) LW__AGAIN("up()")
#define arch_sem_is_locked(x) LW__AGAIN("sem_is_locked()")
#define arch_sema_count(x) LW__AGAIN("sema_count()")
#endif

#endif

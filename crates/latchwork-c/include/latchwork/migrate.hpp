/* Part of migrate.h: the calls, by type, in C++. */
#ifndef LATCHWORK_MIGRATE_HPP
#define LATCHWORK_MIGRATE_HPP

namespace latchwork_detail {
template <class>
inline constexpr bool never = false;
}

#define LW__HERE const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()
#define LW__CALL_1(returned, call, type, does)                                                        \
	inline returned call(type *object, LW__HERE) { return does(object, file, line); }
/* The types that serve the migration have calls until LATCHWORK_MIGRATED says that it is over. */
#ifdef LATCHWORK_MIGRATED
#define LW__TO_MUTEX ""
#define LW__TO_BOTH ""
#define LW__DEBUG(returned, call, debug)
#define LW__ARCH(returned, call, arch)
#else
#define LW__TO_MUTEX ", or change its type to struct mutex_debug, then struct mutex"
#define LW__TO_BOTH ", or change its type to struct mutex_debug, which takes both"
#define LW__DEBUG(returned, call, debug) LW__CALL_1(returned, call, struct mutex_debug, debug)
#define LW__ARCH(returned, call, arch) LW__CALL_1(returned, call, struct arch_semaphore, arch)
#endif
#define LW__MUTEX_CALL(returned, call, plain, debug)                                                  \
	LW__CALL_1(returned, call, struct mutex, plain)                                               \
	LW__DEBUG(returned, call, debug)                                                              \
	template <class T>                                                                            \
	returned call(T *)                                                                            \
	{                                                                                             \
		static_assert(latchwork_detail::never<T>,                                             \
			      #call "() takes a struct mutex, and this is something else: use down() and up() " \
				    "for a semaphore" LW__TO_MUTEX);                                  \
		return returned();                                                                    \
	}
#define LW__SEMAPHORE_CALL(returned, call, plain, arch, debug)                                        \
	LW__CALL_1(returned, call, struct semaphore, plain)                                           \
	LW__ARCH(returned, call, arch)                                                                \
	LW__DEBUG(returned, call, debug)                                                              \
	template <class T>                                                                            \
	returned call(T *)                                                                            \
	{                                                                                             \
		static_assert(latchwork_detail::never<T>,                                             \
			      #call "() takes a semaphore, and this is something else: use mutex_lock() and " \
				    "mutex_unlock() for a mutex" LW__TO_BOTH);                        \
		return returned();                                                                    \
	}

LW__MUTEX_CALL(void, mutex_lock, lw__mutex_lock, lw__debug_lock)
LW__MUTEX_CALL(void, mutex_unlock, lw__mutex_unlock, lw__debug_unlock)
LW__MUTEX_CALL(int, mutex_trylock, lw__mutex_trylock, lw__debug_trylock)
LW__MUTEX_CALL(int, mutex_lock_interruptible, lw__mutex_lock_interruptible, lw__debug_interruptible)
LW__SEMAPHORE_CALL(void, down, lw__sem_down, lw__arch_down, lw__debug_lock)
LW__SEMAPHORE_CALL(void, up, lw__sem_up, lw__arch_up, lw__debug_unlock)
LW__SEMAPHORE_CALL(int, down_trylock, lw__sem_down_trylock, lw__arch_down_trylock, lw__debug_down_trylock)
LW__SEMAPHORE_CALL(int, down_interruptible, lw__sem_down_interruptible, lw__arch_down_interruptible,
		   lw__debug_interruptible)

inline int mutex_is_locked(const struct mutex *mutex) { return lw__mutex_is_locked(mutex); }
inline int sema_count(const struct semaphore *sem) { return lw__sem_count(sem); }
#ifndef LATCHWORK_MIGRATED
inline int mutex_is_locked(const struct mutex_debug *mutex) { return mutex_debug_is_locked(mutex); }
inline int sema_count(const struct arch_semaphore *sem) { return lw__arch_count(sem); }
inline int sema_count(const struct mutex_debug *sem) { return lw__debug_count(sem); }
#endif
template <class T>
int sem_is_locked(const T *sem)
{
	return sema_count(sem) == 0;
}
inline void lw__init_mutex(struct mutex *mutex, const char *name, LW__HERE)
{
	lw__mutex_init(mutex, name, file, line);
}
inline void lw__init_sema(struct semaphore *sem, const char *name, int count, LW__HERE)
{
	lw__sem_sema_init(sem, name, count, file, line);
}
#ifndef LATCHWORK_MIGRATED
inline void lw__init_mutex(struct mutex_debug *mutex, const char *name, LW__HERE)
{
	lw__debug_init(mutex, name, file, line);
}
inline void lw__init_sema(struct arch_semaphore *sem, const char *name, int count, LW__HERE)
{
	lw__arch_sema_init(sem, name, count, file, line);
}
inline void lw__init_sema(struct mutex_debug *sem, const char *name, int count, LW__HERE)
{
	mutex_debug_sema_init(sem, name, count, file, line);
}
#endif
#define mutex_init(x) lw__init_mutex(x, #x)
#define sema_init(x, count) lw__init_sema(x, #x, count)
#define init_MUTEX(x) sema_init(x, 1)
#define init_MUTEX_LOCKED(x) sema_init(x, 0)

#undef LW__HERE

#endif

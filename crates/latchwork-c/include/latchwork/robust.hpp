/*
 * Part of latchwork.hpp: locks that survive the death of their owners.
 *
 * If a task dies with a lock held, the next task that requests it gets lw::owner_died, from any call. That task does
 * *not* hold the lock then, as the standard requires of a lock() that throws: the lock was acquired and released again,
 * with its data marked as inconsistent. So all further tasks get lw::owner_died, too, until one repairs the data. No
 * lock stays locked because an exception was thrown: std::lock_guard, std::unique_lock, std::scoped_lock(a, b),
 * std::shared_lock, std::condition_variable_any and lw::condition never own a lock that threw, and release the other
 * locks that they own. (libc++'s std::condition_variable_any terminates the program if a wait cannot acquire its lock
 * again, for any lock: use lw::condition, or lw::recovering.) There are two ways to repair:
 *
 *     lw::recovering accounts(mutex, [&] { repair(data); });     a lock type that repairs by itself
 *     std::scoped_lock both(accounts, other);
 *
 *     bool died = mutex.lock_recover();                          never throws lw::owner_died, and acquires the lock
 *     std::lock_guard<lw::robust_mutex> held(mutex, std::adopt_lock);
 *     if (died) {
 *             repair(data);
 *             mutex.consistent();
 *     }
 *
 * If a repair throws, or unlock() is called without consistent(), or a wait for an lw::condition begins without it, the
 * data stays inconsistent, and the next task gets lw::owner_died. (In C an unlock without lw_mutex_consistent() makes
 * the lock unusable, as with pthread: the equivalent here is give_up().) If an exception leaves the scope of a guard of
 * a lock whose owner did not die, the lock is released as usual; if its data may be inconsistent then, call
 * unlock_inconsistent().
 */
#ifndef LATCHWORK_ROBUST_HPP
#define LATCHWORK_ROBUST_HPP

namespace lw {

namespace detail {

/* The calling task holds the lock in each of these functions. */
template <class Native>
struct robust_mutex_calls {
	static constexpr bool exists = true;
	static bool is_inconsistent(Native &lock) { return __atomic_load_n(&lock.lw_state, __ATOMIC_RELAXED) != 0; }
	static int consistent(Native &lock) { return lw_mutex_consistent(&lock); }
	LW_UNCHECKED static int unlock_inconsistent(Native &lock) { return lw_mutex_unlock_inconsistent(&lock); }
	LW_UNCHECKED static int unlock(Native &lock) { return lw_mutex_unlock(&lock); }
	LW_UNCHECKED static int lock(Native &lock) { return lw_mutex_lock(&lock); }
	LW_UNCHECKED static int trylock(Native &lock) { return lw_mutex_trylock(&lock); }
	LW_UNCHECKED static int timedlock(Native &lock, const struct timespec &at) { return lw_mutex_timedlock(&lock, &at); }
};
template <>
struct robustness<lw_robust_mutex_t> : robust_mutex_calls<lw_robust_mutex_t> {};
template <>
struct robustness<lw_robust_tp_mutex_t> : robust_mutex_calls<lw_robust_tp_mutex_t> {};
template <>
struct robustness<lw_robust_pi_mutex_t> : robust_mutex_calls<lw_robust_pi_mutex_t> {};
template <>
struct robustness<lw_robust_pp_mutex_t> : robust_mutex_calls<lw_robust_pp_mutex_t> {};
template <class Native>
struct region_mutex_calls : robust_mutex_calls<Native> {
	/* A bit of the word, which its owner alone changes. */
	static bool is_inconsistent(Native &lock)
	{
		return (__atomic_load_n(&lock.lw_state, __ATOMIC_RELAXED) >> 33 & 1) != 0;
	}
};
template <>
struct robustness<lw_region_mutex_t> : region_mutex_calls<lw_region_mutex_t> {};
template <>
struct robustness<lw_region_tp_mutex_t> : region_mutex_calls<lw_region_tp_mutex_t> {};
/* For writers. */
template <class native>
struct robust_rwlock_calls {
	static constexpr bool exists = true;
	static int consistent(native &lock) { return lw_rwlock_consistent(&lock); }
	LW_UNCHECKED static int unlock_inconsistent(native &lock) { return lw_rwlock_unlock_inconsistent(&lock); }
	LW_UNCHECKED static int unlock(native &lock) { return lw_rwlock_unlock(&lock); }
	LW_UNCHECKED static int lock(native &lock) { return lw_rwlock_wrlock(&lock); }
	LW_UNCHECKED static int trylock(native &lock) { return lw_rwlock_trywrlock(&lock); }
	LW_UNCHECKED static int timedlock(native &lock, const struct timespec &at) { return lw_rwlock_timedwrlock(&lock, &at); }
};
/* A writer alone may change the state. */
template <>
struct robustness<lw_robust_rwlock_t> : robust_rwlock_calls<lw_robust_rwlock_t> {
	static bool is_inconsistent(lw_robust_rwlock_t &lock)
	{
		return robustness<lw_robust_mutex_t>::is_inconsistent(lock.lw_lines[0].lw_lock);
	}
};
template <>
struct robustness<lw_region_rwlock_t> : robust_rwlock_calls<lw_region_rwlock_t> {
	static bool is_inconsistent(lw_region_rwlock_t &lock)
	{
		return robustness<lw_region_tp_mutex_t>::is_inconsistent(lock.lw_gate);
	}
};

/* The operations that robust locks have in addition to others. */
template <class Base>
class recoverable : public Base {
public:
	using Base::Base;
	using native_type = typename Base::native_type;

	/*
	 * Acquires the lock, to write, even from a dead owner: returns true if one died. Then repair the data and call
	 * consistent(); an unlock() without it leaves the repair to the next task.
	 */
	[[nodiscard]] LW_UNCHECKED bool lock_recover() LW__ATTRIBUTE(acquire_capability())
	{
		int error = calls::lock(this->native_);
		if (error == EOWNERDEAD)
			return true;
		check(error);
		return false;
	}
	/* Declares that the data is consistent. EINVAL: it was, or the calling task does not hold the lock. */
	void consistent() { check(calls::consistent(this->native_)); }
	/* Releases the lock with inconsistent data: the next task gets lw::owner_died. For writers. */
	LW_UNCHECKED void unlock_inconsistent() LW__ATTRIBUTE(release_capability())
	{
		check(calls::unlock_inconsistent(this->native_));
	}
	/*
	 * Instead of a repair: releases the lock, which no task can acquire any more. EINVAL: the data is consistent.
	 */
	LW_UNCHECKED void give_up() LW__ATTRIBUTE(release_capability())
	{
		if (!calls::is_inconsistent(this->native_))
			fail(EINVAL);
		check(calls::unlock(this->native_));
	}
	/* For lw::condition, when a wait has acquired the lock from a dead owner. */
	[[noreturn]] LW_UNCHECKED void after_owner_death()
	{
		calls::unlock_inconsistent(this->native_);
		throw owner_died(&this->native_);
	}

private:
	using calls = robustness<native_type>;
};

template <class Lock, class = void>
struct hears_of_deaths : std::false_type {};
template <class Lock>
struct hears_of_deaths<Lock, std::void_t<decltype(std::declval<Lock &>().after_owner_death())>> : std::true_type {};

} // namespace detail

template <class Native>
class basic_robust_mutex : public detail::recoverable<basic_mutex<Native>> {
public:
	constexpr basic_robust_mutex() noexcept
		: detail::recoverable<basic_mutex<Native>>(Native LW__LISTED_INITIALIZER(0))
	{
	}
	/* From an initialiser of the C header: a threshold, for instance. */
	constexpr explicit basic_robust_mutex(const Native &native) noexcept
		: detail::recoverable<basic_mutex<Native>>(native)
	{
	}
};
using robust_mutex = basic_robust_mutex<lw_robust_mutex_t>;
using robust_tp_mutex = basic_robust_mutex<lw_robust_tp_mutex_t>;
using robust_pi_mutex = basic_robust_mutex<lw_robust_pi_mutex_t>;

/* With a priority ceiling. */
class robust_pp_mutex : public basic_robust_mutex<lw_robust_pp_mutex_t> {
public:
	explicit robust_pp_mutex(int ceiling) { native_.lw_extra = detail::checked_ceiling(ceiling); }
};

/* For data in a region: it must lie in one. std::errc::invalid_argument: it lies in none. */
class region_mutex : public detail::recoverable<basic_mutex<lw_region_mutex_t>> {
public:
	constexpr region_mutex() noexcept = default;
};
/* The same for many tasks, and critical sections of a microsecond or more. */
class region_tp_mutex : public detail::recoverable<basic_mutex<lw_region_tp_mutex_t>> {
public:
	constexpr region_tp_mutex() noexcept = default;
};

/* Only the death of a writer is reported. */
class robust_rwlock : public detail::recoverable<basic_rwlock<lw_robust_rwlock_t>> {
public:
	constexpr robust_rwlock() noexcept
		: detail::recoverable<basic_rwlock<lw_robust_rwlock_t>>(
			  lw_robust_rwlock_t LW_ROBUST_RWLOCK_INITIALIZER)
	{
	}
	/* From an initialiser of the C header: a threshold, for instance. */
	constexpr explicit robust_rwlock(const lw_robust_rwlock_t &native) noexcept
		: detail::recoverable<basic_rwlock<lw_robust_rwlock_t>>(native)
	{
	}
};

/* The same for data in a region: it must lie in one. std::errc::invalid_argument: it lies in none. */
class region_rwlock : public detail::recoverable<basic_rwlock<lw_region_rwlock_t>> {
public:
	constexpr region_rwlock() noexcept
		: detail::recoverable<basic_rwlock<lw_region_rwlock_t>>(
			  lw_region_rwlock_t LW_REGION_RWLOCK_INITIALIZER)
	{
	}
};

/*
 * A robust lock, and the function that repairs its data: a lock type for the standard's guards and for lw::condition.
 * It belongs to one process, and refers to the lock, which may be anywhere; several objects may refer to one lock.
 *
 * After owner death, the task that acquires the lock runs the repair, with the lock held to write, and goes on as if
 * nothing had happened. If a repair throws, the data stays inconsistent, and nothing is held.
 */
template <class Lock, class Repair>
class LW_CAPABILITY("mutex") recovering {
public:
	using native_type = typename Lock::native_type;
	using native_handle_type = native_type *;
	static_assert(detail::robustness<native_type>::exists, "lw::recovering is for robust locks");

	recovering(Lock &lock, Repair repair) : lock_(lock), repair_(std::move(repair)) {}
	recovering(const recovering &) = delete;
	recovering &operator=(const recovering &) = delete;

	LW_UNCHECKED void lock() LW__ATTRIBUTE(acquire_capability()) { taken(calls::lock(native()), 0); }
	LW_UNCHECKED bool try_lock() LW__ATTRIBUTE(try_acquire_capability(true)) { return taken(calls::trylock(native()), EBUSY); }
	template <class Clock, class Duration>
	LW_UNCHECKED bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time)
		LW__ATTRIBUTE(try_acquire_capability(true))
	{
		return taken(calls::timedlock(native(), detail::at(time)), ETIMEDOUT);
	}
	template <class Rep, class Period>
	LW_UNCHECKED bool try_lock_for(const std::chrono::duration<Rep, Period> &time)
		LW__ATTRIBUTE(try_acquire_capability(true))
	{
		return taken(calls::timedlock(native(), detail::after(time)), ETIMEDOUT);
	}
	LW_UNCHECKED void unlock() LW__ATTRIBUTE(release_capability()) { lock_.unlock(); }

	/* For a reader/writer lock: after a repair, which needs a writer, it acquires the lock again to read. */
	LW_UNCHECKED void lock_shared() LW__ATTRIBUTE(acquire_shared_capability())
	{
		taken_shared([this]() LW_UNCHECKED { return lw_rwlock_rdlock(&native()); }, 0);
	}
	LW_UNCHECKED bool try_lock_shared() LW__ATTRIBUTE(try_acquire_shared_capability(true))
	{
		return taken_shared([this]() LW_UNCHECKED { return lw_rwlock_tryrdlock(&native()); }, EBUSY);
	}
	template <class Clock, class Duration>
	LW_UNCHECKED bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &time)
		LW__ATTRIBUTE(try_acquire_shared_capability(true))
	{
		return taken_shared_until(detail::at(time));
	}
	template <class Rep, class Period>
	LW_UNCHECKED bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &time)
		LW__ATTRIBUTE(try_acquire_shared_capability(true))
	{
		return taken_shared_until(detail::after(time));
	}
	LW_UNCHECKED void unlock_shared() LW__ATTRIBUTE(release_shared_capability()) { lock_.unlock_shared(); }
	native_handle_type native_handle() noexcept { return lock_.native_handle(); }

	/* Called with the lock acquired from a dead owner; also by lw::condition. */
	LW_UNCHECKED void after_owner_death()
	{
		try {
			repair_();
			if (calls::is_inconsistent(native()))
				lock_.consistent();
		} catch (...) {
			calls::unlock_inconsistent(native());
			throw;
		}
	}

private:
	using calls = detail::robustness<native_type>;

	native_type &native() noexcept { return *lock_.native_handle(); }
	LW_UNCHECKED bool taken(int error, int expected)
	{
		if (error != EOWNERDEAD)
			return error == 0 || detail::check_but(error, expected);
		after_owner_death();
		return true;
	}
	template <class Attempt>
	LW_UNCHECKED bool taken_shared(Attempt attempt, int expected)
	{
		int error;
		while ((error = attempt()) == EOWNERDEAD) {
			after_owner_death();
			lock_.unlock();
		}
		return error == 0 || detail::check_but(error, expected);
	}
	LW_UNCHECKED bool taken_shared_until(const struct timespec &at)
	{
		return taken_shared([&]() LW_UNCHECKED { return lw_rwlock_timedrdlock(&native(), &at); }, ETIMEDOUT);
	}

	Lock &lock_;
	Repair repair_;
};

} // namespace lw

#endif

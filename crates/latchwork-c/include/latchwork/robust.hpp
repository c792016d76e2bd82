/*
 * Part of latchwork.hpp: locks that survive the death of their owners.
 *
 * A task dies with a lock held: the next one that asks for it gets lw::owner_died, by whatever call. It does *not* hold
 * the lock then, as the standard has it of a lock() that throws: the lock was taken and released again, with its data
 * marked as half changed, and so does the next one get lw::owner_died, and the next, until somebody repairs the data.
 * So no lock stays locked because an exception took the wrong way: std::lock_guard, std::unique_lock,
 * std::scoped_lock(a, b), std::shared_lock, std::condition_variable_any and lw::condition never own what threw, and
 * release what they own beside. (libc++'s std::condition_variable_any ends the program where a wait cannot take its lock
 * again, whatever the lock is: use lw::condition, or lw::recovering.) There are two ways to repair:
 *
 *     lw::recovering accounts(mutex, [&] { repair(data); });     a lock of its own, that repairs by itself
 *     std::scoped_lock both(accounts, other);
 *
 *     bool died = mutex.lock_recover();                          never throws lw::owner_died, and takes the lock
 *     std::lock_guard<lw::robust_mutex> held(mutex, std::adopt_lock);
 *     if (died) {
 *             repair(data);
 *             mutex.consistent();
 *     }
 *
 * A repair that is left by an exception, or an unlock() without consistent(), leaves the data to the next one, which is
 * told. (In C an unlock without lw_mutex_consistent() gives the lock up for good, as with pthread: that is give_up()
 * here.) An exception that passes a guard of a lock whose owner did not die releases it as usual: where the data may be
 * half changed then, unlock_inconsistent() says so.
 */
#ifndef LATCHWORK_ROBUST_HPP
#define LATCHWORK_ROBUST_HPP

namespace lw {

namespace detail {

/* The calling task holds the lock in each of these. */
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
template <>
struct robustness<lw_robust_rwlock_t> {
	using native = lw_robust_rwlock_t;
	static constexpr bool exists = true;
	/* Of a writer, who alone may change it. */
	static bool is_inconsistent(native &lock)
	{
		return __atomic_load_n(&lock.lw_lines[0].lw_lock.lw_state, __ATOMIC_RELAXED) != 0;
	}
	static int consistent(native &lock) { return lw_rwlock_consistent(&lock); }
	LW_UNCHECKED static int unlock_inconsistent(native &lock) { return lw_rwlock_unlock_inconsistent(&lock); }
	LW_UNCHECKED static int unlock(native &lock) { return lw_rwlock_unlock(&lock); }
	LW_UNCHECKED static int lock(native &lock) { return lw_rwlock_wrlock(&lock); }
	LW_UNCHECKED static int trylock(native &lock) { return lw_rwlock_trywrlock(&lock); }
	LW_UNCHECKED static int timedlock(native &lock, const struct timespec &at) { return lw_rwlock_timedwrlock(&lock, &at); }
};

/* What robust locks have beside the others. */
template <class Base>
class recoverable : public Base {
public:
	using Base::Base;
	using native_type = typename Base::native_type;

	/*
	 * Takes the lock, to write, also from a dead owner: true if one died. Then repair the data and call
	 * consistent(); an unlock() without that leaves the repair to the next one.
	 */
	[[nodiscard]] LW_UNCHECKED bool lock_recover() LW__ATTRIBUTE(acquire_capability())
	{
		int error = calls::lock(this->native_);
		if (error == EOWNERDEAD)
			return true;
		check(error);
		return false;
	}
	/* The data is whole. EINVAL: it was, or the calling task does not hold the lock. */
	void consistent() { check(calls::consistent(this->native_)); }
	/* Releases the lock with its data half changed: the next one gets lw::owner_died. For writers. */
	LW_UNCHECKED void unlock_inconsistent() LW__ATTRIBUTE(release_capability())
	{
		check(calls::unlock_inconsistent(this->native_));
	}
	/* Instead of a repair: releases the lock, and nobody can take it any more. EINVAL: the data is whole. */
	LW_UNCHECKED void give_up() LW__ATTRIBUTE(release_capability())
	{
		if (!calls::is_inconsistent(this->native_))
			fail(EINVAL);
		check(calls::unlock(this->native_));
	}
	/* For lw::condition, whose wait has taken the lock from a dead owner. */
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
};
using robust_mutex = basic_robust_mutex<lw_robust_mutex_t>;
using robust_tp_mutex = basic_robust_mutex<lw_robust_tp_mutex_t>;
using robust_pi_mutex = basic_robust_mutex<lw_robust_pi_mutex_t>;

/* With a priority ceiling. */
class robust_pp_mutex : public basic_robust_mutex<lw_robust_pp_mutex_t> {
public:
	explicit robust_pp_mutex(int ceiling) { native_.lw_extra = detail::checked_ceiling(ceiling); }
};

/* Only the death of a writer is told. */
class robust_rwlock : public detail::recoverable<basic_rwlock<lw_robust_rwlock_t>> {
public:
	constexpr robust_rwlock() noexcept
		: detail::recoverable<basic_rwlock<lw_robust_rwlock_t>>(
			  lw_robust_rwlock_t LW_ROBUST_RWLOCK_INITIALIZER)
	{
	}
};

/*
 * A robust lock, and what repairs its data: a lock of its own for the standard's guards and for lw::condition. It
 * belongs to one process, and refers to the lock, which may be anywhere; there may be any number of it.
 *
 * After the death of an owner whoever takes the lock runs the repair, with the lock held to write, and goes on as if
 * nothing had happened. A repair that throws leaves the data to the next one: nothing is held then.
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

	/* Of a reader/writer lock: after a repair, which is a writer's, it takes the lock anew. */
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

	/* With the lock taken from a dead owner: also for lw::condition. */
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

/*
 * latchwork.hpp: the locks of latchwork.h as C++ classes.
 *
 *     lw::mutex, lw::tp_mutex, lw::pi_mutex, ...   Lockable, TimedLockable: for std::lock_guard,
 *                                                  std::unique_lock, std::scoped_lock, std::condition_variable_any
 *     lw::rwlock, ...                              SharedTimedLockable: for std::shared_lock, too
 *     lw::robust_mutex, ..., lw::robust_rwlock     the same between processes whose tasks may be killed
 *     lw::region_mutex, lw::region_tp_mutex        the same in 8 and 16 bytes, for data in a region
 *     lw::region_rwlock                            the same for readers and writers of data in a region
 *     lw::recovering                               a robust lock, and the function that repairs its data
 *     lw::condition, lw::semaphore, lw::completion, lw::barrier, lw::once, lw::region_once
 *     lw::shared_...                               the same between processes, where there is a difference
 *
 * Each has the C type as its only member (except lw::recovering, which refers to one), so C, C++ and Rust may share one
 * object: native_handle(). Errors are std::system_error. None can be copied or moved.
 *
 * Owner death throws lw::owner_died: latchwork/robust.hpp describes the state of the lock after it.
 *
 * pthread_cancel() and exceptions: a cancelled wait unwinds the C++ frames above it, as pthread's own waits do; it must
 * not reach a function that is noexcept.
 *
 * Coprocs: coproc.hpp. Manual: lw_cpp(3).
 */
#ifndef LATCHWORK_HPP
#define LATCHWORK_HPP

#include "latchwork.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

namespace lw {

/*
 * An owner of the lock died, or left its data inconsistent, and no task has repaired that yet. The calling task does
 * *not* hold the lock: see latchwork/robust.hpp.
 */
class owner_died : public std::system_error {
public:
	/* The native object of the lock. */
	explicit owner_died(const void *lock)
		: std::system_error(EOWNERDEAD, std::generic_category(), described(lock)), lock_(lock)
	{
	}
	const void *lock() const noexcept { return lock_; }
	/* Whether the exception is about this lock. */
	template <class Lock>
	bool is_of(Lock &lock) const noexcept
	{
		return lock_ == static_cast<const void *>(lock.native_handle());
	}

private:
	static std::string described(const void *lock)
	{
		char text[64];
		std::snprintf(text, sizeof text, "latchwork: the lock at %p", lock);
		return text;
	}

	const void *lock_;
};

namespace detail {

[[noreturn]] inline void fail(int error)
{
	throw std::system_error(error, std::generic_category(), "latchwork");
}

inline void check(int error)
{
	if (error != 0)
		fail(error);
}

/* False if the error is the expected one, which is not a fault of the caller's. */
inline bool check_but(int error, int expected)
{
	if (error == expected)
		return false;
	check(error);
	return true;
}

/* The additional operations of robust locks; other locks do not detect owner death. */
template <class Native>
struct robustness {
	static constexpr bool exists = false;
};

/* Converts the result of a call that was to acquire a lock: whether it did; throws other errors. */
template <class Native>
bool taken(Native &lock, int error, int expected = 0)
{
	if (error == 0)
		return true;
	if constexpr (robustness<Native>::exists) {
		if (error == EOWNERDEAD) {
			robustness<Native>::unlock_inconsistent(lock);
			throw owner_died(&lock);
		}
	}
	return check_but(error, expected);
}

inline uint32_t checked_ceiling(int ceiling)
{
	if (ceiling < 1 || ceiling > 99)
		fail(EINVAL);
	return static_cast<uint32_t>(ceiling);
}

/* Longer than any machine runs; much larger values do not fit in nanoseconds. */
constexpr long long for_ever = 9000000000;

template <class Rep, class Period>
bool is_for_ever(const std::chrono::duration<Rep, Period> &time)
{
	return std::chrono::duration<double>(time).count() >= static_cast<double>(for_ever);
}

template <class Duration>
struct timespec at(std::chrono::time_point<std::chrono::steady_clock, Duration> time)
{
	struct timespec at = {};
	if (is_for_ever(time.time_since_epoch())) {
		at.tv_sec = static_cast<time_t>(for_ever);
	} else if (time.time_since_epoch() > Duration::zero()) {
		auto since = std::chrono::ceil<std::chrono::nanoseconds>(time.time_since_epoch()).count();
		at.tv_sec = static_cast<time_t>(since / 1000000000);
		at.tv_nsec = static_cast<long>(since % 1000000000);
	}
	return at;
}

template <class Rep, class Period>
struct timespec after(std::chrono::duration<Rep, Period> time)
{
	using std::chrono::nanoseconds;
	using std::chrono::steady_clock;
	if (is_for_ever(time))
		return at(steady_clock::time_point(std::chrono::seconds(for_ever)));
	if (time <= time.zero())
		return at(steady_clock::time_point());
	return at(steady_clock::now() + std::chrono::ceil<nanoseconds>(time));
}

/* Converts a time of another clock to the steady clock, by their present difference. */
template <class Clock, class Duration>
struct timespec at(std::chrono::time_point<Clock, Duration> time)
{
	using seconds = std::chrono::duration<double>;
	using common = typename std::common_type<Duration, typename Clock::duration>::type;
	const auto now = Clock::now();
	const double then = seconds(time.time_since_epoch()).count();
	const double left = then - seconds(now.time_since_epoch()).count();
	/* Even the time itself may be too large for the type of the difference, and a little more than a double says. */
	const double most = seconds((common::max)()).count() * 0.99;
	if (left >= static_cast<double>(for_ever) || then >= most)
		return after(std::chrono::seconds(for_ever));
	if (left <= -1.0 || then <= -most || time <= now)
		return at(std::chrono::steady_clock::time_point());
	return after(time - now);
}

} // namespace detail

template <class Native>
class LW_CAPABILITY("mutex") basic_mutex {
public:
	using native_type = Native;
	using native_handle_type = Native *;

	constexpr basic_mutex() noexcept = default;
	/* From an initialiser of the C header: a ceiling or a threshold, for instance. */
	constexpr explicit basic_mutex(const Native &native) noexcept : native_(native) {}
	basic_mutex(const basic_mutex &) = delete;
	basic_mutex &operator=(const basic_mutex &) = delete;

	void lock() LW__ATTRIBUTE(acquire_capability()) { detail::taken(native_, lw_mutex_lock(&native_)); }
	bool try_lock() LW__ATTRIBUTE(try_acquire_capability(true))
	{
		return detail::taken(native_, lw_mutex_trylock(&native_), EBUSY);
	}
	template <class Clock, class Duration>
	bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time)
		LW__ATTRIBUTE(try_acquire_capability(true))
	{
		struct timespec at = detail::at(time);
		return detail::taken(native_, lw_mutex_timedlock(&native_, &at), ETIMEDOUT);
	}
	template <class Rep, class Period>
	bool try_lock_for(const std::chrono::duration<Rep, Period> &time)
		LW__ATTRIBUTE(try_acquire_capability(true))
	{
		struct timespec at = detail::after(time);
		return detail::taken(native_, lw_mutex_timedlock(&native_, &at), ETIMEDOUT);
	}
	/* If the data of a dead owner was not repaired, it stays inconsistent. */
	void unlock() LW__ATTRIBUTE(release_capability())
	{
		if constexpr (detail::robustness<Native>::exists) {
			if (LW__UNLIKELY(detail::robustness<Native>::is_inconsistent(native_)))
				return detail::check(detail::robustness<Native>::unlock_inconsistent(native_));
		}
		detail::check(lw_mutex_unlock(&native_));
	}
	/* Of throughput mutexes: lock(), and how it went. */
	template <class Kind = Native>
	struct lw_tp_acquisition lock_traced() LW__ATTRIBUTE(acquire_capability())
	{
		struct lw_tp_acquisition how = {};
		detail::taken(native_, lw_mutex_lock_traced(static_cast<Kind *>(&native_), &how));
		return how;
	}
	/*
	 * Of throughput mutexes: unlock(), and LW_TP_RELEASED_... (If data stays inconsistent, one sleeper is woken, and
	 * the result is LW_TP_RELEASED_WOKE.)
	 */
	template <class Kind = Native>
	int unlock_traced() LW__ATTRIBUTE(release_capability())
	{
		int released = LW_TP_RELEASED_WOKE;
		if constexpr (detail::robustness<Kind>::exists) {
			if (LW__UNLIKELY(detail::robustness<Kind>::is_inconsistent(native_))) {
				detail::check(detail::robustness<Kind>::unlock_inconsistent(native_));
				return released;
			}
		}
		detail::check(lw_mutex_unlock_traced(static_cast<Kind *>(&native_), &released));
		return released;
	}
	native_handle_type native_handle() noexcept { return &native_; }

protected:
	Native native_ = Native();
};

using mutex = basic_mutex<lw_mutex_t>;
/* Process-shared. The counterpart of std::shared_mutex is lw::rwlock. */
using shared_mutex = basic_mutex<lw_shared_mutex_t>;
using tp_mutex = basic_mutex<lw_tp_mutex_t>;
using shared_tp_mutex = basic_mutex<lw_shared_tp_mutex_t>;
using pi_mutex = basic_mutex<lw_pi_mutex_t>;
using shared_pi_mutex = basic_mutex<lw_shared_pi_mutex_t>;
using plain_pi_mutex = basic_mutex<lw_plain_pi_mutex_t>;
using shared_plain_pi_mutex = basic_mutex<lw_shared_plain_pi_mutex_t>;
using recursive_mutex = basic_mutex<lw_recursive_mutex_t>;
using spin = basic_mutex<lw_spin_t>;

/* With a priority ceiling, a SCHED_FIFO priority of 1 to 99. */
template <class Native>
class basic_pp_mutex : public basic_mutex<Native> {
public:
	explicit basic_pp_mutex(int ceiling) { this->native_.lw_gate = detail::checked_ceiling(ceiling); }
};
using pp_mutex = basic_pp_mutex<lw_pp_mutex_t>;
using shared_pp_mutex = basic_pp_mutex<lw_shared_pp_mutex_t>;

template <class Native>
class LW_CAPABILITY("rwlock") basic_rwlock {
public:
	using native_type = Native;
	using native_handle_type = Native *;

	constexpr basic_rwlock() noexcept = default;
	/* From an initialiser of the C header. */
	constexpr explicit basic_rwlock(const Native &native) noexcept : native_(native) {}
	basic_rwlock(const basic_rwlock &) = delete;
	basic_rwlock &operator=(const basic_rwlock &) = delete;

	void lock() LW__ATTRIBUTE(acquire_capability()) { detail::taken(native_, lw_rwlock_wrlock(&native_)); }
	bool try_lock() LW__ATTRIBUTE(try_acquire_capability(true))
	{
		return detail::taken(native_, lw_rwlock_trywrlock(&native_), EBUSY);
	}
	template <class Clock, class Duration>
	bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time)
		LW__ATTRIBUTE(try_acquire_capability(true))
	{
		struct timespec at = detail::at(time);
		return detail::taken(native_, lw_rwlock_timedwrlock(&native_, &at), ETIMEDOUT);
	}
	template <class Rep, class Period>
	bool try_lock_for(const std::chrono::duration<Rep, Period> &time)
		LW__ATTRIBUTE(try_acquire_capability(true))
	{
		struct timespec at = detail::after(time);
		return detail::taken(native_, lw_rwlock_timedwrlock(&native_, &at), ETIMEDOUT);
	}
	void unlock() LW__ATTRIBUTE(release_capability())
	{
		if constexpr (detail::robustness<Native>::exists) {
			if (LW__UNLIKELY(detail::robustness<Native>::is_inconsistent(native_)))
				return detail::check(detail::robustness<Native>::unlock_inconsistent(native_));
		}
		detail::check(lw_rwlock_unlock(&native_));
	}
	/* lock(), and how it went. */
	struct lw_rwlock_acquisition lock_traced() LW__ATTRIBUTE(acquire_capability())
	{
		struct lw_rwlock_acquisition how = {};
		detail::taken(native_, lw_rwlock_wrlock_traced(&native_, &how));
		return how;
	}
	/*
	 * unlock(), and LW_RWLOCK_RELEASED_... (If data stays inconsistent, one sleeper is woken, and the result is
	 * LW_RWLOCK_RELEASED_WOKE.)
	 */
	int unlock_traced() LW__ATTRIBUTE(release_capability())
	{
		int released = LW_RWLOCK_RELEASED_WOKE;
		if constexpr (detail::robustness<Native>::exists) {
			if (LW__UNLIKELY(detail::robustness<Native>::is_inconsistent(native_))) {
				detail::check(detail::robustness<Native>::unlock_inconsistent(native_));
				return released;
			}
		}
		detail::check(lw_rwlock_unlock_traced(&native_, &released));
		return released;
	}

	void lock_shared() LW__ATTRIBUTE(acquire_shared_capability())
	{
		detail::taken(native_, lw_rwlock_rdlock(&native_));
	}
	bool try_lock_shared() LW__ATTRIBUTE(try_acquire_shared_capability(true))
	{
		return detail::taken(native_, lw_rwlock_tryrdlock(&native_), EBUSY);
	}
	template <class Clock, class Duration>
	bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &time)
		LW__ATTRIBUTE(try_acquire_shared_capability(true))
	{
		struct timespec at = detail::at(time);
		return detail::taken(native_, lw_rwlock_timedrdlock(&native_, &at), ETIMEDOUT);
	}
	template <class Rep, class Period>
	bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &time)
		LW__ATTRIBUTE(try_acquire_shared_capability(true))
	{
		struct timespec at = detail::after(time);
		return detail::taken(native_, lw_rwlock_timedrdlock(&native_, &at), ETIMEDOUT);
	}
	void unlock_shared() LW__ATTRIBUTE(release_shared_capability())
	{
		detail::check(lw_rwlock_unlock(&native_));
	}
	/* lock_shared(), and how it went. */
	struct lw_rwlock_acquisition lock_shared_traced() LW__ATTRIBUTE(acquire_shared_capability())
	{
		struct lw_rwlock_acquisition how = {};
		detail::taken(native_, lw_rwlock_rdlock_traced(&native_, &how));
		return how;
	}
	/* unlock_shared(), and LW_RWLOCK_RELEASED_... */
	int unlock_shared_traced() LW__ATTRIBUTE(release_shared_capability())
	{
		int released = LW_RWLOCK_RELEASED_NO_SLEEPER;
		detail::check(lw_rwlock_unlock_traced(&native_, &released));
		return released;
	}
	native_handle_type native_handle() noexcept { return &native_; }

protected:
	Native native_ = Native();
};
using rwlock = basic_rwlock<lw_rwlock_t>;
using shared_rwlock = basic_rwlock<lw_shared_rwlock_t>;
using rf_rwlock = basic_rwlock<lw_rf_rwlock_t>;
using shared_rf_rwlock = basic_rwlock<lw_shared_rf_rwlock_t>;

} // namespace lw

#include "latchwork/robust.hpp"
#include "latchwork/wait.hpp"

#endif

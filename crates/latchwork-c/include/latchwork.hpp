/*
 * latchwork.hpp: the locks of latchwork.h as C++ classes.
 *
 *     lw::mutex, lw::tp_mutex, lw::pi_mutex, ...   Lockable, TimedLockable: for std::lock_guard,
 *                                                  std::unique_lock, std::scoped_lock, std::condition_variable_any
 *     lw::robust_mutex, ...                        the same; lock() throws lw::owner_died, with the lock taken
 *     lw::rwlock, ...                              SharedTimedLockable: for std::shared_lock, too
 *     lw::robust_rwlock                            the same; throws as robust mutexes do
 *     lw::condition, lw::semaphore, lw::completion, lw::barrier, lw::once
 *
 * Each has the C type as its only member, native(), so C, C++ and Rust may share one object. Errors are
 * std::system_error. None can be copied or moved.
 *
 * pthread_cancel() and exceptions: a cancelled wait unwinds the C++ frames above it, as pthread's own do; it
 * must not meet a function that is noexcept.
 */
#ifndef LATCHWORK_HPP
#define LATCHWORK_HPP

#include "latchwork.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <system_error>
#include <utility>

namespace lw {

/* The lock is taken, and its owner before died: what it protects may be half changed. */
class owner_died : public std::system_error {
public:
	owner_died() : std::system_error(EOWNERDEAD, std::generic_category(), "latchwork") {}
};

namespace detail {

inline void check(int error)
{
	if (error == EOWNERDEAD)
		throw owner_died();
	if (error != 0)
		throw std::system_error(error, std::generic_category(), "latchwork");
}

/* False if it is this one, which is no error of the caller's. */
inline bool check_but(int error, int expected)
{
	if (error == expected)
		return false;
	check(error);
	return true;
}

inline uint32_t checked_ceiling(int ceiling)
{
	if (ceiling < 1 || ceiling > 99)
		check(EINVAL);
	return static_cast<uint32_t>(ceiling);
}

/* Longer than any machine runs; nanoseconds have hardly room for more. */
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

/* Other clocks as they stand to the steady one now. */
template <class Clock, class Duration>
struct timespec at(std::chrono::time_point<Clock, Duration> time)
{
	const auto now = Clock::now();
	/* A difference may be more than there is room for. */
	return time <= now ? at(std::chrono::steady_clock::time_point()) : after(time - now);
}

} // namespace detail

template <class Native>
class LW_CAPABILITY("mutex") basic_mutex {
public:
	using native_type = Native;
	using native_handle_type = Native *;

	constexpr basic_mutex() noexcept = default;
	/* From an initialiser of the C header: a ceiling, for instance. */
	constexpr explicit basic_mutex(const Native &native) noexcept : native_(native) {}
	basic_mutex(const basic_mutex &) = delete;
	basic_mutex &operator=(const basic_mutex &) = delete;

	void lock() LW__ATTRIBUTE(acquire_capability()) { detail::check(lw_mutex_lock(&native_)); }
	bool try_lock() LW__ATTRIBUTE(try_acquire_capability(true))
	{
		return detail::check_but(lw_mutex_trylock(&native_), EBUSY);
	}
	template <class Clock, class Duration>
	bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time)
		LW__ATTRIBUTE(try_acquire_capability(true))
	{
		struct timespec at = detail::at(time);
		return detail::check_but(lw_mutex_timedlock(&native_, &at), ETIMEDOUT);
	}
	template <class Rep, class Period>
	bool try_lock_for(const std::chrono::duration<Rep, Period> &time)
		LW__ATTRIBUTE(try_acquire_capability(true))
	{
		struct timespec at = detail::after(time);
		return detail::check_but(lw_mutex_timedlock(&native_, &at), ETIMEDOUT);
	}
	void unlock() LW__ATTRIBUTE(release_capability()) { detail::check(lw_mutex_unlock(&native_)); }
	native_handle_type native_handle() noexcept { return &native_; }

protected:
	Native native_ = Native();
};

using mutex = basic_mutex<lw_mutex_t>;
/* Between processes. What std::shared_mutex is, is lw::rwlock. */
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

/*
 * After lw::owner_died the lock is held: repair the data, call consistent(), and go on, unlocking it in the end;
 * or unlock it as it is, which gives it up for good.
 */
template <class Native>
class basic_robust_mutex : public basic_mutex<Native> {
public:
	constexpr basic_robust_mutex() noexcept : basic_mutex<Native>(Native LW__LISTED_INITIALIZER(0)) {}
	void consistent() { detail::check(lw_mutex_consistent(&this->native_)); }
};
using robust_mutex = basic_robust_mutex<lw_robust_mutex_t>;
using robust_tp_mutex = basic_robust_mutex<lw_robust_tp_mutex_t>;
using robust_pi_mutex = basic_robust_mutex<lw_robust_pi_mutex_t>;

class robust_pp_mutex : public basic_robust_mutex<lw_robust_pp_mutex_t> {
public:
	explicit robust_pp_mutex(int ceiling) { native_.lw_extra = detail::checked_ceiling(ceiling); }
};

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

	void lock() LW__ATTRIBUTE(acquire_capability()) { detail::check(lw_rwlock_wrlock(&native_)); }
	bool try_lock() LW__ATTRIBUTE(try_acquire_capability(true))
	{
		return detail::check_but(lw_rwlock_trywrlock(&native_), EBUSY);
	}
	template <class Clock, class Duration>
	bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time)
	{
		struct timespec at = detail::at(time);
		return detail::check_but(lw_rwlock_timedwrlock(&native_, &at), ETIMEDOUT);
	}
	template <class Rep, class Period>
	bool try_lock_for(const std::chrono::duration<Rep, Period> &time)
	{
		struct timespec at = detail::after(time);
		return detail::check_but(lw_rwlock_timedwrlock(&native_, &at), ETIMEDOUT);
	}
	void unlock() LW__ATTRIBUTE(release_capability()) { detail::check(lw_rwlock_unlock(&native_)); }

	void lock_shared() LW__ATTRIBUTE(acquire_shared_capability())
	{
		detail::check(lw_rwlock_rdlock(&native_));
	}
	bool try_lock_shared() LW__ATTRIBUTE(try_acquire_shared_capability(true))
	{
		return detail::check_but(lw_rwlock_tryrdlock(&native_), EBUSY);
	}
	template <class Clock, class Duration>
	bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &time)
	{
		struct timespec at = detail::at(time);
		return detail::check_but(lw_rwlock_timedrdlock(&native_, &at), ETIMEDOUT);
	}
	template <class Rep, class Period>
	bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &time)
	{
		struct timespec at = detail::after(time);
		return detail::check_but(lw_rwlock_timedrdlock(&native_, &at), ETIMEDOUT);
	}
	void unlock_shared() LW__ATTRIBUTE(release_shared_capability())
	{
		detail::check(lw_rwlock_unlock(&native_));
	}
	native_handle_type native_handle() noexcept { return &native_; }

protected:
	Native native_ = Native();
};
using rwlock = basic_rwlock<lw_rwlock_t>;
using shared_rwlock = basic_rwlock<lw_shared_rwlock_t>;
using rf_rwlock = basic_rwlock<lw_rf_rwlock_t>;
using shared_rf_rwlock = basic_rwlock<lw_shared_rf_rwlock_t>;

/*
 * Between processes. After lw::owner_died the caller holds it as a writer, whatever it asked for; what then becomes
 * of it is as with robust mutexes.
 */
class robust_rwlock : public basic_rwlock<lw_robust_rwlock_t> {
public:
	constexpr robust_rwlock() noexcept
		: basic_rwlock<lw_robust_rwlock_t>(lw_robust_rwlock_t LW_ROBUST_RWLOCK_INITIALIZER)
	{
	}
	void consistent() { detail::check(lw_robust_rwlock_consistent(&native_)); }
};

/* For std::unique_lock of any mutex of this header. */
template <class Native>
class basic_condition {
public:
	using native_handle_type = Native *;

	constexpr basic_condition() noexcept = default;
	basic_condition(const basic_condition &) = delete;
	basic_condition &operator=(const basic_condition &) = delete;

	void notify_one() noexcept { lw_cond_signal(&native_); }
	void notify_all() noexcept { lw_cond_broadcast(&native_); }
	template <class Mutex>
	void wait(std::unique_lock<Mutex> &lock)
	{
		detail::check(lw_cond_wait(&native_, lock.mutex()->native_handle()));
	}
	template <class Mutex, class Predicate>
	void wait(std::unique_lock<Mutex> &lock, Predicate is_true)
	{
		while (!is_true())
			wait(lock);
	}
	template <class Mutex, class Clock, class Duration>
	std::cv_status wait_until(std::unique_lock<Mutex> &lock,
				  const std::chrono::time_point<Clock, Duration> &time)
	{
		struct timespec at = detail::at(time);
		return wait_at(lock, at) ? std::cv_status::no_timeout : std::cv_status::timeout;
	}
	template <class Mutex, class Clock, class Duration, class Predicate>
	bool wait_until(std::unique_lock<Mutex> &lock, const std::chrono::time_point<Clock, Duration> &time,
			Predicate is_true)
	{
		struct timespec at = detail::at(time);
		return wait_at(lock, at, is_true);
	}
	template <class Mutex, class Rep, class Period>
	std::cv_status wait_for(std::unique_lock<Mutex> &lock, const std::chrono::duration<Rep, Period> &time)
	{
		struct timespec at = detail::after(time);
		return wait_at(lock, at) ? std::cv_status::no_timeout : std::cv_status::timeout;
	}
	template <class Mutex, class Rep, class Period, class Predicate>
	bool wait_for(std::unique_lock<Mutex> &lock, const std::chrono::duration<Rep, Period> &time,
		      Predicate is_true)
	{
		struct timespec at = detail::after(time);
		return wait_at(lock, at, is_true);
	}
	native_handle_type native_handle() noexcept { return &native_; }

private:
	template <class Mutex>
	bool wait_at(std::unique_lock<Mutex> &lock, const struct timespec &at)
	{
		return detail::check_but(lw_cond_timedwait(&native_, lock.mutex()->native_handle(), &at), ETIMEDOUT);
	}
	template <class Mutex, class Predicate>
	bool wait_at(std::unique_lock<Mutex> &lock, const struct timespec &at, Predicate &is_true)
	{
		while (!is_true())
			if (!wait_at(lock, at))
				return is_true();
		return true;
	}

	Native native_ = Native();
};
using condition = basic_condition<lw_cond_t>;
using shared_condition = basic_condition<lw_shared_cond_t>;

class semaphore {
public:
	constexpr explicit semaphore(unsigned count = 0) noexcept : native_ LW_SEM_INITIALIZER(count) {}
	semaphore(const semaphore &) = delete;
	semaphore &operator=(const semaphore &) = delete;

	void acquire() { detail::check(lw_sem_wait(&native_)); }
	bool try_acquire() { return detail::check_but(lw_sem_trywait(&native_), EAGAIN); }
	template <class Rep, class Period>
	bool try_acquire_for(const std::chrono::duration<Rep, Period> &time)
	{
		struct timespec at = detail::after(time);
		return detail::check_but(lw_sem_timedwait(&native_, &at), ETIMEDOUT);
	}
	void release() { detail::check(lw_sem_post(&native_)); }
	lw_sem_t *native_handle() noexcept { return &native_; }

private:
	lw_sem_t native_;
};

class completion {
public:
	constexpr completion() noexcept = default;
	completion(const completion &) = delete;
	completion &operator=(const completion &) = delete;

	void wait() { detail::check(lw_completion_wait(&native_)); }
	void complete() noexcept { lw_completion_complete(&native_); }
	void complete_all() noexcept { lw_completion_complete_all(&native_); }
	bool is_done() const noexcept { return lw_completion_is_done(&native_) != 0; }
	lw_completion_t *native_handle() noexcept { return &native_; }

private:
	lw_completion_t native_ = LW_COMPLETION_INITIALIZER;
};

class barrier {
public:
	explicit barrier(unsigned tasks) { detail::check(lw_barrier_init(&native_, tasks)); }
	barrier(const barrier &) = delete;
	barrier &operator=(const barrier &) = delete;

	/* True for exactly one. */
	bool arrive_and_wait()
	{
		int answer = lw_barrier_wait(&native_);
		if (answer > 0)
			detail::check(answer);
		return answer == LW_BARRIER_SERIAL_TASK;
	}
	lw_barrier_t *native_handle() noexcept { return &native_; }

private:
	lw_barrier_t native_;
};

class once {
public:
	constexpr once() noexcept = default;
	once(const once &) = delete;
	once &operator=(const once &) = delete;

	/* If it is left by an exception, the next call runs it again. */
	void call(void (*initialise)()) { detail::check(lw_once(&native_, initialise)); }
	lw_once_t *native_handle() noexcept { return &native_; }

private:
	lw_once_t native_ = LW_ONCE_INITIALIZER;
};

} // namespace lw

#endif

/* Part of latchwork.hpp: condition variables, semaphores, completions, barriers, once. */
#ifndef LATCHWORK_WAIT_HPP
#define LATCHWORK_WAIT_HPP

namespace lw {

/*
 * For std::unique_lock of any mutex of this header. EPERM: the wait has not begun, and mutex and std::unique_lock are
 * as before: the calling task does not own the mutex, or has locked a recursive mutex more than once. A wait that
 * throws later, unless the predicate threw, has not acquired the mutex again, and the std::unique_lock owns nothing:
 * lw::owner_died, if the mutex's owner died meanwhile, or if the calling task had acquired the mutex from a dead owner,
 * and neither it before the wait nor another task in the wait has repaired the data.
 */
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
		wait_at(lock, nullptr);
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
		return wait_at(lock, &at) ? std::cv_status::no_timeout : std::cv_status::timeout;
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
		return wait_at(lock, &at) ? std::cv_status::no_timeout : std::cv_status::timeout;
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
	/* Returns whether the wait ended before its deadline. The mutex is held after it in both cases. */
	template <class Mutex>
	bool wait_at(std::unique_lock<Mutex> &lock, const struct timespec *at)
	{
		constexpr bool is_shared = std::is_same_v<Native, lw_shared_cond_t>;
		auto *native = lock.mutex()->native_handle();
		int released;
		using calls = detail::robustness<std::remove_pointer_t<decltype(native)>>;
		/* As in unlock(). */
		bool inconsistent = false;
		if constexpr (calls::exists)
			inconsistent = calls::is_inconsistent(*native);
		int error = lw__condition_wait(&native_, is_shared, native, lw__kind_of(native), inconsistent, at,
					       &released);
		if (error == 0)
			return true;
		if (error == ETIMEDOUT && released)
			return false;
		if (!released)
			detail::fail(error);
		/* If this scope is left, the std::unique_lock still, or again, owns the mutex. */
		Mutex *its = lock.release();
		lock = std::unique_lock<Mutex>(*its, std::defer_lock);
		if constexpr (detail::hears_of_deaths<Mutex>::value) {
			if (error == EOWNERDEAD) {
				its->after_owner_death();
				lock = std::unique_lock<Mutex>(*its, std::adopt_lock);
				return true;
			}
		}
		detail::fail(error);
	}
	template <class Mutex, class Predicate>
	bool wait_at(std::unique_lock<Mutex> &lock, const struct timespec &at, Predicate &is_true)
	{
		while (!is_true())
			if (!wait_at(lock, &at))
				return is_true();
		return true;
	}

	Native native_ = Native();
};
using condition = basic_condition<lw_cond_t>;
using shared_condition = basic_condition<lw_shared_cond_t>;

template <class Native>
class basic_semaphore {
public:
	using native_handle_type = Native *;

	/* EINVAL: more than LW_SEM_VALUE_MAX. */
	constexpr explicit basic_semaphore(unsigned count = 0) : native_ LW_SEM_INITIALIZER(counted(count)) {}
	basic_semaphore(const basic_semaphore &) = delete;
	basic_semaphore &operator=(const basic_semaphore &) = delete;

	void acquire() { detail::check(lw_sem_wait(&native_)); }
	bool try_acquire() { return detail::check_but(lw_sem_trywait(&native_), EAGAIN); }
	template <class Clock, class Duration>
	bool try_acquire_until(const std::chrono::time_point<Clock, Duration> &time)
	{
		struct timespec at = detail::at(time);
		return detail::check_but(lw_sem_timedwait(&native_, &at), ETIMEDOUT);
	}
	template <class Rep, class Period>
	bool try_acquire_for(const std::chrono::duration<Rep, Period> &time)
	{
		struct timespec at = detail::after(time);
		return detail::check_but(lw_sem_timedwait(&native_, &at), ETIMEDOUT);
	}
	/* EOVERFLOW: the count is at its maximum. */
	void release() { detail::check(lw_sem_post(&native_)); }
	native_handle_type native_handle() noexcept { return &native_; }

private:
	static constexpr unsigned counted(unsigned count)
	{
		if (count > LW_SEM_VALUE_MAX)
			detail::fail(EINVAL);
		return count;
	}

	Native native_;
};
using semaphore = basic_semaphore<lw_sem_t>;
using shared_semaphore = basic_semaphore<lw_shared_sem_t>;

template <class Native>
class basic_completion {
public:
	using native_handle_type = Native *;

	constexpr basic_completion() noexcept = default;
	basic_completion(const basic_completion &) = delete;
	basic_completion &operator=(const basic_completion &) = delete;

	void wait() { detail::check(lw_completion_wait(&native_)); }
	bool try_wait() { return detail::check_but(lw_completion_trywait(&native_), EAGAIN); }
	/* False if the deadline has passed. */
	template <class Clock, class Duration>
	bool wait_until(const std::chrono::time_point<Clock, Duration> &time)
	{
		struct timespec at = detail::at(time);
		return detail::check_but(lw_completion_timedwait(&native_, &at), ETIMEDOUT);
	}
	template <class Rep, class Period>
	bool wait_for(const std::chrono::duration<Rep, Period> &time)
	{
		struct timespec at = detail::after(time);
		return detail::check_but(lw_completion_timedwait(&native_, &at), ETIMEDOUT);
	}
	void complete() noexcept { lw_completion_complete(&native_); }
	void complete_all() noexcept { lw_completion_complete_all(&native_); }
	/* To be called without waiters; nothing is complete after it. */
	void reset() noexcept { lw_completion_reset(&native_); }
	bool is_done() const noexcept { return lw_completion_is_done(&native_) != 0; }
	native_handle_type native_handle() noexcept { return &native_; }

private:
	Native native_ = LW_COMPLETION_INITIALIZER;
};
using completion = basic_completion<lw_completion_t>;
using shared_completion = basic_completion<lw_shared_completion_t>;

/* How a wait at a barrier ended: all tasks have arrived, and exactly one of them gets "serial". */
enum class arrival { released, serial, timed_out };

template <class Native>
class basic_barrier {
public:
	using native_handle_type = Native *;

	/* EINVAL: not 1 to 65,535 tasks. */
	explicit basic_barrier(unsigned tasks) { detail::check(lw_barrier_init(&native_, tasks)); }
	basic_barrier(const basic_barrier &) = delete;
	basic_barrier &operator=(const basic_barrier &) = delete;

	/* Returns true to exactly one task. */
	bool arrive_and_wait() { return arrived(lw_barrier_wait(&native_)) == arrival::serial; }
	/* A task whose deadline has passed has not arrived. */
	template <class Clock, class Duration>
	arrival arrive_and_wait_until(const std::chrono::time_point<Clock, Duration> &time)
	{
		struct timespec at = detail::at(time);
		return arrived(lw_barrier_timedwait(&native_, &at));
	}
	template <class Rep, class Period>
	arrival arrive_and_wait_for(const std::chrono::duration<Rep, Period> &time)
	{
		struct timespec at = detail::after(time);
		return arrived(lw_barrier_timedwait(&native_, &at));
	}
	native_handle_type native_handle() noexcept { return &native_; }

private:
	static arrival arrived(int answer)
	{
		if (answer == LW_BARRIER_SERIAL_TASK)
			return arrival::serial;
		return detail::check_but(answer, ETIMEDOUT) ? arrival::released : arrival::timed_out;
	}

	Native native_;
};
using barrier = basic_barrier<lw_barrier_t>;
using shared_barrier = basic_barrier<lw_shared_barrier_t>;

namespace detail {

template <class Native>
class once_of {
public:
	once_of(const once_of &) = delete;
	once_of &operator=(const once_of &) = delete;

	/* If "initialise" throws, the next call runs it again. */
	void call(void (*initialise)()) { check(lw_once(&native_, initialise)); }
	Native *native_handle() noexcept { return &native_; }

protected:
	constexpr explicit once_of(const Native &native) noexcept : native_(native) {}

private:
	Native native_;
};

} // namespace detail

class once : public detail::once_of<lw_once_t> {
public:
	constexpr once() noexcept : once_of(lw_once_t LW_ONCE_INITIALIZER) {}
};
/* For data in a region: it must lie in one. std::errc::invalid_argument: it lies in none. */
class region_once : public detail::once_of<lw_region_once_t> {
public:
	constexpr region_once() noexcept : once_of(lw_region_once_t LW_REGION_ONCE_INITIALIZER) {}
};

} // namespace lw

#endif

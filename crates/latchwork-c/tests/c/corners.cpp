// Times of other clocks, times that are longer than a clock counts, and what the classes have beside the C functions.
#include "latchwork.hpp"

#include "check.h"

#include <atomic>
#include <thread>

using namespace std::chrono_literals;

static int runs;

// A clock that stands still, with an epoch of its own; it counts how often it is read.
struct stopped_clock {
	using duration = std::chrono::milliseconds;
	using rep = duration::rep;
	using period = duration::period;
	using time_point = std::chrono::time_point<stopped_clock>;
	static constexpr bool is_steady = true;
	static inline std::atomic<int> reads{0};
	static time_point now()
	{
		reads++;
		return time_point(1234567ms);
	}
};

static void other_clocks()
{
	const auto later = stopped_clock::now() + 20ms, earlier = stopped_clock::now() - 20ms;
	lw::mutex mutex;
	lw::rwlock rwlock;
	lw::condition changed;
	lw::semaphore semaphore(0);
	lw::completion done;
	std::unique_lock<lw::mutex> held(mutex);
	std::unique_lock<lw::rwlock> writes(rwlock);
	// Each of them ends, although this clock never reaches the time.
	auto each = [&](auto wait) {
		const auto begun = std::chrono::steady_clock::now();
		stopped_clock::reads = 0;
		/* lw_cpp(3) says: Timeouts may use any clock in the sense of <chrono> */
		/* lw_cpp(3) says: They are converted to CLOCK_MONOTONIC at the moment of the call */
		CHECK(!wait(later));
		CHECK(std::chrono::steady_clock::now() - begun >= 20ms);
		CHECK_IS(stopped_clock::reads, 1);
		CHECK(!wait(earlier));
	};
	auto in_a_thread = [&](auto wait) { std::thread([&] { each(wait); }).join(); };
	in_a_thread([&](auto time) { return mutex.try_lock_until(time); });
	in_a_thread([&](auto time) { return rwlock.try_lock_until(time); });
	in_a_thread([&](auto time) { return rwlock.try_lock_shared_until(time); });
	each([&](auto time) { return changed.wait_until(held, time, [] { return false; }); });
	each([&](auto time) { return semaphore.try_acquire_until(time); });
	each([&](auto time) { return done.wait_until(time); });
}

int main()
{
	alarm(WATCHDOG);
	other_clocks();
	constexpr auto for_ever = std::chrono::hours::max();
	lw::mutex mutex;
	lw::condition changed;
	bool notified = false;
	auto is_notified = [&] { return notified; };
	{
		std::unique_lock<lw::mutex> held(mutex);
		CHECK(!changed.wait_for(held, 1ms, is_notified));
		CHECK(!changed.wait_for(held, -for_ever, is_notified));
		CHECK(!changed.wait_until(held, std::chrono::system_clock::now() + 1ms, is_notified));
		CHECK(!changed.wait_until(held, std::chrono::steady_clock::time_point::min(), is_notified));
		CHECK(!changed.wait_until(held, std::chrono::system_clock::time_point::min(), is_notified));
		CHECK(changed.wait_for(held, -1s) == std::cv_status::timeout);
	}
	// None of these ends by its time.
	auto outlasts = [&](auto lock, auto wait) {
		std::thread teller([&] {
			std::unique_lock<lw::mutex> held(mutex);
			std::this_thread::sleep_for(5ms);
			notified = true;
			changed.notify_all();
		});
		CHECK(lock());
		{
			std::unique_lock<lw::mutex> held(mutex, std::adopt_lock);
			CHECK(wait(held));
			notified = false;
		}
		teller.join();
	};
	outlasts([&] { return mutex.try_lock_for(for_ever); },
		 [&](auto &held) { return changed.wait_for(held, for_ever, is_notified); });
	auto times_outlast = [&](auto one, auto other) {
		outlasts([&] { return mutex.try_lock_until(one); },
			 [&](auto &held) { return changed.wait_until(held, other, is_notified); });
	};
	times_outlast(std::chrono::steady_clock::time_point::max(), std::chrono::system_clock::time_point::max());
	// Such times do not fit in the nanoseconds of their clock.
	using hours = std::chrono::time_point<std::chrono::system_clock, std::chrono::hours>;
	using years = std::chrono::time_point<stopped_clock, std::chrono::duration<long, std::ratio<31556952>>>;
	using doubles = std::chrono::time_point<std::chrono::system_clock, std::chrono::duration<double>>;
	const auto in_300_years = hours(std::chrono::hours(2700000));
	times_outlast(in_300_years, hours::max());
	times_outlast(years::max(), doubles::max());
	{
		std::unique_lock<lw::mutex> held(mutex);
		CHECK(!changed.wait_until(held, hours::min(), is_notified));
		CHECK(!changed.wait_until(held, years::min(), is_notified));
		CHECK(!changed.wait_until(held, doubles::min(), is_notified));
		CHECK(!changed.wait_until(held, -doubles::max().time_since_epoch() + doubles(), is_notified));
	}
	lw::once once;
	for (int time = 0; time < 2; time++)
		once.call([] { runs++; });
	CHECK_IS(runs, 1);
	std::puts("cornered");
	return 0;
}

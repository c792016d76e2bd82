// Times that are longer than a clock counts, and what the classes have beside the C functions.
#include "latchwork.hpp"

#include "check.h"

#include <thread>

using namespace std::chrono_literals;

static int runs;

int main()
{
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
	std::thread teller([&] {
		std::unique_lock<lw::mutex> held(mutex);
		std::this_thread::sleep_for(5ms);
		notified = true;
		changed.notify_all();
	});
	{
		CHECK(mutex.try_lock_for(for_ever));
		std::unique_lock<lw::mutex> held(mutex, std::adopt_lock);
		CHECK(changed.wait_for(held, for_ever, is_notified));
		notified = false;
	}
	teller.join();
	std::thread again([&] {
		std::unique_lock<lw::mutex> held(mutex);
		std::this_thread::sleep_for(5ms);
		notified = true;
		changed.notify_all();
	});
	{
		CHECK(mutex.try_lock_until(std::chrono::steady_clock::time_point::max()));
		std::unique_lock<lw::mutex> held(mutex, std::adopt_lock);
		CHECK(changed.wait_until(held, std::chrono::system_clock::time_point::max(), is_notified));
	}
	again.join();
	lw::once once;
	for (int time = 0; time < 2; time++)
		once.call([] { runs++; });
	CHECK_IS(runs, 1);
	std::puts("cornered");
	return 0;
}

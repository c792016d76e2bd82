// The C++ classes with the standard's own helpers.
#include "latchwork.hpp"

#include "check.h"

#include <thread>
#include <vector>

using namespace std::chrono_literals;

template <class Mutex>
static void counts(Mutex &mutex)
{
	long count = 0;
	std::vector<std::thread> threads;
	for (int task = 0; task < 4; task++)
		threads.emplace_back([&] {
			for (int round = 0; round < 1000; round++) {
				std::lock_guard<Mutex> held(mutex);
				count++;
			}
		});
	for (auto &thread : threads)
		thread.join();
	CHECK_IS(count, 4000);
	std::unique_lock<Mutex> held(mutex, std::try_to_lock);
	CHECK(held.owns_lock());
	std::thread([&] {
		CHECK(!mutex.try_lock());
		CHECK(!mutex.try_lock_for(1ms));
		CHECK(!mutex.try_lock_until(std::chrono::system_clock::now() + 1ms));
	}).join();
}

template <class Mutex>
static void waits()
{
	Mutex mutex;
	lw::condition changed;
	std::condition_variable_any any;
	bool notified = false, answered = false;
	std::thread other([&] {
		std::unique_lock<Mutex> held(mutex);
		changed.wait(held, [&] { return notified; });
		answered = true;
		any.notify_all();
	});
	{
		std::unique_lock<Mutex> held(mutex);
		notified = true;
		changed.notify_one();
		any.wait(held, [&] { return answered; });
		CHECK(changed.wait_for(held, 1ms) == std::cv_status::timeout);
	}
	other.join();
}

// A wait that could not begin: the mutex, and who owns it, are as before.
template <class Condition>
static void refused_waits()
{
	lw::recursive_mutex mutex;
	Condition changed;
	std::unique_lock<lw::recursive_mutex> once(mutex), twice(mutex);
	auto refused = [&](auto wait) {
		try {
			wait();
			CHECK(false);
		} catch (const std::system_error &error) {
			CHECK(error.code() == std::errc::operation_not_permitted);
		}
		CHECK(once.owns_lock() && twice.owns_lock());
	};
	auto is_free = [&] {
		bool is_free = false;
		std::thread([&] {
			is_free = mutex.try_lock();
			if (is_free)
				mutex.unlock();
		}).join();
		return is_free;
	};
	/* lw_cpp(3) says: It then throws std::system_error with the error EPERM, and the std::unique_lock is as before */
	refused([&] { changed.wait(twice); });
	refused([&] { changed.wait(twice, [] { return false; }); });
	refused([&] { changed.wait_for(twice, 1ms); });
	refused([&] { changed.wait_until(twice, std::chrono::system_clock::now(), [] { return false; }); });
	twice.unlock();
	CHECK(!is_free());
	CHECK(changed.wait_for(once, 1ms) == std::cv_status::timeout);
	CHECK(!is_free());
	once.unlock();
	CHECK(is_free());
}

static int destroyed;
struct counted {
	~counted() { destroyed++; }
};

static lw::semaphore never(0);

static void *wait_for_ever(void *)
{
	counted here;
	never.acquire();
	return nullptr;
}

static lw_once_t once = LW_ONCE_INITIALIZER;
static int runs;

int main()
{
	lw::mutex plain;
	lw::tp_mutex tp;
	lw::pi_mutex pi;
	lw::shared_mutex shared;
	lw::robust_mutex robust;
	lw::robust_pi_mutex robust_pi;
	counts(plain);
	counts(tp);
	counts(pi);
	counts(shared);
	counts(robust);
	counts(robust_pi);
	waits<lw::mutex>();
	waits<lw::tp_mutex>();
	waits<lw::pi_mutex>();
	waits<lw::robust_mutex>();
	refused_waits<lw::condition>();
	refused_waits<lw::shared_condition>();
	{
		// In whatever order, without a deadlock.
		std::thread other([&] {
			for (int round = 0; round < 500; round++)
				std::scoped_lock held(pi, tp, plain);
		});
		for (int round = 0; round < 500; round++)
			std::scoped_lock held(plain, tp, pi);
		other.join();
	}
	lw::rwlock table;
	{
		std::shared_lock<lw::rwlock> reading(table);
		std::thread([&] {
			CHECK(table.try_lock_shared());
			table.unlock_shared();
			CHECK(!table.try_lock());
		}).join();
	}
	{
		std::unique_lock<lw::rwlock> writing(table);
		std::thread([&] { CHECK(!table.try_lock_shared_for(1ms)); }).join();
	}
	try {
		std::scoped_lock held(tp);
		tp.lock();
		CHECK(false);
	} catch (const std::system_error &error) {
		CHECK(error.code() == std::errc::resource_deadlock_would_occur);
	}
	for (int ceiling : {0, 100}) {
		try {
			lw::robust_pp_mutex none(ceiling);
			CHECK(false);
		} catch (const std::system_error &error) {
			CHECK(error.code() == std::errc::invalid_argument);
		}
	}
	// A thread that is cancelled in a wait: its frames are unwound.
	pthread_t thread = start(wait_for_ever, nullptr);
	sleep_ms(2);
	pthread_cancel(thread);
	CHECK(join(thread) == PTHREAD_CANCELED);
	CHECK_IS(destroyed, 1);
	// An initialisation that throws has not been run.
	try {
		lw_once(&once, [] {
			runs++;
			throw 1;
		});
		CHECK(false);
	} catch (int) {
	}
	CHECK_IS(lw_once(&once, [] { runs++; }), 0);
	CHECK_IS(runs, 2);
	lw::completion done;
	lw::barrier meeting(2);
	std::thread partner([&] {
		done.wait();
		meeting.arrive_and_wait();
	});
	done.complete();
	meeting.arrive_and_wait();
	partner.join();
	std::puts("held");
	return 0;
}

// The C++ classes of throughput mutexes: traced calls, and thresholds.
#include <cerrno>
#include <cstdio>
#include <thread>

#include "latchwork.hpp"

#include "check.h"

template <class Native>
static uint32_t requests(const Native *mutex)
{
	return __atomic_load_n(&mutex->lw_request, __ATOMIC_RELAXED);
}
template <>
uint32_t requests(const lw_robust_tp_mutex_t *mutex)
{
	return __atomic_load_n(&mutex->lw_extra, __ATOMIC_RELAXED);
}

// A waiter requests the hand-off, and has set the bit that shows it.
template <class Mutex>
static void await_request(Mutex &mutex)
{
	while (!(__atomic_load_n(&mutex.native_handle()->lw_word, __ATOMIC_RELAXED) & 0x80000000u) ||
	       requests(mutex.native_handle()) == 0)
		sleep_ms(1);
}

template <class Mutex>
static void traced(Mutex &mutex)
{
	/* lw_cpp(3) says: tp_mutex, shared_tp_mutex and robust_tp_mutex have lock_traced(), which returns a struct lw_tp_acquisition */
	struct lw_tp_acquisition how = mutex.lock_traced(), waited = {};
	CHECK_IS(how.entry, LW_TP_ENTRY_FREE);
	CHECK_IS(how.sleeps, 0);
	std::thread waiter([&] {
		waited = mutex.lock_traced();
		mutex.unlock();
	});
	await_request(mutex);
	CHECK_IS(mutex.unlock_traced(), LW_TP_RELEASED_HANDED_OFF);
	waiter.join();
	CHECK_IS(waited.entry, LW_TP_ENTRY_HANDED_OFF);
	try {
		mutex.unlock_traced();
		CHECK(false);
	} catch (const std::system_error &error) {
		CHECK_IS(error.code().value(), EPERM);
	}
	mutex.lock();
	try {
		mutex.lock_traced();
		CHECK(false);
	} catch (const std::system_error &error) {
		CHECK_IS(error.code().value(), EDEADLK);
	}
	CHECK_IS(mutex.unlock_traced(), LW_TP_RELEASED_NO_SLEEPER);
}

static void a_dead_owner_is_reported()
{
	static lw::robust_tp_mutex mutex;
	auto dies = [](void *unused) -> void * {
		mutex.lock();
		return unused;
	};
	join(start(dies, nullptr));
	try {
		mutex.lock_traced();
		CHECK(false);
	} catch (const lw::owner_died &died) {
		CHECK(died.is_of(mutex));
	}
	// Unlocked without a repair, it stays inconsistent.
	CHECK(mutex.lock_recover());
	CHECK_IS(mutex.unlock_traced(), LW_TP_RELEASED_WOKE);
	CHECK(mutex.lock_recover());
	mutex.consistent();
	// The mutex was passed on as one that others may sleep on.
	CHECK_IS(mutex.unlock_traced(), LW_TP_RELEASED_WOKE);
	CHECK_IS(mutex.lock_traced().entry, LW_TP_ENTRY_FREE);
	CHECK_IS(mutex.unlock_traced(), LW_TP_RELEASED_NO_SLEEPER);
}

static void another_time_is_set()
{
	/* lw_cpp(3) says: To set another time, pass an initialiser to the constructor */
	lw::tp_mutex busy(lw_tp_mutex_t LW_TP_MUTEX_HAND_OFF_INITIALIZER(500));
	CHECK_IS(busy.lock_traced().entry, LW_TP_ENTRY_FREE);
	busy.unlock();
	lw::tp_mutex slow(lw_tp_mutex_t LW_TP_MUTEX_HAND_OFF_INITIALIZER(200000));
	slow.lock();
	const auto begun = std::chrono::steady_clock::now();
	std::thread waiter([&] {
		slow.lock();
		slow.unlock();
	});
	await_request(slow);
	// A waiter that has slept requests the hand-off after an eighth of the time; even that is more than 5 ms.
	CHECK(std::chrono::steady_clock::now() - begun >= std::chrono::milliseconds(25));
	CHECK_IS(slow.unlock_traced(), LW_TP_RELEASED_HANDED_OFF);
	waiter.join();
}

int main()
{
	alarm(WATCHDOG);
	static lw::tp_mutex plain(lw_tp_mutex_t LW_TP_MUTEX_HAND_OFF_INITIALIZER(0));
	static lw::shared_tp_mutex shared(lw_shared_tp_mutex_t LW_SHARED_TP_MUTEX_HAND_OFF_INITIALIZER(0));
	static lw::robust_tp_mutex robust(lw_robust_tp_mutex_t LW_ROBUST_TP_MUTEX_HAND_OFF_INITIALIZER(0));
	traced(plain);
	traced(shared);
	traced(robust);
	a_dead_owner_is_reported();
	another_time_is_set();
	std::puts("traced");
}

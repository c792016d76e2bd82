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

template <class Mutex>
static void traced(Mutex &mutex)
{
	struct lw_tp_acquisition how = mutex.lock_traced(), waited = {};
	CHECK_IS(how.entry, LW_TP_ENTRY_FREE);
	CHECK_IS(how.sleeps, 0);
	std::thread waiter([&] {
		waited = mutex.lock_traced();
		mutex.unlock();
	});
	// It requests the hand-off, and has set the bit that shows it.
	while (!(__atomic_load_n(&mutex.native_handle()->lw_word, __ATOMIC_RELAXED) & 0x80000000u) ||
	       requests(mutex.native_handle()) == 0)
		sleep_ms(1);
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

int main()
{
	static lw::tp_mutex plain(lw_tp_mutex_t LW_TP_MUTEX_HAND_OFF_INITIALIZER(0));
	static lw::shared_tp_mutex shared(lw_shared_tp_mutex_t LW_SHARED_TP_MUTEX_HAND_OFF_INITIALIZER(0));
	static lw::robust_tp_mutex robust(lw_robust_tp_mutex_t LW_ROBUST_TP_MUTEX_HAND_OFF_INITIALIZER(0));
	traced(plain);
	traced(shared);
	traced(robust);
	a_dead_owner_is_reported();
	std::puts("traced");
}

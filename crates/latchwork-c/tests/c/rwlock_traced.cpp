// The C++ classes of reader/writer locks: traced calls, and the threshold of the robust one.
#include <cerrno>
#include <cstdio>
#include <thread>

#include "latchwork.hpp"

#include "check.h"

/* Whether a task has waited for too long. */
template <class Native>
static bool starves(const Native *lock)
{
	return (__atomic_load_n(&lock->lw_state, __ATOMIC_RELAXED) & (UINT64_C(0x3f) << 24)) != 0;
}
template <>
bool starves(const lw_robust_rwlock_t *lock)
{
	const lw_robust_mutex_t &gate = lock->lw_lines[0].lw_lock;
	return (__atomic_load_n(&gate.lw_word, __ATOMIC_RELAXED) & 0x80000000u) != 0 &&
	       __atomic_load_n(&gate.lw_extra, __ATOMIC_RELAXED) != 0;
}

template <class Lock>
static void traced(Lock &lock)
{
	/* lw_cpp(3) says: The classes of reader/writer locks have lock_traced() and lock_shared_traced() */
	struct lw_rwlock_acquisition how = lock.lock_shared_traced(), reads = {}, writes = {};
	CHECK_IS(how.entry, LW_RWLOCK_ENTRY_FREE);
	CHECK_IS(how.sleeps, 0);
	CHECK_IS(lock.unlock_shared_traced(), LW_RWLOCK_RELEASED_NO_SLEEPER);
	try {
		lock.unlock_shared_traced();
		CHECK(false);
	} catch (const std::system_error &error) {
		CHECK_IS(error.code().value(), EPERM);
	}
	for (int attempt = 0;; attempt++) {
		CHECK(attempt < 1000);
		CHECK_IS(lock.lock_traced().entry, LW_RWLOCK_ENTRY_FREE);
		std::thread waiter([&] {
			writes = lock.lock_traced();
			lock.unlock();
		});
		while (!starves(lock.native_handle()))
			sleep_ms(1);
		const int released = lock.unlock_traced();
		waiter.join();
		if (released == LW_RWLOCK_RELEASED_HANDED_OFF && writes.entry == LW_RWLOCK_ENTRY_HANDED_OFF)
			break;
	}
	lock.lock();
	std::thread reader([&] {
		reads = lock.lock_shared_traced();
		lock.unlock_shared();
	});
	while (!starves(lock.native_handle()))
		sleep_ms(1);
	CHECK(lock.unlock_traced() != LW_RWLOCK_RELEASED_NO_SLEEPER);
	reader.join();
	CHECK(reads.entry != LW_RWLOCK_ENTRY_FREE);
}

static void a_dead_writer_is_reported()
{
	static lw::robust_rwlock lock;
	auto dies = [](void *unused) -> void * {
		lock.lock();
		return unused;
	};
	join(start(dies, nullptr));
	try {
		lock.lock_shared_traced();
		CHECK(false);
	} catch (const lw::owner_died &died) {
		CHECK(died.is_of(lock));
	}
	// Unlocked without a repair, it stays inconsistent.
	CHECK(lock.lock_recover());
	CHECK_IS(lock.unlock_traced(), LW_RWLOCK_RELEASED_WOKE);
	CHECK(lock.lock_recover());
	lock.consistent();
	// The gate was passed on as one that others may sleep on.
	CHECK_IS(lock.unlock_traced(), LW_RWLOCK_RELEASED_WOKE);
	CHECK_IS(lock.lock_traced().entry, LW_RWLOCK_ENTRY_FREE);
	CHECK_IS(lock.unlock_traced(), LW_RWLOCK_RELEASED_NO_SLEEPER);
}

static void another_time_is_set()
{
	/* lw_cpp(3) says: The constructor of robust_rwlock takes an initialiser with a time, too */
	static lw::robust_rwlock slow(lw_robust_rwlock_t LW_ROBUST_RWLOCK_HAND_OFF_INITIALIZER(200000));
	slow.lock();
	const auto begun = std::chrono::steady_clock::now();
	std::thread waiter([&] {
		slow.lock();
		slow.unlock();
	});
	while (!starves(slow.native_handle()))
		sleep_ms(1);
	// A waiter that has slept requests the hand-off after an eighth of the time; even that is more than 5 ms.
	CHECK(std::chrono::steady_clock::now() - begun >= std::chrono::milliseconds(25));
	slow.unlock();
	waiter.join();
}

int main()
{
	alarm(WATCHDOG);
	static lw::rwlock plain;
	static lw::shared_rf_rwlock shared;
	static lw::robust_rwlock robust(lw_robust_rwlock_t LW_ROBUST_RWLOCK_HAND_OFF_INITIALIZER(0));
	traced(plain);
	traced(shared);
	traced(robust);
	a_dead_writer_is_reported();
	another_time_is_set();
	std::puts("traced");
}

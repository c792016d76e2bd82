// Owners that are killed, and the standard's guards: no lock stays locked, and none is given up by an exception.
#include "latchwork.hpp"

#include "check.h"

#include <latchwork/region.hpp>

#include <csignal>
#include <new>
#include <thread>

using namespace std::chrono_literals;

// What processes share: a lock, and data that is whole if both are the same.
template <class Lock>
struct field {
	Lock lock;
	int left = 0, right = 0;
};

template <class Lock>
struct pp : Lock {
	pp() : Lock(1) {}
};

template <class Lock>
static field<Lock> *make()
{
	if constexpr (std::is_same_v<Lock, lw::region_mutex> || std::is_same_v<Lock, lw::region_tp_mutex> ||
	              std::is_same_v<Lock, lw::region_rwlock>) {
		static lw::region region;
		return new (region.allocate(sizeof(field<Lock>), alignof(field<Lock>))) field<Lock>();
	}
	return new (share(sizeof(field<Lock>))) field<Lock>();
}

// A process takes the lock and dies half-way through a change.
template <class Field>
static void kill_an_owner(Field &field)
{
	pid_t child = fork();
	if (child == 0) {
		field.lock.lock();
		field.left++;
		raise(SIGKILL);
	}
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
}

// Another task can acquire it at once: it is free and consistent.
template <class Lock>
static void is_free(Lock &lock)
{
	std::thread([&] {
		CHECK(lock.try_lock());
		lock.unlock();
	}).join();
}

template <class Body>
static void dies(Body body, const void *lock)
{
	try {
		body();
	} catch (const lw::owner_died &died) {
		/* lw_cpp(3) says: The exception's lock() returns the address of the lock */
		CHECK(died.lock() == lock);
		CHECK(died.code().value() == EOWNERDEAD);
		CHECK(std::string(died.what()).find("0x") != std::string::npos);
		return;
	}
	CHECK(!"it should have thrown");
}

template <class Lock>
static void repair(field<Lock> &field)
{
	/* lw_cpp(3) says: acquires the lock (a reader/writer lock for writing), and returns whether the data is inconsistent */
	/* lw_cpp(3) says: Then pass the lock to a guard with std::adopt_lock, repair the data, and call consistent() */
	CHECK(field.lock.lock_recover());
	std::lock_guard<Lock> held(field.lock, std::adopt_lock);
	CHECK_IS(field.left, field.right + 1);
	field.right = field.left;
	field.lock.consistent();
}

// By whatever way the lock is asked for, by whatever guard.
template <class Lock>
static void throws_and_holds_nothing()
{
	auto &field = *make<Lock>();
	const void *native = field.lock.native_handle();
	kill_an_owner(field);
	for (int time = 0; time < 2; time++) {
		dies([&] { std::lock_guard<Lock> held(field.lock); }, native);
		dies([&] { std::unique_lock<Lock> held(field.lock); }, native);
		dies([&] { std::unique_lock<Lock> held(field.lock, std::try_to_lock); }, native);
		dies([&] { std::unique_lock<Lock> held(field.lock, 1h); }, native);
		dies([&] { (void)field.lock.try_lock_until(std::chrono::system_clock::now()); }, native);
		dies([&] { std::scoped_lock<Lock> held(field.lock); }, native);
		// In another thread, too: none of them has kept it.
		std::thread([&] { dies([&] { field.lock.lock(); }, native); }).join();
	}
	std::unique_lock<Lock> later(field.lock, std::defer_lock);
	dies([&] { later.lock(); }, native);
	CHECK(!later.owns_lock());
	try {
		field.lock.lock();
	} catch (const lw::owner_died &died) {
		/* lw_cpp(3) says: is_of(m) returns whether m is that lock */
		CHECK(died.is_of(field.lock));
		CHECK(!died.is_of(make<Lock>()->lock));
	}
	/* lw_cpp(3) says: This continues until a task has repaired the data, or has given the lock up */
	repair(field);
	is_free(field.lock);
	CHECK(!field.lock.lock_recover());
	field.lock.unlock();
}

// A repair that is left by an exception, or forgotten, is the next one's; only give_up() is for ever.
template <class Lock>
static void an_unfinished_repair_is_the_next_ones()
{
	auto &field = *make<Lock>();
	kill_an_owner(field);
	try {
		CHECK(field.lock.lock_recover());
		std::lock_guard<Lock> held(field.lock, std::adopt_lock);
		throw 7;
	} catch (int) {
	}
	CHECK(field.lock.lock_recover());
	field.lock.unlock();
	// A death in the repair is one more.
	pid_t child = fork();
	if (child == 0) {
		if (field.lock.lock_recover())
			raise(SIGKILL);
		_exit(1);
	}
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	repair(field);
	is_free(field.lock);
	// Without a death: who cannot finish a change says so.
	field.lock.lock();
	field.left++;
	field.lock.unlock_inconsistent();
	dies([&] { field.lock.lock(); }, field.lock.native_handle());
	repair(field);
	field.lock.lock();
	try {
		field.lock.give_up();
		CHECK(false);
	} catch (const std::system_error &error) {
		CHECK_IS(error.code().value(), EINVAL);
	}
	field.lock.unlock();
	kill_an_owner(field);
	CHECK(field.lock.lock_recover());
	/* lw_cpp(3) says: give_up() releases the lock without a repair, and makes it permanently unusable */
	field.lock.give_up();
	for (int time = 0; time < 2; time++) {
		try {
			field.lock.lock();
			CHECK(false);
		} catch (const std::system_error &error) {
			CHECK_IS(error.code().value(), ENOTRECOVERABLE);
		}
	}
	try {
		field.lock.unlock();
		CHECK(false);
	} catch (const std::system_error &error) {
		CHECK_IS(error.code().value(), EPERM);
	}
}

// std::lock's algorithm: whichever of them throws, the other one is released.
template <class Lock>
static void two_at_a_time()
{
	auto &one = *make<Lock>(), &two = *make<Lock>();
	lw::mutex third;
	for (auto *dead : {&one, &two}) {
		kill_an_owner(*dead);
		dies([&] { std::scoped_lock both(one.lock, two.lock); }, dead->lock.native_handle());
		dies([&] { std::scoped_lock both(two.lock, one.lock); }, dead->lock.native_handle());
		dies([&] { std::lock(one.lock, third, two.lock); }, dead->lock.native_handle());
		dies([&] { std::lock(third, two.lock, one.lock); }, dead->lock.native_handle());
		dies([&] { (void)std::try_lock(third, one.lock, two.lock); }, dead->lock.native_handle());
		is_free(third);
		is_free(dead == &one ? two.lock : one.lock);
		repair(*dead);
		is_free(dead->lock);
	}
	kill_an_owner(one);
	kill_an_owner(two);
	int repairs = 0;
	auto fix = [&](auto &field) {
		return [&] {
			CHECK_IS(field.left, field.right + 1);
			field.right = field.left;
			repairs++;
		};
	};
	lw::recovering first(one.lock, fix(one)), second(two.lock, fix(two));
	{
		std::scoped_lock both(first, third, second);
		CHECK_IS(repairs, 2);
		CHECK(one.left == one.right && two.left == two.right);
	}
	{
		std::scoped_lock both(second, first);
	}
	CHECK_IS(repairs, 2);
	is_free(one.lock);
	is_free(two.lock);
	is_free(third);
}

// A lock that repairs by itself, under each guard.
template <class Lock>
static void a_policy_repairs()
{
	auto &field = *make<Lock>();
	int repairs = 0;
	bool fails = false;
	lw::recovering lock(field.lock, [&] {
		if (fails)
			throw 7;
		field.right = field.left;
		repairs++;
	});
	using policy = decltype(lock);
	auto each = [&](auto take) {
		int before = repairs;
		kill_an_owner(field);
		take();
		CHECK_IS(repairs, before + 1);
		is_free(field.lock);
		take();
		CHECK_IS(repairs, before + 1);
	};
	each([&] { std::lock_guard<policy> held(lock); });
	each([&] { std::unique_lock<policy> held(lock, std::try_to_lock); CHECK(held.owns_lock()); });
	each([&] { std::unique_lock<policy> held(lock, 1h); CHECK(held.owns_lock()); });
	each([&] { CHECK(lock.try_lock_until(std::chrono::steady_clock::now())); lock.unlock(); });
	each([&] { std::scoped_lock<policy> held(lock); });
	/* lw_cpp(3) says: If repair() throws, the lock is released, and the next task gets lw::owner_died */
	kill_an_owner(field);
	fails = true;
	try {
		std::lock_guard<policy> held(lock);
		CHECK(false);
	} catch (int) {
	}
	dies([&] { field.lock.lock(); }, field.lock.native_handle());
	fails = false;
	std::lock_guard<policy>{lock};
	is_free(field.lock);
	std::unique_lock<policy> held(lock);
	std::thread([&] { CHECK(!lock.try_lock() && !lock.try_lock_for(1ms)); }).join();
}

// A thread that ends with the lock is a death, too: here of one that was to notify.
template <class Condition, class Lock, class Guarded>
static void in_a_wait(Guarded &guarded, field<Lock> &field, bool repairs)
{
	Condition changed;
	std::unique_lock<Guarded> held(guarded);
	std::thread other([&] {
		field.lock.lock();
		field.left++;
		changed.notify_all();
	});
	int before = field.left;
	if (repairs) {
		changed.wait(held, [&] { return field.left != before; });
		CHECK(held.owns_lock());
		CHECK_IS(field.left, field.right);
		held.unlock();
	} else {
		/* lw_cpp(3) says: If the wait itself, not its predicate, throws later, the std::unique_lock no longer owns the lock */
		dies([&] { changed.wait(held, [&] { return false; }); }, field.lock.native_handle());
		CHECK(!held.owns_lock());
		CHECK(held.mutex() == &guarded);
		repair(field);
		held.lock();
		held.unlock();
	}
	other.join();
	is_free(field.lock);
}

// A wait by a task that has the lock from a dead owner, and has not repaired the data.
template <class Condition, class Lock>
static void a_wait_leaves_the_repair_to_the_next_task(field<Lock> &field)
{
	const void *native = field.lock.native_handle();
	Condition changed;
	kill_an_owner(field);
	/* lw_cpp(3) says: To wait while the data is still inconsistent has the effect of an unlock() without consistent() */
	// No other task repairs it.
	for (int time = 0; time < 2; time++) {
		CHECK(field.lock.lock_recover());
		std::unique_lock<Lock> held(field.lock, std::adopt_lock);
		dies([&] { changed.wait_for(held, 1ms); }, native);
		CHECK(!held.owns_lock());
		dies([&] { field.lock.lock(); }, native);
	}
	// Another task does. (A wait may also end before that, without a notification.)
	{
		CHECK(field.lock.lock_recover());
		std::unique_lock<Lock> held(field.lock, std::adopt_lock);
		bool is_repaired = false;
		std::thread other([&] {
			repair(field);
			std::lock_guard<Lock> notifies(field.lock);
			is_repaired = true;
			changed.notify_all();
		});
		while (!is_repaired) {
			try {
				changed.wait(held);
			} catch (const lw::owner_died &) {
				CHECK(!held.owns_lock());
				(void)field.lock.lock_recover();
				held = std::unique_lock<Lock>(field.lock, std::adopt_lock);
			}
		}
		CHECK(held.owns_lock());
		CHECK_IS(field.left, field.right);
		held.unlock();
		other.join();
	}
	is_free(field.lock);
	// The lock repairs by itself.
	lw::recovering lock(field.lock, [&] { field.right = field.left; });
	kill_an_owner(field);
	CHECK(field.lock.lock_recover());
	{
		std::unique_lock<decltype(lock)> held(lock, std::adopt_lock);
		changed.wait_for(held, 1ms);
		CHECK(held.owns_lock());
		CHECK_IS(field.left, field.right);
	}
	is_free(field.lock);
}

template <class Lock>
static void waits()
{
	auto &field = *make<Lock>();
	a_wait_leaves_the_repair_to_the_next_task<std::condition_variable_any>(field);
	a_wait_leaves_the_repair_to_the_next_task<lw::condition>(field);
	a_wait_leaves_the_repair_to_the_next_task<lw::shared_condition>(field);
	in_a_wait<lw::condition>(field.lock, field, false);
	in_a_wait<lw::shared_condition>(field.lock, field, false);
	in_a_wait<std::condition_variable_any>(field.lock, field, false);
	lw::recovering lock(field.lock, [&] { field.right = field.left; });
	in_a_wait<lw::condition>(lock, field, true);
	in_a_wait<lw::shared_condition>(lock, field, true);
	in_a_wait<std::condition_variable_any>(lock, field, true);
	// The lock is given up while another task waits: the guard owns nothing, and its destructor does not throw.
	lw::condition changed;
	std::thread other;
	try {
		std::unique_lock<Lock> held(field.lock);
		other = std::thread([&] {
			// It ends with the lock; then the lock is given up.
			std::thread([&] { field.lock.lock(); }).join();
			CHECK(field.lock.lock_recover());
			changed.notify_all();
			field.lock.give_up();
		});
		changed.wait(held, [] { return false; });
		CHECK(false);
	} catch (const std::system_error &error) {
		CHECK(error.code().value() == ENOTRECOVERABLE || error.code().value() == EOWNERDEAD);
	}
	other.join();
}

template <class Lock>
static void readers()
{
	auto &field = *make<Lock>();
	kill_an_owner(field);
	const void *native = field.lock.native_handle();
	for (int time = 0; time < 2; time++) {
		dies([&] { std::shared_lock<Lock> reading(field.lock); }, native);
		dies([&] { std::shared_lock<Lock> reading(field.lock, std::try_to_lock); }, native);
		dies([&] { std::shared_lock<Lock> reading(field.lock, 1h); }, native);
	}
	repair(field);
	int repairs = 0;
	lw::recovering lock(field.lock, [&] {
		field.right = field.left;
		repairs++;
	});
	kill_an_owner(field);
	{
		std::shared_lock reading(lock);
		CHECK_IS(repairs, 1);
		// It reads, and so may others.
		std::thread([&] {
			CHECK(field.lock.try_lock_shared());
			field.lock.unlock_shared();
			CHECK(!field.lock.try_lock());
			CHECK(!lock.try_lock_for(1ms));
		}).join();
	}
	kill_an_owner(field);
	{
		std::shared_lock reading(lock, 1h);
		CHECK(reading.owns_lock());
	}
	CHECK_IS(repairs, 2);
	// The death of a reader is not reported.
	pid_t child = fork();
	if (child == 0) {
		field.lock.lock_shared();
		raise(SIGKILL);
	}
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	field.lock.lock();
	field.lock.unlock();
	CHECK_IS(repairs, 2);
}

// In the child of a fork nothing is held, and nothing can be released.
static void forks()
{
	auto &field = *make<lw::robust_mutex>();
	kill_an_owner(field);
	CHECK(field.lock.lock_recover());
	pid_t child = fork();
	if (child == 0) {
		auto refused = [](auto call) {
			try {
				call();
				_exit(1);
			} catch (const std::system_error &error) {
				if (error.code().value() != EPERM)
					_exit(2);
			}
		};
		refused([&] { field.lock.unlock(); });
		refused([&] { field.lock.give_up(); });
		refused([&] { field.lock.unlock_inconsistent(); });
		_exit(field.lock.try_lock() ? 3 : 0);
	}
	CHECK_IS(exit_of(child), 0);
	field.lock.consistent();
	field.lock.unlock();
	is_free(field.lock);
}

template <class Lock>
static void all()
{
	throws_and_holds_nothing<Lock>();
	an_unfinished_repair_is_the_next_ones<Lock>();
	two_at_a_time<Lock>();
	a_policy_repairs<Lock>();
}

int main()
{
	alarm(WATCHDOG);
	all<lw::robust_mutex>();
	all<lw::robust_tp_mutex>();
	all<lw::robust_pi_mutex>();
	all<lw::region_mutex>();
	all<lw::region_tp_mutex>();
	all<lw::robust_rwlock>();
	all<lw::region_rwlock>();
	waits<lw::robust_mutex>();
	waits<lw::robust_tp_mutex>();
	waits<lw::robust_pi_mutex>();
	waits<lw::region_mutex>();
	waits<lw::region_tp_mutex>();
	try {
		pp<lw::robust_pp_mutex> ceiling;
		std::lock_guard<lw::robust_pp_mutex> held(ceiling);
		all<pp<lw::robust_pp_mutex>>();
		waits<pp<lw::robust_pp_mutex>>();
	} catch (const std::system_error &error) {
		CHECK_IS(error.code().value(), EPERM);
		std::fprintf(stderr, "skipped: ceilings, without the right to a real-time priority\n");
	}
	readers<lw::robust_rwlock>();
	readers<lw::region_rwlock>();
	forks();
	std::puts("recovered");
	return 0;
}

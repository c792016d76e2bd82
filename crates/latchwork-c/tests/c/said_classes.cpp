// What lw_cpp(3) says of the classes: sentences of its description, before the lines that show them. Other sentences are
// in the programs that test the classes. The test in manual.rs compares the sentences with the page.
#include "coproc.hpp"
#include "latchwork.hpp"

#include "check.h"

#include <latchwork/region.hpp>

#include <atomic>
#include <climits>
#include <map>
#include <new>
#include <sys/syscall.h>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

// The error that is thrown; 0 if none is.
template <class Body>
static int error_of(Body body)
{
	try {
		body();
	} catch (const std::system_error &error) {
		CHECK(error.code().category() == std::generic_category());
		return error.code().value();
	}
	return 0;
}

// The lock that lw::owner_died names; null if it is not thrown.
template <class Body>
static const void *dead_in(Body body)
{
	try {
		body();
	} catch (const lw::owner_died &died) {
		return died.lock();
	}
	return nullptr;
}

// Whether another thread can lock it now.
template <class Lock>
static bool is_free(Lock &lock)
{
	bool is_free = false;
	std::thread([&] {
		is_free = lock.try_lock();
		if (is_free)
			lock.unlock();
	}).join();
	return is_free;
}

// A thread ends with the lock.
template <class Lock>
static void an_owner_dies(Lock &lock)
{
	std::thread([&] { lock.lock(); }).join();
}

// An object in memory that children share.
template <class T, class... Arguments>
static T &shared(Arguments... arguments)
{
	return *new (share(sizeof(T))) T(arguments...);
}

// The same, in a region.
template <class T>
static T &in_region()
{
	static lw::region region;
	return *new (region.allocate(sizeof(T), alignof(T))) T();
}

template <class Lock>
static Lock &made()
{
	constexpr bool is_of_regions = std::is_same_v<Lock, lw::region_mutex> ||
		std::is_same_v<Lock, lw::region_tp_mutex> || std::is_same_v<Lock, lw::region_rwlock>;
	if constexpr (is_of_regions)
		return in_region<Lock>();
	else
		return shared<Lock>();
}

/* ---- what processes share ---- */

static bool sleeps(pid_t child)
{
	int call = call_of(child, child);
	return call == SYS_futex || call == WAITS_IN_REGION;
}

// A task of another process sleeps, and the unlock wakes it. (For a spinlock, it spins.)
template <class Lock>
static void serves_processes(Lock &lock)
{
	auto &step = shared<std::atomic<int>>(0);
	pid_t child = in_a_process([&] {
		while (step != 1)
			sleep_ms(1);
		step = 2;
		lock.lock();
		step = 3;
		lock.unlock();
		return 0;
	});
	/* lw_cpp(3) says: have a form whose name begins with shared_, for memory that processes share */
	/* lw_cpp(3) says: Processes can always share locks whose names begin with robust_ or region_, and objects of spin, once and region_once */
	lock.lock();
	step = 1;
	while (step == 1 || !(std::is_same_v<Lock, lw::spin> || sleeps(child)))
		sleep_ms(1);
	CHECK_IS(step, 2);
	lock.unlock();
	CHECK_IS(exit_of(child), 0);
	CHECK_IS(step, 3);
}

static void a_condition_serves_processes()
{
	auto &mutex = shared<lw::shared_mutex>();
	auto &changed = shared<lw::shared_condition>();
	auto &has_changed = shared<bool>(false);
	pid_t child = in_a_process([&] {
		std::unique_lock<lw::shared_mutex> held(mutex);
		changed.wait(held, [&] { return has_changed; });
		return 0;
	});
	while (!sleeps(child))
		sleep_ms(1);
	mutex.lock();
	has_changed = true;
	mutex.unlock();
	changed.notify_one();
	CHECK_IS(exit_of(child), 0);
}

static std::atomic<int> *step_of_once;
static pid_t partner;

// A task of another process waits for the end of the initialisation, and does not repeat it.
template <class Once>
static void initialises_for_processes(Once &once)
{
	step_of_once = &shared<std::atomic<int>>(0);
	partner = in_a_process([&] {
		while (*step_of_once == 0)
			sleep_ms(1);
		once.call([] { *step_of_once = 3; });
		return 0;
	});
	once.call([] {
		*step_of_once = 1;
		while (!sleeps(partner))
			sleep_ms(1);
		*step_of_once = 2;
	});
	CHECK_IS(exit_of(partner), 0);
	CHECK_IS(*step_of_once, 2);
}

template <class... Locks>
static void each_serves_processes()
{
	(serves_processes(made<Locks>()), ...);
}

static void processes_share()
{
	each_serves_processes<lw::shared_mutex, lw::shared_tp_mutex, lw::shared_pi_mutex, lw::shared_plain_pi_mutex,
			      lw::shared_rwlock, lw::shared_rf_rwlock, lw::robust_mutex, lw::robust_tp_mutex,
			      lw::robust_pi_mutex, lw::robust_rwlock, lw::region_mutex, lw::region_tp_mutex,
			      lw::region_rwlock, lw::spin>();
	lw::pp_mutex with_ceiling(1);
	if (error_of([&] { std::lock_guard<lw::pp_mutex>{with_ceiling}; }) == 0) {
		serves_processes(shared<lw::shared_pp_mutex>(1));
		serves_processes(shared<lw::robust_pp_mutex>(1));
	} else {
		std::fprintf(stderr, "skipped: ceilings, without the right to a real-time priority\n");
	}
	a_condition_serves_processes();
	initialises_for_processes(shared<lw::once>());
	initialises_for_processes(in_region<lw::region_once>());
}

/* ---- the C types ---- */

template <class Native, class Class>
static void is_the_c_type(Class &object)
{
	/* lw_cpp(3) says: The only member of each lock class except recovering is an object of the C type */
	CHECK(sizeof(Class) == sizeof(Native) && alignof(Class) == alignof(Native));
	CHECK(std::is_standard_layout_v<Class>);
	/* lw_cpp(3) says: native_handle() returns the address of that member */
	Native *native = object.native_handle();
	CHECK(static_cast<void *>(native) == static_cast<void *>(&object));
}

template <class Native, class Class>
static void is_a_c_type()
{
	is_the_c_type<Native>(made<Class>());
}

static void c_types()
{
	is_a_c_type<lw_mutex_t, lw::mutex>();
	is_a_c_type<lw_tp_mutex_t, lw::tp_mutex>();
	is_a_c_type<lw_pi_mutex_t, lw::pi_mutex>();
	is_a_c_type<lw_plain_pi_mutex_t, lw::plain_pi_mutex>();
	is_a_c_type<lw_recursive_mutex_t, lw::recursive_mutex>();
	is_a_c_type<lw_spin_t, lw::spin>();
	is_a_c_type<lw_shared_mutex_t, lw::shared_mutex>();
	is_a_c_type<lw_shared_tp_mutex_t, lw::shared_tp_mutex>();
	is_a_c_type<lw_shared_pi_mutex_t, lw::shared_pi_mutex>();
	is_a_c_type<lw_shared_plain_pi_mutex_t, lw::shared_plain_pi_mutex>();
	is_a_c_type<lw_robust_mutex_t, lw::robust_mutex>();
	is_a_c_type<lw_robust_tp_mutex_t, lw::robust_tp_mutex>();
	is_a_c_type<lw_robust_pi_mutex_t, lw::robust_pi_mutex>();
	is_a_c_type<lw_region_mutex_t, lw::region_mutex>();
	is_a_c_type<lw_region_tp_mutex_t, lw::region_tp_mutex>();
	is_a_c_type<lw_rwlock_t, lw::rwlock>();
	is_a_c_type<lw_rf_rwlock_t, lw::rf_rwlock>();
	is_a_c_type<lw_shared_rwlock_t, lw::shared_rwlock>();
	is_a_c_type<lw_shared_rf_rwlock_t, lw::shared_rf_rwlock>();
	is_a_c_type<lw_robust_rwlock_t, lw::robust_rwlock>();
	is_a_c_type<lw_region_rwlock_t, lw::region_rwlock>();
	lw::pp_mutex pp(1);
	is_the_c_type<lw_pp_mutex_t>(pp);
	is_the_c_type<lw_shared_pp_mutex_t>(shared<lw::shared_pp_mutex>(1));
	is_the_c_type<lw_robust_pp_mutex_t>(shared<lw::robust_pp_mutex>(1));
	// C locks it, and C++ unlocks it.
	lw::mutex mutex;
	CHECK_IS(lw_mutex_lock(mutex.native_handle()), 0);
	CHECK(!is_free(mutex));
	mutex.unlock();
	CHECK_IS(lw_mutex_trylock(mutex.native_handle()), 0);
	mutex.unlock();
	/* lw_cpp(3) says: They define classes for the locks of lw_mutex(3), lw_rwlock(3), lw_cond(3), lw_sem(3) and lw_once(3), for */
	is_a_c_type<lw_cond_t, lw::condition>();
	is_a_c_type<lw_sem_t, lw::semaphore>();
	is_a_c_type<lw_completion_t, lw::completion>();
	is_a_c_type<lw_once_t, lw::once>();
	lw::barrier barrier(1);
	is_the_c_type<lw_barrier_t>(barrier);
	lw::region region;
	lw::queue queue(2, 16);
	CHECK_IS(lw_region_fd(region.native_handle()), region.fd());
	CHECK_IS(lw_queue_trysend(queue.native_handle(), "a", 1, 0), 0);
	CHECK(queue.hold(&lw_no_wait));
	CHECK(!lw::coproc().joinable());
}

/* ---- errors ---- */

static void errors()
{
	static lw::region_once outside;
	lw::tp_mutex mutex;
	lw::rwlock rwlock;
	lw::region region;
	lw::queue queue(2, 16);
	lw::slot slot = queue.reserve();
	std::lock_guard<lw::tp_mutex> held(mutex);
	/* lw_cpp(3) says: The classes report errors as std::system_error */
	CHECK_IS(error_of([&] { mutex.lock(); }), EDEADLK);
	CHECK_IS(error_of([&] { rwlock.unlock_shared(); }), EPERM);
	CHECK_IS(error_of([&] { lw::semaphore above(UINT_MAX); }), EINVAL);
	CHECK_IS(error_of([&] { lw::barrier none(0); }), EINVAL);
	CHECK_IS(error_of([&] { outside.call([] {}); }), EINVAL);
	CHECK_IS(error_of([&] { lw::region none(lw::region::attach("lw_cpp says no")); }), ENOENT);
	CHECK_IS(error_of([&] { lw::queue none(region, "none"); }), ENOENT);
	CHECK_IS(error_of([&] { slot.send(17); }), EMSGSIZE);
	CHECK_IS(error_of([&] { lw::coproc().join(); }), EINVAL);
}

/* ---- owner death ---- */

template <class Lock>
static void an_unlock_in_c(Lock &lock)
{
	auto *native = lock.native_handle();
	an_owner_dies(lock);
	CHECK(lock.lock_recover());
	/* lw_cpp(3) says: (In C, such an unlock makes the lock permanently unusable.) */
	if constexpr (std::is_same_v<Lock, lw::robust_rwlock> || std::is_same_v<Lock, lw::region_rwlock>)
		CHECK_IS(lw_rwlock_unlock(native), 0);
	else
		CHECK_IS(lw_mutex_unlock(native), 0);
	for (int time = 0; time < 2; time++) {
		CHECK_IS(error_of([&] { lock.lock(); }), ENOTRECOVERABLE);
		CHECK_IS(error_of([&] { (void)lock.lock_recover(); }), ENOTRECOVERABLE);
	}
}

template <class Lock>
static void deaths()
{
	auto &lock = made<Lock>();
	const void *native = lock.native_handle();
	// Another task, which has to get the exception; a lock that is held would make it wait.
	auto is_reported = [&] {
		const void *dead = nullptr;
		std::thread([&] { dead = dead_in([&] { lock.lock(); }); }).join();
		return dead == native;
	};
	an_owner_dies(lock);
	/* lw_cpp(3) says: If the owner of a robust mutex or the writer of a robust reader/writer lock has died, each call that acquires */
	CHECK(dead_in([&] { lock.lock(); }) == native);
	CHECK(dead_in([&] { (void)lock.try_lock(); }) == native);
	CHECK(dead_in([&] { (void)lock.try_lock_for(1h); }) == native);
	lw::mutex other, third;
	/* lw_cpp(3) says: The task that catches the exception does not hold the lock, and std::scoped_lock has released its other */
	CHECK(dead_in([&] { std::scoped_lock all(other, lock, third); }) == native);
	CHECK(is_free(other) && is_free(third));
	CHECK(is_reported());
	/* lw_cpp(3) says: unlock() without consistent() leaves the repair to the next task, which gets lw::owner_died again */
	CHECK(lock.lock_recover());
	lock.unlock();
	CHECK(is_reported());
	CHECK(lock.lock_recover());
	lock.consistent();
	lock.unlock();
	CHECK(is_free(lock));
	/* lw_cpp(3) says: unlock_inconsistent() releases the lock and marks the data as half changed (inconsistent) */
	/* lw_cpp(3) says: It is meant for an owner that lives but could not finish a change */
	lock.lock();
	lock.unlock_inconsistent();
	CHECK(is_reported());
	CHECK(dead_in([&] { lock.lock(); }) == native);
	CHECK(lock.lock_recover());
	lock.consistent();
	lock.unlock();
	an_unlock_in_c(lock);
}

template <class Lock>
static void recovers()
{
	auto &mutex = made<Lock>();
	int repairs = 0;
	lw::recovering lock(mutex, [&] {
		CHECK(!is_free(mutex));
		repairs++;
	});
	/* lw_cpp(3) says: defines an object that a guard can lock */
	/* lw_cpp(3) says: The object keeps a reference to its first argument */
	/* lw_cpp(3) says: A guard that locks the object locks this lock */
	CHECK(lock.native_handle() == mutex.native_handle());
	{
		std::lock_guard<decltype(lock)> held(lock);
		CHECK(!is_free(mutex));
	}
	CHECK(is_free(mutex));
	CHECK_IS(repairs, 0);
	/* lw_cpp(3) says: If an owner has died, the task that locks the object calls repair() while it holds the lock, and then */
	an_owner_dies(mutex);
	{
		std::lock_guard<decltype(lock)> held(lock);
		CHECK_IS(repairs, 1);
		CHECK(!is_free(mutex));
	}
	CHECK(is_free(mutex));
}

// What another thread may do with a reader/writer lock.
template <class Lock>
static bool may_read(Lock &lock)
{
	bool reads = false;
	std::thread([&] {
		reads = lock.try_lock_shared();
		if (reads)
			lock.unlock_shared();
	}).join();
	return reads;
}

template <class Lock>
static void readers_recover()
{
	auto &rwlock = made<Lock>();
	int repairs = 0;
	/* lw_cpp(3) says: A reader that has to run repair() holds the lock for writing while it does so */
	lw::recovering lock(rwlock, [&] {
		CHECK(!may_read(rwlock));
		repairs++;
	});
	an_owner_dies(rwlock);
	std::shared_lock<decltype(lock)> reads(lock);
	CHECK_IS(repairs, 1);
	CHECK(may_read(rwlock));
	CHECK(!is_free(rwlock));
	reads.unlock();
	CHECK(is_free(rwlock));
}

template <class... Locks>
static void each_robust_lock()
{
	(deaths<Locks>(), ...);
	(recovers<Locks>(), ...);
}

/* ---- conditions ---- */

// A predicate that throws at first, or after a wait.
template <class Condition>
static void predicates_throw()
{
	lw::mutex mutex;
	Condition changed;
	auto throws = [&](auto wait, bool at_once) {
		bool is_notified = at_once, has_thrown = false;
		std::unique_lock<lw::mutex> held(mutex);
		std::thread notifier([&] {
			std::lock_guard<lw::mutex> notifies(mutex);
			is_notified = true;
			changed.notify_all();
		});
		/* lw_cpp(3) says: If the predicate of a wait for a condition throws, the std::unique_lock still owns the lock */
		try {
			wait(held, [&] { return is_notified ? throw 7 : false; });
		} catch (int) {
			has_thrown = true;
		}
		CHECK(has_thrown && held.owns_lock());
		CHECK(!is_free(mutex));
		held.unlock();
		notifier.join();
		CHECK(is_free(mutex));
	};
	for (bool at_once : {true, false}) {
		throws([&](auto &held, auto is_true) { changed.wait(held, is_true); }, at_once);
		throws([&](auto &held, auto is_true) { changed.wait_for(held, 1h, is_true); }, at_once);
		throws([&](auto &held, auto is_true) {
			changed.wait_until(held, std::chrono::system_clock::now() + 1h, is_true);
		}, at_once);
	}
}

// A wait that cannot begin, by a task that does not own the mutex.
template <class Mutex>
static void needs_an_owner()
{
	auto &mutex = made<Mutex>();
	lw::condition changed;
	std::unique_lock<Mutex> held(mutex);
	mutex.unlock();
	/* lw_cpp(3) says: A wait cannot begin if the calling task does not own the mutex, or has locked a recursive mutex more than once */
	CHECK_IS(error_of([&] { changed.wait(held); }), EPERM);
	CHECK_IS(error_of([&] { changed.wait_for(held, 1h, [] { return false; }); }), EPERM);
	CHECK(held.owns_lock() && held.release() == &mutex);
	CHECK(is_free(mutex));
	std::unique_lock<Mutex> deferred(mutex, std::defer_lock);
	CHECK_IS(error_of([&] { changed.wait(deferred); }), EPERM);
	CHECK(!deferred.owns_lock() && is_free(mutex));
}

template <class... Mutexes>
static void each_needs_an_owner()
{
	(needs_an_owner<Mutexes>(), ...);
}

int main()
{
	alarm(WATCHDOG);
	processes_share();
	c_types();
	errors();
	each_robust_lock<lw::robust_mutex, lw::robust_tp_mutex, lw::robust_pi_mutex, lw::robust_rwlock, lw::region_mutex,
			 lw::region_tp_mutex, lw::region_rwlock>();
	readers_recover<lw::robust_rwlock>();
	readers_recover<lw::region_rwlock>();
	predicates_throw<lw::condition>();
	predicates_throw<lw::shared_condition>();
	each_needs_an_owner<lw::mutex, lw::tp_mutex, lw::pi_mutex, lw::plain_pi_mutex, lw::recursive_mutex, lw::robust_mutex,
			    lw::robust_tp_mutex, lw::robust_pi_mutex, lw::region_mutex, lw::region_tp_mutex>();
	std::puts("said");
	return 0;
}

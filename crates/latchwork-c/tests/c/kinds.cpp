/* The classes of latchwork.hpp, for the bodies that the locks of Rust run. */
#include "latchwork.hpp"

#include "kinds.h"

#include <latchwork/region.h>
#include <cstdlib>
#include <new>

namespace {

template <class Body>
int answer(Body body)
{
	try {
		return body();
	} catch (const std::system_error &error) {
		return error.code().value();
	}
}

std::chrono::steady_clock::time_point point(const struct timespec *time)
{
	return std::chrono::steady_clock::time_point(std::chrono::seconds(time->tv_sec) +
						     std::chrono::nanoseconds(time->tv_nsec));
}

template <class Mutex>
void make(void *mutex)
{
	if constexpr (std::is_default_constructible_v<Mutex>)
		new (mutex) Mutex;
	else
		new (mutex) Mutex(1);
}

template <class Mutex, class Condition>
constexpr mutex_kind of()
{
	return {
		make<Mutex>,
		[](void *it) { return answer([&] { return static_cast<Mutex *>(it)->lock(), 0; }); },
		[](void *it) {
			return answer([&] { return static_cast<Mutex *>(it)->try_lock() ? 0 : EBUSY; });
		},
		[](void *it, const struct timespec *time) {
			return answer([&] {
				return static_cast<Mutex *>(it)->try_lock_until(point(time)) ? 0 : ETIMEDOUT;
			});
		},
		[](void *it) { return answer([&] { return static_cast<Mutex *>(it)->unlock(), 0; }); },
		[](void *cond, void *it) {
			std::unique_lock<Mutex> lock(*static_cast<Mutex *>(it), std::adopt_lock);
			int error = answer([&] { return static_cast<Condition *>(cond)->wait(lock), 0; });
			lock.release();
			return error;
		},
		[](void *cond, void *it, const struct timespec *time) {
			std::unique_lock<Mutex> lock(*static_cast<Mutex *>(it), std::adopt_lock);
			int error = answer([&] {
				auto status = static_cast<Condition *>(cond)->wait_until(lock, point(time));
				return status == std::cv_status::timeout ? ETIMEDOUT : 0;
			});
			lock.release();
			return error;
		},
		[](void *cond, int all) {
			if (all)
				static_cast<Condition *>(cond)->notify_all();
			else
				static_cast<Condition *>(cond)->notify_one();
		},
		sizeof(Mutex),
		sizeof(Condition),
	};
}

/* A region mutex in a region of its own, which lasts as long as the process; the C type is the class's only member. */
template <class Mutex>
class in_a_region {
public:
	in_a_region()
	{
		lw_region_t *region;
		void *object = nullptr;
		if (lw_region_create(&region, nullptr, nullptr) != 0 ||
		    lw_region_object(region, "mutex", lw_type("mutex"), sizeof(Mutex), nullptr, nullptr, &object) != 0)
			std::abort();
		mutex_ = new (object) Mutex;
	}
	void lock() { mutex_->lock(); }
	bool try_lock() { return mutex_->try_lock(); }
	template <class Time>
	bool try_lock_until(const Time &time)
	{
		return mutex_->try_lock_until(time);
	}
	void unlock() { mutex_->unlock(); }
	auto native_handle() { return mutex_->native_handle(); }

private:
	Mutex *mutex_;
};

/* The same of a reader/writer lock. */
class rwlock_in_a_region {
public:
	rwlock_in_a_region()
	{
		lw_region_t *region;
		void *object = nullptr;
		if (lw_region_create(&region, nullptr, nullptr) != 0 ||
		    lw_region_object(region, "lock", lw_type("lock"), sizeof(lw::region_rwlock), nullptr, nullptr,
				     &object) != 0)
			std::abort();
		lock_ = new (object) lw::region_rwlock;
	}
	void lock() { lock_->lock(); }
	bool try_lock() { return lock_->try_lock(); }
	template <class Time>
	bool try_lock_until(const Time &time)
	{
		return lock_->try_lock_until(time);
	}
	void unlock() { lock_->unlock(); }
	void lock_shared() { lock_->lock_shared(); }
	bool try_lock_shared() { return lock_->try_lock_shared(); }
	template <class Time>
	bool try_lock_shared_until(const Time &time)
	{
		return lock_->try_lock_shared_until(time);
	}
	void unlock_shared() { lock_->unlock_shared(); }

private:
	lw::region_rwlock *lock_;
};

template <class Lock>
constexpr rwlock_kind of_rwlock()
{
	return {
		make<Lock>,
		[](void *it) { return answer([&] { return static_cast<Lock *>(it)->lock_shared(), 0; }); },
		[](void *it) {
			return answer([&] { return static_cast<Lock *>(it)->try_lock_shared() ? 0 : EBUSY; });
		},
		[](void *it, const struct timespec *time) {
			return answer([&] {
				return static_cast<Lock *>(it)->try_lock_shared_until(point(time)) ? 0 : ETIMEDOUT;
			});
		},
		[](void *it) { return answer([&] { return static_cast<Lock *>(it)->lock(), 0; }); },
		[](void *it) {
			return answer([&] { return static_cast<Lock *>(it)->try_lock() ? 0 : EBUSY; });
		},
		[](void *it, const struct timespec *time) {
			return answer([&] {
				return static_cast<Lock *>(it)->try_lock_until(point(time)) ? 0 : ETIMEDOUT;
			});
		},
		[](void *it) { return answer([&] { return static_cast<Lock *>(it)->unlock_shared(), 0; }); },
		[](void *it) { return answer([&] { return static_cast<Lock *>(it)->unlock(), 0; }); },
		sizeof(Lock),
	};
}

} // namespace

const struct mutex_kind mutex_kinds[] = {
	of<lw::mutex, lw::condition>(),
	of<lw::shared_mutex, lw::shared_condition>(),
	of<lw::tp_mutex, lw::condition>(),
	of<lw::shared_tp_mutex, lw::shared_condition>(),
	of<lw::pi_mutex, lw::condition>(),
	of<lw::shared_pi_mutex, lw::shared_condition>(),
	of<lw::plain_pi_mutex, lw::condition>(),
	of<lw::shared_plain_pi_mutex, lw::shared_condition>(),
	of<lw::pp_mutex, lw::condition>(),
	of<lw::shared_pp_mutex, lw::shared_condition>(),
	of<lw::recursive_mutex, lw::condition>(),
	of<lw::robust_mutex, lw::shared_condition>(),
	of<lw::robust_tp_mutex, lw::shared_condition>(),
	of<lw::robust_pi_mutex, lw::shared_condition>(),
	of<lw::robust_pp_mutex, lw::shared_condition>(),
	of<in_a_region<lw::region_mutex>, lw::shared_condition>(),
	of<in_a_region<lw::region_tp_mutex>, lw::shared_condition>(),
};

const struct rwlock_kind rwlock_kinds[] = {
	of_rwlock<lw::rwlock>(),
	of_rwlock<lw::rf_rwlock>(),
	of_rwlock<lw::shared_rwlock>(),
	of_rwlock<lw::shared_rf_rwlock>(),
	of_rwlock<lw::robust_rwlock>(),
	of_rwlock<rwlock_in_a_region>(),
};

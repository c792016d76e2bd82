/*
 * latchwork/region.hpp: the regions and queues of latchwork/region.h and latchwork/queue.h as C++ classes.
 *
 *     lw::region region = lw::region::attach_or_create("plant");
 *     auto *counts = region.object<counts_t>("counts", "org.example.counts 1");
 *     lw::queue jobs(region, "jobs", 16, 256);
 *     jobs.send(&job, sizeof job, 5);
 *     lw::message message = jobs.hold();             received when it is done; again, if it is destroyed before
 *     run(message.data(), message.size());
 *     message.done();
 *
 * Handles can be moved, not copied; a region's handle must outlive those of its queues, and a queue's its messages. Errors are std::system_error,
 * with the library's text. Manual: lw_region(3), lw_queue(3).
 */
#ifndef LATCHWORK_REGION_HPP
#define LATCHWORK_REGION_HPP

#include "queue.h"

#include <cstddef>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

namespace lw {

class queue;

namespace detail {

inline void check_region(int error)
{
	if (error != 0)
		throw std::system_error(error, std::generic_category(), lw_error_text());
}

/* False for the expected error. */
inline bool check_region_but(int error, int expected)
{
	if (error == expected)
		return false;
	check_region(error);
	return true;
}

} // namespace detail

/* A handle on a region. */
class region {
public:
	/* A region of this process, its forks and coprocs, and whoever is sent its descriptor. */
	explicit region(const lw_region_options &options = {}) : region(nullptr, options) {}

	/* A region that other programs find by its name. */
	static region create(const char *name, const lw_region_options &options = {})
	{
		return region(name, options);
	}
	static region attach(const char *name, const lw_region_options &options = {})
	{
		return region(&lw_region_attach, name, options);
	}
	static region attach_or_create(const char *name, const lw_region_options &options = {})
	{
		return region(&lw_region_attach_or_create, name, options);
	}
	static region attach(int fd, const lw_region_options &options = {})
	{
		return region(&lw_region_attach_fd, fd, options);
	}
	static void unlink(const char *name) { detail::check_region(lw_region_unlink(name)); }

	region(region &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
	region &operator=(region &&other) noexcept
	{
		std::swap(handle_, other.handle_);
		return *this;
	}
	/* A thread that still holds locks of the region keeps it: call detach() to learn of that. */
	~region()
	{
		if (handle_ != nullptr)
			lw_region_detach(handle_);
	}
	void detach()
	{
		detail::check_region(lw_region_detach(handle_));
		handle_ = nullptr;
	}

	lw_region_t *native_handle() const noexcept { return handle_; }
	void *base() const noexcept { return lw_region_base(handle_); }
	int fd() const noexcept { return lw_region_fd(handle_); }
	void join(const char *task_name = nullptr) { detail::check_region(lw_region_join(handle_, task_name)); }

	/* Memory; std::bad_alloc if there is none. */
	void *allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t))
	{
		void *block = lw_region_aligned_alloc(handle_, alignment, bytes);
		if (block == nullptr)
			throw std::bad_alloc();
		return block;
	}
	void deallocate(void *block) noexcept { lw_region_free(handle_, block); }
	void keep(void *block) { detail::check_region(lw_region_keep(handle_, block)); }
	std::size_t trim()
	{
		std::size_t freed = 0;
		detail::check_region(lw_region_trim(handle_, &freed));
		return freed;
	}

	/*
	 * The object of this name, which is made by T's constructor with these arguments if there is none. The
	 * constructor must not throw, nor use names of the region. "type" names T and its version, for all programs
	 * that share it.
	 */
	template <class T, class... Arguments>
	T *object(const char *name, const char *type, Arguments &&...arguments)
	{
		static_assert(alignof(T) <= 64, "objects are aligned to 64 bytes");
		static_assert(std::is_nothrow_constructible<T, Arguments...>::value,
			      "the constructor runs under a lock of the region, and must be noexcept");
		auto make = [&](void *place) { ::new (place) T(std::forward<Arguments>(arguments)...); };
		void *object = nullptr;
		detail::check_region(lw_region_object(handle_, name, lw_type(type), sizeof(T),
						      &call<decltype(make)>, &make, &object));
		return static_cast<T *>(object);
	}
	/* The object of this name; null if there is none. */
	template <class T>
	T *find(const char *name, const char *type)
	{
		void *object = nullptr;
		int error = lw_region_find(handle_, name, lw_type(type), sizeof(T), &object);
		return detail::check_region_but(error, ENOENT) ? static_cast<T *>(object) : nullptr;
	}
	/* Destroys the object of this name, which no task uses any more. */
	template <class T>
	void remove(const char *name, const char *type)
	{
		T *object = find<T>(name, type);
		if (object == nullptr)
			detail::check_region(ENOENT);
		object->~T();
		detail::check_region(lw_region_remove(handle_, name, lw_type(type), sizeof(T)));
	}

private:
	region(const char *name, const lw_region_options &options)
	{
		detail::check_region(lw_region_create(&handle_, name, &options));
	}
	template <class From>
	region(int (*open)(lw_region_t **, From, const lw_region_options *), From from,
	       const lw_region_options &options)
	{
		detail::check_region(open(&handle_, from, &options));
	}
	template <class Make>
	static void call(void *place, void *make)
	{
		(*static_cast<Make *>(make))(place);
	}

	lw_region_t *handle_ = nullptr;
};

/*
 * For containers of the standard library in a region. Their pointers mean the same in every process that has attached
 * it; a kill in the middle of a change leaves a container in pieces, so protect it by a robust lock and make a new one
 * when its owner has died. Their memory belongs to the region as soon as it is allocated, and outlives every task.
 */
template <class T>
class region_allocator {
public:
	using value_type = T;

	/* The region's handle is this process's: a container serves the process that made it, and later copies
	 * of that process: forks, and coprocs with COPROC_SNAPSHOT. */
	explicit region_allocator(region &from) noexcept : handle_(from.native_handle()) {}
	template <class U>
	region_allocator(const region_allocator<U> &other) noexcept : handle_(other.native_handle())
	{
	}
	T *allocate(std::size_t count)
	{
		void *block = nullptr;
		if (count <= static_cast<std::size_t>(-1) / sizeof(T))
			block = lw_region_aligned_alloc(handle_, alignof(T), count * sizeof(T));
		if (block == nullptr || lw_region_keep(handle_, block) != 0)
			throw std::bad_alloc();
		return static_cast<T *>(block);
	}
	void deallocate(T *block, std::size_t) noexcept { lw_region_free(handle_, block); }
	lw_region_t *native_handle() const noexcept { return handle_; }

private:
	lw_region_t *handle_;
};
template <class T, class U>
bool operator==(const region_allocator<T> &a, const region_allocator<U> &b) noexcept
{
	return a.native_handle() == b.native_handle();
}
template <class T, class U>
bool operator!=(const region_allocator<T> &a, const region_allocator<U> &b) noexcept
{
	return !(a == b);
}

namespace detail {

/* A message in the hands of one thread, which gives it up by this function unless it ends it. */
template <int give_up(lw_message_t *)> class in_hand {
public:
	in_hand(in_hand &&other) noexcept : message_(other.message_), is_held_(std::exchange(other.is_held_, false)) {}
	in_hand &operator=(in_hand &&other) noexcept
	{
		std::swap(message_, other.message_);
		std::swap(is_held_, other.is_held_);
		return *this;
	}
	~in_hand()
	{
		if (is_held_)
			give_up(&message_);
	}
	explicit operator bool() const noexcept { return is_held_; }
	std::size_t size() const noexcept { return message_.bytes; }

protected:
	friend class lw::queue;
	in_hand() noexcept = default;
	lw_message_t message_ = {};
	bool is_held_ = false;
};

} // namespace detail

/*
 * A message in its place in the queue, in the hands of the thread that received it. A message that is not done is given
 * back: so is one whose work ends by an exception.
 */
class message : public detail::in_hand<lw_message_give_back> {
public:
	const void *data() const noexcept { return message_.data; }
	unsigned priority() const noexcept { return message_.priority; }
	unsigned deliveries() const noexcept { return message_.deliveries; }
	void done()
	{
		is_held_ = false;
		detail::check_region(lw_message_done(&message_));
	}

private:
	friend class queue;
	message() noexcept = default;
};

/* A place in the queue for a message. It is free again if the message is not sent. */
class slot : public detail::in_hand<lw_message_cancel> {
public:
	void *data() const noexcept { return message_.data; }
	void send(std::size_t bytes)
	{
		is_held_ = false;
		detail::check_region(lw_message_send(&message_, bytes));
	}

private:
	friend class queue;
	slot() noexcept = default;
};

/* A handle on a queue. Times are those of lw_queue_reserve(): null waits without end, &lw_no_wait not at all. */
class queue {
public:
	/* A queue of this process's own. */
	queue(uint32_t capacity, uint32_t max_message, lw_queue_order order = LW_QUEUE_RACING)
	{
		detail::check_region(lw_queue_create(&handle_, nullptr, nullptr, capacity, max_message, order));
	}
	queue(region &in, const char *name, uint32_t capacity, uint32_t max_message,
	      lw_queue_order order = LW_QUEUE_RACING)
	{
		detail::check_region(
			lw_queue_create(&handle_, in.native_handle(), name, capacity, max_message, order));
	}
	/* A queue that exists. */
	queue(region &in, const char *name)
	{
		detail::check_region(lw_queue_open(&handle_, in.native_handle(), name));
	}
	queue(queue &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
	queue &operator=(queue &&other) noexcept
	{
		std::swap(handle_, other.handle_);
		return *this;
	}
	~queue()
	{
		if (handle_ != nullptr)
			lw_queue_close(handle_);
	}

	lw_queue_t *native_handle() const noexcept { return handle_; }

	void send(const void *data, std::size_t bytes, unsigned priority = 0)
	{
		detail::check_region(lw_queue_send(handle_, data, bytes, priority));
	}
	/* False: the queue is full. */
	bool try_send(const void *data, std::size_t bytes, unsigned priority = 0)
	{
		return detail::check_region_but(lw_queue_trysend(handle_, data, bytes, priority), EAGAIN);
	}
	/* False: the time has passed. */
	bool send_until(const timespec &time, const void *data, std::size_t bytes, unsigned priority = 0)
	{
		return detail::check_region_but(lw_queue_timedsend(handle_, data, bytes, priority, &time),
						ETIMEDOUT);
	}
	/* The length of the message, which was copied to the buffer. */
	std::size_t receive(void *buffer, std::size_t room, unsigned *priority = nullptr)
	{
		std::size_t bytes = 0;
		detail::check_region(lw_queue_receive(handle_, buffer, room, &bytes, priority));
		return bytes;
	}
	/* False: there is no message. */
	bool try_receive(void *buffer, std::size_t room, std::size_t &bytes, unsigned *priority = nullptr)
	{
		return detail::check_region_but(lw_queue_tryreceive(handle_, buffer, room, &bytes, priority),
						EAGAIN);
	}
	/* False: the time has passed. */
	bool receive_until(const timespec &time, void *buffer, std::size_t room, std::size_t &bytes,
			   unsigned *priority = nullptr)
	{
		return detail::check_region_but(
			lw_queue_timedreceive(handle_, buffer, room, &bytes, priority, &time), ETIMEDOUT);
	}
	uint32_t broadcast(const void *data, std::size_t bytes)
	{
		uint32_t receivers = 0;
		detail::check_region(lw_queue_broadcast(handle_, data, bytes, &receivers));
		return receivers;
	}

	/* Without a copy. False, as a condition: there was nothing in time. */
	message hold(const timespec *time = nullptr)
	{
		message held;
		held.is_held_ = in_time(lw_queue_hold(handle_, &held.message_, time));
		return held;
	}
	slot reserve(unsigned priority = 0, const timespec *time = nullptr)
	{
		slot place;
		place.is_held_ = in_time(lw_queue_reserve(handle_, &place.message_, priority, time));
		return place;
	}

	lw_queue_state state() const
	{
		lw_queue_state now;
		detail::check_region(lw_queue_get_state(handle_, &now));
		return now;
	}
	uint32_t flush()
	{
		uint32_t count = 0;
		detail::check_region(lw_queue_flush(handle_, &count));
		return count;
	}
	/* Ends the queue for all tasks. */
	void remove() { detail::check_region(lw_queue_delete(handle_)); }
	int fd()
	{
		int number = -1;
		detail::check_region(lw_queue_fd(handle_, &number));
		return number;
	}
	void clear() { detail::check_region(lw_queue_clear(handle_)); }

private:
	static bool in_time(int error)
	{
		return error != EAGAIN && detail::check_region_but(error, ETIMEDOUT);
	}

	lw_queue_t *handle_ = nullptr;
};

} // namespace lw

#endif

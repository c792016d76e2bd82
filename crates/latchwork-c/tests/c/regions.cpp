// The classes for regions and queues: ownership, exceptions, and what is given back.
#include "check.h"

#include <latchwork.hpp>
#include <latchwork/region.hpp>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>
#include <new>
#include <shared_mutex>
#include <stdexcept>
#include <vector>

struct counter {
	explicit counter(int from) noexcept : count(from) {}
	lw::robust_mutex lock;
	int count;
};

template <class Body>
static int error_of(Body body)
{
	try {
		body();
	} catch (const std::system_error &error) {
		CHECK(strlen(error.what()) > 10);
		return error.code().value();
	}
	return 0;
}

static void test_region()
{
	std::string name = "cpp-test-" + std::to_string(getpid());
	CHECK_IS(error_of([&] { lw::region::attach(name.c_str()); }), ENOENT);
	lw_region_options options = {};
	options.max_bytes = 4 << 20;
	lw::region region = lw::region::create(name.c_str(), options);
	CHECK_IS(error_of([&] { lw::region::create(name.c_str(), options); }), EEXIST);
	/* lw_cpp(3) says: If there is no such object, the constructor of T makes it */
	counter *made = region.object<counter>("counter", "counter 1", 5);
	CHECK_IS(made->count, 5);
	/* lw_cpp(3) says: region.object<T>(name, type, ...) finds the object of this name */
	CHECK(region.object<counter>("counter", "counter 1", 6) == made);
	CHECK_IS(made->count, 5);
	CHECK(region.find<counter>("none", "counter 1") == nullptr);
	CHECK_IS(error_of([&] { region.find<counter>("counter", "counter 2"); }), EEXIST);
	/* lw_cpp(3) says: An lw::region and an lw::queue are handles */
	/* lw_cpp(3) says: Handles can be moved */
	{
		lw::region other = lw::region::attach(name.c_str());
		CHECK(other.find<counter>("counter", "counter 1") == made);
		lw::region moved = std::move(other);
		CHECK(moved.base() == region.base());
		lw::region by_file = lw::region::attach(region.fd());
		moved = std::move(by_file);
		CHECK(moved.base() == region.base());
	}
	CHECK(region.find<counter>("counter", "counter 1") == made);
	made->lock.lock();
	CHECK_IS(error_of([&] { region.detach(); }), EBUSY);
	made->lock.unlock();
	region.remove<counter>("counter", "counter 1");
	CHECK_IS(error_of([&] { region.remove<counter>("counter", "counter 1"); }), ENOENT);
	bool thrown = false;
	try {
		region.allocate(64 << 20);
	} catch (const std::bad_alloc &) {
		thrown = true;
	}
	CHECK(thrown);
	region.deallocate(region.allocate(100, 4096));
	lw::region::unlink(name.c_str());
	region.detach();
}

struct account {
	lw::region_mutex lock;
	lw::shared_condition changed;
	long balance = 0;
};
static_assert(sizeof(lw::region_mutex) == 8, "it is the C type");
static_assert(sizeof(lw::region_tp_mutex) == 16, "it is the C type");

struct table {
	lw::region_rwlock lock;
	lw::region_once once;
	int runs = 0;
};
static_assert(sizeof(lw::region_rwlock) == sizeof(lw_region_rwlock_t) && sizeof(lw::region_once) == 16, "the C types");

static table *of_all;

/* Readers and writers of a region, and an initialisation that throws at first. */
static void test_region_rwlock_and_once()
{
	lw::region region;
	of_all = region.object<table>("table", "table 1");
	static lw::region_rwlock outside;
	static lw::region_once once_outside;
	CHECK_IS(error_of([&] { outside.lock(); }), EINVAL);
	CHECK_IS(error_of([&] { outside.lock_shared(); }), EINVAL);
	CHECK_IS(error_of([&] { once_outside.call([] {}); }), EINVAL);
	{
		std::shared_lock<lw::region_rwlock> reading(of_all->lock);
		CHECK_IS(error_of([&] { of_all->lock.lock(); }), EDEADLK);
		CHECK(!of_all->lock.try_lock());
		CHECK_IS(error_of([&] { region.detach(); }), EBUSY);
	}
	CHECK_IS(of_all->lock.lock_traced().entry, LW_RWLOCK_ENTRY_FREE);
	CHECK_IS(of_all->lock.unlock_traced(), LW_RWLOCK_RELEASED_NO_SLEEPER);
	bool thrown = false;
	try {
		of_all->once.call([] { throw 1; });
	} catch (int) {
		thrown = true;
	}
	CHECK(thrown);
	for (int time = 0; time < 2; time++)
		of_all->once.call([] { of_all->runs++; });
	CHECK_IS(of_all->runs, 1);
	region.detach();
}

/* A lock of the region is a task's of the region: outside, none can be held. */
static void test_region_mutex()
{
	lw::region region;
	account *made = region.object<account>("account", "account 1");
	static lw::region_mutex outside;
	CHECK_IS(error_of([&] { outside.lock(); }), EINVAL);
	CHECK_IS(error_of([&] { (void)outside.try_lock(); }), EINVAL);
	{
		std::unique_lock<lw::region_mutex> held(made->lock);
		CHECK_IS(error_of([&] { made->lock.lock(); }), EDEADLK);
		CHECK(!made->lock.try_lock());
		CHECK_IS(error_of([&] { made->lock.consistent(); }), EINVAL);
		CHECK_IS(error_of([&] { region.detach(); }), EBUSY);
		CHECK(made->changed.wait_for(held, std::chrono::milliseconds(1)) == std::cv_status::timeout);
	}
	CHECK_IS(error_of([&] { made->lock.unlock(); }), EPERM);
	pid_t child = fork();
	if (child == 0) {
		made->lock.lock();
		made->balance = -1;
		raise(SIGKILL);
	}
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	bool died = false;
	try {
		made->lock.lock();
	} catch (const lw::owner_died &error) {
		died = error.is_of(made->lock);
	}
	CHECK(died);
	lw::recovering account(made->lock, [&] { made->balance = 0; });
	{
		std::lock_guard<decltype(account)> held(account);
		CHECK_IS(made->balance, 0);
	}
	CHECK(made->lock.try_lock());
	made->lock.unlock();
	region.remove<struct account>("account", "account 1");
	region.detach();
}

static void test_queue()
{
	char buffer[16];
	std::size_t bytes = 0;
	unsigned priority = 0;
	lw::region region;
	lw::queue queue(region, "queue", 2, 16);
	lw::queue same(region, "queue");
	CHECK_IS(error_of([&] { lw::queue other(region, "none"); }), ENOENT);
	// The end of a handle is not that of the queue.
	{
		lw::queue brief(region, "queue");
	}
	queue.send("a", 1, 3);
	CHECK(queue.try_send("b", 1));
	CHECK(!queue.try_send("c", 1));
	timespec past = {0, 0};
	const void *place = nullptr;
	CHECK(!queue.send_until(past, "c", 1));
	CHECK_IS(error_of([&] { queue.send("0123456789abcdefg", 17); }), EMSGSIZE);
	CHECK_IS(same.receive(buffer, sizeof buffer, &priority), 1);
	CHECK_IS(priority, 3);
	CHECK(same.try_receive(buffer, sizeof buffer, bytes));
	CHECK(!same.try_receive(buffer, sizeof buffer, bytes));
	CHECK(!same.receive_until(past, buffer, sizeof buffer, bytes));
	/* lw_cpp(3) says: An lw::slot is the place of a message that is being written */
	/* lw_cpp(3) says: If it is destroyed without a call of send(), nothing is sent, and the place is free again */
	{
		lw::slot unsent = queue.reserve();
		lw::slot slot = queue.reserve(7);
		CHECK(slot.size() == 16 && queue.state().in_flight == 2);
		CHECK(!queue.reserve(0, &lw_no_wait));
		place = memcpy(slot.data(), "in place", 8);
		slot.send(8);
		CHECK(!slot);
	}
	CHECK(queue.state().in_flight == 0 && queue.state().ready == 1);
	/* lw_cpp(3) says: queue.hold() receives a message without copying it */
	/* lw_cpp(3) says: An lw::message that is destroyed without a call of done() is given back to the queue */
	/* lw_cpp(3) says: This happens, for example, if an exception leaves the code that processes the message */
	try {
		lw::message message = same.hold();
		CHECK(message.data() == place && memcmp(message.data(), "in place", 8) == 0);
		CHECK(message.size() == 8 && message.priority() == 7 && message.deliveries() == 1);
		throw std::runtime_error("no");
	} catch (const std::runtime_error &) {
	}
	lw::message message = same.hold();
	CHECK(message.data() == place && message.deliveries() == 2);
	lw::message moved = std::move(message);
	CHECK(moved && !message);
	moved.done();
	CHECK(!same.hold(&lw_no_wait));
	CHECK(!same.hold(&past));
	CHECK_IS(queue.broadcast("x", 1), 0);
	CHECK_IS(queue.flush(), 0);
	CHECK(queue.fd() >= 0);
	queue.clear();
	CHECK_IS(error_of([&] { region.detach(); }), EBUSY);
	queue.remove();
	CHECK_IS(error_of([&] { same.send("a", 1); }), EIDRM);
	lw::queue own(4, 16);
	own.send("own", 3);
	CHECK_IS(own.receive(buffer, sizeof buffer), 3);
	own = lw::queue(2, 8);
	CHECK_IS(own.state().capacity, 2);
}

// Containers whose elements lie in a region; the containers themselves do, too, for the child.
static void test_containers()
{
	using numbers = std::vector<long, lw::region_allocator<long>>;
	using entry = std::pair<const int, long>;
	using table = std::map<int, long, std::less<int>, lw::region_allocator<entry>>;
	lw::region region;
	lw_heap_stats before = {}, now = {};
	auto *vector = new (region.allocate(sizeof(numbers))) numbers(lw::region_allocator<long>(region));
	auto *map = new (region.allocate(sizeof(table))) table(lw::region_allocator<entry>(region));
	/* lw_cpp(3) says: lw::region_allocator<T> places the memory of a container of the standard library in a region */
	CHECK_IS(lw_region_heap_stats(region.native_handle(), &before), 0);
	vector->resize(1000, 1);
	CHECK_IS(lw_region_heap_stats(region.native_handle(), &now), 0);
	CHECK(now.used_bytes >= before.used_bytes + 1000 * sizeof(long));
	/* lw_cpp(3) says: The process that made the container can use it, and so can each copy of this process that is made later */
	(*map)[1] = 10;
	pid_t child = fork();
	if (child == 0) {
		alarm(WATCHDOG);
		// In its place, and in memory that the child allocates.
		vector->front() = 5;
		vector->resize(5000, 2);
		(*map)[1]++;
		(*map)[2] = 20;
		_exit(0);
	}
	CHECK_IS(exit_of(child), 0);
	CHECK(vector->size() == 5000 && vector->front() == 5 && vector->back() == 2);
	CHECK(map->size() == 2 && map->at(1) == 11 && map->at(2) == 20);
	vector->~numbers();
	map->~table();
}

int main()
{
	alarm(WATCHDOG);
	test_region();
	test_region_mutex();
	test_region_rwlock_and_once();
	test_queue();
	test_containers();
	std::puts("shared");
	return 0;
}

// Semaphores, completions and barriers, of threads and of processes; and coprocs.
#include "coproc.hpp"
#include "latchwork.hpp"

#include "check.h"

#include <array>
#include <climits>
#include <new>
#include <stdexcept>
#include <sys/syscall.h>
#include <thread>

using namespace std::chrono_literals;

template <class T, class... Arguments>
static T &shared(Arguments... arguments)
{
	return *new (share(sizeof(T))) T(arguments...);
}

template <class Body>
static void fails(int error, Body body)
{
	try {
		body();
	} catch (const std::system_error &caught) {
		CHECK_IS(caught.code().value(), error);
		return;
	}
	CHECK(!"it should have thrown");
}

// Each takes what the other one gives.
template <class Semaphore>
static void semaphores(Semaphore &there, Semaphore &back)
{
	pid_t child = in_a_process([&] {
		for (int round = 0; round < 500; round++) {
			there.acquire();
			back.release();
		}
		return 0;
	});
	for (int round = 0; round < 500; round++) {
		there.release();
		back.acquire();
	}
	CHECK_IS(exit_of(child), 0);
	CHECK(!back.try_acquire());
	CHECK(!back.try_acquire_for(1ms));
	CHECK(!back.try_acquire_until(std::chrono::steady_clock::now()));
	CHECK(!back.try_acquire_until(std::chrono::system_clock::time_point::min()));
	back.release();
	CHECK(back.try_acquire_for(std::chrono::hours::max()));
	back.release();
	CHECK(back.try_acquire_until(std::chrono::system_clock::time_point::max()));
	CHECK_IS(back.native_handle()->lw_state, 0);
}

template <class Completion>
static void completions(Completion &asked, Completion &done)
{
	pid_t child = in_a_process([&] {
		if (!asked.wait_for(std::chrono::hours::max()))
			return 1;
		done.complete();
		asked.wait();
		done.complete_all();
		return 0;
	});
	CHECK(!done.is_done() && !done.try_wait());
	CHECK(!done.wait_for(1ms));
	CHECK(!done.wait_until(std::chrono::system_clock::now() + 1ms));
	asked.complete();
	done.wait();
	asked.complete();
	for (int time = 0; time < 3; time++) {
		CHECK(done.wait_until(std::chrono::steady_clock::time_point::max()));
		CHECK(done.is_done() && done.try_wait() && done.wait_for(1ms));
	}
	CHECK_IS(exit_of(child), 0);
	done.reset();
	CHECK(!done.is_done() && !done.try_wait());
}

template <class Barrier>
static void barriers(Barrier &meeting, std::array<int, 2> &turns)
{
	auto meet = [&](int me) {
		int serials = 0;
		for (int round = 0; round < 100; round++) {
			turns[(size_t)me] = round;
			if (round % 2 == 0) {
				serials += meeting.arrive_and_wait();
			} else {
				lw::arrival how = round % 4 == 1 ? meeting.arrive_and_wait_for(1h) :
					meeting.arrive_and_wait_until(std::chrono::system_clock::now() + 1h);
				CHECK(how != lw::arrival::timed_out);
				serials += how == lw::arrival::serial;
			}
			CHECK_IS(turns[(size_t)!me], round);
			meeting.arrive_and_wait();
		}
		return serials;
	};
	CHECK(meeting.arrive_and_wait_for(1ms) == lw::arrival::timed_out);
	pid_t child = in_a_process([&] { return meet(1); });
	int serials = meet(0);
	CHECK_IS(serials + exit_of(child), 100);
	fails(EINVAL, [] { Barrier none(0); });
}

struct job {
	lw::shared_mutex lock;
	lw::shared_completion begun;
	lw::shared_semaphore go;
	long sum = 0;
	int policy = -1;
};

static int work(job &job)
{
	std::lock_guard<lw::shared_mutex> held(job.lock);
	job.sum += 40;
	return 2;
}

static int stay(job &job)
{
	job.begun.complete();
	for (;;)
		job.go.acquire();
}

static int look(job &job)
{
	job.policy = sched_getscheduler(0);
	return 0;
}

static int count_passed(job &)
{
	size_t count = 0;
	while (coproc_descriptor(count) >= 0)
		count++;
	return (int)count;
}

static int may_open(job &)
{
	int file = open("/dev/null", O_RDONLY);
	return file >= 0 ? 0 : errno;
}

static int read_only(const job &job)
{
	return (int)job.sum;
}

static int throws(job &)
{
	throw 7;
}

// Each flag and each attribute: what is set, and nothing else.
static void options_of_coprocs()
{
	using options = lw::coproc_options;
	cpu_set_t cpus;
	CPU_ZERO(&cpus);
	CPU_SET(3, &cpus);
	/* lw_cpp(3) says: lw::coproc_options has the flags and attributes of coproc_create() */
	CHECK_IS(options().flags(), 0);
	CHECK_IS(options().share_fs().flags(), COPROC_SHARE_FS);
	CHECK_IS(options().share_sysvsem().flags(), COPROC_SHARE_SYSVSEM);
	CHECK_IS(options().snapshot().flags(), COPROC_SNAPSHOT);
	CHECK_IS(options().die_with_parent().flags(), COPROC_DIE_WITH_PARENT);
	CHECK_IS(options().address_space_size(1).flags(), COPROC_SET_AS_SIZE);
	CHECK_IS(options().core_file_size(2).flags(), COPROC_SET_CORE_SIZE);
	CHECK_IS(options().cpu_time(3).flags(), COPROC_SET_CPU_TIME);
	CHECK_IS(options().stack_size(4).flags(), COPROC_SET_STACK_SIZE);
	CHECK_IS(options().scheduling(5, 6).flags(), COPROC_SET_SCHED);
	CHECK_IS(options().cpu_affinity(cpus).flags(), COPROC_SET_CPU_AFFINITY);
	options all;
	all.address_space_size(1).core_file_size(2).cpu_time(3).stack_size(4).scheduling(5, 6).cpu_affinity(cpus);
	const coproc_attributes &set = all.attributes();
	CHECK(set.address_space_size == 1 && set.core_file_size == 2 && set.cpu_time == 3 && set.stack_size == 4);
	CHECK(set.scheduling_policy == 5 && set.scheduling_param == 6);
	CHECK(CPU_EQUAL(&set.cpu_affinity_mask, &cpus));
}

// What a coproc gives up. A copy of options has all that they have.
static void rights_of_coprocs(job &job)
{
	using options = lw::coproc_options;
	options plain, calls, files;
	CHECK(plain.extras().readable == nullptr && plain.extras().writable == nullptr);
	calls.confinement(COPROC_CONFINE_CALLS);
	CHECK_IS(lw::coproc::start<may_open>("closed", job, calls).join().exit_code(), ENOSYS);
	calls.call(SYS_openat);
#ifdef SYS_open
	calls.call(SYS_open);
#endif
	CHECK_IS(lw::coproc::start<may_open>("open", job, calls).join().exit_code(), 0);
	calls = options().confinement(COPROC_CONFINE_CALLS).confinement(COPROC_DENIED_KILLS);
	CHECK_IS(lw::coproc::start<may_open>("killed", job, calls).join().signal(), SIGSYS);

	files.confinement(COPROC_CONFINE_FILES).readable("/proc").readable("/dev/null").writable("/tmp");
	const options copy(std::exchange(files, options()));
	const coproc_extras extras = copy.extras();
	CHECK(extras.readable[2] == nullptr && extras.writable[1] == nullptr);
	CHECK(std::string("/proc") == extras.readable[0] && std::string("/dev/null") == extras.readable[1]);
	CHECK_IS(std::string("/tmp").compare(extras.writable[0]), 0);
	try {
		CHECK_IS(lw::coproc::start<may_open>("files", job, copy).join().exit_code(), 0);
		files.confinement(COPROC_CONFINE_FILES).readable("/proc");
		CHECK_IS(lw::coproc::start<may_open>("no file", job, files).join().exit_code(), EACCES);
	} catch (const std::system_error &error) {
		/* The kernel has no Landlock, or an old one. */
		CHECK(error.code().value() == ENOSYS || error.code().value() == EOPNOTSUPP);
	}
}

static void coprocs()
{
	fails(EINVAL, [] {
		static job none;
		(void)lw::coproc::start<work>("early", none);
	});
	pid_t left;
	{
		lw::coprocs runtime(1 << 20);
		fails(EBUSY, [] { lw::coprocs second(1 << 20); });
		/* lw_cpp(3) says: lw::coproc_make<T>(...) makes an object in the shared memory and returns a std::unique_ptr */
		auto job = lw::coproc_make<struct job>();
		CHECK((std::is_same_v<decltype(job), std::unique_ptr<struct job, lw::coproc_delete>>));
		/* lw_cpp(3) says: lw::coproc::start<routine>(name, object, options) starts a coproc that runs routine */
		/* lw_cpp(3) says: routine takes a reference to an object in the shared memory, and returns the exit code, of which the low 8 */
		lw::coproc one = lw::coproc::start<work>("one", *job), two;
		CHECK(one.joinable() && !two.joinable());
		two = std::move(one);
		CHECK(!one.joinable() && two.joinable());
		lw::coproc &itself = two;
		two = std::move(itself);
		CHECK(two.joinable());
		lw::coproc_status status = two.join();
		CHECK(status.exited() && status.exit_code() == 2 && status.signal() == 0);
		CHECK_IS(job->sum, 40);
		fails(EINVAL, [&] { two.join(); });
		fails(EINVAL, [&] { two.kill(SIGTERM); });
		CHECK_IS(lw::coproc::start<read_only>("const", std::as_const(*job)).join().exit_code(), 40);

		/* lw_cpp(3) says: The destructor of an lw::coproc waits for the end of the process, unless join() or release() was called before */
		{
			lw::coproc joined = lw::coproc::start<work>("scope", *job);
		}
		CHECK_IS(job->sum, 80);
		{
			lw::coproc again = lw::coproc::start<work>("first", *job);
			again = lw::coproc::start<work>("second", *job);
		}
		CHECK_IS(job->sum, 160);

		lw::coproc_options options;
		options.scheduling(SCHED_BATCH, 19).cpu_time(60).core_file_size(0).die_with_parent();
		CHECK_IS(lw::coproc::start<look>("batch", *job, options).join().exit_code(), 0);
		CHECK_IS(job->policy, SCHED_BATCH);
		options.scheduling(SCHED_FIFO, 1000);
		try {
			(void)lw::coproc::start<look>("refused", *job, options);
			CHECK(false);
		} catch (const std::system_error &error) {
			CHECK(std::string(error.what()).find("scheduling_policy") != std::string::npos);
		}

		/* lw_cpp(3) says: Its members cgroup(), descriptor(), confinement(), readable(), writable() and call() set the additional */
		options = lw::coproc_options().cgroup("/nowhere/at/all");
		try {
			(void)lw::coproc::start<look>("grouped", *job, options);
			CHECK(false);
		} catch (const std::system_error &error) {
			CHECK_IS(error.code().value(), ENOENT);
			CHECK(std::string(error.what()).find("cgroup") != std::string::npos);
		}
		options = lw::coproc_options().descriptor(2).descriptor(0);
		CHECK_IS(lw::coproc::start<count_passed>("passed", *job, options).join().exit_code(), 2);
		rights_of_coprocs(*job);

		lw::coproc killed = lw::coproc::start<stay>("killed", *job, lw::coproc_options().die_with_parent());
		job->begun.wait();
		killed.kill(SIGKILL);
		CHECK_IS(killed.join().signal(), SIGKILL);
		lw::coproc thrown = lw::coproc::start<throws>("throws", *job, lw::coproc_options().core_file_size(0));
		CHECK_IS(thrown.join().signal(), SIGABRT);

		pid_t released = lw::coproc::start<work>("released", *job).release();
		CHECK_IS(coproc_join(released, nullptr), 0);
		/* lw_cpp(3) says: lw::coproc::start_detached starts a coproc that cannot be joined */
		left = lw::coproc::start_detached<stay>("left", *job, lw::coproc_options().die_with_parent());
		job->begun.wait();
		CHECK(coproc_join(left, nullptr) == -1 && errno == ECHILD);
		CHECK_IS(kill(left, 0), 0);
		/* lw_cpp(3) says: a lack of memory for objects in shared memory as std::bad_alloc */
		try {
			(void)lw::coproc_make<std::array<char, (1 << 26)>>();
			CHECK(false);
		} catch (const std::bad_alloc &) {
		}
	}
	/* lw_cpp(3) says: The constructor of lw::coprocs calls coproc_init(), and its destructor calls coproc_exit() */
	CHECK_IS(kill(left, 0), -1);
	CHECK(coproc_exit() == -1 && errno == EINVAL);
	lw::coprocs again(1 << 16);
	lw::coproc late = lw::coproc::start<work>("late", *lw::coproc_make<struct job>().release());
	CHECK_IS(late.join().exit_code(), 2);
}

int main()
{
	alarm(WATCHDOG);
	// First, while there is one thread.
	options_of_coprocs();
	coprocs();
	semaphores(shared<lw::shared_semaphore>(0u), shared<lw::shared_semaphore>(0u));
	completions(shared<lw::shared_completion>(), shared<lw::shared_completion>());
	barriers(shared<lw::shared_barrier>(2u), shared<std::array<int, 2>>());
	// Those of one process.
	lw::semaphore items(1);
	items.acquire();
	CHECK(!items.try_acquire_until(std::chrono::steady_clock::now() + 1ms));
	std::thread giver([&] { items.release(); });
	CHECK(items.try_acquire_for(1h));
	giver.join();
	lw::completion done;
	std::thread completer([&] { done.complete(); });
	CHECK(done.wait_for(1h));
	completer.join();
	CHECK(!done.try_wait());
	lw::barrier meeting(2);
	CHECK(meeting.arrive_and_wait_until(std::chrono::steady_clock::now()) == lw::arrival::timed_out);
	std::thread partner([&] { meeting.arrive_and_wait(); });
	CHECK(meeting.arrive_and_wait_for(1h) != lw::arrival::timed_out);
	partner.join();
	lw_sem_t full = LW_SEM_INITIALIZER(LW_SEM_VALUE_MAX);
	fails(EOVERFLOW, [&] { new (&full) lw::semaphore(LW_SEM_VALUE_MAX); ((lw::semaphore *)&full)->release(); });
	for (unsigned count : {LW_SEM_VALUE_MAX + 1, UINT_MAX}) {
		fails(EINVAL, [&] { lw::semaphore above(count); });
		fails(EINVAL, [&] { lw::shared_semaphore above(count); });
	}
	std::puts("classed");
	return 0;
}

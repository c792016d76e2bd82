/*
 * coproc.hpp: the coprocs of coproc.h as C++ classes.
 *
 *     lw::coprocs runtime(1 << 20);                         the shared memory and the server process; early
 *     auto counts = lw::coproc_make<std::array<long, 4>>(); an object in the shared memory
 *     lw::coproc worker = lw::coproc::start<work>("worker", *counts);
 *     if (worker.join().exit_code() != 0) ...
 *
 * Errors are std::system_error, which names the attribute that could not be set. coproc.h describes the state of a
 * coproc, its end, and what it does not share. An exception that leaves its routine ends the coproc, as it ends a
 * thread, by std::terminate(). Manual: lw_cpp(3).
 */
#ifndef COPROC_HPP
#define COPROC_HPP

#include "coproc.h"

#include <cerrno>
#include <csignal>
#include <memory>
#include <new>
#include <string>
#include <sys/wait.h>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace lw {

/* The scope between coproc_init() and coproc_exit(): its end ends all coprocs of this process. */
class coprocs {
public:
	explicit coprocs(size_t bytes)
	{
		if (coproc_init(bytes) != 0)
			throw std::system_error(errno, std::generic_category(), "coproc_init");
	}
	coprocs(const coprocs &) = delete;
	coprocs &operator=(const coprocs &) = delete;
	/* In the child of a fork, and after coproc_exit(), this does nothing. */
	~coprocs() { coproc_exit(); }
};

/* Destroys an object and frees its memory, for all processes that share it. */
struct coproc_delete {
	template <class T>
	void operator()(T *object) const noexcept
	{
		object->~T();
		coproc_free(object);
	}
};
template <class T>
using coproc_ptr = std::unique_ptr<T, coproc_delete>;

/* Makes an object in the shared memory. std::bad_alloc: there is no room, or no lw::coprocs exists. */
template <class T, class... Arguments>
coproc_ptr<T> coproc_make(Arguments &&...arguments)
{
	static_assert(alignof(T) <= 16, "shared memory is aligned to 16 bytes");
	void *memory = coproc_alloc(sizeof(T));
	if (memory == nullptr)
		throw std::bad_alloc();
	try {
		return coproc_ptr<T>(::new (memory) T(std::forward<Arguments>(arguments)...));
	} catch (...) {
		coproc_free(memory);
		throw;
	}
}

/* The options of a coproc: flags, attributes and extras of coproc.h. */
class coproc_options {
public:
	coproc_options &address_space_size(rlim_t bytes)
	{
		return set(COPROC_SET_AS_SIZE, [&] { attributes_.address_space_size = bytes; });
	}
	coproc_options &core_file_size(rlim_t bytes)
	{
		return set(COPROC_SET_CORE_SIZE, [&] { attributes_.core_file_size = bytes; });
	}
	coproc_options &cpu_time(rlim_t seconds)
	{
		return set(COPROC_SET_CPU_TIME, [&] { attributes_.cpu_time = seconds; });
	}
	coproc_options &stack_size(rlim_t bytes)
	{
		return set(COPROC_SET_STACK_SIZE, [&] { attributes_.stack_size = bytes; });
	}
	/* A policy, and a priority (SCHED_FIFO, SCHED_RR) or a nice level (others). */
	coproc_options &scheduling(int policy, int param)
	{
		return set(COPROC_SET_SCHED, [&] {
			attributes_.scheduling_policy = policy;
			attributes_.scheduling_param = param;
		});
	}
	coproc_options &cpu_affinity(const cpu_set_t &mask)
	{
		return set(COPROC_SET_CPU_AFFINITY, [&] { attributes_.cpu_affinity_mask = mask; });
	}
	coproc_options &share_fs() { return with(COPROC_SHARE_FS); }
	coproc_options &share_sysvsem() { return with(COPROC_SHARE_SYSVSEM); }
	coproc_options &snapshot() { return with(COPROC_SNAPSHOT); }
	coproc_options &die_with_parent() { return with(COPROC_DIE_WITH_PARENT); }
	/* The directory of the control group to start it in. */
	coproc_options &cgroup(std::string directory)
	{
		cgroup_ = std::move(directory);
		return *this;
	}
	/* Passes a copy of an open descriptor; may be called several times. See coproc_descriptor(). */
	coproc_options &descriptor(int number)
	{
		descriptors_.push_back(number);
		return *this;
	}
	/* Rights to give up: COPROC_NO_NEW_PRIVS, COPROC_CONFINE_FILES and others. */
	coproc_options &confinement(unsigned rights)
	{
		confinement_ |= rights;
		return *this;
	}
	/* With COPROC_CONFINE_FILES: a path that may be opened to read, or to write; may be called several times. */
	coproc_options &readable(std::string path) { return add(readable_, std::move(path)); }
	coproc_options &writable(std::string path) { return add(writable_, std::move(path)); }
	/* With COPROC_CONFINE_CALLS: the number of a system call that may be made; may be called several times. */
	coproc_options &call(long number)
	{
		calls_.push_back(number);
		return *this;
	}

	/* Valid as long as these options are, and unchanged. */
	struct ::coproc_extras extras() const noexcept
	{
		struct ::coproc_extras extras = {};
		extras.cgroup = cgroup_.empty() ? nullptr : cgroup_.c_str();
		extras.descriptors = descriptors_.data();
		extras.descriptor_count = descriptors_.size();
		extras.confinement = confinement_;
		extras.readable = readable_.empty() ? nullptr : readable_.data();
		extras.writable = writable_.empty() ? nullptr : writable_.data();
		extras.calls = calls_.data();
		extras.call_count = calls_.size();
		return extras;
	}
	const struct ::coproc_attributes &attributes() const noexcept { return attributes_; }
	int flags() const noexcept { return flags_; }

private:
	coproc_options &with(int flag)
	{
		flags_ |= flag;
		return *this;
	}
	template <class Setter>
	coproc_options &set(int flag, Setter setter)
	{
		setter();
		return with(flag);
	}

	/* Puts a path at the end of a list, before the null pointer. */
	coproc_options &add(std::vector<const char *> &list, std::string path)
	{
		paths_.push_back(std::make_shared<const std::string>(std::move(path)));
		if (!list.empty())
			list.pop_back();
		list.push_back(paths_.back()->c_str());
		list.push_back(nullptr);
		return *this;
	}

	struct ::coproc_attributes attributes_ = {};
	int flags_ = 0;
	std::string cgroup_;
	std::vector<int> descriptors_;
	unsigned confinement_ = 0;
	/* Copies of these options share the texts, so the lists of a copy stay valid. */
	std::vector<std::shared_ptr<const std::string>> paths_;
	std::vector<const char *> readable_, writable_;
	std::vector<long> calls_;
};

/* How a coproc ended. */
class coproc_status {
public:
	explicit coproc_status(int status) noexcept : status_(status) {}
	bool exited() const noexcept { return WIFEXITED(status_); }
	/* -1 if it did not exit. */
	int exit_code() const noexcept { return exited() ? WEXITSTATUS(status_) : -1; }
	/* 0 if no signal killed it. */
	int signal() const noexcept { return WIFSIGNALED(status_) ? WTERMSIG(status_) : 0; }
	/* In waitpid()'s encoding. */
	int native() const noexcept { return status_; }

private:
	int status_;
};

/*
 * A coproc that must be joined. The destructor joins it if necessary, like that of std::jthread: it waits for its end.
 * It can be moved, but not copied.
 */
class coproc {
public:
	coproc() noexcept = default;
	coproc(coproc &&other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
	coproc &operator=(coproc &&other) noexcept
	{
		if (this == &other)
			return *this;
		coproc old(std::move(*this));
		pid_ = std::exchange(other.pid_, -1);
		return *this;
	}
	~coproc()
	{
		if (joinable())
			coproc_join(pid_, nullptr);
	}

	/* Starts a coproc that runs Routine on an object in the shared memory; Routine's result is its exit code. */
	template <auto Routine, class T>
	[[nodiscard]] static coproc start(const char *name, T &argument, const coproc_options &options = {})
	{
		static_assert(std::is_invocable_r_v<int, decltype(Routine), T &>,
			      "a coproc's routine takes a reference to its argument and returns an int");
		return coproc(begin(name, options, 0, run<Routine, T>, &argument));
	}
	/* Starts a detached coproc: it lives until it ends, or until coproc_exit(). Returns its process ID. */
	template <auto Routine, class T>
	static pid_t start_detached(const char *name, T &argument, const coproc_options &options = {})
	{
		static_assert(std::is_invocable_r_v<int, decltype(Routine), T &>,
			      "a coproc's routine takes a reference to its argument and returns an int");
		return begin(name, options, COPROC_DETACHED, run<Routine, T>, &argument);
	}

	bool joinable() const noexcept { return pid_ > 0; }
	/* -1 if there is none. */
	pid_t pid() const noexcept { return pid_; }
	/*
	 * EINVAL: it was joined, or moved from. ECHILD: lw::coprocs has ended meanwhile, and the coproc with it. After
	 * another error, as EIO, it can still be joined.
	 */
	coproc_status join()
	{
		int status = 0;
		if (!joinable())
			throw std::system_error(EINVAL, std::generic_category(), "lw::coproc::join");
		const int error = coproc_join(pid_, &status) == 0 ? 0 : errno;
		if (error == 0 || error == EINVAL || error == ECHILD)
			pid_ = -1;
		if (error != 0)
			throw std::system_error(error, std::generic_category(), "coproc_join");
		return coproc_status(status);
	}
	/* A signal to a coproc that has ended, and was not joined yet, has no effect. EINVAL: there is none. */
	void kill(int signal)
	{
		if (!joinable())
			throw std::system_error(EINVAL, std::generic_category(), "lw::coproc::kill");
		if (::kill(pid_, signal) != 0)
			throw std::system_error(errno, std::generic_category(), "kill");
	}
	/* Passes the coproc to the caller, for coproc_join(). */
	pid_t release() noexcept { return std::exchange(pid_, -1); }

private:
	explicit coproc(pid_t pid) noexcept : pid_(pid) {}

	/* noexcept: no exception is unwound beyond the routine. */
	template <auto Routine, class T>
	static int run(void *argument) noexcept
	{
		return Routine(*static_cast<T *>(argument));
	}
	template <class T>
	static pid_t begin(const char *name, const coproc_options &options, int flags, int (*routine)(void *),
			   T *argument)
	{
		struct ::coproc_attributes attributes = options.attributes();
		auto *address = const_cast<std::remove_cv_t<T> *>(argument);
		const struct ::coproc_extras extras = options.extras();
		pid_t pid = coproc_create_with(name, &attributes, &extras, options.flags() | flags, routine, address);
		if (pid < 0) {
			int error = errno;
			const char *attribute = coproc_failed_attribute();
			std::string what = "coproc_create";
			if (attribute != nullptr)
				what = what + ", " + attribute;
			throw std::system_error(error, std::generic_category(), what);
		}
		return pid;
	}

	pid_t pid_ = -1;
};

} // namespace lw

#endif

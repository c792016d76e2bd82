// A join that fails, but can be repeated, leaves the coproc to the object that has it.
#include "coproc.hpp"

#include "check.h"

#include <cerrno>
#include <dlfcn.h>

static int fails_with;

// In place of the library's: it fails once, without a join, if it has to.
extern "C" int coproc_join(pid_t pid, int *status)
{
	if (fails_with != 0) {
		errno = std::exchange(fails_with, 0);
		return -1;
	}
	auto *real = reinterpret_cast<int (*)(pid_t, int *)>(dlsym(RTLD_NEXT, "coproc_join"));
	CHECK(real != nullptr);
	return real(pid, status);
}

static int work(int &number)
{
	number++;
	return 7;
}

static void fails(int error, lw::coproc &coproc)
{
	try {
		fails_with = error;
		coproc.join();
	} catch (const std::system_error &caught) {
		CHECK_IS(caught.code().value(), error);
		return;
	}
	CHECK(!"it should have thrown");
}

int main()
{
	alarm(WATCHDOG);
	lw::coprocs runtime(1 << 20);
	auto number = lw::coproc_make<int>(0);
	lw::coproc coproc = lw::coproc::start<work>("joined", *number);
	const pid_t pid = coproc.pid();
	for (int time = 0; time < 2; time++) {
		fails(EIO, coproc);
		CHECK(coproc.joinable());
		CHECK_IS(coproc.pid(), pid);
	}
	CHECK_IS(coproc.join().exit_code(), 7);
	CHECK(!coproc.joinable());
	CHECK_IS(*number, 1);
	// There is nothing to join any more.
	for (int error : {EINVAL, ECHILD}) {
		coproc = lw::coproc::start<work>("gone", *number);
		const pid_t gone = coproc.pid();
		fails(error, coproc);
		CHECK(!coproc.joinable());
		CHECK_IS(coproc_join(gone, nullptr), 0);
	}
	std::puts("joined");
	return 0;
}

// Processes that are killed in the middle of a transfer, and the repair of their data by the next owner.
#include "latchwork.hpp"

#include <csignal>
#include <cstdio>
#include <new>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct accounts {
	lw::robust_mutex lock;
	long total = 1000, from = 1000, to = 0;
};

// Dies between its two steps, each third time.
static int transfer(accounts &accounts, int round)
{
	// The data says what is to be done: what left one account has not come to the other.
	lw::recovering lock(accounts.lock, [&] { accounts.to = accounts.total - accounts.from; });
	std::lock_guard held(lock);
	accounts.from -= 10;
	if (round % 3 == 0)
		raise(SIGKILL);
	accounts.to += 10;
	return 0;
}

int main()
{
	void *memory = mmap(nullptr, sizeof(accounts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return 1;
	auto &shared = *new (memory) accounts;
	int killed = 0;
	for (int round = 1; round <= 12; round++) {
		pid_t child = fork();
		if (child == 0)
			_exit(transfer(shared, round));
		int status;
		if (waitpid(child, &status, 0) != child)
			return 1;
		killed += WIFSIGNALED(status);
	}
	// The last one was killed, too. Here the repair is made by hand.
	try {
		std::lock_guard<lw::robust_mutex> held(shared.lock);
		return 1;
	} catch (const lw::owner_died &died) {
		std::printf("%s: %s\n", died.is_of(shared.lock) ? "the accounts" : "another lock", "its owner died");
	}
	bool is_torn = shared.lock.lock_recover();
	std::lock_guard<lw::robust_mutex> held(shared.lock, std::adopt_lock);
	if (is_torn) {
		shared.to = shared.total - shared.from;
		shared.lock.consistent();
	}
	std::printf("%d killed; %ld + %ld\n", killed, shared.from, shared.to);
	return killed == 4 && shared.from + shared.to == shared.total ? 0 : 1;
}

// Money goes from account to account: two locks at a time, in whatever order, without a deadlock.
#include "latchwork.hpp"

#include <array>
#include <cstdio>
#include <thread>
#include <vector>

struct account {
	lw::pi_mutex lock;
	long balance = 1000;
};

int main()
{
	std::array<account, 8> accounts;
	lw::barrier start(4);
	std::vector<std::thread> threads;
	for (unsigned seed = 1; seed <= 4; seed++)
		threads.emplace_back([&, seed]() mutable {
			start.arrive_and_wait();
			for (int transfer = 0; transfer < 5000; transfer++) {
				seed = seed * 1103515245 + 12345;
				account &from = accounts[seed >> 16 & 7], &to = accounts[seed >> 20 & 7];
				if (&from == &to)
					continue;
				std::scoped_lock both(from.lock, to.lock);
				from.balance -= seed & 15;
				to.balance += seed & 15;
			}
		});
	for (auto &thread : threads)
		thread.join();
	long total = 0;
	for (account &one : accounts) {
		std::lock_guard<lw::pi_mutex> held(one.lock);
		total += one.balance;
	}
	std::printf("%ld\n", total);
	return total == 8000 ? 0 : 1;
}

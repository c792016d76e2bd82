// Work that is shared among coprocs, by a counter and a barrier in their memory.
#include "coproc.hpp"
#include "latchwork.hpp"

#include <array>
#include <cstdio>
#include <vector>

struct table {
	lw::shared_barrier begin{3};
	lw::shared_mutex lock;
	lw::shared_completion done;
	size_t next = 0;
	std::array<long, 100> squares = {};
};

static int fill(table &table)
{
	table.begin.arrive_and_wait();
	for (;;) {
		std::lock_guard<lw::shared_mutex> held(table.lock);
		if (table.next == table.squares.size()) {
			table.done.complete_all();
			return 0;
		}
		table.squares[table.next] = static_cast<long>(table.next * table.next);
		table.next++;
	}
}

int main()
{
	lw::coprocs runtime(1 << 20);
	auto shared = lw::coproc_make<table>();
	std::vector<lw::coproc> workers;
	for (const char *name : {"one", "two", "three"})
		workers.push_back(lw::coproc::start<fill>(name, *shared, lw::coproc_options().die_with_parent()));
	shared->done.wait();
	for (lw::coproc &worker : workers)
		if (worker.join().exit_code() != 0)
			return 1;
	long sum = 0;
	for (long square : shared->squares)
		sum += square;
	std::printf("%ld\n", sum);
	return sum == 328350 ? 0 : 1;
}

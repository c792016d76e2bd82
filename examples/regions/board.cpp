// A table of a region that several processes fill, and a queue between them, by C++ classes.
#include <latchwork.hpp>
#include <latchwork/region.hpp>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

struct board {
	lw::robust_mutex lock;
	int entries = 0;
	struct entry {
		pid_t author;
		char text[32];
	} all[16];
	board() noexcept = default;
};

static const char *const type = "example.board 1";

int main()
{
	lw::region region;
	board *shared = region.object<board>("board", type);
	lw::queue orders(region, "orders", 4, 32);
	for (int child = 0; child < 3; child++)
		if (fork() == 0) {
			// Each process finds the same objects at the same address.
			board *found = region.find<board>("board", type);
			lw::message order = orders.hold();
			{
				std::lock_guard<lw::robust_mutex> held(found->lock);
				board::entry &entry = found->all[found->entries++];
				entry.author = getpid();
				std::memcpy(entry.text, order.data(), order.size());
			}
			order.done();
			_exit(found == shared ? 0 : 1);
		}
	for (const char *text : {"first", "second", "third"})
		orders.send(text, std::strlen(text) + 1);
	int failed = 0;
	for (int status = 0; wait(&status) > 0;)
		failed += status != 0;

	// A container of the standard library, in the region.
	std::vector<std::size_t, lw::region_allocator<std::size_t>> lengths{lw::region_allocator<std::size_t>(region)};
	for (int index = 0; index < shared->entries; index++)
		lengths.push_back(std::strlen(shared->all[index].text));
	std::size_t letters = 0;
	for (std::size_t length : lengths)
		letters += length;
	std::printf("%d entries, %zu letters, %d processes failed\n", shared->entries, letters, failed);
	return shared->entries != 3 || letters != 16 || failed != 0;
}

/*
 * A managed segment of Boost.Interprocess, for `latchwork crashtest`. docs/crashtest.md has the result.
 *
 *     c++ -g boost-segment.cpp -o boost-segment -lpthread
 *     latchwork crashtest -- ./boost-segment open         the kill hits the creation of the segment
 *     latchwork crashtest -- ./boost-segment construct    the kill hits the creation of an object in it
 *
 * After each kill, another process must be able to open or create the segment, and to find or construct the object.
 */
#include <boost/interprocess/managed_mapped_file.hpp>
#include <crashtest.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

using boost::interprocess::managed_mapped_file;
using boost::interprocess::open_or_create;

int main(int argc, char **argv)
{
	const char *phase = std::getenv("LATCHWORK_CRASHTEST");
	const char *folder = std::getenv("LATCHWORK_CRASHTEST_DIR");
	const std::string path = std::string(folder != nullptr ? folder : ".") + "/segment";
	const bool opens = argc > 1 && std::strcmp(argv[1], "open") == 0;

	try {
		if (phase != nullptr && std::strcmp(phase, "check") == 0) {
			managed_mapped_file segment(open_or_create, path.c_str(), 65536);
			const bool was_there = segment.find<int>("number").first != nullptr;
			const int *number = segment.find_or_construct<int>("number")(1);
			if (*number != 1 || !segment.check_sanity()) {
				std::puts("the segment is damaged");
				return 1;
			}
			std::puts(was_there ? "with the object" : "without the object");
			return 0;
		}
		if (opens)
			lw_crashtest_begin();
		managed_mapped_file segment(open_or_create, path.c_str(), 65536);
		if (!opens) {
			lw_crashtest_begin();
			segment.construct<int>("number")(1);
		}
		lw_crashtest_end();
	} catch (const std::exception &error) {
		std::printf("%s\n", error.what());
		return 1;
	}
	return 0;
}

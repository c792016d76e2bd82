/* A coproc that has two descriptors of its creator's and no other: what it reads from one it writes to the other. */
#define _GNU_SOURCE
#include "coproc.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int to_upper_case(void *unused)
{
	int in = coproc_descriptor(0), out = coproc_descriptor(1);
	char letter;

	(void)unused;
	while (read(in, &letter, 1) == 1) {
		letter = (char)toupper((unsigned char)letter);
		if (write(out, &letter, 1) != 1)
			return 1;
	}
	return 0;
}

int main(void)
{
	int there[2], back[2], passed[2], status;
	struct coproc_extras extras;
	char text[64];
	ssize_t length;
	pid_t pid;

	if (coproc_init(1 << 20) != 0 || pipe(there) != 0 || pipe(back) != 0)
		return 1;
	passed[0] = there[0];
	passed[1] = back[1];
	memset(&extras, 0, sizeof extras);
	extras.descriptors = passed;
	extras.descriptor_count = 2;
	pid = coproc_create_with("filter", NULL, &extras, 0, to_upper_case, NULL);
	if (pid < 0) {
		const char *attribute = coproc_failed_attribute();
		perror(attribute != NULL ? attribute : "coproc_create_with");
		return 1;
	}
	/* The coproc has copies of these two. */
	close(passed[0]);
	close(passed[1]);
	if (write(there[1], "hello", 5) != 5)
		return 1;
	close(there[1]);
	coproc_join(pid, &status);
	length = read(back[0], text, sizeof text);
	printf("%.*s, exit code %d\n", (int)length, text, WEXITSTATUS(status));
	close(back[0]);
	return coproc_exit();
}

/* What coproc_create_with() gives to a coproc and takes from it: descriptors, and rights. */
#include "coproc.h"
#include "latchwork.h"
#include "latchwork/region.h"

#include "coprocs.h"

#include <dirent.h>
#include <errno.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Made before coproc_init(). */
static lw_region_t *region;

/* ---- descriptors ---- */

/* Copies from the first descriptor to the second, and looks for another one that its creator has. */
static int copy(void *argument)
{
	char text[16];
	ssize_t length = read(coproc_descriptor(0), text, sizeof text);
	if (length < 1 || write(coproc_descriptor(1), text, (size_t)length) != length)
		return 1;
	if (coproc_descriptor(2) != -1 || errno != EBADF)
		return 2;
	if ((fcntl(coproc_descriptor(0), F_GETFD) & FD_CLOEXEC) == 0)
		return 3;
	if (close(coproc_descriptor(0)) != 0)
		return 6;
	return fcntl((int)(long)argument, F_GETFD) == -1 ? 4 : 5;
}

static int has_none(void *argument)
{
	(void)argument;
	return coproc_descriptor(0) == -1 && errno == EBADF;
}

static void descriptors_are_passed(void)
{
	struct coproc_extras extras;
	int there[2], back[2], passed[2], secret;
	char text[16];

	memset(&extras, 0, sizeof extras);
	CHECK(pipe(there) == 0 && pipe(back) == 0);
	secret = fcntl(there[0], F_DUPFD, 200);
	passed[0] = there[0];
	passed[1] = back[1];
	extras.descriptors = passed;
	extras.descriptor_count = 2;
	/* coproc(3) says: The coproc gets a copy of each descriptor, which is closed on exec */
	/* coproc(3) says: In the coproc, coproc_descriptor() returns the number of the copy of descriptors[place] */
	/* coproc(3) says: The coproc may close this copy */
	for (int kind = 0; kind < 2; kind++) {
		CHECK_IS(write(there[1], "hello", 5), 5);
		/* A snapshot has all other descriptors, too. */
		CHECK_IS(returned(coproc_create_with("copies", NULL, &extras, kind ? COPROC_SNAPSHOT : 0, copy,
						     (void *)(long)secret)),
			 kind ? 5 : 4);
		CHECK_IS(read(back[0], text, sizeof text), 5);
		CHECK_IS(memcmp(text, "hello", 5), 0);
	}
	CHECK_IS(returned(coproc_create("none", NULL, 0, has_none, NULL)), 1);
	CHECK_IS(has_none(NULL), 1);
	/* coproc(3) says: The descriptors of the creator stay open */
	CHECK(fcntl(there[0], F_GETFD) >= 0 && fcntl(back[1], F_GETFD) >= 0);
	/* No copy is left: the end of the pipe comes. */
	CHECK_IS(close(back[1]), 0);
	CHECK_IS(read(back[0], text, sizeof text), 0);

	/* What cannot be passed is reported by name. */
	passed[1] = 199;
	CHECK_IS(coproc_create_with("closed", NULL, &extras, 0, copy, NULL), -1);
	/* coproc(3), EBADF: An element of descriptors is not an open descriptor */
	CHECK_IS(errno, EBADF);
	CHECK_IS(strcmp(coproc_failed_attribute(), "descriptors"), 0);
	passed[1] = -1;
	CHECK_IS(coproc_create_with("negative", NULL, &extras, 0, copy, NULL), -1);
	CHECK_IS(errno, EBADF);
	extras.descriptors = NULL;
	CHECK_IS(coproc_create_with("no array", NULL, &extras, 0, copy, NULL), -1);
	CHECK_IS(errno, EINVAL);
	close(secret);
	close(there[0]);
	close(there[1]);
	close(back[0]);
}

static void too_many(const struct coproc_extras *extras)
{
	CHECK_IS(coproc_create_with("too many", NULL, extras, 0, has_none, NULL), -1);
	/* coproc(3), E2BIG: There are too many descriptors */
	CHECK_IS(errno, E2BIG);
	CHECK_IS(strcmp(coproc_failed_attribute(), "descriptors"), 0);
}

static void descriptors_have_a_limit(void)
{
	static const char *const nothing[] = {NULL};
	static const char *const groups[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"};
	struct coproc_extras extras;
	int many[33];
	pid_t made;

	memset(&extras, 0, sizeof extras);
	for (int place = 0; place < 33; place++)
		many[place] = 0;
	/* coproc(3) says: An array of open descriptors, and the number of its elements */
	/* coproc(3) says: At most 32 are allowed */
	/* coproc(3) says: A control group, COPROC_CONFINE_FILES and COPROC_CONFINE_CALLS lower this limit by one each */
	extras.descriptors = many;
	extras.descriptor_count = 33;
	too_many(&extras);
	extras.descriptor_count = 32;
	CHECK_IS(returned(coproc_create_with("many", NULL, &extras, 0, has_none, NULL)), 0);
	for (size_t place = 0; place < sizeof groups / sizeof groups[0]; place++) {
		char members[64];
		snprintf(members, sizeof members, "%s/cgroup.procs", groups[place]);
		extras.cgroup = groups[place];
		if (access(members, W_OK) == 0)
			too_many(&extras);
	}
	extras.cgroup = NULL;
	extras.confinement = COPROC_CONFINE_CALLS;
	too_many(&extras);
	extras.descriptor_count = 31;
	CHECK_IS(returned(coproc_create_with("confined", NULL, &extras, 0, has_none, NULL)), 0);
	extras.confinement |= COPROC_CONFINE_FILES;
	extras.readable = extras.writable = nothing;
	too_many(&extras);
	extras.descriptor_count = 30;
	made = coproc_create_with("both", NULL, &extras, 0, has_none, NULL);
	if (made == -1)
		CHECK(errno == ENOSYS || errno == EOPNOTSUPP);
	else
		CHECK_IS(returned(made), 0);
}

static int is_same_file(int one, int other)
{
	struct stat first, second;
	CHECK(fstat(one, &first) == 0 && fstat(other, &second) == 0);
	return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

/* Its open descriptors but 0, 1, 2, the passed one and the region's: that of the shared memory must be the only one. */
static int has_one_more(void *secret)
{
	struct dirent *entry;
	int more = 0;
	DIR *folder = opendir("/proc/self/fd");
	CHECK(folder != NULL);
	CHECK_IS(fcntl((int)(long)secret, F_GETFD), -1);
	while ((entry = readdir(folder)) != NULL) {
		int number = atoi(entry->d_name);
		if (entry->d_name[0] == '.' || number < 3 || number == dirfd(folder) || number == coproc_descriptor(0) ||
		    is_same_file(number, lw_region_fd(region)))
			continue;
		more++;
	}
	closedir(folder);
	return more;
}

static void a_coproc_has_no_other_descriptors(void)
{
	struct coproc_extras extras;
	int secret = fcntl(0, F_DUPFD, 200);
	memset(&extras, 0, sizeof extras);
	extras.descriptors = &secret;
	extras.descriptor_count = 1;
	CHECK(secret >= 200);
	/* coproc(3) says: Without COPROC_SNAPSHOT, a coproc has only these descriptors of its creator: 0, 1, 2, those in the array */
	CHECK_IS(returned(coproc_create_with("closed", NULL, &extras, 0, has_one_more, (void *)(long)secret)), 1);
	close(secret);
}

/* ---- rights ---- */

static int error_of_open(void *path, int how)
{
	int file = open((const char *)path, how);
	int error = file < 0 ? errno : 0;
	if (file >= 0)
		close(file);
	return error;
}

static int opens(void *path)
{
	return error_of_open(path, O_RDONLY);
}

static int writes(void *path)
{
	return error_of_open(path, O_WRONLY);
}

static void calls_are_refused(void)
{
	static const char null[] = "/dev/null";
	/* musl's open() makes the older call where the processor has it. */
#ifdef SYS_open
	const long calls[] = { SYS_openat, SYS_open };
#else
	const long calls[] = { SYS_openat };
#endif
	struct coproc_extras extras;
	int status;

	memset(&extras, 0, sizeof extras);
	extras.confinement = COPROC_CONFINE_CALLS;
	/* coproc(3) says: The coproc makes no system calls but those that the library needs, and those in the array calls */
	/* coproc(3) says: Another call fails with ENOSYS */
	CHECK_IS(returned(coproc_create_with("closed", NULL, &extras, 0, opens, (void *)null)), ENOSYS);
	/* coproc(3) says: The array has call_count elements */
	extras.calls = calls;
	extras.call_count = sizeof calls / sizeof calls[0];
	CHECK_IS(returned(coproc_create_with("open", NULL, &extras, 0, opens, (void *)null)), 0);
	extras.call_count = 0;
	/* coproc(3) says: With COPROC_CONFINE_CALLS, a system call that is not allowed kills the coproc with SIGSYS */
	extras.confinement |= COPROC_DENIED_KILLS;
	status = done(coproc_create_with("killed", NULL, &extras, 0, opens, (void *)null));
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
	/* coproc(3) says: Without COPROC_CONFINE_CALLS, the call fails with EINVAL */
	extras.confinement = COPROC_DENIED_KILLS;
	CHECK_IS(coproc_create_with("alone", NULL, &extras, 0, opens, (void *)null), -1);
	CHECK(errno == EINVAL && strcmp(coproc_failed_attribute(), "confinement") == 0);
	extras.confinement = 32;
	CHECK_IS(coproc_create_with("unknown", NULL, &extras, 0, opens, (void *)null), -1);
	CHECK(errno == EINVAL && strcmp(coproc_failed_attribute(), "confinement") == 0);
}

/* What was open stays so: the descriptor that was passed, and the regions. */
static int uses_what_is_open(void *path)
{
	char text[8];
	void *block = lw_region_alloc(region, (size_t)8 << 20);
	if (block == NULL || pread(coproc_descriptor(0), text, sizeof text, 0) < 1)
		return 1;
	lw_region_free(region, block);
	return opens(path);
}

static void files_are_refused(void)
{
	static const char nowhere[] = "/nowhere";
	/* A coproc reads these names in the shared memory: its other memory is older. */
	char *folder = (char *)coproc_alloc(64), *file = (char *)coproc_alloc(64), *other = (char *)coproc_alloc(64);
	const char *list[] = {NULL, NULL}, *const lost[] = {nowhere, NULL};
	struct coproc_extras extras;
	int made, secret;

	strcpy(folder, "/tmp/latchwork-in-c-XXXXXX");
	strcpy(other, folder);
	CHECK(mkdtemp(folder) != NULL);
	snprintf(file, 64, "%s/file", folder);
	made = open(file, O_CREAT | O_RDWR, 0600);
	secret = mkstemp(other);
	CHECK(made >= 0 && secret >= 0);
	CHECK_IS(write(secret, "secret", 6), 6);

	memset(&extras, 0, sizeof extras);
	extras.confinement = COPROC_CONFINE_FILES;
	extras.readable = list;
	list[0] = file;
	{
		pid_t first = coproc_create_with("files", NULL, &extras, 0, opens, file);
		if (first == -1) {
			CHECK(errno == ENOSYS || errno == EOPNOTSUPP);
			CHECK_IS(strcmp(coproc_failed_attribute(), "files"), 0);
			fprintf(stderr, "skipped: files: the kernel has no Landlock, or an old one\n");
		} else {
			/* coproc(3) says: The coproc opens no files but those in the lists readable and writable, and those beneath */
			/* coproc(3) says: Each list ends in NULL */
			CHECK_IS(returned(first), 0);
			CHECK_IS(returned(coproc_create_with("other", NULL, &extras, 0, opens, other)), EACCES);
			CHECK_IS(returned(coproc_create_with("reads", NULL, &extras, 0, writes, file)), EACCES);
			list[0] = folder;
			CHECK_IS(returned(coproc_create_with("beneath", NULL, &extras, 0, opens, file)), 0);
			extras.readable = NULL;
			extras.writable = list;
			CHECK_IS(returned(coproc_create_with("writes", NULL, &extras, 0, writes, file)), 0);
			CHECK_IS(returned(coproc_create_with("other", NULL, &extras, 0, writes, other)), EACCES);
			/* coproc(3) says: Files that are already open stay open, such as that of the shared memory */
			extras.descriptors = &secret;
			extras.descriptor_count = 1;
			CHECK_IS(returned(coproc_create_with("has", NULL, &extras, 0, uses_what_is_open, other)), EACCES);
			extras.descriptor_count = 0;
		}
	}
	/* A path that is not there is an error with all flags. */
	extras.writable = lost;
	extras.confinement |= COPROC_BEST_EFFORT;
	if (coproc_create_with("lost", NULL, &extras, 0, opens, file) == -1)
		CHECK(errno == ENOENT && strcmp(coproc_failed_attribute(), "files") == 0);
	else
		CHECK(!"a path that is not there was left out");
	CHECK(unlink(file) == 0 && rmdir(folder) == 0 && unlink(other) == 0);
	close(made);
	close(secret);
	coproc_free(folder);
	coproc_free(file);
	coproc_free(other);
}

static int gains_none(void *argument)
{
	(void)argument;
	return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
}

static void no_privileges_are_gained(void)
{
	static const long calls[] = {SYS_prctl};
	const unsigned flags[] = {COPROC_NO_NEW_PRIVS, COPROC_CONFINE_CALLS, COPROC_CONFINE_CALLS | COPROC_DENIED_KILLS,
				  COPROC_CONFINE_FILES | COPROC_BEST_EFFORT};
	struct coproc_extras extras;
	memset(&extras, 0, sizeof extras);
	extras.calls = calls;
	extras.call_count = 1;
	/* coproc(3) says: Set all bytes of the structure to zero before you set fields: a field that is zero has no effect */
	CHECK_IS(returned(coproc_create_with("any", NULL, &extras, 0, gains_none, NULL)), gains_none(NULL));
	CHECK_IS(returned(coproc_create_with("none", NULL, &extras, 0, has_none, NULL)), 1);
	/* coproc(3) says: No exec(3) gains privileges */
	/* coproc(3) says: COPROC_CONFINE_FILES and COPROC_CONFINE_CALLS include this flag */
	for (size_t number = 0; number < sizeof flags / sizeof flags[0]; number++) {
		extras.confinement = flags[number];
		CHECK_IS(returned(coproc_create_with("fewer", NULL, &extras, 0, gains_none, NULL)), 1);
	}
}

int main(void)
{
	alarm(WATCHDOG);
	CHECK_IS(coproc_descriptor(0), -1);
	CHECK_IS(errno, EBADF);
	CHECK_IS(lw_region_create(&region, NULL, NULL), 0);
	CHECK_IS(coproc_init(1 << 20), 0);
	descriptors_are_passed();
	descriptors_have_a_limit();
	a_coproc_has_no_other_descriptors();
	calls_are_refused();
	files_are_refused();
	no_privileges_are_gained();
	CHECK_IS(coproc_exit(), 0);
	CHECK_IS(lw_region_detach(region), 0);
	puts("given");
	return 0;
}

/*
 * What coproc(3) says of the shared memory, of what a coproc is a copy of, of its flags and of its end: each sentence of its
 * description, before the lines that show it. coproc.c, coproc_effects.c, coproc_rights.c and ending.c cite others. The test
 * in manual.rs compares these sentences with the page.
 */
#include "coproc.h"
#include "latchwork.h"

#include "coprocs.h"

#include <dirent.h>
#include <errno.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define MOST ((size_t)1 << 20)

/* A child of this process that is not "other"; 0 if there is none. */
static pid_t child_but(pid_t other)
{
	struct dirent *entry;
	pid_t found = 0;
	DIR *folder = opendir("/proc");
	CHECK(folder != NULL);
	while ((entry = readdir(folder)) != NULL) {
		char path[300], line[512];
		int pid = atoi(entry->d_name), parent = 0;
		FILE *file;
		if (pid <= 0 || pid == other)
			continue;
		snprintf(path, sizeof path, "/proc/%d/stat", pid);
		file = fopen(path, "r");
		if (file == NULL)
			continue;
		if (fgets(line, sizeof line, file) != NULL && strrchr(line, ')') != NULL)
			sscanf(strrchr(line, ')') + 2, "%*c %d", &parent);
		fclose(file);
		if (parent == (int)getpid())
			found = pid;
	}
	closedir(folder);
	return found;
}

/* ---- the memory ---- */

struct letter {
	struct letter *itself;
	char *text;
	pid_t writer;
};

static int own = 1;

static int answer(void *argument)
{
	struct letter *letter = (struct letter *)argument;
	own = 2;
	letter->writer = getpid();
	letter->text = (char *)coproc_alloc(MOST / 2);
	if (letter->text != NULL)
		strcpy(letter->text, "from a coproc");
	return letter->itself == letter && letter->text != NULL ? 0 : 1;
}

static int free_it(void *block)
{
	coproc_free(block);
	return 0;
}

/* How many blocks of this size there is room for. Each is written at its ends. */
static size_t room_for(size_t bytes)
{
	void **last = NULL, **block;
	size_t count = 0;
	while ((block = (void **)coproc_alloc(bytes)) != NULL) {
		((char *)block)[bytes - 1] = 'x';
		*block = (void *)last;
		last = block;
		count++;
	}
	CHECK_IS(errno, ENOMEM);
	for (; last != NULL; last = block) {
		block = (void **)*last;
		coproc_free((void *)last);
	}
	return count;
}

static void memory_is_shared(void)
{
	struct letter *letter = (struct letter *)coproc_alloc(sizeof *letter);
	size_t room = room_for(MOST / 2);
	void *block;
	pid_t pid;

	CHECK(letter != NULL);
	letter->itself = letter;
	/* coproc(3) says: A coproc is a process that shares one piece of memory with the process that started it */
	/* coproc(3) says: The memory is at the same address in both processes, so a pointer into it is valid in both */
	pid = coproc_create("writer", NULL, 0, answer, letter);
	CHECK_IS(returned(pid), 0);
	CHECK(letter->writer == pid && pid != getpid());
	CHECK_IS(own, 1);
	/* coproc(3) says: coproc_alloc() allocates a block of the memory that the creator and its coprocs share */
	/* coproc(3) says: The block stays allocated when the coproc that allocated it ends */
	CHECK_IS(room_for(MOST / 2), room - 1);
	CHECK_IS(strcmp(letter->text, "from a coproc"), 0);
	/* coproc(3) says: coproc_free() frees the block; any of these processes may call it */
	coproc_free(letter->text);
	CHECK_IS(room_for(MOST / 2), room);
	block = coproc_alloc(MOST / 2);
	CHECK(block != NULL);
	CHECK_IS(returned(coproc_create("freer", NULL, 0, free_it, block)), 0);
	CHECK_IS(room_for(MOST / 2), room);
	coproc_free(letter);
}

#define THREADS 250

static pthread_barrier_t all_have_one;

static void *allocate_one(void *unused)
{
	CHECK(coproc_alloc(16) != NULL);
	pthread_barrier_wait(&all_have_one);
	return unused;
}

static void each_thread_has_room(void)
{
	static pthread_t threads[THREADS];
	CHECK_IS(pthread_barrier_init(&all_have_one, NULL, THREADS), 0);
	for (int index = 0; index < THREADS; index++)
		threads[index] = start(allocate_one, NULL);
	for (int index = 0; index < THREADS; index++)
		join(threads[index]);
}

/* In a process of its own: blocks just larger than a power of two need the most room. */
static void memory_is_large_enough(void)
{
	const size_t sizes[] = {16, 17, 33, 4097, 32769, 65537, 131073, 16 * MOST / 3, 16 * MOST};
	pid_t pid = fork();
	if (pid == 0) {
		alarm(WATCHDOG);
		CHECK_IS(coproc_init(16 * MOST), 0);
		/* coproc(3) says: At least shm_max_size bytes of it can be allocated in blocks of 16 bytes or more */
		for (size_t number = 0; number < sizeof sizes / sizeof sizes[0]; number++)
			CHECK(room_for(sizes[number]) >= 16 * MOST / sizes[number]);
		/* coproc(3) says: A thread takes memory in pieces of 64 KiB, each for blocks of similar sizes */
		/* coproc(3) says: There is additional memory for 256 pieces that their threads have not filled */
		each_thread_has_room();
		CHECK(room_for(4097) >= 16 * MOST / 4097);
		_exit(0);
	}
	CHECK_IS(exit_of(pid), 0);
}

/* ---- what a coproc is a copy of ---- */

static int value = 1;

static int see(void *argument)
{
	*(int *)argument = value;
	return 0;
}

static int seen_with(int flags, int *seen)
{
	*seen = 0;
	CHECK_IS(returned(coproc_create("copy", NULL, flags, see, seen)), 0);
	return *seen;
}

static void a_server_is_copied(pid_t server)
{
	int *seen = (int *)coproc_alloc(sizeof *seen);
	value = 2;
	/* coproc(3) says: A coproc is a copy of that server process, unless COPROC_SNAPSHOT is given */
	/* coproc(3) says: So the static variables of the coproc have the values that they had at coproc_init() */
	CHECK_IS(seen_with(0, seen), 1);
	CHECK_IS(seen_with(COPROC_SNAPSHOT, seen), 2);
	/* coproc(3) says: This flag implies COPROC_SNAPSHOT */
	CHECK_IS(seen_with(COPROC_SHARE_FS, seen), 2);
	CHECK_IS(seen_with(COPROC_SHARE_SYSVSEM, seen), 2);
	/* coproc(3) says: If the server process is killed, the next coproc_create() without COPROC_SNAPSHOT starts another one */
	CHECK_IS(kill(server, SIGKILL), 0);
	AWAIT(!runs(server));
	value = 3;
	CHECK_IS(seen_with(0, seen), 3);
	value = 4;
	CHECK_IS(seen_with(0, seen), 3);
	coproc_free(seen);
}

/* The value that a coproc of this coproc sees, now and after a change. */
static int create_own(void *argument)
{
	int *seen = (int *)argument;
	value = 7;
	CHECK_IS(seen_with(0, seen), 7);
	value = 8;
	CHECK_IS(seen_with(0, seen), 7);
	return 0;
}

static int on_the_stack(void *argument)
{
	return *(int *)argument;
}

static lw_mutex_t mutex = LW_MUTEX_INITIALIZER;

struct turn {
	volatile int is_held, may_release, is_released, has_tried;
};

static void *hold_mutex(void *argument)
{
	struct turn *turn = (struct turn *)argument;
	CHECK_IS(lw_mutex_lock(&mutex), 0);
	turn->is_held = 1;
	AWAIT(turn->may_release);
	CHECK_IS(lw_mutex_unlock(&mutex), 0);
	return NULL;
}

static int try_mutex(void *argument)
{
	struct turn *turn = (struct turn *)argument;
	AWAIT(turn->is_released);
	return lw_mutex_trylock(&mutex) == EBUSY ? 0 : 1;
}

static void a_snapshot_is_a_copy_of_the_thread(void)
{
	struct turn *turn = (struct turn *)coproc_alloc(sizeof *turn);
	int local = 5;
	pthread_t holder;
	pid_t pid;

	memset(turn, 0, sizeof *turn);
	/* coproc(3) says: The coproc is a copy of the calling thread at the moment of the call, with all memory of its process */
	CHECK_IS(returned(coproc_create("stack", NULL, COPROC_SNAPSHOT, on_the_stack, &local)), 5);
	/* coproc(3) says: A lock that another thread holds at that moment stays locked for ever in the copy */
	holder = start(hold_mutex, turn);
	AWAIT(turn->is_held);
	pid = coproc_create("locked", NULL, COPROC_SNAPSHOT, try_mutex, turn);
	turn->may_release = 1;
	join(holder);
	CHECK_IS(lw_mutex_trylock(&mutex), 0);
	CHECK_IS(lw_mutex_unlock(&mutex), 0);
	turn->is_released = 1;
	CHECK_IS(returned(pid), 0);
	coproc_free(turn);
}

/* ---- what is shared on request ---- */

static int change_folder_and_mask(void *argument)
{
	(void)argument;
	umask(0123);
	return chdir("/proc");
}

static int change_root(void *argument)
{
	(void)argument;
	return chroot("/proc") == 0 ? 0 : errno;
}

static void folders_are_shared(void)
{
	char path[300];
	/* In a process of its own, which ends then. */
	pid_t pid = fork();
	if (pid == 0) {
		alarm(WATCHDOG);
		CHECK_IS(coproc_init(MOST), 0);
		CHECK_IS(chdir("/"), 0);
		umask(0022);
		CHECK_IS(returned(coproc_create("own", NULL, COPROC_SNAPSHOT, change_folder_and_mask, NULL)), 0);
		CHECK_IS(strcmp(getcwd(path, sizeof path), "/"), 0);
		CHECK_IS(umask(0022), 0022);
		/* coproc(3) says: The creator and the coproc share the table of descriptors, the working directory, the root directory */
		CHECK_IS(returned(coproc_create("shared", NULL, COPROC_SHARE_FS, change_folder_and_mask, NULL)), 0);
		CHECK_IS(strcmp(getcwd(path, sizeof path), "/proc"), 0);
		CHECK_IS(umask(0022), 0123);
		switch (returned(coproc_create("root", NULL, COPROC_SHARE_FS, change_root, NULL))) {
		case 0:
			CHECK(access("/self", F_OK) == 0 && access("/proc", F_OK) != 0);
			break;
		default:
			fprintf(stderr, "skipped: the root directory cannot be changed here\n");
		}
		_exit(0);
	}
	CHECK_IS(exit_of(pid), 0);
}

/* ---- ends ---- */

static volatile sig_atomic_t children_ended;

static void count_end(int signal)
{
	(void)signal;
	children_ended++;
}

static int end_with(void *status)
{
	return (int)(long)status;
}

static void an_end_is_told_to_the_join_alone(void)
{
	int status = -1;
	pid_t pid, child;
	CHECK(signal(SIGCHLD, count_end) != SIG_ERR);
	pid = coproc_create("ends", NULL, 0, end_with, (void *)9L);
	CHECK(pid > 0);
	AWAIT(!runs(pid));
	/* coproc(3) says: The end of a coproc sends no SIGCHLD, and waitpid(2) for any child (-1) does not return its process ID */
	CHECK_IS(waitpid(-1, NULL, WNOHANG), -1);
	CHECK_IS(children_ended, 0);
	/* coproc(3) says: Examine the status with WIFEXITED() and the other macros of waitpid(2) */
	CHECK_IS(coproc_join(pid, &status), 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
	CHECK_IS(children_ended, 0);
	/* coproc(3) says: coproc_join() waits for the end of a coproc that the calling process has created, and stores its status */
	pid = coproc_create("ends", NULL, 0, end_with, (void *)9L);
	/* coproc(3) says: The call returns when the status is known; the process may exist for some milliseconds after that */
	CHECK_IS(coproc_join(pid, NULL), 0);
	AWAIT(!runs(pid));
	/* coproc(3) says: If a process calls fork(2) after coproc_init(), the child cannot create coprocs */
	child = fork();
	if (child == 0) {
		CHECK_IS(coproc_create("of a child", NULL, 0, end_with, NULL), -1);
		_exit(errno == EPERM ? 0 : 1);
	}
	CHECK_IS(exit_of(child), 0);
	CHECK_IS(children_ended, 1);
	CHECK(signal(SIGCHLD, SIG_DFL) != SIG_ERR);
}

/* Becomes this program, which reads its standard input to the end. */
static int become_another(void *argument)
{
	(void)argument;
	execl("/proc/self/exe", "said_coprocs", "read", (char *)NULL);
	return 1;
}

static int is_named(pid_t pid, const char *name)
{
	char path[64], found[32] = "";
	FILE *file;
	snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
	file = fopen(path, "r");
	if (file == NULL)
		return 0;
	if (fgets(found, sizeof found, file) != NULL)
		found[strcspn(found, "\n")] = 0;
	fclose(file);
	return strcmp(found, name) == 0;
}

static int stay(void *argument)
{
	alarm(WATCHDOG);
	*(volatile int *)argument = 1;
	for (;;)
		pause();
	return 0;
}

static void what_has_become_another_program_stays(void)
{
	volatile pid_t *pids = (volatile pid_t *)share(2 * sizeof *pids);
	volatile int *is_there = (volatile int *)share(sizeof *is_there);
	int ends[2], input = dup(0);
	char letter;
	pid_t creator;

	CHECK(input >= 0 && pipe(ends) == 0);
	creator = fork();
	if (creator == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(WATCHDOG);
		CHECK_IS(dup2(ends[0], 0), 0);
		close(ends[0]);
		close(ends[1]);
		CHECK_IS(coproc_init(MOST), 0);
		pids[0] = coproc_create("becomes", NULL, COPROC_DIE_WITH_PARENT | COPROC_DETACHED, become_another, NULL);
		pids[1] = coproc_create("remains", NULL, COPROC_DIE_WITH_PARENT | COPROC_DETACHED, stay, (void *)is_there);
		CHECK(pids[0] > 0 && pids[1] > 0);
		/* The other program names itself. */
		AWAIT(*is_there && is_named(pids[0], "another"));
		_exit(0);
	}
	close(ends[0]);
	CHECK_IS(exit_of(creator), 0);
	/* coproc(3) says: When the creator ends, the coproc is killed, unless the coproc has become another program by exec(3) */
	AWAIT(!runs(pids[1]));
	CHECK(runs(pids[0]));
	/* It is killed for nothing else: it ends when its input does. */
	letter = 0;
	CHECK_IS(write(ends[1], &letter, 1), 1);
	CHECK(runs(pids[0]));
	close(ends[1]);
	AWAIT(!runs(pids[0]));
	close(input);
}

/* ---- calls ---- */

static void calls_in_short_forms(void)
{
	int *seen = (int *)coproc_alloc(sizeof *seen);
	/* coproc(3) says: attrib may be NULL if no flag COPROC_SET_... is given */
	/* coproc(3) says: coproc_create_with() does what coproc_create() does, and gives the coproc the additional properties in */
	CHECK_IS(returned(coproc_create_with("plain", NULL, NULL, 0, see, seen)), 0);
	CHECK_IS(*seen, 1);
	/* coproc(3) says: arg is a pointer into the shared memory, or another value that has a meaning in the copy */
	CHECK_IS(returned(coproc_create("static", NULL, 0, on_the_stack, &value)), 1);
	/* coproc(3) says: A coproc may create coprocs of its own, without a call of coproc_init() */
	/* coproc(3) says: Its first coproc_create() starts a server process, which is a copy of the coproc at that time */
	CHECK_IS(returned(coproc_create("creates", NULL, 0, create_own, seen)), 0);
	CHECK_IS(*seen, 7);
	coproc_free(seen);
}

int main(int count, char **arguments)
{
	pid_t server;
	char letter;

	alarm(WATCHDOG);
	if (count > 1 && strcmp(arguments[1], "read") == 0) {
		CHECK_IS(prctl(PR_SET_NAME, "another", 0, 0, 0), 0);
		while (read(0, &letter, 1) == 1)
			;
		return 0;
	}
	/* These fork processes that have coprocs of their own. */
	memory_is_large_enough();
	folders_are_shared();
	what_has_become_another_program_stays();

	/* coproc(3) says: coproc_init() makes the shared memory */
	CHECK(coproc_alloc(1) == NULL);
	CHECK_IS(child_but(0), 0);
	CHECK_IS(coproc_init(MOST), 0);
	/* coproc(3) says: The call also starts a server process, which is a copy of the calling process */
	server = child_but(0);
	CHECK(server != 0 && child_but(server) == 0);
	calls_in_short_forms();
	memory_is_shared();
	a_snapshot_is_a_copy_of_the_thread();
	an_end_is_told_to_the_join_alone();
	a_server_is_copied(server);
	CHECK_IS(coproc_exit(), 0);
	puts("said");
	return 0;
}

/*
 * Calls that are no cancellation points, in threads that were asked to end before: they return from each, whatever cold
 * places it leads through, and end at the next cancellation point. The cases are the arguments; without one, all.
 */
#include "classic.h"
#include "coproc.h"
#include "latchwork.h"
#include "latchwork/queue.h"
#include "migrate.h"

#include "check.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifdef LATCHWORK_TWIN
/* The negative twin: nothing disables cancellation. */
int pthread_setcancelstate(int state, int *before)
{
	(void)state;
	if (before != NULL)
		*before = PTHREAD_CANCEL_ENABLE;
	return 0;
}
#endif

static lw_region_t *region;
static lw_queue_t *queue;

/* What lies in the region. */
struct locks {
	lw_robust_mutex_t robust;
	lw_shared_tp_mutex_t throughput;
};
static struct locks *locks;

struct call {
	void (*body)(void *);
	void *argument;
	int returned;
};

static void *asked(void *argument)
{
	struct call *call = (struct call *)argument;
	char buffer[16];
	CHECK_IS(pthread_cancel(pthread_self()), 0);
	call->body(call->argument);
	call->returned = 1;
	/* The next cancellation point. */
	lw_queue_receive(queue, buffer, sizeof buffer, NULL, NULL);
	return NULL;
}

static unsigned ready(void)
{
	struct lw_queue_state state;
	CHECK_IS(lw_queue_get_state(queue, &state), 0);
	return state.ready;
}

/* Has a new thread make a call, and come to its end behind it. */
static void returns(void (*body)(void *), void *argument)
{
	struct call call = {body, argument, 0};
	CHECK(join(start(asked, &call)) == PTHREAD_CANCELED);
	CHECK(call.returned);
}

/* ---- the first use ---- */

static void use_each(void *none)
{
	char buffer[16];
	lw_message_t message;
	lw_batch_t batch;
	struct iovec place = {buffer, 1};
	struct lw_queue_state state;
	uint32_t count = 0;
	void *block = lw_region_alloc(region, 100);
	(void)none;
	CHECK(block != NULL);
	CHECK_IS(lw_region_keep(region, block), 0);
	lw_region_free(region, block);
	CHECK_IS(lw_queue_trysend(queue, "one", 3, 0), 0);
	CHECK_IS(lw_queue_reserve(queue, &message, 0, &lw_no_wait), 0);
	memcpy(message.data, "two", 3);
	CHECK_IS(lw_message_send(&message, 3), 0);
	CHECK_IS(lw_queue_reserve(queue, &message, 0, &lw_no_wait), 0);
	CHECK_IS(lw_message_cancel(&message), 0);
	CHECK_IS(lw_queue_send_batch(queue, &place, 1, 0, &count, &lw_no_wait), 0);
	CHECK_IS(lw_queue_broadcast(queue, "none", 4, &count), 0);
	CHECK_IS(lw_queue_get_state(queue, &state), 0);
	CHECK_IS(lw_queue_tryreceive(queue, buffer, sizeof buffer, NULL, NULL), 0);
	CHECK(memcmp(buffer, "one", 3) == 0);
	CHECK_IS(lw_queue_hold(queue, &message, &lw_no_wait), 0);
	CHECK(memcmp(message.data, "two", 3) == 0);
	CHECK_IS(lw_message_give_back(&message), 0);
	CHECK_IS(lw_queue_hold(queue, &message, &lw_no_wait), 0);
	CHECK_IS(lw_message_done(&message), 0);
	CHECK_IS(lw_queue_hold_batch(queue, &batch, &place, 1, &lw_no_wait), 0);
	CHECK_IS(lw_batch_done(&batch), 0);
	CHECK_IS(lw_queue_flush(queue, NULL), 0);
	CHECK_IS(lw_queue_tryreceive(queue, buffer, sizeof buffer, NULL, NULL), EAGAIN);
	CHECK_IS(lw_robust_mutex_lock(&locks->robust), 0);
	CHECK_IS(lw_robust_mutex_unlock(&locks->robust), 0);
	CHECK_IS(lw_shared_tp_mutex_lock(&locks->throughput), 0);
	CHECK_IS(lw_shared_tp_mutex_unlock(&locks->throughput), 0);
}

static void first_use(void)
{
	returns(use_each, NULL);
	CHECK_IS(ready(), 0);
}

/* ---- a region whose handle is given up ---- */

static void join_another(lw_region_t **other)
{
	CHECK_IS(lw_region_create(other, NULL, NULL), 0);
	CHECK_IS(lw_region_join(*other, "task"), 0);
}

static void *give_up(void *other)
{
	CHECK_IS(lw_region_detach((lw_region_t *)other), 0);
	return NULL;
}

/* The thread is still a task of another region, which it leaves at the first use of this one: its file is closed. */
static void *leaves(void *argument)
{
	struct call *call = (struct call *)argument;
	lw_region_t *other;
	join_another(&other);
	join(start(give_up, other));
	return asked(call);
}

static void send_one(void *none)
{
	(void)none;
	CHECK_IS(lw_queue_trysend(queue, "stays", 5, 0), 0);
}

static void receive_one(void)
{
	char buffer[16];
	CHECK_IS(lw_queue_tryreceive(queue, buffer, sizeof buffer, NULL, NULL), 0);
	CHECK(memcmp(buffer, "stays", 5) == 0);
}

static void first_use_elsewhere(void)
{
	struct call call = {send_one, NULL, 0};
	CHECK(join(start(leaves, &call)) == PTHREAD_CANCELED);
	CHECK(call.returned);
	receive_one();
}

/* A thread that returns leaves the region as it ends, and is not cancelled meanwhile. */
static void *ends(void *none)
{
	lw_region_t *other;
	join_another(&other);
	join(start(give_up, other));
	CHECK_IS(pthread_cancel(pthread_self()), 0);
	(void)none;
	return &queue;
}

static void end_of_a_thread(void)
{
	CHECK(join(start(ends, NULL)) == &queue);
}

/* ---- dead tasks ---- */

static int reports[2];

/* Dies alone, without an end in good order: its process lives on. */
static void *die(void *argument)
{
	lw_message_t held;
	int id = (int)syscall(SYS_gettid);
	CHECK_IS(lw_robust_mutex_lock(&locks->robust), 0);
	CHECK_IS(lw_shared_tp_mutex_lock(&locks->throughput), 0);
	CHECK_IS(lw_queue_hold(queue, &held, NULL), 0);
	CHECK_IS(write(reports[1], &id, sizeof id), sizeof id);
	syscall(SYS_exit, 0);
	return argument;
}

/* Calls a function while a task is dead whose process is not, so that a sweep asks for each of the other tasks. */
static void beside_the_dead(void (*body)(void *))
{
	char path[64];
	int id;
	pid_t child;
	CHECK_IS(lw_queue_trysend(queue, "stays", 5, 0), 0);
	CHECK_IS(pipe(reports), 0);
	child = fork();
	if (child == 0) {
		/* It does not outlive a failure here. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		CHECK_IS(lw_region_join(region, "other"), 0);
		start(die, NULL);
		for (;;)
			pause();
	}
	CHECK(child > 0);
	CHECK_IS(read(reports[0], &id, sizeof id), sizeof id);
	snprintf(path, sizeof path, "/proc/%d/task/%d", child, id);
	while (access(path, F_OK) == 0)
		sleep_ms(1);
	returns(body, NULL);
	CHECK_IS(kill(child, SIGKILL), 0);
	CHECK_IS(exit_of(child), 1000 + SIGKILL);
	close(reports[0]);
	close(reports[1]);
}

static void receive_from_the_dead(void *none)
{
	(void)none;
	receive_one();
}

static void lock_after_the_dead(void *none)
{
	(void)none;
	CHECK_IS(lw_robust_mutex_lock(&locks->robust), EOWNERDEAD);
	CHECK_IS(lw_robust_mutex_consistent(&locks->robust), 0);
	CHECK_IS(lw_robust_mutex_unlock(&locks->robust), 0);
}

static void wait_for_the_dead(void *none)
{
	struct timespec soon = in_ms(CLOCK_MONOTONIC, 2);
	(void)none;
	CHECK_IS(lw_shared_tp_mutex_timedlock(&locks->throughput, &soon), ETIMEDOUT);
}

static void tidy(void)
{
	int taken = lw_robust_mutex_trylock(&locks->robust);
	CHECK(taken == 0 || taken == EOWNERDEAD);
	if (taken == EOWNERDEAD)
		CHECK_IS(lw_robust_mutex_consistent(&locks->robust), 0);
	CHECK_IS(lw_robust_mutex_unlock(&locks->robust), 0);
	/* The dead one's for ever. */
	lw_shared_tp_mutex_init(&locks->throughput);
	CHECK_IS(lw_queue_flush(queue, NULL), 0);
	CHECK_IS(ready(), 0);
}

static void sweep_in_a_receive(void)
{
	beside_the_dead(receive_from_the_dead);
	tidy();
}

static void sweep_in_a_lock(void)
{
	beside_the_dead(lock_after_the_dead);
	receive_one();
	tidy();
}

static void dead_owner(void)
{
	beside_the_dead(wait_for_the_dead);
	receive_one();
	tidy();
}

/* ---- reports ---- */

static DEFINE_MUTEX_DEBUG(checked);

static void unlock_what_is_not_held(void *none)
{
	(void)none;
	mutex_unlock(&checked);
}

/* The checker begins, and prints. */
static void report(void)
{
	char text[4096] = "";
	FILE *file = tmpfile();
	int errors = dup(2);
	CHECK(file != NULL && errors >= 0 && dup2(fileno(file), 2) == 2);
	returns(unlock_what_is_not_held, NULL);
	CHECK(dup2(errors, 2) == 2);
	rewind(file);
	CHECK(fread(text, 1, sizeof text - 1, file) > 0);
	CHECK(strstr(text, "checked") != NULL);
	fclose(file);
	close(errors);
}

/* ---- directives ---- */

static void count_processors(void *none)
{
	rtems_id id = 0;
	(void)none;
	CHECK(rtems_scheduler_get_processor_maximum() > 0);
	CHECK_IS(rtems_semaphore_create(rtems_build_name('S', 'E', 'M', 'A'), 1, RTEMS_COUNTING_SEMAPHORE, 0, &id),
		 RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_release(id), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_event_send(RTEMS_SELF, RTEMS_EVENT_1), RTEMS_SUCCESSFUL);
	CHECK_IS(rtems_semaphore_delete(id), RTEMS_SUCCESSFUL);
}

static void first_directive(void)
{
	returns(count_processors, NULL);
}

/* ---- coprocs ---- */

/* It can be cancelled, although its creator was undisturbed. */
static int routine(void *none)
{
	int before = -1;
	(void)none;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before == PTHREAD_CANCEL_ENABLE ? 7 : 8;
}

static void begin_and_join(void *none)
{
	int flags[2] = {0, COPROC_SNAPSHOT};
	(void)none;
	CHECK_IS(coproc_init(1 << 20), 0);
	for (int number = 0; number < 2; number++) {
		int status = 0;
		pid_t pid = coproc_create("routine", NULL, flags[number], routine, NULL);
		CHECK(pid > 0);
		CHECK_IS(coproc_join(pid, &status), 0);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
	CHECK_IS(coproc_exit(), 0);
}

static void coprocs(void)
{
	returns(begin_and_join, NULL);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"first use", first_use},
	{"first use elsewhere", first_use_elsewhere},
	{"end", end_of_a_thread},
	{"sweep in a receive", sweep_in_a_receive},
	{"sweep in a lock", sweep_in_a_lock},
	{"dead owner", dead_owner},
	{"report", report},
	{"directive", first_directive},
	{"coprocs", coprocs},
};

int main(int count, char **arguments)
{
	void *object = NULL;
	int ran = 0;
	alarm(WATCHDOG);
	CHECK_IS(lw_region_create(&region, NULL, NULL), 0);
	CHECK_IS(lw_queue_create(&queue, region, "queue", 8, 16, LW_QUEUE_RACING), 0);
	CHECK_IS(lw_region_object(region, "locks", 1, sizeof *locks, NULL, NULL, &object), 0);
	locks = (struct locks *)object;
	lw_robust_mutex_init(&locks->robust);
	lw_shared_tp_mutex_init(&locks->throughput);
	for (size_t number = 0; number < sizeof cases / sizeof *cases; number++) {
		if (count > 1 && strcmp(arguments[1], cases[number].name) != 0)
			continue;
		cases[number].run();
		ran++;
	}
	CHECK(ran > 0);
	CHECK_IS(lw_queue_close(queue), 0);
	CHECK_IS(lw_region_detach(region), 0);
	puts("undisturbed");
	return 0;
}

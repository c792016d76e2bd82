/*
 * A dispatcher and its workers, three processes that are killed again and again: no job is lost, and none counts twice.
 *
 * A worker holds its job while it works, so a job whose worker is killed goes to another one. The result and the mark
 * that the job is done are changed under a robust lock, so that whoever repeats a job sees what is there already.
 */
#include <latchwork.h>
#include <latchwork/queue.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOBS 300
#define WORKERS 3

struct results {
	lw_robust_mutex_t lock;
	/* The job whose result is being added, and the sum before that; 0: none. */
	int adding;
	long before;
	long sum;
	unsigned char done[JOBS + 1];
};

static void make(void *object, void *argument)
{
	(void)argument;
	lw_robust_mutex_init(&((struct results *)object)->lock);
}

static void must(int error)
{
	if (error != 0) {
		fprintf(stderr, "%s\n", lw_error_text());
		exit(1);
	}
}

static void add(struct results *results, int job, int dies)
{
	if (lw_robust_mutex_lock(&results->lock) == EOWNERDEAD) {
		/* The last owner was killed: what it had begun is undone. */
		if (results->adding != 0 && !results->done[results->adding])
			results->sum = results->before;
		lw_robust_mutex_consistent(&results->lock);
	}
	if (!results->done[job]) {
		results->before = results->sum;
		results->adding = job;
		results->sum += job;
		if (dies)
			raise(SIGKILL);
		results->done[job] = 1;
	}
	lw_robust_mutex_unlock(&results->lock);
}

static int work(lw_region_t *region, int dies_at)
{
	lw_queue_t *queue;
	lw_message_t message;
	void *results;
	must(lw_region_join(region, "worker"));
	must(lw_queue_open(&queue, region, "jobs"));
	must(lw_region_find(region, "results", lw_type("example.results 1"), sizeof(struct results), &results));
	for (int count = 1; lw_queue_hold(queue, &message, NULL) == 0; count++) {
		int job;
		memcpy(&job, message.data, sizeof job);
		add((struct results *)results, job, count == dies_at);
		must(lw_message_done(&message));
	}
	return 0;
}

static pid_t start(lw_region_t *region, int dies_at)
{
	pid_t child = fork();
	if (child == 0)
		_exit(work(region, dies_at));
	return child;
}

int main(void)
{
	lw_region_t *region;
	lw_queue_t *queue;
	struct lw_queue_state state;
	void *object;
	struct results *results;
	int killed = 0, status;

	must(lw_region_create(&region, NULL, NULL));
	must(lw_queue_create(&queue, region, "jobs", 16, sizeof(int), LW_QUEUE_RACING));
	must(lw_region_object(region, "results", lw_type("example.results 1"), sizeof *results, make, NULL,
			      &object));
	results = (struct results *)object;
	for (int worker = 0; worker < WORKERS; worker++)
		start(region, 5 + 7 * worker);
	for (int job = 1; job <= JOBS; job++) {
		must(lw_queue_send(queue, &job, sizeof job, job % 4 == 0 ? 1 : 0));
		while (waitpid(-1, &status, WNOHANG) > 0) {
			killed++;
			start(region, killed < 10 ? 20 : 0);
		}
	}
	do
		must(lw_queue_get_state(queue, &state));
	while ((state.ready != 0 || state.in_flight != 0) && sleep(1) == 0);
	must(lw_queue_delete(queue));
	while (wait(&status) > 0)
		killed += WIFSIGNALED(status) != 0;
	printf("%d jobs, %d workers killed, %lu jobs done again: the sum is %ld, and should be %d\n", JOBS, killed,
	       (unsigned long)state.redelivered, results->sum, JOBS * (JOBS + 1) / 2);
	return results->sum != JOBS * (JOBS + 1) / 2;
}

/*
 * A program that knows nothing of Latchwork, and deadlocks: two threads lock two accounts in different orders. Each waits
 * until the other one has its first lock, so that this happens in every run.
 *
 * With an argument, the threads take turns: the program then ends, although the fault is still in it. The guide
 * docs/examples/deadlock.md finds it in both cases.
 */
#include <pthread.h>
#include <stdio.h>

struct account {
	pthread_mutex_t lock;
	long balance;
};

static struct account savings = {PTHREAD_MUTEX_INITIALIZER, 1000};
static struct account current = {PTHREAD_MUTEX_INITIALIZER, 1000};
static pthread_barrier_t both;
static int takes_turns;

static void transfer(struct account *from, struct account *to, long amount)
{
	pthread_mutex_lock(&from->lock);
	if (!takes_turns)
		pthread_barrier_wait(&both);
	pthread_mutex_lock(&to->lock);
	from->balance -= amount;
	to->balance += amount;
	pthread_mutex_unlock(&to->lock);
	pthread_mutex_unlock(&from->lock);
}

static void *save(void *unused)
{
	(void)unused;
	transfer(&current, &savings, 100);
	return NULL;
}

static void *spend(void *unused)
{
	(void)unused;
	transfer(&savings, &current, 30);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t saver, spender;

	(void)argv;
	takes_turns = argc > 1;
	pthread_barrier_init(&both, NULL, 2);
	pthread_create(&saver, NULL, save, NULL);
	if (takes_turns)
		pthread_join(saver, NULL);
	pthread_create(&spender, NULL, spend, NULL);
	if (!takes_turns)
		pthread_join(saver, NULL);
	pthread_join(spender, NULL);
	printf("%ld and %ld\n", savings.balance, current.balance);
	return 0;
}

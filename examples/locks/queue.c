/* Three producers, two consumers, a bounded buffer: a mutex, two condition variables, and a completion for the end. */
#include "latchwork.h"

#include <pthread.h>
#include <stdio.h>

#define ROOM 8
#define EACH 10000

static LW_DEFINE_TP_MUTEX(lock);
static LW_DEFINE_COND(not_full);
static LW_DEFINE_COND(not_empty);
static LW_DEFINE_COMPLETION(finished);
static int places[ROOM] LW_GUARDED_BY(lock);
static int first LW_GUARDED_BY(lock), count LW_GUARDED_BY(lock);
static long sum LW_GUARDED_BY(lock), left LW_GUARDED_BY(lock) = 3L * EACH;

static void *produce(void *argument)
{
	for (int number = 1; number <= EACH; number++) {
		lw_mutex_lock(&lock);
		while (count == ROOM)
			lw_cond_wait(&not_full, &lock);
		places[(first + count++) % ROOM] = number;
		lw_cond_signal(&not_empty);
		lw_mutex_unlock(&lock);
	}
	return argument;
}

static void *consume(void *argument)
{
	lw_mutex_lock(&lock);
	while (left > 0) {
		while (count == 0 && left > 0)
			lw_cond_wait(&not_empty, &lock);
		if (count == 0)
			break;
		sum += places[first];
		first = (first + 1) % ROOM;
		count--;
		if (--left == 0) {
			lw_cond_broadcast(&not_empty);
			lw_completion_complete(&finished);
		}
		lw_cond_signal(&not_full);
	}
	lw_mutex_unlock(&lock);
	return argument;
}

int main(void)
{
	pthread_t threads[5];
	long total;
	for (int index = 0; index < 5; index++)
		if (pthread_create(&threads[index], NULL, index < 3 ? produce : consume, NULL) != 0)
			return 1;
	lw_completion_wait(&finished);
	for (int index = 0; index < 5; index++)
		pthread_join(threads[index], NULL);
	lw_mutex_lock(&lock);
	total = sum;
	lw_mutex_unlock(&lock);
	printf("%ld\n", total);
	return total == 3L * EACH * (EACH + 1) / 2 ? 0 : 1;
}

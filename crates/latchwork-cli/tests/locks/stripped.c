/* A thread that waits for a static mutex until standard input ends. */
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t hidden_lock = PTHREAD_MUTEX_INITIALIZER;

static void *wait_for_it(void *none)
{
	pthread_mutex_lock(&hidden_lock);
	pthread_mutex_unlock(&hidden_lock);
	return none;
}

int main(void)
{
	char byte;
	pthread_t thread;
	pthread_mutex_lock(&hidden_lock);
	if (pthread_create(&thread, NULL, wait_for_it, NULL) != 0)
		return 1;
	while (read(0, &byte, 1) > 0)
		;
	pthread_mutex_unlock(&hidden_lock);
	return pthread_join(thread, NULL);
}

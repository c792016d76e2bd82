/* A library that was there before the checker, and holds its mutex across forks, as allocators do. */
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }
__attribute__((constructor)) static void construct(void) { pthread_atfork(lock, unlock, unlock); }

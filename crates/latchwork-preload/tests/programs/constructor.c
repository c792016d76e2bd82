/* A library whose constructor lets another thread make the first call, and locks. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

extern _Atomic int is_constructing;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void construct(void) {
    is_constructing = 1;
    usleep(50000);
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}

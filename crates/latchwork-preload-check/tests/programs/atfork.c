/* A library that was there before the checker, and holds its mutexes across forks, as allocators do: in the child one is
 * released, and others are reinitialised. */
#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, made = PTHREAD_MUTEX_INITIALIZER,
                       assigned = PTHREAD_MUTEX_INITIALIZER;

static void lock(void) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_lock(&made);
    pthread_mutex_lock(&assigned);
}
static void unlock(void) {
    pthread_mutex_unlock(&assigned);
    pthread_mutex_unlock(&made);
    pthread_mutex_unlock(&mutex);
}
static void reinitialise(void) {
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    assigned = fresh;
    pthread_mutex_lock(&assigned);
    pthread_mutex_unlock(&assigned);
    if (pthread_mutex_init(&made, NULL) != 0) abort();
    pthread_mutex_unlock(&mutex);
    lock();
    unlock();
}
__attribute__((constructor)) static void construct(void) { pthread_atfork(lock, unlock, reinitialise); }

/* A library with two locks, and an order of its own. */
#include <pthread.h>

pthread_mutex_t mutexes[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
#ifdef REVERSED
enum { FIRST = 1 };
#else
enum { FIRST = 0 };
#endif

void lock_both(void) {
    pthread_mutex_lock(&mutexes[FIRST]), pthread_mutex_lock(&mutexes[!FIRST]);
    pthread_mutex_unlock(&mutexes[!FIRST]), pthread_mutex_unlock(&mutexes[FIRST]);
}
void keep_one(void) { pthread_mutex_lock(&mutexes[FIRST]); }

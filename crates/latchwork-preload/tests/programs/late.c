/* A library that is loaded by dlopen: its constructor locks, and it has variables of each thread. */
#define _GNU_SOURCE
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int constructed, done;
static __thread char room[4096];

__attribute__((constructor)) static void construct(void) {
    pthread_mutex_lock(&mutex);
    constructed++;
    pthread_mutex_unlock(&mutex);
}
static void *work(void *argument) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_lock(&mutex);
    room[100] = 1;
    done = room[100];
    pthread_cond_signal(&cond);
    pthread_mutex_unlock(&mutex);
    pthread_mutex_unlock(&mutex);
    return argument;
}
int late_run(void) {
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    pthread_mutex_lock(&mutex);
    while (!done) pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
    pthread_join(thread, 0);
    return constructed;
}

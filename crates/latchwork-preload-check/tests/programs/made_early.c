/* A library that is set to work before the checker, which therefore does not see what it makes, nor the waits of its
   thread: condition variables with a clock and without, and barriers. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t by_clock, jobs = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t fresh, used;
static pthread_t worker;
static int waits, job;

static void *work(void *unused) {
    pthread_mutex_lock(&mutex);
    for (waits = 1, pthread_cond_broadcast(&jobs); !job;) pthread_cond_wait(&jobs, &mutex);
    pthread_mutex_unlock(&mutex);
    return unused;
}
__attribute__((constructor)) static void construct(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes), pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&by_clock, &attributes), pthread_condattr_destroy(&attributes);
    pthread_barrier_init(&fresh, NULL, 1), pthread_barrier_init(&used, NULL, 1);
    for (int i = 0; i < 3; i++) pthread_barrier_wait(&used);
    if (pthread_create(&worker, NULL, work, NULL) != 0) abort();
    pthread_mutex_lock(&mutex);
    while (!waits) pthread_cond_wait(&jobs, &mutex);
    pthread_mutex_unlock(&mutex);
}
void use_what_was_made_early(void) {
    struct timespec past = {1, 0};
    pthread_mutex_lock(&mutex), pthread_cond_timedwait(&by_clock, &mutex, &past), pthread_cond_timedwait(&jobs, &mutex, &past);
    job = 1, pthread_cond_broadcast(&jobs), pthread_mutex_unlock(&mutex), pthread_join(worker, NULL);
    pthread_cond_destroy(&by_clock), pthread_cond_destroy(&jobs);
    pthread_barrier_wait(&fresh), pthread_barrier_wait(&used), pthread_barrier_destroy(&fresh), pthread_barrier_destroy(&used);
}

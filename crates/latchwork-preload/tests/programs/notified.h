/* A thread that waits for a condition, by each call, and is notified. */
#include <errno.h>
#include <pthread.h>
#include <time.h>

struct notified { pthread_mutex_t mutex; pthread_cond_t cond, answer; int way, waits, notified; };

static void *wait_for_notification(void *argument) {
    struct notified *it = argument;
    struct timespec late = {.tv_sec = 2000000000};
    pthread_mutex_lock(&it->mutex);
    it->waits = 1;
    pthread_cond_signal(&it->answer);
    while (!it->notified)
        switch (it->way) {
        case 0: pthread_cond_wait(&it->cond, &it->mutex); break;
        case 1: pthread_cond_timedwait(&it->cond, &it->mutex, &late); break;
        default: pthread_cond_clockwait(&it->cond, &it->mutex, CLOCK_MONOTONIC, &late); break;
        }
    pthread_mutex_unlock(&it->mutex);
    return NULL;
}
/* 0 if all went well; in memory that processes share, or of this one's. */
static int notify_each_way(int shared) {
    for (int way = 0; way < 6; way++) {
        struct notified it = {.way = way / 2};
        pthread_mutexattr_t mutexes;
        pthread_condattr_t conds;
        pthread_t thread;
        pthread_mutexattr_init(&mutexes), pthread_condattr_init(&conds);
        if (pthread_mutexattr_setpshared(&mutexes, shared) != 0 || pthread_condattr_setpshared(&conds, shared) != 0) return 1;
        if (pthread_mutex_init(&it.mutex, &mutexes) != 0 || pthread_cond_init(&it.cond, &conds) != 0) return 2;
        if (pthread_cond_init(&it.answer, &conds) != 0 || pthread_create(&thread, NULL, wait_for_notification, &it) != 0) return 3;
        pthread_mutex_lock(&it.mutex);
        while (!it.waits) pthread_cond_wait(&it.answer, &it.mutex);
        it.notified = 1;
        if (way % 2) pthread_cond_signal(&it.cond);
        else pthread_cond_broadcast(&it.cond);
        pthread_mutex_unlock(&it.mutex);
        if (pthread_join(thread, NULL) != 0) return 4;
        if (pthread_cond_destroy(&it.cond) != 0 || pthread_cond_destroy(&it.answer) != 0) return 5;
    }
    return 0;
}

/* What the programs have in common that use everything of pthread's and C11's: each does one case for each name on
 * its command line; without one, all that it has. It ends with 0 if all is as POSIX and glibc have it. */
#ifndef USES_H
#define USES_H

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
            _exit(1); \
        } \
    } while (0)
#define ROUNDS 2000

static void start(pthread_t *thread, void *(*body)(void *), void *argument) {
    CHECK(pthread_create(thread, NULL, body, argument) == 0);
}
static inline void join(pthread_t thread) { CHECK(pthread_join(thread, NULL) == 0); }
static struct timespec in(clockid_t clock, long milliseconds) {
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += milliseconds % 1000 * 1000000;
    time.tv_sec += milliseconds / 1000 + time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

/* Mutual exclusion, of any mutex, by any way to lock it. */
struct counted {
    pthread_mutex_t *mutex;
    long count;
    int inside;
    int way;
};
static inline void *count(void *argument) {
    struct counted *it = argument;
    for (int round = 0; round < ROUNDS; round++) {
        struct timespec late;
        switch (it->way) {
        case 0: CHECK(pthread_mutex_lock(it->mutex) == 0); break;
        case 1: while (pthread_mutex_trylock(it->mutex) != 0) sched_yield(); break;
        case 2: late = in(CLOCK_REALTIME, 60000); CHECK(pthread_mutex_timedlock(it->mutex, &late) == 0); break;
        case 3: late = in(CLOCK_MONOTONIC, 60000); CHECK(pthread_mutex_clocklock(it->mutex, CLOCK_MONOTONIC, &late) == 0); break;
        }
        CHECK(it->inside++ == 0);
        it->count++;
        if (round % 100 == 0) sched_yield();
        CHECK(--it->inside == 0);
        CHECK(pthread_mutex_unlock(it->mutex) == 0);
    }
    return NULL;
}
static inline void excludes(pthread_mutex_t *mutex) {
    for (int way = 0; way < 4; way++) {
        struct counted it = {.mutex = mutex, .way = way};
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) start(&threads[i], count, &it);
        for (int i = 0; i < 4; i++) join(threads[i]);
        CHECK(it.count == 4 * ROUNDS);
    }
}

/* Many wait, and are let in together. */
struct hall { pthread_mutex_t mutex; pthread_cond_t open, here; int waiting, is_open, left; };
static inline void *attend(void *argument) {
    struct hall *hall = argument;
    pthread_mutex_lock(&hall->mutex);
    hall->waiting++;
    pthread_cond_signal(&hall->here);
    while (!hall->is_open) CHECK(pthread_cond_wait(&hall->open, &hall->mutex) == 0);
    hall->left++;
    pthread_mutex_unlock(&hall->mutex);
    return NULL;
}
/* The cases, by their names. A name that none of them has is an error. */
#define USES(...) \
    int main(int count, char **names) { \
        static const struct { const char *name; void (*run)(void); } cases[] = {__VA_ARGS__}; \
        const char *patience = getenv("USES_PATIENCE"); \
        if (patience != NULL) alarm((unsigned)atoi(patience)); \
        int unknown = count - 1; \
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) { \
            int wanted = count == 1; \
            for (int name = 1; name < count; name++) { \
                if (strcmp(names[name], cases[i].name) != 0) continue; \
                wanted = 1; \
                unknown--; \
            } \
            if (wanted) cases[i].run(); \
        } \
        return unknown == 0 ? 0 : 2; \
    }

#endif

/* Mutexes of each kind, by each way to lock them. */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "uses.h"

/* A constructor of the program, with a mutex of its own. */
static pthread_mutex_t constructed = PTHREAD_MUTEX_INITIALIZER;
static int constructions;
__attribute__((constructor)) static void construct(void) {
    CHECK(pthread_mutex_lock(&constructed) == 0);
    constructions++;
    CHECK(pthread_mutex_unlock(&constructed) == 0);
}
__attribute__((destructor)) static void destruct(void) {
    if (pthread_mutex_lock(&constructed) != 0 || pthread_mutex_unlock(&constructed) != 0) _exit(99);
}

static void *try_it(void *mutex) { return (void *)(intptr_t)pthread_mutex_trylock(mutex); }
static int tried_elsewhere(pthread_mutex_t *mutex) {
    pthread_t thread;
    void *result;
    start(&thread, try_it, mutex);
    CHECK(pthread_join(thread, &result) == 0);
    return (int)(intptr_t)result;
}
static void *unlock_it(void *mutex) { return (void *)(intptr_t)pthread_mutex_unlock(mutex); }
static int unlocked_elsewhere(pthread_mutex_t *mutex) {
    pthread_t thread;
    void *result;
    start(&thread, unlock_it, mutex);
    CHECK(pthread_join(thread, &result) == 0);
    return (int)(intptr_t)result;
}

static void rules_of(pthread_mutex_t *mutex, int kind) {
    errno = 77;
    CHECK(pthread_mutex_lock(mutex) == 0);
    CHECK(tried_elsewhere(mutex) == EBUSY);
    struct timespec past = {.tv_sec = 1};
    CHECK(pthread_mutex_destroy(mutex) == EBUSY);
    switch (kind) {
    case PTHREAD_MUTEX_RECURSIVE:
        CHECK(pthread_mutex_lock(mutex) == 0);
        CHECK(pthread_mutex_trylock(mutex) == 0);
        CHECK(pthread_mutex_timedlock(mutex, &past) == 0);
        CHECK(unlocked_elsewhere(mutex) == EPERM);
        for (int i = 0; i < 3; i++) CHECK(pthread_mutex_unlock(mutex) == 0);
        CHECK(tried_elsewhere(mutex) == EBUSY);
        break;
    case PTHREAD_MUTEX_ERRORCHECK:
        CHECK(pthread_mutex_lock(mutex) == EDEADLK);
        CHECK(pthread_mutex_timedlock(mutex, &past) == EDEADLK);
        CHECK(pthread_mutex_trylock(mutex) == EBUSY);
        CHECK(unlocked_elsewhere(mutex) == EPERM);
        break;
    default: {
        CHECK(pthread_mutex_trylock(mutex) == EBUSY);
        struct timespec bad = {.tv_nsec = 1000000000};
        CHECK(pthread_mutex_timedlock(mutex, &bad) == EINVAL);
        struct timespec before = {.tv_sec = -5};
        CHECK(pthread_mutex_timedlock(mutex, &before) == ETIMEDOUT);
        CHECK(pthread_mutex_timedlock(mutex, &past) == ETIMEDOUT);
        struct timespec soon = in(CLOCK_MONOTONIC, 20), end;
        CHECK(pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &soon) == ETIMEDOUT);
        clock_gettime(CLOCK_MONOTONIC, &end);
        CHECK(end.tv_sec > soon.tv_sec || (end.tv_sec == soon.tv_sec && end.tv_nsec >= soon.tv_nsec));
        soon = in(CLOCK_REALTIME, 20);
        CHECK(pthread_mutex_timedlock(mutex, &soon) == ETIMEDOUT);
        CHECK(pthread_mutex_clocklock(mutex, CLOCK_PROCESS_CPUTIME_ID, &soon) == EINVAL);
    }
    }
    CHECK(pthread_mutex_unlock(mutex) == 0);
    CHECK(tried_elsewhere(mutex) == 0); /* by a thread that has ended */
    if (kind == PTHREAD_MUTEX_NORMAL) CHECK(pthread_mutex_unlock(mutex) == 0); /* by another one */
    else if (kind == PTHREAD_MUTEX_ADAPTIVE_NP) CHECK(pthread_mutex_unlock(mutex) == 0);
    else CHECK(pthread_mutex_unlock(mutex) == EPERM);
    CHECK(errno == 77);
}

static void kinds(void) {
    static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER, recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
                           checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
    pthread_mutex_t *zeroed = calloc(1, sizeof *zeroed);
    excludes(&normal), excludes(&recursive), excludes(&checking), excludes(&adaptive), excludes(zeroed);
    rules_of(&normal, PTHREAD_MUTEX_NORMAL), rules_of(&recursive, PTHREAD_MUTEX_RECURSIVE);
    rules_of(&checking, PTHREAD_MUTEX_ERRORCHECK), rules_of(&adaptive, PTHREAD_MUTEX_ADAPTIVE_NP);
    rules_of(zeroed, PTHREAD_MUTEX_NORMAL);
    free(zeroed);
    int each[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int i = 0; i < 4; i++) {
        pthread_mutexattr_t attributes;
        pthread_mutex_t mutex;
        memset(&mutex, 0xaa, sizeof mutex);
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_settype(&attributes, each[i]);
        CHECK(pthread_mutex_init(&mutex, &attributes) == 0);
        excludes(&mutex);
        rules_of(&mutex, each[i]);
        CHECK(pthread_mutex_init(&mutex, &attributes) == 0);
        CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
        CHECK(pthread_mutex_destroy(&mutex) == 0);
        CHECK(pthread_mutex_lock(&mutex) == EINVAL);
    }
    CHECK(constructions == 1);
}

/* What is glibc's stays glibc's. */
static void others(void) {
    pthread_mutexattr_t attributes;
    struct shared { pthread_mutex_t plain, robust, inherit, ceiling; pthread_cond_t cond; int step; } *shared;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    CHECK(pthread_mutex_init(&shared->plain, &attributes) == 0);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    CHECK(pthread_mutex_init(&shared->robust, &attributes) == 0);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    CHECK(pthread_mutex_init(&shared->inherit, &attributes) == 0);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_PROTECT);
    CHECK(pthread_mutex_init(&shared->ceiling, &attributes) == 0);
    pthread_condattr_t cond;
    pthread_condattr_init(&cond);
    pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
    CHECK(pthread_cond_init(&shared->cond, &cond) == 0);
    excludes(&shared->plain), excludes(&shared->robust), excludes(&shared->inherit);

    pid_t child = fork();
    if (child == 0) {
        CHECK(pthread_mutex_lock(&shared->plain) == 0);
        shared->step = 1;
        pthread_cond_broadcast(&shared->cond);
        while (shared->step != 2) CHECK(pthread_cond_wait(&shared->cond, &shared->plain) == 0);
        CHECK(pthread_mutex_unlock(&shared->plain) == 0);
        CHECK(pthread_mutex_lock(&shared->robust) == 0);
        _exit(0);
    }
    CHECK(pthread_mutex_lock(&shared->plain) == 0);
    while (shared->step != 1) CHECK(pthread_cond_wait(&shared->cond, &shared->plain) == 0);
    shared->step = 2;
    pthread_cond_broadcast(&shared->cond);
    CHECK(pthread_mutex_unlock(&shared->plain) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(pthread_mutex_lock(&shared->robust) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(&shared->robust) == 0);
    CHECK(pthread_mutex_unlock(&shared->robust) == 0);
    /* A condition variable of one world and a mutex of the other. */
    pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t private = PTHREAD_COND_INITIALIZER;
    struct timespec soon = in(CLOCK_REALTIME, 30);
    CHECK(pthread_mutex_lock(&mine) == 0);
    while (pthread_cond_timedwait(&shared->cond, &mine, &soon) == 0) {}
    CHECK(pthread_mutex_unlock(&mine) == 0);
    CHECK(pthread_mutex_lock(&shared->plain) == 0);
    soon = in(CLOCK_REALTIME, 10);
    CHECK(pthread_cond_timedwait(&private, &shared->plain, &soon) == ETIMEDOUT);
    CHECK(pthread_mutex_unlock(&shared->plain) == 0);
    CHECK(pthread_mutex_destroy(&shared->plain) == 0 && pthread_mutex_destroy(&shared->inherit) == 0);
    CHECK(pthread_cond_destroy(&shared->cond) == 0);
    munmap(shared, sizeof *shared);
}

USES({"kinds", kinds}, {"others", others})

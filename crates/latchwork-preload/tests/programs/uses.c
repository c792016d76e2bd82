/* Everything that a program may do with pthread's and C11's mutexes and condition variables, one case
 * for each name on the command line; without one, all of them. Ends with 0 if all is as POSIX and glibc
 * have it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <threads.h>
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
static void join(pthread_t thread) { CHECK(pthread_join(thread, NULL) == 0); }
static struct timespec in(clockid_t clock, long milliseconds) {
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += milliseconds % 1000 * 1000000;
    time.tv_sec += milliseconds / 1000 + time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

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

/* Mutual exclusion, of any mutex, by any way to lock it. */
struct counted {
    pthread_mutex_t *mutex;
    long count;
    int inside;
    int way;
};
static void *count(void *argument) {
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
static void excludes(pthread_mutex_t *mutex) {
    for (int way = 0; way < 4; way++) {
        struct counted it = {.mutex = mutex, .way = way};
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) start(&threads[i], count, &it);
        for (int i = 0; i < 4; i++) join(threads[i]);
        CHECK(it.count == 4 * ROUNDS);
    }
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

/* Items go from producers to consumers, through a place for one, with signals or broadcasts. */
struct box {
    pthread_mutex_t mutex;
    pthread_cond_t changed[2];
    int item, full, all;
    long sum;
};
static void *produce(void *argument) {
    struct box *box = argument;
    for (int item = 1; item <= ROUNDS; item++) {
        pthread_mutex_lock(&box->mutex);
        while (box->full) CHECK(pthread_cond_wait(&box->changed[0], &box->mutex) == 0);
        box->item = item, box->full = 1;
        box->all ? pthread_cond_broadcast(&box->changed[1]) : pthread_cond_signal(&box->changed[1]);
        pthread_mutex_unlock(&box->mutex);
    }
    return NULL;
}
static void *consume(void *argument) {
    struct box *box = argument;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&box->mutex);
        while (!box->full) {
            struct timespec late = in(CLOCK_REALTIME, 60000);
            CHECK(pthread_cond_timedwait(&box->changed[1], &box->mutex, &late) == 0);
        }
        box->sum += box->item, box->full = 0;
        box->all ? pthread_cond_broadcast(&box->changed[0]) : pthread_cond_signal(&box->changed[0]);
        pthread_mutex_unlock(&box->mutex);
    }
    return NULL;
}
static void conds(void) {
    for (int kind = 0; kind < 8; kind++) {
        struct box box = {.all = kind & 1};
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_settype(&attributes, kind >> 1);
        CHECK(pthread_mutex_init(&box.mutex, &attributes) == 0);
        pthread_cond_init(&box.changed[0], NULL), pthread_cond_init(&box.changed[1], NULL);
        pthread_t threads[6];
        for (int i = 0; i < 6; i++) start(&threads[i], i % 2 ? produce : consume, &box);
        for (int i = 0; i < 6; i++) join(threads[i]);
        CHECK(box.sum == 3L * ROUNDS * (ROUNDS + 1) / 2);
        CHECK(pthread_cond_destroy(&box.changed[0]) == 0 && pthread_cond_destroy(&box.changed[1]) == 0);
        CHECK(pthread_mutex_destroy(&box.mutex) == 0);
    }
}

/* Many waiters, one broadcast, and the condition variable is destroyed at once. */
struct hall { pthread_mutex_t mutex; pthread_cond_t open, here; int waiting, is_open, left; };
static void *attend(void *argument) {
    struct hall *hall = argument;
    pthread_mutex_lock(&hall->mutex);
    hall->waiting++;
    pthread_cond_signal(&hall->here);
    while (!hall->is_open) CHECK(pthread_cond_wait(&hall->open, &hall->mutex) == 0);
    hall->left++;
    pthread_mutex_unlock(&hall->mutex);
    return NULL;
}
static void many(void) {
    for (int round = 0; round < 20; round++) {
        struct hall *hall = calloc(1, sizeof *hall);
        pthread_t threads[64];
        for (int i = 0; i < 64; i++) start(&threads[i], attend, hall);
        pthread_mutex_lock(&hall->mutex);
        while (hall->waiting < 64) pthread_cond_wait(&hall->here, &hall->mutex);
        hall->is_open = 1;
        pthread_cond_broadcast(&hall->open);
        if (round % 2) {
            CHECK(pthread_cond_destroy(&hall->open) == 0);
            memset(&hall->open, 0xff, sizeof hall->open);
        }
        pthread_mutex_unlock(&hall->mutex);
        for (int i = 0; i < 64; i++) join(threads[i]);
        CHECK(hall->left == 64);
        free(hall);
    }
}

static void clocks(void) {
    clockid_t each[] = {CLOCK_REALTIME, CLOCK_MONOTONIC};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < 2; i++) {
        pthread_condattr_t attributes;
        pthread_cond_t cond;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, each[i]);
        CHECK(pthread_cond_init(&cond, &attributes) == 0);
        for (int how = 0; how < 3; how++) {
            clockid_t clock = how == 0 ? each[i] : each[how - 1];
            struct timespec soon = in(clock, 15), end;
            int result;
            do result = how == 0 ? pthread_cond_timedwait(&cond, &mutex, &soon) : pthread_cond_clockwait(&cond, &mutex, clock, &soon);
            while (result == 0);
            CHECK(result == ETIMEDOUT);
            clock_gettime(clock, &end);
            CHECK(end.tv_sec > soon.tv_sec || (end.tv_sec == soon.tv_sec && end.tv_nsec >= soon.tv_nsec));
        }
        struct timespec bad = {.tv_nsec = -1}, before = {.tv_sec = -1};
        CHECK(pthread_cond_timedwait(&cond, &mutex, &bad) == EINVAL);
        CHECK(pthread_cond_timedwait(&cond, &mutex, &before) == ETIMEDOUT);
        CHECK(pthread_cond_clockwait(&cond, &mutex, CLOCK_THREAD_CPUTIME_ID, &before) == EINVAL);
        CHECK(pthread_cond_destroy(&cond) == 0);
    }
    pthread_mutex_unlock(&mutex);
    pthread_mutexattr_t attributes;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    CHECK(pthread_mutex_init(&mutex, &attributes) == 0);
    CHECK(pthread_cond_wait(&cond, &mutex) == EPERM); /* it is not held */
}

/* Who is cancelled in a wait has the mutex when its handler runs. */
struct cancelled { pthread_mutex_t mutex; pthread_cond_t cond, here; int waiting, cleaned, timed; };
static void clean(void *argument) {
    struct cancelled *it = argument;
    CHECK(pthread_mutex_trylock(&it->mutex) == EBUSY);
    it->cleaned++;
    CHECK(pthread_mutex_unlock(&it->mutex) == 0);
}
static void *be_cancelled(void *argument) {
    struct cancelled *it = argument;
    struct timespec late = in(CLOCK_REALTIME, 600000);
    pthread_mutex_lock(&it->mutex);
    pthread_cleanup_push(clean, it);
    it->waiting++;
    pthread_cond_signal(&it->here);
    for (;;) {
        if (it->timed) pthread_cond_timedwait(&it->cond, &it->mutex, &late);
        else pthread_cond_wait(&it->cond, &it->mutex);
    }
    pthread_cleanup_pop(0);
    return NULL;
}
static void *not_be_cancelled(void *argument) {
    struct cancelled *it = argument;
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    pthread_mutex_lock(&it->mutex);
    it->waiting++;
    pthread_cond_signal(&it->here);
    while (!it->cleaned) pthread_cond_wait(&it->cond, &it->mutex);
    pthread_mutex_unlock(&it->mutex);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old);
    CHECK(old == PTHREAD_CANCEL_DEFERRED);
    return it;
}
static void *be_cancelled_before(void *argument) {
    struct cancelled *it = argument;
    pthread_mutex_lock(&it->mutex);
    pthread_cleanup_push(clean, it);
    pthread_cancel(pthread_self());
    pthread_cond_wait(&it->cond, &it->mutex);
    CHECK(0);
    pthread_cleanup_pop(0);
    return NULL;
}
static void cancel(void) {
    for (int round = 0; round < 40; round++) {
        struct cancelled it = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER, .here = PTHREAD_COND_INITIALIZER, .timed = round % 2};
        pthread_t threads[5];
        void *result;
        for (int i = 0; i < 4; i++) start(&threads[i], be_cancelled, &it);
        start(&threads[4], not_be_cancelled, &it);
        pthread_mutex_lock(&it.mutex);
        while (it.waiting < 5) pthread_cond_wait(&it.here, &it.mutex);
        pthread_mutex_unlock(&it.mutex);
        CHECK(pthread_cancel(threads[4]) == 0);
        for (int i = 0; i < 4; i++) {
            CHECK(pthread_cancel(threads[i]) == 0);
            if (round % 4 == 0) pthread_cond_signal(&it.cond);
        }
        for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], &result) == 0 && result == PTHREAD_CANCELED);
        CHECK(it.cleaned == 4);
        pthread_cond_broadcast(&it.cond);
        CHECK(pthread_join(threads[4], &result) == 0 && result == &it);
        start(&threads[0], be_cancelled_before, &it);
        CHECK(pthread_join(threads[0], &result) == 0 && result == PTHREAD_CANCELED && it.cleaned == 5);
        CHECK(pthread_mutex_trylock(&it.mutex) == 0 && pthread_mutex_unlock(&it.mutex) == 0);
        CHECK(pthread_cond_destroy(&it.cond) == 0);
    }
}

/* A notification that reaches one who is being cancelled reaches another one, or was used by that one. */
struct token { pthread_mutex_t mutex; pthread_cond_t cond, here; int waiting, tokens, took[2]; };
static void give_back(void *token) { pthread_mutex_unlock(&((struct token *)token)->mutex); }
static void *want(void *argument) {
    struct token *token = argument;
    pthread_mutex_lock(&token->mutex);
    pthread_cleanup_push(give_back, token);
    int number = token->waiting++;
    pthread_cond_signal(&token->here);
    while (token->tokens == 0) pthread_cond_wait(&token->cond, &token->mutex);
    token->tokens--;
    token->took[number] = 1;
    pthread_cleanup_pop(1);
    return token;
}
static void passed_on(void) {
    for (int round = 0; round < 100; round++) {
        struct token token = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER, .here = PTHREAD_COND_INITIALIZER};
        pthread_t threads[2];
        void *result;
        for (int i = 0; i < 2; i++) {
            start(&threads[i], want, &token);
            pthread_mutex_lock(&token.mutex);
            while (token.waiting <= i) pthread_cond_wait(&token.here, &token.mutex);
            pthread_mutex_unlock(&token.mutex);
        }
        pthread_mutex_lock(&token.mutex);
        token.tokens = 1;
        pthread_mutex_unlock(&token.mutex);
        /* The first to come is the first to be woken. */
        pthread_cond_signal(&token.cond);
        CHECK(pthread_cancel(threads[0]) == 0);
        CHECK(pthread_join(threads[0], &result) == 0);
        /* (glibc may say of one that has returned that it was cancelled.) */
        if (token.took[0]) {
            pthread_mutex_lock(&token.mutex);
            token.tokens++;
            pthread_mutex_unlock(&token.mutex);
            pthread_cond_signal(&token.cond);
        }
        CHECK(pthread_join(threads[1], &result) == 0 && result == &token && token.tokens == 0);
    }
}

/* A fork with the mutex held, others waiting for it, and others waiting for a condition. */
static struct hall forked;
static pthread_mutex_t *guarded;
static void prepare(void) { pthread_mutex_lock(guarded); }
static void release(void) { pthread_mutex_unlock(guarded); }
static void in_child(void) {
    pthread_mutex_unlock(guarded);
    excludes(guarded);
    pthread_cond_broadcast(&forked.open);
    pthread_mutex_init(&forked.mutex, NULL);
    pthread_cond_init(&forked.open, NULL);
    pthread_cond_init(&forked.here, NULL);
    forked.waiting = forked.is_open = forked.left = 0;
    pthread_t thread;
    start(&thread, attend, &forked);
    pthread_mutex_lock(&forked.mutex);
    while (!forked.waiting) pthread_cond_wait(&forked.here, &forked.mutex);
    forked.is_open = 1;
    pthread_cond_signal(&forked.open);
    pthread_mutex_unlock(&forked.mutex);
    join(thread);
    _exit(0);
}
static _Atomic int stop;
static void *contend(void *argument) {
    while (!stop) pthread_mutex_lock(argument), pthread_mutex_unlock(argument);
    return NULL;
}
static void forks(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    guarded = &mutex;
    pthread_atfork(prepare, release, NULL);
    pthread_t waiter, contenders[3];
    start(&waiter, attend, &forked);
    for (int i = 0; i < 3; i++) start(&contenders[i], contend, &mutex);
    pthread_mutex_lock(&forked.mutex);
    while (!forked.waiting) pthread_cond_wait(&forked.here, &forked.mutex);
    pthread_mutex_unlock(&forked.mutex);
    for (int round = 0; round < 4; round++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) in_child();
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    stop = 1;
    for (int i = 0; i < 3; i++) join(contenders[i]);
    pthread_mutex_lock(&forked.mutex);
    forked.is_open = 1;
    pthread_cond_signal(&forked.open);
    pthread_mutex_unlock(&forked.mutex);
    join(waiter);
    pid_t child = fork();
    if (child == 0) execl("/proc/self/exe", "again", "many", NULL), _exit(3);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static mtx_t plain;
static cnd_t told;
static int turns;
static int take_turns(void *odd) {
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(mtx_lock(&plain) == thrd_success);
        while (turns % 2 != (odd != NULL)) CHECK(cnd_wait(&told, &plain) == thrd_success);
        turns++;
        CHECK(cnd_broadcast(&told) == thrd_success);
        CHECK(mtx_unlock(&plain) == thrd_success);
    }
    return 7;
}
static void c11(void) {
    CHECK(mtx_init(&plain, mtx_plain) == thrd_success && cnd_init(&told) == thrd_success);
    thrd_t threads[2];
    int result;
    for (int i = 0; i < 2; i++) CHECK(thrd_create(&threads[i], take_turns, i ? &plain : NULL) == thrd_success);
    for (int i = 0; i < 2; i++) CHECK(thrd_join(threads[i], &result) == thrd_success && result == 7);
    CHECK(turns == 2 * ROUNDS);
    mtx_t timed, recursive;
    CHECK(mtx_init(&timed, mtx_timed) == thrd_success && mtx_init(&recursive, mtx_recursive | mtx_timed) == thrd_success);
    struct timespec soon = in(CLOCK_REALTIME, 15);
    CHECK(mtx_lock(&timed) == thrd_success && mtx_trylock(&timed) == thrd_busy);
    CHECK(mtx_timedlock(&timed, &soon) == thrd_timedout);
    soon = in(CLOCK_REALTIME, 15);
    while ((result = cnd_timedwait(&told, &timed, &soon)) == thrd_success) {}
    CHECK(result == thrd_timedout);
    CHECK(mtx_unlock(&timed) == thrd_success);
    CHECK(mtx_lock(&recursive) == thrd_success && mtx_trylock(&recursive) == thrd_success);
    CHECK(mtx_unlock(&recursive) == thrd_success && mtx_unlock(&recursive) == thrd_success);
    CHECK(mtx_unlock(&recursive) == thrd_error);
    cnd_signal(&told), cnd_destroy(&told);
    mtx_destroy(&plain), mtx_destroy(&timed), mtx_destroy(&recursive);
}

/* A library that is loaded late, with a constructor that locks. */
static void loaded(void) {
    const char *path = getenv("USES_LIBRARY");
    if (path == NULL) return;
    for (int round = 0; round < 3; round++) {
        void *library = dlopen(path, RTLD_NOW);
        CHECK(library != NULL);
        int (*run)(void) = (int (*)(void))dlsym(library, "late_run");
        CHECK(run != NULL && run() == 1);
        CHECK(dlclose(library) == 0);
    }
}

/* Signals that arrive in every wait end none. */
static void ignore(int number) { (void)number; errno = 5; }
static void *disturb(void *argument) {
    while (!stop) pthread_kill(*(pthread_t *)argument, SIGUSR1), usleep(200);
    return NULL;
}
static _Atomic int held;
static void *hold(void *mutex) {
    CHECK(pthread_mutex_lock(mutex) == 0);
    held = 1;
    usleep(20000);
    pthread_mutex_unlock(mutex);
    return NULL;
}
static void signals(void) {
    struct sigaction action = {.sa_handler = ignore};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t self = pthread_self(), other, holder;
    stop = 0;
    start(&other, disturb, &self);
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    for (int round = 0; round < 5; round++) {
        struct timespec soon = in(CLOCK_REALTIME, 20), late = in(CLOCK_REALTIME, 60000);
        int result;
        pthread_mutex_lock(&mutex);
        while ((result = pthread_cond_timedwait(&cond, &mutex, &soon)) == 0) {}
        CHECK(result == ETIMEDOUT);
        pthread_mutex_unlock(&mutex);
        held = 0;
        start(&holder, hold, &mutex);
        while (!held) usleep(100);
        if (round % 2) CHECK(pthread_mutex_lock(&mutex) == 0);
        else CHECK(pthread_mutex_timedlock(&mutex, &late) == 0);
        pthread_mutex_unlock(&mutex);
        join(holder);
    }
    stop = 1;
    join(other);
}

/* The only lock that a handler may use. */
static sem_t posted;
static void post(int number) { (void)number; sem_post(&posted); }
static void semaphores(void) {
    sem_init(&posted, 0, 0);
    signal(SIGUSR2, post);
    raise(SIGUSR2);
    CHECK(sem_wait(&posted) == 0 && sem_trywait(&posted) == -1 && errno == EAGAIN);
    struct timespec soon = in(CLOCK_REALTIME, 10);
    CHECK(sem_timedwait(&posted, &soon) == -1 && errno == ETIMEDOUT);
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    CHECK(pthread_rwlock_rdlock(&lock) == 0 && pthread_rwlock_tryrdlock(&lock) == 0);
    CHECK(pthread_rwlock_trywrlock(&lock) == EBUSY);
    CHECK(pthread_rwlock_unlock(&lock) == 0 && pthread_rwlock_unlock(&lock) == 0);
    CHECK(pthread_rwlock_wrlock(&lock) == 0 && pthread_rwlock_unlock(&lock) == 0);
    pthread_spinlock_t spin;
    CHECK(pthread_spin_init(&spin, 0) == 0 && pthread_spin_lock(&spin) == 0);
    CHECK(pthread_spin_trylock(&spin) == EBUSY && pthread_spin_unlock(&spin) == 0);
    pthread_barrier_t barrier;
    CHECK(pthread_barrier_init(&barrier, NULL, 1) == 0 && pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD);
}

static const struct { const char *name; void (*run)(void); } cases[] = {
    {"kinds", kinds}, {"others", others}, {"conds", conds}, {"many", many}, {"clocks", clocks}, {"cancel", cancel},
    {"passed_on", passed_on},
    {"forks", forks}, {"c11", c11}, {"loaded", loaded}, {"signals", signals}, {"semaphores", semaphores},
};
int main(int count, char **names) {
    const char *patience = getenv("USES_PATIENCE");
    if (patience != NULL) alarm((unsigned)atoi(patience));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int wanted = count == 1;
        for (int name = 1; name < count; name++) wanted |= strcmp(names[name], cases[i].name) == 0;
        if (wanted) cases[i].run();
    }
    return 0;
}

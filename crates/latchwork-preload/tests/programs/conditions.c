/* Condition variables: their waits, times and clocks, and the cancelled. */
#define _GNU_SOURCE

#include "uses.h"

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

/* A thread that is cancelled in a wait holds the mutex when its handler runs. */
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

/* A notification of a waiter that is being cancelled reaches another waiter, or was used by the first. */
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

/* A mutex is in use as long as a wait will take it again. */
struct awaited { pthread_mutex_t mutex; pthread_cond_t cond; int here, go, result; };
static void *wait_for_it(void *argument) {
    struct awaited *it = argument;
    CHECK(pthread_mutex_lock(&it->mutex) == 0);
    it->here = 1;
    while (!it->go) it->result |= pthread_cond_wait(&it->cond, &it->mutex);
    CHECK(pthread_mutex_unlock(&it->mutex) == 0);
    return NULL;
}
static void *wait_and_be_cancelled(void *argument) {
    struct awaited *it = argument;
    CHECK(pthread_mutex_lock(&it->mutex) == 0);
    pthread_cleanup_push((void (*)(void *))pthread_mutex_unlock, &it->mutex);
    it->here = 1;
    for (;;) pthread_cond_wait(&it->cond, &it->mutex);
    pthread_cleanup_pop(1);
    return NULL;
}
static void is_waited_with(struct awaited *it) {
    for (int here = 0; !here;) {
        CHECK(pthread_mutex_lock(&it->mutex) == 0);
        here = it->here;
        CHECK(pthread_mutex_unlock(&it->mutex) == 0);
        if (!here) sched_yield();
    }
    CHECK(pthread_mutex_destroy(&it->mutex) == EBUSY);
}
static void awaited(void) {
    for (int kind = 0; kind < 6; kind++) {
        struct awaited it = {.cond = PTHREAD_COND_INITIALIZER};
        pthread_mutexattr_t attributes;
        pthread_t thread;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_settype(&attributes, kind & 3);
        pthread_mutexattr_setprotocol(&attributes, kind == 4 ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE);
        pthread_mutexattr_setpshared(&attributes, kind == 5 ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
        if (pthread_mutex_init(&it.mutex, &attributes) != 0) continue;
        start(&thread, wait_for_it, &it);
        is_waited_with(&it);
        CHECK(pthread_mutex_lock(&it.mutex) == 0);
        it.go = 1;
        CHECK(pthread_cond_signal(&it.cond) == 0);
        CHECK(pthread_mutex_unlock(&it.mutex) == 0);
        join(thread);
        CHECK(it.result == 0);
        /* Nor is it in use once a wait has ended otherwise. */
        struct timespec past = {.tv_sec = 1};
        CHECK(pthread_mutex_lock(&it.mutex) == 0);
        CHECK(pthread_cond_timedwait(&it.cond, &it.mutex, &past) == ETIMEDOUT);
        CHECK(pthread_mutex_unlock(&it.mutex) == 0);
        it.here = 0;
        start(&thread, wait_and_be_cancelled, &it);
        is_waited_with(&it);
        CHECK(pthread_cancel(thread) == 0);
        join(thread);
        CHECK(pthread_mutex_destroy(&it.mutex) == 0);
    }
}

USES({"conds", conds}, {"many", many}, {"clocks", clocks}, {"cancel", cancel}, {"passed_on", passed_on}, {"awaited", awaited})

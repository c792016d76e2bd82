/* Forks, C11's calls, late libraries, signals, and what has no mutex in it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>
#include <threads.h>

#include "uses.h"

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
    if (child == 0) execl("/proc/self/exe", "again", "signals", NULL), _exit(3);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static mtx_t plain;
static cnd_t notified;
static int turns;
static int take_turns(void *odd) {
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(mtx_lock(&plain) == thrd_success);
        while (turns % 2 != (odd != NULL)) CHECK(cnd_wait(&notified, &plain) == thrd_success);
        turns++;
        CHECK(cnd_broadcast(&notified) == thrd_success);
        CHECK(mtx_unlock(&plain) == thrd_success);
    }
    return 7;
}
static void c11(void) {
    CHECK(mtx_init(&plain, mtx_plain) == thrd_success && cnd_init(&notified) == thrd_success);
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
    while ((result = cnd_timedwait(&notified, &timed, &soon)) == thrd_success) {}
    CHECK(result == thrd_timedout);
    CHECK(mtx_unlock(&timed) == thrd_success);
    CHECK(mtx_lock(&recursive) == thrd_success && mtx_trylock(&recursive) == thrd_success);
    CHECK(mtx_unlock(&recursive) == thrd_success && mtx_unlock(&recursive) == thrd_success);
    CHECK(mtx_unlock(&recursive) == thrd_error);
    cnd_signal(&notified), cnd_destroy(&notified);
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

USES({"forks", forks}, {"c11", c11}, {"loaded", loaded}, {"signals", signals}, {"semaphores", semaphores})

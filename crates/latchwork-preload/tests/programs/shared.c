/* What process-shared mutexes and semaphores do, word by word, where no death and no wake-up is lost: a program prints
 * the same with `run --heal` and without. */
#define _GNU_SOURCE
#include "sleeps.h"
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

static struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    sem_t semaphore;
    atomic_int go, handled;
} *shared;

static const char *name(int error) { return error == 0 ? "0" : strerrorname_np(error); }
/* The mutex as another task sees it. Whether the waiters bit is set depends on the moment. */
static void show(const char *what, int result) {
    unsigned word = (unsigned)shared->mutex.__data.__lock & 0x7fffffff;
    int owner = shared->mutex.__data.__owner, robust = shared->mutex.__data.__kind & 16;
    unsigned held = robust ? word & 0x3fffffff : word;
    printf("  %s: %s; %s%s, owner %s, count %u, users %u\n", what, name(result), held ? "held" : "free",
           robust && (word & 0x40000000) ? ", owner died" : "",
           owner == 0 ? "none" : owner == gettid() ? "me" : owner > 0 && owner < 0x3fffffff ? "other" : "special",
           shared->mutex.__data.__count, shared->mutex.__data.__nusers);
}
static int by_call(int way) {
    struct timespec wall = in(CLOCK_REALTIME, 30), monotonic = in(CLOCK_MONOTONIC, 30);
    switch (way) {
    case 0: return pthread_mutex_lock(&shared->mutex);
    case 1: return pthread_mutex_trylock(&shared->mutex);
    case 2: return pthread_mutex_timedlock(&shared->mutex, &wall);
    default: return pthread_mutex_clocklock(&shared->mutex, CLOCK_MONOTONIC, &monotonic);
    }
}
static const char *const calls[] = {"lock", "trylock", "timedlock", "clocklock"};
static void make(int type, int robust) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, type);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, robust);
    CHECK(pthread_mutex_init(&shared->mutex, &attributes) == 0);
}
static void in_child(void (*body)(int), int argument) {
    fflush(stdout);
    pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        body(argument);
        fflush(stdout);
        raise(SIGKILL);
    }
    CHECK(waitpid(process, NULL, 0) == process);
}
static void just_lock(int way) { CHECK(by_call(way) == 0); }
static void lock_twice(int way) { CHECK(by_call(way) == 0 && pthread_mutex_lock(&shared->mutex) == 0); }
static void take_and_leave(int way) { show("the heir in a child", by_call(way)); }
static void *lock_and_end(void *way) {
    CHECK(by_call((int)(intptr_t)way) == 0);
    return NULL;
}
static void *ask(void *way) {
    show("another thread", by_call((int)(intptr_t)way));
    show("its unlock", pthread_mutex_unlock(&shared->mutex));
    return NULL;
}
static void in_thread(void *(*body)(void *), int way) {
    pthread_t thread;
    start(&thread, body, (void *)(intptr_t)way);
    join(thread);
}
static void unusable_times(void) {
    struct timespec odd = {1, 1000000000}, early = {-1, 0};
    show("timedlock, odd time", pthread_mutex_timedlock(&shared->mutex, &odd));
    show("timedlock, early", pthread_mutex_timedlock(&shared->mutex, &early));
    show("clocklock, odd clock", pthread_mutex_clocklock(&shared->mutex, CLOCK_PROCESS_CPUTIME_ID, &early));
    show("clocklock, odd time", pthread_mutex_clocklock(&shared->mutex, CLOCK_MONOTONIC, &odd));
}
static void *unusable(void *unused) {
    unusable_times();
    return unused;
}
static void with_owner(int type, int robust, int way) {
    make(type, robust);
    show(calls[way], by_call(way));
    in_thread(unusable, 0);
    for (int other = 1; other < 4; other++) {
        if (type != PTHREAD_MUTEX_ERRORCHECK && robust) continue;
        in_thread(ask, other);
    }
    /* Again, by the owner: a normal mutex would wait for ever. */
    for (int again = 0; again < 4; again++) {
        int waits = type != PTHREAD_MUTEX_RECURSIVE && type != PTHREAD_MUTEX_ERRORCHECK;
        if (waits && again == 0) continue;
        int result = by_call(again);
        show(calls[again], result);
        if (result == 0) CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    }
    show("consistent", pthread_mutex_consistent(&shared->mutex));
    show("unlock", pthread_mutex_unlock(&shared->mutex));
    if (robust || type == PTHREAD_MUTEX_ERRORCHECK) show("unlock again", pthread_mutex_unlock(&shared->mutex));
    show("destroy", pthread_mutex_destroy(&shared->mutex));
}
static void with_dead_owner(int type, int way) {
    make(type, PTHREAD_MUTEX_ROBUST);
    in_child(just_lock, way);
    show("after a death", 0);
    show(calls[way], by_call(way));
    show("consistent", pthread_mutex_consistent(&shared->mutex));
    show("unlock", pthread_mutex_unlock(&shared->mutex));
    in_thread(lock_and_end, way);
    in_child(take_and_leave, way);
    if (type == PTHREAD_MUTEX_RECURSIVE) {
        show(calls[way], by_call(way));
        pthread_mutex_consistent(&shared->mutex);
        pthread_mutex_unlock(&shared->mutex);
        in_child(lock_twice, way);
    }
    show(calls[way], by_call(way));
    show("unlock without consistent", pthread_mutex_unlock(&shared->mutex));
    /* (glibc's trylock would take it for ever.) */
    for (int other = 0; other < 4; other++)
        if (other != 1) show(calls[other], by_call(other));
    if (way != 1) in_child(take_and_leave, way);
    show("consistent", pthread_mutex_consistent(&shared->mutex));
    show("unlock", pthread_mutex_unlock(&shared->mutex));
    show("destroy", pthread_mutex_destroy(&shared->mutex));
}
/* A wait for a condition, whose mutex's last owner dies meanwhile. */
static void signal_and_die(int unused) {
    (void)unused;
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    shared->go = 1;
    CHECK(pthread_cond_signal(&shared->cond) == 0);
}
static void *as_child(void *unused) {
    in_child(signal_and_die, 0);
    return unused;
}
static void with_condition(int type) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    CHECK(pthread_cond_init(&shared->cond, &attributes) == 0);
    make(type, PTHREAD_MUTEX_ROBUST);
    shared->go = 0;
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    struct timespec soon = in(CLOCK_REALTIME, 30);
    show("timedwait", pthread_cond_timedwait(&shared->cond, &shared->mutex, &soon));
    pthread_t thread;
    start(&thread, as_child, NULL);
    int result = 0;
    while (!shared->go && result == 0) result = pthread_cond_wait(&shared->cond, &shared->mutex);
    show("wait", result);
    show("consistent", pthread_mutex_consistent(&shared->mutex));
    show("unlock", pthread_mutex_unlock(&shared->mutex));
    join(thread);
}

static void post(int signal) {
    if (signal == SIGUSR2) sem_post(&shared->semaphore);
    shared->handled++;
}
static void handle(int signal, int flags) {
    struct sigaction action = {.sa_handler = post, .sa_flags = flags};
    CHECK(sigaction(signal, &action, NULL) == 0);
}
static void say(const char *what, int result) {
    int error = errno, value;
    sem_getvalue(&shared->semaphore, &value);
    printf("  %s: %d %s, value %d, handled %d\n", what, result, result == 0 ? "" : name(error), value, (int)shared->handled);
}
static void semaphores(int shared_by) {
    struct timespec odd = {1, 1000000000}, early = {-1, 0}, soon;
    CHECK(sem_init(&shared->semaphore, shared_by, 1) == 0);
    say("wait", sem_wait(&shared->semaphore));
    say("timedwait, odd time", sem_timedwait(&shared->semaphore, &odd));
    say("timedwait, early", sem_timedwait(&shared->semaphore, &early));
    say("clockwait, odd clock", sem_clockwait(&shared->semaphore, CLOCK_PROCESS_CPUTIME_ID, &early));
    soon = in(CLOCK_REALTIME, 30);
    say("timedwait", sem_timedwait(&shared->semaphore, &soon));
    soon = in(CLOCK_MONOTONIC, 30);
    say("clockwait", sem_clockwait(&shared->semaphore, CLOCK_MONOTONIC, &soon));
    fflush(stdout);
    pid_t waiter = fork();
    CHECK(waiter >= 0);
    if (waiter == 0) {
        say("wait, with a handler", sem_wait(&shared->semaphore));
        if (errno == EINTR) say("wait, posted by a handler", sem_wait(&shared->semaphore));
        fflush(stdout);
        _exit(0);
    }
    for (int i = 0; i < 2; i++) {
        until_it_sleeps(waiter, &shared->semaphore, sizeof shared->semaphore);
        CHECK(kill(waiter, i == 0 ? SIGUSR1 : SIGUSR2) == 0);
        while (shared->handled <= i) sleep_ms(1);
    }
    CHECK(waitpid(waiter, NULL, 0) == waiter);
    CHECK(sem_destroy(&shared->semaphore) == 0);
}

int main(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    /* Before the process has other threads. */
    for (int flags = 0; flags < 2; flags++)
        for (int shared_by = 0; shared_by < 2; shared_by++) {
            printf("semaphore\n");
            shared->handled = 0;
            errno = 0;
            handle(SIGUSR1, flags ? SA_RESTART : 0);
            handle(SIGUSR2, flags ? SA_RESTART : 0);
            semaphores(shared_by);
        }
    static const struct { const char *name; int type; } types[] = {
        {"normal", PTHREAD_MUTEX_NORMAL}, {"recursive", PTHREAD_MUTEX_RECURSIVE},
        {"error-checking", PTHREAD_MUTEX_ERRORCHECK}, {"adaptive", PTHREAD_MUTEX_ADAPTIVE_NP}};
    for (int i = 0; i < 4; i++)
        for (int way = 0; way < 4; way++) {
            printf("%s, %s\n", types[i].name, calls[way]);
            with_owner(types[i].type, PTHREAD_MUTEX_STALLED, way);
            printf("%s, %s, robust\n", types[i].name, calls[way]);
            with_owner(types[i].type, PTHREAD_MUTEX_ROBUST, way);
            with_dead_owner(types[i].type, way);
        }
    for (int i = 0; i < 4; i++) {
        printf("%s, condition\n", types[i].name);
        with_condition(types[i].type);
    }
    return 0;
}

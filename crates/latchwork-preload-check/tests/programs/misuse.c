/* Misuse of pthread objects, one for each name, with the rule that it breaks; and what looks like it and is none. The
   second argument is where findings go. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *findings;
static pthread_mutex_t mutex, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t rwlock;
static pthread_cond_t cond, fresh = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_barrier_t barrier;
static sem_t sem;
static _Atomic int sleeper, notified;

static void until_it_sleeps(void) {
    for (int call = -1; call != SYS_futex; sched_yield()) {
        char path[64], text[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%d/syscall", sleeper);
        FILE *file = sleeper ? fopen(path, "r") : NULL;
        if (file == NULL) continue;
        call = fgets(text, sizeof text, file) && text[0] != 'r' ? atoi(text) : -1;
        fclose(file);
    }
}
/* The reported call never returns. */
static void leave_when_found(void) {
    struct stat status;
    while (stat(findings, &status) != 0 || status.st_size == 0) sched_yield();
    _exit(0);
}
static pthread_t begin_with(void *(*body)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument) != 0) abort();
    return thread;
}
static pthread_t begin(void *(*body)(void *)) { return begin_with(body, NULL); }
static struct timespec past(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time;
}
static void sleeps(void) { sleeper = (int)syscall(SYS_gettid); }

/* After the end. */
static void make_all(void) {
    pthread_mutex_init(&mutex, NULL), pthread_rwlock_init(&rwlock, NULL), pthread_cond_init(&cond, NULL);
    pthread_spin_init(&spin, 0), pthread_barrier_init(&barrier, NULL, 1), sem_init(&sem, 0, 1);
}
static void use_all(void) {
    struct timespec time = past();
    pthread_mutex_lock(&mutex), pthread_cond_timedwait(&cond, &mutex, &time), pthread_mutex_unlock(&mutex);
    pthread_rwlock_rdlock(&rwlock), pthread_rwlock_unlock(&rwlock), pthread_rwlock_wrlock(&rwlock), pthread_rwlock_unlock(&rwlock);
    pthread_cond_signal(&cond), pthread_cond_broadcast(&cond);
    pthread_spin_lock(&spin), pthread_spin_unlock(&spin), pthread_barrier_wait(&barrier);
    sem_wait(&sem), sem_post(&sem), sem_trywait(&sem), sem_post(&sem);
}
static void end_all(void) {
    pthread_mutex_destroy(&mutex), pthread_rwlock_destroy(&rwlock), pthread_cond_destroy(&cond);
    pthread_spin_destroy(&spin), pthread_barrier_destroy(&barrier), sem_destroy(&sem);
}
static void be_ended(void) { make_all(), use_all(), end_all(); }
static void ended_lock(void) { be_ended(), pthread_mutex_lock(&mutex); }
static void ended_trylock(void) { be_ended(), pthread_mutex_trylock(&mutex); }
static void ended_unlock(void) { be_ended(), pthread_mutex_unlock(&mutex); }
static void ended_destroy(void) { be_ended(), pthread_mutex_destroy(&mutex); }
static void ended_never_used(void) { pthread_mutex_init(&mutex, NULL), pthread_mutex_destroy(&mutex), pthread_mutex_lock(&mutex); }
static void ended_read(void) { be_ended(), pthread_rwlock_rdlock(&rwlock); }
static void ended_write(void) { be_ended(), pthread_rwlock_wrlock(&rwlock); }
static void ended_rwlock_destroy(void) { be_ended(), pthread_rwlock_destroy(&rwlock); }
static void ended_signal(void) { be_ended(), pthread_cond_signal(&cond); }
static void ended_broadcast(void) { be_ended(), pthread_cond_broadcast(&cond); }
static void ended_spin(void) { be_ended(), pthread_spin_lock(&spin); }
static void ended_barrier(void) { be_ended(), pthread_barrier_wait(&barrier); }
static void ended_post(void) { be_ended(), sem_post(&sem); }
static void ended_trywait(void) { be_ended(), sem_trywait(&sem); }
static void ended_wait(void) { be_ended(), sem_wait(&sem); }

static void *wait_at_barrier(void *x) { sleeps(), pthread_barrier_wait(&barrier); return x; }

/* Twice. */
static void twice_mutex(void) { pthread_mutex_init(&mutex, NULL), pthread_mutex_init(&mutex, NULL); }
static void twice_used(void) { make_all(), use_all(), pthread_mutex_init(&mutex, NULL); }
static void twice_heap(void) {
    pthread_mutex_t *heap = malloc(sizeof *heap);
    pthread_mutex_init(heap, NULL), pthread_mutex_init(heap, NULL);
}
static void twice_rwlock(void) { make_all(), pthread_rwlock_init(&rwlock, NULL); }
static void twice_cond(void) { make_all(), pthread_cond_init(&cond, NULL); }
static void twice_barrier(void) { make_all(), pthread_barrier_init(&barrier, NULL, 1); }
static void twice_barrier_heap(void) {
    pthread_barrier_t *heap = malloc(sizeof *heap);
    pthread_barrier_init(heap, NULL, 1), pthread_barrier_init(heap, NULL, 1);
}
static void *make_barrier_again(void *x) { pthread_barrier_init(&barrier, NULL, 2); return x; }
static void twice_with_waiter(void) {
    pthread_barrier_init(&barrier, NULL, 2), begin(wait_at_barrier), until_it_sleeps(), begin(make_barrier_again), leave_when_found();
}
static void twice_sem(void) { make_all(), sem_init(&sem, 0, 0); }

/* Never. */
static void never_barrier(void) {
    pthread_barrier_t *heap = malloc(sizeof *heap);
    memset(heap, 1, sizeof *heap), pthread_barrier_destroy(heap);
}
static void leave(int signal) { _exit(signal == SIGFPE ? 0 : 1); }
static void never_barrier_zeroed(void) { signal(SIGFPE, leave), pthread_barrier_destroy(&barrier); }
static void never_barrier_kind(void) {
    pthread_barrier_t *heap = malloc(sizeof *heap);
    pthread_barrier_init(heap, NULL, 1), free(heap), heap = malloc(sizeof *heap);
    memset(heap, 0, sizeof *heap), ((unsigned *)heap)[2] = 1, ((unsigned *)heap)[3] = 1, pthread_barrier_destroy(heap);
}
static void never_cond(void) { memset(&cond, 0xff, 8), pthread_cond_destroy(&cond); }
static void smashed_sem(void) { make_all(), memset(&sem, 0x55, sizeof sem), sem_trywait(&sem); }

/* With waiters. */
static void *wait_at_sem(void *x) { sleeps(), sem_wait(&sem); return x; }
static void *wait_for_cond(void *x) {
    pthread_mutex_lock(&other), sleeps();
    while (!notified) pthread_cond_wait(&fresh, &other);
    pthread_mutex_unlock(&other);
    return x;
}
static void *end_barrier(void *x) { pthread_barrier_destroy(&barrier); return x; }
static void *end_cond(void *x) { pthread_cond_destroy(&fresh); return x; }
static void waiters_barrier(void) {
    pthread_barrier_init(&barrier, NULL, 2), begin(wait_at_barrier), until_it_sleeps(), begin(end_barrier), leave_when_found();
}
static void waiters_cond(void) { begin(wait_for_cond), until_it_sleeps(), begin(end_cond), leave_when_found(); }
static void waiters_sem(void) { sem_init(&sem, 0, 0), begin(wait_at_sem), until_it_sleeps(), sem_destroy(&sem); }

/* Calls that fail. */
static void fails_count(void) { if (pthread_barrier_init(&barrier, NULL, 0) != EINVAL) abort(); }
static void fails_value(void) { if (sem_init(&sem, 0, ~0u) != -1 || errno != EINVAL) abort(); }
static void fails_again(void) { pthread_mutex_lock(&checking); if (pthread_mutex_lock(&checking) != EDEADLK) abort(); }
static void fails_time(void) {
    struct timespec none = {0, -1};
    pthread_mutex_lock(&other);
    if (pthread_cond_timedwait(&fresh, &other, &none) != EINVAL) abort();
}
static void fails_sem_time(void) {
    struct timespec none = {0, -1};
    sem_init(&sem, 0, 0);
    if (sem_timedwait(&sem, &none) != -1 || errno != EINVAL) abort();
}
static void fails_join(void) { if (pthread_join(pthread_self(), NULL) != EDEADLK) abort(); }
static void make_one_robust(pthread_mutex_t *robust) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes), pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(robust, &attributes);
}
static void fails_kind(void) {
    pthread_mutex_t robust;
    make_one_robust(&robust);
    if (pthread_mutex_unlock(&robust) != EPERM) abort();
}
static void fails_consistent(void) {
    pthread_mutex_t robust;
    make_one_robust(&robust);
    if (pthread_mutex_consistent(&robust) != EINVAL) abort();
}
static void fails_ceiling(void) {
    int ceiling;
    if (pthread_mutex_getprioceiling(&other, &ceiling) != EINVAL) abort();
}
static void fails_new_ceiling(void) {
    int old;
    if (pthread_mutex_setprioceiling(&other, 1, &old) != EINVAL) abort();
}
/* The lock call must raise the real-time priority of the thread, which has lost the right to that. */
static void fails_right(void) {
    struct sched_param lowest = {1};
    struct __user_cap_header_struct which = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct rights[2];
    struct rlimit none = {0, 0};
    pthread_mutexattr_t attributes;
    pthread_mutex_t with_ceiling;
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &lowest) != 0) abort();
    if (syscall(SYS_capget, &which, rights) != 0) abort();
    rights[0].effective &= ~(1u << CAP_SYS_NICE);
    if (syscall(SYS_capset, &which, rights) != 0 || setrlimit(RLIMIT_RTPRIO, &none) != 0) abort();
    pthread_mutexattr_init(&attributes), pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_PROTECT);
    pthread_mutexattr_setprioceiling(&attributes, 10), pthread_mutex_init(&with_ceiling, &attributes);
    if (pthread_mutex_lock(&with_ceiling) != EPERM) abort();
}
/* Ten times in one place, on as many mutexes, and once in another. */
static void fails_often(void) {
    static pthread_mutex_t many[10];
    for (int i = 0; i < 10; i++) {
        many[i] = checking;
        pthread_mutex_lock(&many[i]), pthread_mutex_lock(&many[i]);
    }
    pthread_mutex_lock(&many[0]);
}

/* Too long, by the clock that the checker goes by. */
static void pass(int milliseconds) {
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &from);
    do clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < milliseconds);
}
static void hold_for(int milliseconds) { pthread_mutex_lock(&other), pass(milliseconds); }
static void long_read(void) {
    pthread_rwlock_init(&rwlock, NULL), pthread_rwlock_rdlock(&rwlock), pass(60), pthread_rwlock_unlock(&rwlock);
}
static void long_write(void) {
    pthread_rwlock_init(&rwlock, NULL), pthread_rwlock_wrlock(&rwlock), pass(60), pthread_rwlock_unlock(&rwlock);
}
static void long_unlock(void) { hold_for(60), pthread_mutex_unlock(&other); }
static void long_wait(void) {
    struct timespec time = past();
    hold_for(60), pthread_cond_timedwait(&fresh, &other, &time), pthread_mutex_unlock(&other);
}
static void long_enough(void) { hold_for(60), pthread_mutex_unlock(&other); }

/* Without the mutex. */
static void notify(int held) {
    pthread_t thread = begin(wait_for_cond);
    until_it_sleeps();
    pthread_mutex_lock(&other), notified = 1;
    if (!held) pthread_mutex_unlock(&other);
    pthread_cond_signal(&fresh);
    if (held) pthread_mutex_unlock(&other);
    pthread_join(thread, NULL);
}
static void notify_without(void) { notify(0); }
static void notify_with(void) { notify(1); }

/* None. */
static void fine_ends(void) { for (int i = 0; i < 3; i++) make_all(), use_all(), end_all(); }
static void fine_static(void) {
    pthread_mutex_lock(&other), pthread_mutex_unlock(&other), pthread_mutex_init(&other, NULL);
    pthread_cond_signal(&fresh), pthread_cond_init(&fresh, NULL);
}
static void fine_zeroed(void) {
    be_ended();
    memset(&mutex, 0, sizeof mutex), memset(&rwlock, 0, sizeof rwlock), memset(&cond, 0, sizeof cond);
    struct timespec time = past();
    pthread_mutex_lock(&mutex), pthread_cond_timedwait(&cond, &mutex, &time), pthread_mutex_unlock(&mutex);
    pthread_rwlock_rdlock(&rwlock), pthread_rwlock_unlock(&rwlock), pthread_cond_signal(&cond), pthread_cond_destroy(&cond);
}
static void fine_assigned(void) {
    be_ended();
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER, rwlock = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER, cond = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex), pthread_mutex_unlock(&mutex), pthread_rwlock_wrlock(&rwlock), pthread_rwlock_unlock(&rwlock);
    pthread_cond_broadcast(&cond);
}
/* In the same memory, which was given back, or was a frame that is gone. */
static void fine_freed(void) {
    for (int i = 0; i < 8; i++) {
        struct { pthread_mutex_t mutex; pthread_cond_t cond; pthread_barrier_t barrier; sem_t sem; pthread_rwlock_t rwlock; } *heap = malloc(sizeof *heap);
        pthread_mutex_init(&heap->mutex, NULL), pthread_cond_init(&heap->cond, NULL), pthread_rwlock_init(&heap->rwlock, NULL);
        pthread_barrier_init(&heap->barrier, NULL, 1), sem_init(&heap->sem, 0, 1);
        pthread_mutex_lock(&heap->mutex), pthread_mutex_unlock(&heap->mutex), sem_wait(&heap->sem), pthread_barrier_wait(&heap->barrier);
        if (i % 2) sem_destroy(&heap->sem), pthread_barrier_destroy(&heap->barrier);
        free(heap);
    }
}
__attribute__((noinline)) static void frame(void) {
    pthread_mutex_t here;
    pthread_cond_t there;
    pthread_mutex_init(&here, NULL), pthread_cond_init(&there, NULL);
    pthread_mutex_lock(&here), pthread_mutex_unlock(&here), pthread_cond_signal(&there);
}
static void fine_frames(void) { for (int i = 0; i < 4; i++) frame(); }
/* All are notified, and the condition is destroyed before any of them has left. */
static void fine_notified(void) {
    for (int i = 0; i < 20; i++) {
        pthread_t threads[4];
        notified = 0;
        for (int t = 0; t < 4; t++) sleeper = 0, threads[t] = begin(wait_for_cond), until_it_sleeps();
        pthread_mutex_lock(&other), notified = 1, pthread_cond_broadcast(&fresh), pthread_mutex_unlock(&other);
        pthread_cond_destroy(&fresh), pthread_cond_init(&fresh, NULL);
        for (int t = 0; t < 4; t++) pthread_join(threads[t], NULL);
    }
}
static void fine_barrier(void) {
    for (int i = 0; i < 20; i++) {
        pthread_barrier_init(&barrier, NULL, 2);
        pthread_t thread = begin(wait_at_barrier);
        pthread_barrier_wait(&barrier), pthread_barrier_destroy(&barrier);
        pthread_join(thread, NULL);
    }
}
/* The last thread has completed the round, and not woken the other yet: its last steps are made here by hand. */
static void *wake_when_main_sleeps(void *words) {
    sleeper = (int)getpid(), until_it_sleeps();
    syscall(SYS_futex, words, FUTEX_WAKE_PRIVATE, 1);
    return NULL;
}
static void fine_barrier_asleep(void) {
    unsigned *words = (unsigned *)&barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread = begin(wait_at_barrier);
    while (__atomic_load_n(&words[0], __ATOMIC_SEQ_CST) != 1) sched_yield();
    until_it_sleeps();
    if (words[1] != 0 || words[2] != 2 || words[3] != 0 || words[4] != 0) abort();
    __atomic_store_n(&words[0], 2, __ATOMIC_SEQ_CST), __atomic_store_n(&words[1], 2, __ATOMIC_SEQ_CST);
    __atomic_store_n(&words[4], 1, __ATOMIC_SEQ_CST);
    begin_with(wake_when_main_sleeps, &words[1]), pthread_barrier_destroy(&barrier);
    pthread_join(thread, NULL);
}
static void fine_refused(void) {
    struct timespec time = past();
    make_all(), pthread_mutex_lock(&mutex);
    if (pthread_mutex_trylock(&mutex) != EBUSY || pthread_cond_timedwait(&cond, &mutex, &time) != ETIMEDOUT) abort();
    pthread_mutex_unlock(&mutex);
    sem_wait(&sem);
    if (sem_trywait(&sem) != -1 || errno != EAGAIN || sem_timedwait(&sem, &time) != -1 || errno != ETIMEDOUT) abort();
}
static void in_child(void (*body)(void)) {
    int status;
    pid_t child = fork();
    if (child == 0) body(), _exit(0);
    if (waitpid(child, &status, 0) != child || status != 0) abort();
}
static void fine_child(void) { make_all(), in_child(use_all), in_child(make_all), in_child(end_all), end_all(); }
static pthread_barrier_t *common;
static void *meet(void *x) { pthread_barrier_wait(common); return x; }
static void meet_in_child(void) { meet(NULL); }
static void fine_shared(void) {
    common = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sem_t *counts = (sem_t *)(common + 1);
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes), pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pid_t child = fork();
    if (child == 0) {
        pthread_barrier_init(common, &attributes, 2), sem_init(counts, 1, 0);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    sem_post(counts), sem_wait(counts);
    pthread_t thread = begin(meet);
    in_child(meet_in_child), pthread_join(thread, NULL), pthread_barrier_destroy(common), sem_destroy(counts);
}
/* Another process has made them again, where this one has destroyed them. */
struct shared { pthread_barrier_t barrier; pthread_spinlock_t spin; sem_t sem, own; };
static void make_shared(struct shared *it) {
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes), pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&it->barrier, &attributes, 1), pthread_spin_init(&it->spin, PTHREAD_PROCESS_SHARED);
    sem_init(&it->sem, 1, 0), sem_init(&it->own, 0, 1);
}
static void *post_when_it_sleeps(void *sem) { until_it_sleeps(), sem_post(sem); return NULL; }
static void use_shared(struct shared *it) {
    sleeper = 0, begin_with(post_when_it_sleeps, &it->sem), sleeps(), sem_wait(&it->sem), sem_trywait(&it->own), sem_post(&it->own);
    pthread_spin_lock(&it->spin), pthread_spin_unlock(&it->spin), pthread_barrier_wait(&it->barrier);
}
static void fine_remade_by_another(void) {
    struct shared *it = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 2; i++) {
        make_shared(it), use_shared(it);
        pthread_barrier_destroy(&it->barrier), pthread_spin_destroy(&it->spin), sem_destroy(&it->sem), sem_destroy(&it->own);
        pid_t child = fork();
        if (child == 0) make_shared(it), _exit(0);
        waitpid(child, NULL, 0), use_shared(it);
    }
}
/* Robust mutexes, which glibc marks as process-shared in any case. */
static pthread_mutex_t robust[2];
static void make_robust(pthread_mutex_t *it, int sharing) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes), pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setpshared(&attributes, sharing), pthread_mutex_init(it, &attributes);
}
static void lock_both_ways(pthread_mutex_t *two) {
    for (int first = 0; first < 2; first++) {
        pthread_mutex_lock(&two[first]), pthread_mutex_lock(&two[!first]);
        pthread_mutex_unlock(&two[!first]), pthread_mutex_unlock(&two[first]);
    }
}
static void robust_order(void) {
    for (int i = 0; i < 2; i++) make_robust(&robust[i], PTHREAD_PROCESS_PRIVATE);
    lock_both_ways(robust);
}
static void robust_ended(void) {
    make_robust(robust, PTHREAD_PROCESS_PRIVATE), pthread_mutex_lock(robust), pthread_mutex_unlock(robust);
    pthread_mutex_destroy(robust), pthread_mutex_lock(robust);
}
static void *keep_robust(void *x) { pthread_mutex_lock(robust); return x; }
static void *find_unrecoverable(void *x) {
    for (int i = 0; i < 2; i++) if (pthread_mutex_lock(robust) != ENOTRECOVERABLE) abort();
    return x;
}
static void robust_kept(void) {
    make_robust(robust, PTHREAD_PROCESS_PRIVATE), pthread_join(begin(keep_robust), NULL);
    if (pthread_mutex_lock(robust) != EOWNERDEAD || pthread_mutex_unlock(robust) != 0) abort();
    for (int i = 0; i < 2; i++) pthread_join(begin(find_unrecoverable), NULL);
}
static void *add_robust(void *number) {
    for (int i = 0; i < 2000; i++) {
        if (pthread_mutex_lock(robust) != 0) abort();
        ++*(int *)number;
        if (pthread_mutex_unlock(robust) != 0) abort();
    }
    return NULL;
}
/* The second time in memory of a private one. */
static void fine_robust(void) {
    int number = 0;
    make_robust(robust, PTHREAD_PROCESS_PRIVATE);
    pthread_t thread = begin_with(add_robust, &number);
    add_robust(&number), pthread_join(thread, NULL);
    if (number != 4000) abort();
    for (int i = 0; i < 2; i++) make_robust(&robust[i], PTHREAD_PROCESS_SHARED);
    lock_both_ways(robust);
}

#define CASE(name, rule, words) {#name, rule, words, name}
#define ENDED(name) CASE(name, "initialised-by-interface", "")
#define TWICE(name) CASE(name, "initialised-once", "")
#define WAITERS(name) CASE(name, "no-delete-in-use", "")
#define FAILS(name) CASE(name, "no-failed-call", "")
#define FINE(name) CASE(name, "", "hints,long-hold=600000")
static const struct { const char *name, *rule, *words; void (*run)(void); } cases[] = {
    ENDED(ended_lock), ENDED(ended_trylock), ENDED(ended_unlock), ENDED(ended_destroy), ENDED(ended_never_used), ENDED(ended_read),
    ENDED(ended_write), ENDED(ended_rwlock_destroy), ENDED(ended_signal), ENDED(ended_broadcast), ENDED(ended_spin), ENDED(ended_barrier),
    ENDED(ended_post), ENDED(ended_trywait), ENDED(ended_wait), ENDED(never_barrier), ENDED(never_barrier_zeroed), ENDED(never_barrier_kind), ENDED(never_cond), ENDED(smashed_sem),
    TWICE(twice_mutex), TWICE(twice_used), TWICE(twice_heap), TWICE(twice_rwlock), TWICE(twice_cond), TWICE(twice_barrier),
    TWICE(twice_barrier_heap), TWICE(twice_with_waiter), TWICE(twice_sem),
    WAITERS(waiters_barrier), WAITERS(waiters_cond), WAITERS(waiters_sem),
    FAILS(fails_count), FAILS(fails_value), FAILS(fails_again), FAILS(fails_time), FAILS(fails_sem_time), FAILS(fails_join), CASE(fails_kind, "no-double-unlock", ""),
    FAILS(fails_consistent), FAILS(fails_ceiling), FAILS(fails_new_ceiling),
    CASE(long_read, "no-long-hold", "long-hold=20"), CASE(long_write, "no-long-hold", "long-hold=20"),
    CASE(long_unlock, "no-long-hold", "long-hold=20"), CASE(long_wait, "no-long-hold", "long-hold=20"), CASE(long_enough, "", ""),
    CASE(notify_without, "notifies-with-mutex", "hints"), CASE(notify_without, "", ""), CASE(notify_with, "", "hints"),
    FINE(fine_ends), FINE(fine_static), FINE(fine_zeroed), FINE(fine_assigned), FINE(fine_freed), FINE(fine_frames), FINE(fine_notified),
    FINE(fine_barrier), FINE(fine_barrier_asleep), FINE(fine_refused), FINE(fine_child), FINE(fine_shared), FINE(fine_remade_by_another), FINE(fine_robust),
    CASE(robust_order, "one-task-order", ""), CASE(robust_kept, "no-exit-holding", ""), ENDED(robust_ended),
    {"fails_often", "-", "", fails_often}, {"fails_right", "-", "", fails_right},
};
int main(int count, char **names) {
    findings = count == 3 ? names[2] : "";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (count == 1) printf("%s:%s:%s\n", cases[i].name, cases[i].rule, cases[i].words);
        else if (strcmp(cases[i].name, names[1]) == 0) return cases[i].run(), 0;
    }
    return count == 1 ? 0 : 2;
}

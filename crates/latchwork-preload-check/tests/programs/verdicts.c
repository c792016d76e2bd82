/* How sure a finding is: one case, by its name. The second argument is where findings go. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static const char *findings;
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t *first = &a, *second = &b;
static _Atomic int ids[2], go, main_id;

static int id(void) { return (int)syscall(SYS_gettid); }
static void until_it_sleeps(_Atomic int *who) {
    for (int call = -1; call != SYS_futex; sched_yield()) {
        char path[64], text[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%d/syscall", *who);
        FILE *file = *who ? fopen(path, "r") : NULL;
        if (file == NULL) continue;
        call = fgets(text, sizeof text, file) && text[0] != 'r' ? atoi(text) : -1;
        fclose(file);
    }
}
/* The object that the caller will wait for is in a reported call. */
static void until_found(void) {
    struct stat status;
    while (stat(findings, &status) != 0 || status.st_size == 0) sched_yield();
}
static void until_gone(_Atomic int *who) {
    char path[64];
    while (*who == 0) sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d", *who);
    while (access(path, F_OK) == 0) sched_yield();
}

/* Thread 0 locks the first and waits for the second; thread 1 the other way round, when the other sleeps. */
static void *cross(void *number) {
    long me = (long)number;
    pthread_mutex_t *mine = me ? second : first, *other = me ? first : second;
    pthread_mutex_lock(mine);
    ids[me] = id();
    if (me) {
        until_it_sleeps(&ids[0]);
        if (main_id) until_it_sleeps(&main_id);
    } else
        while (!ids[1]) sched_yield();
    if (pthread_mutex_lock(other) == 0) pthread_mutex_unlock(other);
    pthread_mutex_unlock(mine);
    return NULL;
}
static pthread_t threads[2];
static void start(void) { for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, cross, (void *)i); }
static void join(void) { for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL); }
static void third_releases(void) {
    start();
    until_found(), until_it_sleeps(&ids[0]), until_it_sleeps(&ids[1]);
    pthread_mutex_unlock(&a);
    join();
}
static void all_wait(void) { main_id = id(), start(), join(); }
static void one_runs(void) { start(), until_found(), join(); }
static void one_runs_but_owners_unlock(void) {
    static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    first = &checking, second = &recursive, one_runs();
}

static void *lock_twice(void *argument) {
    pthread_mutex_lock(&a);
    ids[0] = id();
    pthread_mutex_lock(&a);
    pthread_mutex_unlock(&a);
    return argument;
}
static void relocked_and_released_by_thread(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, lock_twice, NULL);
    until_found(), until_it_sleeps(&ids[0]);
    pthread_mutex_unlock(&a);
    pthread_join(thread, NULL);
}
static void *map_shared(void) { return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); }
static void wait_for(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) abort();
}
static void relocked_and_released_by_process(void) {
    pthread_spinlock_t *spin = map_shared();
    pthread_spin_init(spin, PTHREAD_PROCESS_SHARED), pthread_spin_lock(spin);
    pid_t child = fork();
    if (child == 0) until_found(), pthread_spin_unlock(spin), _exit(0);
    pthread_spin_lock(spin), pthread_spin_unlock(spin);
    wait_for(child);
}
static void relocked_timed(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    pthread_mutex_lock(&a), pthread_mutex_timedlock(&a, &until), pthread_mutex_unlock(&a);
}

static void children(void (*body)(void)) {
    for (int i = 0; i < 8; i++) {
        pid_t child = fork();
        if (child == 0) body(), _exit(0);
        wait_for(child);
    }
}
static pthread_mutex_t *shared;
static void unmap(void) { munmap(shared, 4096); }
static void lock_and_unmap(void) { pthread_mutex_lock(shared), unmap(); }
static void children_unmap(void) {
    shared = map_shared();
    pthread_mutex_lock(shared), children(unmap), pthread_mutex_unlock(shared);
}
static void unmap_shared_held(void) { shared = map_shared(), lock_and_unmap(); }
/* Each has memory of its own there. */
static void children_unmap_what_they_hold(void) {
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    children(lock_and_unmap);
}
static void unlock_free(void) { pthread_mutex_unlock(&a); }
static void children_break_a_rule(void) { pthread_mutex_lock(&a), pthread_mutex_unlock(&a), children(unlock_free); }

static void *hold(void *argument) { pthread_mutex_lock(&a), ids[0] = id(); return argument; }
static int hold11(void *argument) { return hold(argument) != NULL; }
static void *hold_and_exit(void *argument) { hold(argument), exit(0); }
static void detached(void *(*body)(void *)) {
    pthread_t thread;
    pthread_create(&thread, NULL, body, NULL), pthread_detach(thread);
}
static void thread_exits_process(void) { detached(hold_and_exit); for (;;) pause(); }
static void detached_thread_ends_and_process_exits(void) { detached(hold), until_gone(&ids[0]); }
static void main_exits_holding(void) { hold(NULL); }
static void joined(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, hold, NULL), pthread_join(thread, NULL);
}
static void joined_c11(void) {
    thrd_t thread;
    thrd_create(&thread, hold11, NULL), thrd_join(thread, NULL);
}
static void detached_thread_ends_and_lock_is_wanted(void) {
    struct timespec until;
    detached(hold), until_gone(&ids[0]);
    clock_gettime(CLOCK_REALTIME, &until);
    pthread_mutex_timedlock(&a, &until);
}

#define CASE(name) {#name, name}
static const struct { const char *name; void (*run)(void); } cases[] = {
    CASE(third_releases), CASE(all_wait), CASE(one_runs), CASE(one_runs_but_owners_unlock), CASE(relocked_and_released_by_thread),
    CASE(relocked_and_released_by_process), CASE(relocked_timed), CASE(children_unmap), CASE(unmap_shared_held),
    CASE(children_unmap_what_they_hold), CASE(children_break_a_rule), CASE(thread_exits_process),
    CASE(detached_thread_ends_and_process_exits), CASE(main_exits_holding), CASE(joined), CASE(joined_c11),
    CASE(detached_thread_ends_and_lock_is_wanted),
};
int main(int count, char **names) {
    findings = count == 3 ? names[2] : "";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (count == 3 && strcmp(cases[i].name, names[1]) == 0) return cases[i].run(), 0;
    return 2;
}

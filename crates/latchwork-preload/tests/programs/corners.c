/* Edges that an interposer falls over: one case, by its name. Ends with 0 if all is as with glibc alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#include "notified.h"

#define CHECK(what) \
    do { \
        if (!(what)) { \
            dprintf(2, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
            _exit(1); \
        } \
    } while (0)

#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* A waiter that times out after its longest poll, just before it requests the lock, leaves the mutex destroyable. */
static void *give_up(void *unused) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (end.tv_nsec + 400000000) / 1000000000;
    end.tv_nsec = (end.tv_nsec + 400000000) % 1000000000;
    CHECK(pthread_mutex_timedlock(&mutex, &end) == ETIMEDOUT);
    return unused;
}
static void destroyed(void) {
    pthread_t thread;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pthread_mutex_destroy(&mutex) == EBUSY);
    CHECK(pthread_create(&thread, NULL, give_up, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_mutex_destroy(&mutex) == 0);
}

/* The first call of all, while another thread is in a constructor of a library, which locks, too. */
_Atomic int is_constructing;
static void *call_first(void *unused) {
    while (!is_constructing) sched_yield();
    CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
    return unused;
}
static void constructed(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, call_first, NULL) == 0);
    CHECK(dlopen(getenv("CORNERS_LIBRARY"), RTLD_NOW) != NULL);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Returns when a thread sleeps in a futex call. */
static void sleep_in_a_futex(int thread) {
    char path[64], text[128];
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    for (int number = -1; number != SYS_futex; sched_yield()) {
        int file = open(path, O_RDONLY);
        ssize_t length = read(file, text, sizeof text - 1);
        CHECK(file >= 0 && length >= 0);
        text[length] = 0;
        /* "running" */
        if (sscanf(text, "%d", &number) != 1) number = -1;
        close(file);
    }
}

/* A child of ours that has something to say at its end, with a standard error of its own. */
static int end_of(const char *name, int errors) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        char text[32];
        snprintf(text, sizeof text, "%d", getpid());
        setenv("LATCHWORK_SPEAKER", text, 1);
        dup2(errors, 2);
        execl("/proc/self/exe", "corners", name, NULL);
        _exit(99);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* What is said at the end goes to no file that the program has opened where standard error was. */
static void replace(void) {
    CHECK(dup2(8, 2) == 2);
    CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
}
static void replaced(void) {
    struct stat status;
    FILE *file = tmpfile();
    CHECK(file != NULL && dup2(fileno(file), 8) == 8);
    CHECK(end_of("replace", 2) == 0);
    CHECK(fstat(8, &status) == 0 && status.st_size == 0);
}

/* It exits the same way if its output has no reader. */
static void end(void) {
    CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
    exit(7);
}
static void unread(void) {
    int ends[2];
    CHECK(pipe(ends) == 0 && close(ends[0]) == 0);
    CHECK(end_of("end", ends[1]) == 7);
}

/* Without priority-inheritance futexes in the kernel, no thread enters without the mutex. */
static long inside;
static void *enter(void *unused) {
    for (int round = 0; round < 300; round++) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        CHECK(inside++ == 0);
        if (round % 10 == 0) usleep(100);
        CHECK(--inside == 0);
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
    return unused;
}
static void many(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, enter, NULL) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}
/* Each mutex is counted, however it was made. */
enum { COUNTED = 7 };
static void lock_each(void) {
    pthread_mutex_t mutexes[COUNTED - 2] = {PTHREAD_MUTEX_INITIALIZER};
    int kinds[COUNTED - 2] = {-1, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
        PTHREAD_MUTEX_ADAPTIVE_NP};
    mtx_t c11[2];
    for (int i = 0; i < COUNTED - 2; i++) {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        if (kinds[i] >= 0) {
            CHECK(pthread_mutexattr_settype(&attributes, kinds[i]) == 0);
            CHECK(pthread_mutex_init(&mutexes[i], &attributes) == 0);
        }
        for (int round = 0; round < 3; round++)
            CHECK(pthread_mutex_lock(&mutexes[i]) == 0 && pthread_mutex_unlock(&mutexes[i]) == 0);
        CHECK(pthread_mutex_destroy(&mutexes[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(mtx_init(&c11[i], i == 0 ? mtx_plain : mtx_timed) == thrd_success);
        CHECK(mtx_lock(&c11[i]) == thrd_success && mtx_unlock(&c11[i]) == thrd_success);
    }
}
static void counted(void) {
    char text[256] = "", expected[64];
    int ends[2];
    const char *mutex = getenv("LATCHWORK_MUTEX");
    CHECK(pipe(ends) == 0 && end_of("lock_each", ends[1]) == 0 && close(ends[1]) == 0);
    CHECK(read(ends[0], text, sizeof text - 1) > 0);
    snprintf(expected, sizeof expected, "latchwork: %d mutexes replaced by", COUNTED);
    CHECK(strstr(text, strcmp(mutex, "glibc") == 0 ? "no mutex was replaced" : expected) != NULL);
}

/* All keys are the program's. */
static void keys(void) {
    pthread_key_t key;
    for (int i = 0; i < PTHREAD_KEYS_MAX; i++) CHECK(pthread_key_create(&key, NULL) == 0);
    CHECK(pthread_key_create(&key, NULL) == EAGAIN);
    many();
}

/* A normal mutex may be released by another thread than has taken it. (POSIX does not say what comes of it; with glibc
 * it is released.) */
static void *unlock_it(void *released) {
    CHECK(pthread_mutex_unlock(released) == 0);
    return released;
}
static void unlock_elsewhere(pthread_mutex_t *it) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, unlock_it, it) == 0 && pthread_join(thread, NULL) == 0);
}
static void *unlock_when_awaited(void *released) {
    sleep_in_a_futex(getpid());
    return unlock_it(released);
}
static _Atomic int waiter;
static void *wait_for_it(void *released) {
    waiter = (int)syscall(SYS_gettid);
    CHECK(pthread_mutex_lock(released) == 0);
    CHECK(pthread_mutex_unlock(released) == 0);
    return released;
}
static void *lock_it(void *released) {
    CHECK(pthread_mutex_lock(released) == 0);
    return released;
}
static struct timespec *volatile no_time;
static void goes_on(pthread_mutex_t *it) {
    struct timespec past = {.tv_sec = 1};
    CHECK(pthread_mutex_trylock(it) == 0);
    CHECK(pthread_mutex_trylock(it) == EBUSY);
    CHECK(pthread_mutex_timedlock(it, &past) == ETIMEDOUT);
    CHECK(pthread_mutex_destroy(it) == EBUSY);
    CHECK(pthread_mutex_unlock(it) == 0);
    CHECK(pthread_mutex_timedlock(it, &past) == 0);
    CHECK(pthread_mutex_unlock(it) == 0);
    /* The time is not read if the call need not wait. */
    CHECK(pthread_mutex_timedlock(it, no_time) == 0);
    CHECK(pthread_mutex_unlock(it) == 0);
    inside = 0;
    many();
}
static void passed(void) {
    pthread_t thread, other;
    /* Without a waiter. */
    CHECK(pthread_mutex_lock(&mutex) == 0);
    unlock_elsewhere(&mutex);
    goes_on(&mutex);
    /* With a waiter. */
    memset(&mutex, 0, sizeof mutex);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pthread_create(&thread, NULL, wait_for_it, &mutex) == 0);
    while (waiter == 0) sched_yield();
    sleep_in_a_futex(waiter);
    unlock_elsewhere(&mutex);
    CHECK(pthread_join(thread, NULL) == 0);
    goes_on(&mutex);
    /* Its own thread does. */
    memset(&mutex, 0, sizeof mutex);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pthread_create(&other, NULL, unlock_when_awaited, &mutex) == 0);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    goes_on(&mutex);
    /* The thread has ended that had taken it. */
    memset(&mutex, 0, sizeof mutex);
    CHECK(pthread_create(&thread, NULL, lock_it, &mutex) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&other, NULL, unlock_when_awaited, &mutex) == 0);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    goes_on(&mutex);
}

static void refused(void) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 7),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, FUTEX_CMD_MASK),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_LOCK_PI, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_LOCK_PI2, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_TRYLOCK_PI, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_UNLOCK_PI, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) return;
    int nowhere = open("/dev/null", O_WRONLY);
    CHECK(end_of("many", nowhere) == 0);
}

/* Condition variables of both worlds. */
static void notified(void) { CHECK(notify_each_way(PTHREAD_PROCESS_PRIVATE) == 0 && notify_each_way(PTHREAD_PROCESS_SHARED) == 0); }

static pthread_cond_t awaited = PTHREAD_COND_INITIALIZER;
static int waits;

static void *await(void *unused) {
    CHECK(pthread_mutex_lock(&mutex) == 0);
    for (waits = 1; waits;) CHECK(pthread_cond_wait(&awaited, &mutex) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return unused;
}

static void until_it_waits(void) {
    for (int seen = 0; !seen;) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        seen = waits;
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
}

/* The first process of a PID namespace; 77 if there may be none. */
static int in_namespace(void (*body)(void)) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWPID | CLONE_NEWUSER) != 0) _exit(77);
        child = fork();
        if (child == 0) {
            CHECK(getpid() == 1);
            body();
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The waiter is the parent's, which has the same ID. */
static void without_waiters(void) { CHECK(pthread_cond_destroy(&awaited) == 0); }

static void with_a_waiter(void) {
    pthread_t waiter;
    CHECK(pthread_create(&waiter, NULL, await, NULL) == 0);
    until_it_waits();
    int status = in_namespace(without_waiters);
    CHECK(status == 0 || status == 77);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    waits = 0;
    CHECK(pthread_cond_signal(&awaited) == 0 && pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_join(waiter, NULL) == 0);
}

/* The first process of a namespace forks the first one of another. (glibc's own condition variable waits for ever.) */
static void descended(void) {
    if (strcmp(getenv("LATCHWORK_MUTEX"), "glibc") == 0) return;
    int status = in_namespace(with_a_waiter);
    CHECK(status == 0 || status == 77);
}

int main(int count, char **names) {
    static const struct { const char *name; void (*run)(void); } cases[] = {
        {"destroyed", destroyed}, {"constructed", constructed}, {"replace", replace}, {"replaced", replaced}, {"end", end}, {"unread", unread}, {"many", many}, {"refused", refused}, {"notified", notified},
        {"lock_each", lock_each}, {"counted", counted}, {"passed", passed}, {"keys", keys}, {"descended", descended},
    };
    for (size_t i = 0; count == 2 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(names[1], cases[i].name) == 0) return cases[i].run(), 0;
    return 2;
}

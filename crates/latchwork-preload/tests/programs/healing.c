/* Situations that `run --heal` heals, and others that it must leave alone: one for each run. Says how a wait ended; the
 * exit status is 3 if a task sleeps although it need not. */
#define _GNU_SOURCE
#include "sleeps.h"
#include <fcntl.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#define WAITERS 0x80000000u
enum { HANGS = 3, LATER_MS = 3600000 };

static struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    sem_t semaphore;
    atomic_int ready, go;
} *shared;

static void *map(int file, size_t size) {
    int kind = file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, kind, file, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}
static void make_mutex(int type, int robust) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, type);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, robust);
    CHECK(pthread_mutex_init(&shared->mutex, &attributes) == 0);
}
/* In a child that does not outlive this program. */
static pid_t child(void) {
    pid_t parent = getpid(), process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
    }
    return process;
}
static void until(atomic_int *flag) {
    while (!atomic_load(flag)) sleep_ms(1);
}
/* Whether a child ends well, after at most so many seconds as the test has patience. */
static int ends(pid_t process) {
    const char *text = getenv("PATIENCE");
    int patience = text != NULL ? atoi(text) : 90;
    for (int ms = 0; ms < patience * 1000; ms += 10, sleep_ms(10)) {
        int status;
        if (waitpid(process, &status, WNOHANG) == process) {
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            return 0;
        }
    }
    return HANGS;
}
static const char *name(int error) {
    return error == 0 ? "0" : strerrorname_np(error);
}

/* --- lost wake-ups: an object is free, or has a unit, and a task that sleeps for it was not woken --- */

static int lock_somehow(const char *call) {
    struct timespec later = in(CLOCK_REALTIME, LATER_MS), monotonic = in(CLOCK_MONOTONIC, LATER_MS);
    if (strcmp(call, "timedlock") == 0) return pthread_mutex_timedlock(&shared->mutex, &later);
    if (strcmp(call, "clocklock") == 0) return pthread_mutex_clocklock(&shared->mutex, CLOCK_MONOTONIC, &monotonic);
    return pthread_mutex_lock(&shared->mutex);
}
/* As after the release of a newcomer that does not know of the waiter. */
static int lost(int robust, const char *call) {
    make_mutex(PTHREAD_MUTEX_NORMAL, robust);
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    pid_t waiter = child();
    if (waiter == 0) {
        CHECK(lock_somehow(call) == 0);
        CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
        _exit(0);
    }
    until_it_sleeps(waiter, &shared->mutex, sizeof shared->mutex);
    unsigned *word = (unsigned *)&shared->mutex;
    if (robust) __atomic_and_fetch(word, ~WAITERS, __ATOMIC_SEQ_CST);
    else __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    return ends(waiter);
}
static int lost_post(void) {
    CHECK(sem_init(&shared->semaphore, 1, 0) == 0);
    pid_t waiter = child();
    if (waiter == 0) {
        errno = 77;
        CHECK(sem_wait(&shared->semaphore) == 0 && errno == 77);
        _exit(0);
    }
    until_it_sleeps(waiter, &shared->semaphore, sizeof shared->semaphore);
    __atomic_add_fetch((unsigned *)&shared->semaphore, 1, __ATOMIC_SEQ_CST);
    return ends(waiter);
}
/* A task that acquires the mutex again after a wait for a condition; the next owner wakes it. */
static int lost_after_condition(void) {
    make_mutex(PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    CHECK(pthread_cond_init(&shared->cond, &attributes) == 0);
    pid_t waiter = child();
    if (waiter == 0) {
        CHECK(pthread_mutex_lock(&shared->mutex) == 0);
        while (!shared->go) CHECK(pthread_cond_wait(&shared->cond, &shared->mutex) == 0);
        CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
        _exit(0);
    }
    until_it_sleeps(waiter, &shared->cond, sizeof shared->cond);
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    shared->go = 1;
    CHECK(pthread_cond_signal(&shared->cond) == 0);
    until_it_sleeps(waiter, &shared->mutex, sizeof shared->mutex);
    __atomic_and_fetch((unsigned *)&shared->mutex, ~WAITERS, __ATOMIC_SEQ_CST);
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    return ends(waiter);
}
/* Whether the word of a held mutex says that tasks may wait, after a lock call and after a wait for a condition. */
static void show_mark(void) {
    unsigned word = __atomic_load_n((unsigned *)&shared->mutex, __ATOMIC_SEQ_CST);
    printf("%s\n", word & WAITERS ? "with the waiters bit" : "without the waiters bit");
}
static int marked(void) {
    make_mutex(PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST);
    CHECK(pthread_mutex_trylock(&shared->mutex) == 0);
    show_mark();
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    show_mark();
    CHECK(pthread_cond_init(&shared->cond, NULL) == 0);
    struct timespec past = {0, 0};
    CHECK(pthread_cond_timedwait(&shared->cond, &shared->mutex, &past) == ETIMEDOUT);
    show_mark();
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    return 0;
}

/* --- a mutex that is not robust, and its owner --- */

static void *own(void *unused) {
    (void)unused;
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    return NULL;
}
/* A process of another PID namespace that maps the memory. */
static pid_t stranger(void) {
    pid_t between = child();
    if (between == 0) {
        if (unshare(CLONE_NEWPID) != 0) {
            printf("skipped: no new PID namespace: %s\n", strerror(errno));
            fflush(stdout);
            _exit(1);
        }
        /* There it has no parent that it could see; it ends with the namespace's other processes. */
        pid_t inside = fork();
        CHECK(inside >= 0);
        if (inside == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            shared->go = 1;
            for (;;) pause();
        }
        waitpid(inside, NULL, 0);
        _exit(0);
    }
    while (!shared->go) {
        if (waitpid(between, NULL, WNOHANG) == between) exit(0);
        sleep_ms(1);
    }
    return between;
}
static pid_t owned(const char *how, int type) {
    make_mutex(type, PTHREAD_MUTEX_STALLED);
    if (strcmp(how, "stranger") == 0) stranger();
    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        start(&thread, own, NULL);
        join(thread);
        return 0;
    }
    pid_t owner = child();
    if (owner == 0) {
        own(NULL);
        if (type == PTHREAD_MUTEX_RECURSIVE) own(NULL);
        shared->ready = 1;
        for (;;) pause();
    }
    until(&shared->ready);
    siginfo_t ended;
    if (strcmp(how, "stopped") == 0) {
        kill(owner, SIGSTOP);
        CHECK(waitpid(owner, NULL, WUNTRACED) == owner);
    } else if (strcmp(how, "living") != 0) {
        kill(owner, SIGKILL);
        /* The owner of the other cases is no zombie. */
        int keep = strcmp(how, "zombie") == 0 ? WNOWAIT : 0;
        CHECK(waitid(P_PID, (id_t)owner, &ended, WEXITED | keep) == 0);
    }
    return owner;
}
/* The caller's result of a lock call is 0 or EOWNERDEAD: it holds the mutex, and can release it. */
static void release_it(void) {
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    pid_t other = child();
    if (other == 0) {
        CHECK(pthread_mutex_lock(&shared->mutex) == 0);
        CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
        _exit(0);
    }
    CHECK(ends(other) == 0);
}
static int gone(const char *how, const char *type, const char *call) {
    int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    owned(how, types[atoi(type)]);
    int result;
    if (strcmp(call, "moments") == 0) {
        struct timespec time = in(CLOCK_MONOTONIC, 4500);
        result = pthread_mutex_clocklock(&shared->mutex, CLOCK_MONOTONIC, &time);
    } else {
        result = lock_somehow(call);
    }
    printf("%s\n", name(result));
    if (result == EOWNERDEAD) {
        if (types[atoi(type)] == PTHREAD_MUTEX_ERRORCHECK) CHECK(pthread_mutex_lock(&shared->mutex) == EDEADLK);
        if (types[atoi(type)] == PTHREAD_MUTEX_RECURSIVE) {
            CHECK(pthread_mutex_lock(&shared->mutex) == 0);
            CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
        }
        release_it();
    }
    return 0;
}
/* Several waiters: one takes over from the owner, the others get the mutex from each other. */
static int many(void) {
    enum { MANY = 4 };
    owned("killed", PTHREAD_MUTEX_NORMAL);
    pid_t waiters[MANY];
    int taken_over = 0;
    for (int i = 0; i < MANY; i++)
        if ((waiters[i] = child()) == 0) {
            int result = pthread_mutex_lock(&shared->mutex);
            CHECK(result == 0 || result == EOWNERDEAD);
            CHECK(atomic_fetch_add(&shared->go, 1) == 0);
            sleep_ms(10);
            CHECK(atomic_fetch_sub(&shared->go, 1) == 1);
            CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
            _exit(result == EOWNERDEAD ? 10 : 0);
        }
    for (int i = 0; i < MANY; i++) {
        int status;
        CHECK(waitpid(waiters[i], &status, 0) == waiters[i] && WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 10);
        taken_over += WEXITSTATUS(status) == 10;
    }
    printf("%d\n", taken_over);
    return 0;
}

/* --- a semaphore, and who could post it --- */

static void nothing(int signal) { (void)signal; }
static void *idle(void *unused) {
    for (;;) pause();
    return unused;
}
static int alone(const char *how, const char *call) {
    if (strcmp(how, "file") == 0) {
        FILE *file = tmpfile();
        CHECK(file != NULL && ftruncate(fileno(file), sizeof *shared) == 0);
        shared = map(fileno(file), sizeof *shared);
    }
    CHECK(sem_init(&shared->semaphore, 1, 0) == 0);
    pid_t other = child();
    if (other == 0) {
        if (strcmp(how, "living") == 0) for (;;) pause();
        _exit(0);
    }
    if (strcmp(how, "living") != 0) CHECK(waitpid(other, NULL, 0) == other);
    if (strcmp(how, "handler") == 0) signal(SIGUSR1, nothing);
    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        start(&thread, idle, NULL);
    }
    struct timespec time = in(CLOCK_MONOTONIC, strcmp(call, "moments") == 0 ? 4500 : LATER_MS), wall = in(CLOCK_REALTIME, LATER_MS);
    int result = strcmp(call, "wait") == 0        ? sem_wait(&shared->semaphore)
                 : strcmp(call, "timedwait") == 0 ? sem_timedwait(&shared->semaphore, &wall)
                                                  : sem_clockwait(&shared->semaphore, CLOCK_MONOTONIC, &time);
    printf("%d %s\n", result, name(errno));
    CHECK(sem_post(&shared->semaphore) == 0 && sem_wait(&shared->semaphore) == 0);
    return 0;
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *all[5] = {"", "", "", "", ""};
    for (int i = 0; i < count && i < 5; i++) all[i] = words[i];
    shared = map(-1, sizeof *shared);
    const char *what = all[1];
    if (strcmp(what, "lost") == 0) return lost(PTHREAD_MUTEX_ROBUST, all[2]);
    if (strcmp(what, "lost-plain") == 0) return lost(PTHREAD_MUTEX_STALLED, all[2]);
    if (strcmp(what, "lost-post") == 0) return lost_post();
    if (strcmp(what, "lost-condition") == 0) return lost_after_condition();
    if (strcmp(what, "marked") == 0) return marked();
    if (strcmp(what, "gone") == 0) return gone(all[2], all[3], all[4]);
    if (strcmp(what, "many") == 0) return many();
    if (strcmp(what, "alone") == 0) return alone(all[2], all[3]);
    return 2;
}

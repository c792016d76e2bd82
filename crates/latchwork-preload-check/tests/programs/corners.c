/* Edges that a checker of programs falls over: one case, by its name. Ends with 0 if all is as without it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../latchwork-preload/tests/programs/notified.h"

#define CHECK(what) \
    do { \
        if (!(what)) { \
            dprintf(2, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
            _exit(1); \
        } \
    } while (0)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;

static void wait_for_child(pid_t child) {
    int status;
    if (child == 0) _exit(0);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* Times and clocks that are none, where there is nothing to wait for. */
static void times(void) {
    struct timespec past = {1, 0}, none = {0, -1};
    clockid_t unknown = CLOCK_PROCESS_CPUTIME_ID;
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    sem_t sem;
    CHECK(pthread_mutex_timedlock(&mutex, &none) == 0 && pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_mutex_clocklock(&mutex, unknown, &past) == EINVAL && pthread_mutex_trylock(&mutex) == 0);
    CHECK(pthread_mutex_timedlock(&mutex, &none) == EINVAL && pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_rwlock_timedrdlock(&lock, &none) == EINVAL && pthread_rwlock_timedwrlock(&lock, &none) == EINVAL);
    CHECK(pthread_rwlock_clockrdlock(&lock, unknown, &past) == EINVAL && pthread_rwlock_clockwrlock(&lock, unknown, &past) == EINVAL);
    CHECK(pthread_rwlock_timedwrlock(&lock, &past) == 0 && pthread_rwlock_unlock(&lock) == 0);
    CHECK(sem_init(&sem, 0, 1) == 0);
    CHECK(sem_timedwait(&sem, &none) == -1 && errno == EINVAL);
    CHECK(sem_clockwait(&sem, unknown, &past) == -1 && errno == EINVAL);
    CHECK(sem_timedwait(&sem, &past) == 0 && sem_trywait(&sem) == -1 && errno == EAGAIN);
}

static void *take_both(void *from_the_end) {
    pthread_mutex_t *first = from_the_end ? &other : &mutex, *second = from_the_end ? &mutex : &other;
    CHECK(pthread_mutex_lock(first) == 0 && pthread_mutex_lock(second) == 0);
    CHECK(pthread_mutex_unlock(first) == 0 && pthread_mutex_unlock(second) == 0);
    return NULL;
}
/* What a thread has, beside what it has asked for: see the head of the library. */
static pthread_barrier_t all;
static void *look_at_stack(void *expected) {
    pthread_attr_t attributes;
    size_t size;
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0 && pthread_attr_getstacksize(&attributes, &size) == 0);
    CHECK(size == (size_t)expected && pthread_attr_destroy(&attributes) == 0);
    /* No stack is used again. */
    pthread_barrier_wait(&all);
    return NULL;
}
static void stacks(void) {
    size_t sizes[] = {(size_t)PTHREAD_STACK_MIN, 124 << 10, 128 << 10, 1 << 20};
    pthread_t threads[4];
    CHECK(pthread_barrier_init(&all, NULL, 4) == 0);
    for (int i = 0; i < 4; i++) {
        pthread_attr_t attributes;
        void *expected = (void *)(sizes[i] + (i < 2 ? 64 << 10 : 0));
        CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, sizes[i]) == 0);
        CHECK(pthread_create(&threads[i], &attributes, look_at_stack, expected) == 0 && pthread_attr_destroy(&attributes) == 0);
    }
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}
static void take_in_thread(const pthread_attr_t *attributes, void *from_the_end) {
    pthread_t thread;
    CHECK(pthread_create(&thread, attributes, take_both, from_the_end) == 0 && pthread_join(thread, NULL) == 0);
}

/* Threads with the smallest possible stack, one of which causes a finding. */
static void small(void) {
    pthread_attr_t attributes;
    size_t size;
    CHECK(pthread_attr_init(&attributes) == 0);
    take_in_thread(&attributes, NULL);
    CHECK(pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN) == 0);
    take_in_thread(&attributes, NULL);
    take_in_thread(&attributes, &other);
    CHECK(pthread_attr_getstacksize(&attributes, &size) == 0 && size == (size_t)PTHREAD_STACK_MIN);
    CHECK(pthread_attr_destroy(&attributes) == 0);
}

/* Nearly all descriptors are the program's (by default a process has 1,024), and its file has what it has written. */
static void closed(void) {
    struct stat status;
    FILE *file = tmpfile();
    CHECK(file != NULL);
    take_in_thread(NULL, NULL);
    for (int number = 3; number < 1000; number++)
        if (number != fileno(file)) dup2(fileno(file), number);
    take_in_thread(NULL, &other);
    CHECK(fstat(fileno(file), &status) == 0 && status.st_size == 0);
}

/* Standard error is closed, and its number a file's, which has what the program has written. */
static void find_in_directory(FILE *file, int first) {
    struct stat status;
    CHECK(file != NULL);
    take_in_thread(NULL, NULL);
    for (int number = first; number < 1024; number++)
        if (number != fileno(file)) number < 3 ? dup2(fileno(file), number) : close(number);
    take_in_thread(NULL, &other);
    CHECK(fstat(fileno(file), &status) == 0 && status.st_size == 0);
}
static void replaced(void) {
    struct stat status;
    FILE *file = tmpfile();
    CHECK(file != NULL);
    take_in_thread(NULL, NULL);
    CHECK(dup2(fileno(file), 2) == 2);
    take_in_thread(NULL, &other);
    CHECK(fstat(2, &status) == 0 && status.st_size == 0);
}
/* It has closed all that it does not know; and standard error, too. */
static void left(void) { find_in_directory(tmpfile(), 3); }
static void none_left(void) { find_in_directory(tmpfile(), 2); }
/* The output has no reader. */
static void unread(void) {
    int ends[2];
    CHECK(pipe(ends) == 0 && close(ends[0]) == 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        dup2(ends[1], 2);
        execl("/proc/self/exe", "corners", "reported_order", NULL);
    }
    wait_for_child(child);
}
static void reported_order(void) { take_in_thread(NULL, NULL), take_in_thread(NULL, &other); }
/* No file may grow any more. */
static void limited(void) {
    CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0}) == 0);
    reported_order();
}

/* What the libraries loaded before it do is enough. */
static void nothing(void) {
    void *volatile memory = malloc(100);
    free(memory);
}

/* Two libraries, one after the other, each at work in a thread of its own. */
static void *use_library(void *path) {
    void *library = dlopen(path, RTLD_NOW);
    CHECK(library != NULL);
    void (*lock_both)(void) = (void (*)(void))dlsym(library, "lock_both");
    CHECK(lock_both != NULL);
    lock_both();
    CHECK(dlclose(library) == 0);
    return NULL;
}
static void unloaded(void) {
    for (char *path = strtok(getenv("CORNERS_LIBRARIES"), " "); path != NULL; path = strtok(NULL, " ")) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, use_library, path) == 0 && pthread_join(thread, NULL) == 0);
    }
}

/* A library is unloaded while one of its mutexes is held. */
static void unloaded_held(void) {
    void *library = dlopen(getenv("CORNERS_LIBRARIES"), RTLD_NOW);
    CHECK(library != NULL);
    void (*keep_one)(void) = (void (*)(void))dlsym(library, "keep_one");
    CHECK(keep_one != NULL);
    keep_one();
    CHECK(dlclose(library) == 0);
}

/* Locks that a library takes before a fork are its own in the child, and released there. */
static void *fork_with_mutex(void *unused) {
    CHECK(pthread_mutex_lock(&mutex) == 0);
    wait_for_child(fork());
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return unused;
}
static void forked(void) {
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
        CHECK(pthread_create(&thread, NULL, fork_with_mutex, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
    wait_for_child(child);
}

/* A ceiling, at which a process's first call may fail, and the next one not (glibc then knows the priorities there are). */
static void ceiling(void) {
    pthread_mutexattr_t attributes;
    pthread_mutex_t high;
    CHECK(pthread_mutexattr_init(&attributes) == 0);
    CHECK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_PROTECT) == 0);
    CHECK(pthread_mutex_init(&high, &attributes) == 0);
    for (int i = 0; i < 2; i++)
        if (pthread_mutex_lock(&high) == 0) CHECK(pthread_mutex_unlock(&high) == 0);
}

/* Condition variables of both worlds. */
static void notified(void) { CHECK(notify_each_way(PTHREAD_PROCESS_PRIVATE) == 0 && notify_each_way(PTHREAD_PROCESS_SHARED) == 0); }

/* A thread releases what another one has locked, and a third one locks it then. */
static _Atomic int is_taken;
static void *release_anothers(void *unused) {
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return unused;
}
static void *take_for_a_while(void *unused) {
    CHECK(pthread_mutex_lock(&mutex) == 0);
    is_taken = 1;
    usleep(100000);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return unused;
}
static void handed_over(void) {
    pthread_t thread;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pthread_create(&thread, NULL, release_anothers, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, take_for_a_while, NULL) == 0);
    while (!is_taken) usleep(1000);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0 && pthread_join(thread, NULL) == 0);
}

/* A thread's last destructor destroys what the next thread gets. */
static pthread_rwlock_t shared;
static void destroy_both(void *of) {
    CHECK(pthread_mutex_destroy(of) == 0 && pthread_rwlock_destroy(&shared) == 0);
}
static pthread_key_t key;
static void *use_both(void *unused) {
    CHECK(pthread_setspecific(key, &mutex) == 0);
    CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_rwlock_rdlock(&shared) == 0 && pthread_rwlock_unlock(&shared) == 0);
    return unused;
}
static void destroyed_late(void) {
    CHECK(pthread_key_create(&key, destroy_both) == 0);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        CHECK(pthread_mutex_init(&mutex, NULL) == 0 && pthread_rwlock_init(&shared, NULL) == 0);
        CHECK(pthread_create(&thread, NULL, use_both, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
}

/* Objects of a library that was set to work before the checker. */
static void made_early(void) {
    void (*use)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "use_what_was_made_early");
    CHECK(use != NULL);
    use();
}

int main(int count, char **names) {
    static const struct { const char *name; void (*run)(void); } cases[] = {
        {"times", times}, {"small", small}, {"stacks", stacks}, {"closed", closed}, {"replaced", replaced}, {"left", left}, {"none_left", none_left}, {"unread", unread}, {"reported_order", reported_order}, {"limited", limited}, {"nothing", nothing}, {"unloaded", unloaded}, {"unloaded_held", unloaded_held}, {"forked", forked}, {"notified", notified}, {"ceiling", ceiling}, {"made_early", made_early}, {"handed_over", handed_over}, {"destroyed_late", destroyed_late},
    };
    for (size_t i = 0; count == 2 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(names[1], cases[i].name) == 0) return cases[i].run(), 0;
    return 2;
}

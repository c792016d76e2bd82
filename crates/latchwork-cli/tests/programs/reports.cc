// Programs with something to report: one case, by its name. The line of the fault is on standard output.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace outer { namespace a_namespace_with_a_name_that_is_too_long_for_the_checker {
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
template <class T> __attribute__((noinline)) void unlock_free(T *mutex) {
    pthread_mutex_lock(mutex), pthread_mutex_unlock(mutex);
    printf("%d\n", __LINE__ + 2);
    fflush(stdout);
    pthread_mutex_unlock(mutex);
    __asm__ volatile("" ::: "memory");
}
template <class T> __attribute__((noinline)) void unlock_held(T *mutex) {
    printf("%d\n", __LINE__ + 2);
    fflush(stdout);
    pthread_mutex_unlock(mutex);
    __asm__ volatile("" ::: "memory");
}
} }
using namespace outer::a_namespace_with_a_name_that_is_too_long_for_the_checker;
static void fault() { unlock_free(&mutex); }

static volatile int told;
static void child_ended(int) { told = 1; }
/* The process that prints is not a child of this one. */
static void waits() {
    signal(SIGCHLD, child_ended);
    fault();
    if (waitpid(-1, NULL, 0) != -1 || errno != ECHILD || told) abort();
}
static void killed() { fault(), kill(getpid(), SIGKILL); }
static void *hold(void *argument) { pthread_mutex_lock(&mutex); return argument; }
static void ends() {
    pthread_t thread;
    pthread_create(&thread, NULL, hold, NULL), pthread_join(thread, NULL);
}
static void *unlock(void *argument) {
    unlock_held(&mutex);
    return argument;
}
/* Another thread's. */
static void owned() {
    pthread_t thread;
    pthread_mutex_lock(&mutex);
    pthread_create(&thread, NULL, unlock, NULL), pthread_join(thread, NULL);
}
/* Whoever makes a process or becomes another program is killed. */
static void filtered() {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execveat, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) puts("skipped");
    fault();
}
static void rooted() {
    if (chroot("/proc/self/fdinfo") != 0) puts("skipped");
    fault();
}
static void reaping() { prctl(PR_SET_CHILD_SUBREAPER, 1), waits(); }

static const struct { const char *name; void (*run)(); } cases[] = {
    {"fault", fault}, {"waits", waits}, {"killed", killed}, {"ends", ends}, {"owned", owned}, {"filtered", filtered}, {"rooted", rooted}, {"reaping", reaping},
};
int main(int count, char **names) {
    for (size_t i = 0; count == 2 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, names[1]) == 0) return cases[i].run(), 0;
    return 2;
}

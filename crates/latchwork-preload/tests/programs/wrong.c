/* A condition variable that stands in for glibc's, with one fault or none: for the test to find. FAULT 1: who is
 * cancelled has not taken the mutex again. 2: it keeps a notification to itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct cond { unsigned ticket; };
struct waiter { struct cond *cond; unsigned ticket; pthread_mutex_t *mutex; };
static int fault(void) { const char *text = getenv("FAULT"); return text == NULL ? 0 : atoi(text); }

static void notify(struct cond *cond, int count) {
    int error = errno;
    __atomic_fetch_add(&cond->ticket, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &cond->ticket, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
    errno = error;
}
static void cancelled(void *argument) {
    struct waiter *waiter = argument;
    if (fault() != 2 && __atomic_load_n(&waiter->cond->ticket, __ATOMIC_SEQ_CST) != waiter->ticket) notify(waiter->cond, 1);
    if (fault() != 1) pthread_mutex_lock(waiter->mutex);
}
static int wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    struct cond *here = (struct cond *)cond;
    struct waiter waiter = {here, __atomic_load_n(&here->ticket, __ATOMIC_SEQ_CST), mutex};
    volatile int result = 0;
    int kind, error = errno;
    pthread_mutex_unlock(mutex);
    pthread_cleanup_push(cancelled, &waiter);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &kind);
    if (syscall(SYS_futex, &here->ticket, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, waiter.ticket, until, NULL, -1) != 0)
        result = errno;
    /* So that who cancels it comes before it has returned. */
    if (fault() == 2) usleep(100000);
    pthread_setcanceltype(kind, NULL);
    pthread_cleanup_pop(0);
    pthread_mutex_lock(mutex);
    errno = error;
    return result == ETIMEDOUT ? ETIMEDOUT : 0;
}
int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex) { return wait_until(cond, mutex, NULL); }
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) { return wait_until(cond, mutex, until); }
int pthread_cond_signal(pthread_cond_t *cond) { return notify((struct cond *)cond, 1), 0; }
int pthread_cond_broadcast(pthread_cond_t *cond) { return notify((struct cond *)cond, INT_MAX), 0; }
int pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attributes) { (void)attributes; return memset(cond, 0, sizeof *cond), 0; }
int pthread_cond_destroy(pthread_cond_t *cond) { return (void)cond, 0; }

/* Workers at one robust mutex in a file, which may be killed at any moment: with `run --heal` or without. The argument
 * is the file. A worker ends with 0 when the file says so, with 1 if another task is inside, or a count is wrong. */
#define _GNU_SOURCE
#include "uses.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>

struct shared {
    _Atomic long rounds; /* the test reads it */
    _Atomic long over;   /* the test writes it */
    _Atomic int made;
    _Atomic int inside;
    long left, right, deaths;
    pthread_mutex_t mutex;
};

static struct shared *open_it(const char *path) {
    int file = open(path, O_RDWR);
    CHECK(file >= 0);
    struct shared *it = mmap(NULL, sizeof *it, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(it != MAP_FAILED);
    close(file);
    return it;
}
static void make(struct shared *it) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    CHECK(pthread_mutex_init(&it->mutex, &attributes) == 0);
    it->made = 1;
}
/* What the mutex protects, left by an owner that died. */
static void repair(struct shared *it) {
    it->inside = 0;
    it->deaths++;
    if (it->left != it->right) {
        CHECK(it->left == it->right + 1);
        it->right = it->left;
    }
    CHECK(pthread_mutex_consistent(&it->mutex) == 0);
}
int main(int count, char **words) {
    CHECK(count == 3);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct shared *it = open_it(words[1]);
    if (strcmp(words[2], "make") == 0) {
        make(it);
        return 0;
    }
    for (unsigned round = 0; !it->over; round++) {
        struct timespec late = in(CLOCK_REALTIME, 600000);
        int taken = round % 4 == 1   ? pthread_mutex_timedlock(&it->mutex, &late)
                    : round % 4 == 2 ? pthread_mutex_trylock(&it->mutex)
                                     : pthread_mutex_lock(&it->mutex);
        if (taken == EBUSY) continue;
        CHECK(taken == 0 || taken == EOWNERDEAD);
        if (taken == EOWNERDEAD) repair(it);
        CHECK(atomic_exchange(&it->inside, 1) == 0);
        CHECK(it->left == it->right);
        it->left++;
        if (round % 64 == 0) sched_yield();
        it->right++;
        it->rounds++;
        CHECK(atomic_exchange(&it->inside, 0) == 1);
        CHECK(pthread_mutex_unlock(&it->mutex) == 0);
    }
    return 0;
}

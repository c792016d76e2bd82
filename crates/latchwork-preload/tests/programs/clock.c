/* Waits until a time of the wall clock, which is set meanwhile. For a machine of its own. */
#define _GNU_SOURCE
#include "uses.h"

#include <semaphore.h>
#include <threads.h>

/* A mutex that another thread holds, and a condition that nobody signals. */
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, free_one = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static mtx_t c_held, c_free;
static cnd_t c_never;
static pthread_cond_t never_monotonic;
/* As for other processes. */
static pthread_mutex_t shared;
static sem_t empty;

static long since(const struct timespec *begun) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - begun->tv_sec) * 1000 + (now.tv_nsec - begun->tv_nsec) / 1000000;
}

/* One wait, and what became of it. */
struct wait { int way, clock, result, has_ended; struct timespec until; };
static void *wait_until(void *argument) {
    struct wait *it = argument;
    switch (it->way) {
    case 0: it->result = it->clock == CLOCK_REALTIME ? pthread_mutex_timedlock(&held, &it->until) : pthread_mutex_clocklock(&held, it->clock, &it->until); break;
    case 1: it->result = pthread_mutex_clocklock(&held, it->clock, &it->until); break;
    case 2:
    case 3:
        CHECK(pthread_mutex_lock(&free_one) == 0);
        do {
            if (it->way == 3) it->result = pthread_cond_clockwait(&never, &free_one, it->clock, &it->until);
            else it->result = pthread_cond_timedwait(it->clock == CLOCK_REALTIME ? &never : &never_monotonic, &free_one, &it->until);
        } while (it->result == 0);
        CHECK(pthread_mutex_unlock(&free_one) == 0);
        break;
    case 4: it->result = it->clock == CLOCK_REALTIME ? pthread_mutex_timedlock(&shared, &it->until) : pthread_mutex_clocklock(&shared, it->clock, &it->until); break;
    case 5: it->result = (it->clock == CLOCK_REALTIME ? sem_timedwait(&empty, &it->until) : sem_clockwait(&empty, it->clock, &it->until)) == 0 ? 0 : errno; break;
    case 6: it->result = mtx_timedlock(&c_held, &it->until) == thrd_timedout ? ETIMEDOUT : -1; break;
    case 7:
        CHECK(mtx_lock(&c_free) == thrd_success);
        while ((it->result = cnd_timedwait(&c_never, &c_free, &it->until)) == thrd_success) {}
        it->result = it->result == thrd_timedout ? ETIMEDOUT : -1;
        CHECK(mtx_unlock(&c_free) == thrd_success);
        break;
    }
    __atomic_store_n(&it->has_ended, 1, __ATOMIC_SEQ_CST);
    return NULL;
}
#define WAYS 8
/* C11 knows the wall clock alone. */
#define OF_BOTH 6

/* How far the wall clock is ahead of the other when it is right. */
static struct timespec right;
static void set(long seconds) {
    struct timespec time = in(CLOCK_MONOTONIC, 0);
    time.tv_sec += right.tv_sec + seconds;
    time.tv_nsec += right.tv_nsec;
    if (time.tv_nsec < 0) time.tv_sec--, time.tv_nsec += 1000000000;
    else if (time.tv_nsec >= 1000000000) time.tv_sec++, time.tv_nsec -= 1000000000;
    CHECK(clock_settime(CLOCK_REALTIME, &time) == 0);
}

static void begin(pthread_t *threads, struct wait *waits, clockid_t clock, long ms) {
    for (int way = 0; way < WAYS; way++) {
        waits[way] = (struct wait){.way = way, .clock = clock, .until = in(clock, ms)};
        if (clock == CLOCK_MONOTONIC && way >= OF_BOTH) waits[way].until = in(CLOCK_REALTIME, 3600000);
        start(&threads[way], wait_until, &waits[way]);
    }
}
static void none_has_ended(const struct wait *waits, int ways) {
    for (int way = 0; way < ways; way++) CHECK(!__atomic_load_n(&waits[way].has_ended, __ATOMIC_SEQ_CST));
}
static void all_end(pthread_t *threads, struct wait *waits, int ways) {
    for (int way = 0; way < ways; way++) {
        join(threads[way]);
        CHECK(waits[way].result == ETIMEDOUT);
    }
}

int main(void) {
    pthread_t threads[WAYS];
    struct wait waits[WAYS];
    struct timespec wall, monotonic, begun;
    pthread_condattr_t attributes;
    clock_gettime(CLOCK_REALTIME, &wall);
    clock_gettime(CLOCK_MONOTONIC, &monotonic);
    right = (struct timespec){wall.tv_sec - monotonic.tv_sec, wall.tv_nsec - monotonic.tv_nsec};
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    CHECK(pthread_cond_init(&never_monotonic, &attributes) == 0);
    CHECK(mtx_init(&c_held, mtx_timed) == thrd_success && mtx_init(&c_free, mtx_plain) == thrd_success && cnd_init(&c_never) == thrd_success);
    pthread_mutexattr_t of_processes;
    pthread_mutexattr_init(&of_processes);
    pthread_mutexattr_setpshared(&of_processes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&of_processes, PTHREAD_MUTEX_ROBUST);
    CHECK(pthread_mutex_init(&shared, &of_processes) == 0 && sem_init(&empty, 1, 0) == 0);
    pthread_mutex_lock(&held);
    pthread_mutex_lock(&shared);
    mtx_lock(&c_held);

    /* Set beyond the time: the waits end. (An hour would be longer than any watchdog.) */
    begin(threads, waits, CLOCK_REALTIME, 3600000);
    usleep(50000);
    none_has_ended(waits, WAYS);
    set(7200);
    all_end(threads, waits, WAYS);

    /* Set back: they last until the clock comes to the time again. */
    set(0);
    begin(threads, waits, CLOCK_REALTIME, 1200000);
    set(-7200);
    usleep(1500000);
    none_has_ended(waits, WAYS);
    set(600);
    usleep(1500000);
    none_has_ended(waits, WAYS);
    set(1200);
    all_end(threads, waits, WAYS);

    /* Waits until a time of the other clock do not see it. */
    set(0);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    begin(threads, waits, CLOCK_MONOTONIC, 400);
    set(-7200);
    all_end(threads, waits, OF_BOTH);
    CHECK(since(&begun) >= 400);
    none_has_ended(waits + OF_BOTH, WAYS - OF_BOTH);
    set(7200);
    all_end(threads + OF_BOTH, waits + OF_BOTH, WAYS - OF_BOTH);
    set(0);
    return 0;
}

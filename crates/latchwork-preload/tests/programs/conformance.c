/* What the library's tests ask of its own mutexes and condition variables (crates/latchwork/tests/mutex.rs and
 * condvar.rs, body by body under the same names), of pthread's and C11's. Says what it has done; ends with 0. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
            _exit(1); \
        } \
    } while (0)
enum { ROUNDS = 500, MOST = 8 };

/* A mutex of some kind, a condition variable, and what they guard. */
static const char *const kinds[] = {"normal", "recursive", "error-checking", "adaptive", "C11", "shared"};
enum { C11 = 4, SHARED = 5, KINDS = 6 };
struct thing {
    int kind;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    mtx_t mtx;
    cnd_t cnd;
    long left, right, taken, started;
};
static struct thing *make(int kind) {
    struct thing *it = mmap(NULL, sizeof *it, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(it != MAP_FAILED);
    it->kind = kind;
    if (kind == C11) {
        CHECK(mtx_init(&it->mtx, mtx_timed) == thrd_success && cnd_init(&it->cnd) == thrd_success);
        return it;
    }
    pthread_mutexattr_t attributes;
    pthread_condattr_t of_cond;
    pthread_mutexattr_init(&attributes);
    pthread_condattr_init(&of_cond);
    if (kind == SHARED) {
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_condattr_setpshared(&of_cond, PTHREAD_PROCESS_SHARED);
    } else {
        static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
        pthread_mutexattr_settype(&attributes, types[kind]);
    }
    CHECK(pthread_mutex_init(&it->mutex, &attributes) == 0 && pthread_cond_init(&it->changed, &of_cond) == 0);
    return it;
}
static void unmake(struct thing *it) {
    if (it->kind == C11) mtx_destroy(&it->mtx), cnd_destroy(&it->cnd);
    else CHECK(pthread_mutex_destroy(&it->mutex) == 0 && pthread_cond_destroy(&it->changed) == 0);
    munmap(it, sizeof *it);
}
static struct timespec in_us(long microseconds) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += microseconds % 1000000 * 1000;
    time.tv_sec += microseconds / 1000000 + time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}
static int has_passed(const struct timespec *time) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec > time->tv_sec || (now.tv_sec == time->tv_sec && now.tv_nsec >= time->tv_nsec);
}
static void lock(struct thing *it) {
    CHECK((it->kind == C11 ? mtx_lock(&it->mtx) : pthread_mutex_lock(&it->mutex)) == 0);
}
static void unlock(struct thing *it) {
    CHECK((it->kind == C11 ? mtx_unlock(&it->mtx) : pthread_mutex_unlock(&it->mutex)) == 0);
}
static int try_lock(struct thing *it) {
    int result = it->kind == C11 ? mtx_trylock(&it->mtx) : pthread_mutex_trylock(&it->mutex);
    CHECK(result == 0 || result == (it->kind == C11 ? thrd_busy : EBUSY));
    return result == 0;
}
static int lock_until(struct thing *it, const struct timespec *time) {
    int result = it->kind == C11 ? mtx_timedlock(&it->mtx, time) : pthread_mutex_timedlock(&it->mutex, time);
    CHECK(result == 0 || result == (it->kind == C11 ? thrd_timedout : ETIMEDOUT));
    return result == 0;
}
/* False once the time has passed; without one it waits for ever. */
static int wait_for(struct thing *it, const struct timespec *time) {
    if (time == NULL) {
        CHECK((it->kind == C11 ? cnd_wait(&it->cnd, &it->mtx) : pthread_cond_wait(&it->changed, &it->mutex)) == 0);
        return 1;
    }
    int result = it->kind == C11 ? cnd_timedwait(&it->cnd, &it->mtx, time) : pthread_cond_timedwait(&it->changed, &it->mutex, time);
    CHECK(result == 0 || result == (it->kind == C11 ? thrd_timedout : ETIMEDOUT));
    return result == 0;
}
static void notify(struct thing *it, int all) {
    if (it->kind == C11) CHECK((all ? cnd_broadcast(&it->cnd) : cnd_signal(&it->cnd)) == thrd_success);
    else CHECK((all ? pthread_cond_broadcast(&it->changed) : pthread_cond_signal(&it->changed)) == 0);
}
static void add_one(struct thing *it) {
    CHECK(it->left == it->right);
    it->left++;
    it->right++;
}

/* Threads that do something to a thing, each with its number. */
struct task {
    struct thing *it;
    int number;
    pid_t id;
    pthread_t thread;
};
static void begin(struct task *tasks, int count, struct thing *it, void *(*body)(void *)) {
    for (int i = 0; i < count; i++) {
        tasks[i].it = it, tasks[i].number = i;
        CHECK(pthread_create(&tasks[i].thread, NULL, body, &tasks[i]) == 0);
    }
}
static void end(struct task *tasks, int count) {
    for (int i = 0; i < count; i++) CHECK(pthread_join(tasks[i].thread, NULL) == 0);
}

static void *add(void *argument) {
    struct thing *it = ((struct task *)argument)->it;
    for (int round = 0; round < ROUNDS; round++) lock(it), add_one(it), unlock(it);
    return NULL;
}
static void tasks_exclude_each_other(struct thing *it) {
    struct task tasks[MOST] = {0};
    begin(tasks, 2, it, add), end(tasks, 2);
    begin(tasks, 5, it, add), end(tasks, 5);
    CHECK(it->left == 7 * ROUNDS && it->right == 7 * ROUNDS);
}

static void *go_all_ways(void *argument) {
    struct task *task = argument;
    for (int round = 0; round < ROUNDS; round++) {
        struct timespec soon;
        switch ((task->number + round) % 3) {
        case 0: if (!try_lock(task->it)) continue; break;
        case 1: soon = in_us(round % 50); if (!lock_until(task->it, &soon)) continue; break;
        default: lock(task->it);
        }
        add_one(task->it), task->it->taken++, unlock(task->it);
    }
    return NULL;
}
static void all_ways_in_exclude_each_other(struct thing *it) {
    struct task tasks[4] = {0};
    begin(tasks, 4, it, go_all_ways), end(tasks, 4);
    CHECK(it->left == it->taken);
}

static void *fail_to_lock(void *argument) {
    struct thing *it = ((struct task *)argument)->it;
    CHECK(!try_lock(it));
    return NULL;
}
static void try_fails_while_held_and_only_then(struct thing *it) {
    struct task task = {0};
    CHECK(try_lock(it));
    begin(&task, 1, it, fail_to_lock), end(&task, 1);
    unlock(it);
    CHECK(try_lock(it));
    unlock(it);
}

static void *give_up(void *argument) {
    struct thing *it = ((struct task *)argument)->it;
    struct timespec past = {.tv_sec = 1}, soon = in_us(3000);
    CHECK(!lock_until(it, &past) && !lock_until(it, &soon) && has_passed(&soon));
    return NULL;
}
static void *have_time(void *argument) {
    struct thing *it = ((struct task *)argument)->it;
    struct timespec far = in_us(600000000);
    __atomic_fetch_add(&it->started, 1, __ATOMIC_SEQ_CST);
    CHECK(lock_until(it, &far));
    unlock(it);
    return NULL;
}
static void a_timed_lock_gives_up_at_its_deadline_and_not_before(struct thing *it) {
    struct task tasks[3] = {0};
    struct timespec past = {.tv_sec = 1};
    CHECK(lock_until(it, &past)); /* it is free */
    begin(tasks, 1, it, give_up), end(tasks, 1);
    begin(tasks, 3, it, have_time);
    while (__atomic_load_n(&it->started, __ATOMIC_SEQ_CST) < 3) sched_yield();
    unlock(it);
    end(tasks, 3);
}

static void *come_or_give_up(void *argument) {
    struct task *task = argument;
    struct timespec soon = in_us(20 * (task->it->started % 10));
    if (task->number == 0) lock(task->it), add_one(task->it), unlock(task->it);
    else if (lock_until(task->it, &soon)) unlock(task->it);
    return NULL;
}
static void waiters_that_give_up_leave_the_others_their_turn(struct thing *it) {
    for (int round = 0; round < 50; round++) {
        struct task tasks[3] = {0};
        lock(it);
        it->started = round;
        begin(tasks, 3, it, come_or_give_up);
        sched_yield();
        unlock(it);
        end(tasks, 3);
    }
    CHECK(it->right == 50);
}

static void in_processes(struct thing *it, int count, void (*body)(struct thing *, int)) {
    pid_t children[MOST];
    for (int i = 0; i < count; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) body(it, i), _exit(0);
    }
    for (int i = 0; i < count; i++) {
        int status;
        CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
    }
}
static void add_in_process(struct thing *it, int number) {
    struct task task = {.it = it, .number = number};
    __atomic_fetch_add(&it->started, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&it->started, __ATOMIC_SEQ_CST) < 3) sched_yield();
    add(&task);
}
static void processes_exclude_each_other(struct thing *it) {
    if (it->kind != SHARED) return;
    in_processes(it, 3, add_in_process);
    CHECK(it->right == 3 * ROUNDS);
}

static void play(struct thing *it, int parity) {
    for (int round = 0; round < ROUNDS; round++) {
        lock(it);
        while (it->left % 2 != parity) wait_for(it, NULL);
        it->left++;
        unlock(it);
        notify(it, 0);
    }
}
static void *play_first(void *argument) { return play(((struct task *)argument)->it, 0), NULL; }
static void two_tasks_take_turns(struct thing *it) {
    struct task task = {0};
    begin(&task, 1, it, play_first), play(it, 1), end(&task, 1);
    CHECK(it->left == 2 * ROUNDS);
}
static void two_processes_take_turns(struct thing *it) {
    if (it->kind != SHARED) return;
    in_processes(it, 2, play);
    CHECK(it->left == 2 * ROUNDS);
}

enum { TAKERS = 4 };
static void *take_or_give(void *argument) {
    struct task *task = argument;
    struct thing *it = task->it;
    if (task->number < TAKERS) {
        for (int round = 0; round < ROUNDS; round++) {
            lock(it);
            while (it->left == 0) wait_for(it, NULL);
            it->left--;
            unlock(it);
        }
    } else {
        for (int round = 0; round < ROUNDS * TAKERS / 2; round++) lock(it), it->left++, unlock(it), notify(it, 0);
    }
    return NULL;
}
static void each_token_finds_a_taker(struct thing *it) {
    struct task tasks[TAKERS + 2] = {0};
    begin(tasks, TAKERS + 2, it, take_or_give), end(tasks, TAKERS + 2);
    CHECK(it->left == 0);
}

/* Whether all of them sleep in the kernel, as far as one can see. */
static int are_asleep(struct task *tasks, int count) {
    for (int i = 0; i < count; i++) {
        char path[64], text[32] = "";
        pid_t id = __atomic_load_n(&tasks[i].id, __ATOMIC_SEQ_CST);
        snprintf(path, sizeof path, "/proc/self/task/%d/syscall", id);
        FILE *file = id ? fopen(path, "r") : NULL;
        if (file == NULL) return 0;
        size_t length = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        if (length == 0 || strtol(text, NULL, 10) != SYS_futex) return 0;
    }
    return 1;
}
static void say_id(struct task *task) { __atomic_store_n(&task->id, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST); }
static void *await_round(void *argument) {
    struct task *task = argument;
    say_id(task);
    lock(task->it);
    while (task->it->left != task->it->started) wait_for(task->it, NULL);
    unlock(task->it);
    return NULL;
}
static void a_broadcast_releases_all_waiters(struct thing *it) {
    for (int round = 1; round <= 50; round++) {
        struct task tasks[6] = {0};
        it->started = round;
        begin(tasks, 6, it, await_round);
        /* In some rounds all sleep, in the others they are on their way. */
        while (round % 5 == 0 && !are_asleep(tasks, 6)) sched_yield();
        lock(it), it->left = round, unlock(it), notify(it, 1);
        end(tasks, 6);
    }
}

static void *be_in_time(void *argument) {
    struct task *task = argument;
    struct timespec far = in_us(600000000);
    say_id(task);
    lock(task->it);
    while (task->it->left == 0) CHECK(wait_for(task->it, &far));
    unlock(task->it);
    return NULL;
}
static void a_timed_wait_ends_at_its_deadline_and_not_before(struct thing *it) {
    struct task task = {0};
    struct timespec past = {.tv_sec = 1}, soon = in_us(3000);
    lock(it);
    while (wait_for(it, &past)) {}
    while (wait_for(it, &soon)) {}
    CHECK(has_passed(&soon));
    unlock(it);
    begin(&task, 1, it, be_in_time);
    while (!are_asleep(&task, 1)) sched_yield();
    lock(it), it->left = 1, unlock(it), notify(it, 0);
    end(&task, 1);
}

static struct timespec over;
static void *come_back_late(void *argument) {
    struct task *task = argument;
    say_id(task);
    lock(task->it);
    wait_for(task->it, &over);
    task->it->left++;
    unlock(task->it);
    return NULL;
}
static void a_waiter_that_was_released_and_cannot_have_the_mutex_in_time_waits_for_it(struct thing *it) {
    struct task tasks[4] = {0};
    over = in_us(30000);
    begin(tasks, 4, it, come_back_late);
    while (!has_passed(&over) && !are_asleep(tasks, 4)) sched_yield();
    lock(it), it->left++, notify(it, 1);
    while (!has_passed(&over)) usleep(1000);
    unlock(it);
    end(tasks, 4);
    CHECK(it->left == 5);
}

enum { EACH = 100, WANTING = 6 };
static atomic_int handled, finished;
static void handle(int number) { (void)number; handled++; }
static void *want_some(void *argument) {
    struct task *task = argument;
    struct thing *it = task->it;
    unsigned seed = 7 + (unsigned)task->number;
    say_id(task);
    for (int taken = 0; taken < EACH;) {
        struct timespec soon = in_us(rand_r(&seed) % 60), *end = task->number % 2 ? NULL : &soon;
        lock(it);
        while (it->left == 0 && wait_for(it, end)) {}
        if (it->left > 0) it->left--, taken++;
        unlock(it);
    }
    finished++;
    return NULL;
}
static void *give_some(void *argument) {
    struct thing *it = ((struct task *)argument)->it;
    unsigned seed = 99;
    for (int left = WANTING * EACH; left > 0;) {
        int given = 1 + rand_r(&seed) % 4;
        if (given > left) given = left;
        left -= given;
        lock(it), it->left += given, unlock(it);
        notify(it, given > 1 || rand_r(&seed) % 2);
    }
    return NULL;
}
static void no_token_is_lost_among_deadlines_and_signals(struct thing *it) {
    struct sigaction action = {.sa_handler = handle};
    struct task tasks[WANTING] = {0}, giver = {0};
    sigaction(SIGUSR1, &action, NULL);
    finished = 0;
    begin(tasks, WANTING, it, want_some), begin(&giver, 1, it, give_some);
    for (unsigned seed = 1; finished < WANTING; usleep(50)) {
        /* One that has ended was not joined yet: its handle is good. */
        pthread_kill(tasks[rand_r(&seed) % WANTING].thread, SIGUSR1);
    }
    end(tasks, WANTING), end(&giver, 1);
    CHECK(it->left == 0);
}

#define BODY(name) {#name, name}
static const struct { const char *name; void (*run)(struct thing *); } bodies[] = {
    BODY(tasks_exclude_each_other), BODY(all_ways_in_exclude_each_other), BODY(try_fails_while_held_and_only_then),
    BODY(a_timed_lock_gives_up_at_its_deadline_and_not_before), BODY(waiters_that_give_up_leave_the_others_their_turn),
    BODY(processes_exclude_each_other), BODY(two_tasks_take_turns), BODY(two_processes_take_turns),
    BODY(each_token_finds_a_taker), BODY(a_broadcast_releases_all_waiters), BODY(a_timed_wait_ends_at_its_deadline_and_not_before),
    BODY(a_waiter_that_was_released_and_cannot_have_the_mutex_in_time_waits_for_it),
    BODY(no_token_is_lost_among_deadlines_and_signals),
};
int main(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
            struct thing *it = make(kind);
            bodies[i].run(it);
            unmake(it);
            printf("%s: %s\n", kinds[kind], bodies[i].name);
        }
    }
    return 0;
}

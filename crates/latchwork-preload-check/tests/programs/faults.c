/* Planted faults, one for each name; and what looks like one and is none. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER, c = PTHREAD_MUTEX_INITIALIZER, spare = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER, rw2 = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_barrier_t both;
static _Atomic int done;

static void apart(void *(*body)(void *), void *argument) {
    pthread_t thread;
    pthread_create(&thread, NULL, body, argument);
    pthread_join(thread, NULL);
}
static void together(int count, void *(*body)(void *)) {
    pthread_t threads[8];
    pthread_barrier_init(&both, NULL, count);
    for (long i = 0; i < count; i++) pthread_create(&threads[i], NULL, body, (void *)i);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}
static struct timespec soon(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += 20000000;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}
/* When all that is planted has come about, however busy the machine is. */
static struct timespec late(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_sec += 600;
    return time;
}
static _Atomic int waiter;
static void say_id(void) { waiter = (int)syscall(SYS_gettid); }
/* Waits until the thread with the published ID sleeps. */
static void until_it_sleeps(void) {
    for (int call = -1; call != SYS_futex; sched_yield()) {
        char path[64], text[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%d/syscall", waiter);
        FILE *file = waiter ? fopen(path, "r") : NULL;
        if (file == NULL) continue;
        /* One that does not sleep is "running". */
        call = fgets(text, sizeof text, file) && text[0] != 'r' ? atoi(text) : -1;
        fclose(file);
    }
}
static void pair(pthread_mutex_t *first, pthread_mutex_t *second) {
    pthread_mutex_lock(first), pthread_mutex_lock(second);
    pthread_mutex_unlock(second), pthread_mutex_unlock(first);
}

static void *ab(void *x) { return pair(&a, &b), x; }
static void *ba(void *x) { return pair(&b, &a), x; }
static void *bc(void *x) { return pair(&b, &c), x; }
static void *ca(void *x) { return pair(&c, &a), x; }
static void order(void) { apart(ab, 0), apart(ba, 0); }
static void order_of_three(void) { apart(ab, 0), apart(bc, 0), apart(ca, 0); }
static void *write_then_a(void *x) {
    pthread_rwlock_wrlock(&rw), pthread_mutex_lock(&a), pthread_mutex_unlock(&a), pthread_rwlock_unlock(&rw);
    return x;
}
static void *a_then_write(void *x) {
    pthread_mutex_lock(&a), pthread_rwlock_wrlock(&rw), pthread_rwlock_unlock(&rw), pthread_mutex_unlock(&a);
    return x;
}
static void *a_then_read(void *x) {
    pthread_mutex_lock(&a), pthread_rwlock_rdlock(&rw), pthread_rwlock_unlock(&rw), pthread_mutex_unlock(&a);
    return x;
}
static void order_rwlock(void) { apart(write_then_a, 0), apart(a_then_write, 0); }
static void order_reader(void) { apart(write_then_a, 0), apart(a_then_read, 0); }
static void *ra(void *x) { return pair(&recursive, &a), x; }
static void *ar(void *x) { return pair(&a, &recursive), x; }
static void order_recursive(void) { apart(ra, 0), apart(ar, 0); }
static mtx_t m, n;
static void *mn(void *x) { mtx_lock(&m), mtx_lock(&n), mtx_unlock(&n), mtx_unlock(&m); return x; }
static void *nm(void *x) { mtx_lock(&n), mtx_lock(&m), mtx_unlock(&m), mtx_unlock(&n); return x; }
static void order_c11(void) { mtx_init(&m, mtx_plain), mtx_init(&n, mtx_plain), apart(mn, 0), apart(nm, 0); }
static void *spin_a(void *x) { pthread_spin_lock(&spin), pthread_mutex_lock(&a), pthread_mutex_unlock(&a), pthread_spin_unlock(&spin); return x; }
static void *a_spin(void *x) { pthread_mutex_lock(&a), pthread_spin_lock(&spin), pthread_spin_unlock(&spin), pthread_mutex_unlock(&a); return x; }
static void order_spin(void) { pthread_spin_init(&spin, 0), apart(spin_a, 0), apart(a_spin, 0); }
static void *ab_timed(void *x) {
    struct timespec until = soon();
    pthread_mutex_lock(&a);
    if (pthread_mutex_timedlock(&b, &until) == 0) pthread_mutex_unlock(&b);
    pthread_mutex_unlock(&a);
    return x;
}
static void order_timed(void) { apart(ab_timed, 0), apart(ba, 0); }

/* In a frame of the same place each time, as C++'s std::mutex: its beginning and end are not reported. */
struct frame { pthread_mutex_t mutex; pthread_rwlock_t rw; };
static void *frame_a(void *x) { return pair(&((struct frame *)x)->mutex, &a), x; }
static void *a_frame(void *x) {
    struct frame *frame = x;
    pthread_mutex_lock(&a), pthread_mutex_lock(&frame->mutex), pthread_mutex_unlock(&frame->mutex), pthread_mutex_unlock(&a);
    return x;
}
static void *frame_rw_a(void *x) {
    struct frame *frame = x;
    pthread_rwlock_wrlock(&frame->rw), pthread_mutex_lock(&a), pthread_mutex_unlock(&a), pthread_rwlock_unlock(&frame->rw);
    return x;
}
static void *a_frame_rw(void *x) {
    struct frame *frame = x;
    pthread_mutex_lock(&a), pthread_rwlock_wrlock(&frame->rw), pthread_rwlock_unlock(&frame->rw), pthread_mutex_unlock(&a);
    return x;
}
__attribute__((noinline)) static void *in_frame(void *(*body)(void *), void *(*other)(void *)) {
    static void *volatile place;
    struct frame frame = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER};
    if (place != NULL && place != &frame) abort();
    place = &frame;
    apart(body, &frame);
    if (other != NULL) apart(other, &frame);
    return place;
}
static void order_on_stack(void) { in_frame(frame_a, a_frame); }
static void order_on_stack_rwlock(void) { in_frame(frame_rw_a, a_frame_rw); }

/* Taken in one place, as all of C++'s are where nothing is inlined; the third at its address. */
__attribute__((noinline)) static void take(pthread_mutex_t *mutex) { pthread_mutex_lock(mutex); }
static void take_both(pthread_mutex_t *first, pthread_mutex_t *second) {
    take(first), take(second);
    pthread_mutex_unlock(second), pthread_mutex_unlock(first);
}
static void *take_back(void *x) { return take_both((pthread_mutex_t *)x + 1, x), x; }
static void order_reinitialised(void) {
    pthread_mutex_t *both = calloc(2, sizeof *both);
    for (int i = 0; i < 4; i++) {
        both[0] = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        take_both(&both[0], &both[1]);
    }
    apart(take_back, both);
}

static void *cycle(void *number) {
    pthread_mutex_t *each[] = {&a, &b};
    long i = (long)number;
    pthread_mutex_lock(each[i]);
    pthread_barrier_wait(&both);
    if (pthread_mutex_lock(each[1 - i]) == 0) pthread_mutex_unlock(each[1 - i]);
    pthread_mutex_unlock(each[i]);
    return NULL;
}
static void deadlock(void) { together(2, cycle); }
/* As most threads do, they give themselves names after they have begun. */
static void *named_ab(void *x) { pthread_setname_np(pthread_self(), "name 0"); return ab(x); }
static void *named_ba(void *x) { pthread_setname_np(pthread_self(), "name 1"); return ba(x); }
static void order_named(void) { apart(named_ab, 0), apart(named_ba, 0); }
static void *named_cycle(void *number) {
    pthread_setname_np(pthread_self(), number ? "name 1" : "name 0");
    return cycle(number);
}
static void deadlock_named(void) { together(2, named_cycle); }
static void *cycle_of_three(void *number) {
    pthread_mutex_t *each[] = {&a, &b, &c};
    long i = (long)number;
    pthread_mutex_lock(each[i]);
    pthread_barrier_wait(&both);
    if (pthread_mutex_lock(each[(i + 1) % 3]) == 0) pthread_mutex_unlock(each[(i + 1) % 3]);
    pthread_mutex_unlock(each[i]);
    return NULL;
}
static void deadlock_of_three(void) { together(3, cycle_of_three); }
static void *mixed(void *number) {
    if (number) pthread_mutex_lock(&a); else pthread_rwlock_wrlock(&rw);
    pthread_barrier_wait(&both);
    if (number) {
        if (pthread_rwlock_rdlock(&rw) == 0) pthread_rwlock_unlock(&rw);
        pthread_mutex_unlock(&a);
    } else {
        if (pthread_mutex_lock(&a) == 0) pthread_mutex_unlock(&a);
        pthread_rwlock_unlock(&rw);
    }
    return NULL;
}
static void deadlock_mixed(void) { together(2, mixed); }
static void *timed(void *number) {
    pthread_mutex_t *each[] = {&a, &b};
    long i = (long)number;
    pthread_mutex_lock(each[i]);
    pthread_barrier_wait(&both);
    struct timespec until = late();
    if (i) say_id(); else until_it_sleeps(), until = soon();
    if (pthread_mutex_timedlock(each[1 - i], &until) == 0) pthread_mutex_unlock(each[1 - i]);
    pthread_mutex_unlock(each[i]);
    return NULL;
}
static void deadlock_timed(void) { together(2, timed); }

static void again(void) { pthread_mutex_lock(&a), pthread_mutex_lock(&a), pthread_mutex_unlock(&a); }
static void again_timed(void) {
    struct timespec until = soon();
    pthread_mutex_lock(&a), pthread_mutex_timedlock(&a, &until), pthread_mutex_unlock(&a);
}
static void again_c11(void) { mtx_init(&m, mtx_plain), mtx_lock(&m), mtx_lock(&m), mtx_unlock(&m); }
static void again_write(void) { pthread_rwlock_wrlock(&rw), pthread_rwlock_wrlock(&rw), pthread_rwlock_unlock(&rw); }
static void again_spin(void) { pthread_spin_init(&spin, 0), pthread_spin_lock(&spin), pthread_spin_lock(&spin), pthread_spin_unlock(&spin); }

static void *unlock_a(void *x) { pthread_mutex_unlock(&a); return x; }
static void foreign(void) { pthread_mutex_lock(&a), apart(unlock_a, 0); }
static void *unlock_checking(void *x) { pthread_mutex_unlock(&checking); return x; }
static void foreign_checked(void) { pthread_mutex_lock(&checking), apart(unlock_checking, 0), pthread_mutex_unlock(&checking); }
static void *unlock_rw(void *x) { pthread_rwlock_unlock(&rw); return x; }
static void foreign_write(void) { pthread_rwlock_wrlock(&rw), apart(unlock_rw, 0); }

static void twice(void) { pthread_mutex_lock(&a), pthread_mutex_unlock(&a), pthread_mutex_unlock(&a); }
static void never_used(void) { pthread_mutex_unlock(&spare); }
static void never_used_rwlock(void) { pthread_rwlock_unlock(&rw2); }
static void never(void) { pthread_mutex_init(&a, NULL), pthread_mutex_unlock(&a); }
static void twice_read(void) { pthread_rwlock_rdlock(&rw), pthread_rwlock_unlock(&rw), pthread_rwlock_unlock(&rw); }

static void destroy_held(void) { pthread_mutex_lock(&a), pthread_mutex_destroy(&a), pthread_mutex_unlock(&a); }
static void *destroy_a(void *x) { pthread_mutex_destroy(&a); return x; }
static void destroy_others(void) { pthread_mutex_lock(&a), apart(destroy_a, 0), pthread_mutex_unlock(&a); }
static void init_held(void) { pthread_mutex_lock(&a), pthread_mutex_init(&a, NULL); }

static void *overwrite_a(void *x) {
    memset(&a, 0, sizeof a);
    pthread_mutex_lock(&a), pthread_mutex_unlock(&a);
    return x;
}
static void overwrite_held(void) { pthread_mutex_lock(&a), apart(overwrite_a, 0), pthread_mutex_unlock(&a); }

static void overwrite_mine(void) {
    pthread_mutex_lock(&a), memset(&a, 0, sizeof a);
    pthread_mutex_lock(&a), pthread_mutex_unlock(&a);
}

static void *lock_a(void *x) { pthread_mutex_lock(&a); return x; }
static void *lock_and_exit(void *x) { pthread_mutex_lock(&a), pthread_exit(x); }
static void *read_and_end(void *x) { pthread_rwlock_rdlock(&rw); return x; }
static void end_holding(void) { apart(lock_a, 0); }
static void exit_holding(void) { apart(lock_and_exit, 0); }
static void end_reading(void) { apart(read_and_end, 0); }

static void free_held(void) {
    pthread_mutex_t *heap = malloc(sizeof *heap);
    pthread_mutex_init(heap, NULL), pthread_mutex_lock(heap);
    free(heap);
}
static void unmap_held(void) {
    pthread_mutex_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_mutex_lock(page);
    munmap(page, 4096);
}

static void wait_never_used(void) {
    struct timespec until = soon();
    pthread_cond_timedwait(&cond, &spare, &until);
}
static void wait_without(void) { pthread_mutex_lock(&checking), pthread_mutex_unlock(&checking), pthread_cond_wait(&cond, &checking); }
static void *wait_with(void *number) {
    if (number) {
        pthread_mutex_lock(&b);
        say_id();
        while (!done) {
            struct timespec until = late();
            pthread_cond_timedwait(&cond, &b, &until);
        }
        pthread_mutex_unlock(&b);
    } else {
        until_it_sleeps();
        struct timespec until = soon();
        pthread_mutex_lock(&a), pthread_cond_timedwait(&cond, &a, &until), pthread_mutex_unlock(&a);
        pthread_mutex_lock(&b);
        done = 1;
        pthread_cond_broadcast(&cond), pthread_mutex_unlock(&b);
    }
    return NULL;
}
static void two_mutexes(void) { together(2, wait_with); }

static void *hold_long(void *number) {
    if (number) {
        pthread_mutex_lock(&a);
        done = 1;
        until_it_sleeps();
        usleep(60000);
    } else {
        while (!done) sched_yield();
        say_id();
        pthread_mutex_lock(&a);
    }
    pthread_mutex_unlock(&a);
    return NULL;
}
static void long_wait(void) { together(2, hold_long); }

/* Not faults. */
static void *ba_tried(void *x) {
    pthread_mutex_lock(&b);
    if (pthread_mutex_trylock(&a) == 0) pthread_mutex_unlock(&a);
    pthread_mutex_unlock(&b);
    return x;
}
static void fine_trylock(void) { apart(ab, 0), apart(ba_tried, 0); }
static void *guarded_ab(void *x) { pthread_mutex_lock(&c), pair(&a, &b), pthread_mutex_unlock(&c); return x; }
static void *guarded_ba(void *x) { pthread_mutex_lock(&c), pair(&b, &a), pthread_mutex_unlock(&c); return x; }
static void fine_guarded(void) { apart(guarded_ab, 0), apart(guarded_ba, 0); }
static void *guarded_bc(void *x) { pthread_mutex_lock(&spare), pair(&b, &c), pthread_mutex_unlock(&spare); return x; }
static void *guarded_only_ab(void *x) { pthread_mutex_lock(&spare), pair(&a, &b), pthread_mutex_unlock(&spare); return x; }
static void fine_two_of_three_guarded(void) { apart(guarded_only_ab, 0), apart(guarded_bc, 0), apart(ca, 0); }
static void *ab_reading(void *x) { pthread_rwlock_rdlock(&rw), pair(&a, &b), pthread_rwlock_unlock(&rw); return x; }
static void *ba_reading(void *x) { pthread_rwlock_rdlock(&rw), pair(&b, &a), pthread_rwlock_unlock(&rw); return x; }
static void *ba_writing(void *x) { pthread_rwlock_wrlock(&rw), pair(&b, &a), pthread_rwlock_unlock(&rw); return x; }
static void fine_guarded_by_writer(void) { apart(ab_reading, 0), apart(ba_writing, 0); }
static void order_of_readers(void) { apart(ab_reading, 0), apart(ba_writing, 0), apart(ba_reading, 0); }
static void fine_one_thread(void) { ab(0), pthread_mutex_lock(&recursive), pthread_mutex_lock(&recursive), pthread_mutex_unlock(&recursive), pthread_mutex_unlock(&recursive); }
static void *read_both(void *number) {
    pthread_rwlock_t *first = number ? &rw : &rw2, *second = number ? &rw2 : &rw;
    pthread_rwlock_rdlock(first), pthread_rwlock_rdlock(second), pthread_rwlock_unlock(second), pthread_rwlock_unlock(first);
    return NULL;
}
static void fine_readers(void) { apart(read_both, &rw), apart(read_both, NULL); }
static sem_t semaphore;
static void *post(void *x) { sem_post(&semaphore); return x; }
static void fine_semaphore(void) { sem_init(&semaphore, 0, 1), sem_wait(&semaphore), apart(post, 0), sem_wait(&semaphore); }
static void again_checked(void) { pthread_mutex_lock(&checking), pthread_mutex_lock(&checking), pthread_mutex_unlock(&checking); }
static void fine_freed(void) {
    for (int i = 0; i < 100; i++) {
        pthread_mutex_t *heap = calloc(1, sizeof *heap);
        if (i % 2) pair(heap, &a); else pthread_mutex_lock(heap), pthread_mutex_unlock(heap);
        free(heap);
    }
}

static void fine_reused(void) { in_frame(frame_a, NULL), in_frame(a_frame, NULL); }
static void fine_reused_rwlock(void) { in_frame(frame_rw_a, NULL), in_frame(a_frame_rw, NULL); }
static void *take_frame_a(void *x) { return take_both(&((struct frame *)x)->mutex, &a), x; }
static void *take_a_frame(void *x) { return take_both(&a, &((struct frame *)x)->mutex), x; }
static void fine_reused_in_one_place(void) { for (int i = 0; i < 4; i++) in_frame(i % 2 ? take_frame_a : take_a_frame, NULL); }
static void fine_assigned(void) {
    struct frame *heap = calloc(1, sizeof *heap);
    heap->mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER, apart(frame_a, heap);
    heap->mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER, apart(a_frame, heap);
    memset(&heap->mutex, 0, sizeof heap->mutex), apart(frame_a, heap);
    /* A copy of a lock is another one. */
    struct frame *copy = calloc(1, sizeof *copy);
    apart(a_frame, copy), memcpy(&copy->mutex, &heap->mutex, sizeof copy->mutex), apart(frame_a, copy);
}
/* A wait for a condition releases a recursive mutex once. */
static void fine_condition_deeper(void) {
    struct timespec until = soon();
    pthread_mutex_lock(&recursive), pthread_mutex_lock(&recursive);
    pthread_cond_timedwait(&cond, &recursive, &until);
    pthread_mutex_unlock(&recursive), pthread_mutex_unlock(&recursive);
}

/* In the child of a fork. */
static void child(void (*body)(void)) {
    int status;
    pid_t process = fork();
    if (process == 0) body(), _exit(0);
    waitpid(process, &status, 0);
    if (status != 0) abort();
}
static void take_two(void) { pthread_mutex_lock(&a), pthread_mutex_lock(&b); }
static void give_two(void) { pthread_mutex_unlock(&b), pthread_mutex_unlock(&a); }
static void reinitialise_two(void) { pthread_mutex_init(&a, NULL), pthread_mutex_destroy(&b), pthread_mutex_init(&b, NULL); }
static void assign_two(void) { a = b = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }
static void give_and_take(void) { take_two(), give_two(); }
static void fine_reinitialised_in_child(void) { pthread_atfork(take_two, give_two, reinitialise_two), child(give_and_take); }
static void fine_assigned_in_child(void) { pthread_atfork(take_two, give_two, assign_two), child(give_and_take); }
/* More than there is room for. */
static pthread_mutex_t many[80];
static void give_many(void) { for (int i = 79; i >= 0; i--) pthread_mutex_unlock(&many[i]); }
static void fine_many_in_child(void) {
    for (int i = 0; i < 80; i++) pthread_mutex_init(&many[i], NULL), pthread_mutex_lock(&many[i]);
    child(give_many), give_many();
}
static void init_twice(void) { pthread_mutex_init(&a, NULL), pthread_mutex_lock(&a), pthread_mutex_init(&a, NULL); }
static void init_held_in_child(void) { pthread_atfork(take_two, give_two, reinitialise_two), child(init_twice); }
static pthread_spinlock_t *common;
static void spin_in_child(void) { pthread_spin_lock(common), pthread_spin_unlock(common); }
static void fine_shared_spin(void) {
    common = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_spin_init(common, PTHREAD_PROCESS_SHARED), pthread_spin_lock(common);
    pid_t process = fork();
    if (process == 0) spin_in_child(), _exit(0);
    pthread_spin_unlock(common), waitpid(process, NULL, 0);
}

/* What is mapped right behind a library's variables is none of them. */
static void *page_a(void *x) { return pair(x, &a), x; }
static void *a_page(void *x) { return pair(&a, x), x; }
static void fine_mapped_again(void) {
    extern char end[];
    long bytes = sysconf(_SC_PAGESIZE);
    char *page = (char *)(((long)end + bytes - 1) & -bytes);
    for (int i = 0; i < 2; i++) {
        if (mmap(page, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != page) return;
        apart(i ? page_a : a_page, page);
        munmap(page, bytes);
    }
}

#define CASE(name, rule) {#name, rule, name}
static const struct { const char *name, *rule; void (*run)(void); } cases[] = {
    CASE(order, "one-order"), CASE(order_of_three, "one-order"), CASE(order_rwlock, "one-order"), CASE(order_reader, "one-order"),
    CASE(order_recursive, "one-order"), CASE(order_c11, "one-order"), CASE(order_spin, "one-order"), CASE(order_timed, "one-order"),
    CASE(order_on_stack, "one-order"), CASE(order_on_stack_rwlock, "one-order"), CASE(order_reinitialised, "one-order"),
    CASE(order_named, "one-order"), CASE(deadlock_named, "no-deadlock"), CASE(order_of_readers, "one-order"), CASE(init_held_in_child, "not-remade-while-held"),
    CASE(deadlock, "no-deadlock"), CASE(deadlock_of_three, "no-deadlock"), CASE(deadlock_mixed, "no-deadlock"), CASE(deadlock_timed, "no-deadlock"),
    CASE(again, "no-recursion"), CASE(again_timed, "no-recursion"), CASE(again_c11, "no-recursion"), CASE(again_write, "no-recursion"), CASE(again_spin, "no-recursion"),
    CASE(foreign, "owner-unlocks"), CASE(foreign_checked, "owner-unlocks"), CASE(foreign_write, "owner-unlocks"),
    CASE(twice, "no-double-unlock"), CASE(never, "no-double-unlock"), CASE(never_used, "no-double-unlock"), CASE(never_used_rwlock, "no-double-unlock"), CASE(twice_read, "no-double-unlock"),
    CASE(destroy_held, "not-remade-while-held"), CASE(destroy_others, "not-remade-while-held"), CASE(init_held, "not-remade-while-held"),
    CASE(overwrite_held, "one-holder"), CASE(overwrite_mine, "not-remade-while-held"),
    CASE(end_holding, "no-exit-holding"), CASE(exit_holding, "no-exit-holding"), CASE(end_reading, "no-exit-holding"),
    CASE(free_held, "no-free-holding"), CASE(unmap_held, "no-free-holding"),
    CASE(wait_without, "waits-with-mutex"), CASE(wait_never_used, "waits-with-mutex"), CASE(two_mutexes, "one-mutex-per-condition"), CASE(long_wait, "no-long-wait"),
    CASE(fine_trylock, ""), CASE(fine_guarded, ""), CASE(fine_one_thread, ""), CASE(fine_readers, ""), CASE(fine_semaphore, ""),
    CASE(again_checked, "no-failed-call"), CASE(fine_freed, ""), CASE(fine_reused, ""), CASE(fine_reused_rwlock, ""), CASE(fine_reused_in_one_place, ""), CASE(fine_assigned, ""),
    CASE(fine_two_of_three_guarded, ""), CASE(fine_guarded_by_writer, ""), CASE(fine_condition_deeper, ""),
    CASE(fine_reinitialised_in_child, ""), CASE(fine_assigned_in_child, ""), CASE(fine_many_in_child, ""), CASE(fine_shared_spin, ""), CASE(fine_mapped_again, ""),
};
int main(int count, char **names) {
    int is_known = count == 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (count == 1) printf("%s %s\n", cases[i].name, cases[i].rule);
        else if (strcmp(cases[i].name, names[1]) == 0) {
            is_known = 1;
            cases[i].run();
        }
    }
    return is_known ? 0 : 2;
}

/* Orders of locks, and conditions with one mutex after another: a rule for each name, or none. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

typedef pthread_mutex_t mutex;

static void pair(mutex *first, mutex *second) {
    pthread_mutex_lock(first), pthread_mutex_lock(second);
    pthread_mutex_unlock(second), pthread_mutex_unlock(first);
}
static void touch(mutex *one) { pthread_mutex_lock(one), pthread_mutex_unlock(one); }
static void apart(void *(*body)(void *), void *argument) {
    pthread_t thread;
    pthread_create(&thread, NULL, body, argument);
    pthread_join(thread, NULL);
}

/* One task, each letter a mutex, two and two. */
static void pairs(const char *of) {
    mutex a, b, c, d, *each[] = {&a, &b, &c, &d};
    pthread_mutex_init(&a, NULL), pthread_mutex_init(&b, NULL);
    pthread_mutex_init(&c, NULL), pthread_mutex_init(&d, NULL);
    for (; *of; of += 2) pair(each[of[0] - 'A'], each[of[1] - 'A']);
    for (int i = 0; i < 4; i++) pthread_mutex_destroy(each[i]);
}
static void ABBA(void) { pairs("ABBA"); }
static void ABBCCA(void) { pairs("ABBCCA"); }
static void ABBCCDDA(void) { pairs("ABBCCDDA"); }
static void ABCABC(void) { pairs("ABCABC"); }
static void ABCDBCDA(void) { pairs("ABCDBCDA"); }
static void ABCDBDDA(void) { pairs("ABCDBDDA"); }
static void fine_ABABAC(void) { pairs("ABABACBC"); }

/* Hand over hand along a ring. */
static void ring(int count) {
    mutex ring[count];
    for (int i = 0; i < count; i++) pthread_mutex_init(&ring[i], NULL);
    for (int i = 0; i < count; i++) {
        pthread_mutex_lock(&ring[i]), pthread_mutex_lock(&ring[(i + 1) % count]);
        pthread_mutex_unlock(&ring[i]), pthread_mutex_unlock(&ring[(i + 1) % count]);
    }
}
static void ring_of_2(void) { ring(2); }
static void ring_of_5(void) { ring(5); }
static void ring_of_10(void) { ring(10); }
static void ring_of_20(void) { ring(20); }

/* Heap blocks, a pair in one order and then in the other. */
static void on_heap(void) {
    mutex *both = calloc(2, sizeof *both);
    pthread_mutex_init(&both[0], NULL), pthread_mutex_init(&both[1], NULL);
    pair(&both[0], &both[1]), pair(&both[1], &both[0]);
    free(both);
}
static mutex first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER, gate = PTHREAD_MUTEX_INITIALIZER;
static void statics(void) { pair(&first, &second), pair(&second, &first); }
static void *reversed(void *x) { pair(&second, &first); return x; }
static void *straight(void *x) { pair(&first, &second); return x; }
static void two_tasks(void) { apart(straight, 0), apart(reversed, 0); }
static void fine_gate(void) {
    pthread_mutex_lock(&gate), pair(&first, &second), pthread_mutex_unlock(&gate);
    pthread_mutex_lock(&gate), pair(&second, &first), pthread_mutex_unlock(&gate);
}
static void fine_tried(void) {
    pair(&first, &second);
    pthread_mutex_lock(&second), pthread_mutex_trylock(&first);
    pthread_mutex_unlock(&first), pthread_mutex_unlock(&second);
}
static pthread_rwlock_t one_rw = PTHREAD_RWLOCK_INITIALIZER, other_rw = PTHREAD_RWLOCK_INITIALIZER;
static void read_both(pthread_rwlock_t *one, pthread_rwlock_t *other) {
    pthread_rwlock_rdlock(one), pthread_rwlock_rdlock(other);
    pthread_rwlock_unlock(other), pthread_rwlock_unlock(one);
}
static void fine_readers(void) { read_both(&one_rw, &other_rw), read_both(&other_rw, &one_rw); }

/* What is common, then one's own, and a wait for a condition with the former. */
static mutex common = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int done, waiting;
static void *wait_with_own(void *x) {
    mutex own;
    pthread_mutex_init(&own, NULL);
    pthread_mutex_lock(&common), pthread_mutex_lock(&own);
    for (waiting++; !done;) pthread_cond_wait(&changed, &common);
    pthread_mutex_unlock(&common), pthread_mutex_unlock(&own);
    pthread_mutex_destroy(&own);
    return x;
}
static void until_so_many(int count) {
    for (int so_many = -1; so_many != count; sched_yield())
        pthread_mutex_lock(&common), so_many = waiting, pthread_mutex_unlock(&common);
}
static void fine_own_locks(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, wait_with_own, NULL);
    until_so_many(4);
    pthread_mutex_lock(&common), done = 1, pthread_cond_broadcast(&changed), pthread_mutex_unlock(&common);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}
/* The same of locks that the others take, too. */
static mutex *owned[2];
__attribute__((noinline)) static mutex *make(void) {
    mutex *made = malloc(sizeof *made);
    pthread_mutex_init(made, NULL);
    return made;
}
static void *touch_all(void *x) { touch(&common), touch(owned[0]), touch(owned[1]); return x; }
static void *common_first(void *x) { pair(&common, owned[0]); return x; }
static void *own_first(void *x) { pair(owned[1], &common); return x; }
static void not_own_locks(void) {
    owned[0] = make(), owned[1] = make();
    apart(touch_all, 0), apart(touch_all, 0), apart(common_first, 0), apart(own_first, 0);
}

/* A wait with another mutex, while those that were notified have not come back. */
static mutex other = PTHREAD_MUTEX_INITIALIZER;
static void *wait_for_it(void *x) {
    pthread_mutex_lock(&common);
    for (waiting++; !done;) pthread_cond_wait(&changed, &common);
    pthread_mutex_unlock(&common);
    return x;
}
static struct timespec soon(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += 1000000;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}
static void wait_with_another(int count, void (*notify)(void)) {
    pthread_t threads[4];
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, wait_for_it, NULL);
    until_so_many(count);
    pthread_mutex_lock(&common), done = 1, notify();
    struct timespec until = soon();
    pthread_mutex_lock(&other), pthread_cond_timedwait(&changed, &other, &until), pthread_mutex_unlock(&other);
    pthread_mutex_unlock(&common), pthread_cond_broadcast(&changed);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    until = soon();
    touch(&common), pthread_mutex_lock(&common), pthread_cond_timedwait(&changed, &common, &until), pthread_mutex_unlock(&common);
}
static void all(void) { pthread_cond_broadcast(&changed); }
static void one(void) { pthread_cond_signal(&changed); }
static void all11(void) { cnd_broadcast((cnd_t *)&changed); }
static void one11(void) { cnd_signal((cnd_t *)&changed); }
static void fine_after_broadcast(void) { wait_with_another(3, all); }
static void fine_after_signal(void) { wait_with_another(1, one); }
static void fine_after_broadcast_c11(void) { wait_with_another(3, all11); }
static void fine_after_signal_c11(void) { wait_with_another(1, one11); }
static void after_signal_of_one_of_two(void) { wait_with_another(2, one); }

/* Very many, each taken with the five that follow; and each of two threads with its own and what is common. */
static void many(int count) {
    mutex *all = calloc(count + 5, sizeof *all);
    for (int i = 0; i < count; i++)
        for (int step = 1; step <= 5; step++) pair(&all[i], &all[i + step]);
    free(all);
}
static void fine_4000(void) { many(4000); }
static void fine_16000(void) { many(16000); }
static void *churn(void *x) {
    mutex own[8];
    for (int i = 0; i < 8; i++) pthread_mutex_init(&own[i], NULL);
    for (int round = 0; round < 1000; round++) {
        pthread_mutex_lock(&common);
        for (int i = 0; i < 8; i++) pthread_mutex_lock(&own[i]);
        for (int i = 0; i < 8; i++) pthread_mutex_unlock(&own[i]);
        pthread_mutex_unlock(&common);
        pthread_mutex_destroy(&own[round % 8]), pthread_mutex_init(&own[round % 8], NULL);
    }
    for (int i = 0; i < 8; i++) pthread_mutex_destroy(&own[i]);
    return x;
}
static void fine_churn(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, churn, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

#define CASE(name, rule) {#name, rule, name}
#define ONE(name) CASE(name, "one-task-order")
static const struct { const char *name, *rule; void (*run)(void); } cases[] = {
    ONE(ABBA), ONE(ABBCCA), ONE(ABBCCDDA), ONE(ABCABC), ONE(ABCDBCDA), ONE(ABCDBDDA), CASE(fine_ABABAC, ""),
    ONE(ring_of_2), ONE(ring_of_5), ONE(ring_of_10), ONE(ring_of_20), ONE(on_heap), ONE(statics),
    CASE(two_tasks, "one-order"), CASE(fine_gate, ""), CASE(fine_tried, ""), CASE(fine_readers, ""),
    CASE(fine_own_locks, ""), CASE(not_own_locks, "one-order"),
    CASE(fine_after_broadcast, ""), CASE(fine_after_signal, ""), CASE(fine_after_broadcast_c11, ""), CASE(fine_after_signal_c11, ""),
    CASE(after_signal_of_one_of_two, "one-mutex-per-condition"),
    CASE(fine_4000, ""), CASE(fine_16000, ""), CASE(fine_churn, ""),
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

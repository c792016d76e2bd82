/* Each kind of lock, once, by a thread that has used none before. */
#ifndef LOADING_H
#define LOADING_H

#include "uses.h"

#include <semaphore.h>

static void use_mutex(int kind, int protocol, int robust) {
    pthread_mutexattr_t attributes;
    pthread_mutex_t mutex;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, kind);
    pthread_mutexattr_setprotocol(&attributes, protocol);
    pthread_mutexattr_setrobust(&attributes, robust);
    /* Where there is no inheritance of priority, there is none. */
    if (pthread_mutex_init(&mutex, &attributes) == 0) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        CHECK(pthread_mutex_unlock(&mutex) == 0);
        CHECK(pthread_mutex_destroy(&mutex) == 0);
    }
    pthread_mutexattr_destroy(&attributes);
}

static void *use_all(void *argument) {
    pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    pthread_spinlock_t spin;
    sem_t semaphore;
    use_mutex(PTHREAD_MUTEX_DEFAULT, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED);
    use_mutex(PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED);
    use_mutex(PTHREAD_MUTEX_RECURSIVE, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED);
    use_mutex(PTHREAD_MUTEX_ERRORCHECK, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED);
    use_mutex(PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED);
    use_mutex(PTHREAD_MUTEX_DEFAULT, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED);
    use_mutex(PTHREAD_MUTEX_DEFAULT, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_ROBUST);
    use_mutex(PTHREAD_MUTEX_DEFAULT, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_ROBUST);
    CHECK(pthread_rwlock_rdlock(&table) == 0 && pthread_rwlock_unlock(&table) == 0);
    CHECK(pthread_rwlock_wrlock(&table) == 0 && pthread_rwlock_unlock(&table) == 0);
    CHECK(pthread_cond_signal(&cond) == 0);
    CHECK(pthread_spin_init(&spin, 0) == 0 && pthread_spin_lock(&spin) == 0 && pthread_spin_unlock(&spin) == 0);
    CHECK(sem_init(&semaphore, 0, 1) == 0 && sem_wait(&semaphore) == 0 && sem_post(&semaphore) == 0);
    return argument;
}

#endif

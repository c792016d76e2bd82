/* A library that starts and joins a thread while it is loaded and while it is unloaded; and another one, that waits in
 * its constructor until its loader's other threads have done something. */
#define _GNU_SOURCE
#include "loading.h"

static void in_a_thread(void) {
    pthread_t thread;
    start(&thread, use_all, NULL);
    join(thread);
}

static void wait_for_others(const char *entered, const char *leave) {
    char byte = 0;
    CHECK(write(atoi(entered), &byte, 1) == 1);
    CHECK(read(atoi(leave), &byte, 1) == 1);
}

__attribute__((constructor)) static void construct(void) {
    const char *entered = getenv("LOADING_ENTERED"), *leave = getenv("LOADING_LEAVE");
    if (entered != NULL && leave != NULL)
        wait_for_others(entered, leave);
    else
        in_a_thread();
}

__attribute__((destructor)) static void destruct(void) {
    in_a_thread();
}

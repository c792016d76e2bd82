/* Threads that use locks while the loader is at work, which holds its own lock throughout. */
#define _GNU_SOURCE
#include "loading.h"

#include <dlfcn.h>

static void *open_library(void *unused) {
    void *library = dlopen(getenv("USES_LIBRARY"), RTLD_NOW);
    if (library == NULL) fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    return unused != NULL ? unused : library;
}

/* In a constructor, and then in a destructor: a library that is loaded again is constructed again. */
static void joined(void) {
    for (int round = 0; round < 2; round++) CHECK(dlclose(open_library(NULL)) == 0);
}

static void *work(void *done) {
    char byte = 0;
    use_all(NULL);
    CHECK(write(*(int *)done, &byte, 1) == 1);
    return NULL;
}

/* While a constructor waits, threads begin, lock and end; so does one that was there before. */
static void meanwhile(void) {
    int entered[2], leave[2], done[2], ended[2];
    char text[16], byte = 0;
    pthread_t loader, worker;
    CHECK(pipe(entered) == 0 && pipe(leave) == 0 && pipe(done) == 0 && pipe(ended) == 0);
    snprintf(text, sizeof text, "%d", entered[1]);
    setenv("LOADING_ENTERED", text, 1);
    snprintf(text, sizeof text, "%d", leave[0]);
    setenv("LOADING_LEAVE", text, 1);
    start(&loader, open_library, &byte);
    CHECK(read(entered[0], &byte, 1) == 1);
    for (int round = 0; round < 3; round++) {
        start(&worker, work, &done[1]);
        CHECK(read(done[0], &byte, 1) == 1);
        join(worker);
    }
    use_all(NULL);
    CHECK(write(leave[1], &byte, 1) == 1);
    join(loader);
}

USES({"joined", joined}, {"meanwhile", meanwhile})

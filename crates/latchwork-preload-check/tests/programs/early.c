/* A library that runs before the checker, and leaves the text of a loader error pending. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

__attribute__((constructor)) static void construct(void) {
    dlsym(RTLD_DEFAULT, "there_is_no_such_function");
    void *volatile memory = malloc(100);
    free(memory);
}

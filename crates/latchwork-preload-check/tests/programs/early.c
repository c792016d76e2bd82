/* A library that is at work before the checker: with the text of an error that nobody has asked for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

__attribute__((constructor)) static void construct(void) {
    dlsym(RTLD_DEFAULT, "there_is_no_such_function");
    void *volatile memory = malloc(100);
    free(memory);
}

/* dlsym() as glibc had it up to 2.35: the next version of a function is the oldest one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

typedef void *(*look_up)(void *, const char *);

void *dlsym(void *handle, const char *name) {
    static look_up next;
    void *found = NULL;
    if (next == NULL) next = (look_up)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (next == NULL) next = (look_up)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
    if (next == NULL) next = (look_up)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (handle == RTLD_NEXT && strncmp(name, "pthread_cond_", 13) == 0) found = dlvsym(handle, name, "GLIBC_2.2.5");
    return found != NULL ? found : next(handle, name);
}

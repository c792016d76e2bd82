/* What may happen while a library is unloaded. As soon as its memory is free, another thread takes it, and has a mutex
   there. And an allocator may take locks under which other threads call the loader: so nothing may be allocated while
   the loader holds its lock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_realloc(void *, size_t);

static __thread int in_loader __attribute__((tls_model("initial-exec")));
static sem_t taken;

void *malloc(size_t size) { return in_loader ? abort(), NULL : __libc_malloc(size); }
void *realloc(void *memory, size_t size) { return in_loader ? abort(), NULL : __libc_realloc(memory, size); }

int dl_iterate_phdr(int (*call)(struct dl_phdr_info *, size_t, void *), void *argument) {
    int (*next)(int (*)(struct dl_phdr_info *, size_t, void *), void *) = dlsym(RTLD_NEXT, "dl_iterate_phdr");
    in_loader++;
    int result = next(call, argument);
    in_loader--;
    return result;
}

static void *take(void *variable) {
    pthread_mutex_init(variable, NULL), pthread_mutex_lock(variable);
    sem_post(&taken);
    for (;;) pause();
    return NULL;
}
int dlclose(void *library) {
    int (*next)(void *) = dlsym(RTLD_NEXT, "dlclose");
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *variable = dlsym(library, "mutexes"), *begin = variable == NULL ? NULL : variable - (size_t)variable % page;
    pthread_t thread;
    int result = next(library);
    if (begin == NULL || mmap(begin, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != begin) abort();
    if (sem_init(&taken, 0, 0) != 0 || pthread_create(&thread, NULL, take, variable) != 0) abort();
    while (sem_wait(&taken) != 0) continue;
    return result;
}

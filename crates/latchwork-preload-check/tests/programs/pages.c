/* An allocator that locks, does not say how long its blocks are, and has nothing in front of them. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096
#define MOST (1 << 20)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void *malloc(size_t size) {
    if (size > MOST || pthread_mutex_lock(&mutex) != 0) return NULL;
    char *memory = mmap(NULL, PAGE + MOST, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) mprotect(memory + PAGE, MOST, PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&mutex);
    return memory == MAP_FAILED ? NULL : memory + PAGE;
}
void free(void *memory) {
    if (memory == NULL || pthread_mutex_lock(&mutex) != 0) return;
    pthread_mutex_unlock(&mutex);
}
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *memory, size_t size) { return memory == NULL ? malloc(size) : size > MOST ? NULL : memory; }
void *aligned_alloc(size_t alignment, size_t size) { return alignment > PAGE ? NULL : malloc(size); }
void *memalign(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }
int posix_memalign(void **memory, size_t alignment, size_t size) {
    *memory = aligned_alloc(alignment, size);
    return *memory == NULL ? ENOMEM : 0;
}

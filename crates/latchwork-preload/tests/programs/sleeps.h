/* Waiting until a child sleeps for an object. */
#ifndef SLEEPS_H
#define SLEEPS_H

#include "uses.h"
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static inline void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}
static inline void until_it_sleeps(pid_t process, const void *object, size_t size) {
    for (;; sleep_ms(1)) {
        char path[64], line[256] = "";
        snprintf(path, sizeof path, "/proc/%d/syscall", process);
        FILE *file = fopen(path, "r");
        CHECK(file != NULL);
        unsigned long call = 0, at = 0;
        CHECK(fgets(line, sizeof line, file) != NULL);
        fclose(file);
        if (sscanf(line, "%lu %lx", &call, &at) == 2 && call == SYS_futex && at >= (uintptr_t)object && at < (uintptr_t)object + size) return;
        CHECK(waitpid(process, NULL, WNOHANG) == 0);
    }
}

#endif

/* What is seen from outside of a program that was built with ThreadSanitizer. */
#include <pthread.h>

void __tsan_init(void);
void __tsan_init(void) {}

int main(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    return pthread_mutex_lock(&mutex) || mutex.__data.__lock != 1 || pthread_mutex_unlock(&mutex);
}

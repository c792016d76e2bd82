// boost::interprocess::message_queue by four C functions. The name is gone as soon as it is made: those
// who use the queue are forked, or threads.
#include <boost/interprocess/ipc/message_queue.hpp>
#include <cstddef>
#include <new>
#include <sys/types.h>

using namespace boost::interprocess;

extern "C" void *mail_make(const char *name, std::size_t messages, std::size_t size) {
    try {
        auto *queue = new message_queue(create_only, name, messages, size);
        message_queue::remove(name);
        return queue;
    } catch (...) {
        return nullptr;
    }
}

extern "C" void mail_unmake(void *queue) { delete static_cast<message_queue *>(queue); }

extern "C" ssize_t mail_send(void *queue, const void *message, std::size_t bytes) {
    try {
        static_cast<message_queue *>(queue)->send(message, bytes, 0);
        return static_cast<ssize_t>(bytes);
    } catch (...) {
        return -1;
    }
}

extern "C" ssize_t mail_receive(void *queue, void *buffer, std::size_t room) {
    try {
        message_queue::size_type bytes = 0;
        unsigned int priority = 0;
        static_cast<message_queue *>(queue)->receive(buffer, room, bytes, priority);
        return static_cast<ssize_t>(bytes);
    } catch (...) {
        return -1;
    }
}

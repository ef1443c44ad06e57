// What each thread has one of. It is still whole in calls that handlers at exit and destructors of static
// objects make, as programs give up their memory there: a thread_local object is not, on the thread that ends
// the process.
#pragma once

#include <pthread.h>

#include <climits>

namespace fikit::sim {

template <class Object>
thread_local Object* mine_of_thread = nullptr;

// Made at first use, gone with its thread.
template <class Object>
Object& of_thread() {
    Object*& mine = mine_of_thread<Object>;
    if (mine == nullptr) {
        static const pthread_key_t at_end = [] {
            pthread_key_t key = PTHREAD_KEYS_MAX;  // should none be left, it only stays
            pthread_key_create(&key, [](void* object) {
                mine_of_thread<Object> = nullptr;
                delete static_cast<Object*>(object);
            });
            return key;
        }();
        mine = new Object;
        pthread_setspecific(at_end, mine);
    }
    return *mine;
}

}  // namespace fikit::sim

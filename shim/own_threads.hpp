// Threads of ours in somebody else's process.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace fikit {

// The program's signals are for its own threads. But faults come whether blocked or not, and blocked they end
// the process in spite of the program's handler: it may guard memory that we copy, or its functions touch.
inline bool start_own_thread(pthread_t& thread, void* (*run)(void*), void* argument) {
    sigset_t all, before;
    sigfillset(&all);
    for (const int fault : {SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&thread, nullptr, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
}

}  // namespace fikit

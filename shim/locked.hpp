// Scoped pthread mutex: std::mutex would bring libstdc++'s exceptions.
#pragma once

#include <pthread.h>

namespace fikit {

class Locked {
  public:
    explicit Locked(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
    ~Locked() { pthread_mutex_unlock(&mutex_); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

  private:
    pthread_mutex_t& mutex_;
};

}  // namespace fikit

// Calls that are no cancellation points.
#pragma once

#include <pthread.h>

namespace fikit {

// pthread_cancel(3) takes no thread out of what is begun here: it would leave locks that nobody opens and
// answers that nobody takes. No call of CUDA's is a cancellation point.
class Uncancelled {
  public:
    Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }
    Uncancelled(const Uncancelled&) = delete;
    Uncancelled& operator=(const Uncancelled&) = delete;

  private:
    int before_;
};

}  // namespace fikit

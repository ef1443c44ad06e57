// One conversation with the daemon: hello, then requests and their replies.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "../channel.hpp"
#include "messages.hpp"

namespace fikit::shim {

// The beginning of a request with so many fields, which the caller writes behind it.
void begin_request(MessageWriter& request, uint64_t number, unsigned fields, const char* type);

// A field of a request: the job that this process belongs to, if any.
void write_job(MessageWriter& request);

class Conversation {
  public:
    explicit Conversation(char (&reason)[256]) : reason_(reason) {}
    Conversation(const Conversation&) = delete;
    ~Conversation() {
        if (kept_) return;
        if (connection_ >= 0) close(connection_);
        for (int i = 0; i < received_; ++i) close(descriptors_[i]);
    }

    // Connects and says hello as `client`.
    bool begin(const char* client);
    // Sends the request and waits for its reply, which `reply` then shows until the next exchange.
    bool exchange(const MessageWriter& request, const char* expected, MessageReader& reply);
    // The descriptors that came with the reply, which are the caller's from here on, and the connection to be
    // kept open with them.
    bool take(int (&descriptors)[3], int& connection);

    // The daemon went away, or was not there.
    bool lost() const { return lost_; }

  private:
    static constexpr int most_descriptors = 3;

    bool connect();
    [[gnu::format(printf, 2, 3)]] bool refuse(const char* format, ...);
    bool send_all(const uint8_t* data, size_t size);
    bool receive();

    char (&reason_)[256];
    int64_t deadline_ = now_ns() + 60'000'000'000;  // an executor may have to be started
    int connection_ = -1;
    int descriptors_[most_descriptors];
    int received_ = 0;
    bool kept_ = false, lost_ = false;
    uint8_t bytes_[32768];
    size_t size_ = 0, used_ = 0;
};

// Waits a while before a lost daemon is asked again: it runs this process's job, so it is being started anew.
// False: nobody's job, or it has taken too long.
bool await_restart(int64_t since);

// What `ask` says of a conversation; of another one where the daemon is started anew meanwhile.
template <class Ask>
bool converse(char (&reason)[256], Ask ask) {
    for (const int64_t since = now_ns();;) {
        Conversation conversation(reason);
        if (ask(conversation)) return true;
        if (!conversation.lost() || !await_restart(since)) return false;
    }
}

}  // namespace fikit::shim

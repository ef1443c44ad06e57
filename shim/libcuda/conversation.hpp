// One conversation with the daemon: hello, then requests and their replies.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "../channel.hpp"
#include "messages.hpp"

namespace fikit::shim {

// So long the daemon itself may take, on the busiest machine, or to be started anew.
inline constexpr uint64_t answer_seconds = 60;
inline constexpr int most_restarts = 100;

// The beginning of a request with so many fields, which the caller writes behind it.
void begin_request(MessageWriter& request, uint64_t number, unsigned fields, const char* type);

// A field of a request: the job that this process belongs to, if any.
void write_job(MessageWriter& request);

class Conversation {
  public:
    explicit Conversation(char (&reason)[256]) : reason_(reason) {}
    Conversation(const Conversation&) = delete;
    ~Conversation() {
        free(bytes_);
        if (kept_) return;
        if (connection_ >= 0) close(connection_);
        for (int i = 0; i < received_; ++i) close(descriptors_[i]);
    }

    // Connects and says hello as `client`.
    bool begin(const char* client);
    // Sends the request and waits for its reply, which `reply` then shows until the next exchange. May an
    // executor have to be started for it, it has as long more as the daemon says that this takes.
    bool exchange(const MessageWriter& request, const char* expected, MessageReader& reply,
                  bool starts = false);
    // The descriptors that came with the reply, which are the caller's from here on, and the connection to be
    // kept open with them.
    bool take(int (&descriptors)[3], int& connection);

    // The daemon went away, or was not there.
    bool lost() const { return lost_; }
    // So long it is asked again then. One that starts makes its socket before it lets others in.
    uint64_t patience_seconds() const { return denied_ ? 1 : answer_seconds; }
    bool greeted() const { return greeted_; }

  private:
    static constexpr int most_descriptors = 3;
    static constexpr uint64_t longest_start_seconds = 3600;  // whatever the daemon says
    static constexpr size_t longest_reply = size_t{1} << 20;

    bool connect();
    [[gnu::format(printf, 2, 3)]] bool refuse(const char* format, ...);
    bool send_all(const uint8_t* data, size_t size);
    bool make_room();
    bool receive(int64_t deadline);

    char (&reason_)[256];
    uint64_t start_seconds_ = 60;  // unless the daemon says another: it is of before they did
    int connection_ = -1;
    int descriptors_[most_descriptors];
    int received_ = 0;
    bool kept_ = false, lost_ = false, denied_ = false, greeted_ = false;
    uint8_t* bytes_ = nullptr;  // not on the stack: threads may have small ones
    size_t room_ = 0, size_ = 0, used_ = 0;
};

// Waits a while before a lost daemon is asked again: it runs this process's job, so it is being started anew.
// False: nobody's job, or none has been there for so long.
bool await_restart(int64_t since, uint64_t seconds);

// What `ask` says of a conversation; of another one where the daemon is started anew meanwhile. One that
// hangs up whenever it is asked is not asked for ever.
template <class Ask>
bool converse(char (&reason)[256], Ask ask) {
    int64_t since = now_ns();
    for (int restarts = 0;;) {
        Conversation conversation(reason);
        if (ask(conversation)) return true;
        if (conversation.greeted()) {
            since = now_ns();
            if (++restarts > most_restarts) return false;
        }
        if (!conversation.lost() || !await_restart(since, conversation.patience_seconds())) return false;
    }
}

// Asks as `client` which GPUs the program may see, in its order; `read` is given each and its number, `most`
// of them.
template <class Read>
bool ask_gpus(const char* client, unsigned most, unsigned& count, char (&reason)[256], Read read) {
    MessageWriter list;
    begin_request(list, 2, 1, "list_visible_gpus");
    write_job(list);
    return converse(reason, [&](Conversation& conversation) {
        MessageReader reply(nullptr, 0);
        if (!conversation.begin(client) || !conversation.exchange(list, "visible_gpus", reply)) return false;
        const MessageReader gpus = reply.at("gpus");
        for (count = 0; count < most; ++count) {
            const MessageReader gpu = gpus.item(count);
            if (!gpu.exists()) break;
            read(gpu, count);
        }
        return true;
    });
}

}  // namespace fikit::shim

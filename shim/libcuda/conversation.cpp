#include "conversation.hpp"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

#include <algorithm>

#include "../descriptors.hpp"

namespace fikit::shim {
namespace {

constexpr const char* system_socket = "/run/fikitd.sock";
constexpr uint64_t protocol_version = 1;

int64_t in_ns(uint64_t seconds) { return static_cast<int64_t>(seconds) * 1'000'000'000; }

// The job that this process belongs to, or nullptr.
const char* own_job() {
    const char* const job = getenv("FIKIT_JOB");
    return job == nullptr || *job == '\0' ? nullptr : job;
}

}  // namespace

void begin_request(MessageWriter& request, uint64_t number, unsigned fields, const char* type) {
    request.map(2);
    request.text("id");
    request.number(number);
    request.text("body");
    request.map(fields + 1);
    request.text("type");
    request.text(type);
}

void write_job(MessageWriter& request) {
    request.text("job");
    if (const char* const job = own_job(); job != nullptr)
        request.text(job);
    else
        request.nothing();
}

bool Conversation::refuse(const char* format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(reason_, sizeof reason_, format, list);
    va_end(list);
    return false;
}

bool Conversation::connect() {
    const char* path = getenv("FIKIT_SOCKET");
    if (path == nullptr || *path == '\0') path = system_socket;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof address.sun_path) return refuse("the socket's path is too long: %s", path);
    memcpy(address.sun_path, path, strlen(path));
    connection_ = beside_standard_streams(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connection_ < 0) return refuse("socket: %s", strerror(errno));
    const timeval patience = {answer_seconds, 0};  // where as many wait to be accepted as may
    setsockopt(connection_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    const int64_t deadline = now_ns() + in_ns(answer_seconds);
    do lost_ = ::connect(connection_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0;
    while (lost_ && errno == EINTR && now_ns() < deadline);
    denied_ = lost_ && errno == EACCES;
    if (lost_)
        return refuse("no fikitd answers at %s: %s", path, strerror(errno == EAGAIN ? ETIMEDOUT : errno));
    return true;
}

bool Conversation::send_all(const uint8_t* data, size_t size) {
    while (size != 0) {
        const ssize_t sent = send(connection_, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        lost_ = sent <= 0;
        if (lost_) return refuse("sending to fikitd: %s", strerror(errno));
        data += sent;
        size -= static_cast<size_t>(sent);
    }
    return true;
}

bool Conversation::make_room() {
    if (size_ < room_) return true;
    const size_t room = room_ == 0 ? 4096 : 2 * room_;
    if (room > longest_reply) return refuse("fikitd's reply is too long");
    void* const memory = realloc(bytes_, room);
    if (memory == nullptr) return refuse("no memory for fikitd's reply");
    bytes_ = static_cast<uint8_t*>(memory);
    room_ = room;
    return true;
}

bool Conversation::receive(int64_t deadline) {
    if (!make_room()) return false;
    const int64_t left = std::max<int64_t>(0, deadline - now_ns()) / 1'000'000 + 1;
    pollfd entry = {connection_, POLLIN, 0};
    const int ready = poll(&entry, 1, static_cast<int>(left));
    if (ready == 0 || (ready < 0 && errno == EINTR)) return true;  // recvmsg would have no deadline
    iovec data = {bytes_ + size_, room_ - size_};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * most_descriptors)];
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(connection_, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) return true;
    lost_ = got <= 0;
    if (lost_) return refuse("fikitd closed the connection");
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof descriptor);
            if (received_ < most_descriptors)
                descriptors_[received_++] = beside_standard_streams(descriptor);
            else
                close(descriptor);
        }
    }
    size_ += static_cast<size_t>(got);
    return true;
}

bool Conversation::exchange(const MessageWriter& request, const char* expected, MessageReader& reply,
                            bool starts) {
    const uint64_t start = starts ? start_seconds_ : 0, seconds = answer_seconds + start;
    int64_t deadline = now_ns() + in_ns(seconds);
    if (request.overflowed()) return refuse("the request is too long");
    if (!send_all(request.data(), request.size())) return false;
    if (used_ != 0) memmove(bytes_, bytes_ + used_, size_ - used_);
    size_ -= used_;
    for (;;) {
        const MessageReader reader(bytes_, size_);
        const MessageReader::State state = reader.whole(used_);
        if (state == MessageReader::State::broken) return refuse("fikitd's reply is not MessagePack");
        if (state == MessageReader::State::complete) break;
        const int64_t late = now_ns() - deadline;
        if (late >= in_ns(1))  // the machine was paused, and the daemon with it
            deadline += late + in_ns(seconds);
        else if (late >= 0)
            return refuse("fikitd has answered no %s within %u s, of which it lets an executor start for %u",
                          expected, static_cast<unsigned>(seconds), static_cast<unsigned>(start));
        if (!receive(deadline)) return false;
    }
    reply = MessageReader(bytes_, used_).at("body");
    const std::string_view type = reply.at("type").text();
    if (type == expected) return true;
    const std::string_view text = reply.at("message").text();
    return refuse("fikitd: %.*s", static_cast<int>(text.size()), text.data());
}

bool Conversation::begin(const char* client) {
    if (!connect()) return false;
    MessageWriter hello;
    MessageReader reply(nullptr, 0);
    begin_request(hello, 1, 2, "hello");
    hello.text("version");
    hello.number(protocol_version);
    hello.text("client");
    hello.text(client);
    greeted_ = exchange(hello, "welcome", reply);
    if (greeted_ && reply.at("start_seconds").number(start_seconds_))
        start_seconds_ = std::min(start_seconds_, longest_start_seconds);
    return greeted_;
}

bool await_restart(int64_t since, uint64_t seconds) {
    if (own_job() == nullptr || now_ns() - since > in_ns(seconds)) return false;
    const timespec pause = {0, 50'000'000};
    nanosleep(&pause, nullptr);
    return true;
}

bool Conversation::take(int (&descriptors)[3], int& connection) {
    if (received_ != most_descriptors) return refuse("%d descriptors came with the session", received_);
    kept_ = true;
    memcpy(descriptors, descriptors_, sizeof descriptors);
    connection = connection_;
    return true;
}

}  // namespace fikit::shim

#include "conversation.hpp"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "../descriptors.hpp"

namespace fikit::shim {
namespace {

constexpr const char* system_socket = "/run/fikitd.sock";
constexpr uint64_t protocol_version = 1;

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
    lost_ = ::connect(connection_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0;
    if (lost_) return refuse("no fikitd answers at %s: %s", path, strerror(errno));
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

bool Conversation::receive() {
    if (size_ == sizeof bytes_) return refuse("fikitd's reply is too long");
    const int64_t left = (deadline_ - now_ns()) / 1'000'000;
    pollfd entry = {connection_, POLLIN, 0};
    const int ready = left > 0 ? poll(&entry, 1, static_cast<int>(left)) : 0;
    if (ready == 0) return refuse("fikitd does not answer");
    if (ready < 0 && errno == EINTR) return true;  // recvmsg would have no deadline
    iovec data = {bytes_ + size_, sizeof bytes_ - size_};
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

bool Conversation::exchange(const MessageWriter& request, const char* expected, MessageReader& reply) {
    if (request.overflowed()) return refuse("the request is too long");
    if (!send_all(request.data(), request.size())) return false;
    memmove(bytes_, bytes_ + used_, size_ - used_);
    size_ -= used_;
    for (;;) {
        const MessageReader reader(bytes_, size_);
        const MessageReader::State state = reader.whole(used_);
        if (state == MessageReader::State::broken) return refuse("fikitd's reply is not MessagePack");
        if (state == MessageReader::State::complete) break;
        if (!receive()) return false;
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
    return exchange(hello, "welcome", reply);
}

bool await_restart(int64_t since) {
    if (own_job() == nullptr || now_ns() - since > 10'000'000'000) return false;
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

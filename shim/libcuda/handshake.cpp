#include "handshake.hpp"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>

#include "channel.hpp"
#include "messages.hpp"

namespace fikit::shim {
namespace {

constexpr const char* system_socket = "/run/fikitd.sock";
constexpr uint64_t protocol_version = 1;
constexpr int64_t patience_ns = 60'000'000'000;  // an executor may have to be started
constexpr int descriptors = 3;

class Greeting {
  public:
    explicit Greeting(char (&reason)[256]) : reason_(reason) {}
    ~Greeting() {
        if (kept_) return;
        if (connection_ >= 0) close(connection_);
        for (int i = 0; i < received_; ++i) close(descriptors_[i]);
    }

    bool connect();
    // Sends the request and waits for its reply, which `reply` then shows until the next exchange.
    bool exchange(const MessageWriter& request, const char* expected, MessageReader& reply);
    bool hand_over(Opened& opened);

  private:
    [[gnu::format(printf, 2, 3)]] bool refuse(const char* format, ...);
    bool send_all(const uint8_t* data, size_t size);
    bool receive();

    char (&reason_)[256];
    int64_t deadline_ = now_ns() + patience_ns;
    int connection_ = -1;
    int descriptors_[descriptors];
    int received_ = 0;
    bool kept_ = false;
    uint8_t bytes_[16384];
    size_t size_ = 0, used_ = 0;
};

bool Greeting::refuse(const char* format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(reason_, sizeof reason_, format, list);
    va_end(list);
    return false;
}

bool Greeting::connect() {
    const char* path = getenv("FIKIT_SOCKET");
    if (path == nullptr || *path == '\0') path = system_socket;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof address.sun_path) return refuse("the socket's path is too long: %s", path);
    memcpy(address.sun_path, path, strlen(path));
    connection_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection_ < 0) return refuse("socket: %s", strerror(errno));
    if (::connect(connection_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return refuse("no fikitd answers at %s: %s", path, strerror(errno));
    return true;
}

bool Greeting::send_all(const uint8_t* data, size_t size) {
    while (size != 0) {
        const ssize_t sent = send(connection_, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return refuse("sending to fikitd: %s", strerror(errno));
        data += sent;
        size -= static_cast<size_t>(sent);
    }
    return true;
}

bool Greeting::receive() {
    if (size_ == sizeof bytes_) return refuse("fikitd's reply is too long");
    const int64_t left = (deadline_ - now_ns()) / 1'000'000;
    pollfd entry = {connection_, POLLIN, 0};
    if (left <= 0 || poll(&entry, 1, static_cast<int>(left)) == 0) return refuse("fikitd does not answer");
    iovec data = {bytes_ + size_, sizeof bytes_ - size_};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * descriptors)];
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(connection_, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) return true;
    if (got <= 0) return refuse("fikitd closed the connection");
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof descriptor);
            if (received_ < descriptors)
                descriptors_[received_++] = descriptor;
            else
                close(descriptor);
        }
    }
    size_ += static_cast<size_t>(got);
    return true;
}

bool Greeting::exchange(const MessageWriter& request, const char* expected, MessageReader& reply) {
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

bool Greeting::hand_over(Opened& opened) {
    if (received_ != descriptors) return refuse("%d descriptors came with the session", received_);
    kept_ = true;
    opened.connection = connection_;
    opened.outbox = descriptors_[0];
    opened.inbox = descriptors_[1];
    opened.lifeline = descriptors_[2];
    return true;
}

void begin(MessageWriter& request, uint64_t number, unsigned fields, const char* type) {
    request.map(2);
    request.text("id");
    request.number(number);
    request.text("body");
    request.map(fields + 1);
    request.text("type");
    request.text(type);
}

// high, normal, low or a digit; outside a job it is ours to say.
uint64_t priority_level() {
    const char* text = getenv("FIKIT_PRIORITY");
    if (text == nullptr || strcmp(text, "normal") == 0) return 5;
    if (strcmp(text, "high") == 0) return 0;
    if (strcmp(text, "low") == 0) return 9;
    return text[0] >= '0' && text[0] <= '9' && text[1] == '\0' ? static_cast<uint64_t>(text[0] - '0') : 5;
}

}  // namespace

bool open_session(std::string_view gpu, Opened& opened, char (&reason)[256]) {
    Greeting greeting(reason);
    if (!greeting.connect()) return false;
    MessageReader reply(nullptr, 0);

    MessageWriter hello;
    begin(hello, 1, 2, "hello");
    hello.text("version");
    hello.number(protocol_version);
    hello.text("client");
    hello.text("libcuda");
    if (!greeting.exchange(hello, "welcome", reply)) return false;

    const char* job = getenv("FIKIT_JOB");
    const char* name = program_invocation_short_name;
    MessageWriter open;
    begin(open, 2, 4, "open_session");
    open.text("name");
    open.text(std::string_view(name, strnlen(name, 200)));
    open.text("priority");
    open.number(priority_level());
    open.text("gpu");
    uint64_t index = 0;
    if (gpu.empty())
        open.nothing();
    else if (std::from_chars(gpu.data(), gpu.data() + gpu.size(), index).ec == std::errc())
        open.number(index);
    else
        open.text(gpu);
    open.text("job");
    if (job == nullptr || *job == '\0')
        open.nothing();
    else
        open.text(job);
    if (!greeting.exchange(open, "session_opened", reply)) {
        opened.no_such_gpu = !gpu.empty() && reply.at("code").text() == "not_found";
        return false;
    }
    reply.at("memory_limit_bytes").number(opened.memory_limit);
    opened.nvidia_driver = reply.at("nvidia_driver").boolean();
    return greeting.hand_over(opened);
}

}  // namespace fikit::shim

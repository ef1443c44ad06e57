// Descriptors over a socket, each with a byte, as the lifeline carries them (unix(7), SCM_RIGHTS).
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

namespace fikit {

// One to be kept: not 0 to 2, to which a program that was started without them goes on printing.
inline int beside_standard_streams(int descriptor) {
    if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
    const int kept = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(descriptor);
    return kept;
}

// Without waiting; false leaves the reason in errno.
inline bool send_descriptor(int socket, int descriptor) {
    char byte = 'd';
    iovec data = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

inline constexpr size_t most_descriptors = 253;  // in one message (SCM_MAX_FD)

// As recv() without waiting, of at most so many bytes. What came with them are the caller's descriptors now.
// For which there is no room here are closed by this call, however long that takes.
template <size_t room>
ssize_t receive_descriptors(int socket, void* bytes, size_t most, int (&descriptors)[room], size_t& count) {
    iovec data = {bytes, most};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptors)];
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    // With the space's padding there would be room for one more, which nobody would ever close.
    message.msg_controllen = CMSG_LEN(sizeof descriptors);
    const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const cmsghdr* const header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
    count = 0;
    if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) return got;
    count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(descriptors, CMSG_DATA(header), count * sizeof(int));
    return got;
}

// The same, from somebody who is trusted. `descriptor` is the first that came, or -1.
inline ssize_t receive_descriptor(int socket, void* bytes, size_t most, int& descriptor) {
    int descriptors[1] = {-1};
    size_t count = 0;
    const ssize_t got = receive_descriptors(socket, bytes, most, descriptors, count);
    descriptor = descriptors[0];
    return got;
}

}  // namespace fikit

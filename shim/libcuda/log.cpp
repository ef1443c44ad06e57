#include "log.hpp"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../older_libc.hpp"
#include "channel.hpp"

namespace fikit::shim {

constinit CallLog call_log;

namespace {

[[gnu::constructor]] void open_log() { call_log.open(); }

// What programs ask in order to be told no.
bool is_failure(CUresult result) {
    return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY && result != CUDA_ERROR_NOT_FOUND;
}

// A write that fails is an error, where the program would be ended: for nobody reads the pipe any more, or
// the file is as long as it may be.
ssize_t write_without_signal(int descriptor, const char* text, size_t length) {
    sigset_t fatal, before;
    sigemptyset(&fatal);
    sigaddset(&fatal, SIGPIPE);
    sigaddset(&fatal, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &fatal, &before);
    const ssize_t written = write(descriptor, text, length);
    constexpr timespec now = {};
    if (written < 0 && (errno == EPIPE || errno == EFBIG)) sigtimedwait(&fatal, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return written;
}

}  // namespace

void CallLog::open() {
    path_ = getenv("FIKIT_SHIM_LOG");
    on_ = path_ != nullptr && *path_ != '\0';
    // Held by a thread that a child forked meanwhile has not.
    if (on_) pthread_atfork(nullptr, nullptr, [] { call_log.mutex_ = PTHREAD_MUTEX_INITIALIZER; });
    const char* every = getenv("FIKIT_SHIM_TRACE");
    every_ = every != nullptr && strcmp(every, "0") != 0;
}

void CallLog::write(const char* text, int length) {
    if (descriptor_ < 0)
        descriptor_ = strcmp(path_, "-") == 0
                          ? STDERR_FILENO
                          : ::open(path_, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor_ >= 0 && length > 0 &&
        write_without_signal(descriptor_, text, static_cast<size_t>(length)) < 0)
        on_ = false;  // nobody to tell
}

void CallLog::say(const char* format, ...) {
    if (!on_) return;
    char line[1024];
    int length = snprintf(line, sizeof line, "[fikit %d] ", getpid());
    va_list list;
    va_start(list, format);
    length += vsnprintf(line + length, sizeof line - static_cast<size_t>(length), format, list);
    va_end(list);
    if (length > static_cast<int>(sizeof line) - 2) length = static_cast<int>(sizeof line) - 2;
    line[length++] = '\n';
    const Uncancelled whole;
    const Locked lock(mutex_);
    write(line, length);
}

void CallLog::write_call(const Call& call) {
    char line[512];
    int length = snprintf(line, sizeof line, "[fikit %d/%d] %s(", getpid(), call.thread, names[call.number]);
    for (uint32_t i = 0; i < call.count; ++i)
        length += snprintf(line + length, sizeof line - static_cast<size_t>(length), "%s%#llx",
                           i != 0 ? ", " : "", static_cast<unsigned long long>(call.arguments[i]));
    if (call.result == pending)
        length += snprintf(line + length, sizeof line - static_cast<size_t>(length), ")\n");
    else
        length += snprintf(line + length, sizeof line - static_cast<size_t>(length), ") = %d\n", call.result);
    write(line, length);
}

void CallLog::entered(unsigned number, std::initializer_list<uint64_t> arguments) {
    const Uncancelled whole;
    const Locked lock(mutex_);
    Call& call = calls_[next_++ % kept];
    call.number = number;
    call.count = 0;
    for (const uint64_t argument : arguments)
        if (call.count < most_arguments) call.arguments[call.count++] = argument;
    call.thread = thread_number();
    call.result = pending;
    if (every_) write_call(call);
}

void CallLog::left(unsigned number, CUresult result) {
    const Uncancelled whole;
    const Locked lock(mutex_);
    const int32_t caller = thread_number();
    for (uint64_t back = 1; back <= kept && back <= next_; ++back) {
        Call& call = calls_[(next_ - back) % kept];
        if (call.number != number || call.thread != caller || call.result != pending) continue;
        call.result = static_cast<int32_t>(result);
        break;
    }
    if (every_ && result != CUDA_SUCCESS) {
        char line[128];
        write(line, snprintf(line, sizeof line, "[fikit %d/%d] %s = %d\n", getpid(), caller, names[number],
                             static_cast<int>(result)));
        return;
    }
    if (!is_failure(result) || failures_++ >= most_failures) return;
    uint64_t from = next_ > shown ? next_ - shown : 0;
    if (from < told_) from = told_;
    write("--\n", 3);
    for (; from < next_; ++from) write_call(calls_[from % kept]);
    told_ = next_;
}

}  // namespace fikit::shim

// What needs an answer of the executor, and pinned host memory.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "descriptors.hpp"
#include "older_libc.hpp"
#include "producer.hpp"

namespace fikit {
namespace {

template <class Request>
Bytes bytes_of(const Request& request) {
    return {&request, sizeof request};
}
template <class Answer>
Reply reply_into(Answer& answer) {
    return {&answer, sizeof answer, 0};
}

}  // namespace

// What has this handle is no more, whatever the executor says of it.
template <class Request, class Handles>
Status Producer::destroy(Handles& handles, uint32_t number, uint32_t handle) {
    const Request request = {handle, 0};
    Reply reply;
    const Status status = call(number, bytes_of(request), reply);
    if (status != status::interrupted) handles.give_back(handle);
    return status;
}

Status Producer::memory_allocate(uint64_t bytes, uint64_t& address, uint64_t& charged) {
    const fikit_request_memory_allocate request = {bytes};
    fikit_reply_memory_allocate answer{};
    Reply reply = reply_into(answer);
    const Status status = call(fikit_call_memory_allocate, bytes_of(request), reply);
    address = answer.address;
    charged = answer.size;
    return status;
}

Status Producer::memory_free(uint64_t address, const uint32_t* stream) {
    fikit_free* record;
    if (const Status status = begin(FIKIT_OP_FREE, stream != nullptr ? *stream : 0, record)) return status;
    if (stream != nullptr) record->record.flags |= FIKIT_IN_ORDER;
    record->address = address;
    channel_.commit();
    return status::success;
}

Status Producer::event_elapsed(uint32_t start, uint32_t end, double& milliseconds) {
    const uint32_t both[] = {start, end};
    // That one was never recorded is told before that the other one is not done yet.
    for (const uint32_t event : both)
        if (event == 0 || event >= FIKIT_MAX_EVENTS || load_acquire(events_[event]) == 0)
            return status::invalid_handle;
    for (const uint32_t event : both)
        if (const Status status = event_status(event)) return status;
    const fikit_request_event_elapsed request = {start, end};
    fikit_reply_event_elapsed answer{};
    Reply reply = reply_into(answer);
    const Status status = call(fikit_call_event_elapsed, bytes_of(request), reply);
    milliseconds = answer.milliseconds;
    return status;
}

// --- pinned host memory ---

Status Producer::map_host_buffer(int descriptor, uint64_t bytes, uint64_t device_address,
                                 HostBuffer& buffer) const {
    // A file that could shrink would turn a later access into SIGBUS.
    const int seals = fcntl(descriptor, F_GET_SEALS);
    struct stat information{};
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || status_of(descriptor, information) != 0 ||
        static_cast<uint64_t>(information.st_size) < bytes)
        return status::operating_system;
    // Where the GPU sees it, so that a pointer means the same to both; anywhere else if something is there.
    void* const wished = reinterpret_cast<void*>(device_address);
    void* const address = mmap(wished, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (address == MAP_FAILED) return errno == ENOMEM ? status::out_of_memory : status::operating_system;
    buffer = {.address = static_cast<uint8_t*>(address), .size = bytes, .device_address = device_address};
    return status::success;
}

Status Producer::host_allocate(uint64_t bytes, uint32_t& handle, HostBuffer& buffer) {
    if (bytes == 0) return status::invalid_value;
    const Uncancelled whole;
    handle = 0;
    fikit_reply_host_allocate answer{};
    int descriptor = -1;
    Status status = host_buffer_handles_.make(handle, [&] {
        const fikit_request_host_allocate request = {handle, 0, bytes};
        Reply reply = reply_into(answer);
        return channel_.call(fikit_call_host_allocate, bytes_of(request), {}, reply, &descriptor);
    });
    if (status != status::success) return status;
    status = descriptor < 0 || answer.size < bytes
                 ? status::operating_system
                 : map_host_buffer(descriptor, answer.size, answer.device_address, buffer);
    if (descriptor >= 0) close(descriptor);
    if (status == status::success)
        keep_host_buffer(handle, buffer);
    else
        forget_host_buffer(handle);
    return status;
}

void Producer::keep_host_buffer(uint32_t handle, const HostBuffer& buffer) {
    const Locked lock(host_buffers_mutex_);
    host_buffers_[handle] = buffer;
    if (handle >= host_buffers_used_) store_release(host_buffers_used_, handle + 1);
}

Status Producer::forget_host_buffer(uint32_t handle, bool may_be_used) {
    fikit_free* record;
    if (const Status status = begin(FIKIT_OP_HOST_FREE, 0, record)) return status;
    if (!may_be_used) record->record.flags |= FIKIT_IN_ORDER;
    record->address = handle;
    channel_.commit();
    host_buffer_handles_.give_back(handle);
    return status::success;
}

Status Producer::host_register(const uint8_t* own, uint64_t bytes, int file, uint64_t offset,
                               uint32_t& handle, HostBuffer& buffer) {
    handle = 0;
    fikit_reply_host_register answer{};
    const Status status = host_buffer_handles_.make(handle, [&] {
        const fikit_request_host_register request = {handle, 0, bytes, offset,
                                                     reinterpret_cast<uintptr_t>(own)};
        Reply reply = reply_into(answer);
        return channel_.call(fikit_call_host_register, bytes_of(request), {}, reply, nullptr, file);
    });
    if (status != status::success) return status;
    void* const wished = reinterpret_cast<void*>(answer.device_address);
    void* address = MAP_FAILED;
    if (wished == own)
        address = wished;
    else if (answer.device_address != 0)
        address = mmap(wished, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset));
    if (address != wished) {
        if (address != MAP_FAILED) munmap(address, bytes);
        forget_host_buffer(handle);
        return status::operating_system;
    }
    buffer = {static_cast<uint8_t*>(address), bytes, answer.device_address, own};
    keep_host_buffer(handle, buffer);
    return status::success;
}

void HostBuffer::unmap() const {
    if (address != own) munmap(address, size);
}

Status Producer::host_free(uint32_t handle, bool may_be_used) {
    if (handle == 0 || handle >= FIKIT_MAX_HOST_BUFFERS) return status::invalid_handle;
    HostBuffer buffer;
    {
        const Locked lock(host_buffers_mutex_);
        buffer = host_buffers_[handle];
        host_buffers_[handle] = {};
    }
    if (buffer.address == nullptr) return status::invalid_handle;
    buffer.unmap();
    const Status status = forget_host_buffer(handle, may_be_used);
    if (channel_.failed() != status::success) hang_up_without_host_buffers();
    return status;
}

void Producer::end() {
    if (channel_.forked()) return;
    channel_.end();
    hang_up_without_host_buffers();
    host_functions_.stop();
}

// The session is over. Its executor keeps the pinned memory until then, as this program may look at it.
void Producer::hang_up_without_host_buffers() {
    const Locked lock(host_buffers_mutex_);
    for (uint32_t handle = 1; handle < host_buffers_used_; ++handle)
        if (host_buffers_[handle].address != nullptr) return;
    channel_.hang_up();
}

uint32_t Producer::find_host_buffer(const void* address, uint64_t bytes, uint64_t& offset) const {
    if (load_acquire(host_buffers_used_) == 1) return 0;
    const auto* at = static_cast<const uint8_t*>(address);
    const Locked lock(host_buffers_mutex_);
    for (uint32_t handle = 1; handle < host_buffers_used_; ++handle) {
        const HostBuffer& buffer = host_buffers_[handle];
        if (buffer.address == nullptr) continue;
        const auto from = [&](const uint8_t* start) { return static_cast<uint64_t>(at - start); };
        offset = from(buffer.address);
        if (offset >= buffer.size && buffer.own != nullptr) offset = from(buffer.own);
        if (offset >= buffer.size) continue;
        return bytes <= buffer.size - offset ? handle : 0;
    }
    return 0;
}

// --- modules and functions ---

// The image travels in the staging area, in one piece, where that is large enough.
namespace {

// A file in memory with all of an image; -1: there is no room, or no descriptor. Who writes more than the
// process may into a file is ended by SIGXFSZ.
int file_of(std::span<const Part> image, uint64_t bytes) {
    rlimit longest{};
    if (getrlimit(RLIMIT_FSIZE, &longest) != 0 || longest.rlim_cur < bytes) return -1;
    const int file = beside_standard_streams(memfd_create("fikit-image", MFD_CLOEXEC));
    for (const Part& part : image) {
        const auto* from = static_cast<const uint8_t*>(part.data);
        for (uint64_t left = part.bytes; file >= 0 && left > 0;) {
            const ssize_t written = write(file, from, left);
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) {
                close(file);
                return -1;
            }
            from += written;
            left -= static_cast<uint64_t>(written);
        }
    }
    return file;
}

}  // namespace

// What finds no room in the staging area travels in a file: it is read once, so to pin it, which holds up
// everybody's launches, would be for nothing.
template <class Request>
Status Producer::call_with_image(uint32_t number, Request request, Bytes behind, std::span<const Part> image,
                                 Reply& reply) {
    if (request.size == 0) return status::invalid_value;
    if (const Status status = channel_.usable()) return status;  // a forked child has no staging area
    Piece piece;
    if (staging_.acquire_run(request.size, piece)) {
        uint8_t* to = channel_.staging() + piece.offset;
        for (const Part& part : image) {
            memcpy(to, part.data, part.bytes);
            to += part.bytes;
        }
        request.offset = piece.offset;
        const Status status = channel_.call(number, bytes_of(request), behind, reply);
        staging_.release(piece);
        return status;
    }
    request.offered = 1;
    const Uncancelled whole;
    const int file = file_of(image, request.size);
    if (file < 0) return status::out_of_memory;
    const Status status = channel_.call(number, bytes_of(request), behind, reply, nullptr, file);
    close(file);
    return status;
}

namespace {

Bytes bytes_of(JitOptions options) { return {options.data(), static_cast<uint32_t>(options.size_bytes())}; }

}  // namespace

Status Producer::module_load(std::span<const Part> image, JitOptions options, uint32_t& module, Reply& log) {
    module = 0;
    return module_handles_.make(module, [&] { return load_as(module, image, options, log); });
}

Status Producer::load_as(uint32_t module, std::span<const Part> image, JitOptions options, Reply& log) {
    uint64_t bytes = 0;
    for (const Part& part : image) bytes += part.bytes;
    if (bytes == 0) return status::invalid_value;
    const fikit_request_module_load request = {.handle = module, .offered = 0, .offset = 0, .size = bytes};
    return call_with_image(fikit_call_module_load, request, bytes_of(options), image, log);
}

Status Producer::module_renew(std::span<const Part> image, JitOptions options, uint32_t module, Reply& log) {
    const fikit_request_module_unload request = {module, 0};
    Reply none;
    const Status status = call(fikit_call_module_unload, bytes_of(request), none);
    return status == status::success ? load_as(module, image, options, log) : status;
}

Status Producer::graph_create(const void* image, uint64_t bytes, uint32_t& graph, uint32_t conditions) {
    return graph_handles_.make(graph, [&] {
        const fikit_request_graph_create request = {.handle = graph,
                                                    .offered = 0,
                                                    .offset = 0,
                                                    .size = bytes,
                                                    .conditions = conditions,
                                                    .reserved = 0};
        Reply reply;
        const Part whole{image, bytes};
        return call_with_image(fikit_call_graph_create, request, {}, {&whole, 1}, reply);
    });
}

Status Producer::graph_destroy(uint32_t graph) {
    return destroy<fikit_request_graph_destroy>(graph_handles_, fikit_call_graph_destroy, graph);
}

Status Producer::condition_create(uint32_t& conditions, uint32_t initial, uint32_t flags,
                                  uint64_t& condition) {
    return conditions_handles_.make(conditions, [&] {
        const fikit_request_condition_create request = {conditions, initial, flags, 0};
        fikit_reply_condition_create answer{};
        Reply reply = reply_into(answer);
        const Status status = call(fikit_call_condition_create, bytes_of(request), reply);
        condition = answer.condition;
        return status;
    });
}

Status Producer::conditions_destroy(uint32_t conditions) {
    return destroy<fikit_request_conditions_destroy>(conditions_handles_, fikit_call_conditions_destroy,
                                                     conditions);
}

Status Producer::link_create(JitOptions options, uint32_t& link) {
    link = 0;
    return link_handles_.make(link, [&] {
        const fikit_request_link_create request = {link, 0};
        Reply reply;
        return channel_.call(fikit_call_link_create, bytes_of(request), bytes_of(options), reply);
    });
}

Status Producer::link_add(uint32_t link, uint32_t type, const Part& image, JitOptions options,
                          const char* name, Reply& log) {
    uint8_t behind[FIKIT_MAX_JIT_OPTIONS * sizeof(fikit_jit_option) + FIKIT_JIT_NAME];
    const size_t name_bytes = strnlen(name, FIKIT_JIT_NAME);
    memcpy(behind, options.data(), options.size_bytes());
    memcpy(behind + options.size_bytes(), name, name_bytes);
    const fikit_request_link_add request = {.handle = link,
                                            .type = type,
                                            .offered = 0,
                                            .options = static_cast<uint32_t>(options.size()),
                                            .offset = 0,
                                            .size = image.bytes};
    return call_with_image(fikit_call_link_add, request,
                           {behind, static_cast<uint32_t>(options.size_bytes() + name_bytes)}, {&image, 1},
                           log);
}

Status Producer::link_destroy(uint32_t link) {
    return destroy<fikit_request_link_destroy>(link_handles_, fikit_call_link_destroy, link);
}

Status Producer::module_unload(uint32_t module) {
    const fikit_request_module_unload request = {module, 0};
    Reply reply;
    const Status status = call(fikit_call_module_unload, bytes_of(request), reply);
    if (status == status::success) module_handles_.give_back(module);
    return status;
}

Status Producer::module_global(uint32_t module, const char* name, fikit_reply_module_global& answer) {
    const auto name_bytes = static_cast<uint32_t>(strlen(name));
    const fikit_request_module_global request = {module, name_bytes};
    Reply reply = reply_into(answer);
    return channel_.call(fikit_call_module_global, bytes_of(request), {name, name_bytes}, reply);
}

Status Producer::function_get(uint32_t module, const char* name, uint32_t name_bytes, uint32_t& function,
                              Reply& reply) {
    function = 0;
    return function_handles_.make(function, [&] {
        const fikit_request_function_get request = {module, function, name_bytes, 0};
        return channel_.call(fikit_call_function_get, bytes_of(request), {name, name_bytes}, reply);
    });
}

Status Producer::function_renew(uint32_t module, const char* name, uint32_t function, Reply& reply) {
    const auto name_bytes = static_cast<uint32_t>(strlen(name));
    const fikit_request_function_get request = {module, function, name_bytes, 0};
    return channel_.call(fikit_call_function_get, bytes_of(request), {name, name_bytes}, reply);
}

void Producer::function_forget(uint32_t function) { function_handles_.give_back(function); }

uint32_t Producer::limit_reached(Kind kind) const {
    switch (kind) {
        case Kind::stream:
            return stream_handles_.limit_reached();
        case Kind::event:
            return event_handles_.limit_reached();
        case Kind::host_buffer:
            return host_buffer_handles_.limit_reached();
        case Kind::module:
            return module_handles_.limit_reached();
        case Kind::function:
            return function_handles_.limit_reached();
    }
    return 0;
}

}  // namespace fikit

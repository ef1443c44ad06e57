// fikit._channel: the producer for Python. The one place where it meets nanobind.
//
// Methods return CUresult numbers; fikit/errors.py turns them into exceptions. Whatever can wait lets go of
// the GIL, waits in slices and looks at Python's signals in between, so that Ctrl-C works. The GIL is the
// outermost lock: nothing takes it while it holds a lock of the producer.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>

#include "producer.hpp"
#include "python_kernel.hpp"
#include "python_memory.hpp"
#include "python_waits.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace fikit::python {
namespace {

void call_python(void* argument) {
    const nb::gil_scoped_acquire acquired;
    nb::object function = nb::steal(static_cast<PyObject*>(argument));
    PyObject* result = PyObject_CallNoArgs(function.ptr());
    if (result == nullptr)
        PyErr_WriteUnraisable(function.ptr());
    else
        Py_DECREF(result);
}

class Channel {
  public:
    Channel(int outbox, int inbox, int lifeline) {
        Producer* producer = nullptr;
        const Status status = Producer::attach(outbox, inbox, lifeline, producer);
        if (status != status::success)
            throw std::runtime_error("the channel cannot be used: error " + std::to_string(status));
        // Its threads may be waiting for the GIL.
        producer_.reset(producer, [](Producer* last) {
            const nb::gil_scoped_release released;
            delete last;
        });
    }
    Producer* operator->() const { return producer_.get(); }
    const std::shared_ptr<Producer>& producer() const { return producer_; }

    std::pair<Status, nb::str> failure() const {
        return with_text([&](auto& text) { return producer_->channel().failed(&text); });
    }
    std::pair<Status, nb::str> take_deferred() const {
        return with_text([&](auto& text) { return producer_->channel().take_deferred(&text); });
    }

  private:
    template <class Get>
    static std::pair<Status, nb::str> with_text(const Get& get) {
        char text[FIKIT_ERROR_TEXT] = "";
        const Status status = get(text);
        PyObject* decoded = PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(std::strlen(text)), "replace");
        if (decoded == nullptr) throw nb::python_error();
        return {status, nb::steal<nb::str>(decoded)};
    }
    std::shared_ptr<Producer> producer_;
};

template <class Request, class Answer>
Status ask(const Channel& channel, uint32_t number, const Request& request, Answer& answer,
           const std::string& behind = {}) {
    Reply reply = {&answer, sizeof answer, 0};
    const nb::gil_scoped_release released;
    return channel->channel().call(number, {&request, sizeof request},
                                   {behind.data(), static_cast<uint32_t>(behind.size())}, reply);
}

nb::tuple function_get(const Channel& channel, uint32_t module, const std::string& name,
                       const nb::bytes& kinds) {
    std::vector<uint8_t> room(FIKIT_MAX_REPLY_BYTES);
    Reply reply = {room.data(), FIKIT_MAX_REPLY_BYTES, 0};
    uint32_t function = 0;
    Status status;
    {
        const nb::gil_scoped_release released;
        status =
            channel->function_get(module, name.data(), static_cast<uint32_t>(name.size()), function, reply);
    }
    if (status != status::success) return nb::make_tuple(status, nb::none(), nb::none());
    fikit_reply_function_get answer{};
    std::memcpy(&answer, room.data(), reply.size < sizeof answer ? reply.size : sizeof answer);
    const size_t count = answer.parameters;
    if (reply.size < sizeof answer + count * sizeof(fikit_parameter))
        throw std::runtime_error("the executor's answer to function_get is too short");
    if (kinds.size() != 0 && kinds.size() != count)
        throw nb::value_error(("kernel " + name + " has " + std::to_string(count) + " parameters, " +
                               std::to_string(kinds.size()) + " types were given")
                                  .c_str());
    std::vector<Parameter> parameters(count);
    std::vector<uint32_t> sizes(count);
    for (size_t index = 0; index < count; ++index) {
        fikit_parameter layout;
        std::memcpy(&layout, room.data() + sizeof answer + index * sizeof layout, sizeof layout);
        if (layout.size > FIKIT_MAX_PARAMETERS || layout.offset > answer.parameter_bytes - layout.size ||
            layout.size > answer.parameter_bytes || answer.parameter_bytes > FIKIT_MAX_PARAMETERS)
            throw std::runtime_error("the executor's answer to function_get contradicts itself");
        sizes[index] = layout.size;
        parameters[index] = {layout.offset, layout.size,
                             kinds.size() != 0 ? static_cast<Kind>(kinds.c_str()[index]) : Kind::any};
    }
    nb::dict attributes;
    attributes["max_threads"] = answer.max_threads;
    attributes["shared_bytes"] = answer.shared_bytes;
    attributes["const_bytes"] = answer.const_bytes;
    attributes["local_bytes"] = answer.local_bytes;
    attributes["registers"] = answer.registers;
    attributes["max_dynamic_shared_bytes"] = answer.max_dynamic_shared_bytes;
    attributes["ptx_version"] = answer.ptx_version;
    attributes["binary_version"] = answer.binary_version;
    attributes["parameter_sizes"] = nb::cast(sizes);
    Arguments arguments(name, std::move(parameters), answer.parameter_bytes, &as_device_buffer);
    return nb::make_tuple(status,
                          nb::cast(new Kernel(channel.producer(), function, std::move(arguments)),
                                   nb::rv_policy::take_ownership),
                          attributes);
}

std::tuple<Status, uint32_t, nb::bytes> module_load(const Channel& channel, const nb::bytes& image) {
    std::vector<char> room(FIKIT_MAX_REPLY_BYTES);
    Reply reply = {room.data(), FIKIT_MAX_REPLY_BYTES, 0};
    uint32_t module = 0;
    Status status;
    {
        const nb::gil_scoped_release released;
        status = channel->module_load(image.c_str(), image.size(), module, reply);
    }
    const size_t header = sizeof(fikit_reply_module_load);
    const size_t log = reply.size > header ? reply.size - header : 0;
    return {status, module, nb::bytes(room.data() + (log != 0 ? header : 0), log)};
}

// Counts from the arguments on; size 0 to the end of the buffer.
std::pair<Status, bool> copy_to_device(const Channel& channel, uint32_t stream, uint64_t to,
                                       nb::handle from) {
    const View view(from, PyBUF_SIMPLE);
    bool pinned = false;
    const nb::gil_scoped_release released;
    const Status status = channel->copy_to_device(stream, to, view.data(), view.size(), &pinned);
    return {status, pinned};
}

std::pair<Status, bool> copy_to_host(const Channel& channel, uint32_t stream, nb::handle to, uint64_t from) {
    const View view(to, PyBUF_WRITABLE);
    bool pinned = false;
    const nb::gil_scoped_release released;
    const Status status = channel->copy_to_host(stream, view.data(), from, view.size(), &pinned);
    return {status, pinned};
}

bool is_pinned(const Channel& channel, nb::handle object) {
    const View view(object, PyBUF_SIMPLE);
    uint64_t offset;
    return channel->find_host_buffer(view.data(), view.size(), offset) != 0;
}

Status add_callback(const Channel& channel, uint32_t stream, nb::object function) {
    PyObject* argument = function.release().ptr();
    Status status;
    {
        const nb::gil_scoped_release released;
        status = channel->host_function(stream, &call_python, argument);
    }
    if (status != status::success) Py_DECREF(argument);
    return status;
}

std::tuple<Status, nb::object> host_allocate(const Channel& channel, uint64_t bytes) {
    uint32_t handle = 0;
    HostBuffer buffer{};
    Status status;
    {
        const nb::gil_scoped_release released;
        status = channel->host_allocate(bytes, handle, buffer);
    }
    if (status != status::success) return {status, nb::none()};
    auto* memory = new PinnedMemory(channel.producer(), handle, buffer, bytes);
    return {status, nb::cast(memory, nb::rv_policy::take_ownership)};
}

// (status, attributes, memory in bytes, UUID, name)
nb::tuple device_attributes(const Channel& channel) {
    auto answer = std::make_unique<fikit_reply_device_attributes>();
    const Status status =
        ask(channel, fikit_call_device_attributes, fikit_request_device_attributes{}, *answer);
    nb::dict attributes;
    for (int index = 0; index < FIKIT_DEVICE_ATTRIBUTES; ++index)
        if (answer->attribute[index] != INT32_MIN) attributes[nb::int_(index)] = answer->attribute[index];
    return nb::make_tuple(status, attributes, answer->memory_bytes,
                          nb::bytes(answer->uuid, sizeof answer->uuid),
                          nb::str(answer->name, strnlen(answer->name, FIKIT_DEVICE_NAME)));
}

std::tuple<Status, uint64_t, uint64_t> memory_allocate(const Channel& channel, uint64_t bytes) {
    uint64_t address = 0, charged = 0;
    const nb::gil_scoped_release released;
    const Status status = channel->memory_allocate(bytes, address, charged);
    return {status, address, charged};
}

std::tuple<Status, uint64_t, uint64_t> memory_information(const Channel& channel) {
    fikit_reply_memory_information answer{};
    const Status status =
        ask(channel, fikit_call_memory_information, fikit_request_memory_information{}, answer);
    return {status, answer.free, answer.total};
}

std::tuple<Status, uint64_t, uint64_t> module_global(const Channel& channel, uint32_t module,
                                                     const std::string& name) {
    const fikit_request_module_global request = {module, static_cast<uint32_t>(name.size())};
    fikit_reply_module_global answer{};
    const Status status = ask(channel, fikit_call_module_global, request, answer, name);
    return {status, answer.address, answer.size};
}

Status module_unload(const Channel& channel, uint32_t module, const std::vector<uint32_t>& functions) {
    const nb::gil_scoped_release released;
    const Status status = channel->module_unload(module);
    if (status == status::success)
        for (const uint32_t function : functions) channel->function_forget(function);
    return status;
}

Status function_set_attribute(const Channel& channel, uint32_t function, int32_t attribute, int32_t value) {
    const fikit_request_function_set_attribute request = {function, attribute, value, 0};
    fikit_reply_function_set_attribute answer{};
    return ask(channel, fikit_call_function_set_attribute, request, answer);
}

std::pair<Status, int32_t> function_occupancy(const Channel& channel, uint32_t function,
                                              uint32_t block_threads, uint64_t shared_bytes) {
    const fikit_request_function_occupancy request = {function, block_threads, shared_bytes};
    fikit_reply_function_occupancy answer{};
    const Status status = ask(channel, fikit_call_function_occupancy, request, answer);
    return {status, answer.blocks_per_multiprocessor};
}

void bind_channel(nb::module_& module) {
    nb::class_<Channel>(module, "Channel",
                        "The tenant's end of a session's channel. Methods return CUresult numbers.")
        .def(nb::init<int, int, int>(), "outbox"_a, "inbox"_a, "lifeline"_a,
             "Takes over the three descriptors, also when it raises RuntimeError.")
        .def("close", [](const Channel& channel) { channel->channel().end(); })
        .def("failure", &Channel::failure, "The sticky error and its text; 0 while the session lives.")
        .def("take_deferred", &Channel::take_deferred,
             "The asynchronous error not reported yet, and its text.")
        .def("device_attributes", &device_attributes)
        .def("memory_allocate", &memory_allocate, "size"_a)
        .def("memory_free",
             [](const Channel& channel, uint64_t address) { return channel->memory_free(address); })
        .def("memory_information", &memory_information)
        .def("host_allocate", &host_allocate, "size"_a)
        .def("is_pinned", &is_pinned, "buffer"_a)
        .def("copy_to_device", &copy_to_device, "stream"_a, "to"_a, "source"_a)
        .def("copy_to_host", &copy_to_host, "stream"_a, "to"_a, "source"_a)
        .def("copy_on_device",
             [](const Channel& channel, uint32_t stream, uint64_t to, uint64_t from, uint64_t bytes) {
                 const nb::gil_scoped_release released;
                 return channel->copy_on_device(stream, to, from, bytes);
             })
        .def("fill",
             [](const Channel& channel, uint32_t stream, uint64_t address, uint64_t count, uint32_t value,
                uint32_t width) {
                 const nb::gil_scoped_release released;
                 return channel->fill(stream, address, count, value, width);
             })
        .def("module_load", &module_load, "image"_a)
        .def("module_unload", &module_unload, "module"_a, "functions"_a)
        .def("module_global", &module_global, "module"_a, "name"_a)
        .def("function_get", &function_get, "module"_a, "name"_a, "kinds"_a)
        .def("function_set_attribute", &function_set_attribute)
        .def("function_occupancy", &function_occupancy)
        .def("add_callback", &add_callback, "stream"_a, "function"_a)
        .def(
            "synchronize",
            [](const Channel& channel, double timeout) {
                return in_slices(timeout, [&](int64_t deadline) { return channel->synchronize(deadline); });
            },
            "timeout"_a = -1.0,
            "Negative: no limit. 600 (not ready) once the timeout, in seconds, has passed.");
}

void bind_streams(nb::module_& module) {
    module.def("stream_create", [](const Channel& channel, uint32_t flags, int32_t priority) {
        uint32_t stream = 0;
        const Status status = channel->stream_create(flags, priority, stream);
        return std::pair{status, stream};
    });
    module.def("stream_destroy",
               [](const Channel& channel, uint32_t stream) { return channel->stream_destroy(stream); });
    module.def("stream_query",
               [](const Channel& channel, uint32_t stream) { return channel->stream_query(stream); });
    module.def("stream_synchronize", [](const Channel& channel, uint32_t stream, double timeout) {
        return in_slices(timeout,
                         [&](int64_t deadline) { return channel->stream_synchronize(stream, deadline); });
    });
    module.def("event_create", [](const Channel& channel) {
        uint32_t event = 0;
        const Status status = channel->event_create(event);
        return std::pair{status, event};
    });
    module.def("event_destroy",
               [](const Channel& channel, uint32_t event) { return channel->event_destroy(event); });
    module.def("event_record", [](const Channel& channel, uint32_t event, uint32_t stream, bool timing) {
        return channel->event_record(event, stream, timing);
    });
    module.def("event_wait", [](const Channel& channel, uint32_t event, uint32_t stream) {
        return channel->event_wait(event, stream);
    });
    module.def("event_query",
               [](const Channel& channel, uint32_t event) { return channel->event_query(event); });
    module.def("event_synchronize", [](const Channel& channel, uint32_t event, double timeout) {
        return in_slices(timeout,
                         [&](int64_t deadline) { return channel->event_synchronize(event, deadline); });
    });
    module.def("event_elapsed", [](const Channel& channel, uint32_t start, uint32_t end) {
        double milliseconds = 0;
        const nb::gil_scoped_release released;
        const Status status = channel->event_elapsed(start, end, milliseconds);
        return std::pair{status, milliseconds};
    });
}

}  // namespace
}  // namespace fikit::python

NB_MODULE(_channel, module) {
    using namespace fikit::python;
    module.doc() = "The channel producer: what a session's process writes and waits for.";
    nb::class_<DeviceBuffer>(module, "DeviceBuffer", "Device memory, as kernel arguments.")
        .def(nb::init<uint64_t, uint64_t, bool>(), "address"_a, "size"_a, "freed"_a = false)
        .def_rw("_address", &DeviceBuffer::address)
        .def_rw("_size", &DeviceBuffer::size)
        .def_rw("_freed", &DeviceBuffer::freed);
    nb::class_<PinnedMemory>(module, "PinnedMemory", nb::type_slots(PinnedMemory::slots),
                             "Pinned host memory; supports the buffer protocol (numpy.frombuffer).")
        .def("free", &PinnedMemory::free, "Raises BufferError while an array or a memoryview still uses it.")
        .def_prop_ro("size", &PinnedMemory::size, "In bytes.")
        .def_prop_ro("device_address", &PinnedMemory::device_address, "The same memory as the GPU sees it.")
        .def_prop_ro("freed", &PinnedMemory::freed);
    nb::class_<Kernel>(module, "Kernel")
        .def("launch", &Kernel::launch, "stream"_a, "grid"_a, "block"_a, "shared"_a, "arguments"_a, "wait"_a)
        .def("launch_attributed", &Kernel::launch_attributed, "stream"_a, "grid"_a, "block"_a, "shared"_a,
             "arguments"_a, "wait"_a, "cooperative"_a, "cluster"_a.none())
        .def_prop_ro("function", &Kernel::function)
        .def_prop_ro("name", &Kernel::name);
    bind_channel(module);
    bind_streams(module);
    module.attr("ABI_VERSION") = FIKIT_ABI_VERSION;
    module.attr("MAX_PARAMETER_BYTES") = static_cast<int>(FIKIT_MAX_PARAMETERS);
}

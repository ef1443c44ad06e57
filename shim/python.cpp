// fikit._channel: the producer for Python. The one place where it meets nanobind.
//
// Methods return CUresult numbers; fikit/errors.py turns them into exceptions. Whatever can wait lets go of
// the GIL and looks at Python's signals now and then, so that Ctrl-C works. The GIL is the
// outermost lock: nothing takes it while it holds a lock of the producer.
#include "python_channel.hpp"
#include "python_kernel.hpp"
#include "python_memory.hpp"
#include "python_waits.hpp"

using namespace nanobind::literals;

namespace fikit::python {
namespace {

void forget_python(void* argument, Status) {
    const nb::gil_scoped_acquire acquired;
    Py_DECREF(static_cast<PyObject*>(argument));
}

void call_python(void* argument) {
    const nb::gil_scoped_acquire acquired;
    nb::object function = nb::steal(static_cast<PyObject*>(argument));
    PyObject* result = PyObject_CallNoArgs(function.ptr());
    if (result == nullptr)
        PyErr_WriteUnraisable(function.ptr());
    else
        Py_DECREF(result);
}

std::pair<Status, bool> copy_to_device(const Channel& channel, uint32_t stream, uint64_t to,
                                       nb::handle from) {
    const View view(from, PyBUF_SIMPLE);
    bool pinned = false;
    const Status status =
        waiting([&] { return channel->copy_to_device(stream, to, view.data(), view.size(), &pinned); });
    return {status, pinned};
}

std::pair<Status, bool> copy_to_host(const Channel& channel, uint32_t stream, nb::handle to, uint64_t from) {
    const View view(to, PyBUF_WRITABLE);
    bool pinned = false;
    const Status status =
        waiting([&] { return channel->copy_to_host(stream, view.data(), from, view.size(), &pinned); });
    return {status, pinned};
}

bool is_pinned(const Channel& channel, nb::handle object) {
    const View view(object, PyBUF_SIMPLE);
    uint64_t offset;
    return channel->find_host_buffer(view.data(), view.size(), offset) != 0;
}

Status add_callback(const Channel& channel, uint32_t stream, const nb::object& function) {
    nb::object kept = function;
    const Status status =
        waiting([&] { return channel->host_function(stream, &call_python, kept.ptr(), &forget_python); });
    if (status == status::success) kept.release();  // one of the two has it
    return status;
}

std::tuple<Status, PinnedMemory*> host_allocate(const Channel& channel, uint64_t bytes) {
    uint32_t handle = 0;
    HostBuffer buffer{};
    const Status status = waiting([&] { return channel->host_allocate(bytes, handle, buffer); });
    if (status != status::success) return {status, nullptr};
    return {status, new PinnedMemory(channel.producer(), handle, buffer, bytes)};
}

// (status, attributes, memory in bytes, UUID, name)
std::tuple<Status, nb::typed<nb::dict, int, int>, uint64_t, nb::bytes, nb::str> device_attributes(
    const Channel& channel) {
    auto answer = std::make_unique<fikit_reply_device_attributes>();
    const Status status =
        ask(channel, fikit_call_device_attributes, fikit_request_device_attributes{}, *answer);
    nb::typed<nb::dict, int, int> attributes;
    for (int index = 0; index < FIKIT_DEVICE_ATTRIBUTES; ++index)
        if (answer->attribute[index] != INT32_MIN) attributes[nb::int_(index)] = answer->attribute[index];
    return {status, attributes, answer->memory_bytes, nb::bytes(answer->uuid, sizeof answer->uuid),
            nb::str(answer->name, strnlen(answer->name, FIKIT_DEVICE_NAME))};
}

uint32_t limit_reached(const Channel& channel, const std::string& kind) {
    using Kind = Producer::Kind;
    constexpr std::pair<const char*, Kind> kinds[] = {{"streams", Kind::stream},
                                                      {"events", Kind::event},
                                                      {"pinned buffers", Kind::host_buffer},
                                                      {"modules", Kind::module},
                                                      {"functions", Kind::function}};
    for (const auto& [name, each] : kinds)
        if (kind == name) return channel->limit_reached(each);
    throw nb::value_error(kind.c_str());
}

std::tuple<Status, uint64_t, uint64_t> memory_allocate(const Channel& channel, uint64_t bytes) {
    uint64_t address = 0, charged = 0;
    const Status status = waiting([&] { return channel->memory_allocate(bytes, address, charged); });
    return {status, address, charged};
}

std::tuple<Status, uint64_t, uint64_t> memory_information(const Channel& channel) {
    fikit_reply_memory_information answer{};
    const Status status =
        ask(channel, fikit_call_memory_information, fikit_request_memory_information{}, answer);
    return {status, answer.free, answer.total};
}

void bind_memory(ChannelClass& channel) {
    channel.def("memory_allocate", &memory_allocate, "size"_a)
        .def(
            "memory_free",
            [](const Channel& self, uint64_t address) {
                return waiting([&] { return self->memory_free(address); });
            },
            "address"_a)
        .def("memory_information", &memory_information, "(status, free, total), in bytes.")
        .def("host_allocate", &host_allocate, "size"_a, nb::rv_policy::take_ownership,
             nb::sig("def host_allocate(self, size: int) -> tuple[int, PinnedMemory | None]"))
        .def("is_pinned", &is_pinned, "buffer"_a)
        .def("copy_to_device", &copy_to_device, "stream"_a, "to"_a, "source"_a,
             "(status, whether the source was pinned and so may not have been read yet)")
        .def("copy_to_host", &copy_to_host, "stream"_a, "to"_a, "source"_a,
             "(status, whether the destination was pinned and so may not have been written yet)")
        .def(
            "copy_on_device",
            [](const Channel& self, uint32_t stream, uint64_t to, uint64_t from, uint64_t bytes) {
                return waiting([&] { return self->copy_on_device(stream, to, from, bytes); });
            },
            "stream"_a, "to"_a, "source"_a, "size"_a)
        .def(
            "fill",
            [](const Channel& self, uint32_t stream, uint64_t address, uint64_t count, uint32_t value,
               uint32_t width) {
                return waiting([&] { return self->fill(stream, address, count, value, width); });
            },
            "stream"_a, "address"_a, "count"_a, "value"_a, "width"_a);
}

void bind_streams(ChannelClass& channel) {
    channel
        .def(
            "stream_create",
            [](const Channel& self, bool non_blocking, int32_t priority) {
                uint32_t stream = 0;
                const Status status = waiting([&] {
                    return self->stream_create(non_blocking ? FIKIT_STREAM_NON_BLOCKING : 0, priority,
                                               stream);
                });
                return std::pair{status, stream};
            },
            "non_blocking"_a, "priority"_a)
        .def(
            "stream_destroy",
            [](const Channel& self, uint32_t stream) {
                return waiting([&] { return self->stream_destroy(stream); });
            },
            "stream"_a)
        .def(
            "stream_query", [](const Channel& self, uint32_t stream) { return self->stream_query(stream); },
            "stream"_a)
        .def(
            "stream_settle",
            [](const Channel& self, uint32_t stream, double timeout) {
                return waiting_for(timeout,
                                   [&](int64_t deadline) { return self->stream_settle(stream, deadline); });
            },
            "stream"_a, "timeout"_a)
        .def(
            "settle",
            [](const Channel& self, double timeout) {
                return waiting_for(timeout, [&](int64_t deadline) { return self->settle(deadline); });
            },
            "timeout"_a,
            "Waits for what was enqueued so far. Negative: no limit. 600 (not ready) once the timeout, in "
            "seconds, has passed.")
        .def("add_callback", &add_callback, "stream"_a, "function"_a);
}

void bind_events(ChannelClass& channel) {
    channel
        .def("event_create",
             [](const Channel& self) {
                 uint32_t event = 0;
                 const Status status = self->event_create(event);
                 return std::pair{status, event};
             })
        .def(
            "event_destroy",
            [](const Channel& self, uint32_t event) {
                return waiting([&] { return self->event_destroy(event); });
            },
            "event"_a)
        .def(
            "event_record",
            [](const Channel& self, uint32_t event, uint32_t stream, bool timing) {
                return waiting([&] { return self->event_record(event, stream, timing); });
            },
            "event"_a, "stream"_a, "timing"_a)
        .def(
            "event_wait",
            [](const Channel& self, uint32_t event, uint32_t stream) {
                return waiting([&] { return self->event_wait(event, stream); });
            },
            "event"_a, "stream"_a)
        .def(
            "event_query", [](const Channel& self, uint32_t event) { return self->event_query(event); },
            "event"_a)
        .def(
            "event_settle",
            [](const Channel& self, uint32_t event, double timeout) {
                return waiting_for(timeout,
                                   [&](int64_t deadline) { return self->event_settle(event, deadline); });
            },
            "event"_a, "timeout"_a)
        .def(
            "event_elapsed",
            [](const Channel& self, uint32_t start, uint32_t end) {
                double milliseconds = 0;
                const Status status = waiting([&] { return self->event_elapsed(start, end, milliseconds); });
                return std::pair{status, milliseconds};
            },
            "start"_a, "end"_a, "(status, milliseconds)");
}

}  // namespace
}  // namespace fikit::python

NB_MODULE(_channel, module) {
    using namespace fikit::python;
    nanobind::set_leak_warnings(false);  // a program may well end with a session open
    module.doc() = "The channel producer: what a session's process writes and waits for.";
    nb::class_<DeviceBuffer>(module, "DeviceBuffer", "Device memory, as kernel arguments.")
        .def(
            "__init__",
            [](DeviceBuffer* self, uint64_t address, uint64_t size, const Channel& channel) {
                *self = {address, size, channel.producer().get(), false};
            },
            "address"_a, "size"_a, "channel"_a)
        .def_ro("address", &DeviceBuffer::address)
        .def_ro("size", &DeviceBuffer::size, "In bytes.")
        .def_ro("freed", &DeviceBuffer::freed)
        .def("mark_freed", [](DeviceBuffer& buffer) { buffer.freed = true; });
    // typing_extensions, as collections.abc has it since Python 3.12 alone; only a type checker looks.
    nb::class_<PinnedMemory>(module, "PinnedMemory", nb::type_slots(PinnedMemory::slots),
                             nb::sig("class PinnedMemory(typing_extensions.Buffer)"),
                             "Pinned host memory; supports the buffer protocol (numpy.frombuffer).")
        .def("free", &PinnedMemory::free, "Raises BufferError while an array or a memoryview still uses it.")
        .def_prop_ro("size", &PinnedMemory::size, "In bytes.")
        .def_prop_ro("device_address", &PinnedMemory::device_address, "The same memory as the GPU sees it.")
        .def_prop_ro("freed", &PinnedMemory::freed)
        .def("__repr__", [](const PinnedMemory& self) {
            const char* const state = self.freed() ? " freed" : "";
            return "<fikit.PinnedMemory " + std::to_string(self.size()) + " bytes" + state + ">";
        });
    nb::class_<Kernel>(module, "Kernel")
        .def("launch", &Kernel::launch, "stream"_a, "grid"_a, "block"_a, "shared"_a, "arguments"_a, "wait"_a,
             nb::sig("def launch(self, stream: int, grid: int | tuple[int, ...], block: int | tuple[int, "
                     "...], shared: int, "
                     "arguments: tuple[object, ...], wait: bool) -> int"))
        .def("launch_attributed", &Kernel::launch_attributed, "stream"_a, "grid"_a, "block"_a, "shared"_a,
             "arguments"_a, "wait"_a, "cooperative"_a, "cluster"_a.none(),
             nb::sig("def launch_attributed(self, stream: int, grid: int | tuple[int, ...], block: int | "
                     "tuple[int, ...], shared: int, "
                     "arguments: tuple[object, ...], wait: bool, cooperative: bool, cluster: int | "
                     "tuple[int, ...] | None) -> int"))
        .def_prop_ro("function", &Kernel::function)
        .def_prop_ro("name", &Kernel::name);
    auto channel = ChannelClass(module, "Channel",
                                "The tenant's end of a session's channel. Methods return CUresult numbers.");
    channel
        .def(nb::init<int, int, int>(), "outbox"_a, "inbox"_a, "lifeline"_a,
             "Takes over the three descriptors, also when it raises RuntimeError.")
        .def("close",
             [](const Channel& self) {
                 const nb::gil_scoped_release released;  // a callback may be waiting for it
                 self->end();
             })
        .def("failure", &Channel::failure, "The sticky error and its text; 0 while the session lives.")
        .def(
            "take_deferred", [](const Channel& self) { return self->channel().take_deferred(); },
            "The asynchronous error that was not reported yet, or 0.")
        .def("deferred_text", &Channel::deferred_text,
             "What the asynchronous error reported last meant; told once.")
        .def("device_attributes", &device_attributes, "(status, attributes, memory in bytes, UUID, name)")
        .def("limit_reached", &limit_reached, "kind"_a,
             "How many streams, events, modules, functions or pinned buffers there may be; 0 below that.");
    bind_memory(channel);
    bind_modules(channel);
    bind_streams(channel);
    bind_events(channel);
    module.def("interruptible", &interruptible, "interrupt_with"_a, "function"_a,
               "function(), whose waits call interrupt_with now and then, to be ended by its exception.");
    pthread_atfork(nullptr, nullptr, [] { away = 0; });
    module.def("await_back", &await_back, "seconds"_a,
               "Until no thread waits in a call of a channel any more, or so much time has passed.");
    module.attr("ABI_VERSION") = FIKIT_ABI_VERSION;
    module.attr("MAX_PARAMETER_BYTES") = static_cast<int>(FIKIT_MAX_PARAMETERS);
}

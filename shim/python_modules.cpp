// Modules, functions and their attributes for Python.
#include <nanobind/stl/optional.h>

#include "python_channel.hpp"
#include "python_kernel.hpp"

using namespace nanobind::literals;

namespace fikit::python {
namespace {

std::tuple<Status, Kernel*, nb::typed<nb::dict, nb::str, int>, std::vector<uint32_t>> function_get(
    const Channel& channel, uint32_t module, const std::string& name, const std::optional<nb::bytes>& kinds) {
    std::vector<uint8_t> room(FIKIT_MAX_REPLY_BYTES);
    Reply reply = {room.data(), FIKIT_MAX_REPLY_BYTES, 0};
    uint32_t function = 0;
    const Status status = waiting([&] {
        return channel->function_get(module, name.data(), static_cast<uint32_t>(name.size()), function,
                                     reply);
    });
    if (status != status::success) return {status, nullptr, {}, {}};
    // Until the kernel has it, whatever goes wrong gives the number back. The executor forgets the function
    // with its module, or when the number is used again.
    struct Forget {
        const Channel& channel;
        uint32_t function;
        bool armed = true;
        ~Forget() {
            if (armed) channel->function_forget(function);
        }
    } forget{channel, function};
    fikit_reply_function_get answer{};
    std::memcpy(&answer, room.data(), reply.size < sizeof answer ? reply.size : sizeof answer);
    const size_t count = answer.parameters;
    if (reply.size < sizeof answer + count * sizeof(fikit_parameter))
        throw std::runtime_error("the executor's answer to function_get is too short");
    if (kinds && kinds->size() != count)
        throw nb::value_error(("kernel " + name + " has " + std::to_string(count) + " parameters, " +
                               std::to_string(kinds->size()) + " types were given")
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
                             kinds ? static_cast<Kind>(kinds->c_str()[index]) : Kind::any};
    }
    nb::typed<nb::dict, nb::str, int> attributes;
    // By CUfunction_attribute.
    constexpr std::pair<const char*, int> wanted[] = {{"max_threads", 0}, {"shared_bytes", 1},
                                                      {"const_bytes", 2}, {"local_bytes", 3},
                                                      {"registers", 4},   {"max_dynamic_shared_bytes", 8},
                                                      {"ptx_version", 5}, {"binary_version", 6}};
    for (const auto& [each, id] : wanted) attributes[each] = answer.attribute[id];
    Arguments arguments(name, std::move(parameters), answer.parameter_bytes, &as_device_buffer,
                        channel.producer().get());
    auto* kernel = new Kernel(channel.producer(), function, std::move(arguments));
    forget.armed = false;
    return {status, kernel, attributes, sizes};
}

std::tuple<Status, uint32_t, nb::bytes> module_load(const Channel& channel, const nb::bytes& image) {
    std::vector<char> room(FIKIT_MAX_REPLY_BYTES);
    Reply reply = {room.data(), FIKIT_MAX_REPLY_BYTES, 0};
    uint32_t module = 0;
    const Status status =
        waiting([&] { return channel->module_load(image.c_str(), image.size(), module, reply); });
    const size_t header = sizeof(fikit_reply_module_load);
    const size_t log = reply.size > header ? reply.size - header : 0;
    return {status, module, nb::bytes(room.data() + (log != 0 ? header : 0), log)};
}

std::tuple<Status, uint64_t, uint64_t> module_global(const Channel& channel, uint32_t module,
                                                     const std::string& name) {
    const fikit_request_module_global request = {module, static_cast<uint32_t>(name.size())};
    fikit_reply_module_global answer{};
    const Status status = ask(channel, fikit_call_module_global, request, answer, name);
    return {status, answer.address, answer.size};
}

Status module_unload(const Channel& channel, uint32_t module, const std::vector<uint32_t>& functions) {
    return waiting([&] {
        const Status status = channel->module_unload(module);
        if (status == status::success)
            for (const uint32_t function : functions) channel->function_forget(function);
        return status;
    });
}

Status function_set_attribute(const Channel& channel, uint32_t function, int32_t attribute, int32_t value) {
    const fikit_request_function_set_attribute request = {function, attribute, value, 0};
    fikit_reply_function_set_attribute answer{};
    return ask(channel, fikit_call_function_set_attribute, request, answer);
}

std::pair<Status, int32_t> function_occupancy(const Channel& channel, uint32_t function,
                                              uint32_t block_threads, uint64_t shared_bytes) {
    const fikit_request_function_occupancy request = {function, block_threads, shared_bytes, 0, 0};
    fikit_reply_function_occupancy answer{};
    const Status status = ask(channel, fikit_call_function_occupancy, request, answer);
    return {status, answer.blocks_per_multiprocessor};
}

}  // namespace

void bind_modules(ChannelClass& channel) {
    channel.def("module_load", &module_load, "image"_a, "(status, module, log)")
        .def("module_unload", &module_unload, "module"_a, "functions"_a)
        .def(
            "function_forget",
            [](const Channel& self, uint32_t function) { self->function_forget(function); }, "function"_a)
        .def("module_global", &module_global, "module"_a, "name"_a, "(status, address, size)")
        .def("function_get", &function_get, "module"_a, "name"_a, "kinds"_a.none(),
             nb::rv_policy::take_ownership,
             nb::sig("def function_get(self, module: int, name: str, kinds: bytes | None) -> "
                     "tuple[int, Kernel | None, dict[str, int], list[int]]"))
        .def("function_set_attribute", &function_set_attribute, "function"_a, "attribute"_a, "value"_a)
        .def("function_occupancy", &function_occupancy, "function"_a, "block_threads"_a, "shared"_a);
}

}  // namespace fikit::python

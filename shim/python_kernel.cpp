#include "python_kernel.hpp"

#include <climits>
#include <cstring>

#include "python_waits.hpp"

namespace nb = nanobind;

namespace fikit::python {
namespace {

constexpr uint32_t dim3_axes = 3;

// NumPy's, too. False: it is none, or too large.
bool read_integer(PyObject* number, uint32_t& value) {
    PyObject* const integer = PyIndex_Check(number) ? PyNumber_Index(number) : nullptr;
    const unsigned long read = integer != nullptr ? PyLong_AsUnsignedLong(integer) : ULONG_MAX;
    Py_XDECREF(integer);
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    value = static_cast<uint32_t>(read);
    return read <= UINT32_MAX;
}

// An int, or a tuple of one to three.
void read_axes(nb::handle value, uint32_t (&axes)[dim3_axes], const char* what) {
    const auto read = [&](PyObject* number) {
        uint32_t axis = 0;
        if (!read_integer(number, axis) || axis == 0)
            throw nb::value_error((std::string(what) + ": one to three positive integers").c_str());
        return axis;
    };
    axes[1] = axes[2] = 1;
    if (!PyTuple_Check(value.ptr())) {
        axes[0] = read(value.ptr());
        return;
    }
    const Py_ssize_t count = PyTuple_GET_SIZE(value.ptr());
    if (count < 1 || count > dim3_axes)
        throw nb::value_error((std::string(what) + ": one to three positive integers").c_str());
    for (Py_ssize_t axis = 0; axis < count; ++axis) axes[axis] = read(PyTuple_GET_ITEM(value.ptr(), axis));
}

// CUlaunchAttributeID
constexpr uint32_t attribute_cooperative = 2;
constexpr uint32_t attribute_cluster_dimension = 4;

fikit_attribute attribute_of(uint32_t id, const uint32_t* words, uint32_t count) {
    fikit_attribute attribute{};
    attribute.id = id;
    std::memcpy(attribute.value, words, count * sizeof *words);
    return attribute;
}

}  // namespace

const DeviceBuffer* as_device_buffer(PyObject* object) {
    static nb::handle type = nb::type<DeviceBuffer>();
    if (Py_TYPE(object) != reinterpret_cast<PyTypeObject*>(type.ptr()) &&
        !PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(type.ptr())))
        return nullptr;
    return nb::inst_ptr<DeviceBuffer>(object);
}

Status Kernel::launch(uint32_t stream, nb::handle grid, nb::handle block, nb::handle shared, nb::tuple values,
                      bool wait) const {
    return launch_with(stream, grid, block, shared, values, wait, nullptr, 0);
}
Status Kernel::launch_attributed(uint32_t stream, nb::handle grid, nb::handle block, nb::handle shared,
                                 nb::tuple values, bool wait, bool cooperative, nb::handle cluster) const {
    fikit_attribute attributes[2];
    uint32_t count = 0;
    const uint32_t on = 1;
    if (cooperative) attributes[count++] = attribute_of(attribute_cooperative, &on, 1);
    if (!cluster.is_none()) {
        uint32_t axes[dim3_axes];
        read_axes(cluster, axes, "cluster");
        attributes[count++] = attribute_of(attribute_cluster_dimension, axes, dim3_axes);
    }
    return launch_with(stream, grid, block, shared, values, wait, attributes, count);
}
Status Kernel::launch_with(uint32_t stream, nb::handle grid, nb::handle block, nb::handle shared,
                           nb::tuple values, bool wait, const fikit_attribute* attributes,
                           uint32_t count) const {
    constexpr uint32_t usual = 1024;
    alignas(16) uint8_t few[usual];
    std::unique_ptr<uint8_t[]> many;
    uint8_t* parameters = few;
    const uint32_t bytes = arguments_.bytes();
    if (bytes > usual) [[unlikely]] {
        many.reset(new uint8_t[bytes]);
        parameters = many.get();
    }
    auto* tuple = reinterpret_cast<PyTupleObject*>(values.ptr());
    if (!arguments_.pack(tuple->ob_item, static_cast<size_t>(PyTuple_GET_SIZE(values.ptr())), parameters))
        throw nb::python_error();
    LaunchShape shape = {.function = function_,
                         .stream = stream,
                         .grid = {},
                         .block = {},
                         .shared_bytes = 0,
                         .parameter_bytes = bytes,
                         .attributes = count};
    read_axes(grid, shape.grid, "grid");
    read_axes(block, shape.block, "block");
    if (!read_integer(shared.ptr(), shape.shared_bytes))
        throw nb::value_error("shared: a number of bytes below 4 GiB");
    const Status status = producer_->launch(shape, attributes, parameters, 0);
    if (status != status::not_ready || !wait) [[likely]]
        return status;
    return waiting([&] { return producer_->launch(shape, attributes, parameters); });
}

}  // namespace fikit::python

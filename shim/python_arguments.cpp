#include "python_arguments.hpp"

#include <cstring>

namespace fikit::python {
namespace {

// Whether what has this format (PEP 3118) means the same on the GPU: no addresses of Python objects, and
// numbers in the GPU's order of bytes. Names are between colons.
bool is_plain(const char* format) {
    bool named = false;
    for (; *format != '\0'; ++format) {
        named ^= *format == ':';
        if (!named && std::strchr("O>!", *format) != nullptr) return false;
    }
    return true;
}

}  // namespace

bool Arguments::pack(PyObject* const* values, size_t count, uint8_t* out) const {
    if (count != parameters_.size()) {
        PyErr_Format(PyExc_TypeError, "kernel %s takes %zu arguments, not %zu", kernel_.c_str(),
                     parameters_.size(), count);
        return false;
    }
    for (size_t index = 0; index < count; ++index) {
        const Parameter& parameter = parameters_[index];
        if (!pack_one(values[index], index, parameter, out + parameter.offset)) return false;
    }
    return true;
}

bool Arguments::refuse(PyObject* type, PyObject* value, size_t index, const Parameter& parameter,
                       const char* why) const {
    PyErr_Format(type, "argument %zu of kernel %s: %.100R %s (the parameter has %u bytes)", index,
                 kernel_.c_str(), value, why, parameter.size);
    return false;
}

bool Arguments::pack_one(PyObject* value, size_t index, const Parameter& parameter, uint8_t* out) const {
    if (const DeviceBuffer* memory = as_buffer_(value)) return pack_memory(*memory, index, parameter, out);
    if (parameter.kind == Kind::floating && (PyFloat_Check(value) || PyLong_Check(value)))
        return pack_float(value, index, parameter, out);
    if (PyLong_Check(value)) return pack_integer(value, index, parameter, out);  // bool too
    if (PyFloat_Check(value) && parameter.kind == Kind::any) return pack_float(value, index, parameter, out);
    return pack_other(value, index, parameter, out);
}

bool Arguments::pack_memory(const DeviceBuffer& memory, size_t index, const Parameter& parameter,
                            uint8_t* out) const {
    if (memory.freed) {
        PyErr_Format(PyExc_ValueError, "argument %zu of kernel %s: the memory was freed", index,
                     kernel_.c_str());
        return false;
    }
    if (memory.session != session_) {
        PyErr_Format(PyExc_ValueError, "argument %zu of kernel %s: the memory is another session's", index,
                     kernel_.c_str());
        return false;
    }
    if (parameter.size != 8 || (parameter.kind != Kind::any && parameter.kind != Kind::pointer)) {
        PyErr_Format(PyExc_TypeError, "argument %zu of kernel %s: the parameter (%u bytes) is no pointer",
                     index, kernel_.c_str(), parameter.size);
        return false;
    }
    std::memcpy(out, &memory.address, 8);
    return true;
}

bool Arguments::pack_integer(PyObject* value, size_t index, const Parameter& parameter, uint8_t* out) const {
    const uint32_t size = parameter.size;
    if (size != 1 && size != 2 && size != 4 && size != 8)
        return refuse(PyExc_TypeError, value, index, parameter, "is an integer, the parameter is none");
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (number == -1 && overflow == 0 && PyErr_Occurred() != nullptr) return false;
    const bool is_signed = parameter.kind == Kind::integer;
    const bool is_unsigned = parameter.kind == Kind::natural || parameter.kind == Kind::pointer;
    uint64_t bits = static_cast<uint64_t>(number);
    bool fits;
    if (overflow != 0) {  // 2^63 to 2^64-1, or too large
        bits = overflow > 0 && size == 8 && !is_signed ? PyLong_AsUnsignedLongLong(value) : 0;
        fits = bits != 0 && PyErr_Occurred() == nullptr;
        if (!fits) PyErr_Clear();
    } else {
        const uint32_t width = size * 8;
        const long long most = width == 64 ? INT64_MAX
                               : is_signed ? (1LL << (width - 1)) - 1
                                           : (1LL << width) - 1;
        const long long least = is_unsigned ? 0 : width == 64 ? INT64_MIN : -(1LL << (width - 1));
        fits = number >= least && number <= most;
    }
    if (!fits) return refuse(PyExc_OverflowError, value, index, parameter, "does not fit");
    std::memcpy(out, &bits, size);  // little-endian, as every CUDA host
    return true;
}

bool Arguments::pack_float(PyObject* value, size_t index, const Parameter& parameter, uint8_t* out) const {
    const double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred() != nullptr) {
        if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) return false;
        PyErr_Clear();
        return refuse(PyExc_TypeError, value, index, parameter, "is no number");
    }
    switch (parameter.size) {
        case 8:
            std::memcpy(out, &number, 8);
            return true;
        case 4: {
            const auto narrow = static_cast<float>(number);
            std::memcpy(out, &narrow, 4);
            return true;
        }
        case 2:
            return PyFloat_Pack2(number, reinterpret_cast<char*>(out), 1) == 0;
        default:
            return refuse(PyExc_TypeError, value, index, parameter, "is a float, the parameter is none");
    }
}

// NumPy scalars, ctypes, bytes. A declared number is converted by value; otherwise anything with the buffer
// protocol and exactly the parameter's size is taken as it is. Arrays are refused: an array of 8 bytes where
// a device pointer is wanted is a mistake.
bool Arguments::pack_other(PyObject* value, size_t index, const Parameter& parameter, uint8_t* out) const {
    const PyNumberMethods* methods = Py_TYPE(value)->tp_as_number;
    const bool has_float = methods != nullptr && methods->nb_float != nullptr;
    bool scalar = true;
    const bool by_value =
        (parameter.kind == Kind::floating && has_float) ||
        (parameter.kind != Kind::any && parameter.kind != Kind::raw && PyIndex_Check(value));
    if (PyObject_CheckBuffer(value)) {
        Py_buffer view;
        if (PyObject_GetBuffer(value, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) return false;
        const bool bytes = view.format == nullptr || std::strcmp(view.format, "B") == 0;
        scalar = view.ndim == 0;
        const bool fits = !(by_value && scalar) && view.len == static_cast<Py_ssize_t>(parameter.size) &&
                          (bytes || is_plain(view.format)) &&
                          (scalar || bytes || parameter.kind == Kind::raw);
        if (fits) std::memcpy(out, view.buf, parameter.size);
        PyBuffer_Release(&view);
        if (fits) return true;
    }
    if (!scalar || parameter.kind == Kind::raw)
        return refuse(PyExc_TypeError, value, index, parameter, "does not fit");
    if (parameter.kind == Kind::floating && has_float) return pack_float(value, index, parameter, out);
    if (parameter.kind != Kind::floating && PyIndex_Check(value)) {
        if (PyObject* number = PyNumber_Index(value); number != nullptr) {
            const bool packed = pack_integer(number, index, parameter, out);
            Py_DECREF(number);
            return packed;
        }
        if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) return false;
        PyErr_Clear();  // every array of NumPy's could be one
    }
    if (parameter.kind == Kind::any && has_float) return pack_float(value, index, parameter, out);
    return refuse(PyExc_TypeError, value, index, parameter, "does not fit");
}

}  // namespace fikit::python

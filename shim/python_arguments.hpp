// Kernel arguments from Python objects, by the kernel's own parameter layout.
//
// By the size of the parameter and the type of the value, or by the parameter's declared kind where the
// caller gave one. Nothing is allocated for ints, floats, bools and device memory.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fikit::python {

// Device memory as the launch path sees it; fikit.Memory derives from it.
struct DeviceBuffer {
    uint64_t address;
    uint64_t size;
    const void* session;
    bool freed;
};

enum class Kind : char { any = '?', integer = 'i', natural = 'u', floating = 'f', pointer = 'p', raw = 'b' };

struct Parameter {
    uint32_t offset;
    uint32_t size;
    Kind kind;
};

// Null when the object is no device memory.
using AsDeviceBuffer = const DeviceBuffer* (*)(PyObject*);

class Arguments {
  public:
    Arguments(std::string kernel, std::vector<Parameter> parameters, uint32_t bytes, AsDeviceBuffer as_buffer,
              const void* session)
        : kernel_(std::move(kernel)),
          parameters_(std::move(parameters)),
          bytes_(bytes),
          as_buffer_(as_buffer),
          session_(session) {}

    // Fills `out` (bytes() long). False with a Python exception set when an argument does not fit.
    bool pack(PyObject* const* values, size_t count, uint8_t* out) const;

    uint32_t bytes() const { return bytes_; }
    const std::string& kernel() const { return kernel_; }
    const std::vector<Parameter>& parameters() const { return parameters_; }

  private:
    bool pack_one(PyObject* value, size_t index, const Parameter& parameter, uint8_t* out) const;
    bool pack_integer(PyObject* value, size_t index, const Parameter& parameter, uint8_t* out) const;
    bool pack_float(PyObject* value, size_t index, const Parameter& parameter, uint8_t* out) const;
    bool pack_memory(const DeviceBuffer& memory, size_t index, const Parameter& parameter,
                     uint8_t* out) const;
    bool pack_other(PyObject* value, size_t index, const Parameter& parameter, uint8_t* out) const;
    bool refuse(PyObject* type, PyObject* value, size_t index, const Parameter& parameter,
                const char* why) const;

    std::string kernel_;
    std::vector<Parameter> parameters_;
    uint32_t bytes_;
    AsDeviceBuffer as_buffer_;
    const void* session_;  // whose memory the kernel may be given
};

}  // namespace fikit::python

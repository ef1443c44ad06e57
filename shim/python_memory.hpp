// Host memory as Python sees it: borrowed buffers, and pinned memory with the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <utility>

#include "producer.hpp"
#include "python_waits.hpp"

namespace fikit::python {

class View {  // a borrowed buffer of a Python object
  public:
    View(nanobind::handle object, int flags) {
        if (PyObject_GetBuffer(object.ptr(), &view_, flags | PyBUF_ANY_CONTIGUOUS) != 0)
            throw nanobind::python_error();
    }
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    ~View() { PyBuffer_Release(&view_); }
    void* data() const { return view_.buf; }
    uint64_t size() const { return static_cast<uint64_t>(view_.len); }

  private:
    Py_buffer view_{};
};

// Pinned memory cannot be freed while something (a NumPy array, say) still looks into it: its pages would go
// from under it.
class PinnedMemory {
  public:
    PinnedMemory(std::shared_ptr<Producer> producer, uint32_t handle, HostBuffer buffer, uint64_t bytes)
        : producer_(std::move(producer)), handle_(handle), buffer_(buffer), bytes_(bytes) {}
    PinnedMemory(const PinnedMemory&) = delete;
    PinnedMemory& operator=(const PinnedMemory&) = delete;
    ~PinnedMemory() {
        const nanobind::error_scope pending;  // of whoever drops the last reference
        try {
            give_back();
        } catch (nanobind::python_error& error) {
            error.discard_as_unraisable("the end of a PinnedMemory");
        }
    }

    void free() {
        if (handle_ == 0) return;
        if (views_ != 0)
            throw nanobind::buffer_error("the pinned memory is still in use (a NumPy array, a memoryview)");
        give_back();
    }
    uint64_t size() const { return bytes_; }
    uint64_t device_address() const { return handle_ != 0 ? buffer_.device_address : 0; }
    bool freed() const { return handle_ == 0; }

    static PyType_Slot slots[];

  private:
    void give_back() {
        if (const uint32_t handle = std::exchange(handle_, 0))
            // Refused only when the session is over, and then it is free.
            waiting([&] { return producer_->host_free(handle, true); });
    }
    static int get_buffer(PyObject* self, Py_buffer* view, int flags);
    static void release_buffer(PyObject* self, Py_buffer* view);

    std::shared_ptr<Producer> producer_;
    uint32_t handle_;
    HostBuffer buffer_;
    uint64_t bytes_;
    uint64_t views_ = 0;  // under the GIL
};

}  // namespace fikit::python

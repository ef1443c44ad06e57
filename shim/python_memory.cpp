#include "python_memory.hpp"

namespace nb = nanobind;

namespace fikit::python {

int PinnedMemory::get_buffer(PyObject* self, Py_buffer* view, int flags) {
    auto& memory = *nb::inst_ptr<PinnedMemory>(self);
    if (memory.freed()) {
        PyErr_SetString(PyExc_ValueError, "the pinned memory was freed");
        view->obj = nullptr;
        return -1;
    }
    const auto bytes = static_cast<Py_ssize_t>(memory.bytes_);
    const int status = PyBuffer_FillInfo(view, self, memory.buffer_.address, bytes, /*readonly=*/0, flags);
    if (status == 0) ++memory.views_;
    return status;
}

void PinnedMemory::release_buffer(PyObject* self, Py_buffer*) { --nb::inst_ptr<PinnedMemory>(self)->views_; }

PyType_Slot PinnedMemory::slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(&PinnedMemory::get_buffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(&PinnedMemory::release_buffer)},
    {0, nullptr},
};

}  // namespace fikit::python

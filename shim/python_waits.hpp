// Waiting from Python: without the GIL, with a look at Python's signals now and then.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "channel.hpp"

namespace fikit::python {

// What this thread's waits call now and then, to be ended by its exception; under the GIL.
inline thread_local PyObject* interrupt = nullptr;

// Whether a signal handler of Python, or what this thread's waits call, has raised: its exception is set
// then. Taking the GIL while a call waits is safe: whoever waits for that call has let go of the GIL.
inline bool python_interrupted() {
    const nanobind::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) return true;
    if (interrupt == nullptr) return false;
    PyObject* const result = PyObject_CallNoArgs(interrupt);
    Py_XDECREF(result);
    return result == nullptr;
}

// `function()`, whose waits call `interrupt_with` now and then.
inline nanobind::object interruptible(nanobind::handle interrupt_with, nanobind::handle function) {
    PyObject* const before = std::exchange(interrupt, interrupt_with.ptr());
    PyObject* const result = PyObject_CallNoArgs(function.ptr());
    interrupt = before;
    if (result == nullptr) throw nanobind::python_error();
    return nanobind::steal(result);
}

// Threads that wait without the GIL. Who takes it once the interpreter ends is thrown out of its frames,
// which ends the process where they are of C++.
inline std::atomic<int> away = 0;

struct Away {
    Away() { ++away; }
    ~Away() { --away; }
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;
};

// Until all of them are back, or `seconds` have passed. None is left in a forked child.
inline void await_back(double seconds) {
    const nanobind::gil_scoped_release released;
    for (const int64_t end = now_ns() + static_cast<int64_t>(seconds * 1e9); away > 0 && now_ns() < end;)
        usleep(1000);
}

// Runs what may wait, if only for room in the ring: a callback that the ring waits for may need the GIL.
// Where a signal handler of Python has raised meanwhile, so does this.
template <class Wait>
Status waiting(const Wait& wait) {
    Status status;
    {
        const Away counted;
        const nanobind::gil_scoped_release released;
        status = wait();
    }
    if (status == status::interrupted) throw nanobind::python_error();
    return status;
}

// `wait(deadline)` that many seconds away (negative: no limit).
template <class Wait>
Status waiting_for(double seconds, const Wait& wait) {
    const bool limited = seconds >= 0 && seconds <= 1e9;
    const int64_t deadline = limited ? now_ns() + static_cast<int64_t>(seconds * 1e9) : forever;
    return waiting([&] { return wait(deadline); });
}

}  // namespace fikit::python

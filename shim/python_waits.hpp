// Waiting from Python: without the GIL, in slices, with a look at Python's signals in between.
#pragma once

#include <nanobind/nanobind.h>

#include "channel.hpp"

namespace fikit::python {

inline constexpr int64_t signal_slice_ns = 50'000'000;

// Runs what may wait, if only for room in the ring: a callback that the ring waits for may need the GIL.
// Where a signal handler of Python has raised meanwhile, so does this.
template <class Wait>
Status waiting(const Wait& wait) {
    Status status;
    {
        const nanobind::gil_scoped_release released;
        status = wait();
    }
    if (status == status::interrupted) throw nanobind::python_error();
    return status;
}

// Runs `attempt(deadline)` until it is done, or until `timeout` seconds (negative: no limit) have passed.
template <class Attempt>
Status in_slices(double timeout, const Attempt& attempt) {
    const int64_t deadline =
        timeout < 0 || timeout > 1e9 ? forever : now_ns() + static_cast<int64_t>(timeout * 1e9);
    for (;;) {
        const Status status = waiting([&] {
            const int64_t slice = now_ns() + signal_slice_ns;
            return attempt(slice < deadline ? slice : deadline);
        });
        if (status != status::not_ready || now_ns() >= deadline) return status;
        if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
    }
}

}  // namespace fikit::python

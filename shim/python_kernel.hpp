// A kernel as Python launches it: handle, parameter layout, and the straight way into the ring.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "producer.hpp"
#include "python_arguments.hpp"

namespace fikit::python {

const DeviceBuffer* as_device_buffer(PyObject* object);

class Kernel {
  public:
    Kernel(std::shared_ptr<Producer> producer, uint32_t function, Arguments arguments)
        : producer_(std::move(producer)), function_(function), arguments_(std::move(arguments)) {}

    // `grid` and `block`: an int or a tuple of one to three. Without `wait`, not_ready when the ring is full.
    Status launch(uint32_t stream, nanobind::handle grid, nanobind::handle block, nanobind::handle shared,
                  nanobind::tuple values, bool wait) const;
    Status launch_attributed(uint32_t stream, nanobind::handle grid, nanobind::handle block,
                             nanobind::handle shared, nanobind::tuple values, bool wait, bool cooperative,
                             nanobind::handle cluster) const;
    uint32_t function() const { return function_; }
    const std::string& name() const { return arguments_.kernel(); }

  private:
    Status launch_with(uint32_t stream, nanobind::handle grid, nanobind::handle block,
                       nanobind::handle shared, nanobind::tuple values, bool wait,
                       const fikit_attribute* attributes, uint32_t count) const;

    std::shared_ptr<Producer> producer_;
    uint32_t function_;
    Arguments arguments_;
};

}  // namespace fikit::python

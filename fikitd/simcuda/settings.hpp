// What the environment says about the simulated machine (FIKIT_SIM_*, see DESIGN.md), and to any driver.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "device.hpp"

namespace fikit::sim {

struct Settings {
    double scale = 1;  // wall seconds per simulated second
    bool virtual_clock = false;
    std::size_t memory = model::default_memory;
    unsigned devices = 1;
    FaultPlan faults;
    // The allocation that fails, counted from 1; 0 is none.
    std::uint64_t failing_allocation = 0;
    CUresult allocation_result = CUDA_SUCCESS;
    double interference = 0;  // share of the bandwidth lost while several kernels move data
    std::string machine;      // whose devices several processes share; empty: nobody else has this process's
    bool pageable = false;    // the device says that kernels reach all memory of the process
    bool mps = false;         // contexts run side by side and take no turns
    bool verbose = false;
    bool launches_block = false;  // CUDA_LAUNCH_BLOCKING: a launch returns when its kernel has ended
    // How long kernels take whose code cannot be run, by name.
    std::map<std::string, Nanoseconds, std::less<>> kernel_times;
    Nanoseconds default_kernel_time = model::opaque_kernel;

    Nanoseconds kernel_time(std::string_view name) const {
        const auto found = kernel_times.find(name);
        return found != kernel_times.end() ? found->second : default_kernel_time;
    }
};

// Reads the environment. On a bad value, false, and `problem` names the variable.
bool read_settings(Settings& settings, std::string& problem);

}  // namespace fikit::sim

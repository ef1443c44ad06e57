// What the environment says about the simulated machine (FIKIT_SIM_*, see DESIGN.md).
#pragma once

#include <string>

#include "device.hpp"

namespace fikit::sim {

struct Settings {
    double scale = 1;  // wall seconds per simulated second
    bool virtual_clock = false;
    std::size_t memory = model::default_memory;
    unsigned devices = 1;
    FaultPlan faults;
    double interference = 0;  // share of the bandwidth lost while several kernels move data
    bool mps = false;         // contexts run side by side and take no turns
    bool verbose = false;
};

// Reads the environment. On a bad value, false, and `problem` names the variable.
bool read_settings(Settings& settings, std::string& problem);

}  // namespace fikit::sim

// See settings.hpp.
#include "settings.hpp"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

namespace fikit::sim {

namespace {

bool whole_number(std::string_view text, std::uint64_t& value) {
    if (text.empty() || text.size() > 19 || text.find_first_not_of("0123456789") != std::string_view::npos)
        return false;
    value = std::strtoull(std::string(text).c_str(), nullptr, 10);
    return true;
}

// Whatever separates decimals in the program's locale.
bool number(std::string_view text, double low, double high, double& value) {
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    return error == std::errc() && rest == end && std::isfinite(value) && value >= low && value <= high;
}

// A number is every opaque kernel's time; else it names a file with lines of a kernel's name and its time,
// in nanoseconds, where the name * stands for all others.
bool read_kernel_times(const char* text, Settings& settings) {
    constexpr std::uint64_t longest = 1'000'000'000'000;
    std::uint64_t time = 0;
    if (whole_number(text, time)) {
        settings.default_kernel_time = static_cast<Nanoseconds>(time);
        return time <= longest;
    }
    std::ifstream file(text);
    if (!file) return false;
    std::string line;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string name, number, more;
        if (!(words >> name) || name.front() == '#') continue;
        if (!(words >> number) || words >> more || !whole_number(number, time) || time > longest)
            return false;
        if (name == "*")
            settings.default_kernel_time = static_cast<Nanoseconds>(time);
        else
            settings.kernel_times[name] = static_cast<Nanoseconds>(time);
    }
    return true;
}

bool result_code(std::string_view text, CUresult& result) {
    std::uint64_t code = 0;
    if (!whole_number(text, code) || code == 0 || code > 999) return false;
    result = static_cast<CUresult>(code);
    return true;
}

// launch:17=700   allocation:5=2   copy:3=stall   copy:3=719   device_lost:after=100   several parted by ','
bool read_fault(std::string_view text, Settings& settings) {
    FaultPlan& faults = settings.faults;
    const std::size_t colon = text.find(':');
    const std::size_t equals = text.find('=');
    if (colon == std::string_view::npos || equals == std::string_view::npos || equals < colon) return false;
    const std::string_view what = text.substr(0, colon);
    const std::string_view where = text.substr(colon + 1, equals - colon - 1);
    const std::string_view effect = text.substr(equals + 1);
    if (what == "device_lost")
        return where == "after" && whole_number(effect, faults.lost_after) && faults.lost_after > 0;
    std::uint64_t number = 0;
    if (!whole_number(where, number) || number == 0) return false;
    if (what == "launch") {
        faults.launch = number;
        return result_code(effect, faults.launch_result);
    }
    if (what == "allocation") {
        settings.failing_allocation = number;
        return result_code(effect, settings.allocation_result);
    }
    if (what != "copy") return false;
    faults.copy = number;
    return effect == "stall" || result_code(effect, faults.copy_result);
}

}  // namespace

bool read_settings(Settings& settings, std::string& problem) {
    const auto reject = [&](const char* name, const char* value, const char* wanted) {
        problem = std::string(name) + "=" + value + ": " + wanted;
        return false;
    };
    if (const char* text = std::getenv("FIKIT_SIM_SCALE")) {
        if (!number(text, 0.001, 1e6, settings.scale)) {
            return reject("FIKIT_SIM_SCALE", text,
                          "wanted wall seconds per simulated second, 0.001 to 1000000");
        }
    }
    if (const char* text = std::getenv("FIKIT_SIM_INTERFERENCE")) {
        if (!number(text, 0, 0.9, settings.interference)) {
            return reject("FIKIT_SIM_INTERFERENCE", text,
                          "wanted the share of bandwidth lost while several kernels move data, 0 to 0.9");
        }
    }
    if (const char* text = std::getenv("FIKIT_SIM_CLOCK")) {
        settings.virtual_clock = std::string_view(text) == "virtual";
        if (!settings.virtual_clock && std::string_view(text) != "dilated")
            return reject("FIKIT_SIM_CLOCK", text, "wanted dilated or virtual");
    }
    std::uint64_t value = 0;
    if (const char* text = std::getenv("FIKIT_SIM_MEMORY")) {
        if (!whole_number(text, value) || value < model::page || value > (std::uint64_t{1} << 44)) {
            return reject("FIKIT_SIM_MEMORY", text, "wanted bytes, 2 MiB to 16 TiB");
        }
        settings.memory = value;
    }
    if (const char* text = std::getenv("FIKIT_SIM_DEVICES")) {
        if (!whole_number(text, value) || value > 16)
            return reject("FIKIT_SIM_DEVICES", text, "wanted 0 to 16");
        settings.devices = static_cast<unsigned>(value);
    }
    if (const char* text = std::getenv("FIKIT_SIM_FAULT")) {
        std::string_view rest(text);
        while (!rest.empty()) {
            const std::size_t comma = std::min(rest.find(','), rest.size());
            if (!read_fault(rest.substr(0, comma), settings)) {
                return reject(
                    "FIKIT_SIM_FAULT", text,
                    "wanted launch:N=CODE, allocation:N=CODE, copy:N=CODE|stall or device_lost:after=N");
            }
            rest.remove_prefix(std::min(comma + 1, rest.size()));
        }
    }
    if (const char* text = std::getenv("FIKIT_SIM_MACHINE")) {
        settings.machine = text;
        if (settings.machine.size() > 200 || settings.machine.starts_with('.'))
            return reject("FIKIT_SIM_MACHINE", text, "wanted a short name or a path");
        if (!settings.machine.empty() && settings.virtual_clock)
            return reject("FIKIT_SIM_MACHINE", text, "the virtual clock is a single process's");
    }
    if (const char* text = std::getenv("FIKIT_SIM_KERNEL_TIMES")) {
        if (!read_kernel_times(text, settings)) {
            return reject("FIKIT_SIM_KERNEL_TIMES", text,
                          "wanted nanoseconds, up to 1000 s, or a file of lines of name and nanoseconds");
        }
    }
    if (const char* text = std::getenv("CUDA_LAUNCH_BLOCKING"))
        settings.launches_block = std::atoi(text) != 0;
    if (const char* text = std::getenv("FIKIT_SIM_MPS")) settings.mps = std::string_view(text) == "1";
    if (const char* text = std::getenv("FIKIT_SIM_PAGEABLE"))
        settings.pageable = std::string_view(text) == "1";
    if (const char* text = std::getenv("FIKIT_SIM_VERBOSE")) settings.verbose = std::string_view(text) == "1";
    return true;
}

}  // namespace fikit::sim

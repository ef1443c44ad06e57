// What is measured, twice: libcuda itself, and a session of fikit. One call here is one call there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fikit::bench {

// PTX of an empty kernel of two parameters, and of two that last for a number of nanoseconds or of the SM's
// cycles.
inline std::string kernels() {
    const auto lasting = [](const std::string& name, const std::string& clock) {
        return ".visible .entry " + name +
               "(.param .u64 length, .param .u64 second)\n"
               "{ .reg .u64 %begin, %now, %length; .reg .pred %more;\n"
               "ld.param.u64 %length, [length];\n"
               "mov.u64 %begin, " +
               clock +
               ";\n"
               "again: mov.u64 %now, " +
               clock +
               ";\n"
               "sub.u64 %now, %now, %begin;\n"
               "setp.lt.u64 %more, %now, %length;\n"
               "@%more bra again;\nret; }\n";
    };
    return ".version 7.0\n.target sm_52\n.address_size 64\n"
           ".visible .entry empty(.param .u64 first, .param .u64 second) { ret; }\n" +
           lasting("nanoseconds", "%globaltimer") + lasting("cycles", "%clock64");
}
enum Kernel : unsigned { empty, nanoseconds, cycles };
inline constexpr const char* kernel_names[] = {"empty", "nanoseconds", "cycles"};

class Target {
  public:
    virtual ~Target() = default;
    virtual void launch(Kernel kernel = empty, uint64_t length = 1) = 0;
    virtual void synchronize() = 0;
    virtual uint64_t allocate(uint64_t bytes) = 0;
    virtual void free(uint64_t address) = 0;
    virtual void* allocate_pinned(uint64_t bytes) = 0;
    // Asynchronous from and to pinned memory; otherwise done on return.
    virtual void copy_to_device(uint64_t to, const void* from, uint64_t bytes, bool pinned) = 0;
    virtual void copy_to_host(void* to, uint64_t from, uint64_t bytes, bool pinned) = 0;
};

// Both end the program with a message when something fails.
std::unique_ptr<Target> direct(const std::string& library, int ordinal);
std::unique_ptr<Target> through(int outbox, int inbox, int lifeline);
[[noreturn]] void give_up(const std::string& what, int status);

}  // namespace fikit::bench

// A loaded PTX module: what parse() makes, the driver describes and the engine runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fikit::sim::ptx {

struct Parameter {
    std::uint32_t offset;
    std::uint32_t bytes;
};

struct Function;  // program.hpp
struct Program;

// An .entry function, as the driver sees it.
struct Kernel {
    std::string name;
    std::vector<Parameter> parameters;
    std::uint32_t parameter_bytes = 0;
    std::uint32_t registers_per_thread = 0;  // what the hardware would allocate (estimated)
    std::uint32_t static_shared = 0;
    std::uint32_t local_bytes = 0;          // per thread
    std::uint32_t threads_limit = 1024;     // .maxntid or .reqntid
    std::uint32_t required[3] = {0, 0, 0};  // .reqntid
    std::uint32_t cluster[3] = {0, 0, 0};   // .reqnctapercluster
    bool clustered = false;                 // .explicitcluster, or a cluster of its own
    // Nothing in it depends on which thread or block runs: one execution stands for all.
    bool uniform = false;
    // Both live as long as the module's program.
    const Function* body = nullptr;
    const Program* program = nullptr;
};

// What an initial value refers to: the address of a variable, or of a function.
struct Relocation {
    std::uint64_t offset;  // in the variable
    std::uint32_t bytes;
    std::uint64_t addend;
    std::uint32_t variable;  // whose address; none: `addend` is a code address
    unsigned shift;          // mask(symbol): which byte
    static constexpr std::uint32_t none = ~std::uint32_t{0};
};

// A variable of .global or .const at module scope.
struct Variable {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint32_t alignment = 1;
    bool constant = false;
    bool managed = false;               // the host has it at the same address
    std::vector<std::uint8_t> initial;  // shorter than bytes: the rest is zero
    std::vector<Relocation> relocations;
};

struct Module {
    std::vector<Kernel> kernels;
    std::vector<Variable> variables;
    std::vector<std::string> undefined;  // variables that are only declared; they are there all the same
    unsigned target = 0;                 // 90 for sm_90
    unsigned version = 0;                // of the PTX ISA: 80 for 8.0
    std::shared_ptr<const Program> program;
};

// The first bytes of a variable, with the addresses of others filled in.
std::vector<std::uint8_t> initial_bytes(const Variable& variable,
                                        const std::vector<std::uint64_t>& addresses);

enum class Verdict { accepted, invalid, unsupported_version };

// Parses and lowers `text`. On anything but `accepted`, `log` says what was wrong, as "ptxas ...,
// line N; error : ...".
Verdict parse(std::string_view text, Module& module, std::string& log);

}  // namespace fikit::sim::ptx

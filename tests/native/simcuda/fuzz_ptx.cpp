// The fuzz target of the PTX loader: whatever it accepts must also run without harm.
#include <cstring>
#include <string>

#include "ptx/execution.hpp"

using namespace fikit::sim;

namespace {

struct NoMemory final : GlobalMemory {
    alignas(8) std::byte bytes[64] = {};
    std::byte* at(std::uint64_t address, std::size_t size, bool) override {
        return address + size <= sizeof bytes && address + size >= size ? bytes + address : nullptr;
    }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ptx::Module module;
    std::string log;
    if (ptx::parse({reinterpret_cast<const char*>(data), size}, module, log) != ptx::Verdict::accepted)
        return 0;
    const std::vector<std::uint64_t> variables(module.variables.size(), 8);
    for (const ptx::Variable& variable : module.variables) ptx::initial_bytes(variable, variables);
    NoMemory memory;
    for (const ptx::Kernel& kernel : module.kernels) {
        LaunchShape shape;
        shape.block = {kernel.uniform ? 1U : 40U, 1, 1};
        KernelRun run(kernel, std::vector<std::byte>(kernel.parameter_bytes), shape, variables, 0);
        BlockExecution block(run, 0, 0);
        Nanoseconds now = 0;
        for (int turn = 0; turn < 4; ++turn) {
            const Progress progress = block.resume(memory, now, 1000);
            if (progress.state != Progress::State::waiting && progress.state != Progress::State::running)
                break;
            now = progress.until;
        }
        run.output.clear();
    }
    return 0;
}

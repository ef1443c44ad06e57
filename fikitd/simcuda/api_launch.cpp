// Launches.
#include "command.hpp"

using namespace fikit::sim;

namespace {

CUresult launch(CUfunction handle, const LaunchShape& shape, unsigned shared, CUstream where,
                void** parameters, void** extra, const LaunchOptions& options) {
    return with_stream(
        where, [&](Driver& driver, Driver::Lock& lock, Stream& stream, SimulatedDevice&) -> CUresult {
            LaunchCommand command;
            CUresult result = make_launch(driver, *stream.context, handle, shape, shared, parameters, extra,
                                          options, stream.partition.get(), command);
            if (result != CUDA_SUCCESS) return result;
            if (!stream.capture.capture) {
                // Meanwhile another thread may have destroyed the stream.
                Context& context = *stream.context;
                result = driver.wait_for_room(lock, stream);
                Stream* found = nullptr;
                if (result == CUDA_SUCCESS) result = resolve_stream(driver, context, where, found);
                if (result != CUDA_SUCCESS) return result;
            }
            return issue(driver, stream, std::move(command));
        });
}

}  // namespace

extern "C" {

CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
                        unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                        CUstream stream, void** parameters, void** extra) {
    return launch(function, {{gx, gy, gz}, {bx, by, bz}}, shared, stream, parameters, extra, {});
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
                                   unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                                   CUstream stream, void** parameters) {
    LaunchOptions options;
    options.cooperative = true;
    return launch(function, {{gx, gy, gz}, {bx, by, bz}}, shared, stream, parameters, nullptr, options);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
    if (config == nullptr || (config->numAttrs > 0 && config->attrs == nullptr))
        return CUDA_ERROR_INVALID_VALUE;
    LaunchOptions options;
    for (unsigned index = 0; index < config->numAttrs; ++index) {
        const CUresult result = read_launch_attribute(config->attrs[index], options);
        if (result != CUDA_SUCCESS) return result;
    }
    return launch(function,
                  {{config->gridDimX, config->gridDimY, config->gridDimZ},
                   {config->blockDimX, config->blockDimY, config->blockDimZ}},
                  config->sharedMemBytes, config->hStream, parameters, extra, options);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
    return with_stream(handle,
                       [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
                           return issue(driver, stream, HostCommand{function, data});
                       });
}

}  // extern "C"

// Launches.
#include "capture.hpp"
#include "command.hpp"

using namespace fikit::sim;

namespace {

CUresult launch(CUfunction handle, const LaunchShape& shape, unsigned shared, CUstream where,
                void** parameters, void** extra, const LaunchOptions& options) {
    return with_stream(
        where, [&](Driver& driver, Driver::Lock& lock, Stream& stream, SimulatedDevice& device) -> CUresult {
            LaunchCommand command;
            CUresult result = make_launch(driver, *stream.context, handle, shape, shared, parameters, extra,
                                          options, stream.partition.get(), command);
            if (result != CUDA_SUCCESS) {
                if (result != CUDA_ERROR_INVALID_HANDLE) refuse_in_capture(stream);
                return result;
            }
            if (!stream.capture.capture) {
                // Meanwhile another thread may have destroyed the stream.
                Context& context = *stream.context;
                result = driver.wait_for_room(lock, stream);
                Stream* found = nullptr;
                if (result == CUDA_SUCCESS) result = resolve_stream(driver, context, where, found);
                if (result != CUDA_SUCCESS) return result;
            }
            OperationPtr issued;
            result = issue(driver, stream, std::move(command), &issued);
            const bool waits = driver.settings.launches_block && result == CUDA_SUCCESS && issued;
            return waits ? driver.wait(lock, device, issued) : result;
        });
}

// An event that a launch records: here when the kernel has ended, which CUDA allows (cuda.h,
// CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT). In a capture it stands for what it is of the kernel (CUDA C++
// Programming Guide, "Use in CUDA Graphs").
bool names_event(const CUlaunchAttribute& attribute, CUevent& event, int& flags,
                 CUgraphEdgeData& stands_for) {
    const CUgraphEdgeData begun{
        CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER, 0, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT, {}};
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
        event = attribute.value.launchCompletionEvent.event;
        flags = attribute.value.launchCompletionEvent.flags;
        stands_for = begun;
        return true;
    }
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) return false;
    event = attribute.value.programmaticEvent.event;
    flags = attribute.value.programmaticEvent.flags;
    stands_for = begun;
    stands_for.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    if (attribute.value.programmaticEvent.triggerAtBlockStart == 0)
        stands_for.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    return true;
}

CUresult check_event(CUevent handle, int flags, CUstream where) {
    return with_stream(
        where, [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
            const Event* const event = driver.events.find(handle);
            if (event == nullptr || &home_of(*event->context) != &home_of(*stream.context))
                return CUDA_ERROR_INVALID_HANDLE;
            if (event->timing()) return CUDA_ERROR_NOT_SUPPORTED;
            return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;  // external: to a capture
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
    CUevent event = nullptr;
    CUgraphEdgeData stands_for{};
    for (unsigned index = 0; index < config->numAttrs; ++index) {
        const CUlaunchAttribute& attribute = config->attrs[index];
        int flags = 0;
        const CUresult result = names_event(attribute, event, flags, stands_for)
                                    ? check_event(event, flags, config->hStream)
                                    : read_launch_attribute(attribute, options);
        if (result != CUDA_SUCCESS) return result;
    }
    const CUresult result = launch(function,
                                   {{config->gridDimX, config->gridDimY, config->gridDimZ},
                                    {config->blockDimX, config->blockDimY, config->blockDimZ}},
                                   config->sharedMemBytes, config->hStream, parameters, extra, options);
    return result == CUDA_SUCCESS && event != nullptr ? record_event(event, config->hStream, 0, &stands_for)
                                                      : result;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
    return with_stream(handle,
                       [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
                           return issue(driver, stream, HostCommand{function, data});
                       });
}

}  // extern "C"

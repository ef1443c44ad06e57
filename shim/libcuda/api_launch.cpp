// Launches. Everything about the kernel is behind its handle, so a launch is: find the stream's number,
// reserve room in the ring, copy the parameters there.
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <new>

#include "capture.hpp"
#include "entry.hpp"
#include "launches.hpp"
#include "printed.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

bool may_begin_early(const fikit_attribute* attributes, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
        CUlaunchAttributeValue value;
        memcpy(&value, attributes[i].value, sizeof value);
        if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return value.programmaticStreamSerializationAllowed != 0;
    }
    return false;
}

// What a plain launch is made of stays in registers: it is written to memory, as a copy, for others alone.
template <class Pack>
[[gnu::noinline]] CUresult capture(const Function& function, const LaunchShape& shape,
                                   const fikit_attribute* attributes, Pack pack) {
    return captures.add(shape.stream, CU_GRAPH_NODE_TYPE_KERNEL, [&](Node& node) {
        node.function = reinterpret_cast<CUfunction>(const_cast<Function*>(&function));
        node.shape = shape;
        if (!make_room(node, function)) return false;
        if (shape.attributes != 0) memcpy(node.packed, attributes, shape.attributes * sizeof *attributes);
        if (may_begin_early(attributes, shape.attributes))
            for (Edge& edge : node.before) edge.let_begin_early();
        pack(node.parameters());
        return true;
    });
}

[[gnu::noinline]] CUresult wait_for_end(uint32_t stream) {
    return synchronised(device_of(stream), producer_of(stream).stream_synchronize(stream_number(stream)));
}

template <class Pack>
[[gnu::always_inline]] inline CUresult issue(const Function& function, const LaunchShape& shape,
                                             const fikit_attribute* attributes, const Pack& pack) {
    if (const CUresult result = check_reach(function, pack); result != CUDA_SUCCESS) [[unlikely]]
        return captures.forbid(shape.stream, result);
    if (captures.capturing(shape.stream)) [[unlikely]] {
        const LaunchShape captured = shape;
        return capture(function, captured, attributes, pack);
    }
    LaunchShape issued = shape;
    issued.stream = stream_number(shape.stream);
    const Status status = producer_of(shape.stream).launch_with(issued, attributes, pack);
    if (process.launches_block() && status == status::success) [[unlikely]]
        return wait_for_end(shape.stream);
    return result_of(status);
}

[[gnu::always_inline]] inline CUresult launch(const Function& function, LaunchShape shape,
                                              const fikit_attribute* attributes, void** parameters,
                                              void** extra) {
    if (!possible(shape, function)) [[unlikely]]
        if (const CUresult result = refusal(shape, function); result != CUDA_SUCCESS)
            return captures.forbid(shape.stream, result);
    shape.function = function.number;
    shape.parameter_bytes = function.parameter_bytes;
    if (parameters != nullptr ? extra == nullptr : function.parameters == 0) [[likely]]
        return issue(function, shape, attributes, FromPointers{function, parameters});
    FromBuffer buffer;
    // Given in both ways they are refused (cuda.h).
    const CUresult result = parameters != nullptr ? CUDA_ERROR_INVALID_VALUE : buffer.find(function, extra);
    if (result != CUDA_SUCCESS) return captures.forbid(shape.stream, result);
    return issue(function, shape, attributes, buffer);
}

// Of a launch of no kernel, or of one that cannot run there: what the stream's captures have against it.
[[gnu::noinline]] CUresult no_kernel(CUstream stream) {
    uint32_t name = 0;
    const CUresult result = use_stream(stream, name);
    return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_HANDLE : result;
}

// Perhaps it is not this kernel that runs on the stream.
bool needs_search(const Function& function, uint32_t stream) {
    return function.device != stream >> stream_bits || process.made_contexts();
}

// The kernel on the stream's device: of a library it is there on all; nullptr: not this one, or not in the
// stream's context.
const Function* find_on_device(CUstream handle, uint32_t stream, const Function& function) {
    if (!is_at_home(function, handle)) return nullptr;
    return function.device == stream >> stream_bits ? &function : twin_of(function, device_of(stream));
}
[[gnu::noinline]] const Function* find_on_device(const CUlaunchConfig& config, uint32_t stream,
                                                 const Function& function) {
    return find_on_device(config.hStream, stream, function);
}

[[gnu::noinline]] CUresult launch_twin(const Function& function, CUstream stream, const LaunchShape& shape,
                                       void** parameters, void** extra) {
    const Function* const twin = find_on_device(stream, shape.stream, function);
    return twin != nullptr ? launch(*twin, shape, nullptr, parameters, extra) : no_kernel(stream);
}

// All blocks of a cooperative launch must be there at once.
CUresult fits(const Function& function, const LaunchShape& shape) {
    int blocks = 0;
    const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
    if (const CUresult result = refusal(shape, function); result != CUDA_SUCCESS) return result;
    const CUresult result =
        occupancy(const_cast<Function*>(&function), static_cast<int>(threads), shape.shared_bytes, 0, blocks);
    if (result != CUDA_SUCCESS) return result;
    const auto processors = static_cast<uint64_t>(
        device_of(shape.stream).attributes.attribute[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT]);
    const uint64_t grid = uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
    return grid <= static_cast<uint64_t>(blocks) * processors ? CUDA_SUCCESS
                                                              : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

}  // namespace

// Whole clusters of a size that the device can run, and no other than the function's own.
CUresult fits_clusters(const Function& function, const LaunchShape& shape,
                       const CUlaunchAttributeValue& given) {
    const auto& cluster = given.clusterDim;
    const int32_t* const own =
        function.attribute + CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;  // height, depth
    const auto differs = [](int32_t demanded, unsigned wanted) {
        return static_cast<unsigned>(demanded) != wanted;
    };
    if (has_own_clusters(function) &&
        (differs(own[0], cluster.x) || differs(own[1], cluster.y) || differs(own[2], cluster.z)))
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    const bool large = function.attribute[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] != 0;
    const uint64_t most = large ? 16 : 8;
    if (cluster.x - 1 >= most || cluster.y - 1 >= most || cluster.z - 1 >= most ||
        uint64_t{cluster.x} * cluster.y * cluster.z > most)
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    const bool whole =
        shape.grid[0] % cluster.x == 0 && shape.grid[1] % cluster.y == 0 && shape.grid[2] % cluster.z == 0;
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

namespace {

// As driver 580 takes it: all zero, as a structure not filled in.
bool asks_for_no_clusters(const CUlaunchAttribute& given) {
    const auto& size = given.value.clusterDim;
    return given.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && size.x == 0 && size.y == 0 && size.z == 0;
}

CUresult fits_own_clusters(const Function& function, const LaunchShape& shape) {
    const int32_t* const own = function.attribute + CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
    if (!has_own_clusters(function)) {
        // Among attributes there may be its size; if not, the driver finds out.
        const bool missing =
            shape.attributes == 0 && function.attribute[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] == 1;
        return missing ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
    }
    CUlaunchAttributeValue value = {};
    const auto size = [&](unsigned dimension) { return static_cast<unsigned>(own[dimension]); };
    value.clusterDim = {size(0), size(1), size(2)};
    return fits_clusters(function, shape, value);
}

// The event of an attribute, recorded when the kernel has ended: later than it might be, which CUDA allows
// (cuda.h, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT). In a capture it stands for what it is of the kernel
// (CUDA C++ Programming Guide, "Use in CUDA Graphs").
CUresult find_event(const CUlaunchAttribute& given, CUstream stream, CUevent& handle,
                    CUgraphEdgeData& stands_for) {
    const bool begun = given.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
    handle = begun ? given.value.launchCompletionEvent.event : given.value.programmaticEvent.event;
    const int flags = begun ? given.value.launchCompletionEvent.flags : given.value.programmaticEvent.flags;
    const Event* const event = event_of(handle);
    if (event == nullptr || !is_of(event->context, stream)) return CUDA_ERROR_INVALID_HANDLE;
    if ((event->flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_NOT_SUPPORTED;
    const bool all_begun = begun || given.value.programmaticEvent.triggerAtBlockStart != 0;
    stands_for.from_port =
        all_begun ? CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER : CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    stands_for.type = begun ? CU_GRAPH_DEPENDENCY_TYPE_DEFAULT : CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;  // external: to a capture
}

// Hints that a captured launch was given: its node tells of them.
[[gnu::noinline]] void tell_hints(const CUlaunchConfig& config, uint32_t stream) {
    CUstreamCaptureStatus status;
    cuuint64_t id;
    Graph* graph;
    const CUgraphNode* last;
    const CUgraphEdgeData* edges;
    size_t count = 0;
    captures.information(stream, status, id, graph, last, edges, count);
    for (unsigned i = 0; i < config.numAttrs && count == 1; ++i)
        if (use_of(config.attrs[i].id) == AttributeUse::hint)
            fikit::shim::cuGraphKernelNodeSetAttribute(*last, config.attrs[i].id, &config.attrs[i].value);
}

fikit_attribute cooperative_attribute() {
    CUlaunchAttributeValue value = {};
    value.cooperative = 1;
    fikit_attribute attribute = {CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 0, {}};
    memcpy(attribute.value, &value, sizeof attribute.value);
    return attribute;
}

struct Callback {
    CUstreamCallback function;
    CUstream stream;
    void* argument;
};

void call_back(void* memory, Status status) {
    const Callback callback = *static_cast<Callback*>(memory);
    free(memory);
    if (status != status::context_is_destroyed)  // the program knows, and what it gave may be gone
        callback.function(callback.stream, result_of(status), callback.argument);
}
void run_callback(void* memory) { call_back(memory, status::success); }

}  // namespace

// Registers are given to whole warps, 256 at a time, and to four warps together. A kernel whose limit is
// lower than its registers allow has it from its launch bounds.
[[gnu::noinline]] CUresult refusal(LaunchShape shape, const Function& function) {
    // Clusters are looked at behind grid and block, but before shared memory.
    LaunchShape bare = shape;
    bare.shared_bytes = 0;
    const CUresult result = within_limits(bare, function) ? fits_own_clusters(function, shape) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS || within_limits(shape, function)) return result;
    constexpr int warp = 32, unit = 256, together = 4;
    const int most = function.attribute[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
    const int each = (function.attribute[CU_FUNC_ATTRIBUTE_NUM_REGS] * warp + unit - 1) / unit * unit;
    const int all =
        process.device(function.device).attributes.attribute[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK];
    if (each == 0 || all / each / together * together * warp > most) return CUDA_ERROR_INVALID_VALUE;
    // With as many threads as it may have, is there anything else wrong?
    const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
    if (threads <= static_cast<uint64_t>(most) || threads > 1024 || shape.block[2] > 64)
        return CUDA_ERROR_INVALID_VALUE;
    shape.block[0] = shape.block[1] = shape.block[2] = 1;
    return within_limits(shape, function) ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLaunchKernel(CUfunction handle, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z,
                        unsigned int shared_bytes, CUstream stream, void** parameters, void** extra) {
    const Function* const function = function_of(handle);
    if (function == nullptr) [[unlikely]]
        return no_kernel(stream);
    uint32_t name = 0;
    if (const CUresult result = find_stream(stream, name); result != CUDA_SUCCESS) [[unlikely]]
        return result;
    const LaunchShape shape = {0, name, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes,
                               0, 0};
    if (needs_search(*function, name)) [[unlikely]] {
        const LaunchShape other = shape;
        return launch_twin(*function, stream, other, parameters, extra);
    }
    return launch(*function, shape, nullptr, parameters, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction handle, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void** parameters) {
    const Function* function = function_of(handle);
    if (function == nullptr) return no_kernel(stream);
    LaunchShape shape = {0, 0, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, 0, 1};
    if (const CUresult result = find_stream(stream, shape.stream); result != CUDA_SUCCESS) return result;
    function = find_on_device(stream, shape.stream, *function);
    if (function == nullptr) return no_kernel(stream);
    if (const CUresult result = fits(*function, shape); result != CUDA_SUCCESS)
        return captures.forbid(shape.stream, result);
    const fikit_attribute attribute = cooperative_attribute();
    return launch(*function, shape, &attribute, parameters, nullptr);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction handle, void** parameters, void** extra) {
    if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr))
        return CUDA_ERROR_INVALID_VALUE;
    const Function* function = function_of(handle);
    if (function == nullptr) return no_kernel(config->hStream);
    LaunchShape shape = {0,
                         0,
                         {config->gridDimX, config->gridDimY, config->gridDimZ},
                         {config->blockDimX, config->blockDimY, config->blockDimZ},
                         config->sharedMemBytes,
                         0,
                         0};
    if (const CUresult result = find_stream(config->hStream, shape.stream); result != CUDA_SUCCESS)
        return result;
    if (needs_search(*function, shape.stream)) [[unlikely]] {
        function = find_on_device(*config, shape.stream, *function);
        if (function == nullptr) return no_kernel(config->hStream);
    }
    fikit_attribute attributes[FIKIT_MAX_ATTRIBUTES];
    CUevent event = nullptr;
    CUgraphEdgeData stands_for = {};
    bool hinted = false;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        const CUlaunchAttribute& given = config->attrs[i];
        const AttributeUse use = use_of(given.id);
        if (given.id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY &&
            (given.value.syncPolicy < CU_SYNC_POLICY_AUTO ||
             given.value.syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC))
            return captures.forbid(shape.stream, CUDA_ERROR_INVALID_VALUE);
        if (use == AttributeUse::hint) {
            hinted = true;
            continue;
        }
        if (use == AttributeUse::event) {
            if (const CUresult result = find_event(given, config->hStream, event, stands_for);
                result != CUDA_SUCCESS)
                return result;
            continue;
        }
        if (asks_for_no_clusters(given)) continue;
        if (use != AttributeUse::sent || shape.attributes == FIKIT_MAX_ATTRIBUTES) {
            call_log.say("launch attribute %d is not supported", static_cast<int>(given.id));
            return captures.forbid(shape.stream, use == AttributeUse::unknown ? CUDA_ERROR_INVALID_VALUE
                                                                              : CUDA_ERROR_NOT_SUPPORTED);
        }
        fikit_attribute& attribute = attributes[shape.attributes++];
        attribute.id = static_cast<uint32_t>(given.id);
        attribute.reserved = 0;
        static_assert(sizeof attribute.value == sizeof given.value);
        memcpy(attribute.value, &given.value, sizeof attribute.value);
        if (given.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && given.value.cooperative != 0)
            if (const CUresult result = fits(*function, shape); result != CUDA_SUCCESS)
                return captures.forbid(shape.stream, result);
        if (given.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            if (const CUresult result = fits_clusters(*function, shape, given.value); result != CUDA_SUCCESS)
                return captures.forbid(shape.stream, result);
    }
    const CUresult result = launch(*function, shape, attributes, parameters, extra);
    if (hinted && result == CUDA_SUCCESS && captures.capturing(shape.stream)) [[unlikely]]
        tell_hints(*config, shape.stream);
    return result == CUDA_SUCCESS && event != nullptr
               ? record_event(event, config->hStream, CU_EVENT_RECORD_DEFAULT, &stands_for)
               : result;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
    uint32_t name = 0;
    if (const CUresult result = use_stream(stream, name); result != CUDA_SUCCESS) return result;
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (captures.capturing(name)) {
        return captures.add(name, CU_GRAPH_NODE_TYPE_HOST, [&](Node& node) {
            node.host = {function, argument};
            return true;
        });
    }
    return result_of(producer_of(name).host_function(stream_number(name), function, argument));
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void* argument, unsigned int flags) {
    if (function == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    uint32_t name = 0;
    if (const CUresult result = use_stream(stream, name, InCapture::refused); result != CUDA_SUCCESS)
        return result;
    auto* const callback = static_cast<Callback*>(malloc(sizeof(Callback)));
    if (callback == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *callback = {function, stream, argument};
    const Status status =
        producer_of(name).host_function(stream_number(name), run_callback, callback, call_back);
    if (status != status::success) free(callback);
    return result_of(status);
}

}  // namespace fikit::shim

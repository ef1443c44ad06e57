// See command.hpp; copies and fills are command_copy.cpp's.
#include "command.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>

#include "capture.hpp"
#include "node_attributes.hpp"

namespace fikit::sim {

namespace {

template <typename... Visitors>
struct Overloaded : Visitors... {
    using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

// The kernel's parameter buffer, from an array of pointers or from one packed buffer.
CUresult gather(const ptx::Kernel& kernel, void** parameters, void** extra, std::vector<std::byte>& buffer) {
    buffer.resize(kernel.parameter_bytes);
    if (parameters != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (extra != nullptr) {
        const void* packed = nullptr;
        std::size_t bytes = 0;
        for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
            if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
                packed = extra[1];
            else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
                bytes = *static_cast<const std::size_t*>(extra[1]);
            else
                return CUDA_ERROR_INVALID_VALUE;
        }
        // Slang gives null for a kernel that takes nothing.
        if ((packed == nullptr && bytes != 0) || (bytes == 0 && !buffer.empty()))
            return CUDA_ERROR_INVALID_VALUE;
        if (bytes > buffer.size()) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
        // One that is too short is taken by an H200's driver; what is missing is anything, here zero.
        if (!buffer.empty()) std::memcpy(buffer.data(), packed, bytes);
        return CUDA_SUCCESS;
    }
    if (!kernel.parameters.empty() && parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t index = 0; index < kernel.parameters.size(); ++index) {
        if (parameters[index] == nullptr) return CUDA_ERROR_INVALID_VALUE;
        std::memcpy(buffer.data() + kernel.parameters[index].offset, parameters[index],
                    kernel.parameters[index].bytes);
    }
    return CUDA_SUCCESS;
}

CUresult check_shape(const Function& function, const LaunchShape& shape) {
    const auto& [grid, block] = std::tie(shape.grid, shape.block);
    const ptx::Kernel& kernel = *function.kernel;
    for (unsigned dimension = 0; dimension < 3; ++dimension) {
        if (grid[dimension] == 0 || block[dimension] == 0) return CUDA_ERROR_INVALID_VALUE;
    }
    if (grid[0] > 2147483647U || grid[1] > 65535 || grid[2] > 65535) return CUDA_ERROR_INVALID_VALUE;
    if (block[0] > 1024 || block[1] > 1024 || block[2] > 64 || shape.threads() > model::threads_per_block) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (shape.threads() > kernel.threads_limit) return CUDA_ERROR_INVALID_VALUE;
    if (kernel.required[0] != 0 && (block[0] != kernel.required[0] || block[1] != kernel.required[1] ||
                                    block[2] != kernel.required[2])) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult check_room(const Function& function, const LaunchShape& shape, unsigned shared) {
    const int limit = function.preference(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    if (shared > static_cast<unsigned>(limit)) return CUDA_ERROR_INVALID_VALUE;
    if (resident_blocks(function, shape.threads(), shared) == 0) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    return CUDA_SUCCESS;
}

// Results that miss a kernel's work would be a riddle otherwise.
void tell_once(const std::string& name) {
    static std::atomic_flag told;
    if (told.test_and_set()) return;
    std::fprintf(stderr,
                 "fikit simulated driver: %s is machine code, which is not run: it takes time and changes no "
                 "memory. Further ones are not mentioned.\n",
                 name.c_str());
}

void translate_launch(Driver& driver, const LaunchCommand& command, std::vector<DeviceWork>& work) {
    const Image& image = *command.image;
    Launch launch;
    const ptx::Kernel& kernel = *command.function->kernel;
    launch.variables = &image.variables;
    launch.owner = command.image;
    launch.reached = &driver.device_of(*image.context).reached;
    launch.shape = command.shape;
    launch.cluster = 1;
    for (const unsigned size : command.shape.cluster) launch.cluster *= size;
    launch.parameters = command.parameters;
    launch.block = block_shape(command.shape.threads(), kernel.registers_per_thread,
                               kernel.static_shared + command.shared);
    if (image.code->opaque) {
        tell_once(kernel.name);
        // The configured time is the whole kernel's, alone on the device.
        const std::uint64_t room =
            std::uint64_t{model::sm_count} *
            resident_blocks(*command.function, command.shape.threads(), command.shared);
        const auto waves = static_cast<Nanoseconds>((command.shape.blocks() + room - 1) / room);
        launch.cost.latency = driver.settings.kernel_time(kernel.name) / waves;
    } else {
        launch.kernel = &kernel;
    }
    work.emplace_back(std::move(launch));
}

CUresult check_value(Driver& driver, CUdeviceptr address, bool wide) {
    const std::size_t bytes = wide ? 8 : 4;
    if (address == 0 || address % bytes != 0 || !driver.space.covers(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult check_wait(Driver& driver, CUdeviceptr address, bool wide, unsigned flags) {
    if ((flags & ~(3U | static_cast<unsigned>(CU_STREAM_WAIT_VALUE_FLUSH))) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    return check_value(driver, address, wide);
}

CUresult check_write(Driver& driver, CUdeviceptr address, bool wide, unsigned flags) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return check_value(driver, address, wide);
}

CUresult translate_values(Driver& driver, const ValuesCommand& command, std::vector<DeviceWork>& work) {
    for (const CUstreamBatchMemOpParams& entry : command.list) {
        if (entry.operation == CU_STREAM_MEM_OP_BARRIER) continue;  // nothing is ever reordered here
        const auto& wait = entry.waitValue;
        const auto& write = entry.writeValue;
        // No word of managed memory, nor of a pool's; a capture takes one all the same (seen on an H200).
        const Block* block = driver.block_of(wait.address);
        if (block != nullptr && (block->managed() || block->pool != nullptr)) return CUDA_ERROR_INVALID_VALUE;
        switch (entry.operation) {
            case CU_STREAM_MEM_OP_WAIT_VALUE_32:
                work.emplace_back(WaitValue{wait.address, wait.value, false, wait.flags});
                break;
            case CU_STREAM_MEM_OP_WAIT_VALUE_64:
                work.emplace_back(WaitValue{wait.address, wait.value64, true, wait.flags});
                break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_32:
                work.emplace_back(WriteValue{write.address, write.value, false});
                break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_64:
                work.emplace_back(WriteValue{write.address, write.value64, true});
                break;
            default:
                break;
        }
    }
    return CUDA_SUCCESS;
}

}  // namespace

unsigned cluster_limit(const Function& function) {
    return function.preference(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) != 0
               ? model::cluster_limit_nonportable
               : model::cluster_limit;
}

CUresult choose_cluster(const Function& function, const LaunchShape& shape,
                        const std::optional<Cluster>& wanted, std::optional<Cluster>& cluster) {
    cluster = wanted;
    const auto side = [&](CUfunction_attribute attribute) {
        return static_cast<unsigned>(function.preference(attribute));
    };
    const Cluster demanded{side(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH),
                           side(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT),
                           side(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH)};
    if (demanded != Cluster{0, 0, 0}) {
        if (wanted && *wanted != demanded) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        cluster = demanded;
    }
    if (!cluster) return function.kernel->clustered ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
    std::uint64_t blocks = 1;
    for (const unsigned size : *cluster) blocks *= std::min(size, 1024U);
    if (blocks == 0 || blocks > cluster_limit(function)) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    for (unsigned dimension = 0; dimension < 3; ++dimension) {
        if (shape.grid[dimension] % (*cluster)[dimension] != 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    return CUDA_SUCCESS;
}

std::vector<void*> LaunchCommand::pointers() {
    std::vector<void*> found;
    for (const ptx::Parameter& parameter : function->kernel->parameters)
        found.push_back(parameters.data() + parameter.offset);
    return found;
}

// What an SM can set apart for shared memory: the least that is as much as the function prefers, but enough
// for a block.
unsigned shared_room(const Function& function, unsigned block) {
    const int carveout = function.preference(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
    if (carveout < 0) return model::shared_per_sm;
    const unsigned wanted = model::shared_per_sm / 100 * static_cast<unsigned>(carveout);
    const auto found = std::ranges::find_if(model::shared_carveouts,
                                            [&](unsigned room) { return room >= wanted && room >= block; });
    return found != std::end(model::shared_carveouts) ? *found : model::shared_per_sm;
}

unsigned resident_blocks(const Function& function, unsigned threads, std::size_t shared) {
    const ptx::Kernel& kernel = *function.kernel;
    // As an H200 counts, launch bounds and a limit below what every function may have are no matter.
    const unsigned usual = model::shared_per_block - std::min(kernel.static_shared, model::shared_per_block);
    const int limit = function.preference(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    if (threads > model::threads_per_block || shared > std::max(static_cast<unsigned>(limit), usual))
        return 0;
    const BlockShape shape = block_shape(threads, kernel.registers_per_thread,
                                         kernel.static_shared + static_cast<unsigned>(shared));
    const unsigned blocks = blocks_per_sm(shape);
    return blocks == 0 ? 0 : std::min(blocks, shared_room(function, shape.shared) / shape.shared);
}

CUresult make_launch(Driver& driver, Context& context, CUfunction handle, const LaunchShape& shape,
                     unsigned shared, void** parameters, void** extra, const LaunchOptions& options,
                     const SmSet* partition, LaunchCommand& command) {
    Function* function = nullptr;
    CUresult result = find_function(driver, handle, context, function);
    if (result != CUDA_SUCCESS) return result;
    const Context* home = &home_of(context);
    if (function->image->context != home) return CUDA_ERROR_INVALID_HANDLE;
    std::optional<Cluster> cluster;
    result = check_shape(*function, shape);
    if (result == CUDA_SUCCESS) result = choose_cluster(*function, shape, options.cluster, cluster);
    if (result == CUDA_SUCCESS) result = check_room(*function, shape, shared);
    if (result != CUDA_SUCCESS) return result;
    if (options.cooperative) {
        const std::uint64_t sms = partition != nullptr ? partition->count() : model::sm_count;
        if (shape.blocks() > sms * resident_blocks(*function, shape.threads(), shared))
            return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
    command.image = function->image->shared_from_this();
    command.function = function;
    command.shape = shape;
    command.shape.dynamic_shared = shared;
    command.shape.cooperative = options.cooperative;
    command.shape.cluster = cluster.value_or(Cluster{1, 1, 1});
    command.shape.stack = home->limits.get(CU_LIMIT_STACK_SIZE, limiting_device);
    command.shared = shared;
    command.options = options;
    command.options.cluster = cluster;
    command.attributes = options.hints;
    return gather(*function->kernel, parameters, extra, command.parameters);
}

CUresult read_launch_attribute(const CUlaunchAttribute& attribute, LaunchOptions& options) {
    switch (attribute.id) {
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
            options.cooperative = attribute.value.cooperative != 0;
            break;
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            options.priority =
                std::clamp(attribute.value.priority, model::priority_highest, model::priority_lowest);
            break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            options.cluster = {attribute.value.clusterDim.x, attribute.value.clusterDim.y,
                               attribute.value.clusterDim.z};
            // As driver 580: all zero, as a structure not filled in, asks for none.
            if (options.cluster == Cluster{0, 0, 0}) options.cluster.reset();
            break;
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
            if (attribute.value.syncPolicy < CU_SYNC_POLICY_AUTO ||
                attribute.value.syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC)
                return CUDA_ERROR_INVALID_VALUE;
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
            options.early = attribute.value.programmaticStreamSerializationAllowed != 0;
            break;
        // Hints: the model has nothing that they could change.
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
            if (is_node_attribute(attribute.id)) options.hints[attribute.id] = attribute.value;
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
            return CUDA_ERROR_NOT_SUPPORTED;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult check(Driver& driver, const ValuesCommand& command) {
    for (const CUstreamBatchMemOpParams& entry : command.list) {
        CUresult result = CUDA_SUCCESS;
        switch (entry.operation) {
            case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            case CU_STREAM_MEM_OP_WAIT_VALUE_64:
                result = check_wait(driver, entry.waitValue.address,
                                    entry.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64, entry.waitValue.flags);
                break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            case CU_STREAM_MEM_OP_WRITE_VALUE_64:
                result =
                    check_write(driver, entry.writeValue.address,
                                entry.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64, entry.writeValue.flags);
                break;
            case CU_STREAM_MEM_OP_BARRIER:
                break;
            case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
                result = CUDA_ERROR_NOT_SUPPORTED;
                break;
            default:
                result = CUDA_ERROR_INVALID_VALUE;
        }
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

CUresult translate(Driver& driver, const Command& command, std::vector<DeviceWork>& work) {
    return std::visit(
        Overloaded{[&](const LaunchCommand& launch) {
                       translate_launch(driver, launch, work);
                       return CUDA_SUCCESS;
                   },
                   [&](const CopyCommand& copy) {
                       CopyPlan plan;
                       const CUresult result = plan_copy(driver, copy.shape, plan);
                       for (Copy& part : plan.parts) {
                           // As an H100 launches graphs.
                           if (plan.pageable_source && !part.destination.host) stage(part);
                           work.emplace_back(std::move(part));
                       }
                       return result;
                   },
                   [&](const FillCommand& fill) {
                       const CUDA_MEMSET_NODE_PARAMS& shape = fill.shape;
                       if (const CUresult result = check(driver, fill); result != CUDA_SUCCESS) return result;
                       if (shape.width == 0 || shape.height == 0) return CUDA_SUCCESS;
                       work.emplace_back(Fill{{shape.dst, shape.pitch, false},
                                              shape.width,
                                              shape.height,
                                              shape.value,
                                              shape.elementSize});
                       return CUDA_SUCCESS;
                   },
                   [&](const HostCommand& host) {
                       work.emplace_back(HostCall{[host] { host.function(host.data); }});
                       return CUDA_SUCCESS;
                   },
                   [&](const ValuesCommand& values) { return translate_values(driver, values, work); },
                   [](const auto&) { return CUDA_SUCCESS; }},
        command);
}

CUresult issue(Driver& driver, Stream& stream, Command command, OperationPtr* last) {
    if (const CUresult result = may_enqueue(driver, stream); result != CUDA_SUCCESS) return result;
    if (stream.capture.capture) return capture_command(driver, stream, std::move(command));
    std::optional<int> priority;
    if (const auto* launch = std::get_if<LaunchCommand>(&command)) priority = launch->options.priority;
    std::vector<DeviceWork> work;
    const CUresult result = translate(driver, command, work);
    if (result != CUDA_SUCCESS) return result;
    for (DeviceWork& part : work) {
        auto operation = std::make_shared<Operation>();
        operation->work = std::move(part);
        driver.enqueue(stream, operation, nullptr, priority);
        if (last != nullptr) *last = operation;
    }
    return CUDA_SUCCESS;
}

}  // namespace fikit::sim

// What a stream and a graph are made of: commands.
//
// A command is checked once, when it is given. Issued to a stream it becomes operations of the device at
// once; while the stream is captured, or as a node of a graph, it is kept and becomes operations at each
// launch of the graph. So both have one set of checks and one translation.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "driver.hpp"

namespace fikit::sim {

using Cluster = std::array<unsigned, 3>;

struct LaunchOptions {
    std::optional<int> priority;
    bool cooperative = false;
    bool early = false;  // it may begin before the kernel before it has ended: told of a captured one alone
    std::optional<Cluster> cluster;
    std::map<CUlaunchAttributeID, CUlaunchAttributeValue> hints;  // that change nothing: a node tells of them
};

struct LaunchCommand {
    std::shared_ptr<Image> image;
    Function* function = nullptr;  // the image's
    LaunchShape shape;
    unsigned shared = 0;
    std::vector<std::byte> parameters;
    LaunchOptions options;
    // As a captured launch was given them, or set by cuGraphKernelNodeSetAttribute.
    std::map<CUlaunchAttributeID, CUlaunchAttributeValue> attributes;
    // Other options than those that it was made with.
    void set(const LaunchOptions& given) {
        options = given;
        shape.cooperative = given.cooperative;
        if (given.cluster) shape.cluster = *given.cluster;
    }
    // Where the parameters lie, for who asks for them.
    std::vector<void*> pointers();
};
struct CopyCommand {
    CUDA_MEMCPY3D shape{};
};
struct FillCommand {
    CUDA_MEMSET_NODE_PARAMS shape{};
};
struct HostCommand {
    CUhostFn function = nullptr;
    void* data = nullptr;
};
struct ValuesCommand {
    std::vector<CUstreamBatchMemOpParams> list;
    CUcontext context = nullptr;
};
struct RecordCommand {
    std::shared_ptr<Event> event;
};
struct WaitCommand {
    std::shared_ptr<Event> event;
};
struct ChildCommand {
    std::shared_ptr<Graph> graph;
};
// What a kernel says by cudaGraphSetConditional, under the handle that it names (ptx/system.hpp keeps the
// value).
struct Condition {
    CUgraphConditionalHandle handle = 0;
    std::optional<unsigned> initial;  // at each launch
};
struct ConditionalCommand {
    Condition condition;
    CUgraphConditionalNodeType kind = CU_GRAPH_COND_TYPE_IF;
    std::vector<std::shared_ptr<Graph>> bodies;
    std::vector<CUgraph> handles;  // of the bodies; the caller reads this array as long as the node lives
};
// Memory of a graph: it has its address and its pages as long as a graph has the node, or it is in use: from
// the node's launch to the free's. It counts as used until the host has synchronised after that, as on an
// H200.
struct GraphAllocation {
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    int device = 0;
    std::uint64_t graph = 0;  // whose nodes allocate it, by its id
    unsigned nodes = 0;       // that do
    bool in_use = false;
    std::shared_ptr<GraphAllocation> itself;  // while in use, and until what may still touch it is over
    bool counted = false;
    ~GraphAllocation();
};
struct AllocateCommand {
    CUmemPoolProps properties{};
    std::vector<CUmemAccessDesc> access;
    std::shared_ptr<GraphAllocation> memory;
};
struct FreeCommand {
    CUdeviceptr address = 0;
};
struct EmptyCommand {};

using Command =
    std::variant<EmptyCommand, LaunchCommand, CopyCommand, FillCommand, HostCommand, ValuesCommand,
                 RecordCommand, WaitCommand, ChildCommand, AllocateCommand, FreeCommand, ConditionalCommand>;
using DeviceWork = decltype(Operation::work);

// How many of its blocks an SM holds; 0 where it may not run so.
unsigned resident_blocks(const Function& function, unsigned threads, std::size_t shared);
unsigned shared_room(const Function& function, unsigned block);
// How many blocks a cluster of it may have.
unsigned cluster_limit(const Function& function);
// The cluster that a launch wants or the function demands; none: neither says anything of clusters.
CUresult choose_cluster(const Function& function, const LaunchShape& shape,
                        const std::optional<Cluster>& wanted, std::optional<Cluster>& cluster);

// Makes a launch of an untrusted description: the shape, the limits and the parameters are checked.
CUresult make_launch(Driver& driver, Context& context, CUfunction function, const LaunchShape& shape,
                     unsigned shared, void** parameters, void** extra, const LaunchOptions& options,
                     const SmSet* partition, LaunchCommand& command);
CUresult read_launch_attribute(const CUlaunchAttribute& attribute, LaunchOptions& options);

// Whether a command could run now; what its addresses are may change until it does.
CUresult check(Driver& driver, const CopyCommand& command);
CUresult check_shape(const FillCommand& command);  // whatever the address
CUresult check(Driver& driver, const FillCommand& command);
CUresult check(Driver& driver, const ValuesCommand& command);

// Adds what the device has to do for a command. Children, allocations, frees, records and waits have
// nothing for the device itself.
CUresult translate(Driver& driver, const Command& command, std::vector<DeviceWork>& work);

// A copy between arrays and stretches of memory is one of two dimensions for each slice, or one for
// all where the slices follow one another.
struct CopyPlan {
    std::vector<Copy> parts;
    bool pageable = false;
    bool pageable_source = false;
    bool inside = false;  // both ends on the device
    std::size_t bytes = 0;
};
CUresult plan_copy(Driver& driver, const CUDA_MEMCPY3D& shape, CopyPlan& plan);
// Reads pageable memory now.
void stage(Copy& copy);

// Issues a command to a stream, or adds it to the graph that captures it. `last` is what to wait for;
// it is null for a captured command.
CUresult issue(Driver& driver, Stream& stream, Command command, OperationPtr* last = nullptr);

}  // namespace fikit::sim

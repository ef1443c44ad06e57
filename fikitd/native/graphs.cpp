// Graphs: made on a worker from the nodes that the tenant's side sends (calls.h, graph_create), launched by
// the dispatch thread as one operation with a duration of its own.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core.hpp"
#include "launches.hpp"
#include "program_calls.hpp"

namespace fikit {
namespace {

constexpr uint64_t node_bytes = 256;  // that a driver keeps for a node, beside what its record says

// What the conditions' graph was made of, for the same to come again: unless the session keeps too much.
void keep_image(Session& session, SessionConditions& conditions, std::vector<uint8_t> image) {
    session.kept_image_bytes -= conditions.image.size();
    if (image.size() > most_kept_image_bytes - session.kept_image_bytes) image = {};
    session.kept_image_bytes += image.size();
    conditions.image = std::move(image);
}

// Builds one graph. Every record is copied and checked as one of the ring is.
class GraphBuilder {
  public:
    // `conditions`: of a graph that decides; else nullptr. `most_bytes`: that the session's graphs may take.
    GraphBuilder(const Driver& driver, CUcontext context, Session& session, SessionConditions* conditions,
                 uint64_t most_bytes)
        : driver_(driver),
          context_(context),
          session_(session),
          conditions_(conditions),
          most_bytes_(most_bytes) {}
    GraphBuilder(const GraphBuilder&) = delete;
    ~GraphBuilder() {
        if (conditions_ == nullptr && root_ != nullptr) driver_.cuGraphDestroy_(root_);
    }

    CUresult build(const std::vector<uint8_t>& image) {
        CUresult result = conditions_ == nullptr ? driver_.cuGraphCreate_(&root_, 0) : begin(image);
        graphs_.push_back(root_);
        if (conditions_ == nullptr || conditions_->image.empty()) {
            for (size_t at = 0; at < image.size() && result == CUDA_SUCCESS;) result = add(image, at);
            size_ = nodes_.size();
            if (conditions_ != nullptr) count(made.bytes);
            if (conditions_ != nullptr && result == CUDA_SUCCESS) {
                keep_image(session_, *conditions_, image);
                conditions_->made = made;
                conditions_->nodes = size_;
            }
        }
        if (result == CUDA_SUCCESS && !has_room()) result = CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS) result = driver_.cuGraphInstantiateWithFlags_(&made.executable, root_, 0);
        return result;
    }
    size_t size() const { return size_; }

    SessionGraph made;

  private:
    bool has_room() const {
        const uint64_t taken = session_.graph_bytes.load();
        return taken <= most_bytes_ && made.bytes <= most_bytes_ - taken;
    }
    // The graph that has the conditions keeps its nodes.
    void count(uint64_t bytes) { session_.graph_bytes += bytes - std::exchange(conditions_->bytes, bytes); }
    // The graph that has the conditions, with the nodes of the image already, or without any.
    CUresult begin(const std::vector<uint8_t>& image) {
        root_ = conditions_->graph;
        if (conditions_->image == image) {
            made = conditions_->made;
            size_ = conditions_->nodes;
            return CUDA_SUCCESS;
        }
        keep_image(session_, *conditions_, {});
        size_t nodes = 0;
        CUresult result = driver_.cuGraphGetNodes_(root_, nullptr, &nodes);
        std::vector<CUgraphNode> old(nodes);
        if (result == CUDA_SUCCESS && nodes != 0)
            result = driver_.cuGraphGetNodes_(root_, old.data(), &nodes);
        for (size_t i = 0; i < nodes && result == CUDA_SUCCESS; ++i)
            result = driver_.cuGraphDestroyNode_(old[i]);
        if (result == CUDA_SUCCESS) count(0);
        return result;
    }

    CUresult add(const std::vector<uint8_t>& image, size_t& at) {
        fikit_graph_node head;
        if (image.size() - at < sizeof head) return CUDA_ERROR_INVALID_VALUE;
        std::memcpy(&head, image.data() + at, sizeof head);
        at += sizeof head;
        const size_t listed = (size_t{head.dependencies} * sizeof(uint32_t) + 7) & ~size_t{7};
        if (head.dependencies > nodes_.size() || listed > image.size() - at) return CUDA_ERROR_INVALID_VALUE;
        before_.clear();
        behind_kernel_ = head.dependencies == 1;
        for (uint32_t i = 0; i < head.dependencies; ++i) {
            uint32_t index;
            std::memcpy(&index, image.data() + at + i * sizeof index, sizeof index);
            if (index >= nodes_.size()) return CUDA_ERROR_INVALID_VALUE;
            before_.push_back(nodes_[index]);
            behind_kernel_ = behind_kernel_ && is_kernel_[index];
        }
        at += listed;
        if (head.record_bytes < FIKIT_RECORD_ALIGN || head.record_bytes > FIKIT_MAX_RECORD ||
            head.record_bytes > image.size() - at)
            return CUDA_ERROR_INVALID_VALUE;
        made.bytes += head.record_bytes + listed + node_bytes;
        if (!has_room()) return CUDA_ERROR_OUT_OF_MEMORY;
        std::memcpy(operation_->bytes, image.data() + at, head.record_bytes);
        at += head.record_bytes;
        const fikit_record& record = operation_->record();
        if (record.bytes != head.record_bytes || record.stream >= graphs_.size() ||
            (record.op != FIKIT_OP_DECISION && what_is_wrong(*operation_) != nullptr))
            return CUDA_ERROR_INVALID_VALUE;
        graph_ = graphs_[record.stream];
        made.hash = mix(made.hash, uint64_t{record.op} << 32 | head.dependencies);
        CUgraphNode node = nullptr;
        const CUresult result = add_record(record.op, node);
        nodes_.push_back(node);
        is_kernel_.push_back(record.op == FIKIT_OP_LAUNCH);
        return result;
    }

    CUresult add_record(uint16_t op, CUgraphNode& node) {
        switch (op) {
            case FIKIT_OP_LAUNCH:
                return add_launch(node);
            case FIKIT_OP_COPY:
                return add_copy(node);
            case FIKIT_OP_FILL:
                return add_fill(node);
            case FIKIT_OP_SYNC:
                return driver_.cuGraphAddEmptyNode_(&node, graph_, before_.data(), before_.size());
            case FIKIT_OP_DECISION:
                return add_decision(node);
            default:
                return CUDA_ERROR_INVALID_VALUE;
        }
    }

    CUresult add_launch(CUgraphNode& node) {
        const auto& launch = operation_->as<fikit_launch>();
        if (launch.function >= session_.functions.size()) return CUDA_ERROR_INVALID_HANDLE;
        const SessionFunction& function = session_.functions[launch.function];
        if (function.function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (check_shape(launch, function) != nullptr) return CUDA_ERROR_INVALID_VALUE;
        size_t bytes = launch.parameter_bytes;
        void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<uint8_t*>(operation_->parameters()),
                         CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
        CUDA_KERNEL_NODE_PARAMS parameters{};
        parameters.func = function.function;
        parameters.gridDimX = launch.grid[0];
        parameters.gridDimY = launch.grid[1];
        parameters.gridDimZ = launch.grid[2];
        parameters.blockDimX = launch.block[0];
        parameters.blockDimY = launch.block[1];
        parameters.blockDimZ = launch.block[2];
        parameters.sharedMemBytes = launch.shared_bytes;
        parameters.extra = bytes > 0 ? extra : nullptr;
        bool early = false;  // it may begin before the kernel that it is behind has ended
        attributes_.clear();
        for (uint32_t i = 0; i < launch.attributes; ++i) {
            fikit_attribute given;
            std::memcpy(&given, operation_->attributes() + i, sizeof given);
            const AttributeUse use = attribute_use(given.id);
            if (use == AttributeUse::refuse) return CUDA_ERROR_NOT_SUPPORTED;
            if (use == AttributeUse::drop) continue;
            CUlaunchAttribute& attribute = attributes_.emplace_back();
            attribute.id = static_cast<CUlaunchAttributeID>(given.id);
            std::memcpy(&attribute.value, given.value, sizeof attribute.value);
            if (attribute.id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) continue;
            // No attribute of nodes: a capture makes it one of the edge.
            early = behind_kernel_ && attribute.value.programmaticStreamSerializationAllowed != 0;
            attributes_.pop_back();
        }
        CUresult result = driver_.cuGraphAddKernelNode_(&node, graph_, before_.data(),
                                                        early ? 0 : before_.size(), &parameters);
        if (early && result == CUDA_SUCCESS) {
            CUgraphEdgeData edge{};
            edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
            edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
            result = driver_.cuGraphAddDependencies_(graph_, before_.data(), &node, &edge, 1);
        }
        for (size_t i = 0; i < attributes_.size() && result == CUDA_SUCCESS; ++i)
            result = driver_.cuGraphKernelNodeSetAttribute_(node, attributes_[i].id, &attributes_[i].value);
        KernelShape shape;
        std::memcpy(&shape, launch.grid, sizeof shape);
        made.hash = mix(made.hash, Profile::key_of(function.hash, shape));
        if (std::find(made.modules.begin(), made.modules.end(), function.module) == made.modules.end())
            made.modules.push_back(function.module);
        return result;
    }

    CUresult add_copy(CUgraphNode& node) {
        const auto& copy = operation_->as<fikit_copy>();
        if (copy.kind != FIKIT_COPY_ON_DEVICE || (copy.record.flags & FIKIT_ROWS) != 0 ||
            !session_.owns(copy.device, copy.size, true) || !session_.owns(copy.other, copy.size))
            return CUDA_ERROR_INVALID_VALUE;
        CUDA_MEMCPY3D rows{};
        rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        rows.srcDevice = copy.other;
        rows.dstDevice = copy.device;
        rows.srcPitch = rows.dstPitch = rows.WidthInBytes = copy.size;
        rows.srcHeight = rows.dstHeight = rows.Height = rows.Depth = 1;
        made.hash = mix(made.hash, copy.size);
        return driver_.cuGraphAddMemcpyNode_(&node, graph_, before_.data(), before_.size(), &rows, context_);
    }

    CUresult add_fill(CUgraphNode& node) {
        const auto& fill = operation_->as<fikit_fill>();
        if (!session_.owns(fill.device, fill.count * fill.width, true)) return CUDA_ERROR_INVALID_VALUE;
        CUDA_MEMSET_NODE_PARAMS row{};
        row.dst = fill.device;
        row.value = fill.value;
        row.elementSize = fill.width;
        row.width = fill.count;
        row.height = 1;
        made.hash = mix(made.hash, fill.count * fill.width);
        return driver_.cuGraphAddMemsetNode_(&node, graph_, before_.data(), before_.size(), &row, context_);
    }

    CUresult add_decision(CUgraphNode& node) {
        const auto& decision = operation_->as<fikit_decision>();
        // Of another graph, or of nobody's, the driver would take it as it is.
        if (conditions_ == nullptr || !conditions_->values.contains(decision.condition) ||
            decision.bodies == 0 || decision.bodies > FIKIT_MAX_STREAMS - graphs_.size())
            return CUDA_ERROR_INVALID_VALUE;
        CUgraphNodeParams parameters{};
        parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
        parameters.conditional.handle = decision.condition;
        parameters.conditional.type = static_cast<CUgraphConditionalNodeType>(decision.type);
        parameters.conditional.size = decision.bodies;
        parameters.conditional.ctx = context_;
        const CUresult result =
            driver_.cuGraphAddNode_(&node, graph_, before_.data(), nullptr, before_.size(), &parameters);
        if (result != CUDA_SUCCESS) return result;
        const CUgraph* const bodies = parameters.conditional.phGraph_out;
        graphs_.insert(graphs_.end(), bodies, bodies + decision.bodies);
        made.hash = mix(made.hash, uint64_t{decision.type} << 32 | decision.bodies);
        return result;
    }

    const Driver& driver_;
    CUcontext context_;
    Session& session_;
    SessionConditions* conditions_;
    uint64_t most_bytes_;
    CUgraph root_ = nullptr;
    CUgraph graph_ = nullptr;      // of the node that is being added
    std::vector<CUgraph> graphs_;  // the graph itself, then bodies
    size_t size_ = 0;
    std::vector<CUgraphNode> nodes_, before_;
    std::vector<bool> is_kernel_;
    bool behind_kernel_ = false;  // the node that is being added, and behind nothing else
    std::vector<CUlaunchAttribute> attributes_;
    std::unique_ptr<Operation> operation_ = std::make_unique<Operation>();
};

}  // namespace

CUresult ProgramCalls::graph_create(const fikit_request_graph_create& request, fikit_reply_graph_create&) {
    std::vector<uint8_t> image;
    if (request.handle == 0 || request.handle >= FIKIT_MAX_GRAPHS) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult copied = core_.copy_image(session_, request, image); copied != CUDA_SUCCESS)
        return copied;
    const auto conditions = session_.conditions.find(request.conditions);
    if (request.conditions != 0 && conditions == session_.conditions.end()) return CUDA_ERROR_INVALID_HANDLE;
    // Of a graph that decides the driver has one at a time, so the one before goes first: once no launch of
    // it is put off.
    if (request.conditions != 0) {
        if (request.handle < session_.graphs.size()) session_.graphs[request.handle].reset();
        if (!conditions->second.latest.expired()) return CUDA_ERROR_NOT_READY;
    }
    GraphBuilder builder(driver_, core_.context_, session_,
                         request.conditions != 0 ? &conditions->second : nullptr,
                         core_.settings_.graph_bytes);
    const CUresult result = builder.build(image);
    if (result != CUDA_SUCCESS) return result;
    SessionGraph& made = builder.made;
    const KernelName name = {made.hash, "graph of " + std::to_string(builder.size()) + " operations"};
    made.hash = KernelNames::hash_of(name);
    made.name = core_.name_index(name);
    if (request.handle >= session_.graphs.size()) session_.graphs.resize(request.handle + 1);
    // What was launched of it runs on: the driver destroys an executable graph when it has ended (CUDA driver
    // API, cuGraphExecDestroy).
    session_.graph_bytes += made.bytes;
    session_.graphs[request.handle] = {new SessionGraph(std::move(made)),
                                       [&driver = driver_, &session = session_](SessionGraph* graph) {
                                           driver.cuGraphExecDestroy_(graph->executable);
                                           session.graph_bytes -= graph->bytes;
                                           delete graph;
                                       }};
    if (request.conditions != 0) conditions->second.latest = session_.graphs[request.handle];
    return CUDA_SUCCESS;
}

CUresult ProgramCalls::graph_destroy(const fikit_request_graph_destroy& request, fikit_reply_graph_destroy&) {
    if (request.handle >= session_.graphs.size() || session_.graphs[request.handle] == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    session_.graphs[request.handle].reset();
    return CUDA_SUCCESS;
}

CUresult ProgramCalls::condition_create(const fikit_request_condition_create& request,
                                        fikit_reply_condition_create& reply) {
    if (request.conditions == 0 || request.conditions >= FIKIT_MAX_GRAPHS) return CUDA_ERROR_INVALID_VALUE;
    if (session_.graph_bytes.load() + node_bytes > core_.settings_.graph_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    auto found = session_.conditions.find(request.conditions);
    if (found == session_.conditions.end()) {
        CUgraph graph = nullptr;
        if (const CUresult result = driver_.cuGraphCreate_(&graph, 0); result != CUDA_SUCCESS) return result;
        found =
            session_.conditions.emplace(request.conditions, SessionConditions{graph, {}, 0, 0, {}, {}, {}})
                .first;
    }
    if (found->second.values.size() >= FIKIT_MAX_STREAMS) return CUDA_ERROR_OUT_OF_MEMORY;
    CUgraphConditionalHandle condition = 0;
    const CUresult result = driver_.cuGraphConditionalHandleCreate_(
        &condition, found->second.graph, core_.context_, request.initial, request.flags);
    reply.condition = condition;
    if (result == CUDA_SUCCESS && found->second.values.insert(condition).second)
        session_.graph_bytes += node_bytes;
    return result;
}

CUresult ProgramCalls::conditions_destroy(const fikit_request_conditions_destroy& request,
                                          fikit_reply_conditions_destroy&) {
    const auto found = session_.conditions.find(request.conditions);
    if (found == session_.conditions.end()) return CUDA_ERROR_INVALID_HANDLE;
    driver_.cuGraphDestroy_(found->second.graph);
    session_.graph_bytes -= found->second.bytes + found->second.values.size() * node_bytes;
    keep_image(session_, found->second, {});
    session_.conditions.erase(found);
    return CUDA_SUCCESS;
}

void ProgramCalls::forget_graphs_of(uint16_t module) {
    for (auto& graph : session_.graphs)
        if (graph != nullptr &&
            std::find(graph->modules.begin(), graph->modules.end(), module) != graph->modules.end())
            graph.reset();
    for (auto& [number, conditions] : session_.conditions)
        if (std::find(conditions.made.modules.begin(), conditions.made.modules.end(), module) !=
            conditions.made.modules.end())
            keep_image(session_, conditions, {});  // to be made anew
}

// What a launch is of; nullptr: of no graph that there is, or it is no launch of one.
std::shared_ptr<const SessionGraph> Core::graph_of(const Session& session, const Operation& operation) {
    if (operation.record().op != FIKIT_OP_GRAPH) return nullptr;
    const uint32_t handle = operation.as<fikit_graph>().graph;
    return handle < session.graphs.size() ? session.graphs[handle] : nullptr;
}

// Fills head_work and head_kernel. False: there is no such graph. The policy sees one block that takes as
// long as the whole.
bool Core::prepare_graph(Session& session) {
    const uint32_t handle = session.head->as<fikit_graph>().graph;
    if (session.head_graph == nullptr) session.head_graph = graph_of(session, *session.head);
    if (session.head_graph == nullptr)
        return refuse_launch(session, CUDA_ERROR_INVALID_HANDLE,
                             "launch: graph " + std::to_string(handle) + " does not exist");
    const SessionGraph& graph = *session.head_graph;
    const KernelShape shape;
    bool fresh = false;
    KernelEntry& entry = profile_.find(Profile::key_of(graph.hash, shape), fresh);
    if (fresh || entry.waves == 0) {
        entry.shape = shape;
        entry.work.key = entry.key;
        entry.work.engine = scheduling::Engine::graph;
        entry.work.blocks = entry.work.per_sm = 1;
        entry.waves = 1;
        entry.name = graph.name;
        entry.tell();
    }
    scheduling::Work& work = session.head_work;
    work = entry.work;
    work.whole = true;
    if (work.expected <= 0) work.expected = settings_.bounds.in_flight;
    session.head_kernel = &entry;
    return true;
}

CUresult Core::issue_graph(Session& session, CUstream stream) {
    ++session.usage.launches;
    const CUresult result = driver_.cuGraphLaunch_(session.head_graph->executable, stream);
    if (result == CUDA_SUCCESS) session.head_graph.reset();  // otherwise it may be tried again
    return result;
}

}  // namespace fikit

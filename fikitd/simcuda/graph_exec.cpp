// Executable graphs: a copy of a graph, its launches and its updates.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "capture.hpp"
#include "event.hpp"
#include "graph_copies.hpp"
#include "ptx/system.hpp"

namespace fikit::sim {

namespace {

// Memory that graphs allocate, by address.
std::map<CUdeviceptr, GraphAllocation*>& graph_memory() {
    static auto* all = new std::map<CUdeviceptr, GraphAllocation*>;
    return *all;
}

// Whether the memory that nodes allocate is free to be, as it must be before a launch.
bool memory_is_free(const Graph& graph) {
    return std::all_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
        const auto* allocation = std::get_if<AllocateCommand>(&node->command);
        const auto inner = inner_graphs(std::as_const(node->command));
        return (allocation == nullptr || !allocation->memory->in_use) &&
               std::all_of(inner.begin(), inner.end(),
                           [](const Graph* part) { return memory_is_free(*part); });
    });
}

// The body that a conditional node runs next; null for none.
const Graph* chosen(const ConditionalCommand& command) {
    const unsigned value = ptx::condition(command.condition.handle);
    std::size_t body = value;
    if (command.kind == CU_GRAPH_COND_TYPE_IF) body = value != 0 ? 0 : 1;
    if (command.kind == CU_GRAPH_COND_TYPE_WHILE) body = value != 0 ? 0 : command.bodies.size();
    return body < command.bodies.size() ? command.bodies[body].get() : nullptr;
}

// What conditions are at the beginning of each launch.
void initial_conditions(const Graph& graph,
                        std::vector<std::pair<CUgraphConditionalHandle, unsigned>>& values) {
    for (const Condition& condition : graph.conditions) {
        if (condition.initial) values.emplace_back(condition.handle, *condition.initial);
    }
    for (const auto& node : graph.nodes) {
        for (const Graph* inner : inner_graphs(std::as_const(node->command)))
            initial_conditions(*inner, values);
    }
}

// One launch of a graph. It lives as long as it has bodies of conditional nodes to submit.
class Submission : public std::enable_shared_from_this<Submission> {
  public:
    Submission(Driver& driver, std::shared_ptr<const GraphExec> exec, const Stream& stream)
        : driver_(driver), exec_(std::move(exec)), graph_(exec_->graph) {
        // Bodies are read when their turn comes, and a change meanwhile is for later launches.
        if (!can_be_copied(*graph_)) {
            graph_ = clone_graph(driver_, *graph_, false);
            retire_graph(driver_, *graph_);  // it needs no handles, and what it uses the other one keeps
        }
        // The stream may be gone when a body's turn comes.
        stream_.context = stream.context;
        stream_.partition = stream.partition;
        stream_.priority = stream.priority;
    }

    // Submits all of it, as far as it can be issued.
    OperationPtr run(const std::vector<Dependency>& after, CUresult& result) {
        return run(*graph_, begin(after), result);
    }

  private:
    OperationPtr begin(const std::vector<Dependency>& after) {
        std::vector<std::pair<CUgraphConditionalHandle, unsigned>> values;
        initial_conditions(*graph_, values);
        if (values.empty()) return submit(Marker{}, after, stream_.priority);
        return submit(Decision{[values = std::move(values)](const OperationPtr&, Nanoseconds) {
                          for (const auto& [handle, value] : values) ptx::set_condition(handle, value);
                          return true;
                      }},
                      after, stream_.priority);
    }

    // Submits the nodes behind `after` until one cannot be issued (`result` says why), as an H200 does. What
    // is returned is done when all that was issued is.
    OperationPtr run(const Graph& graph, const OperationPtr& after, CUresult& result) {
        std::unordered_map<const GraphNode*, OperationPtr> ends;
        std::vector<Dependency> leaves{{after, false}};
        const std::optional<std::vector<GraphNode*>> order = issue_order(graph);
        for (GraphNode* node : *order) {
            std::vector<Dependency> earlier;
            for (const GraphNode::Edge& edge : node->dependencies)
                earlier.push_back({ends[edge.node], false});
            if (earlier.empty()) earlier.push_back({after, false});
            ends[node] = run_node(*node, std::move(earlier), result);
            if (node->dependents.empty()) leaves.push_back({ends[node], false});
            if (result == CUDA_SUCCESS) continue;
            for (const auto& [issued, end] : ends) leaves.push_back({end, false});
            break;
        }
        return submit(Marker{}, leaves, stream_.priority);
    }

    OperationPtr submit(DeviceWork work, const std::vector<Dependency>& after, int priority) {
        auto operation = std::make_shared<Operation>();
        operation->work = std::move(work);
        driver_.submit(stream_, operation, after, priority, decided_at_);
        return operation;
    }

    // Whether all nodes can be issued: of a body it is known before its turn comes, but for what changes.
    CUresult check(const Graph& graph) {
        std::vector<DeviceWork> unused;
        for (const auto& node : graph.nodes) {
            CUresult result = check_inner(*node);
            if (result == CUDA_SUCCESS && node->enabled) result = translate(driver_, node->command, unused);
            if (result != CUDA_SUCCESS) return result;
        }
        return CUDA_SUCCESS;
    }

    CUresult check_inner(const GraphNode& node) {
        for (const Graph* inner : inner_graphs(node.command)) {
            if (const CUresult result = check(*inner); result != CUDA_SUCCESS) return result;
        }
        return CUDA_SUCCESS;
    }

    OperationPtr run_node(GraphNode& node, std::vector<Dependency> after, CUresult& result) {
        if (const auto* child = std::get_if<ChildCommand>(&node.command))
            return run(*child->graph, submit(Marker{}, after, stream_.priority), result);
        if (const auto* conditional = std::get_if<ConditionalCommand>(&node.command)) {
            if ((result = check_inner(node)) != CUDA_SUCCESS) return nullptr;
            return submit(Decision{[self = shared_from_this(), conditional](const OperationPtr& operation,
                                                                            Nanoseconds now) {
                              return self->decide(*conditional, operation, now);
                          }},
                          after, stream_.priority);
        }
        std::vector<DeviceWork> parts;
        if (node.enabled) result = translate(driver_, node.command, parts);
        if (result != CUDA_SUCCESS) return nullptr;
        if (const auto* wait = std::get_if<WaitCommand>(&node.command))
            after.push_back({record_of(driver_, *wait->event), true});
        int priority = stream_.priority;
        if (const auto* launch = std::get_if<LaunchCommand>(&node.command)) {
            if ((exec_->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0)
                priority = launch->options.priority.value_or(priority);
        }
        OperationPtr end;
        for (DeviceWork& work : parts) {
            if (auto* launch = std::get_if<Launch>(&work)) launch->graph_node = true;
            end = submit(std::move(work), after, priority);
            after = {{end, false}};
        }
        const auto* record = std::get_if<RecordCommand>(&node.command);
        if (end == nullptr)
            end = submit(record != nullptr ? record_work(*record->event) : Marker{}, after, priority);
        if (record != nullptr) {
            record->event->record = end;
            record->event->capture = {};
        }
        if (const auto* allocation = std::get_if<AllocateCommand>(&node.command)) use(allocation->memory);
        if (const auto* free = std::get_if<FreeCommand>(&node.command)) free_graph_memory(free->address);
        return end;
    }

    void use(const std::shared_ptr<GraphAllocation>& memory) {
        memory->in_use = true;
        memory->itself = memory;
        if (!std::exchange(memory->counted, true))
            driver_.devices[static_cast<std::size_t>(memory->device)]->graph_memory.allocate(memory->bytes);
    }

    // Submits the body that the condition asks for, and behind it what goes on with the decision. True: there
    // is none, the decision is done.
    bool decide(const ConditionalCommand& command, const OperationPtr& decision, Nanoseconds now) {
        const Graph* body = chosen(command);
        if (body == nullptr) return true;
        Device& device = driver_.device_of(*stream_.context).engine;
        CUresult result = CUDA_SUCCESS;
        decided_at_ = now;
        const OperationPtr end = run(*body, nullptr, result);
        if (result != CUDA_SUCCESS) {
            device.halt(result);
            return false;
        }
        submit(Decision{[self = shared_from_this(), &command, &device, decision](const OperationPtr&,
                                                                                 Nanoseconds later) {
                   const bool again = command.kind == CU_GRAPH_COND_TYPE_WHILE;
                   if (!again || self->decide(command, decision, later)) device.finish(decision, later);
                   return true;
               }},
               {{end, false}}, stream_.priority);
        decided_at_.reset();
        return false;
    }

    Driver& driver_;
    std::shared_ptr<const GraphExec> exec_;
    std::shared_ptr<Graph> graph_;
    Stream stream_;
    std::optional<Nanoseconds> decided_at_;  // while a decision submits
};

}  // namespace

bool may_become(const Command& was, const Command& given) {
    if (const auto* launch = std::get_if<LaunchCommand>(&was))
        return launch->image->context == std::get<LaunchCommand>(given).image->context;
    if (const auto* copy = std::get_if<CopyCommand>(&was))
        return fikit::may_become(copy->shape, std::get<CopyCommand>(given).shape);
    if (const auto* fill = std::get_if<FillCommand>(&was))
        return fikit::may_become(fill->shape, std::get<FillCommand>(given).shape);
    return true;
}

namespace {

Difference<GraphNode> compare(const Graph& target, const Graph& source);

// May the one have the command of the other?
Difference<GraphNode> compare(const GraphNode& to, GraphNode& from) {
    if (from.command.index() != to.command.index())
        return {CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, &from};
    if (!may_become(to.command, from.command)) {
        const bool kernel = std::holds_alternative<LaunchCommand>(from.command);
        return {kernel ? CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED
                       : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED,
                &from};
    }
    if (const auto* conditional = std::get_if<ConditionalCommand>(&from.command)) {
        const auto& known = std::get<ConditionalCommand>(to.command);
        if (conditional->kind != known.kind || conditional->bodies.size() != known.bodies.size())
            return {CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, &from};
    } else if (const auto* allocation = std::get_if<AllocateCommand>(&from.command)) {
        if (allocation->memory != std::get<AllocateCommand>(to.command).memory)
            return {CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, &from};
    }
    const auto inner = inner_graphs(to.command);
    const auto inner_from = inner_graphs(std::as_const(from.command));
    Difference<GraphNode> difference;
    for (std::size_t part = 0; part < inner.size(); ++part) {
        difference = compare(*inner[part], *inner_from[part]);
        if (difference.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) break;
    }
    return difference;
}

Difference<GraphNode> compare(const Graph& target, const Graph& source) {
    std::vector<GraphNode*> queue(target.nodes.size());
    return pair_nodes(target.nodes, source.nodes, &GraphNode::dependencies, queue.data(),
                      [](const GraphNode& to, GraphNode& from) { return compare(to, from); });
}

// From the partners that compare() has given.
void take_over(Graph& target, const Graph& source) {
    for (const auto& node : target.nodes) {
        const Command& command = node->partner->command;
        const auto inner = inner_graphs(node->command);
        const auto inner_from = inner_graphs(command);
        for (std::size_t part = 0; part < inner.size(); ++part)
            take_over(*inner[part]->get(), *inner_from[part]);
        if (auto* conditional = std::get_if<ConditionalCommand>(&node->command))
            conditional->condition = std::get<ConditionalCommand>(command).condition;
        else if (inner.empty())
            node->command = command;
    }
    target.conditions = source.conditions;
}

// Whether `holds` of each graph inside.
template <typename Holds>
bool all_inside(const Graph& graph, Holds holds) {
    return std::all_of(graph.nodes.begin(), graph.nodes.end(), [&](const auto& node) {
        const auto inner = inner_graphs(std::as_const(node->command));
        return std::all_of(inner.begin(), inner.end(), [&](const Graph* part) { return holds(*part); });
    });
}

bool acyclic(const Graph& graph) { return issue_order(graph) && all_inside(graph, acyclic); }

bool uses(const Graph& graph, CUgraphConditionalHandle handle) {
    const bool here = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const auto& node) {
        const auto* conditional = std::get_if<ConditionalCommand>(&node->command);
        return conditional != nullptr && conditional->condition.handle == handle;
    });
    return here || !all_inside(graph, [&](const Graph& part) { return !uses(part, handle); });
}

// Whether a conditional node has each condition; also in what is inside.
bool conditions_used(const Graph& graph) {
    const bool here = std::all_of(graph.conditions.begin(), graph.conditions.end(),
                                  [&](const Condition& condition) { return uses(graph, condition.handle); });
    return here && all_inside(graph, conditions_used);
}

}  // namespace

GraphAllocation::~GraphAllocation() {
    Driver& driver = Driver::instance();
    graph_memory().erase(address);
    if (counted) driver.devices[static_cast<std::size_t>(device)]->graph_memory.free(bytes);
    driver.blocks.erase(address);
    driver.devices[static_cast<std::size_t>(device)]->heap.release(address, bytes);
}

std::shared_ptr<GraphAllocation> allocate_graph_memory(Driver& driver, int device, std::size_t bytes) {
    const std::uint64_t address = driver.devices[static_cast<std::size_t>(device)]->heap.allocate(bytes);
    if (address == 0) return nullptr;
    auto memory = std::make_shared<GraphAllocation>();
    memory->address = address;
    memory->bytes = bytes;
    memory->device = device;
    graph_memory()[address] = memory.get();
    Block block;
    block.kind = Block::Kind::pooled;
    block.address = address;
    block.bytes = bytes;
    block.device = device;
    block.id = driver.next_id++;
    driver.blocks[address] = block;
    return memory;
}

bool is_graph_memory(CUdeviceptr address) { return graph_memory().contains(address); }

bool free_graph_memory(CUdeviceptr address) {
    const auto found = graph_memory().find(address);
    if (found == graph_memory().end()) return false;
    found->second->in_use = false;
    return true;
}

void let_go_of_graph_memory() {
    std::vector<std::shared_ptr<GraphAllocation>> freed;
    for (auto& [address, memory] : graph_memory())
        if (!memory->in_use && memory->itself) freed.push_back(std::move(memory->itself));
}

void settle_graph_memory(Driver& driver) {
    for (auto& [address, memory] : graph_memory()) {
        if (memory->in_use || !memory->counted) continue;
        memory->counted = false;
        driver.devices[static_cast<std::size_t>(memory->device)]->graph_memory.free(memory->bytes);
    }
}

CUresult instantiate(Driver& driver, Context& context, Graph& graph, unsigned long long flags,
                     CUgraphInstantiateResult* problem, CUgraphExec* handle) {
    constexpr unsigned long long known =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
        CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    *problem = CUDA_GRAPH_INSTANTIATE_ERROR;
    if ((flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (!acyclic(graph)) {
        *problem = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!conditions_used(graph)) {
        *problem = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
        return CUDA_ERROR_INVALID_VALUE;
    }
    // One at a time, as an H200 says; one from before it had such nodes does not count (H100).
    const auto alone = [](Graph& one) { return !one.conditions.empty() || has_memory(one); };
    GraphExec* const earlier = driver.graph_execs.find(graph.instance);
    if (alone(graph) && earlier != nullptr && alone(*earlier->graph)) return CUDA_ERROR_NOT_SUPPORTED;
    auto exec = std::make_shared<GraphExec>();
    exec->id = driver.next_id++;
    exec->flags = flags;
    exec->context = &context;
    exec->graph = clone_graph(driver, graph, false);
    *problem = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    *handle = graph.instance = driver.graph_execs.add(std::move(exec));
    return CUDA_SUCCESS;
}

CUresult launch_graph(Driver& driver, GraphExec& exec, Stream& stream) {
    const bool frees = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    if (!frees && !memory_is_free(*exec.graph)) return CUDA_ERROR_INVALID_VALUE;
    driver.charge(model::call::graph_launch);
    if (only_empty(*exec.graph)) return CUDA_SUCCESS;  // not even an action (H200)
    const auto submission = std::make_shared<Submission>(driver, exec.shared_from_this(), stream);
    std::vector<Dependency> after = driver.order(stream);
    if (exec.last) after.push_back({exec.last, false});
    CUresult result = CUDA_SUCCESS;
    stream.tail = exec.last = submission->run(after, result);
    driver.wake();
    return result;
}

Difference<GraphNode> update_graph(Graph& target, const Graph& source) {
    const Difference<GraphNode> difference = compare(target, source);
    if (difference.result == CU_GRAPH_EXEC_UPDATE_SUCCESS) take_over(target, source);
    return difference;
}

bool update_child(Graph& target, const Graph& source) {
    if (compare(target, source).result != CU_GRAPH_EXEC_UPDATE_SUCCESS ||
        !in_same_order(target.nodes, source.nodes))
        return false;
    take_over(target, source);
    return true;
}

}  // namespace fikit::sim

// Graphs: one operation each, made from an image that is not believed.
#include <cstring>
#include <utility>

#include "rig.hpp"

using namespace fikit;
using namespace fikit::test;
using null_driver::Function;

namespace {

// An image of nodes (calls.h, graph_create).
class Image {
  public:
    template <class Record>
    Image& add(uint16_t op, Record record, const std::vector<uint32_t>& before = {}, uint32_t more = 0) {
        const auto bytes = static_cast<uint32_t>((sizeof record + more + 63) / 64 * 64);
        *header_of(&record) = {.bytes = bytes, .op = op, .flags = flags, .stream = 0, .reserved = 0};
        const fikit_graph_node head = {static_cast<uint32_t>(before.size()), bytes};
        append(&head, sizeof head);
        append(before.data(), before.size() * sizeof(uint32_t));
        bytes_.resize((bytes_.size() + 7) / 8 * 8);
        const size_t at = bytes_.size();
        bytes_.resize(at + bytes);
        std::memcpy(bytes_.data() + at, &record, sizeof record);
        return *this;
    }
    Image& launch(uint32_t function, const std::vector<uint32_t>& before = {}, uint32_t threads = 128) {
        fikit_launch record{};
        shape(record, function, threads);
        return add(FIKIT_OP_LAUNCH, record, before, null_driver::parameter_bytes);
    }
    // It may begin before the one that it is behind has ended.
    Image& launch_early(uint32_t function, const std::vector<uint32_t>& before) {
        struct Early : fikit_launch {
            fikit_attribute attribute;
        } early{};
        shape(early, function, 128);
        early.attributes = 1;
        early.attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        early.attribute.value[0] = 1;
        return add(FIKIT_OP_LAUNCH, early, before, null_driver::parameter_bytes);
    }
    std::vector<uint8_t>& bytes() { return bytes_; }

    uint16_t flags = 0;  // of records

  private:
    static void shape(fikit_launch& record, uint32_t function, uint32_t threads) {
        record.function = function;
        record.grid[0] = 132;
        record.grid[1] = record.grid[2] = 1;
        record.block[0] = threads;
        record.block[1] = record.block[2] = 1;
        record.parameter_bytes = null_driver::parameter_bytes;
    }
    void append(const void* data, size_t size) {
        const size_t at = bytes_.size();
        bytes_.resize(at + size);
        if (size > 0) std::memcpy(bytes_.data() + at, data, size);
    }
    std::vector<uint8_t> bytes_;
};

uint32_t create(Rig& rig, Tenant& tenant, Image& image, Status expected = 0, uint32_t graph = 0) {
    rig.while_turning([&] {
        CHECK_EQUAL(tenant->graph_create(image.bytes().data(), image.bytes().size(), graph), expected);
    });
    return graph;
}

TEST(a_graph_is_one_operation) {
    Rig rig;
    Tenant tenant = rig.ready("a", 9);
    Image image;
    image.launch(tenant.function).launch(tenant.function, {0}).launch(tenant.function, {0, 1});
    const uint32_t graph = create(rig, tenant, image);
    const uint64_t launches = null_driver::count(Function::cuLaunchKernel_);
    for (int i = 0; i < 3; ++i) CHECK_EQUAL(tenant->graph_launch(graph, 0), 0);
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(), 0); });
    CHECK_EQUAL(null_driver::count(Function::cuGraphLaunch_), 3u);
    CHECK_EQUAL(null_driver::count(Function::cuLaunchKernel_), launches);
    bool found = false;
    rig.while_turning([&] {
        for (const KernelMeasurement& each : rig.core().take_profiles())
            found |= each.name.function == "graph of 3 operations" && each.samples != 0;
    });
    CHECK(found);
    rig.while_turning([&] { CHECK_EQUAL(tenant->graph_destroy(graph), 0); });
}

// Of nodes the driver takes other attributes than of launches: this one it knows of edges, behind one kernel.
TEST(a_node_that_begins_early_has_an_edge_that_says_so) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    const uint64_t edges = null_driver::count(Function::cuGraphAddDependencies_);
    const uint64_t attributes = null_driver::count(Function::cuGraphKernelNodeSetAttribute_);
    Image behind_one, behind_two;
    behind_one.launch(tenant.function).launch_early(tenant.function, {0});
    create(rig, tenant, behind_one);
    CHECK_EQUAL(null_driver::count(Function::cuGraphAddDependencies_), edges + 1);
    behind_two.launch(tenant.function).launch(tenant.function).launch_early(tenant.function, {0, 1});
    create(rig, tenant, behind_two);
    CHECK_EQUAL(null_driver::count(Function::cuGraphAddDependencies_), edges + 1);
    CHECK_EQUAL(null_driver::count(Function::cuGraphKernelNodeSetAttribute_), attributes);
}

// Of each graph launched since record(true).
std::vector<uint64_t> launched_nodes() {
    std::vector<uint64_t> nodes;
    for (const auto& call : null_driver::take_calls())
        if (call.function == Function::cuGraphLaunch_) nodes.push_back(call.value);
    return nodes;
}

TEST(what_replaces_a_graph_is_launched) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    Image one, two;
    one.launch(tenant.function);
    two.launch(tenant.function).launch(tenant.function);
    const auto before = null_driver::live();
    const uint32_t graph = create(rig, tenant, one);
    create(rig, tenant, two, 0, graph);
    CHECK_EQUAL(null_driver::live().graphs, before.graphs + 1);
    null_driver::record(true);
    CHECK_EQUAL(tenant->graph_launch(graph, 0), 0);
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(), 0); });
    CHECK((launched_nodes() == std::vector<uint64_t>{2}));
    rig.while_turning([&] { CHECK_EQUAL(tenant->graph_destroy(graph), 0); });
    CHECK_EQUAL(null_driver::live().graphs, before.graphs);
}

// A launch behind a host function is of the graph that had the number when it came.
TEST(a_launch_that_is_put_off_keeps_its_graph) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    Image one, two;
    one.launch(tenant.function);
    two.launch(tenant.function).launch(tenant.function);
    const auto before = null_driver::live();
    const uint32_t graph = create(rig, tenant, one);
    uint32_t stream = 0;
    uint64_t gate = 0;
    CHECK_EQUAL(tenant->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, stream), 0);
    CHECK_EQUAL(tenant->close_gate(stream, gate), 0);
    null_driver::record(true);
    CHECK_EQUAL(tenant->graph_launch(graph, stream), 0);
    create(rig, tenant, two, 0, graph);
    CHECK_EQUAL(tenant->graph_launch(graph, stream), 0);
    rig.while_turning([&] { CHECK_EQUAL(tenant->graph_destroy(graph), 0); });
    CHECK_EQUAL(null_driver::live().graphs, before.graphs + 2);
    tenant->open_gate(stream, gate);
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(), 0); });
    CHECK((launched_nodes() == std::vector<uint64_t>{1, 2}));
    CHECK_EQUAL(null_driver::live().graphs, before.graphs);
}

TEST(a_graph_ends_with_its_module) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    Image image;
    image.launch(tenant.function);
    const uint32_t graph = create(rig, tenant, image);
    rig.while_turning([&] { CHECK_EQUAL(tenant->module_unload(1), 0); });
    CHECK_EQUAL(tenant->graph_launch(graph, 0), 0);
    CHECK_STARTS(deferred(rig, tenant, CUDA_ERROR_INVALID_HANDLE), "launch: graph 1 does not exist");
}

TEST(images_are_not_believed) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    const auto before = null_driver::live();
    const auto refused = [&](Image& image, CUresult error = CUDA_ERROR_INVALID_VALUE) {
        create(rig, tenant, image, error);
    };
    Image later, missing, threads, odd, foreign, cut, size, rows;
    refused(later.launch(tenant.function).launch(tenant.function, {1}));
    refused(missing.launch(tenant.function + 1), CUDA_ERROR_INVALID_HANDLE);
    refused(threads.launch(tenant.function, {}, null_driver::max_threads + 1));
    refused(odd.add(FIKIT_OP_CALL, fikit_call_record{}));
    fikit_fill fill{};
    fill.device = uint64_t{1} << 40;
    fill.count = fill.width = 4;
    refused(foreign.add(FIKIT_OP_FILL, fill));
    uint64_t address = 0, charged = 0;
    rig.while_turning([&] { CHECK_EQUAL(tenant->memory_allocate(4096, address, charged), 0); });
    fikit_copy_rows copy{};
    copy.copy.kind = FIKIT_COPY_ON_DEVICE;
    copy.copy.device = copy.copy.other = address;
    copy.copy.size = copy.width = copy.to.pitch = copy.from.pitch = 64;
    copy.rows = copy.slices = copy.to.height = copy.from.height = 1;
    rows.flags = FIKIT_ROWS;
    refused(rows.add(FIKIT_OP_COPY, copy));
    cut.launch(tenant.function).bytes().resize(100);
    refused(cut);
    size.launch(tenant.function);
    size.bytes()[4] = 64;  // the record says otherwise
    refused(size);
    CHECK_EQUAL(null_driver::live().graphs, before.graphs);
    CHECK_EQUAL(tenant->graph_launch(7, 0), 0);
    CHECK_STARTS(deferred(rig, tenant, CUDA_ERROR_INVALID_HANDLE), "launch: graph 7 does not exist");
}

// The driver keeps them in the executor, whose memory is everybody's.
TEST(graphs_take_so_much_of_the_host_s_memory) {
    Settings settings = hand_turned();
    settings.graph_bytes = 10'500;
    Rig rig(settings);
    Tenant tenant = rig.ready("a"), other = rig.ready("b");
    const auto before = null_driver::live();
    Image image, large;
    for (int i = 0; i < 5; ++i) image.launch(tenant.function);
    for (int i = 0; i < 1000; ++i) large.add(FIKIT_OP_SYNC, fikit_record{});
    create(rig, tenant, large, CUDA_ERROR_OUT_OF_MEMORY);
    std::vector<uint32_t> graphs;
    for (int i = 0; i < 4; ++i) graphs.push_back(create(rig, tenant, image));
    while (graphs.size() < 100) {
        uint32_t graph = 0;
        Status status = 0;
        rig.while_turning(
            [&] { status = tenant->graph_create(image.bytes().data(), image.bytes().size(), graph); });
        if (status == CUDA_ERROR_OUT_OF_MEMORY) break;
        CHECK_EQUAL(status, 0);
        graphs.push_back(graph);
    }
    CHECK(graphs.size() < 10);
    create(rig, other, image);
    // One that is gone makes room for another, once it is not to be launched any more.
    uint32_t stream = 0;
    uint64_t gate = 0;
    CHECK_EQUAL(tenant->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, stream), 0);
    CHECK_EQUAL(tenant->close_gate(stream, gate), 0);
    CHECK_EQUAL(tenant->graph_launch(graphs[0], stream), 0);
    rig.while_turning([&] { CHECK_EQUAL(tenant->graph_destroy(graphs[0]), 0); });
    create(rig, tenant, image, CUDA_ERROR_OUT_OF_MEMORY);
    tenant->open_gate(stream, gate);
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(), 0); });
    create(rig, tenant, image);
    CHECK_EQUAL(null_driver::live().graphs, before.graphs + graphs.size() + 1);
    // Nor does one go whose conditions the driver keeps, with its nodes.
    uint32_t conditions = 0, graph = 0;
    uint64_t condition = 0;
    const auto decide = [&](Status expected) {
        rig.while_turning([&] {
            CHECK_EQUAL(tenant->condition_create(conditions, 0, 0, condition), 0);
            const std::vector<uint8_t>& bytes = image.bytes();
            CHECK_EQUAL(tenant->graph_create(bytes.data(), bytes.size(), graph, conditions), expected);
        });
    };
    const auto destroy = [&](uint32_t which) {
        rig.while_turning([&] { CHECK_EQUAL(tenant->graph_destroy(which), 0); });
    };
    destroy(graphs[1]);
    destroy(graphs[2]);
    decide(0);
    destroy(graph);
    destroy(graphs[3]);
    const uint32_t first = std::exchange(conditions, 0);
    graph = 0;
    decide(0);
    create(rig, tenant, image, CUDA_ERROR_OUT_OF_MEMORY);
    rig.while_turning([&] { CHECK_EQUAL(tenant->conditions_destroy(first), 0); });
    create(rig, tenant, image);
    // And so do conditions.
    const auto many = [&](Tenant& of) {
        Status status = 0;
        std::vector<uint32_t> numbers;
        rig.while_turning([&] {
            for (uint32_t number = 0; status == 0 && numbers.size() < 100; number = 0) {
                status = of->condition_create(number, 0, 0, condition);
                if (status == 0) numbers.push_back(number);
            }
            for (const uint32_t number : numbers) CHECK_EQUAL(of->conditions_destroy(number), 0);
        });
        CHECK_EQUAL(status, CUDA_ERROR_OUT_OF_MEMORY);
        return numbers.size();
    };
    const size_t room = many(other);
    CHECK(room > 10 && room < 50);
    CHECK_EQUAL(many(other), room);
    rig.while_turning([&] { CHECK_EQUAL(tenant->conditions_destroy(conditions), 0); });
}

// A condition is a number to the driver, too, and any session could name it.
TEST(a_graph_decides_by_its_own_conditions) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    uint32_t conditions = 0, others = 0;
    uint64_t own = 0, foreign = 0;
    rig.while_turning([&] {
        CHECK_EQUAL(tenant->condition_create(conditions, 0, 0, own), 0);
        CHECK_EQUAL(tenant->condition_create(others, 0, 0, foreign), 0);
    });
    const auto create_with = [&](uint64_t condition, uint32_t number, uint32_t bodies) {
        fikit_decision decision{};
        decision.condition = condition;
        decision.bodies = bodies;
        Image image;
        image.add(FIKIT_OP_DECISION, decision);
        uint32_t graph = 0;
        Status status = 0;
        rig.while_turning([&] {
            status = tenant->graph_create(image.bytes().data(), image.bytes().size(), graph, number);
        });
        return status;
    };
    const uint64_t before = null_driver::count(Function::cuGraphAddNode_);
    for (const uint64_t condition : {foreign, own + foreign, uint64_t{0}})
        CHECK_EQUAL(create_with(condition, conditions, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(create_with(own, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(create_with(own, conditions, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(null_driver::count(Function::cuGraphAddNode_), before);
    CHECK_EQUAL(create_with(own, conditions, 1), CUDA_ERROR_NOT_SUPPORTED);  // the null driver has no bodies
    rig.while_turning([&] {
        for (const uint32_t number : {conditions, others}) CHECK_EQUAL(tenant->conditions_destroy(number), 0);
    });
}

}  // namespace

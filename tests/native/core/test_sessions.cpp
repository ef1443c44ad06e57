// Sessions from attaching to their end: calls, memory, host functions, limits.
#include <malloc.h>

#include <cstring>
#include <optional>

#include "rig.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

uint64_t allocate(Rig& rig, Tenant& tenant, uint64_t bytes, Status expected = 0) {
    uint64_t address = 0, charged = 0;
    rig.while_turning([&] { CHECK_EQUAL(tenant->memory_allocate(bytes, address, charged), expected); });
    return address;
}

// Memory that a program maps itself.
void create(Rig& rig, Tenant& tenant, uint32_t handle, uint64_t bytes, Status expected = 0) {
    const fikit_request_memory_create request = {handle, 0, bytes};
    fikit_reply_memory_create answer{};
    Reply reply{&answer, sizeof answer, 0};
    rig.while_turning([&] {
        CHECK_EQUAL(tenant->call(fikit_call_memory_create, {&request, sizeof request}, reply), expected);
    });
}

// 2048 threads of each multiprocessor have one, which counts as memory of who asked for it; of the tenant,
// too, when that session has ended.
TEST(stacks_only_grow_and_are_paid_for) {
    Rig rig;
    Tenant tenant, later;
    const uint64_t room = uint64_t{4096} * 2048 * null_driver::multiprocessors;
    CHECK_EQUAL(rig.attach("a", 5, tenant, 1.0, room, room), "");
    const uint64_t before = null_driver::count(null_driver::Function::cuCtxSetLimit_);
    const auto grow = [&](Tenant& asking, uint64_t wished, CUresult expected) {
        fikit_reply_stack_grow answer{};
        Reply reply{&answer, sizeof answer, 0};
        const fikit_request_stack_grow request{wished};
        rig.while_turning([&] {
            CHECK_EQUAL(asking->call(fikit_call_stack_grow, {&request, sizeof request}, reply), expected);
        });
        return answer.bytes;
    };
    CHECK_EQUAL(grow(tenant, 512, CUDA_SUCCESS), 1024u);
    CHECK_EQUAL(grow(tenant, 1024, CUDA_SUCCESS), 1024u);
    CHECK_EQUAL(grow(tenant, 4096, CUDA_SUCCESS), 4096u);
    grow(tenant, 16384, CUDA_ERROR_OUT_OF_MEMORY);
    grow(tenant, UINT64_MAX, CUDA_ERROR_INVALID_VALUE);
    allocate(rig, tenant, room / 2, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(grow(tenant, 4096, CUDA_SUCCESS), 4096u);
    rig.while_turning([&] { CHECK(rig.core().end("a", 999, "it is over")); });
    rig.wait_ended();
    CHECK_EQUAL(rig.attach("b", 5, later, 1.0, room, room), "");
    CHECK_EQUAL(grow(later, 4096, CUDA_SUCCESS), 4096u);
    grow(later, 8192, CUDA_ERROR_OUT_OF_MEMORY);
    allocate(rig, later, room / 2, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(null_driver::count(null_driver::Function::cuCtxSetLimit_), before + 1);
}

TEST(calls_are_answered) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    Reply none;
    rig.while_turning([&] {
        fikit_reply_device_attributes device{};
        Reply reply{&device, sizeof device, 0};
        const fikit_request_device_attributes request{};
        CHECK_EQUAL(tenant->call(fikit_call_device_attributes, {&request, sizeof request}, reply), 0);
        CHECK_EQUAL(device.attribute[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT], null_driver::multiprocessors);
        CHECK_EQUAL(std::string(device.name), "null");

        char text[256] = "";
        Reply log{text, sizeof text - 1, 0};
        uint32_t module = 0;
        CHECK_EQUAL(tenant->module_load("!not an image", 13, module, log), CUDA_ERROR_INVALID_IMAGE);
        CHECK_STARTS(text + sizeof(fikit_reply_module_load) * (text[0] == 0), "");
        uint32_t function = 0;
        CHECK_EQUAL(tenant->function_get(1, "missing", 7, function, none), CUDA_ERROR_NOT_FOUND);
        fikit_reply_module_global variable{};
        CHECK_EQUAL(tenant->module_global(1, "managed", variable), CUDA_ERROR_NOT_SUPPORTED);
        CHECK_EQUAL(tenant->function_get(999, "kernel", 6, function, none), CUDA_ERROR_INVALID_HANDLE);

        uint32_t start = 0, end = 0;
        double milliseconds = 0;
        CHECK_EQUAL(tenant->event_create(start), 0);
        CHECK_EQUAL(tenant->event_create(end), 0);
        CHECK_EQUAL(tenant->event_record(start, 0, true), 0);
        CHECK_EQUAL(tenant->event_record(end, 0, true), 0);
        CHECK_EQUAL(tenant->event_synchronize(end), 0);
        CHECK_EQUAL(tenant->event_elapsed(start, end, milliseconds), 0);
        CHECK(milliseconds > 0);
        CHECK_EQUAL(tenant->module_unload(1), 0);
    });
    launch(tenant);  // its module is gone
    CHECK_STARTS(deferred(rig, tenant, CUDA_ERROR_INVALID_HANDLE), "launch: function 1 does not exist");
}

TEST(call_numbers_that_mean_nothing_end_the_session) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    const uint64_t payload[4] = {};
    Reply none;
    rig.while_turning(
        [&] { CHECK_EQUAL(tenant->call(200, {payload, sizeof payload}, none), CUDA_ERROR_INVALID_VALUE); });
    CHECK_EQUAL(rig.wait_ended().reason, "call: unknown number");
}

// An allocation beyond the quota waits for what is on its way back, as cuMemFree would have.
void charge_and_return(bool mapped_by_the_program) {
    Rig rig;
    Tenant tenant;
    CHECK_EQUAL(rig.attach("a", 5, tenant, 1.0, 8u << 20), "");
    rig.load(tenant);
    const auto before = null_driver::live();
    const uint64_t large = allocate(rig, tenant, 6u << 20);
    allocate(rig, tenant, 4u << 20, CUDA_ERROR_OUT_OF_MEMORY);
    allocate(rig, tenant, UINT64_MAX, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(null_driver::live().mapped_bytes - before.mapped_bytes, 6u << 20);
    hold_all(rig);
    launch(tenant);
    CHECK_EQUAL(tenant->memory_free(large), 0);
    rig.settle();
    CHECK_EQUAL(null_driver::live().mapped_bytes - before.mapped_bytes, 6u << 20);
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        release_all(rig);
    });
    if (mapped_by_the_program)
        create(rig, tenant, 1, 4u << 20);
    else
        allocate(rig, tenant, 4u << 20);
    later.join();
    CHECK_EQUAL(null_driver::live().mapped_bytes - before.mapped_bytes, mapped_by_the_program ? 0 : 4u << 20);
    CHECK_EQUAL(tenant->memory_free(large + 512), 0);
    CHECK_STARTS(deferred(rig, tenant, CUDA_ERROR_INVALID_VALUE), "free: not the address of an allocation");
}

TEST(memory_is_charged_and_returned) { charge_and_return(false); }
TEST(memory_that_a_program_maps_waits_for_room) { charge_and_return(true); }

uint64_t free_bytes(Rig& rig, Tenant& tenant) {
    const fikit_request_memory_information request{};
    fikit_reply_memory_information answer{};
    Reply reply{&answer, sizeof answer, 0};
    rig.while_turning([&] {
        CHECK_EQUAL(tenant->call(fikit_call_memory_information, {&request, sizeof request}, reply), 0);
    });
    return answer.free;
}

Settings keeping() {
    Settings settings = hand_turned();
    settings.keep_ns = 60'000'000'000;
    return settings;
}

// What a session frees is kept mapped for its next request of the size, and counts as free.
TEST(freed_memory_is_kept_for_its_session) {
    Rig rig(keeping());
    Tenant tenant, other = rig.ready("b");
    CHECK_EQUAL(rig.attach("a", 5, tenant, 1.0, 16u << 20), "");
    const auto before = null_driver::live();
    const uint64_t first = allocate(rig, tenant, 6u << 20);
    CHECK_EQUAL(tenant->memory_free(first), 0);
    CHECK_EQUAL(free_bytes(rig, tenant), 16u << 20);
    CHECK_EQUAL(null_driver::live().mapped_bytes - before.mapped_bytes, 6u << 20);
    const uint64_t created = null_driver::count(Function::cuMemCreate_);
    CHECK_EQUAL(allocate(rig, tenant, (6u << 20) - 100), first);
    CHECK_EQUAL(null_driver::count(Function::cuMemCreate_), created);
    CHECK_EQUAL(tenant->memory_free(first), 0);
    allocate(rig, other, 6u << 20);
    CHECK_EQUAL(null_driver::count(Function::cuMemCreate_), created + 1);  // nobody else gets it
}

// It is no reason to refuse anybody anything: neither the session's limit nor the device is full because of
// it.
TEST(kept_memory_makes_room_when_it_is_wanted) {
    Rig rig(keeping());
    Tenant tenant, other = rig.ready("b");
    CHECK_EQUAL(rig.attach("a", 5, tenant, 1.0, 16u << 20), "");
    const auto before = null_driver::live();
    const auto mapped = [&] { return null_driver::live().mapped_bytes - before.mapped_bytes; };
    CHECK_EQUAL(tenant->memory_free(allocate(rig, tenant, 6u << 20)), 0);
    const uint64_t large = allocate(rig, tenant, 16u << 20);
    CHECK_EQUAL(mapped(), 16u << 20);
    CHECK_EQUAL(tenant->memory_free(large), 0);
    rig.settle();
    CHECK_EQUAL(mapped(), 16u << 20);
    null_driver::fail(Function::cuMemCreate_, CUDA_ERROR_OUT_OF_MEMORY, 0, 1);
    allocate(rig, other, 4u << 20);
    CHECK_EQUAL(mapped(), 4u << 20);
    CHECK_EQUAL(tenant->memory_free(allocate(rig, tenant, 6u << 20)), 0);
    null_driver::fail(Function::cuMemCreate_, CUDA_ERROR_OUT_OF_MEMORY, 0, 1);
    create(rig, other, 1, 4u << 20);
    CHECK_EQUAL(mapped(), 4u << 20);
    null_driver::fail(Function::cuMemCreate_, CUDA_ERROR_OUT_OF_MEMORY);
    allocate(rig, other, 4u << 20, CUDA_ERROR_OUT_OF_MEMORY);  // full it is
    create(rig, other, 2, 4u << 20, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(tenant->memory_free(large + 512), 0);
    CHECK_STARTS(deferred(rig, tenant, CUDA_ERROR_INVALID_VALUE), "free: not the address of an allocation");
}

TEST(too_much_is_not_kept) {
    Settings settings = keeping();
    settings.keep_bytes = 4u << 20;
    Rig rig(settings);
    Tenant tenant = rig.ready("a");
    const auto before = null_driver::live();
    const uint64_t small = allocate(rig, tenant, 4u << 20), large = allocate(rig, tenant, 6u << 20);
    CHECK_EQUAL(tenant->memory_free(small), 0);
    rig.settle();
    CHECK_EQUAL(null_driver::live().mapped_bytes - before.mapped_bytes, 10u << 20);
    CHECK_EQUAL(tenant->memory_free(large), 0);
    rig.turn_until([&] { return null_driver::live().mapped_bytes == before.mapped_bytes; });
}

TEST(frees_wait_for_earlier_work) {
    Settings settings = hand_turned();
    settings.keep_ns = 0;
    Rig rig(settings);
    Tenant tenant = rig.ready("a", 0);
    const uint64_t address = allocate(rig, tenant, 4u << 20);
    uint32_t handle = 0;
    HostBuffer buffer{};
    rig.while_turning([&] { CHECK_EQUAL(tenant->host_allocate(8192, handle, buffer), 0); });
    const auto before = null_driver::live();
    hold_all(rig);
    launch(tenant);
    CHECK_EQUAL(tenant->memory_free(address), 0);
    CHECK_EQUAL(tenant->host_free(handle), 0);
    rig.settle();
    CHECK_EQUAL(null_driver::live().mappings, before.mappings);
    CHECK_EQUAL(null_driver::live().registrations, before.registrations);
    release_all(rig);
    rig.turn_until([&] {
        return null_driver::live().registrations == before.registrations - 1 &&
               null_driver::live().mappings == before.mappings - 1;
    });
}

TEST(copies_stay_within_the_session) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0), other = rig.ready("b", 0);
    const uint64_t own = allocate(rig, tenant, 1000), foreign = allocate(rig, other, 1000);
    const auto outside = [&](uint64_t to, uint64_t from, uint64_t bytes) {
        CHECK_EQUAL(tenant->copy_on_device(0, to, from, bytes), 0);
        CHECK_STARTS(deferred(rig, tenant, CUDA_ERROR_INVALID_VALUE), "copy: CUDA_ERROR_INVALID_VALUE (1)");
    };
    outside(own, foreign, 8);
    outside(foreign, own, 8);
    outside(own, own, 1001);
    outside(own + 999, own, 2);
    outside(own - 1, own, 2);
    uint32_t handle = 0;
    HostBuffer pinned{};  // the session's as well
    rig.while_turning([&] { CHECK_EQUAL(tenant->host_allocate(8192, handle, pinned), 0); });
    const uint64_t there = pinned.device_address;
    CHECK_EQUAL(tenant->fill(0, there, 8192, 0, 1), 0);
    outside(there + 8191, own, 2);
    CHECK_EQUAL(tenant->memory_free(there), 0);
    CHECK_STARTS(deferred(rig, tenant, CUDA_ERROR_INVALID_VALUE), "free: not the address of an allocation");
    CHECK_EQUAL(tenant->host_free(handle), 0);
    outside(there, own, 8);
    CHECK_EQUAL(null_driver::count(Function::cuMemcpyDtoDAsync_), 0u);
    CHECK_EQUAL(tenant->copy_on_device(0, own + 992, own, 8), 0);
    CHECK_EQUAL(tenant->fill(0, own, 125, 0, 8), 0);
    CHECK_EQUAL(rig.wait_ended().reason, "fill: width is not 1, 2 or 4");
    CHECK_EQUAL(null_driver::count(Function::cuMemcpyDtoDAsync_), 1u);
    CHECK_EQUAL(other->fill(0, foreign, 251, 0, 4), 0);
    CHECK_STARTS(deferred(rig, other, CUDA_ERROR_INVALID_VALUE), "fill: ");
}

// What the gate let through and the driver (or the core) then refused is done with: not issued again.
TEST(refused_operations_leave_the_gate) {
    Rig rig;
    Tenant tenant = rig.ready("a", 5);
    CHECK_EQUAL(tenant->fill(0, 4096, 1, 0, 4), 0);
    CHECK_STARTS(deferred(rig, tenant, CUDA_ERROR_INVALID_VALUE), "fill: ");
    null_driver::fail(Function::cuLaunchKernel_, CUDA_ERROR_INVALID_VALUE, 0, 1);
    const uint64_t before = launches();
    launch(tenant);
    CHECK_STARTS(deferred(rig, tenant, CUDA_ERROR_INVALID_VALUE), "launch of kernel: ");
    launch(tenant);
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(), 0); });
    CHECK_EQUAL(launches() - before, 2u);
}

struct Order {
    std::atomic<int> next{0};
    std::atomic<int> seen[8] = {};
};

TEST(host_functions_keep_the_order_of_their_stream) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    Order order;
    std::atomic<bool> may_return{false};
    struct Argument {
        Order* order;
        int number;
        std::atomic<bool>* may_return;
    } arguments[2] = {{&order, 1, &may_return}, {&order, 2, &may_return}};
    const HostFunction note = [](void* at) {
        auto* argument = static_cast<Argument*>(at);
        argument->order->seen[argument->order->next++] = argument->number;
        while (!*argument->may_return) std::this_thread::yield();
    };
    CHECK_EQUAL(tenant->host_function(0, note, &arguments[0]), 0);
    launch(tenant);
    CHECK_EQUAL(tenant->host_function(0, note, &arguments[1]), 0);
    rig.turn_until([&] { return order.next == 1; });
    rig.settle();
    CHECK_EQUAL(order.next.load(), 1);  // the second waits for the first to return
    CHECK_EQUAL(tenant->stream_query(0), status::not_ready);
    may_return = true;
    rig.while_turning([&] { CHECK_EQUAL(tenant->stream_synchronize(0), 0); });
    CHECK_EQUAL(order.seen[0].load(), 1);
    CHECK_EQUAL(order.seen[1].load(), 2);
}

// Two sessions share a lane (there is one for each priority) when a host function comes to hold it.
TEST(a_host_function_that_does_not_return_holds_up_nobody_else) {
    Rig rig(hand_turned(), 1);
    Tenant tenant = rig.ready("a"), other = rig.ready("b");
    launch(tenant);
    launch(other);
    rig.settle();
    std::atomic<bool> may_return{false};
    CHECK_EQUAL(tenant->host_function(
                    0,
                    [](void* at) {
                        while (!*static_cast<std::atomic<bool>*>(at)) std::this_thread::yield();
                    },
                    &may_return),
                0);
    launch(tenant);
    rig.settle();
    for (int round = 0; round < 3; ++round) {
        launch(other);
        rig.while_turning([&] { CHECK_EQUAL(other->synchronize(now_ns() + 5'000'000'000), 0); });
    }
    CHECK_EQUAL(tenant->stream_query(0), status::not_ready);
    std::optional<Snapshot> seen;
    rig.while_turning([&] { seen = rig.core().snapshot(); });
    for (const SessionSnapshot& session : seen->sessions)
        CHECK_EQUAL(session.host_functions, session.id == "a" ? 1u : 0u);
    may_return = true;
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(now_ns() + 5'000'000'000), 0); });
    rig.while_turning([&] { seen = rig.core().snapshot(); });
    for (const SessionSnapshot& session : seen->sessions) CHECK_EQUAL(session.host_functions, 0u);
}

// A session that ends while its host function runs lets go of the lane; nothing of it is left.
TEST(an_end_leaves_nothing_behind) {
    std::atomic<bool> stop{false};  // outlives the tenant, whose end waits for its functions
    Rig rig;
    const auto before = null_driver::live();
    Tenant tenant = rig.ready("a", 0);
    allocate(rig, tenant, 100);
    allocate(rig, tenant, 3u << 20);
    uint32_t handle = 0, event = 0, stream = 0;
    HostBuffer buffer{};
    rig.while_turning([&] { CHECK_EQUAL(tenant->host_allocate(8192, handle, buffer), 0); });
    CHECK_EQUAL(tenant->stream_create(0, 0, stream), 0);
    CHECK_EQUAL(tenant->event_create(event), 0);
    CHECK_EQUAL(tenant->event_record(event, stream, false), 0);
    launch(tenant);
    launch(tenant, stream);
    CHECK_EQUAL(tenant->host_function(
                    0,
                    [](void* at) {
                        while (!*static_cast<std::atomic<bool>*>(at)) std::this_thread::yield();
                    },
                    &stop),
                0);
    rig.take(tenant);
    rig.settle();
    rig.while_turning([&] { CHECK(rig.core().end("a", 999, "as the operator wished")); });
    const EndedSession ended = rig.wait_ended();
    CHECK_EQUAL(ended.error, 999);
    CHECK_EQUAL(ended.reason, "as the operator wished");
    CHECK_EQUAL(ended.last.usage.launches, 2u);
    rig.while_turning([&] { CHECK(!rig.core().end("a", 1, "")); });
    rig.turn_until([&] {  // some of it is put off
        const auto after = null_driver::live();
        return after.mappings == before.mappings && after.allocations == before.allocations &&
               after.registrations == before.registrations && after.modules == before.modules &&
               after.events == before.events && after.graphs == before.graphs;
    });
    stop = true;
}

TEST(more_sessions_than_lanes) {
    Rig rig(hand_turned(), 1, 1);
    std::vector<Tenant> tenants;
    for (int number = 0; number < 24; ++number)
        tenants.push_back(rig.ready(std::to_string(number), number % 3 * 4));
    const uint64_t before = launches();
    for (int round = 0; round < 10; ++round)
        for (Tenant& tenant : tenants) launch(tenant);
    for (Tenant& tenant : tenants) rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(), 0); });
    CHECK_EQUAL(launches() - before, 240u);
}

TEST(sixty_four_sessions_and_no_more) {
    Rig rig;
    const auto fresh = null_driver::live();
    const auto registered = [&](int64_t channels) {  // eventually: some of it is put off
        rig.turn_until(
            [&] { return null_driver::live().registrations == fresh.registrations + 2 * channels; });
    };
    std::vector<Tenant> tenants(scheduling::max_sessions);
    for (unsigned number = 0; number < scheduling::max_sessions; ++number)
        CHECK_EQUAL(rig.attach(std::to_string(number), 5, tenants[number]), "");
    Tenant refused;
    CHECK_EQUAL(rig.attach("late", 5, refused), "the executor has no room for another session");
    registered(scheduling::max_sessions);
    rig.while_turning([&] { CHECK(rig.core().end("7", 0, "over")); });
    rig.wait_ended();
    registered(scheduling::max_sessions - 1);
    CHECK_EQUAL(rig.attach("8", 5, refused), "session 8 is attached already");
    CHECK_EQUAL(rig.attach("late", 5, refused), "");
}

// Sessions that come faster than spare channels can be made leave no more than the wanted number behind.
TEST(spare_channels_stay_few) {
    Settings settings = hand_turned();
    settings.spare_channels = 2;
    Rig rig(settings);
    const auto fresh = null_driver::live();
    std::vector<Tenant> tenants;
    for (int number = 0; number < 10; ++number) tenants.push_back(rig.attach(std::to_string(number)));
    const auto wanted = fresh.registrations + 2 * 10;  // outbox and inbox of each
    rig.turn_until([&] { return null_driver::live().registrations == wanted; });
    rig.settle();
    CHECK_EQUAL(null_driver::live().registrations, wanted);
}

// A program that makes a stream for each of its requests goes through all the handles there are.
TEST(destroyed_streams_leave_little) {
    constexpr size_t many = 1000;
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    const size_t before = mallinfo2().uordblks;
    for (size_t i = 0; i < many; ++i) {
        uint32_t stream = 0;
        CHECK_EQUAL(tenant->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, stream), 0);
        launch(tenant, stream);
        CHECK_EQUAL(tenant->stream_destroy(stream), 0);
        if (i % 100 == 0) rig.settle();
    }
    rig.settle();
    CHECK(mallinfo2().uordblks - before < many * 2048);
}

}  // namespace

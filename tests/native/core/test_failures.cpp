// Errors of the driver: those that are one operation's, and those that end the context.
#include "rig.hpp"

using namespace fikit;
using namespace fikit::test;
using null_driver::Function;

namespace {

TEST(driver_errors_are_deferred_with_their_text) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    null_driver::fail(Function::cuLaunchKernel_, CUDA_ERROR_INVALID_VALUE, 1, 1);
    for (int i = 0; i < 3; ++i) launch(tenant);
    rig.while_turning([&] { CHECK_EQUAL(tenant->stream_synchronize(0), CUDA_ERROR_INVALID_VALUE); });
    CHECK_EQUAL(std::string(tenant.inbox->deferred_text), "launch of kernel: CUDA_ERROR_INVALID_VALUE (1)");
    CHECK_EQUAL(tenant.inbox->deferred_count, 1u);
    rig.while_turning([&] { CHECK_EQUAL(tenant->stream_synchronize(0), 0); });  // reported once
    null_driver::fail(Function::cuMemCreate_, CUDA_ERROR_OUT_OF_MEMORY, 0, 2);  // it is tried twice
    uint64_t address = 0, charged = 0;
    rig.while_turning([&] {
        CHECK_EQUAL(tenant->memory_allocate(100, address, charged), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQUAL(tenant->memory_allocate(100, address, charged), 0);
    });
}

TEST(sticky_errors_end_every_session) {
    Rig rig;
    Tenant first = rig.ready("a", 0), second = rig.ready("b", 5);
    // As of a lost context: every stream says so, too.
    null_driver::fail(Function::cuLaunchKernel_, CUDA_ERROR_ILLEGAL_ADDRESS);
    null_driver::fail(Function::cuStreamQuery_, CUDA_ERROR_ILLEGAL_ADDRESS);
    launch(first);
    rig.turn_until([&] { return rig.core().failure() != 0; });
    CHECK_EQUAL(rig.core().failure(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_STARTS(rig.core().failure_text(), "the CUDA context was lost (seen at: launch of kernel): ");
    CHECK_EQUAL(first->synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_EQUAL(second->synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    const auto ended = rig.core().take_ended();
    CHECK_EQUAL(ended.size(), 2u);
    for (const EndedSession& each : ended) CHECK_EQUAL(each.error, CUDA_ERROR_ILLEGAL_ADDRESS);
    Tenant late;
    CHECK_EQUAL(rig.attach("c", 5, late), "the dispatch loop has ended");
}

// Whoever sees that the context is lost ends the process then.
TEST(a_failure_is_seen_after_the_ends_of_all_sessions) {
    Rig rig;
    constexpr size_t sessions = 40;
    std::vector<Tenant> tenants(sessions);
    for (size_t i = 0; i < sessions; ++i) CHECK_EQUAL(rig.attach(std::to_string(i), 5, tenants[i]), "");
    size_t ended = 0;
    std::thread watching([&] {
        while (rig.core().failure() == 0) {
        }
        ended = rig.core().take_ended().size();
    });
    Tenant culprit = rig.ready("culprit", 0);
    null_driver::fail(Function::cuLaunchKernel_, CUDA_ERROR_ILLEGAL_ADDRESS);
    null_driver::fail(Function::cuStreamQuery_, CUDA_ERROR_ILLEGAL_ADDRESS);
    launch(culprit);
    rig.turn_until([&] { return rig.core().failure() != 0; });
    watching.join();
    CHECK_EQUAL(ended, sessions + 1);
}

// A kernel that faults is found out by looking at the device, since its mark never comes.
TEST(a_lost_device_is_noticed) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    hold_all(rig);
    launch(tenant);
    rig.settle();
    null_driver::fail(Function::cuStreamQuery_, CUDA_ERROR_LAUNCH_FAILED);
    rig.turn_until([&] { return rig.core().failure() != 0; });
    CHECK_EQUAL(tenant->synchronize(), CUDA_ERROR_LAUNCH_FAILED);
    release_all(rig);
}

// The driver lets the heap of malloc in kernels grow until one has taken from it. Then it stays as it is, and
// the program that asks is not told: its own would have grown.
TEST(a_heap_grows_while_the_driver_lets_it) {
    Rig rig;
    Tenant tenant;
    const uint64_t first = 8 << 20, room = 24 << 20;
    CHECK_EQUAL(rig.attach("a", 5, tenant, 1.0, room, room), "");
    const auto grow = [&](uint64_t wished, CUresult expected) {
        fikit_reply_heap_grow answer{};
        Reply reply{&answer, sizeof answer, 0};
        const fikit_request_heap_grow request{wished};
        rig.while_turning([&] {
            CHECK_EQUAL(tenant->call(fikit_call_heap_grow, {&request, sizeof request}, reply), expected);
        });
        return answer.bytes;
    };
    CHECK_EQUAL(grow(first / 2, CUDA_SUCCESS), first);
    CHECK_EQUAL(grow(2 * first, CUDA_SUCCESS), 2 * first);
    uint64_t address = 0, charged = 0;
    rig.while_turning(
        [&] { CHECK_EQUAL(tenant->memory_allocate(room, address, charged), CUDA_ERROR_OUT_OF_MEMORY); });
    for (const uint64_t more : {5 * first, uint64_t{1} << 40, UINT64_MAX})
        grow(more, CUDA_ERROR_OUT_OF_MEMORY);
    null_driver::fail(Function::cuCtxSetLimit_, CUDA_ERROR_INVALID_VALUE, 0, 1);
    CHECK_EQUAL(grow(3 * first, CUDA_SUCCESS), 2 * first);
    CHECK_EQUAL(grow(3 * first, CUDA_SUCCESS), 3 * first);
}

}  // namespace

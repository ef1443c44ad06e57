// What makes two launches the same kernel for the profile.
#include <cstring>
#include <set>

#include "rig.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

// Attributes that change how a kernel runs make it another one for the profile.
void attributes_tell_kernels_apart() {
    Rig rig;
    Tenant tenant = rig.ready("a");
    static constexpr uint64_t parameters[2] = {};
    const auto launched = [&](uint32_t id, std::array<uint32_t, 3> value) {
        fikit_attribute attribute{id, 0, {}};
        std::memcpy(attribute.value, value.data(), sizeof value);
        LaunchShape shape = shape_of(tenant.function);
        shape.attributes = 1;
        CHECK_EQUAL(tenant->launch(shape, &attribute, parameters), 0);
        rig.settle();
    };
    launch(tenant);
    rig.settle();
    launched(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, {1});
    launched(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, {0});  // as without
    launched(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, {2, 1, 1});
    launched(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, {4, 1, 1});
    launched(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, {1});
    std::set<std::string> names;
    rig.while_turning([&] {
        for (const KernelMeasurement& each : rig.core().take_profiles()) names.insert(each.name.function);
    });
    CHECK(names == std::set<std::string>({"kernel", "kernel [cooperative]", "kernel [cluster 2x1x1]",
                                          "kernel [cluster 4x1x1]", "kernel [programmatic]"}));
}

// What a partition has no room for (a cluster's blocks need SMs next to each other) waits for the whole GPU,
// and goes nowhere else from then on. The tenant does not hear of it.
void what_a_partition_refuses_goes_to_the_whole_gpu() {
    using null_driver::Function;
    Settings settings = hand_turned();
    settings.bounds.partitions[0] = 96;
    Rig rig(settings);
    Tenant high = rig.ready("high", scheduling::highest_level), low = rig.ready("low");
    // The lanes of the partition are the last but the monitor.
    const std::set<CUstream> confined(rig.streams().end() - 3, rig.streams().end() - 1);
    for (const bool known : {false, true}) {
        launch(high);
        rig.settle();
        if (!known) null_driver::fail(Function::cuLaunchKernel_, CUDA_ERROR_INVALID_CLUSTER_SIZE, 0, 1);
        const uint64_t before = launches();
        null_driver::record(true);
        launch(low);
        rig.turn_until([&] { return launches() - before == (known ? 1u : 2u); });
        rig.settle();
        uint32_t issued = 0;
        for (const null_driver::Call& call : null_driver::take_calls()) {
            if (call.function != Function::cuLaunchKernel_) continue;
            CHECK(!confined.contains(call.stream));
            ++issued;
        }
        CHECK_EQUAL(issued, 1u);
        CHECK_EQUAL(low->channel().take_deferred(), 0);
        null_driver::record(false);
    }
}

}  // namespace

int main(int count, char** arguments) {
    static constexpr Case cases[] = {
        CASE(attributes_tell_kernels_apart),
        CASE(what_a_partition_refuses_goes_to_the_whole_gpu),
    };
    return run_cases(cases, count, arguments);
}

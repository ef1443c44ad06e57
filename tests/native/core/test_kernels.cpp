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

}  // namespace

int main(int count, char** arguments) {
    static constexpr Case cases[] = {
        CASE(attributes_tell_kernels_apart),
    };
    return run_cases(cases, count, arguments);
}

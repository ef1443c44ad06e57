// Arrays, textures and copies of rows: what they count as, when they go, and that no tenant is believed.
#include <cuda.h>

#include <cstring>

#include "array_shape.hpp"
#include "rig.hpp"

using namespace fikit;
using namespace fikit::test;
using null_driver::Function;

namespace {

constexpr fikit_array_shape plane = {512, 256, 0, CU_AD_FORMAT_FLOAT, 1, 0, 0};  // 512 KiB

template <class Request, class Answer>
Status call(Rig& rig, Tenant& tenant, uint32_t number, const Request& request, Answer& answer) {
    Status status = 0;
    rig.while_turning([&] {
        Reply reply = {&answer, sizeof answer, 0};
        status = tenant->call(number, {&request, sizeof request}, reply);
    });
    return status;
}

Status create(Rig& rig, Tenant& tenant, uint32_t handle, const fikit_array_shape& shape = plane) {
    fikit_reply_array_create answer{};
    return call(rig, tenant, fikit_call_array_create, fikit_request_array_create{handle, 0, shape}, answer);
}
Status destroy(Rig& rig, Tenant& tenant, uint32_t handle) {
    fikit_reply_array_destroy answer{};
    return call(rig, tenant, fikit_call_array_destroy, fikit_request_array_destroy{handle, 0}, answer);
}

// Rows of the staging area into an array.
fikit_copy_rows upload(uint32_t array) {
    fikit_copy_rows rows{};
    rows.copy.kind = FIKIT_COPY_TO_DEVICE;
    rows.to.array = array;
    rows.from.pitch = 1024;
    rows.from.height = 256;
    rows.width = 1024;
    rows.rows = 256;
    rows.slices = 1;
    return rows;
}

// As the record is, with nothing written to it by the producer.
void send(Tenant& tenant, const fikit_copy_rows& rows) {
    CHECK_EQUAL(tenant->copy_rows(0, rows, nullptr), 0);
}

TEST(what_arrays_count_as) {
    CHECK_EQUAL(memory_bytes(plane), 512u << 10);
    CHECK_EQUAL(memory_bytes({1, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0, 0}), 64u << 10);
    CHECK_EQUAL(memory_bytes({512, 256, 3, CU_AD_FORMAT_FLOAT, 4, 0, 0}), uint64_t{16 * 512} << 10);
    fikit_array_shape levels = {512, 512, 0, CU_AD_FORMAT_FLOAT, 1, 0, 2};
    CHECK_EQUAL(memory_bytes(levels), (uint64_t{1024} + 256) << 10);
    CHECK_EQUAL(most_levels(levels), 10u);
    levels.depth = 6;
    levels.flags = CUDA_ARRAY3D_LAYERED;
    CHECK_EQUAL(level_of(levels, 1).depth, 6u);
    CHECK_EQUAL(level_of(levels, 1).height, 256u);
    CHECK_EQUAL(level_of(levels, UINT32_MAX).width, 1u);
    // As an H200 lays them out.
    CHECK_EQUAL(memory_bytes({131072, 0, 0, CU_AD_FORMAT_FLOAT, 4, 0, 0}), 2097152u);
    CHECK_EQUAL(memory_bytes({4096, 4096, 0, CU_AD_FORMAT_FLOAT, 4, 0, 0}), 268435456u);
    CHECK_EQUAL(memory_bytes({1000, 1001, 0, CU_AD_FORMAT_FLOAT, 1, 0, 0}), 4128768u);
    CHECK_EQUAL(memory_bytes({4097, 129, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0, 0}), 1114112u);
    CHECK_EQUAL(memory_bytes({512, 512, 64, CU_AD_FORMAT_FLOAT, 1, 0, 0}), 67108864u);
    CHECK_EQUAL(memory_bytes({500, 500, 33, CU_AD_FORMAT_FLOAT, 1, 0, 0}), 49545216u);
    CHECK_EQUAL(memory_bytes({1000, 1000, 7, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED, 0}), 28901376u);
    CHECK_EQUAL(memory_bytes({512, 512, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP, 0}), 6291456u);
    CHECK_EQUAL(memory_bytes({16, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0, 0}), 65536u);
    CHECK_EQUAL(memory_bytes({4096, 4096, 0, CU_AD_FORMAT_FLOAT, 1, 0, 4}), 89128960u);
    CHECK_EQUAL(memory_bytes({4096, 4096, 0, CU_AD_FORMAT_FLOAT, 1, 0, 12}), 89522176u);
    constexpr uint64_t longest = longest_extent;
    CHECK(memory_bytes({longest, longest, longest, CU_AD_FORMAT_FLOAT, 4, 0, 0}) == longest << 40);
}

// Nor is memory that another session keeps a reason to refuse one.
TEST(arrays_get_what_others_keep) {
    Settings settings = hand_turned();
    settings.keep_ns = 60'000'000'000;
    Rig rig(settings);
    Tenant tenant = rig.attach("a"), other = rig.attach("b");
    uint64_t address = 0, charged = 0;
    const auto before = null_driver::live();
    rig.while_turning([&] { CHECK_EQUAL(other->memory_allocate(4u << 20, address, charged), 0); });
    CHECK_EQUAL(other->memory_free(address), 0);
    rig.settle();
    null_driver::fail(Function::cuArray3DCreate_, CUDA_ERROR_OUT_OF_MEMORY, 0, 1);
    CHECK_EQUAL(create(rig, tenant, 1), 0);
    CHECK_EQUAL(null_driver::live().mapped_bytes, before.mapped_bytes);
    CHECK_EQUAL(memory_of(rig, "a"), 512u << 10);
    null_driver::fail(Function::cuArray3DCreate_, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(create(rig, tenant, 2), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(memory_of(rig, "a"), 512u << 10);
}

TEST(arrays_count_and_are_limited) {
    Rig rig;
    Tenant tenant;
    CHECK_EQUAL(rig.attach("a", 5, tenant, 1.0, 1u << 20), "");
    const auto before = null_driver::live();
    CHECK_EQUAL(create(rig, tenant, 1), 0);
    fikit_array_shape mipmapped = plane;
    mipmapped.levels = 3;
    CHECK_EQUAL(create(rig, tenant, 2, mipmapped), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(create(rig, tenant, 2), 0);
    CHECK_EQUAL(memory_of(rig, "a"), 1u << 20);
    CHECK_EQUAL(create(rig, tenant, 3, {16, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0, 0}), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(null_driver::live().arrays, before.arrays + 2);
    CHECK_EQUAL(destroy(rig, tenant, 1), 0);
    CHECK_EQUAL(destroy(rig, tenant, 1), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(memory_of(rig, "a"), 512u << 10);
    // What the driver refuses counts as nothing.
    null_driver::fail(Function::cuArray3DCreate_, CUDA_ERROR_INVALID_VALUE, 0, 1);
    CHECK_EQUAL(create(rig, tenant, 1), CUDA_ERROR_INVALID_VALUE);
    null_driver::fail(Function::cuMipmappedArrayGetLevel_, CUDA_ERROR_INVALID_VALUE, 1, 1);
    mipmapped.height = 64;
    CHECK_EQUAL(create(rig, tenant, 1, mipmapped), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(memory_of(rig, "a"), 512u << 10);
    CHECK_EQUAL(null_driver::live().arrays, before.arrays + 1);
}

TEST(shapes_are_not_believed) {
    Rig rig;
    Tenant tenant = rig.attach("a");
    const auto before = null_driver::live();
    fikit_array_shape shape = plane;
    for (const uint32_t handle : {0u, uint32_t{FIKIT_MAX_ARRAYS}, UINT32_MAX})
        CHECK_EQUAL(create(rig, tenant, handle), CUDA_ERROR_INVALID_VALUE);
    for (const uint64_t width : {uint64_t{0}, longest_extent + 1, UINT64_MAX}) {
        shape.width = width;
        CHECK_EQUAL(create(rig, tenant, 1, shape), CUDA_ERROR_INVALID_VALUE);
    }
    shape = plane;
    shape.levels = 11;
    CHECK_EQUAL(create(rig, tenant, 1, shape), CUDA_ERROR_INVALID_VALUE);
    shape = plane;
    shape.flags = CUDA_ARRAY3D_SPARSE;
    CHECK_EQUAL(create(rig, tenant, 1, shape), CUDA_ERROR_NOT_SUPPORTED);
    shape = plane;
    shape.channels = 3;
    CHECK_EQUAL(create(rig, tenant, 1, shape), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL(null_driver::live().arrays, before.arrays);
    CHECK_EQUAL(create(rig, tenant, 1), 0);
    CHECK_EQUAL(create(rig, tenant, 1), CUDA_ERROR_INVALID_VALUE);
}

// What is in flight may use it.
TEST(an_array_goes_after_the_work) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    CHECK_EQUAL(create(rig, tenant, 1), 0);
    hold_all(rig);
    launch(tenant);
    const auto before = null_driver::live();
    std::atomic<bool> gone{false};
    const uint64_t head = __atomic_load_n(&tenant.outbox->head, __ATOMIC_ACQUIRE);
    std::thread waiting([&] {
        Reply reply;
        const fikit_request_array_destroy request = {1, 0};
        CHECK_EQUAL(tenant->call(fikit_call_array_destroy, {&request, sizeof request}, reply), 0);
        gone = true;
    });
    rig.turn_until([&] { return __atomic_load_n(&tenant.outbox->head, __ATOMIC_ACQUIRE) > head; });
    rig.turn(1000);
    CHECK(!gone);
    CHECK_EQUAL(null_driver::live().arrays, before.arrays);
    release_all(rig);
    rig.turn_until([&] { return gone.load(); });
    waiting.join();
    CHECK_EQUAL(null_driver::live().arrays, before.arrays - 1);
}

TEST(a_session_s_end_gives_all_back) {
    Rig rig;
    const auto before = null_driver::live();
    Tenant tenant = rig.ready("a", 0);
    CHECK_EQUAL(create(rig, tenant, 1), 0);
    fikit_array_shape mipmapped = plane;
    mipmapped.levels = 3;
    CHECK_EQUAL(create(rig, tenant, 2, mipmapped), 0);
    fikit_request_texture_create texture{};
    texture.type = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    texture.array = 2;
    fikit_reply_texture_create answer{};
    CHECK_EQUAL(call(rig, tenant, fikit_call_texture_create, texture, answer), 0);
    texture.type = CU_RESOURCE_TYPE_ARRAY;
    texture.level = 2;
    texture.surface = 1;
    CHECK_EQUAL(call(rig, tenant, fikit_call_texture_create, texture, answer), 0);
    CHECK_EQUAL(null_driver::live().arrays, before.arrays + 2);
    CHECK_EQUAL(null_driver::live().textures, before.textures + 2);
    hold_all(rig);
    launch(tenant);
    rig.take(tenant);
    rig.settle();
    rig.while_turning([&] { CHECK(rig.core().end("a", 999, "it is over")); });
    rig.turn(1000);
    CHECK_EQUAL(null_driver::live().arrays, before.arrays + 2);
    release_all(rig);
    CHECK_EQUAL(rig.wait_ended().id, "a");
    rig.turn_until([&] { return null_driver::live().arrays == before.arrays; });
    CHECK_EQUAL(null_driver::live().textures, before.textures);
    // Its memory is the tenant's again.
    Tenant next;
    CHECK_EQUAL(rig.attach("b", 5, next, 1.0, 0, 1u << 20), "");
    Status status = CUDA_ERROR_OUT_OF_MEMORY;
    rig.turn_until([&] { return (status = create(rig, next, 1)) == 0; });
    CHECK_EQUAL(create(rig, next, 2), 0);
}

TEST(textures_are_made_of_what_is_the_session_s) {
    Rig rig;
    Tenant tenant = rig.attach("a"), other = rig.attach("b");
    CHECK_EQUAL(create(rig, other, 1), 0);
    const auto before = null_driver::live();
    fikit_request_texture_create request{};
    fikit_reply_texture_create answer{};
    const auto refused = [&](CUresult error) {
        CHECK_EQUAL(call(rig, tenant, fikit_call_texture_create, request, answer), error);
    };
    request.type = CU_RESOURCE_TYPE_ARRAY;
    request.array = 1;
    refused(CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(create(rig, tenant, 1), 0);
    request.level = 1;
    refused(CUDA_ERROR_INVALID_HANDLE);
    request.type = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    refused(CUDA_ERROR_INVALID_HANDLE);
    request.type = 77;
    refused(CUDA_ERROR_INVALID_VALUE);
    uint64_t address = 0, charged = 0;
    rig.while_turning([&] { CHECK_EQUAL(tenant->memory_allocate(4096, address, charged), 0); });
    request = {};
    request.type = CU_RESOURCE_TYPE_LINEAR;
    request.format = CU_AD_FORMAT_FLOAT;
    request.channels = 1;
    request.address = address;
    request.width = 4097;
    refused(CUDA_ERROR_INVALID_VALUE);
    request.type = CU_RESOURCE_TYPE_PITCH2D;
    request.width = 16;
    request.pitch = 512;
    request.height = 9;
    refused(CUDA_ERROR_INVALID_VALUE);
    for (const uint64_t pitch : {UINT64_MAX, UINT64_MAX / 8}) {
        request.pitch = pitch;
        refused(CUDA_ERROR_INVALID_VALUE);
    }
    request.pitch = 512;
    request.height = 8;
    request.viewed = 1;  // what the driver's types cannot hold
    for (uint8_t* const field : {request.manner + offsetof(CUDA_TEXTURE_DESC, addressMode) + 8,
                                 request.manner + offsetof(CUDA_TEXTURE_DESC, filterMode),
                                 request.manner + offsetof(CUDA_TEXTURE_DESC, mipmapFilterMode),
                                 request.view + offsetof(CUDA_RESOURCE_VIEW_DESC, format)})
        for (const unsigned byte : {0u, 3u}) {
            field[byte] = 0x80;
            refused(CUDA_ERROR_INVALID_VALUE);
            field[byte] = 0;
        }
    CHECK_EQUAL(call(rig, tenant, fikit_call_texture_create, request, answer), 0);
    CHECK_EQUAL(null_driver::live().textures, before.textures + 1);
    fikit_reply_texture_destroy nothing{};
    const fikit_request_texture_destroy foreign = {answer.value, 0, 0}, surface = {answer.value, 1, 0};
    CHECK_EQUAL(call(rig, other, fikit_call_texture_destroy, foreign, nothing), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(call(rig, tenant, fikit_call_texture_destroy, surface, nothing), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(call(rig, tenant, fikit_call_texture_destroy, foreign, nothing), 0);
    CHECK_EQUAL(call(rig, tenant, fikit_call_texture_destroy, foreign, nothing), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(null_driver::live().textures, before.textures);
}

TEST(copies_stay_within) {
    Rig rig;
    Tenant tenant = rig.attach("a"), other = rig.attach("b");
    CHECK_EQUAL(create(rig, tenant, 1), 0);
    fikit_array_shape mipmapped = plane;
    mipmapped.levels = 2;
    CHECK_EQUAL(create(rig, tenant, 2, mipmapped), 0);
    CHECK_EQUAL(create(rig, other, 3), 0);
    const auto copies = [] { return null_driver::count(Function::cuMemcpy3DAsync_); };
    const auto passes = [&](const fikit_copy_rows& rows) {
        const uint64_t before = copies();
        send(tenant, rows);
        rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(), 0); });
        CHECK_EQUAL(copies(), before + 1);
    };
    const auto refused = [&](const fikit_copy_rows& rows) {
        const uint64_t before = copies();
        send(tenant, rows);
        CHECK_STARTS(deferred(rig, tenant, CUDA_ERROR_INVALID_VALUE), "copy: ");
        CHECK_EQUAL(copies(), before);
    };
    const fikit_copy_rows good = upload(1);
    passes(good);
    fikit_copy_rows rows = good;
    rows.to.x = 1024;  // the other half
    passes(rows);
    rows.to.x = 1028;
    refused(rows);
    rows = good;
    rows.to.y = 1;
    refused(rows);
    rows = good;
    rows.to.z = 1;
    refused(rows);
    rows = good;
    rows.to.y = UINT64_MAX;
    refused(rows);
    rows = good;
    rows.to.level = 1;
    refused(rows);
    for (const uint32_t array : {3u, uint32_t{FIKIT_MAX_ARRAYS} - 1}) {
        rows = good;
        rows.to.array = array;
        refused(rows);
    }
    rows = upload(2);
    rows.to.level = 1;
    refused(rows);  // half the rows
    rows.rows = 128;
    passes(rows);
    rows = good;
    rows.copy.other = hand_turned().staging_bytes - (256u << 10) + 1;
    refused(rows);
    --rows.copy.other;
    passes(rows);
    rows = good;
    rows.copy.host_buffer = 1;
    refused(rows);

    uint64_t address = 0, charged = 0;
    rig.while_turning([&] { CHECK_EQUAL(tenant->memory_allocate(2u << 20, address, charged), 0); });
    rows = good;
    rows.copy.kind = FIKIT_COPY_ON_DEVICE;
    rows.copy.other = address + (2u << 20) - (256u << 10);
    passes(rows);
    ++rows.copy.other;
    refused(rows);
    std::swap(rows.to, rows.from);
    rows.copy.device = rows.copy.other;
    refused(rows);
    --rows.copy.device;
    passes(rows);
}

// What says where in an array a copy begins leads no copy elsewhere in memory.
TEST(memory_begins_where_it_was_found) {
    Rig rig;
    Tenant tenant = rig.attach("a");
    CHECK_EQUAL(create(rig, tenant, 1), 0);
    uint64_t address = 0, charged = 0;
    rig.while_turning([&] { CHECK_EQUAL(tenant->memory_allocate(2u << 20, address, charged), 0); });
    const auto written = [&](const fikit_copy_rows& rows) {
        null_driver::record(true);
        send(tenant, rows);
        rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(), 0); });
        null_driver::record(false);
        for (const null_driver::Call& call : null_driver::take_calls())
            if (call.function == Function::cuMemcpy3DAsync_) return call.subject;
        return uint64_t{0};
    };
    for (const uint32_t kind : {FIKIT_COPY_TO_HOST, FIKIT_COPY_ON_DEVICE}) {
        fikit_copy_rows rows = upload(1);
        std::swap(rows.to, rows.from);
        rows.copy.kind = kind;
        (kind == FIKIT_COPY_TO_HOST ? rows.copy.other : rows.copy.device) =
            kind == FIKIT_COPY_TO_HOST ? 0 : address;
        const uint64_t begins = written(rows);
        CHECK(begins != 0 && (kind == FIKIT_COPY_TO_HOST || begins == address));
        rows.to.x = 4096;
        rows.to.y = UINT64_MAX;
        rows.to.z = uint64_t{1} << 40;
        CHECK_EQUAL(written(rows), begins);
    }
}

}  // namespace

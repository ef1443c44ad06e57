// What sessions of one executor share: extents of memory, events.
#include <cstring>
#include <optional>

#include "rig.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

constexpr uint64_t megabyte = 1 << 20;

template <class Request, class Answer>
Status ask(Rig& rig, Tenant& tenant, uint32_t number, const Request& request, Answer& answer) {
    Status status = 0;
    rig.while_turning([&] {
        Reply reply{&answer, sizeof answer, 0};
        status = tenant->call(number, {&request, sizeof request}, reply);
    });
    return status;
}

uint64_t allocate(Rig& rig, Tenant& tenant, uint64_t bytes) {
    uint64_t address = 0, charged = 0;
    rig.while_turning([&] { CHECK_EQUAL(tenant->memory_allocate(bytes, address, charged), 0); });
    return address;
}

fikit_reply_memory_export shared(Rig& rig, Tenant& tenant, uint64_t address, Status expected = 0) {
    fikit_reply_memory_export answer{};
    CHECK_EQUAL(
        ask(rig, tenant, fikit_call_memory_export, fikit_request_memory_export{address, 0, 0}, answer),
        expected);
    return answer;
}

Status import(Rig& rig, Tenant& tenant, const fikit_reply_memory_export& from, uint32_t handle) {
    fikit_request_memory_import request{{}, from.number, handle};
    std::memcpy(request.executor, from.executor, sizeof request.executor);
    fikit_reply_memory_import answer{};
    const Status status = ask(rig, tenant, fikit_call_memory_import, request, answer);
    if (status == 0) CHECK_EQUAL(answer.size, from.size);
    return status;
}

uint64_t used(Rig& rig, const std::string& id) {
    std::optional<Snapshot> seen;
    rig.while_turning([&] { seen = rig.core().snapshot(); });
    for (const SessionSnapshot& session : seen->sessions)
        if (session.id == id) return session.memory_bytes;
    return 0;
}

TEST(an_extent_lives_as_long_as_somebody_has_it) {
    Rig rig;
    const auto before = null_driver::live();
    Tenant importer = rig.ready("b");
    fikit_reply_memory_export large{};
    {
        Tenant exporter = rig.ready("a");
        const uint64_t address = allocate(rig, exporter, 4 * megabyte), small = allocate(rig, exporter, 100);
        large = shared(rig, exporter, address);
        CHECK_EQUAL(large.size, 4 * megabyte);
        CHECK_EQUAL(large.offset, 0u);
        CHECK_EQUAL(shared(rig, exporter, address).number, large.number);
        CHECK(shared(rig, exporter, small).number != large.number);
        shared(rig, exporter, address + (uint64_t{1} << 37), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(import(rig, importer, large, 1), 0);
        CHECK_EQUAL(import(rig, importer, large, 1), CUDA_ERROR_INVALID_VALUE);  // the number is in use
        CHECK_EQUAL(used(rig, "b"), 4 * megabyte);
        rig.while_turning([&] { CHECK(rig.core().end("a", 999, "")); });
        CHECK_EQUAL(rig.wait_ended().id, "a");
    }
    CHECK_EQUAL(import(rig, importer, large, 2), 0);  // it is still there
    fikit_reply_memory_release nothing{};
    for (const uint32_t handle : {1u, 2u})
        CHECK_EQUAL(
            ask(rig, importer, fikit_call_memory_release, fikit_request_memory_release{handle, 0}, nothing),
            0);
    CHECK_EQUAL(used(rig, "b"), 0u);
    CHECK_EQUAL(import(rig, importer, large, 3), CUDA_ERROR_INVALID_HANDLE);
    rig.turn_until([&] { return null_driver::live().allocations == before.allocations; });
}

TEST(what_is_shared_is_charged_and_stays_within_the_executor) {
    Rig rig;
    Tenant exporter = rig.ready("a"), limited;
    CHECK_EQUAL(rig.attach("b", 5, limited, 1.0, 4 * megabyte), "");
    const fikit_reply_memory_export large = shared(rig, exporter, allocate(rig, exporter, 4 * megabyte));
    fikit_reply_memory_export other = shared(rig, exporter, allocate(rig, exporter, 2 * megabyte));
    CHECK_EQUAL(import(rig, limited, large, 1), 0);
    CHECK_EQUAL(import(rig, limited, other, 2), CUDA_ERROR_OUT_OF_MEMORY);
    other.executor[0] ^= 1;
    CHECK_EQUAL(import(rig, limited, other, 2), CUDA_ERROR_INVALID_HANDLE);
}

// What others map is not handed out as new.
TEST(freed_memory_that_is_shared_is_not_used_again) {
    Rig rig;
    Tenant exporter = rig.ready("a"), importer = rig.ready("b");
    const uint64_t address = allocate(rig, exporter, 4 * megabyte);
    const fikit_reply_memory_export large = shared(rig, exporter, address);
    CHECK_EQUAL(import(rig, importer, large, 1), 0);
    CHECK_EQUAL(exporter->memory_free(address), 0);
    rig.settle();
    CHECK(allocate(rig, exporter, 4 * megabyte) != address);
}

// As others name the session.
uint32_t serial(Rig& rig, Tenant& tenant) {
    fikit_reply_session_identity who{};
    CHECK_EQUAL(ask(rig, tenant, fikit_call_session_identity, fikit_request_session_identity{}, who), 0);
    return who.session;
}

// The tenant records the owner's event behind a wait for the word that is returned.
uint64_t* record_late(Rig& rig, Tenant& tenant, uint32_t owner, uint32_t event) {
    uint32_t handle = 0;
    HostBuffer buffer{};
    rig.while_turning([&] { CHECK_EQUAL(tenant->host_allocate(4096, handle, buffer), 0); });
    const fikit_value wait = {CU_STREAM_MEM_OP_WAIT_VALUE_64, 0, handle, 0, 0, 1};
    CHECK_EQUAL(tenant->values(0, &wait, 1), 0);
    CHECK_EQUAL(tenant->event_record_other(owner, event, 0), 0);
    rig.take(tenant);
    rig.settle();
    return reinterpret_cast<uint64_t*>(buffer.address);
}

// A stream of the tenant's waits for the owner's event, in vain as yet.
void wait_in_vain(Rig& rig, Tenant& tenant, uint32_t owner, uint32_t event) {
    uint32_t waiting = 0;
    CHECK_EQUAL(tenant->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, waiting), 0);
    CHECK_EQUAL(tenant->event_wait_other(owner, event, waiting), 0);
    launch(tenant, waiting);
    rig.take(tenant);
    rig.settle();
    CHECK_EQUAL(tenant->stream_query(waiting), status::not_ready);
}

TEST(a_session_waits_for_another_s_event) {
    Rig rig(hand_turned(), 2);
    Tenant tenant = rig.ready("a"), other = rig.ready("b");
    const uint32_t owner = serial(rig, tenant);
    uint32_t handle = 0, event = 0;
    HostBuffer buffer{};
    rig.while_turning([&] { CHECK_EQUAL(tenant->host_allocate(4096, handle, buffer), 0); });
    CHECK_EQUAL(tenant->event_create(event), 0);
    CHECK_EQUAL(other->event_wait_other(owner, event, 0), 0);  // never recorded
    rig.while_turning([&] { CHECK_EQUAL(other->synchronize(), 0); });
    const fikit_value wait = {CU_STREAM_MEM_OP_WAIT_VALUE_64, 0, handle, 0, 0, 1};
    CHECK_EQUAL(tenant->values(0, &wait, 1), 0);
    CHECK_EQUAL(tenant->event_record(event, 0, false), 0);
    rig.take(tenant);
    rig.settle();
    wait_in_vain(rig, other, owner, event);
    launch(other);  // its other streams go on, as do others
    rig.while_turning([&] { CHECK_EQUAL(other->stream_synchronize(0), 0); });
    __atomic_store_n(reinterpret_cast<uint64_t*>(buffer.address), 1, __ATOMIC_RELEASE);
    rig.while_turning([&] { CHECK_EQUAL(other->synchronize(now_ns() + 5'000'000'000), 0); });
    CHECK_EQUAL(other->event_wait_other(owner + 77, event, 0), 0);  // nobody's
    rig.while_turning([&] { CHECK_EQUAL(other->synchronize(), 0); });
}

// Also where the record is put off, behind a word that the recording stream waits for.
TEST(a_session_records_another_s_event) {
    Rig rig(hand_turned(), 2);
    Tenant tenant = rig.ready("a"), other = rig.ready("b");
    const uint32_t owner = serial(rig, tenant);
    uint32_t event = 0, own = 0;
    CHECK_EQUAL(tenant->event_create(event), 0);
    CHECK_EQUAL(other->event_create(own), 0);
    CHECK_EQUAL(own, event);  // so they have the same number
    CHECK_EQUAL(tenant->event_record(event, 0, false), 0);
    rig.take(tenant);
    rig.settle();
    uint64_t* const word = record_late(rig, other, owner, event);
    wait_in_vain(rig, tenant, owner, event);
    // What is the other's own is not held up by it.
    uint32_t apart = 0;
    CHECK_EQUAL(other->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, apart), 0);
    CHECK_EQUAL(other->event_record(own, apart, false), 0);
    CHECK_EQUAL(other->event_wait(own, apart), 0);
    rig.while_turning([&] { CHECK_EQUAL(other->stream_synchronize(apart), 0); });
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(now_ns() + 5'000'000'000), 0); });
    CHECK_EQUAL(other->event_record_other(owner + 77, event, 0), 0);  // nobody's
    rig.while_turning([&] { CHECK_EQUAL(other->synchronize(), 0); });
}

// Whatever its lane is at.
TEST(what_is_over_is_told_as_soon_as_it_is_asked_for) {
    Rig rig(hand_turned(), 1);
    Tenant tenant = rig.ready("a"), other = rig.ready("b");
    const uint32_t owner = serial(rig, tenant);
    uint32_t event = 0, asking = 0;
    CHECK_EQUAL(tenant->event_create(event), 0);
    CHECK_EQUAL(tenant->event_record(event, 0, false), 0);
    rig.take(tenant);
    rig.settle();
    hold_all(rig);
    launch(tenant);
    rig.take(tenant);
    for (Tenant* const each : {&tenant, &other}) {  // also its maker
        CHECK_EQUAL((*each)->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, asking), 0);
        for (int time = 0; time < 2; ++time) {
            CHECK_EQUAL((*each)->event_wait_other(owner, event, asking, true), 0);
            rig.take(*each);
            CHECK_EQUAL((*each)->stream_query(asking), 0);
        }
    }
    CHECK_EQUAL(tenant->event_record(event, 0, false), 0);
    rig.take(tenant);
    CHECK_EQUAL(other->event_wait_other(owner, event, asking, true), 0);
    rig.take(other);
    rig.settle();
    CHECK_EQUAL(other->stream_query(asking), status::not_ready);
    release_all(rig);
    rig.while_turning([&] { CHECK_EQUAL(other->stream_synchronize(asking), 0); });
}

// Nobody waits for what a session that is over would have recorded.
TEST(a_record_of_a_session_that_ends_is_waited_for_no_longer) {
    Rig rig(hand_turned(), 2);
    Tenant tenant = rig.ready("a");
    const uint32_t owner = serial(rig, tenant);
    uint32_t event = 0;
    CHECK_EQUAL(tenant->event_create(event), 0);
    CHECK_EQUAL(tenant->event_record(event, 0, false), 0);
    rig.take(tenant);
    rig.settle();
    {
        Tenant other = rig.ready("b");
        record_late(rig, other, owner, event);
        wait_in_vain(rig, tenant, owner, event);
        rig.while_turning([&] { rig.core().end("b", 0, "over"); });
    }
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(now_ns() + 5'000'000'000), 0); });
}

}  // namespace

// Tenants that misuse what they may write. At most their own session is worse off.
#include <linux/futex.h>
#include <linux/sockios.h>
#include <malloc.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "pace.hpp"
#include "raw_tenant.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

// A call takes the descriptor that was sent before it, behind whatever else was; but what comes without end
// does not keep the dispatch thread.
TEST(bytes_without_end_before_a_descriptor) {
    Rig rig;
    Tenant other = rig.ready("other");
    RawTenant tenant(rig);
    const std::vector<char> bytes(64 << 10);
    CHECK(send(tenant.lifeline.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == 64 << 10);
    const auto unread = [&] {
        int left = 0;
        CHECK(ioctl(tenant.lifeline.get(), SIOCOUTQ, &left) == 0);
        return left;
    };
    CHECK(tenant.ask(fikit_call_host_register, fikit_request_host_register{1, 0, FIKIT_PAGE, 0, 0}));
    rig.turn();
    CHECK(unread() > 0);
    works(rig, other);
    rig.turn_until([&] { return tenant.answered() == 1; });
    CHECK_EQUAL(unread(), 0);
    CHECK_EQUAL(tenant.inbox->call_status, CUDA_ERROR_INVALID_VALUE);
}

fikit_value until(uint64_t address, uint64_t value) {
    return {CU_STREAM_MEM_OP_WAIT_VALUE_64, CU_STREAM_WAIT_VALUE_GEQ, 0, 0, address, value};
}

// As of memory that is mapped and that nobody may use yet.
TEST(a_word_that_cannot_be_read) {
    Rig rig;
    Tenant other = rig.ready("other");
    RawTenant tenant(rig);
    const uint64_t word = tenant.allocate(8);
    for (const Function broken : {Function::cuMemcpyDtoHAsync_, Function::cuStreamWriteValue64_}) {
        null_driver::fail(broken, CUDA_ERROR_INVALID_VALUE, broken == Function::cuMemcpyDtoHAsync_ ? 0 : 1,
                          1);
        const uint64_t errors = tenant.inbox->deferred_count;
        CHECK(tenant.value(0, until(word, 1)));
        rig.turn_until([&] { return tenant.inbox->deferred_count != errors; });
        CHECK_EQUAL(tenant.deferred_text(), "stream memory operation: CUDA_ERROR_INVALID_VALUE (1)");
        CHECK_EQUAL(rig.core().failure(), 0);
        works(rig, other);
    }
    CHECK(!tenant.ended());
    // Nothing that was never asked is waited for.
    rig.while_turning([&] { CHECK(rig.core().end("hostile", 1, "over")); });
    CHECK_EQUAL(rig.wait_ended().id, "hostile");
}

// Each look takes driver calls, which others' launches wait for.
TEST(many_streams_that_wait_for_words_are_looked_at_in_turn) {
    Rig rig;
    Tenant other = rig.ready("other");
    RawTenant tenant(rig);
    constexpr uint32_t streams = 100;
    const uint64_t word = tenant.allocate(8);
    hold_all(rig);
    for (uint32_t stream = 1; stream <= streams; ++stream) {
        fikit_fill fill{};
        fill.record.stream = stream;
        fill.device = word;
        fill.count = fill.width = 1;
        CHECK(tenant.stream_create(stream) && tenant.write(FIKIT_OP_FILL, fill) &&
              tenant.value(stream, until(word, 1)));
    }
    rig.settle();
    release_all(rig);
    const uint64_t before = null_driver::count(Function::cuMemcpyDtoHAsync_);
    rig.turn();
    CHECK(null_driver::count(Function::cuMemcpyDtoHAsync_) - before <= 16);
    rig.turn_until([&] { return null_driver::count(Function::cuMemcpyDtoHAsync_) - before >= 3 * streams; });
    works(rig, other);
}

// Sends a file in memory, which need not take any, with the next call. It begins like PTX.
void offer(RawTenant& tenant, uint64_t bytes) {
    const Descriptor file(memfd_create("tenant's", MFD_CLOEXEC));
    CHECK(ftruncate(file.get(), static_cast<off_t>(bytes)) == 0);
    static constexpr char ptx[] = ".version 7.0\n";
    CHECK_EQUAL(pwrite(file.get(), ptx, sizeof ptx, 0), sizeof ptx);
    CHECK(send_descriptor(tenant.lifeline.get(), file.get()));
}

// As the tenant's pinned memory.
uint64_t register_file(RawTenant& tenant, uint32_t handle, uint64_t bytes, uint64_t own = 0) {
    offer(tenant, bytes);
    fikit_reply_host_register reply{};
    CHECK_EQUAL(
        tenant.call(fikit_call_host_register, fikit_request_host_register{handle, 0, bytes, 0, own}, reply),
        0);
    return reply.device_address;
}

// Where a tenant says that it has its file nothing else goes away or stays short of room.
TEST(a_file_is_mapped_in_nobodys_way) {
    Rig rig;
    RawTenant tenant(rig);
    uint64_t on_stack = 7;
    const auto stack = reinterpret_cast<uintptr_t>(&on_stack) / FIKIT_PAGE * FIKIT_PAGE;
    void* const free_page = mmap(nullptr, FIKIT_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(free_page, FIKIT_PAGE);
    const auto free = reinterpret_cast<uintptr_t>(free_page);
    CHECK_EQUAL(register_file(tenant, 1, FIKIT_PAGE, free), free);
    uint32_t handle = 2;
    for (const uint64_t own : {free, stack, stack - (uint64_t{32} << 20), free + 8, uint64_t{1} << 47,
                               UINT64_MAX - FIKIT_PAGE + 1, uint64_t{FIKIT_PAGE}}) {
        const uint64_t at = register_file(tenant, handle++, FIKIT_PAGE, own);
        CHECK(at != own && at % FIKIT_PAGE == 0);
    }
    CHECK_EQUAL(on_stack, 7);
}

// The executor's own memory is for all of its sessions.
TEST(images_have_a_size_that_can_be_copied) {
    Rig rig;
    RawTenant tenant(rig);
    constexpr uint64_t bytes = uint64_t{3} << 30;
    offer(tenant, bytes);
    fikit_reply_module_load loaded{};
    CHECK_EQUAL(tenant.call(fikit_call_module_load, fikit_request_module_load{1, 1, 0, bytes}, loaded),
                CUDA_ERROR_INVALID_VALUE);
    fikit_reply_graph_create made{};
    offer(tenant, bytes);
    CHECK_EQUAL(tenant.call(fikit_call_graph_create, fikit_request_graph_create{1, 1, 0, bytes, 0, 0}, made),
                CUDA_ERROR_INVALID_VALUE);
}

// Only what was sent with the call, is in memory, and is long enough; nothing of it is pinned.
TEST(an_image_is_in_the_file_of_its_call) {
    Rig rig;
    RawTenant tenant(rig);
    const auto pinned = [] { return null_driver::count(Function::cuMemHostRegister_); };
    const uint64_t before = pinned();
    const auto loads = [&](uint64_t offset, uint64_t bytes, uint32_t offered = 1) {
        fikit_reply_module_load loaded{};
        const fikit_request_module_load request{1, offered, offset, bytes};
        return tenant.call(fikit_call_module_load, request, loaded);
    };
    const auto refused = [&](uint64_t offset, uint64_t bytes, uint32_t offered = 1) {
        CHECK_EQUAL(loads(offset, bytes, offered), CUDA_ERROR_INVALID_VALUE);
    };
    refused(0, 14);
    offer(tenant, 14);
    refused(0, FIKIT_PAGE + 1);
    offer(tenant, 2 * FIKIT_PAGE);
    refused(1, 14);
    offer(tenant, 14);
    refused(0, 14, 2);
    refused(0, 14);  // it was for the call before
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(send_descriptor(tenant.lifeline.get(), ends[0]));
    refused(0, 14);
    close(ends[0]);
    close(ends[1]);
    offer(tenant, 14);
    CHECK_EQUAL(loads(0, 14), 0);
    CHECK_EQUAL(pinned(), before);
}

TEST(links_of_a_session_keep_so_much_together) {
    Rig rig;
    RawTenant tenant(rig);
    constexpr uint64_t bytes = 150 << 20;
    fikit_reply_link_create created{};
    const auto adds = [&](uint32_t link) {
        fikit_reply_link_add added{};
        offer(tenant, bytes);
        return tenant.call(fikit_call_link_add,
                           fikit_request_link_add{link, CU_JIT_INPUT_PTX, 1, 0, 0, bytes}, added);
    };
    for (const uint32_t link : {1u, 2u})
        CHECK_EQUAL(tenant.call(fikit_call_link_create, fikit_request_link_create{link, 0}, created), 0);
    CHECK_EQUAL(adds(1), 0);
    CHECK_EQUAL(adds(2), CUDA_ERROR_OUT_OF_MEMORY);
    fikit_reply_link_destroy destroyed{};
    CHECK_EQUAL(tenant.call(fikit_call_link_destroy, fikit_request_link_destroy{1, 0}, destroyed), 0);
    CHECK_EQUAL(adds(2), 0);
}

TEST(tables_do_not_grow_without_end) {
    Settings settings = hand_turned();
    settings.most_buffers = 5;
    settings.most_reserved = 2;
    Rig rig(settings);
    RawTenant tenant(rig);
    fikit_reply_memory_reserve place{};
    const auto reserves = [&] {
        return tenant.call(fikit_call_memory_reserve, fikit_request_memory_reserve{Arena::granule, 0, 0},
                           place);
    };
    CHECK_EQUAL(reserves(), 0);
    CHECK_EQUAL(reserves(), 0);
    const uint64_t address = place.address;
    CHECK_EQUAL(reserves(), CUDA_ERROR_OUT_OF_MEMORY);
    fikit_reply_memory_create created{};
    CHECK_EQUAL(
        tenant.call(fikit_call_memory_create, fikit_request_memory_create{1, 0, Arena::granule}, created), 0);
    const auto maps = [&] {
        fikit_reply_memory_map mapped{};
        return tenant.call(fikit_call_memory_map, fikit_request_memory_map{address, Arena::granule, 0, 1, 0},
                           mapped);
    };
    for (int i = 0; i < 4; ++i) tenant.allocate(1);
    fikit_free gone{};
    gone.address = tenant.allocate(1);
    fikit_reply_memory_allocate allocated{};
    CHECK_EQUAL(tenant.call(fikit_call_memory_allocate, fikit_request_memory_allocate{1}, allocated),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(maps(), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(tenant.write(FIKIT_OP_FREE, gone));
    CHECK_EQUAL(maps(), 0);
}

// A tenant that always has something for the dispatch thread keeps it from nobody's end.
TEST(a_session_that_closes_ends_beside_a_flood) {
    Rig rig;
    RawTenant flood(rig, "flood");
    Tenant other = rig.attach("other");
    other.producer.reset();
    std::vector<EndedSession> ended;
    rig.turn_until([&] {
        flood.stream_create(1);
        return !(ended = rig.core().take_ended()).empty();
    });
    CHECK_EQUAL(ended.front().id, "other");
    CHECK_EQUAL(ended.front().reason, "closed");
}

// Threads of a tenant that sleep as it waits: on a futex of the inbox, until something moved it and they have
// what they wait for.
struct Sleepers {
    Sleepers(Rig& its_rig, RawTenant& sleeps) : rig(its_rig), tenant(sleeps) {}
    ~Sleepers() {
        for (std::thread& thread : all) thread.join();
    }

    static long futex(const uint32_t* word, int operation, uint32_t value, uint64_t most = 0) {
        return syscall(SYS_futex, word, operation, value, most, word, 0);
    }
    static long asleep_on(const uint32_t& word) { return futex(&word, FUTEX_REQUEUE, 0, INT32_MAX); }
    long asleep() const { return asleep_on(tenant.inbox->wakes); }
    long moved() const { return asleep_on(tenant.inbox->woken); }
    void sleep(int threads, const std::atomic<bool>& awaited) {
        const long before = asleep();
        for (int i = 0; i < threads; ++i)
            all.emplace_back([&] {
                for (;;) {
                    const uint32_t wakes = __atomic_load_n(&tenant.inbox->wakes, __ATOMIC_ACQUIRE);
                    if (awaited.load()) break;
                    futex(&tenant.inbox->wakes, FUTEX_WAIT, wakes);
                }
                ++awake;
            });
        rig.turn_until([&] { return asleep() == before + threads; });
        tenant.outbox->waiters = static_cast<uint32_t>(all.size());
    }
    // Until a step that a thread may wait for is over.
    void wake() {
        CHECK(tenant.step(FIKIT_OP_SYNC, 0, FIKIT_MARK));
        rig.turn_until([&, before = tenant.inbox->wakes] { return tenant.inbox->wakes != before; });
    }

    Rig& rig;
    RawTenant& tenant;
    std::atomic<int> awake{0};
    std::vector<std::thread> all;
};

// A tenant may have any number of them, and waking one takes longer than a launch does.
TEST(threads_that_sleep_are_woken_turn_by_turn) {
    constexpr int threads = 200, at_once = 8;
    Rig rig;
    RawTenant tenant(rig);
    std::atomic<bool> awaited{false}, never{false};
    {
        Sleepers sleepers(rig, tenant);
        sleepers.sleep(threads, never);
        sleepers.sleep(threads, awaited);
        awaited = true;
        sleepers.wake();
        long left = sleepers.moved();
        CHECK(left >= 2 * threads - 2 * at_once);
        while (left > 0) {
            rig.turn();
            CHECK_EQUAL(sleepers.moved(), std::max(left - at_once, 0L));
            left = sleepers.moved();
        }
        rig.turn_until([&] { return sleepers.awake == threads; });
        // Those that wait for something else sleep again, and nobody is kept awake for them.
        rig.turn_until([&] { return sleepers.asleep() == threads; });
        rig.settle();
        CHECK_EQUAL(sleepers.awake.load(), threads);
        never = true;
        rig.while_turning([&] { CHECK(rig.core().end("hostile", 1, "over")); });
        rig.turn_until([&] { return sleepers.awake == 2 * threads; });
    }
}

// Nor is anyone left asleep where the device fails, behind which there are no turns.
TEST(threads_that_sleep_are_woken_when_the_device_fails) {
    constexpr int threads = 40;
    Settings settings;
    settings.own_thread = true;
    Rig rig(settings);
    RawTenant tenant(rig);
    std::atomic<bool> awaited{false};
    Sleepers sleepers(rig, tenant);
    sleepers.sleep(threads, awaited);
    awaited = true;
    null_driver::fail(Function::cuStreamWriteValue64_, CUDA_ERROR_ILLEGAL_ADDRESS, 0, 1);
    CHECK(tenant.step(FIKIT_OP_SYNC, 0, FIKIT_MARK));
    rig.turn_until([&] { return rig.core().failure() != 0; });
    const Nanoseconds limit = host_now() + 10'000'000'000;
    while (sleepers.awake < threads) {
        CHECK(host_now() < limit);
        std::this_thread::yield();
    }
}

// However often this thread is interrupted.
Nanoseconds processor_time() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// However much is over at once, a high-priority session's ring is looked at meanwhile.
TEST(what_many_sessions_have_done_takes_little_of_a_turn_while_high_work_waits) {
    constexpr size_t sessions = 40;
    constexpr uint64_t steps = 250;
    Rig rig;
    std::vector<std::unique_ptr<RawTenant>> all;
    fikit_fill fill{};
    fill.count = fill.width = 1;
    for (size_t i = 0; i < sessions; ++i) {
        RawTenant& tenant = *all.emplace_back(std::make_unique<RawTenant>(rig, std::to_string(i)));
        fill.device = tenant.allocate(1);
        hold_all(rig);
        CHECK(tenant.write(FIKIT_OP_FILL, fill));
        for (uint64_t step = 1; step < steps; ++step) CHECK(tenant.step(FIKIT_OP_SYNC, 0));
    }
    rig.turn_until([&] {
        return std::all_of(all.begin(), all.end(), [](const auto& tenant) { return tenant->is_read(); });
    });
    rig.settle();
    const auto over = [&] {
        uint64_t sum = 0;
        for (const auto& tenant : all) sum += tenant->mark(0);
        return sum;
    };
    CHECK_EQUAL(over(), 0u);
    RawTenant high(rig, "high", 0);
    release_all(rig);
    uint64_t before = 0;
    rig.turn_until([&] {
        CHECK(before == 0 || !high.is_read());
        for (uint32_t record = 0; record < 2 * records_per_turn; ++record) high.stream_create(1);
        const uint64_t now = over();
        CHECK(now - std::exchange(before, now) <= 2 * most_in_flight);
        return now == sessions * steps;
    });
}

// All the streams that there are wait, all that may be put off is memory with a word in it, and one wait
// after another is over.
TEST(memory_that_waits_for_a_word_takes_little_of_a_turn) {
    constexpr uint32_t streams = FIKIT_MAX_STREAMS - 1;
    Rig rig;
    RawTenant tenant(rig);
    const auto put = [&](auto write) { rig.turn_until(write); };
    const uint64_t word = tenant.allocate(8);
    for (uint32_t stream = 1; stream < streams; ++stream) {
        put([&] { return tenant.stream_create(stream); });
        put([&] { return tenant.step(FIKIT_OP_HOST_FUNCTION, stream); });
    }
    put([&] { return tenant.stream_create(streams); });
    put([&] { return tenant.value(streams, until(word, 1)); });
    fikit_free free{};
    free.record.flags = FIKIT_IN_ORDER;
    free.address = word;
    for (size_t i = 0; i < most_deferred; ++i) put([&] { return tenant.write(FIKIT_OP_FREE, free); });
    rig.settle();
    for (uint32_t stream = 1; stream < streams; ++stream) tenant.host_done(stream, 1);
    const Nanoseconds begun = processor_time();
    for (int i = 0; i < 100; ++i) rig.turn();
    CHECK(processor_time() - begun < 100'000'000);
    CHECK(!tenant.ended());
}

// However much memory is on its way back, a call that waits for some of it is looked at in each turn.
TEST(much_memory_on_its_way_back_takes_little_of_a_turn) {
    constexpr uint32_t many = 100'000;
    Rig rig;
    RawTenant tenant(rig);
    std::vector<uint64_t> all;
    for (uint32_t i = 0; i < many; ++i) all.push_back(tenant.allocate(1));
    register_file(tenant, 1, FIKIT_PAGE);
    hold_all(rig);
    fikit_fill fill{};
    fill.device = all.front();
    fill.count = fill.width = 1;
    CHECK(tenant.write(FIKIT_OP_FILL, fill));
    fikit_free free{};
    for (const uint64_t address : all) {
        free.address = address;
        rig.turn_until([&] { return tenant.write(FIKIT_OP_FREE, free); });
    }
    free.address = 1;
    rig.turn_until([&] { return tenant.write(FIKIT_OP_HOST_FREE, free); });
    CHECK(
        tenant.ask(fikit_call_host_allocate, fikit_request_host_allocate{2, 0, Settings{}.host_limit_bytes}));
    rig.turn_until([&] { return tenant.is_read(); });
    const Nanoseconds begun = processor_time();
    for (int i = 0; i < 100; ++i) rig.turn();
    CHECK(processor_time() - begun < 20'000'000);
    CHECK_EQUAL(tenant.answered(), many + 1);
    release_all(rig);
}

// Each takes one of the process's mappings, which are all sessions'.
TEST(pinned_memory_on_its_way_back_is_not_ever_more) {
    constexpr uint32_t many = IdleJobs::most + 1;
    Rig rig;
    RawTenant tenant(rig);
    const uint64_t device = tenant.allocate(1);
    for (uint32_t handle = 1; handle <= many; ++handle) register_file(tenant, handle, FIKIT_PAGE);
    hold_all(rig);
    fikit_fill fill{};
    fill.device = device;
    fill.count = fill.width = 1;
    CHECK(tenant.write(FIKIT_OP_FILL, fill));
    fikit_free free{};
    for (free.address = 1; free.address <= many; ++free.address)
        rig.turn_until([&] { return tenant.write(FIKIT_OP_HOST_FREE, free); });
    rig.turn_until([&] { return tenant.is_read(); });
    const uint64_t answered = tenant.answered();
    CHECK(tenant.ask(fikit_call_host_allocate, fikit_request_host_allocate{many + 1, 0, FIKIT_PAGE}));
    rig.settle();
    CHECK_EQUAL(tenant.answered(), answered);
    release_all(rig);
    rig.turn_until([&] { return tenant.answered() != answered; });
    CHECK_EQUAL(tenant.inbox->call_status, 0);
}

// All the streams that there are, each with a step that is over.
void use_all_streams(Rig& rig, RawTenant& tenant) {
    for (uint32_t stream = 1; stream < FIKIT_MAX_STREAMS; ++stream) {
        rig.turn_until([&] { return tenant.stream_create(stream); });
        rig.turn_until([&] { return tenant.event(FIKIT_OP_EVENT_RECORD, stream, 1); });
    }
    rig.settle();
}

TEST(streams_without_steps_in_flight_take_little_memory) {
    Rig rig;
    RawTenant tenant(rig);
    const size_t before = mallinfo2().uordblks;
    use_all_streams(rig, tenant);
    CHECK(mallinfo2().uordblks - before < 32u << 20);
}

// What it leaves is large, and goes without the dispatch thread.
TEST(the_end_of_a_session_with_many_streams_takes_little_of_a_turn) {
    Rig rig;
    RawTenant tenant(rig);
    use_all_streams(rig, tenant);
    rig.while_turning([&] { CHECK(rig.core().end("hostile", 1, "over")); });
    Nanoseconds longest = 0;
    rig.turn_until([&] {
        const Nanoseconds begun = processor_time();
        rig.turn();
        longest = std::max(longest, processor_time() - begun);
        return !rig.core().take_ended().empty();
    });
    CHECK(longest < 2'000'000);
}

}  // namespace

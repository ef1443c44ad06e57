// Memory that a tenant registers: which files are taken, and what becomes of one that the tenant takes away.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <descriptors.hpp>
#include <filesystem>
#include <string>

#include "check.hpp"
#include "rig.hpp"
#include "shared_memory.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

constexpr uint64_t size = 4 * FIKIT_PAGE;

Descriptor file_of(uint64_t bytes) {
    Descriptor file(memfd_create("tenant's", MFD_CLOEXEC));
    CHECK(ftruncate(file.get(), static_cast<off_t>(bytes)) == 0);
    return file;
}

TEST(a_part_of_a_file_is_shared) {
    const Descriptor file = file_of(size + 100);
    SharedMemory memory;
    CHECK(memory.open(file.get(), FIKIT_PAGE, size, 0));
    CHECK(pwrite(file.get(), "here", 4, FIKIT_PAGE + 7) == 4);
    CHECK(std::memcmp(memory.data() + 7, "here", 4) == 0);
    memory.data()[size - 1] = 'x';  // behind the file's end, on its last page
}

TEST(what_is_no_such_file_is_refused) {
    const Descriptor file = file_of(size);
    SharedMemory memory;
    CHECK(!memory.open(file.get(), 1, FIKIT_PAGE, 0));
    CHECK(!memory.open(file.get(), FIKIT_PAGE, size, 0));
    CHECK(!memory.open(file.get(), size + FIKIT_PAGE, FIKIT_PAGE, 0));
    CHECK(!memory.open(file.get(), 0, UINT64_MAX - FIKIT_PAGE + 1, 0));
    const std::string path = "/proc/self/fd/" + std::to_string(file.get());
    CHECK(!memory.open(Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC)).get(), 0, size, 0));
    CHECK(!memory.open(Descriptor(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)).get(), 0, FIKIT_PAGE, 0));
    CHECK(!memory.open(Descriptor(open("/dev/zero", O_RDWR | O_CLOEXEC)).get(), 0, FIKIT_PAGE, 0));
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    const Descriptor reading(ends[0]), writing(ends[1]);
    CHECK(!memory.open(reading.get(), 0, FIKIT_PAGE, 0));
    CHECK(!memory.open(-1, 0, FIKIT_PAGE, 0));
    CHECK(memory.data() == nullptr);
}

TEST(zeros_take_the_place_of_what_is_taken_away) {
    const Descriptor file = file_of(size);
    SharedMemory memory, other;
    CHECK(memory.open(file.get(), 0, size, 0));
    CHECK(other.open(file.get(), FIKIT_PAGE, FIKIT_PAGE, 0));
    std::memset(memory.data(), 1, size);
    CHECK(ftruncate(file.get(), FIKIT_PAGE) == 0);
    CHECK_EQUAL(memory.data()[0], 1);
    for (uint64_t at = FIKIT_PAGE; at < size; at += FIKIT_PAGE) CHECK_EQUAL(memory.data()[at], 0);
    CHECK_EQUAL(other.data()[5], 0);
    memory.data()[size - 1] = 2;
    CHECK_EQUAL(memory.data()[size - 1], 2);
}

// A process has some 65,000 mappings: who takes a file away must not use them up.
TEST(what_is_taken_away_takes_few_mappings) {
    constexpr uint64_t pages = 160'000;
    const Descriptor file = file_of(pages * FIKIT_PAGE);
    SharedMemory memory;
    CHECK(memory.open(file.get(), 0, pages * FIKIT_PAGE, 0));
    CHECK(ftruncate(file.get(), 0) == 0);
    for (uint64_t page = 0; page < pages; page += 2) CHECK_EQUAL(memory.data()[page * FIKIT_PAGE], 0);
    for (uint64_t left = 20; left > 0; --left) {  // little by little
        CHECK(ftruncate(file.get(), static_cast<off_t>(left * FIKIT_PAGE)) == 0);
        CHECK_EQUAL(memory.data()[left * FIKIT_PAGE], 0);
    }
}

blkcnt_t blocks_of(const Descriptor& file) {
    struct stat found{};
    CHECK(fstat(file.get(), &found) == 0);
    return found.st_blocks;
}

// Ours is counted as the executor's, and nobody could count what tenants keep of it.
TEST(memory_goes_though_somebody_has_its_descriptor) {
    for (const bool left : {false, true}) {
        SharedMemory memory;
        CHECK(memory.create("ours", size, false));
        const Descriptor kept = memory.take_descriptor();
        std::memset(memory.data(), 1, size);
        CHECK(blocks_of(kept) > 0);
        if (left) memory.leave();
        memory = SharedMemory();
        CHECK_EQUAL(blocks_of(kept) > 0, left);
    }
    SharedMemory theirs;
    const Descriptor file = file_of(size);
    CHECK(theirs.open(file.get(), 0, size, 0));
    std::memset(theirs.data(), 1, size);
    theirs = SharedMemory();
    CHECK(blocks_of(file) > 0);
}

auto open_files() {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
}

// What a tenant sends beyond the one that is looked at must not stay open here.
TEST(of_several_descriptors_one_comes) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    const Descriptor ours(ends[0]), theirs(ends[1]);
    for (const size_t count : {1, 2, 3, 40}) {
        const std::vector<int> sent(count, STDIN_FILENO);
        std::vector<uint64_t> control(CMSG_SPACE(count * sizeof(int)) / sizeof(uint64_t));
        char byte = 0;
        iovec data = {&byte, 1};
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size() * sizeof(uint64_t);
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        std::memcpy(CMSG_DATA(header), sent.data(), count * sizeof(int));
        const auto before = open_files();
        CHECK(sendmsg(theirs.get(), &message, 0) == 1);
        int came = -1;
        CHECK_EQUAL(receive_descriptor(ours.get(), &byte, 1, came), 1);
        const Descriptor got(came);
        CHECK(got && open_files() == before + 1);
    }
    int came = 7;
    CHECK(send(theirs.get(), "ab", 2, 0) == 2);
    char bytes[8];
    CHECK_EQUAL(receive_descriptor(ours.get(), bytes, sizeof bytes, came), 2);
    CHECK_EQUAL(came, -1);
    CHECK(send_descriptor(theirs.get(), STDIN_FILENO));
    CHECK_EQUAL(receive_descriptor(ours.get(), bytes, sizeof bytes, came), 1);
    CHECK(Descriptor(came));
}

TEST(a_session_registers_its_file) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    const Descriptor file = file_of(size);
    void* const own = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    const auto before = null_driver::live();
    const auto registers = [&](int descriptor, uint64_t bytes, uint64_t offset) {
        uint32_t handle = 0;
        HostBuffer buffer{};
        Status status = 0;
        rig.while_turning([&] {
            status = tenant->host_register(static_cast<const uint8_t*>(own), bytes, descriptor, offset,
                                           handle, buffer);
        });
        return status;
    };
    CHECK_EQUAL(registers(-1, size, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(registers(STDIN_FILENO, size, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(registers(file.get(), size, 8), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(registers(file.get(), 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(registers(file.get(), uint64_t{1} << 60, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(null_driver::live().registrations, before.registrations);
    // The executor has it where this process would have it, too, so the one address is not free here.
    CHECK_EQUAL(registers(file.get(), size, 0), status::operating_system);
    rig.turn_until([&] { return null_driver::live().registrations == before.registrations; });
    CHECK_EQUAL(tenant->synchronize(), 0);
    munmap(own, size);
}

// A session may have thousands, and the executor has few descriptors.
TEST(pinned_memory_holds_no_descriptor) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    const auto before = open_files();
    for (int i = 0; i < 10; ++i) {
        uint32_t handle = 0;
        HostBuffer buffer{};
        rig.while_turning([&] { CHECK_EQUAL(tenant->host_allocate(FIKIT_PAGE, handle, buffer), 0); });
        std::memset(buffer.address, i, FIKIT_PAGE);
    }
    CHECK_EQUAL(open_files(), before);
}

uint32_t pinned(Rig& rig, Tenant& tenant, uint64_t bytes) {
    uint32_t handle = 0;
    HostBuffer buffer{};
    rig.while_turning([&] { CHECK_EQUAL(tenant->host_allocate(bytes, handle, buffer), 0); });
    return handle;
}

// Work that may have no end, which keeps the driver from giving anything back.
Tenant endless(Rig& rig) {
    Tenant busy = rig.ready("busy", 5);
    rig.settle();  // channels of sessions to come are registered
    hold_all(rig);
    launch(busy);
    rig.take(busy);
    return busy;
}

// Of a device on which a second passes in a millisecond.
Settings quick() {
    Settings settings = hand_turned();
    settings.time_scale = 0.001;
    return settings;
}

// `act` is not over before that work is, however long that takes.
template <typename Act>
void waits_for_its_end(Rig& rig, Act act) {
    std::atomic<bool> over{false};
    std::thread thread([&] {
        act();
        over.store(true);
    });
    const Nanoseconds begun = host_now();
    while (host_now() - begun < 2 * IdleJobs::patience / 1000) {
        rig.turn(100);
        CHECK(!over.load());
    }
    release_all(rig);
    rig.turn_until([&] { return over.load(); });
    thread.join();
}

// A tenant that does not take what it is sent: nobody is to wait for what runs because of that.
TEST(what_cannot_be_handed_over_goes_when_nothing_runs) {
    Rig rig;
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const Descriptor full(dup(ends[0]));
    Producer* producer = nullptr;
    std::pair<int, int> memories;
    rig.while_turning([&] { memories = rig.core().attach({"deaf", 5, 1.0, 0, 0, false, ends[0], -1}); });
    CHECK(Producer::attach(memories.first, memories.second, ends[1], producer) == status::success);
    const std::unique_ptr<Producer> deaf(producer);
    const Tenant busy = endless(rig);
    while (send(full.get(), "d", 1, MSG_DONTWAIT) == 1) {
    }
    const auto before = null_driver::live().registrations;
    uint32_t handle = 0;
    HostBuffer buffer{};
    rig.while_turning(
        [&] { CHECK_EQUAL(deaf->host_allocate(FIKIT_PAGE, handle, buffer), CUDA_ERROR_OUT_OF_MEMORY); });
    CHECK_EQUAL(null_driver::live().registrations, before + 1);
    release_all(rig);
    rig.turn_until([&] { return null_driver::live().registrations == before; });
}

TEST(what_is_freed_and_allocated_in_turn_does_not_pile_up) {
    constexpr uint64_t bytes = IdleJobs::most_bytes / 4;
    Rig rig(quick());
    Tenant tenant = rig.ready("a", 5);
    const Tenant busy = endless(rig);
    const auto before = null_driver::live().registrations;
    const auto again = [&](uint32_t handle) {
        CHECK(null_driver::live().registrations <= before + 5 + 1);
        CHECK_EQUAL(tenant->host_free(handle), 0);
        rig.take(tenant);
    };
    for (int i = 0; i < 5; ++i) again(pinned(rig, tenant, bytes));
    uint32_t handle = 0;
    HostBuffer buffer{};
    waits_for_its_end(rig, [&] { CHECK_EQUAL(tenant->host_allocate(bytes, handle, buffer), 0); });
    again(handle);
    rig.turn_until([&] { return null_driver::live().registrations == before; });
}

// What would be put off in turn, as code that is unloaded is, waits until there is less.
TEST(code_waits_until_less_is_on_its_way_back) {
    constexpr uint64_t bytes = IdleJobs::most_bytes / 4;
    Rig rig(quick());
    Tenant tenant = rig.ready("a", 5);
    const Tenant busy = endless(rig);
    uint32_t handles[6] = {};
    for (uint32_t& handle : handles) handle = pinned(rig, tenant, bytes);
    const auto before = null_driver::live().registrations;
    for (const uint32_t handle : handles) CHECK_EQUAL(tenant->host_free(handle), 0);
    uint32_t module = 0;
    static constexpr char ptx[] = ".version 7.0\n";
    Reply log;
    waits_for_its_end(rig, [&] { CHECK_EQUAL(tenant->module_load(ptx, sizeof ptx, module, log), 0); });
    CHECK(null_driver::live().registrations <= before - 2);
    rig.settle();
}

// Also what work in flight may still use.
TEST(what_is_freed_counts_until_it_is_back) {
    Settings settings = hand_turned();
    settings.host_limit_bytes = 4 * FIKIT_PAGE;
    Rig rig(settings);
    Tenant tenant = rig.ready("a", 0);
    const uint32_t first = pinned(rig, tenant, 3 * FIKIT_PAGE);
    hold_all(rig);
    launch(tenant);
    CHECK_EQUAL(tenant->host_free(first), 0);
    rig.take(tenant);
    std::atomic<bool> over{false};
    std::thread thread([&] {
        uint32_t second = 0;
        HostBuffer buffer{};
        CHECK_EQUAL(tenant->host_allocate(2 * FIKIT_PAGE, second, buffer), 0);
        over.store(true);
    });
    rig.turn(1000);
    CHECK(!over.load());
    release_all(rig);
    rig.turn_until([&] { return over.load(); });
    thread.join();
}

}  // namespace

// Two tenants that ask for anything in any order, beside one that behaves: calls and records with handles and
// addresses that are there, that were, that are the other's or nobody's, and with sizes that cannot be.
// Nothing crashes or hangs, the third is served, and of those that have ended nothing is left.
//
//   test_any_calls [--rounds=NUMBER] [--seed=NUMBER]
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "raw_tenant.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

constexpr int steps = 1000;  // of one round

class Fuzzer {
  public:
    Fuzzer(Rig& rig, Tenant& bystander, uint64_t seed) : rig_(rig), bystander_(bystander), random_(seed) {}

    void round(uint64_t number) {
        RawTenant one(rig_, "one " + std::to_string(number), static_cast<int>(random_() % 10));
        RawTenant two(rig_, "two " + std::to_string(number), static_cast<int>(random_() % 10));
        const std::array<RawTenant*, 2> tenants = {&one, &two};
        for (RawTenant* const tenant : tenants) prepare(*tenant);
        for (int step = 0; step < steps; ++step) {
            RawTenant& tenant = *tenants[random_() % 2];
            if (tenant.ended()) continue;
            if (random_() % 3 == 0)
                ask(tenant);
            else
                write(tenant);
            if (random_() % 4 == 0)
                tenant.host_done(handle(), random_() % 4 == 0 ? number_or_size() : 1u << 20);
            if (random_() % 40 == 0) scribble(tenant);
            if (random_() % 2 == 0) rig_.turn();
            if (random_() % 4 == 0) catch_up(tenant);
            if (random_() % 50 == 0) works(rig_, bystander_);
            harvest(tenant);
        }
        for (const char* const name : {"one ", "two "})
            rig_.while_turning([&] { rig_.core().end(name + std::to_string(number), 1, "over"); });
        size_t ended = 0;
        rig_.turn_until([&] { return (ended += rig_.core().take_ended().size()) == 2; });
        works(rig_, bystander_);
        CHECK_EQUAL(rig_.core().failure(), 0);
    }

  private:
    // Until the core has read what was written, or waits for the tenant.
    void catch_up(RawTenant& tenant) {
        for (int turns = 0; turns < 200 && !tenant.ended() && !tenant.is_read(); ++turns) {
            rig_.turn();
            std::this_thread::yield();
        }
    }
    // What images in the staging area may be.
    void prepare(RawTenant& tenant) {
        static constexpr char ptx[] = ".version 7.0\n";
        std::memcpy(tenant.staging(), ptx, sizeof ptx);
        graph_image(tenant, 4096);
        tenant.ask(fikit_call_module_load, fikit_request_module_load{1, 0, 0, sizeof ptx});
        tenant.ask(fikit_call_function_get, fikit_request_function_get{1, 1, 6, 0}, "kernel", 6);
        for (uint32_t stream = 1; stream < 4; ++stream) tenant.stream_create(stream, stream % 2);
        for (int i = 0; i < 3; ++i)
            tenant.ask(fikit_call_memory_allocate, fikit_request_memory_allocate{size() % (4 << 20) + 1});
        for (int i = 0; i < 8; ++i) {
            rig_.settle();
            harvest(tenant);
        }
    }
    void graph_image(RawTenant& tenant, uint64_t at) {
        for (unsigned node = 0; node < 3; ++node) {
            std::array<uint8_t, 136> bytes{};
            const fikit_graph_node head = {0, 128};
            std::memcpy(bytes.data(), &head, sizeof head);
            const std::vector<uint8_t> record = any_record(128, node == 2);
            std::memcpy(bytes.data() + 8, record.data(), 128);
            std::memcpy(tenant.staging() + at, bytes.data(), bytes.size());
            at += bytes.size();
        }
    }
    std::vector<uint8_t> any_record(uint32_t bytes, bool decides) {
        std::vector<uint8_t> record(bytes);
        fill(record.data() + sizeof(fikit_record), bytes - sizeof(fikit_record));
        fikit_record header{};
        header.bytes = bytes;
        static constexpr uint16_t kinds[] = {FIKIT_OP_LAUNCH, FIKIT_OP_COPY, FIKIT_OP_FILL, FIKIT_OP_SYNC};
        header.op = decides ? static_cast<uint16_t>(FIKIT_OP_DECISION) : kinds[random_() % 4];
        std::memcpy(record.data(), &header, sizeof header);
        if (header.op == FIKIT_OP_DECISION)
            change<fikit_decision>(record.data(), [&](auto& decision) {
                decision.condition = address();
                decision.bodies = handle();
            });
        if (header.op == FIKIT_OP_LAUNCH) plausible_launch(record.data(), record.size());
        return record;
    }
    void plausible_launch(uint8_t* record, size_t room) {
        fikit_launch launch;
        std::memcpy(&launch, record, sizeof launch);
        launch.function = random_() % 2 == 0 ? 1 : handle();
        for (unsigned axis = 0; axis < 3; ++axis)
            if (random_() % 8 != 0) launch.grid[axis] = launch.block[axis] = 1 + random_() % 4;
        launch.attributes = room > 400 && random_() % 8 == 0 ? handle() : 0;
        launch.parameter_bytes = random_() % 8 == 0 ? below(64) : null_driver::parameter_bytes;
        std::memcpy(record, &launch, sizeof launch);
    }

    void ask(RawTenant& tenant) {
        static constexpr struct {
            uint32_t number, bytes;
        } calls[] = {
#define FIKIT_FUZZED(number, name) {number, sizeof(fikit_request_##name)},
            FIKIT_CALLS(FIKIT_FUZZED)
#undef FIKIT_FUZZED
        };
        const auto& call = calls[random_() % std::size(calls)];
        const uint32_t extra = random_() % 4 == 0 ? below(300) : 6;
        std::vector<uint8_t> payload(call.bytes + extra);
        fill(payload.data(), call.bytes);
        if (extra == 6)
            std::memcpy(payload.data() + call.bytes, "kernel", 6);
        else
            fill(payload.data() + call.bytes, extra);
        if (random_() % 4 != 0) plausible_call(call.number, payload.data());
        fikit_call_record record{};
        record.call = random_() % 1000 == 0 ? below(64) : call.number;
        record.payload_bytes = static_cast<uint32_t>(payload.size());
        if (call.number == fikit_call_host_register && random_() % 4 != 0) send_file(tenant);
        tenant.write(FIKIT_OP_CALL, record, payload.data(), static_cast<uint32_t>(payload.size()));
    }
    template <class Request, class Change>
    static void change(uint8_t* payload, Change how) {
        Request request;
        std::memcpy(&request, payload, sizeof request);
        how(request);
        std::memcpy(payload, &request, sizeof request);
    }
    // What mostly succeeds, if what it names is there.
    void plausible_call(uint32_t number, uint8_t* payload) {
        const auto granules = [&] { return Arena::granule * (1 + random_() % 3); };
        const auto place = [&] { return address() / Arena::granule * Arena::granule; };
        switch (number) {
            case fikit_call_memory_allocate:
                return change<fikit_request_memory_allocate>(
                    payload, [&](auto& request) { request.size = 1 + random_() % (3 << 20); });
            case fikit_call_host_allocate:
                return change<fikit_request_host_allocate>(payload, [&](auto& request) {
                    request.handle = handle();
                    request.size = 1 + random_() % 20000;
                });
            case fikit_call_host_register:
                return change<fikit_request_host_register>(payload, [&](auto& request) {
                    request.handle = handle();
                    request.size = 1 + random_() % 20000;
                    request.offset = random_() % 4 * FIKIT_PAGE;
                });
            case fikit_call_module_load:
                return change<fikit_request_module_load>(payload, [&](auto& request) {
                    request.handle = handle();
                    request.offered = below(3) / 2;
                    request.offset = 0;
                    request.size = 14;
                });
            case fikit_call_graph_create:
                return change<fikit_request_graph_create>(payload, [&](auto& request) {
                    request.handle = handle();
                    request.offered = below(3) / 2;
                    request.offset = 4096;
                    request.size = 136 * (1 + random_() % 3);
                    request.conditions = random_() % 2 == 0 ? 0 : handle();
                });
            case fikit_call_link_add:
                return change<fikit_request_link_add>(payload, [&](auto& request) {
                    request.handle = 1 + handle() % 2;
                    request.type = below(6);
                    request.offered = request.options = 0;
                    request.offset = 0;
                    request.size = 14;
                });
            case fikit_call_link_create:
                return change<fikit_request_link_create>(
                    payload, [&](auto& request) { request.handle = 1 + handle() % 2; });
            case fikit_call_memory_reserve:
                return change<fikit_request_memory_reserve>(payload, [&](auto& request) {
                    request.size = granules();
                    request.alignment = 0;
                });
            case fikit_call_memory_create:
                return change<fikit_request_memory_create>(payload, [&](auto& request) {
                    request.handle = handle();
                    request.size = granules();
                });
            case fikit_call_memory_map:
                return change<fikit_request_memory_map>(
                    payload, [&](auto& request) { request = {place(), Arena::granule, 0, handle(), 0}; });
            case fikit_call_memory_unmap:
                return change<fikit_request_memory_unmap>(
                    payload, [&](auto& request) { request = {place(), granules()}; });
            case fikit_call_array_create:
                return change<fikit_request_array_create>(payload, [&](auto& request) {
                    request = {handle(),
                               0,
                               {1 + random_() % 64, random_() % 9, random_() % 3, CU_AD_FORMAT_UNSIGNED_INT8,
                                1, 0, below(4)}};
                });
            case fikit_call_texture_create:
                return change<fikit_request_texture_create>(payload, [&](auto& request) {
                    request.type = below(4);
                    request.array = handle();
                    request.level = 0;
                    request.format = CU_AD_FORMAT_FLOAT;
                    request.channels = 1;
                    request.width = request.height = 4;
                    request.pitch = 64;
                });
            default:
                break;
        }
    }
    void send_file(RawTenant& tenant) {
        const Descriptor file(memfd_create("fuzzed", MFD_CLOEXEC));
        CHECK(ftruncate(file.get(), static_cast<off_t>(random_() % (1 << 20))) == 0);
        send_descriptor(tenant.lifeline.get(), random_() % 8 == 0 ? STDIN_FILENO : file.get());
    }

    // Mostly what does not end the session.
    void write(RawTenant& tenant) {
        const bool broken = random_() % 500 == 0;
        const auto op = static_cast<uint16_t>(broken ? random_() % 20 : 1 + random_() % 15);
        std::vector<uint8_t> record(op == FIKIT_OP_LAUNCH ? 500 : sizeof(fikit_copy_rows) + random_() % 200);
        fill(record.data(), record.size());
        change<fikit_record>(record.data(), [&](auto& header) {
            header.stream = broken ? below(4200) : handle() % 4;
            header.flags = static_cast<uint16_t>(random_() % 16);
            const bool streams = op == FIKIT_OP_STREAM_CREATE || op == FIKIT_OP_STREAM_DESTROY;
            if (streams && !broken) header.stream = op == FIKIT_OP_STREAM_CREATE ? 1 + handle() : 9;
        });
        if (op == FIKIT_OP_LAUNCH) plausible_launch(record.data(), record.size());
        if (op == FIKIT_OP_GRAPH)
            change<fikit_graph>(record.data(), [&](auto& graph) { graph.graph = handle(); });
        if (op == FIKIT_OP_COPY)
            change<fikit_copy_rows>(record.data(), [&](auto& copy) { plausible_copy(copy); });
        if (op == FIKIT_OP_FILL)
            change<fikit_fill>(record.data(), [&](auto& fill) {
                fill.device = address() / 4 * 4;
                fill.count = size() % 4096 + 1;
                fill.width = 1u << random_() % 3;
            });
        if (op >= FIKIT_OP_EVENT_RECORD && op <= FIKIT_OP_EVENT_WAIT)
            change<fikit_event>(record.data(), [&](auto& event) { event.event = handle(); });
        if (op == FIKIT_OP_EVENT_DESTROY)
            change<fikit_event>(record.data(), [&](auto& event) { event.event = handle() | 1; });
        if (op == FIKIT_OP_FREE)
            change<fikit_free>(record.data(), [&](auto& gone) { gone.address = address(); });
        if (op == FIKIT_OP_HOST_FREE)
            change<fikit_free>(record.data(), [&](auto& gone) { gone.address = handle(); });
        if (op == FIKIT_OP_VALUES) {
            change<fikit_values>(record.data(), [&](auto& values) { values.count = 1 + below(3); });
            for (unsigned i = 0; i < 3; ++i) {
                static constexpr uint32_t kinds[] = {1, 2, 4, 5, 3, 6, 99};
                const uint32_t kind = kinds[below(7)], buffer = below(3);
                // Writes go where the null driver can write.
                const bool writes =
                    kind == CU_STREAM_MEM_OP_WRITE_VALUE_32 || kind == CU_STREAM_MEM_OP_WRITE_VALUE_64;
                const fikit_value value = {kind,
                                           below(8),
                                           writes ? 1 + buffer : buffer,
                                           0,
                                           random_() % 2 == 0 ? 8 * uint64_t{handle()} : address() / 8 * 8,
                                           random_() % 2};
                std::memcpy(record.data() + sizeof(fikit_values) + i * sizeof value, &value, sizeof value);
            }
        }
        if (op == FIKIT_OP_CALL) return ask(tenant);
        fikit_record header;
        std::memcpy(&header, record.data(), sizeof header);
        tenant.write(op, header, record.data() + sizeof header,
                     static_cast<uint32_t>(record.size() - sizeof header));
    }
    void plausible_copy(fikit_copy_rows& rows) {
        const bool is_rows = random_() % 2 == 0;
        fikit_copy& copy = rows.copy;
        copy.record.flags =
            static_cast<uint16_t>((copy.record.flags & ~FIKIT_ROWS) | (is_rows ? FIKIT_ROWS : 0));
        copy.kind = below(3);
        copy.host_buffer = handle() % 3;
        copy.device = address();
        copy.other = copy.kind == FIKIT_COPY_ON_DEVICE ? address() : size() % 8192;
        rows.width = 1 + random_() % 64;
        rows.rows = 1 + random_() % 3;
        rows.slices = 1 + random_() % 2;
        copy.size = is_rows ? rows.width * rows.rows * rows.slices : 1 + random_() % 64;
        for (fikit_copy_end* const end : {&rows.to, &rows.from}) {
            end->array = random_() % 2 == 0 ? 0 : handle();
            end->level = below(2);
            end->x = random_() % 2;
            end->y = end->z = 0;
            end->pitch = random_() % 500 == 0 ? size() / 8 : rows.width + random_() % 8;
            end->height = rows.rows + random_() % 2;
        }
        if (copy.kind == FIKIT_COPY_TO_HOST) rows.to.array = 0;
        if (copy.kind == FIKIT_COPY_TO_DEVICE) rows.from.array = 0;
    }
    void scribble(RawTenant& tenant) {
        switch (random_() % 4) {
            case 0:
                graph_image(tenant, 4096);
                break;
            case 1:
                tenant.staging()[random_() % 8192] = static_cast<uint8_t>(random_());
                break;
            case 2:
                tenant.outbox->waiters = static_cast<uint32_t>(random_());
                __atomic_store_n(&tenant.outbox->room, number_or_size(), __ATOMIC_SEQ_CST);
                break;
            default:
                fill(tenant.at(FIKIT_NOTES_OFFSET + 64 * (random_() % FIKIT_NOTES)), 64);
        }
    }

    // Words as requests have them: mostly handles and sizes, in pairs or alone.
    void fill(uint8_t* to, size_t bytes) {
        for (size_t at = 0; at < bytes; at += 8) {
            uint64_t word = 0;
            switch (random_() % 4) {
                case 0:
                    word = number_or_size();
                    break;
                case 1:
                    word = address();
                    break;
                default:
                    word = handle() | uint64_t{handle()} << 32;
            }
            std::memcpy(to + at, &word, std::min<size_t>(8, bytes - at));
        }
    }
    uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
    uint32_t handle() { return below(5); }
    uint64_t size() {
        static constexpr uint64_t sizes[] = {0,
                                             1,
                                             14,
                                             64,
                                             408,
                                             4096,
                                             8192,
                                             Arena::granule,
                                             2 * Arena::granule,
                                             64u << 20,
                                             uint64_t{1} << 32,
                                             uint64_t{1} << 47,
                                             uint64_t{1} << 63,
                                             UINT64_MAX - Arena::granule + 1,
                                             UINT64_MAX - 1,
                                             UINT64_MAX};
        return sizes[random_() % std::size(sizes)];
    }
    uint64_t number_or_size() { return random_() % 4 == 0 ? random_() : size(); }
    uint64_t address() {
        if (pool_.empty() || random_() % 8 == 0) return size();
        return pool_[random_() % pool_.size()] + (random_() % 16 == 0 ? size() : 0);
    }
    // Addresses and other values of answers are used by everybody, also when they are no more.
    void harvest(const RawTenant& tenant) {
        uint64_t word = 0;
        std::memcpy(&word, reinterpret_cast<const uint8_t*>(tenant.inbox) + FIKIT_REPLY_OFFSET, sizeof word);
        if (word == 0 || word == last_) return;
        last_ = word;
        if (pool_.size() < 16)
            pool_.push_back(word);
        else
            pool_[random_() % pool_.size()] = word;
    }

    Rig& rig_;
    Tenant& bystander_;
    std::mt19937_64 random_;
    std::vector<uint64_t> pool_;
    uint64_t last_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
    uint64_t rounds = 100, seed = 1;
    for (int i = 1; i < count; ++i) {
        const std::string_view argument = arguments[i];
        const size_t value = argument.find('=') + 1;
        uint64_t& to = argument.starts_with("--rounds=") ? rounds : seed;
        std::from_chars(argument.data() + value, argument.data() + argument.size(), to);
    }
    Settings settings = hand_turned();
    settings.keep_ns = 0;
    Rig rig(settings);
    Tenant bystander = rig.ready("bystander", 5);
    rig.settle();
    const auto before = null_driver::live();
    Fuzzer fuzzer(rig, bystander, seed);
    for (uint64_t round = 0; round < rounds; ++round) fuzzer.round(round);
    const auto left = [&] {  // more or less than at first
        const auto now = null_driver::live();
        return std::to_array<std::pair<const char*, int64_t>>({
            {"mappings", int64_t(now.mappings) - int64_t(before.mappings)},
            {"allocations", int64_t(now.allocations) - int64_t(before.allocations)},
            {"registrations", int64_t(now.registrations) - int64_t(before.registrations)},
            {"modules", int64_t(now.modules) - int64_t(before.modules)},
            {"events", int64_t(now.events) - int64_t(before.events)},
            {"graphs", int64_t(now.graphs) - int64_t(before.graphs)},
            {"arrays", int64_t(now.arrays) - int64_t(before.arrays)},
            {"textures", int64_t(now.textures) - int64_t(before.textures)},
        });
    };
    const auto none_left = [&] {
        return std::ranges::all_of(left(), [](auto& each) { return each.second == 0; });
    };
    const Nanoseconds limit = host_now() + 8'000'000'000;
    rig.turn_until([&] { return none_left() || host_now() > limit; });  // some of it is put off
    for (const auto& [what, more] : left())
        if (more != 0) std::fprintf(stderr, "%s left: %lld\n", what, static_cast<long long>(more));
    CHECK(none_left());
    for (const auto function :
         {Function::cuLibraryLoadData_, Function::cuLibraryGetModule_, Function::cuGraphLaunch_,
          Function::cuMemMap_, Function::cuLinkComplete_, Function::cuTexObjectCreate_,
          Function::cuArray3DCreate_, Function::cuMemcpyDtoDAsync_, Function::cuStreamBatchMemOp_,
          Function::cuMemHostRegister_, Function::cuLaunchKernel_, Function::cuMemcpy3DAsync_,
          Function::cuGraphAddNode_})
        std::printf("%s %llu\n", null_driver::name_of(function),
                    static_cast<unsigned long long>(null_driver::count(function)));
    std::printf("%llu rounds\n", static_cast<unsigned long long>(rounds));
}

// Arbitrary bytes as a tenant's outbox. First through RingReader alone, then through a whole core over the
// null driver with two sessions, of which the second is never touched: whatever the first one says, nothing
// crashes or hangs, and at most the first one ends.
//
// With clang, libFuzzer drives LLVMFuzzerTestOneInput (-DFIKIT_LIBFUZZER=ON). Without, main() runs the
// inputs given and then mutations of them, from a fixed seed:
//
//   fuzz_ring [--mutations=NUMBER] INPUT...
//
// An input is the value of the ring's head (8 bytes, little endian) and the ring's content from its start.
#include <sys/socket.h>

#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "rig.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

constexpr uint64_t ring_bytes = 1u << 17;
constexpr int turns_at_most = 20'000;

struct Fuzzed {
    Rig rig;
    Tenant bystander = rig.ready("bystander", 5);
    uint64_t serial = 0;
};

Fuzzed& fuzzed() {
    static Fuzzed instance;
    return instance;
}

void through_reader(uint64_t head, const std::vector<uint8_t>& ring) {
    alignas(64) fikit_outbox header{};
    header.head = head;
    RingReader reader(reinterpret_cast<const uint8_t*>(&header), ring.data(), ring_bytes);
    static Operation operation;
    uint64_t records = 0;
    while (reader.next(operation) == RingReader::Result::ready) {
        CHECK(++records <= ring_bytes / FIKIT_RECORD_ALIGN);
        CHECK(operation.record().bytes <= FIKIT_MAX_RECORD);
    }
    CHECK((reader.error() != nullptr) == (reader.next(operation) == RingReader::Result::broken));
}

// The session's own outbox, mapped here, is written as a hostile tenant would.
void through_core(uint64_t head, const std::vector<uint8_t>& ring, size_t bytes) {
    Fuzzed& all = fuzzed();
    Rig& rig = all.rig;
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const std::string id = std::to_string(++all.serial);
    std::pair<int, int> memories;
    rig.while_turning([&] {
        memories =
            rig.core().attach({id, static_cast<int>(all.serial % 10), 1.0, 64u << 20, 0, false, ends[0], -1});
    });
    const size_t size = 4 * FIKIT_PAGE + ring_bytes;
    void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memories.first, 0);
    CHECK(mapped != MAP_FAILED);
    auto* outbox = static_cast<fikit_outbox*>(mapped);
    std::memcpy(static_cast<uint8_t*>(mapped) + outbox->ring_offset, ring.data(), bytes);
    std::memset(static_cast<uint8_t*>(mapped) + FIKIT_HOST_DONE_OFFSET, 0x7f, FIKIT_MAX_STREAMS * 8);
    __atomic_store_n(&outbox->head, head, __ATOMIC_RELEASE);

    int turns = 0;
    for (int quiet = 0; quiet < 50; ++turns) {
        CHECK(turns < turns_at_most);
        quiet = rig.core().turn() ? 0 : quiet + 1;
    }
    CHECK_EQUAL(rig.core().failure(), 0);
    rig.while_turning([&] { rig.core().end(id, 1, "the input is over"); });
    std::vector<EndedSession> ended;
    rig.turn_until([&] { return !(ended = rig.core().take_ended()).empty(); });
    CHECK_EQUAL(ended.size(), 1u);
    CHECK_EQUAL(ended.front().id, id);
    CHECK(!ended.front().reason.empty());
    launch(all.bystander);
    rig.while_turning([&] { CHECK_EQUAL(all.bystander->synchronize(), 0); });
    munmap(mapped, size);
    close(memories.first);
    close(memories.second);
    close(ends[1]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < sizeof(uint64_t)) return 0;
    uint64_t head = 0;
    std::memcpy(&head, data, sizeof head);
    std::vector<uint8_t> ring(ring_bytes);
    const size_t bytes = std::min<size_t>(size - sizeof head, ring_bytes);
    std::memcpy(ring.data(), data + sizeof head, bytes);
    through_reader(head, ring);
    through_core(head, ring, bytes);
    return 0;
}

#ifndef FIKIT_FUZZ_ENGINE
namespace {

using Input = std::vector<uint8_t>;

Input read_input(const char* path) {
    std::ifstream file(path, std::ios::binary);
    CHECK(file.good());
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Input mutated(const std::vector<Input>& corpus, std::mt19937& random) {
    static constexpr uint8_t interesting[] = {0, 1, 2, 0x3f, 0x40, 0x41, 0x7f, 0x80, 0xc0, 0xff};
    Input input = corpus[random() % corpus.size()];
    if (random() % 4 == 0) {  // the records of another one behind it, and both published
        const Input& other = corpus[random() % corpus.size()];
        input.insert(input.end(), other.begin() + 8, other.end());
        const uint64_t head = input.size() - 8;
        std::memcpy(input.data(), &head, sizeof head);
    }
    for (auto changes = random() % 6; changes > 0; --changes) {
        const size_t at =
            random() % 3 == 0 ? random() % std::min<size_t>(input.size(), 96) : random() % input.size();
        input[at] =
            random() % 2 == 0 ? interesting[random() % sizeof interesting] : static_cast<uint8_t>(random());
    }
    return input;
}

}  // namespace

int main(int count, char** arguments) {
    static constexpr std::string_view option = "--mutations=";
    std::vector<Input> corpus;
    int mutations = 1000;
    for (int i = 1; i < count; ++i) {
        const std::string_view argument = arguments[i];
        if (argument.starts_with(option))
            std::from_chars(argument.data() + option.size(), argument.data() + argument.size(), mutations);
        else
            corpus.push_back(read_input(arguments[i]));
    }
    std::erase_if(corpus, [](const Input& input) { return input.size() < sizeof(uint64_t); });
    CHECK(!corpus.empty());
    for (const Input& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());
    std::mt19937 random(20);
    for (int number = 0; number < mutations; ++number) {
        const Input input = mutated(corpus, random);
        LLVMFuzzerTestOneInput(input.data(), input.size());
    }
    std::printf("%zu inputs and %d mutations\n", corpus.size(), mutations);
}
#endif

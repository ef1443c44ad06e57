#include "messages.hpp"

#include <string.h>

namespace fikit::shim {
namespace {

constexpr int deepest = 32;

// Big-endian; the caller has seen to the room.
uint64_t read(const uint8_t* at, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; ++i) value = value << 8 | at[i];
    return value;
}

struct Head {
    enum Kind : uint8_t { plain, text, map, array } kind;
    size_t size;     // of the head
    uint64_t count;  // bytes that follow it, or elements (a map: pairs)
};

// The head of the value at `data`. complete: it is all there, not what follows it.
MessageReader::State read_head(const uint8_t* data, size_t size, Head& head) {
    using State = MessageReader::State;
    if (size == 0) return State::incomplete;
    const uint8_t first = data[0];
    const auto sized = [&](Head::Kind kind, unsigned bytes, uint64_t added = 0) {
        if (size < 1 + bytes) return State::incomplete;
        head = {kind, 1 + bytes, read(data + 1, bytes) + added};
        return State::complete;
    };
    const auto fixed = [&](Head::Kind kind, uint64_t count) {
        head = {kind, 1, count};
        return State::complete;
    };
    if (first <= 0x7f || first >= 0xe0) return fixed(Head::plain, 0);
    if (first <= 0x8f) return fixed(Head::map, first & 0x0fu);
    if (first <= 0x9f) return fixed(Head::array, first & 0x0fu);
    if (first <= 0xbf) return fixed(Head::text, first & 0x1fu);
    if (first == 0xc1) return State::broken;
    if (first <= 0xc3) return fixed(Head::plain, 0);
    if (first <= 0xc6) return sized(Head::plain, 1u << (first - 0xc4));
    if (first <= 0xc9) return sized(Head::plain, 1u << (first - 0xc7), 1);
    if (first <= 0xcb) return fixed(Head::plain, first == 0xca ? 4 : 8);
    if (first <= 0xcf) return fixed(Head::plain, uint64_t{1} << (first - 0xcc));
    if (first <= 0xd3) return fixed(Head::plain, uint64_t{1} << (first - 0xd0));
    if (first <= 0xd8) return fixed(Head::plain, 1 + (uint64_t{1} << (first - 0xd4)));
    if (first <= 0xdb) return sized(Head::text, 1u << (first - 0xd9));
    if (first <= 0xdd) return sized(Head::array, 2u << (first - 0xdc));
    return sized(Head::map, 2u << (first - 0xde));
}

MessageReader::State skip(const uint8_t* data, size_t size, size_t& at, int depth) {
    using State = MessageReader::State;
    if (depth == deepest) return State::broken;
    Head head;
    if (const State state = read_head(data + at, size - at, head); state != State::complete) return state;
    at += head.size;
    if (head.kind == Head::plain || head.kind == Head::text) {
        if (head.count > size - at) return State::incomplete;
        at += head.count;
        return State::complete;
    }
    // An element takes a byte at least, so a count beyond the bytes cannot be complete.
    const uint64_t elements = head.kind == Head::map ? head.count * 2 : head.count;
    for (uint64_t i = 0; i < elements; ++i)
        if (const State state = skip(data, size, at, depth + 1); state != State::complete) return state;
    return State::complete;
}

}  // namespace

void MessageWriter::byte(uint8_t value) {
    if (size_ == sizeof bytes_)
        overflowed_ = true;
    else
        bytes_[size_++] = value;
}

void MessageWriter::text(std::string_view value) {
    if (value.size() > 0xffff) overflowed_ = true;
    byte(0xda);
    byte(static_cast<uint8_t>(value.size() >> 8));
    byte(static_cast<uint8_t>(value.size()));
    for (const char character : value) byte(static_cast<uint8_t>(character));
}

void MessageWriter::number(uint64_t value) {
    byte(0xcf);
    for (int shift = 56; shift >= 0; shift -= 8) byte(static_cast<uint8_t>(value >> shift));
}

MessageReader::State MessageReader::whole(size_t& length) const {
    length = 0;
    return skip(data_, size_, length, 0);
}

MessageReader MessageReader::at(std::string_view key) const {
    Head head;
    if (read_head(data_, size_, head) != State::complete || head.kind != Head::map) return {nullptr, 0};
    size_t at = head.size;
    for (uint64_t i = 0; i < head.count; ++i) {
        const size_t name = at;
        if (skip(data_, size_, at, 0) != State::complete) break;
        const size_t value = at;
        if (skip(data_, size_, at, 0) != State::complete) break;
        if (MessageReader(data_ + name, value - name).text() == key) return {data_ + value, at - value};
    }
    return {nullptr, 0};
}

MessageReader MessageReader::item(uint64_t index) const {
    Head head;
    if (read_head(data_, size_, head) != State::complete || head.kind != Head::array || index >= head.count)
        return {nullptr, 0};
    size_t at = head.size;
    for (uint64_t i = 0;; ++i) {
        const size_t value = at;
        if (skip(data_, size_, at, 0) != State::complete) return {nullptr, 0};
        if (i == index) return {data_ + value, at - value};
    }
}

std::string_view MessageReader::text() const {
    Head head;
    if (read_head(data_, size_, head) != State::complete || head.kind != Head::text ||
        head.count > size_ - head.size)
        return {};
    return {reinterpret_cast<const char*>(data_ + head.size), head.count};
}

bool MessageReader::number(uint64_t& value) const {
    if (size_ == 0) return false;
    const uint8_t first = data_[0];
    if (first <= 0x7f) {
        value = first;
        return true;
    }
    if (first < 0xcc || first > 0xcf) return false;
    const unsigned bytes = 1u << (first - 0xcc);
    if (size_ < 1 + bytes) return false;
    value = read(data_ + 1, bytes);
    return true;
}

}  // namespace fikit::shim

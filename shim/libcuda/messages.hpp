// MessagePack (msgpack.org, specification of 2021) as far as the daemon's greeting needs it: a writer of
// maps, and a reader that looks values up by key in a reply that arrives in pieces. The reader trusts
// nothing: it stays within its bytes and its depth, and what has another type than expected is not there.
#pragma once

#include <stdio.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fikit::shim {

class MessageWriter {
  public:
    void map(unsigned entries) { byte(static_cast<uint8_t>(0x80 | entries)); }  // at most 15
    void text(std::string_view value);
    void number(uint64_t value);
    void boolean(bool value) { byte(value ? 0xc3 : 0xc2); }
    void nothing() { byte(0xc0); }

    const uint8_t* data() const { return bytes_; }
    size_t size() const { return size_; }
    bool overflowed() const { return overflowed_; }

  private:
    void byte(uint8_t value);

    uint8_t bytes_[2048];
    size_t size_ = 0;
    bool overflowed_ = false;
};

class MessageReader {
  public:
    MessageReader(const uint8_t* data, size_t size) : data_(data), size_(size) {}

    enum class State { incomplete, complete, broken };
    // Whether the bytes begin with a whole value, and how long it is.
    State whole(size_t& length) const;

    // The value of a key of the map at the reader's beginning; an empty reader when there is none.
    MessageReader at(std::string_view key) const;
    // An element of the array at the reader's beginning; likewise.
    MessageReader item(uint64_t index) const;
    bool exists() const { return size_ != 0; }
    std::string_view text() const;       // empty unless it is a text
    bool number(uint64_t& value) const;  // not negative
    bool boolean() const { return size_ != 0 && data_[0] == 0xc3; }

  private:
    const uint8_t* data_;
    size_t size_;
};

// A text, as far as there is room.
template <size_t size>
void copy_text(const MessageReader& from, char (&to)[size]) {
    const std::string_view text = from.text();
    snprintf(to, size, "%.*s", static_cast<int>(text.size()), text.data());
}

}  // namespace fikit::shim

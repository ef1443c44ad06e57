// Plain values in a row, for what may neither throw nor be ended at exit.
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

namespace fikit {

// It frees nothing by itself: there are static ones.
template <class Value>
class Row {
  public:
    // Room for so many more; false: there is none.
    bool reserve(uint64_t more) {
        if (more <= room_ - size_) return true;
        const uint64_t room = size_ + more < 2 * room_ ? 2 * room_ : size_ + more;
        void* const grown = realloc(static_cast<void*>(values_), room * sizeof(Value));
        if (grown == nullptr) return false;
        values_ = static_cast<Value*>(grown);
        room_ = room;
        return true;
    }
    void insert(uint64_t at, const Value& value) {
        memmove(static_cast<void*>(values_ + at + 1), values_ + at, (size_ - at) * sizeof(Value));
        values_[at] = value;
        ++size_;
    }
    void remove(uint64_t at) {
        --size_;
        memmove(static_cast<void*>(values_ + at), values_ + at + 1, (size_ - at) * sizeof(Value));
    }
    void clear() {
        free(values_);
        values_ = nullptr;
        size_ = room_ = 0;
    }
    // The first that begins there or beyond, in a row that is sorted.
    uint64_t from(uint64_t begin) const {
        uint64_t low = 0, high = size_;
        while (low < high) {
            const uint64_t middle = (low + high) / 2;
            if (values_[middle].begin < begin)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
    uint64_t size() const { return size_; }
    Value& operator[](uint64_t at) { return values_[at]; }
    const Value& operator[](uint64_t at) const { return values_[at]; }

  private:
    Value* values_ = nullptr;
    uint64_t size_ = 0, room_ = 0;
};

}  // namespace fikit

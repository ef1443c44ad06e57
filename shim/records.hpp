// Sizes and headers of records.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi.h"

namespace fikit {

constexpr uint32_t whole_lines(size_t bytes) {
    return static_cast<uint32_t>((bytes + FIKIT_RECORD_ALIGN - 1) / FIKIT_RECORD_ALIGN * FIKIT_RECORD_ALIGN);
}

inline fikit_record* header_of(fikit_record* record) { return record; }
inline fikit_record* header_of(fikit_copy_rows* record) { return &record->copy.record; }
template <class Record>
fikit_record* header_of(Record* record) {
    return &record->record;
}

}  // namespace fikit

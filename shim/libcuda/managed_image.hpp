// Managed variables of an image (`__managed__`). The driver keeps such a variable in managed memory of the
// process that loads it, the executor, where the program cannot see it. So the image is rewritten before it
// is sent: the variable becomes an ordinary one, which holds the initial value, and whatever names it gets
// the address of managed memory of the program's (api_managed.cpp) instead, in PTX as a number, in machine
// code where a relocation would have put the variable's address.
#pragma once

#include <cstdint>
#include <string_view>

#include "images.hpp"

namespace fikit::shim {

struct ManagedVariable {
    char* name = nullptr;
    uint64_t bytes = 0;
    uint64_t address = 0;  // of the program's memory
    ManagedVariable* next = nullptr;
};

class ManagedVariables {
  public:
    ManagedVariables() = default;
    ManagedVariables(const ManagedVariables&) = delete;
    ManagedVariables& operator=(const ManagedVariables&) = delete;
    ~ManagedVariables();

    ManagedVariable* first() const { return first_; }
    ManagedVariable* find(std::string_view name) const;
    // False: there is one of another size, or no memory.
    bool add(std::string_view name, uint64_t bytes);

  private:
    ManagedVariable* first_ = nullptr;
};

// Bytes that grow; once there was no memory for some, there are none.
class Bytes {
  public:
    Bytes() = default;
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;
    ~Bytes();

    bool failed() const { return failed_; }
    uint8_t* data() const { return data_; }
    uint64_t size() const { return size_; }
    std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
    void add(const void* data, uint64_t bytes);
    void add(std::string_view text) { add(text.data(), text.size()); }
    void grow(uint64_t bytes);  // by that many zeros
    void insert(uint64_t at, std::string_view text);
    uint8_t* release();  // the caller frees it

  private:
    uint8_t* data_ = nullptr;
    uint64_t size_ = 0, room_ = 0;
    bool failed_ = false;
};

// The managed variables of PTX text, of machine code, or of what a device is to have of any
// image. False: the image is not read for certain, and is left as it is.
bool find_in_ptx(std::string_view text, ManagedVariables& variables);
bool find_in_code(const uint8_t* code, uint64_t bytes, ManagedVariables& variables);
bool find_managed(const Image& image, const fatbin::Wanted& wanted, ManagedVariables& variables);

// The image with the variables' addresses; of machine code it has the same size.
bool place_in_ptx(std::string_view text, const ManagedVariables& variables, Bytes& placed);
bool place_in_code(uint8_t* code, uint64_t bytes, const ManagedVariables& variables);
bool place_managed(const Image& image, const fatbin::Wanted& wanted, const ManagedVariables& variables,
                   Bytes& placed);

}  // namespace fikit::shim

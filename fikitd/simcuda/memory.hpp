// Memory of the simulated device: physical pages, addresses, and what is mapped where.
//
// Physical memory is one sparse memfd per device, seen by the host through one hidden view. Device
// addresses are reserved in the process without access, so a host that follows a device pointer
// faults as on real hardware, and no device pointer equals a host pointer. Every access of the
// device is translated by AddressSpace, so an extent can be mapped at several addresses and mapped
// again, at the price of a look-up and not of system calls. Host memory that is pinned or
// registered appears at its own address. All of it is under the driver's mutex, but kernels in the
// background follow addresses without it: they hold AddressSpace::in_use().
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "ptx/execution.hpp"
#include "shared_device.hpp"

namespace fikit::sim {

struct Extent {
    std::size_t offset = 0, bytes = 0;
};

// What tells a memfd from all others.
std::uint64_t file_number(int descriptor);

// Memory of a memfd of its own, which other processes can map: what is exported. Its last page says
// what it is, so that a descriptor alone is enough to import it.
class SharedMemory {
  public:
    struct Description {
        CUmemAllocationProp properties;
        std::uint64_t bytes;
        bool pool;  // a pool's
    };
    static std::unique_ptr<SharedMemory> create(const Description& description);
    // Null where the descriptor is of something else. It stays the caller's.
    static std::unique_ptr<SharedMemory> open(int descriptor);
    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    const Description& description() const { return description_; }
    std::byte* data() const { return data_; }
    int descriptor() const { return descriptor_; }
    std::uint64_t number() const { return file_number(descriptor_); }

  private:
    SharedMemory(int descriptor, std::byte* data, const Description& description)
        : descriptor_(descriptor), data_(data), description_(description) {}
    int descriptor_;
    std::byte* data_;
    Description description_;
};

// Pages of one device. Where processes share it, `others` says what they leave.
class PhysicalMemory {
  public:
    explicit PhysicalMemory(std::size_t bytes, SharedDevice* others = nullptr);
    // The pages of memory that can be exported.
    explicit PhysicalMemory(std::unique_ptr<SharedMemory> shared);
    ~PhysicalMemory();
    PhysicalMemory(const PhysicalMemory&) = delete;
    PhysicalMemory& operator=(const PhysicalMemory&) = delete;

    bool valid() const { return view_ != nullptr; }
    // Extents of whole pages, as few as there are; nothing where less is free.
    std::optional<std::vector<Extent>> allocate(std::size_t bytes);
    void release(const std::vector<Extent>& extents);
    std::byte* view(std::size_t offset) const { return view_ + offset; }
    std::size_t total() const { return total_; }
    std::size_t free() const;
    int descriptor() const { return descriptor_; }
    // Counts pages that lie elsewhere, in a SharedMemory, as used; false where fewer are free.
    bool charge(std::size_t bytes);
    void refund(std::size_t bytes);

  private:
    SharedDevice* others_ = nullptr;
    std::unique_ptr<SharedMemory> shared_;  // null: the descriptor and the view are its own
    int descriptor_ = -1;
    std::byte* view_ = nullptr;
    std::size_t total_ = 0, free_ = 0;
    std::map<std::size_t, std::size_t> runs_;  // free: offset to bytes
};

// Reserves addresses in the process; 0 when there are none.
std::uint64_t reserve_addresses(std::size_t bytes, std::size_t alignment, std::uint64_t wished);
void free_addresses(std::uint64_t address, std::size_t bytes);

enum class Access : std::uint8_t { none, read, read_write };

struct Segment {
    static constexpr int any = -1;
    std::uint64_t address = 0;
    std::size_t bytes = 0;
    std::byte* backing = nullptr;
    Access access = Access::none;
    int device = any;  // whose kernels alone reach it: there is no peer access

    // Of an address that lies in it.
    std::byte* at(std::uint64_t wanted, std::size_t count, bool write) const;
    Stretch stretch() const;
};

class AddressSpace final : public GlobalMemory {
  public:
    std::byte* at(std::uint64_t address, std::size_t bytes, bool write) override;
    Stretch stretch(std::uint64_t address) override;
    const Texture* texture(std::uint64_t handle) override;
    void add_texture(std::uint64_t handle, const Texture& texture);
    void remove_texture(std::uint64_t handle);
    // Mappings stay as they are while somebody holds this and does not give way.
    std::shared_lock<std::shared_mutex> in_use();
    bool give_way() override;
    // Whether every byte is mapped.
    bool covers(std::uint64_t address, std::size_t bytes) const;
    bool overlaps(std::uint64_t address, std::size_t bytes) const;
    void map(const Segment& segment);
    // Removes, or changes the access of, the segments that begin inside the range.
    void unmap(std::uint64_t address, std::size_t bytes);
    void protect(std::uint64_t address, std::size_t bytes, Access access);

  private:
    friend class KernelSpace;
    class Change;
    const Segment* find(std::uint64_t address) const;
    std::map<std::uint64_t, Segment> segments_;
    std::map<std::uint64_t, Texture> textures_;
    std::shared_mutex users_;
    std::mutex turnstile_;  // where who comes back to users_ waits behind who changes something
    std::atomic<unsigned> changes_{0};
};

// What the kernels of one device see of it.
class KernelSpace final : public GlobalMemory {
  public:
    KernelSpace(AddressSpace& all, int device) : all_(all), device_(device) {}
    std::byte* at(std::uint64_t address, std::size_t bytes, bool write) override;
    Stretch stretch(std::uint64_t address) override;
    const Texture* texture(std::uint64_t handle) override { return all_.texture(handle); }
    bool give_way() override { return all_.give_way(); }

  private:
    const Segment* find(std::uint64_t address) const;
    AddressSpace& all_;
    int device_;
};

inline constexpr std::size_t host_page = 4096;
// Pages of the host's that the device reaches at the same address; 0 when there are none.
std::uint64_t allocate_host_pages(AddressSpace& space, std::size_t bytes);
void release_host_pages(AddressSpace& space, std::uint64_t address, std::size_t bytes);

// cuMemAlloc: small blocks share pages, large ones have their own.
class DeviceHeap {
  public:
    DeviceHeap(PhysicalMemory& physical, AddressSpace& space, int device)
        : physical_(physical), space_(space), device_(device) {}
    std::uint64_t allocate(std::size_t bytes);  // 0 when out of memory
    void release(std::uint64_t address, std::size_t bytes);

  private:
    struct Slab {
        std::size_t bytes;
        std::vector<Extent> extents;
        std::map<std::size_t, std::size_t> free;  // offset to bytes
    };
    static constexpr std::size_t unit = 512;
    static constexpr std::size_t small = std::size_t{1} << 20;

    Slab* add_slab(std::size_t bytes, std::uint64_t& address);

    PhysicalMemory& physical_;
    AddressSpace& space_;
    int device_;
    std::map<std::uint64_t, Slab> slabs_;
};

}  // namespace fikit::sim

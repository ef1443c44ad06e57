// See memory.hpp.
#include "memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "model.hpp"

namespace fikit::sim {

namespace {

// If that is free: out of the way of programs, as an executor maps what they register at their own addresses
// (fikitd/native/session.hpp says what lies where).
void* const wished_view = reinterpret_cast<void*>(0x4900'0000'0000);

// What is too large for that stays too large for everything else.
constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
    const std::size_t most = ~std::size_t{0} / unit * unit;
    return value > most ? most : (value + unit - 1) / unit * unit;
}

// Gives a run back to a map of free runs and joins it with its neighbours.
void add_run(std::map<std::size_t, std::size_t>& runs, std::size_t offset, std::size_t bytes) {
    auto next = runs.lower_bound(offset);
    if (next != runs.end() && offset + bytes == next->first) {
        bytes += next->second;
        next = runs.erase(next);
    }
    if (next != runs.begin()) {
        const auto previous = std::prev(next);
        if (previous->first + previous->second == offset) {
            previous->second += bytes;
            return;
        }
    }
    runs.emplace(offset, bytes);
}

// Takes `bytes` from the front of a run.
std::size_t take_run(std::map<std::size_t, std::size_t>& runs,
                     std::map<std::size_t, std::size_t>::iterator run, std::size_t bytes) {
    const auto [offset, available] = *run;
    runs.erase(run);
    if (available > bytes) runs.emplace(offset + bytes, available - bytes);
    return offset;
}

}  // namespace

PhysicalMemory::PhysicalMemory(std::size_t bytes, SharedDevice* others) : others_(others) {
    bytes = round_up(bytes, model::page);
    descriptor_ = memfd_create("fikit-sim-device", MFD_CLOEXEC);
    if (descriptor_ < 0 || ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) return;
    void* view = mmap(wished_view, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_, 0);
    if (view == MAP_FAILED) return;
    view_ = static_cast<std::byte*>(view);
    total_ = free_ = bytes;
    runs_.emplace(0, bytes);
}

PhysicalMemory::PhysicalMemory(std::unique_ptr<SharedMemory> shared)
    : shared_(std::move(shared)), descriptor_(shared_->descriptor()), view_(shared_->data()) {
    total_ = free_ = shared_->description().bytes;
    runs_.emplace(0, total_);
}

PhysicalMemory::~PhysicalMemory() {
    if (shared_ != nullptr) return;
    if (view_ != nullptr) munmap(view_, total_);
    if (descriptor_ >= 0) close(descriptor_);
}

std::optional<std::vector<Extent>> PhysicalMemory::allocate(std::size_t bytes) {
    bytes = round_up(bytes, model::page);
    if (bytes > free_) return std::nullopt;
    if (others_ != nullptr && !others_->take_memory(bytes)) return std::nullopt;
    std::vector<Extent> extents;
    const auto whole =
        std::find_if(runs_.begin(), runs_.end(), [&](const auto& run) { return run.second >= bytes; });
    if (whole != runs_.end()) {
        extents.push_back({take_run(runs_, whole, bytes), bytes});
    } else {
        for (std::size_t left = bytes; left > 0;) {
            const std::size_t part = std::min(left, runs_.begin()->second);
            extents.push_back({take_run(runs_, runs_.begin(), part), part});
            left -= part;
        }
    }
    free_ -= bytes;
    return extents;
}

bool PhysicalMemory::charge(std::size_t bytes) {
    if (bytes > free_ || (others_ != nullptr && !others_->take_memory(bytes))) return false;
    free_ -= bytes;
    return true;
}

void PhysicalMemory::refund(std::size_t bytes) {
    free_ += bytes;
    if (others_ != nullptr) others_->give_memory(bytes);
}

namespace {

constexpr std::uint64_t shared_magic = 0x666b74736d656d31;
constexpr std::size_t trailer_bytes = 4096;

struct Trailer {
    std::uint64_t magic;
    SharedMemory::Description description;
};
static_assert(sizeof(Trailer) <= trailer_bytes);

std::byte* map_shared(int descriptor, std::size_t bytes) {
    void* got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
    return got == MAP_FAILED ? nullptr : static_cast<std::byte*>(got);
}

}  // namespace

std::unique_ptr<SharedMemory> SharedMemory::create(const Description& description) {
    const int descriptor = memfd_create("fikit-sim-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0) return nullptr;
    const Trailer trailer{shared_magic, description};
    const auto end = static_cast<off_t>(description.bytes);
    std::byte* data = nullptr;
    if (ftruncate(descriptor, end + static_cast<off_t>(trailer_bytes)) == 0 &&
        pwrite(descriptor, &trailer, sizeof trailer, end) == static_cast<ssize_t>(sizeof trailer) &&
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
        data = map_shared(descriptor, description.bytes);
    }
    if (data != nullptr)
        return std::unique_ptr<SharedMemory>(new SharedMemory(descriptor, data, description));
    close(descriptor);
    return nullptr;
}

std::unique_ptr<SharedMemory> SharedMemory::open(int descriptor) {
    // The seals are what keeps the file from being cut while it is mapped.
    constexpr int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
    if ((fcntl(descriptor, F_GET_SEALS) & wanted) != wanted) return nullptr;
    struct stat status{};
    Trailer trailer{};
    if (fstat(descriptor, &status) != 0 || status.st_size < static_cast<off_t>(trailer_bytes)) return nullptr;
    const off_t end = status.st_size - static_cast<off_t>(trailer_bytes);
    if (pread(descriptor, &trailer, sizeof trailer, end) != static_cast<ssize_t>(sizeof trailer) ||
        trailer.magic != shared_magic || trailer.description.bytes != static_cast<std::uint64_t>(end) ||
        end == 0) {
        return nullptr;
    }
    const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (own < 0) return nullptr;
    std::byte* data = map_shared(own, trailer.description.bytes);
    if (data != nullptr)
        return std::unique_ptr<SharedMemory>(new SharedMemory(own, data, trailer.description));
    close(own);
    return nullptr;
}

std::uint64_t file_number(int descriptor) {
    struct stat status{};
    return fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

SharedMemory::~SharedMemory() {
    munmap(data_, description_.bytes);
    close(descriptor_);
}

void PhysicalMemory::release(const std::vector<Extent>& extents) {
    for (const Extent& extent : extents) {
        // Back to the host as well: a simulated device may be larger than what its user can spare.
        fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(extent.offset),
                  static_cast<off_t>(extent.bytes));
        add_run(runs_, extent.offset, extent.bytes);
        free_ += extent.bytes;
        if (others_ != nullptr) others_->give_memory(extent.bytes);
    }
}

std::size_t PhysicalMemory::free() const {
    return others_ != nullptr ? std::min(free_, others_->free_memory()) : free_;
}

std::uint64_t reserve_addresses(std::size_t bytes, std::size_t alignment, std::uint64_t wished) {
    if (bytes > ~std::size_t{0} - alignment) return 0;
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (wished != 0 && wished % alignment == 0) {
        void* got =
            mmap(reinterpret_cast<void*>(wished), bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (got == reinterpret_cast<void*>(wished)) return wished;
        if (got != MAP_FAILED) munmap(got, bytes);
    }
    void* got = mmap(nullptr, bytes + alignment, PROT_NONE, flags, -1, 0);
    if (got == MAP_FAILED) return 0;
    const auto start = reinterpret_cast<std::uint64_t>(got);
    const std::uint64_t aligned = round_up(start, alignment);
    if (aligned > start) munmap(got, aligned - start);
    const std::size_t tail = start + alignment - aligned;
    if (tail > 0) munmap(reinterpret_cast<void*>(aligned + bytes), tail);
    return aligned;
}

void free_addresses(std::uint64_t address, std::size_t bytes) {
    munmap(reinterpret_cast<void*>(address), bytes);
}

const Segment* AddressSpace::find(std::uint64_t address) const {
    auto next = segments_.upper_bound(address);
    if (next == segments_.begin()) return nullptr;
    const Segment& segment = std::prev(next)->second;
    return address - segment.address < segment.bytes ? &segment : nullptr;
}

// Keeps all users away for as long as it lives.
class AddressSpace::Change {
  public:
    explicit Change(AddressSpace& space) : space_(space) {
        space_.changes_.fetch_add(1, std::memory_order_relaxed);
        space_.turnstile_.lock();
        space_.users_.lock();
    }
    ~Change() {
        space_.users_.unlock();
        space_.turnstile_.unlock();
        space_.changes_.fetch_sub(1, std::memory_order_relaxed);
    }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

  private:
    AddressSpace& space_;
};

std::shared_lock<std::shared_mutex> AddressSpace::in_use() {
    const std::lock_guard turn(turnstile_);
    return std::shared_lock(users_);
}

// Who changes something holds the driver's mutex. So a caller that sees a change waiting is not under that
// mutex, and holds in_use().
bool AddressSpace::give_way() {
    if (changes_.load(std::memory_order_relaxed) == 0) return false;
    users_.unlock_shared();
    const std::lock_guard turn(turnstile_);
    users_.lock_shared();
    return true;
}

std::byte* Segment::at(std::uint64_t wanted, std::size_t count, bool write) const {
    if (bytes - (wanted - address) < count) return nullptr;
    if (access == Access::none || (write && access != Access::read_write)) return nullptr;
    return backing + (wanted - address);
}

Stretch Segment::stretch() const {
    if (access == Access::none) return {};
    return {address, address + bytes, backing, access == Access::read_write};
}

std::byte* AddressSpace::at(std::uint64_t address, std::size_t bytes, bool write) {
    const Segment* segment = find(address);
    return segment != nullptr ? segment->at(address, bytes, write) : nullptr;
}

Stretch AddressSpace::stretch(std::uint64_t address) {
    const Segment* segment = find(address);
    return segment != nullptr ? segment->stretch() : Stretch{};
}

const Segment* KernelSpace::find(std::uint64_t address) const {
    const Segment* segment = all_.find(address);
    const bool reached =
        segment != nullptr && (segment->device == Segment::any || segment->device == device_);
    return reached ? segment : nullptr;
}

std::byte* KernelSpace::at(std::uint64_t address, std::size_t bytes, bool write) {
    const Segment* segment = find(address);
    return segment != nullptr ? segment->at(address, bytes, write) : nullptr;
}

Stretch KernelSpace::stretch(std::uint64_t address) {
    const Segment* segment = find(address);
    return segment != nullptr ? segment->stretch() : Stretch{};
}

// What is left is counted, as the end of so many bytes may be beyond 64 bits.
bool AddressSpace::covers(std::uint64_t address, std::size_t bytes) const {
    while (bytes > 0) {
        const Segment* segment = find(address);
        if (segment == nullptr) return false;
        const std::size_t here = segment->bytes - (address - segment->address);
        if (here >= bytes) return true;
        address += here;
        bytes -= here;
    }
    return true;
}

bool AddressSpace::overlaps(std::uint64_t address, std::size_t bytes) const {
    if (find(address) != nullptr) return true;
    const auto next = segments_.lower_bound(address);
    return next != segments_.end() && next->first - address < bytes;
}

void AddressSpace::map(const Segment& segment) {
    const Change change(*this);
    segments_[segment.address] = segment;
}

void AddressSpace::unmap(std::uint64_t address, std::size_t bytes) {
    const Change change(*this);
    auto next = segments_.lower_bound(address);
    while (next != segments_.end() && next->first - address < bytes) next = segments_.erase(next);
}

void AddressSpace::protect(std::uint64_t address, std::size_t bytes, Access access) {
    const Change change(*this);
    for (auto next = segments_.lower_bound(address); next != segments_.end() && next->first - address < bytes;
         ++next) {
        next->second.access = access;
    }
}

const Texture* AddressSpace::texture(std::uint64_t handle) {
    const auto found = textures_.find(handle);
    return found != textures_.end() ? &found->second : nullptr;
}

void AddressSpace::add_texture(std::uint64_t handle, const Texture& texture) {
    const Change change(*this);
    textures_.emplace(handle, texture);
}

void AddressSpace::remove_texture(std::uint64_t handle) {
    const Change change(*this);
    textures_.erase(handle);
}

DeviceHeap::Slab* DeviceHeap::add_slab(std::size_t bytes, std::uint64_t& address) {
    bytes = round_up(bytes, model::page);
    auto extents = physical_.allocate(bytes);
    if (!extents) return nullptr;
    address = reserve_addresses(bytes, model::page, 0);
    if (address == 0) {
        physical_.release(*extents);
        return nullptr;
    }
    std::uint64_t at = address;
    for (const Extent& extent : *extents) {
        space_.map({at, extent.bytes, physical_.view(extent.offset), Access::read_write, device_});
        at += extent.bytes;
    }
    return &slabs_.emplace(address, Slab{bytes, std::move(*extents), {{0, bytes}}}).first->second;
}

std::uint64_t DeviceHeap::allocate(std::size_t bytes) {
    bytes = round_up(bytes, unit);
    if (bytes <= small) {
        for (auto& [base, slab] : slabs_) {
            const auto run = std::find_if(slab.free.begin(), slab.free.end(),
                                          [&](const auto& candidate) { return candidate.second >= bytes; });
            if (run != slab.free.end()) return base + take_run(slab.free, run, bytes);
        }
    }
    std::uint64_t address = 0;
    Slab* slab = add_slab(bytes, address);
    if (slab == nullptr) return 0;
    if (bytes > small) {
        slab->free.clear();
        return address;
    }
    return address + take_run(slab->free, slab->free.begin(), bytes);
}

void DeviceHeap::release(std::uint64_t address, std::size_t bytes) {
    const auto found = std::prev(slabs_.upper_bound(address));
    auto& [base, slab] = *found;
    bytes = round_up(bytes, unit);
    if (bytes > small)
        slab.free = {{0, slab.bytes}};
    else
        add_run(slab.free, address - base, bytes);
    if (slab.free.size() != 1 || slab.free.begin()->second != slab.bytes) return;
    space_.unmap(base, slab.bytes);
    free_addresses(base, slab.bytes);
    physical_.release(slab.extents);
    slabs_.erase(found);
}

std::uint64_t allocate_host_pages(AddressSpace& space, std::size_t bytes) {
    if (bytes > ~std::size_t{0} - host_page) return 0;
    void* got =
        mmap(nullptr, round_up(bytes, host_page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) return 0;
    const auto address = reinterpret_cast<std::uint64_t>(got);
    space.map({address, bytes, static_cast<std::byte*>(got), Access::read_write});
    return address;
}

void release_host_pages(AddressSpace& space, std::uint64_t address, std::size_t bytes) {
    space.unmap(address, 1);
    munmap(reinterpret_cast<void*>(address), round_up(bytes, host_page));
}

}  // namespace fikit::sim

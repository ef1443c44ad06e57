// See shared_device.hpp.
#include "shared_device.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fikit::sim {

namespace {

constexpr std::uint64_t magic_number = 0x66696b742d736d31;
// How often a process with work looks whether the others live.
constexpr Nanoseconds sweep_every = 1'000'000;

struct flock byte_lock(short kind, int index) {
    struct flock lock{};
    lock.l_type = kind;
    lock.l_whence = SEEK_SET;
    lock.l_start = index;
    lock.l_len = 1;
    return lock;
}

std::string path_of(const std::string& name, int ordinal) {
    const std::string number = std::to_string(ordinal);
    if (name.find('/') != std::string::npos) return name + "." + number;
    return "/dev/shm/fikit-sim-" + std::to_string(getuid()) + "-" + name + "." + number;
}

}  // namespace

// The mutex, whoever died with it.
class SharedDevice::Held {
  public:
    explicit Held(State& state) : state_(state) {
        if (pthread_mutex_lock(&state_.mutex) != EOWNERDEAD) return;
        if (state_.turns.holder >= slots || state_.turns.holder < -1) state_.turns = {};
        pthread_mutex_consistent(&state_.mutex);
    }
    ~Held() { pthread_mutex_unlock(&state_.mutex); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

  private:
    State& state_;
};

std::unique_ptr<SharedDevice> SharedDevice::open(const std::string& name, int ordinal, std::size_t bytes,
                                                 double scale, std::string& problem) {
    const std::string path = path_of(name, ordinal);
    const auto fail = [&](const std::string& why) {
        problem = "FIKIT_SIM_MACHINE=" + name + ": " + path + ": " + why;
        return nullptr;
    };
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor < 0) return fail(std::strerror(errno));
    void* view = MAP_FAILED;
    // One at a time from here; the lock goes with its holder. The room is taken: on a full file system the
    // first look would be a bus error.
    if (flock(descriptor, LOCK_EX) == 0 && ftruncate(descriptor, sizeof(State)) == 0 &&
        (errno = posix_fallocate(descriptor, 0, sizeof(State))) == 0)
        view = mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (view == MAP_FAILED) {
        close(descriptor);
        return fail(std::strerror(errno));
    }
    auto* state = static_cast<State*>(view);
    std::unique_ptr<SharedDevice> device(new SharedDevice(descriptor, state));
    bool alone = true;
    for (int index = 0; index < slots; ++index) alone = alone && !device->alive(index);
    if (alone) {  // new, or left behind: whoever was killed while it began has not written the magic number
        std::memset(view, 0, sizeof(State));
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&state->mutex, &attributes);
        pthread_mutexattr_destroy(&attributes);
        state->turns = {};
        state->memory = bytes;
        state->scale = scale;
        state->magic = magic_number;
    } else if (state->magic != magic_number || state->memory != bytes || state->scale != scale) {
        return fail("others use this device with other settings (memory, scale)");
    }
    const Held held(*state);
    device->sweep();
    for (int index = 0; index < slots && device->own_ < 0; ++index) {
        struct flock lock = byte_lock(F_WRLCK, index);
        if (state->slot[index].used == 0 && fcntl(descriptor, F_OFD_SETLK, &lock) == 0) device->own_ = index;
    }
    if (device->own_ < 0) return fail("64 processes use this device");
    state->slot[device->own_] = {1, 0, 0, 0};
    flock(descriptor, LOCK_UN);
    return device;
}

SharedDevice::~SharedDevice() {
    munmap(state_, sizeof(State));
    close(descriptor_);
}

// Whether a slot's owner lives: only the owner itself sees no lock where there is one.
bool SharedDevice::alive(int index) const {
    if (index == own_) return true;
    struct flock lock = byte_lock(F_WRLCK, index);
    return fcntl(descriptor_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

void SharedDevice::sweep() {
    for (int index = 0; index < slots; ++index) {
        if (state_->slot[index].used != 0 && !alive(index)) state_->slot[index] = {};
    }
}

SharedDevice::Turn SharedDevice::look(Nanoseconds now, bool busy) {
    const Held held(*state_);
    Turns& turns = state_->turns;
    Slot& own = state_->slot[own_];
    own.busy = busy ? 1 : 0;
    // Who is gone neither keeps a turn nor is given one.
    if (busy && now - swept_at_ > sweep_every) {
        sweep();
        swept_at_ = now;
    }
    const int before = turns.holder;
    Turn turn;
    turn.look_again = turns.update(now, slots, [&](int index) { return state_->slot[index].busy != 0; });
    if (turns.holder != before) {
        if (before >= 0) state_->slot[before].until = turns.since - model::context_switch;
        state_->changes.fetch_add(1, std::memory_order_release);
        syscall(SYS_futex, &state_->changes, FUTEX_WAKE, slots, nullptr, nullptr, 0);
    }
    seen_.store(state_->changes.load(std::memory_order_acquire), std::memory_order_relaxed);
    turn.ours = turns.runs(own_, now);
    turn.since = turns.since;
    turn.until = own.until;
    if (turns.holder == own_ && !turn.ours) turn.look_again = turns.since;
    if (!busy) turn.look_again.reset();  // the others will look
    return turn;
}

void SharedDevice::wait_for_change() const {
    syscall(SYS_futex, &state_->changes, FUTEX_WAIT, seen_.load(std::memory_order_relaxed), nullptr, nullptr,
            0);
}

std::size_t SharedDevice::taken() const {
    std::size_t total = 0;
    for (const Slot& slot : state_->slot) total += slot.memory;
    return total;
}

bool SharedDevice::take_memory(std::size_t bytes) {
    const Held held(*state_);
    if (taken() + bytes > state_->memory) sweep();
    if (taken() + bytes > state_->memory) return false;
    state_->slot[own_].memory += bytes;
    return true;
}

void SharedDevice::give_memory(std::size_t bytes) {
    const Held held(*state_);
    state_->slot[own_].memory -= bytes;
}

std::size_t SharedDevice::free_memory() {
    const Held held(*state_);
    sweep();
    const std::size_t all = taken();
    return all < state_->memory ? state_->memory - all : 0;
}

}  // namespace fikit::sim

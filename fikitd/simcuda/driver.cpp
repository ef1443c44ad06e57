// See driver.hpp.
#include "driver.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "array.hpp"
#include "capture.hpp"
#include "of_thread.hpp"
#include "visible.hpp"

namespace fikit::sim {

namespace {

// What %globaltimer reads at simulated time 0: like the real one, nanoseconds of the Unix epoch.
Nanoseconds unix_now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

constexpr Nanoseconds virtual_epoch = 1'700'000'000'000'000'000;  // the same in every run

// As NVML and CUDA_VISIBLE_DEVICES have it.
std::string uuid_text(unsigned index) {
    const CUuuid uuid = uuid_of(index);
    std::string text = "GPU-";
    for (unsigned place = 0; place < sizeof uuid.bytes; ++place) {
        char hexadecimal[4];
        std::snprintf(hexadecimal, sizeof hexadecimal, "%02x", static_cast<unsigned char>(uuid.bytes[place]));
        if (place == 4 || place == 6 || place == 8 || place == 10) text += '-';
        text += hexadecimal;
    }
    return text;
}

// Those of the machine's that the program is to see. False: it names one twice, or asks for no order.
bool visible_devices(unsigned count, std::vector<unsigned>& chosen) {
    std::vector<std::string> texts;
    std::vector<const char*> uuids;
    for (unsigned index = 0; index < count; ++index) texts.push_back(uuid_text(index));
    for (const std::string& text : texts) uuids.push_back(text.c_str());
    chosen.resize(count);
    unsigned number = 0;
    const shim::VisibleDevices all{uuids.data(), count};
    const bool once = shim::known_order(std::getenv("CUDA_DEVICE_ORDER")) &&
                      all.choose(std::getenv("CUDA_VISIBLE_DEVICES"), chosen.data(), number);
    chosen.resize(number);
    return once;
}

}  // namespace

CUuuid uuid_of(unsigned index) {
    CUuuid uuid = {"fikit-sim-gpu-"};
    uuid.bytes[15] = static_cast<char>(index);
    return uuid;
}

SimulatedDevice::SimulatedDevice(int number, unsigned of_machine, const Settings& settings,
                                 AddressSpace& space, Nanoseconds timer_base,
                                 std::unique_ptr<SharedDevice> with_others)
    : ordinal(number),
      index(of_machine),
      shared(std::move(with_others)),
      physical(settings.memory, shared.get()),
      heap(physical, space, number),
      reached(space, number),
      engine(space,
             {settings.faults, timer_base, settings.interference, background(settings), apart(settings)}) {}

// Under the virtual clock no time may pass while a kernel's code runs; else it runs on a thread of its own.
Background SimulatedDevice::background(const Settings& settings) {
    if (settings.virtual_clock) return {};
    return [this](std::function<void()> work, std::function<void()> finish) {
        Driver::instance().run_in_background(*this, {std::move(work), std::move(finish)});
    };
}

Background SimulatedDevice::apart(const Settings& settings) {
    if (settings.virtual_clock) return {};
    return [this](std::function<void()> work, std::function<void()> finish) {
        Driver::instance().run_apart(*this, {std::move(work), std::move(finish)});
    };
}

unsigned SimulatedDevice::take_turn() {
    const auto free = std::find(turns.begin(), turns.end(), false);
    const auto place = static_cast<unsigned>(free - turns.begin());
    if (free == turns.end())
        turns.push_back(true);
    else
        *free = true;
    return place;
}

Driver& Driver::instance() {
    static Driver* driver = new Driver;
    return *driver;
}

std::vector<Context*>& context_stack() { return of_thread<std::vector<Context*>>(); }

bool& within_host_function() {
    thread_local bool within = false;
    return within;
}

int& PerThreadDefault::depth() {
    thread_local int depth = 0;
    return depth;
}

CUresult Driver::initialise() {
    if (ended) return CUDA_ERROR_DEINITIALIZED;
    if (initialised) return CUDA_SUCCESS;
    std::string problem;
    Settings read;
    if (!read_settings(read, problem)) {
        std::fprintf(stderr, "fikit simulated driver: %s\n", problem.c_str());
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<unsigned> chosen;
    if (!visible_devices(read.devices, chosen)) return CUDA_ERROR_INVALID_DEVICE;
    if (chosen.empty()) return CUDA_ERROR_NO_DEVICE;
    settings = read;
    clock.start(settings.scale, settings.virtual_clock);
    const Nanoseconds base = settings.virtual_clock ? virtual_epoch : unix_now();
    for (const unsigned index : chosen) {
        std::unique_ptr<SharedDevice> shared;
        if (!settings.machine.empty()) {
            shared = SharedDevice::open(settings.machine, static_cast<int>(index), settings.memory,
                                        settings.scale, problem);
            if (!shared) {
                std::fprintf(stderr, "fikit simulated driver: %s\n", problem.c_str());
                devices.clear();
                return CUDA_ERROR_INVALID_VALUE;
            }
        }
        const bool turns = shared && !settings.mps;
        devices.push_back(std::make_unique<SimulatedDevice>(static_cast<int>(devices.size()), index, settings,
                                                            space, base, std::move(shared)));
        if (turns) devices.back()->engine.suspend(0);
        if (!devices.back()->physical.valid()) {
            devices.clear();
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    initialised = true;
    std::atexit([] { instance().ended = true; });
    pthread_atfork(nullptr, nullptr, [] { instance().forked = true; });
    return CUDA_SUCCESS;
}

CUresult Driver::sticky() const {
    for (const auto& device : devices) {
        if (device->engine.fault() != CUDA_SUCCESS) return device->engine.fault();
    }
    return CUDA_SUCCESS;
}

Context* Driver::make_context(int device) {
    auto context = std::make_shared<Context>();
    context->device = device;
    context->id = next_id++;
    context->legacy.context = context.get();
    context->legacy.kind = Stream::Kind::legacy;
    context->legacy.id = next_id++;
    Context* made = context.get();
    contexts.add(std::move(context));
    start(*devices[static_cast<std::size_t>(device)]);
    return made;
}

void Driver::release_managed(Code& code) {
    for (const auto& [index, address] : code.managed) {
        release_host_pages(space, address, std::max<std::size_t>(code.module.variables[index].bytes, 1));
        blocks.erase(address);
    }
    code.managed.clear();
}

void Driver::release_variables(Image& image) {
    Code& code = *image.code;
    for (std::size_t index = 0; index < image.variables.size(); ++index) {
        if (code.managed.contains(index)) continue;
        const std::size_t bytes = std::max<std::size_t>(code.module.variables[index].bytes, 1);
        device_of(*image.context).heap.release(image.variables[index], bytes);
        blocks.erase(image.variables[index]);
    }
    image.variables.clear();
    if (image.code.use_count() == 1) release_managed(code);
}

void Driver::release_image(Image& image) {
    const std::shared_ptr<Image> kept = image.shared_from_this();
    for (auto& entry : image.functions) functions.remove(entry.second.get());
    images.remove(&image);
    if (image.library != nullptr) image.library->images.erase(image.context);
    if (kept.use_count() > 1)
        retired_images.push_back(kept);
    else
        release_variables(image);
}

void Driver::release_library(Library& library) {
    while (!library.images.empty()) release_image(*library.images.begin()->second);
    for (const auto& [name, kernel] : library.kernels) library_kernels.remove(kernel.get());
    if (library.code.use_count() == 1) release_managed(*library.code);
    libraries.remove(&library);
}

void Driver::destroy_context(Context& context) {
    context.alive = false;
    streams.remove_if([&](const Stream& stream) { return stream.context == &context; });
    events.remove_if([&](const Event& event) { return event.context == &context; });
    context.streams.clear();
    context.per_thread.clear();
    std::vector<Image*> own;
    images.each([&](Image& image) {
        if (image.context == &context) own.push_back(&image);
    });
    for (Image* image : own) release_image(*image);
    release_arrays(*this, context);
    SimulatedDevice& device = device_of(context);
    if (context.turn && !settings.mps) device.turns[*context.turn] = false;
    std::erase_if(blocks, [&](const auto& entry) {
        const Block& block = entry.second;
        if (block.context != &context) return false;
        if (block.kind == Block::Kind::mapped) return false;  // belongs to the process
        if (block.kind == Block::Kind::device) device.heap.release(block.address, block.bytes);
        if (block.kind == Block::Kind::host_allocated) pinned_chunks.remove(block.place);
        if (block.kind == Block::Kind::host_allocated || block.kind == Block::Kind::managed)
            release_host_pages(space, block.address, block.bytes);
        else if (block.host())
            space.unmap(block.address, 1);
        return true;
    });
}

void Driver::advance(SimulatedDevice& device) {
    const Nanoseconds now = clock.now();
    const bool turns = device.shared && !settings.mps;
    if (turns) take_turn(device, now);
    device.engine.advance_to(now);
    if (turns && device.engine.computing() != device.turn.computing) {
        take_turn(device, now);
        device.engine.advance_to(now);
    }
    if (device.engine.has_host_calls()) {
        for (OperationPtr& call : device.engine.take_host_calls()) device.calls.push_back(std::move(call));
        device.calls_due.notify_one();
    }
    if (device.engine.take_news()) progress_.notify_all();
    wake();
}

// Catches up with whose turn it was since the last look, and asks for one if there is work.
void Driver::take_turn(SimulatedDevice& device, Nanoseconds now) {
    const Nanoseconds origin = clock.machine_origin();
    device.turn.computing = device.engine.computing();
    const SharedDevice::Turn turn = device.shared->look(now + origin, device.turn.computing);
    const Nanoseconds since = turn.since - origin;
    if (device.turn.ours && (!turn.ours || since != device.turn.since)) {
        const Nanoseconds until = turn.until - origin;
        device.engine.advance_to(until);
        device.engine.suspend(until);
        device.turn.ours = false;
    }
    if (turn.ours && !device.turn.ours) {
        device.engine.advance_to(since);
        device.engine.resume(since);
        device.turn.ours = true;
        device.turn.since = since;
    }
    device.turn.look_again.reset();
    if (turn.look_again) device.turn.look_again = *turn.look_again - origin;
}

std::optional<Nanoseconds> Driver::next_due(const SimulatedDevice& device) const {
    const auto event = device.engine.next_event_time();
    const auto& look = device.turn.look_again;
    return event && look ? std::min(*event, *look) : event ? event : look;
}

void Driver::wake() {
    for (const auto& device : devices) {
        const auto next = next_due(*device);
        const bool late = next && *next < device->sleeps_until;
        if (late || (device->engine.polls() && !device->polling)) device->due.notify_one();
    }
}

std::vector<Dependency> Driver::order(Stream& stream) {
    std::vector<Dependency> after;
    const auto add = [&](const Stream& other) {
        if (other.tail && !other.tail->done) after.push_back({other.tail, false});
    };
    if (stream.tail) after.push_back({stream.tail, false});
    Context& context = *stream.context;
    if (stream.kind == Stream::Kind::legacy) {
        for (const Stream* other : context.streams) {
            if (other->blocking()) add(*other);
        }
        for (const auto& entry : context.per_thread) add(*entry.second);
    } else if (stream.blocking()) {
        add(context.legacy);
    }
    return after;
}

void Driver::enqueue(Stream& stream, const OperationPtr& operation, const OperationPtr& also_after,
                     std::optional<int> priority) {
    std::vector<Dependency> after = order(stream);
    if (also_after) after.push_back({also_after, true});
    operation->partition = stream.partition;  // a part of what the call costs
    charge_for(*operation);
    if (std::holds_alternative<Launch>(operation->work)) stream.launches->push_back(operation);
    submit(stream, operation, after, priority.value_or(stream.priority));
    stream.tail = operation;
    wake();
}

void Driver::submit(Stream& stream, const OperationPtr& operation, const std::vector<Dependency>& after,
                    int priority, std::optional<Nanoseconds> at) {
    SimulatedDevice& device = device_of(*stream.context);
    Context& context = stream.context->owner != nullptr ? *stream.context->owner : *stream.context;
    if (!context.turn) context.turn = settings.mps ? 0 : device.take_turn();
    operation->context = *context.turn;
    operation->priority = priority;
    operation->partition = stream.partition;
    device.engine.submit(operation, after, at ? *at : submission_time());
}

void Driver::retire(Stream& stream) {
    abandon_capture(*this, stream);
    if (!stream.tail || stream.tail->done) return;
    if (stream.blocking()) {
        enqueue(stream.context->legacy, std::make_shared<Operation>());
    } else {
        std::vector<OperationPtr>& orphans = stream.context->orphans;
        std::erase_if(orphans, [](const OperationPtr& orphan) { return orphan->done; });
        orphans.push_back(stream.tail);
    }
}

void Driver::join(Context& context, const OperationPtr& operation) {
    std::vector<Dependency> after;
    const auto add = [&](const Stream& stream) {
        if (stream.tail) after.push_back({stream.tail, stream.kind != Stream::Kind::legacy});
    };
    add(context.legacy);
    for (const Stream* stream : context.streams) add(*stream);
    for (const auto& entry : context.per_thread) add(*entry.second);
    device_of(context).engine.submit(operation, after, submission_time());
    wake();
}

const Block* Driver::block_of(std::uint64_t address) const {
    auto next = blocks.upper_bound(address);
    if (next == blocks.begin()) return nullptr;
    const Block& block = std::prev(next)->second;
    return address - block.address < block.bytes ? &block : nullptr;
}

bool Driver::holds(const Block& block, std::uint64_t address, std::size_t bytes) const {
    if (block.kind == Block::Kind::mapped) return space.covers(address, bytes);
    return bytes <= block.bytes - (address - block.address);
}

std::optional<std::pair<std::uint64_t, std::size_t>> Driver::reservation(std::uint64_t address,
                                                                         std::size_t bytes) const {
    auto next = reservations.upper_bound(address);
    if (next == reservations.begin()) return std::nullopt;
    --next;
    const std::uint64_t offset = address - next->first;
    if (offset >= next->second || bytes > next->second - offset) return std::nullopt;
    return *next;
}

unsigned Driver::access_to(const Block& block) {
    if (block.read_only()) return CU_MEM_ACCESS_FLAGS_PROT_READ;
    if (block.kind != Block::Kind::mapped) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (space.at(block.address, 1, true) != nullptr) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return space.at(block.address, 1, false) != nullptr ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                        : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

CUresult current_context(Driver& driver, Context*& context) {
    const std::vector<Context*>& stack = context_stack();
    if (stack.empty() || stack.back() == nullptr) {
        if (within_host_function()) return CUDA_ERROR_NOT_PERMITTED;
        const CUresult fault = driver.sticky();
        return fault != CUDA_SUCCESS ? fault : CUDA_ERROR_INVALID_CONTEXT;
    }
    context = stack.back();
    return context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

namespace {

// A thread's default streams end with it, and so does a capture that it began there (as driver 580).
struct OwnStreams {
    ~OwnStreams() {
        (void)with_driver([](Driver& driver, Driver::Lock&) -> CUresult {
            driver.contexts.each([&](Context& context) {
                const auto own = context.per_thread.find(std::this_thread::get_id());
                if (own == context.per_thread.end()) return;
                driver.retire(*own->second);
                context.per_thread.erase(own);
            });
            return CUDA_SUCCESS;
        });
    }
};

}  // namespace

CUresult resolve_stream(Driver& driver, Context& current, CUstream handle, Stream*& stream) {
    const bool own = handle == CU_STREAM_PER_THREAD || (handle == nullptr && PerThreadDefault::depth() > 0);
    if (own) {
        std::unique_ptr<Stream>& mine = current.per_thread[std::this_thread::get_id()];
        if (!mine) {
            of_thread<OwnStreams>();
            mine = std::make_unique<Stream>();
            mine->context = &current;
            mine->kind = Stream::Kind::per_thread;
            mine->id = driver.next_id++;
            mine->partition = current.legacy.partition;
        }
        stream = mine.get();
        return CUDA_SUCCESS;
    }
    if (handle == nullptr || handle == CU_STREAM_LEGACY) {
        stream = &current.legacy;
        return CUDA_SUCCESS;
    }
    stream = driver.streams.find(handle);
    return stream != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace fikit::sim

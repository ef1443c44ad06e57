// See system.hpp. Handlers here are those of `call` operations: op.extra is the function's call, whose
// arguments lie among the frame's parameters.
#include "ptx/system.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "ptx/engine.hpp"

namespace fikit::sim::ptx {

namespace {

constexpr std::size_t string_limit = 4096;

class Heap {
  public:
    static Heap& instance() {
        static Heap& heap = *new Heap;
        return heap;
    }
    // 0: no room.
    std::uint64_t allocate(std::uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        if (bytes == 0 || bytes > bytes_) return 0;
        // Pages come as they are written to.
        if (memory_ == nullptr) memory_.reset(static_cast<std::byte*>(std::calloc(bytes_, 1)));
        if (memory_ == nullptr) return 0;
        bytes = (bytes + 15) / 16 * 16;
        const auto found = by_size_.lower_bound({bytes, 0});
        if (found == by_size_.end()) return 0;
        const auto [available, start] = *found;
        take_free(free_.find(start));
        if (available > bytes) add_free(start + bytes, available - bytes);
        taken_[start] = bytes;
        return window::heap | start;
    }
    bool grow(std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        if (bytes <= bytes_) return true;
        if (memory_ != nullptr) return false;
        take_free(free_.begin());
        bytes_ = bytes;
        add_free(16, bytes_ - 16);
        return true;
    }
    bool release(std::uint64_t address) {
        const std::lock_guard lock(mutex_);
        if (address == 0) return true;
        const auto found = taken_.find(address & window::mask);
        if (found == taken_.end()) return false;
        std::uint64_t start = found->first, bytes = found->second;
        taken_.erase(found);
        auto next = free_.lower_bound(start);
        if (next != free_.end() && next->first == start + bytes) {
            bytes += next->second;
            next = take_free(next);
        }
        if (next != free_.begin()) {
            const auto before = std::prev(next);
            if (before->first + before->second == start) {
                start = before->first;
                bytes += before->second;
                take_free(before);
            }
        }
        add_free(start, bytes);
        return true;
    }
    std::byte* at(std::uint64_t offset, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        auto next = taken_.upper_bound(offset);
        if (next == taken_.begin()) return nullptr;
        --next;
        if (bytes > next->second || offset - next->first > next->second - bytes) return nullptr;
        return memory_.get() + offset;
    }

  private:
    using Runs = std::map<std::uint64_t, std::uint64_t>;  // offset to bytes

    Heap() { add_free(16, bytes_ - 16); }
    void add_free(std::uint64_t start, std::uint64_t bytes) {
        free_.emplace(start, bytes);
        by_size_.emplace(bytes, start);
    }
    Runs::iterator take_free(Runs::iterator run) {
        by_size_.erase({run->second, run->first});
        return free_.erase(run);
    }

    std::mutex mutex_;
    std::size_t bytes_ = model::heap_bytes;
    std::unique_ptr<std::byte, decltype(&std::free)> memory_{nullptr, &std::free};
    Runs taken_, free_;
    std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // what is free: bytes, offset
};

// The arguments of a call, lane by lane.
class Arguments {
  public:
    Arguments(Context& context, const Op& op)
        : context_(context), call_(context.frame->function->calls[op.extra]) {}

    std::uint64_t get(std::size_t index, unsigned lane) const {
        std::uint64_t value = 0;
        if (index >= call_.arguments.size() || call_.arguments[index].place != no_place) return 0;
        const Formal& formal = call_.arguments[index];
        std::memcpy(&value, at(formal, lane), std::min<std::size_t>(formal.bytes, sizeof value));
        return value;
    }
    void give(unsigned lane, std::uint64_t value) const {
        if (call_.results.empty() || call_.results[0].place != no_place) return;
        const Formal& formal = call_.results[0];
        std::memcpy(at(formal, lane), &value, std::min<std::size_t>(formal.bytes, sizeof value));
    }

  private:
    std::byte* at(const Formal& formal, unsigned lane) const {
        return context_.frame->parameters + lane * std::size_t{context_.frame->function->parameter_bytes} +
               formal.offset;
    }
    Context& context_;
    const Call& call_;
};

std::optional<std::string> text_at(Context& context, std::uint64_t address, unsigned lane) {
    std::string text;
    while (text.size() < string_limit) {
        const std::byte* place = context.block->resolve_one(Space::generic, address + text.size(), 1,
                                                            AccessKind::read, context, lane);
        if (place == nullptr) return std::nullopt;
        if (*place == std::byte{0}) return text;
        text.push_back(static_cast<char>(*place));
    }
    return text;
}

// One conversion of a format, as CUDA C++ Programming Guide, "Formatted Output", has them.
class Printer {
  public:
    Printer(Context& context, std::uint64_t arguments, unsigned lane)
        : context_(context), arguments_(arguments), lane_(lane) {}

    // How many conversions were made, or -1.
    int print(const std::string& format, std::string& out) {
        int made = 0;
        for (std::size_t at = 0; at < format.size(); ++at) {
            if (format[at] != '%') {
                out.push_back(format[at]);
                continue;
            }
            if (at + 1 < format.size() && format[at + 1] == '%') {
                out.push_back('%');
                ++at;
                continue;
            }
            std::string spec = "%", narrow;  // h, hh
            int size = 0;                    // 8 for what is 64 bits long
            for (++at; at < format.size(); ++at) {
                const char letter = format[at];
                if (std::strchr("-+ #0123456789.", letter) != nullptr && spec.size() < 16) {
                    spec.push_back(letter);
                } else if (letter == '*') {
                    const auto width = next(4);
                    if (!width) return -1;
                    const int number = std::clamp(static_cast<int>(*width), -4096, 4096);
                    if (number < 0 && spec.back() == '.')
                        spec.pop_back();  // as if there were no precision
                    else
                        spec += std::to_string(number);
                } else if (letter == 'l' || letter == 'z' || letter == 'j' || letter == 't') {
                    size = 8;
                } else if (letter == 'h' && narrow.size() < 2) {
                    narrow.push_back(letter);
                } else {
                    break;
                }
            }
            if (at >= format.size()) break;
            if (!convert(spec, narrow, size, format[at], out)) return -1;
            ++made;
        }
        return made;
    }

  private:
    std::optional<std::uint64_t> next(unsigned bytes) {
        offset_ = (offset_ + bytes - 1) / bytes * bytes;
        const std::byte* place = context_.block->resolve_one(Space::generic, arguments_ + offset_, bytes,
                                                             AccessKind::read, context_, lane_);
        if (place == nullptr) return std::nullopt;
        offset_ += bytes;
        std::uint64_t value = 0;
        std::memcpy(&value, place, bytes);
        return value;
    }

    template <typename... Value>
    static void put(std::string& out, const std::string& spec, Value... value) {
        char buffer[8192];
        const int length = std::snprintf(buffer, sizeof buffer, spec.c_str(), value...);
        if (length > 0)
            out.append(buffer, std::min<std::size_t>(static_cast<std::size_t>(length), sizeof buffer - 1));
    }

    bool convert(const std::string& spec, const std::string& narrow, int size, char letter,
                 std::string& out) {
        const bool real = std::strchr("fFeEgGaA", letter) != nullptr;
        const bool whole = std::strchr("diouxXc", letter) != nullptr;
        if (!real && !whole && letter != 's' && letter != 'p') {
            out += spec + letter;
            return true;
        }
        const auto value = next(real || letter == 's' || letter == 'p' || size == 8 ? 8 : 4);
        if (!value) return false;
        if (real) {
            put(out, spec + letter, std::bit_cast<double>(*value));
        } else if (letter == 's') {
            const auto text = *value == 0 ? std::string("(null)") : text_at(context_, *value, lane_);
            if (!text) return false;
            put(out, spec + letter, text->c_str());
        } else if (letter == 'p') {
            put(out, spec + letter, reinterpret_cast<void*>(*value));
        } else if (size == 8 && letter != 'c') {
            put(out, spec + "ll" + letter, static_cast<unsigned long long>(*value));
        } else {
            put(out, spec + (letter == 'c' ? "" : narrow) + letter, static_cast<unsigned>(*value));
        }
        return true;
    }

    Context& context_;
    std::uint64_t arguments_;
    unsigned lane_;
    std::uint64_t offset_ = 0;
};

void print(Context& context, const Op& op, Mask mask) {
    const Arguments arguments(context, op);
    each_lane(mask, [&](unsigned lane) {
        if (context.fault != CUDA_SUCCESS) return;
        const auto format = text_at(context, arguments.get(0, lane), lane);
        if (!format) return;
        std::string text;
        const int made = Printer(context, arguments.get(1, lane), lane).print(*format, text);
        std::string& output = context.block->launch.output;
        if (output.size() + text.size() <= model::print_bytes) output += text;
        arguments.give(lane, static_cast<std::uint64_t>(static_cast<std::int64_t>(made)));
    });
}

void fail_assertion(Context& context, const Op& op, Mask mask) {
    const Arguments arguments(context, op);
    const Frame* frame = context.frame;
    while (frame->caller != nullptr) frame = frame->caller;
    const auto& block = context.block->position;
    each_lane(mask, [&](unsigned lane) {
        const auto message = text_at(context, arguments.get(0, lane), lane);
        const auto file = text_at(context, arguments.get(1, lane), lane);
        const auto function = text_at(context, arguments.get(3, lane), lane);
        u32 thread[3];
        for (unsigned axis = 0; axis < 3; ++axis) {
            thread[axis] =
                reinterpret_cast<const u32*>(frame->registers + frame->function->thread_index[axis])[lane];
        }
        std::fprintf(stderr, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
                     file.value_or("?").c_str(), static_cast<unsigned>(arguments.get(2, lane)),
                     function.value_or("?").c_str(), block[0], block[1], block[2], thread[0], thread[1],
                     thread[2], message.value_or("?").c_str());
    });
    context.fault = CUDA_ERROR_ASSERT;
}

void allocate(Context& context, const Op& op, Mask mask) {
    const Arguments arguments(context, op);
    each_lane(mask, [&](unsigned lane) {
        arguments.give(lane, Heap::instance().allocate(arguments.get(0, lane)));
    });
}

void release(Context& context, const Op& op, Mask mask) {
    const Arguments arguments(context, op);
    each_lane(mask, [&](unsigned lane) {
        if (!Heap::instance().release(arguments.get(0, lane))) context.fault = CUDA_ERROR_LAUNCH_FAILED;
    });
}

// Kernels that run in the background set them beside each other.
struct Conditions {
    std::mutex mutex;
    std::unordered_map<std::uint64_t, std::uint32_t> values;
    static Conditions& instance() {
        static Conditions& all = *new Conditions;
        return all;
    }
};

void set_graph_condition(Context& context, const Op& op, Mask mask) {
    const Arguments arguments(context, op);
    each_lane(mask, [&](unsigned lane) {
        set_condition(arguments.get(0, lane), static_cast<std::uint32_t>(arguments.get(1, lane)));
    });
}

}  // namespace

std::uint32_t condition(std::uint64_t handle) {
    Conditions& all = Conditions::instance();
    const std::lock_guard lock(all.mutex);
    const auto found = all.values.find(handle);
    return found == all.values.end() ? 0 : found->second;
}

void set_condition(std::uint64_t handle, std::uint32_t value) {
    Conditions& all = Conditions::instance();
    const std::lock_guard lock(all.mutex);
    all.values[handle] = value;
}

std::byte* device_heap_at(std::uint64_t offset, std::size_t bytes) {
    return Heap::instance().at(offset, bytes);
}

bool grow_device_heap(std::size_t bytes) { return Heap::instance().grow(bytes); }

Handler system_function(std::string_view name) {
    if (name == "vprintf") return &print;
    if (name == "__assertfail") return &fail_assertion;
    if (name == "malloc") return &allocate;
    if (name == "free") return &release;
    if (name == "cudaGraphSetConditional") return &set_graph_condition;
    return nullptr;
}

}  // namespace fikit::sim::ptx

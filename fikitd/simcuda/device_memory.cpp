// The parts of the device that move bytes: copy engines, fills and stream memory operations.
#include <algorithm>
#include <cstring>
#include <memory>

#include "device.hpp"

namespace fikit::sim {

namespace {

constexpr std::size_t piece = 65536;
constexpr double at_once = 16 << 20;  // bytes; who asks the driver something waits while they are moved

}  // namespace

Nanoseconds Device::link_time(const Copy& copy) const {
    const bool upload = copy.engine == CopyEngine::to_device;
    double speed = upload ? model::host_to_device : model::device_to_host;
    if (copy.pageable) speed = upload ? model::pageable_to_device : model::device_to_pageable;
    const auto other = upload ? CopyEngine::to_host : CopyEngine::to_device;
    if (engines_[static_cast<std::size_t>(other)].running) speed = std::min(speed, model::both_directions);
    const double bytes = static_cast<double>(copy.width) * static_cast<double>(copy.height);
    return model::copy_latency + static_cast<Nanoseconds>(bytes / speed);
}

// What a copy or a fill inside the device moves.
double Device::moved_bytes(const Operation& operation) {
    if (const auto* copy = std::get_if<Copy>(&operation.work))  // read and written
        return 2 * static_cast<double>(copy->width) * static_cast<double>(copy->height);
    const Fill& fill = std::get<Fill>(operation.work);
    return static_cast<double>(fill.width) * static_cast<double>(fill.height) * fill.element;
}

void Device::start_copies(CopyEngine which, Nanoseconds time) {
    Engine& engine = engines_[static_cast<std::size_t>(which)];
    if (engine.running || engine.queue.empty()) return;
    engine.running = engine.queue.front();
    engine.queue.pop();
    if (++copies_ == options_.faults.copy) {
        if (options_.faults.copy_result != CUDA_SUCCESS) halt(options_.faults.copy_result);
        return;  // a stalled copy holds its engine for ever
    }
    if (which == CopyEngine::on_device)
        schedule(time + model::copy_latency, Step::move, engine.running);
    else
        schedule(time + link_time(std::get<Copy>(engine.running->work)), Step::copy_end, engine.running);
}

void Device::finish_copy(const OperationPtr& operation, Nanoseconds time) {
    if (!options_.apart || moved_bytes(*operation) <= at_once) {
        end_copy(operation, time, perform(*operation, false));
        return;
    }
    const auto fine = std::make_shared<bool>();
    options_.apart([this, operation, fine] { *fine = perform(*operation, true); },
                   [this, operation, fine, time] {
                       if (fault_ == CUDA_SUCCESS) end_copy(operation, time, *fine);
                   });
}

void Device::end_copy(const OperationPtr& operation, Nanoseconds time, bool fine) {
    const auto* copy = std::get_if<Copy>(&operation->work);
    const CopyEngine which = copy != nullptr ? copy->engine : CopyEngine::on_device;
    if (!fine) {
        halt(CUDA_ERROR_ILLEGAL_ADDRESS);
        return;
    }
    engines_[static_cast<std::size_t>(which)].running.reset();
    complete(operation, time);
    if (!waiting_values_.empty()) poll(time);
    start_copies(which, time);
}

// `apart`: beside all others, who may change what is mapped between two pieces.
bool Device::perform(const Operation& operation, bool apart) {
    const auto* copy = std::get_if<Copy>(&operation.work);
    return copy != nullptr ? perform(*copy, apart) : perform(std::get<Fill>(operation.work), apart);
}

bool Device::perform(const Copy& copy, bool apart) {
    for (std::size_t row = 0; row < copy.height; ++row) {
        for (std::size_t done = 0; done < copy.width;) {
            if (apart) memory_.give_way();
            // Mappings begin and end at pages, so a piece that crosses none of its own size is in
            // one mapping or in two; cut at both sides' borders.
            const std::uint64_t to = copy.destination.address + row * copy.destination.pitch + done;
            const std::uint64_t from = copy.source.address + row * copy.source.pitch + done;
            std::size_t bytes = std::min(copy.width - done, piece - static_cast<std::size_t>(to % piece));
            bytes = std::min(bytes, piece - static_cast<std::size_t>(from % piece));
            std::byte* target =
                copy.destination.host ? reinterpret_cast<std::byte*>(to) : memory_.at(to, bytes, true);
            const std::byte* origin = nullptr;
            if (!copy.staged.empty())
                origin = copy.staged.data() + row * copy.width + done;
            else if (copy.source.host)
                origin = reinterpret_cast<const std::byte*>(from);
            else
                origin = memory_.at(from, bytes, false);
            if (target == nullptr || origin == nullptr) return false;
            std::memmove(target, origin, bytes);
            done += bytes;
        }
    }
    return true;
}

bool Device::perform(const Fill& fill, bool apart) {
    for (std::size_t row = 0; row < fill.height; ++row) {
        const std::uint64_t start = fill.destination.address + row * fill.destination.pitch;
        const std::size_t width = fill.width * fill.element;
        for (std::size_t done = 0; done < width;) {
            if (apart) memory_.give_way();
            const std::size_t bytes =
                std::min(width - done, piece - static_cast<std::size_t>((start + done) % piece));
            std::byte* target = memory_.at(start + done, bytes, true);
            if (target == nullptr) return false;
            if (fill.element == 1) {
                std::memset(target, static_cast<int>(fill.value), bytes);
            } else {
                for (std::size_t at = 0; at < bytes; at += fill.element) {
                    std::memcpy(target + at, &fill.value, fill.element);
                }
            }
            done += bytes;
        }
    }
    return true;
}

bool Device::perform(const WriteValue& write) {
    std::byte* place = memory_.at(write.address, write.wide ? 8 : 4, true);
    if (place == nullptr) return false;
    if (write.wide) {
        __atomic_store_n(reinterpret_cast<std::uint64_t*>(place), write.value, __ATOMIC_SEQ_CST);
    } else {
        __atomic_store_n(reinterpret_cast<std::uint32_t*>(place), static_cast<std::uint32_t>(write.value),
                         __ATOMIC_SEQ_CST);
    }
    return true;
}

bool Device::satisfied(const WaitValue& wait) {
    const std::byte* place = memory_.at(wait.address, wait.wide ? 8 : 4, false);
    if (place == nullptr) {
        halt(CUDA_ERROR_ILLEGAL_ADDRESS);
        return false;
    }
    const unsigned condition = wait.condition & 3U;
    if (wait.wide) {
        const std::uint64_t value =
            __atomic_load_n(reinterpret_cast<const std::uint64_t*>(place), __ATOMIC_ACQUIRE);
        switch (condition) {
            case CU_STREAM_WAIT_VALUE_GEQ:
                return static_cast<std::int64_t>(value - wait.value) >= 0;
            case CU_STREAM_WAIT_VALUE_EQ:
                return value == wait.value;
            case CU_STREAM_WAIT_VALUE_AND:
                return (value & wait.value) != 0;
            default:
                return ~(value | wait.value) != 0;
        }
    }
    const std::uint32_t value =
        __atomic_load_n(reinterpret_cast<const std::uint32_t*>(place), __ATOMIC_ACQUIRE);
    const auto asked = static_cast<std::uint32_t>(wait.value);
    switch (condition) {
        case CU_STREAM_WAIT_VALUE_GEQ:
            return static_cast<std::int32_t>(value - asked) >= 0;
        case CU_STREAM_WAIT_VALUE_EQ:
            return value == asked;
        case CU_STREAM_WAIT_VALUE_AND:
            return (value & asked) != 0;
        default:
            return ~(value | asked) != 0;
    }
}

void Device::poll(Nanoseconds time) {
    for (std::size_t index = 0; index < waiting_values_.size();) {
        const OperationPtr operation = waiting_values_[index];
        if (!satisfied(std::get<WaitValue>(operation->work))) {
            if (fault_ != CUDA_SUCCESS) return;
            ++index;
            continue;
        }
        waiting_values_.erase(waiting_values_.begin() + static_cast<std::ptrdiff_t>(index));
        complete(operation, std::max(time, operation->ready_at));
    }
}

}  // namespace fikit::sim

// See ptx_interpret.hpp.
#include "ptx_interpret.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace fikit::sim {

using ptx::Atomic;
using ptx::Compare;
using ptx::Instruction;
using ptx::Opcode;
using ptx::Operand;
using ptx::OperandKind;
using ptx::Type;

namespace {

std::uint64_t truncate(std::uint64_t value, Type type) {
    if (type.bytes == 0) return value & 1;
    if (type.bytes >= 8) return value;
    const unsigned bits = type.bytes * 8U;
    const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
    value &= mask;
    if (type.is_signed && (value >> (bits - 1)) != 0) value |= ~mask;
    return value;
}

template <typename T>
bool compare_as(Compare compare, T left, T right) {
    switch (compare) {
        case Compare::eq:
            return left == right;
        case Compare::ne:
            return left != right;
        case Compare::lt:
            return left < right;
        case Compare::le:
            return left <= right;
        case Compare::gt:
            return left > right;
        case Compare::ge:
            return left >= right;
    }
    return false;
}

std::uint64_t divide(std::uint64_t left, std::uint64_t right, Type type, bool remainder) {
    if (right == 0) return remainder ? left : ~std::uint64_t{0};
    if (!type.is_signed) return remainder ? left % right : left / right;
    const auto dividend = static_cast<std::int64_t>(left);
    const auto divisor = static_cast<std::int64_t>(right);
    if (divisor == -1) return remainder ? 0 : ~left + 1;
    return static_cast<std::uint64_t>(remainder ? dividend % divisor : dividend / divisor);
}

std::uint64_t high_half(std::uint64_t left, std::uint64_t right, Type type) {
    if (type.bytes < 8) {
        return (left * right) >> (type.bytes * 8U);
    }
    if (type.is_signed) {
        __extension__ using Wide = __int128;
        return static_cast<std::uint64_t>(
            (static_cast<Wide>(static_cast<std::int64_t>(left)) * static_cast<std::int64_t>(right)) >> 64);
    }
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(left) * right) >> 64);
}

// The instructions that wait at most this long are run at once; an end later than this is no end.
constexpr Nanoseconds far_future = std::int64_t{1} << 60;

}  // namespace

Execution::Execution(const ptx::Kernel& kernel, std::vector<std::byte> parameters, const LaunchShape& shape,
                     const std::vector<std::uint64_t>& variables, Nanoseconds timer_base)
    : kernel_(kernel),
      variables_(variables),
      parameters_(std::move(parameters)),
      shape_(shape),
      threads_total_(shape.blocks() * shape.threads()),
      timer_base_(timer_base),
      registers_(kernel.register_count) {}

std::uint64_t Execution::read(const Operand& operand) const {
    const auto timer = static_cast<std::uint64_t>(timer_base_ + now_);
    const auto cycles = static_cast<std::uint64_t>(static_cast<double>(now_) * model::sm_clock_ghz);
    switch (operand.kind) {
        case OperandKind::reg:
            return registers_[operand.index] + operand.value;
        case OperandKind::immediate:
            return operand.value +
                   (operand.variable >= 0 ? variables_[static_cast<std::size_t>(operand.variable)] : 0);
        case OperandKind::global_timer:
            return timer;
        case OperandKind::global_timer_low:
            return timer & 0xffffffffU;
        case OperandKind::global_timer_high:
            return timer >> 32;
        case OperandKind::clock:
            return cycles & 0xffffffffU;
        case OperandKind::clock64:
            return cycles;
        case OperandKind::block_threads:
            return shape_.block[operand.index];
        case OperandKind::grid_blocks:
            return shape_.grid[operand.index];
        case OperandKind::none:
        case OperandKind::zero:
            break;
    }
    return 0;
}

std::uint64_t Execution::compute(const Instruction& instruction) const {
    const Type type = instruction.type;
    const std::uint64_t a = truncate(read(instruction.a), type);
    const std::uint64_t b = truncate(read(instruction.b), type);
    const unsigned bits = type.bytes * 8U;
    switch (instruction.opcode) {
        case Opcode::move:
            return a;
        case Opcode::add:
            return a + b;
        case Opcode::sub:
            return a - b;
        case Opcode::mul_lo:
            return a * b;
        case Opcode::mul_hi:
            return high_half(a, b, type);
        case Opcode::mul_wide:
            return a * b;
        case Opcode::mad_lo:
            return a * b + truncate(read(instruction.c), type);
        case Opcode::mad_wide:
            return a * b + read(instruction.c);
        case Opcode::div:
            return divide(a, b, type, false);
        case Opcode::rem:
            return divide(a, b, type, true);
        case Opcode::band:
            return a & b;
        case Opcode::bor:
            return a | b;
        case Opcode::bxor:
            return a ^ b;
        case Opcode::bnot:
            return ~a;
        case Opcode::neg:
            return ~a + 1;
        case Opcode::shl: {
            const std::uint64_t count = read(instruction.b) & 0xffffffffU;
            return count >= bits ? 0 : a << count;
        }
        case Opcode::shr: {
            const std::uint64_t count = std::min<std::uint64_t>(read(instruction.b) & 0xffffffffU, bits);
            if (type.is_signed) {
                return static_cast<std::uint64_t>(static_cast<std::int64_t>(a) >>
                                                  std::min<std::uint64_t>(count, 63));
            }
            return count >= 64 ? 0 : a >> count;
        }
        case Opcode::min:
        case Opcode::max: {
            const bool less =
                type.is_signed ? static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b) : a < b;
            return less == (instruction.opcode == Opcode::min) ? a : b;
        }
        case Opcode::setp:
            return type.is_signed ? compare_as(instruction.compare, static_cast<std::int64_t>(a),
                                               static_cast<std::int64_t>(b))
                                  : compare_as(instruction.compare, a, b);
        case Opcode::selp:
            return (read(instruction.c) & 1) != 0 ? a : b;
        case Opcode::cvt:
            return truncate(truncate(read(instruction.a), instruction.source_type), type);
        default:
            return 0;
    }
}

bool Execution::guard_holds(const Instruction& instruction) const {
    if (instruction.guard < 0) return true;
    const bool value = (registers_[static_cast<std::size_t>(instruction.guard)] & 1) != 0;
    return value != instruction.guard_negated;
}

// What an atomic by every thread leaves behind.
std::uint64_t Execution::combine(const Instruction& instruction, std::uint64_t old) const {
    const Type type = instruction.type;
    const std::uint64_t value = truncate(read(instruction.b), type);
    const std::uint64_t before = truncate(old, type);
    const bool less = type.is_signed ? static_cast<std::int64_t>(value) < static_cast<std::int64_t>(before)
                                     : value < before;
    switch (instruction.atomic) {
        case Atomic::add:
            return before + value * threads_total_;
        case Atomic::min:
            return less ? value : before;
        case Atomic::max:
            return less ? before : value;
        case Atomic::band:
            return before & value;
        case Atomic::bor:
            return before | value;
        case Atomic::bxor:
            return threads_total_ % 2 == 1 ? before ^ value : before;
        case Atomic::exchange:
            return value;
        case Atomic::compare_swap:
            return before == value ? truncate(read(instruction.c), type) : before;
    }
    return before;
}

CUresult Execution::access(const Instruction& instruction, GlobalMemory& memory) {
    const std::uint64_t address = read(instruction.a);
    const std::size_t bytes = instruction.type.bytes;
    if (address % bytes != 0) return CUDA_ERROR_MISALIGNED_ADDRESS;
    std::byte* place = memory.at(address, bytes, instruction.opcode != Opcode::load);
    if (place == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
    // Host memory is read and written by the host meanwhile, so whole words move at once.
    const auto transfer = [&](auto zero) {
        using Word = decltype(zero);
        auto* word = reinterpret_cast<Word*>(place);
        if (instruction.opcode == Opcode::load) {
            registers_[static_cast<std::size_t>(instruction.destination)] =
                truncate(__atomic_load_n(word, __ATOMIC_ACQUIRE), instruction.type);
        } else if (instruction.opcode == Opcode::store) {
            __atomic_store_n(word, static_cast<Word>(read(instruction.b)), __ATOMIC_RELEASE);
        } else {
            Word old = __atomic_load_n(word, __ATOMIC_ACQUIRE);
            while (!__atomic_compare_exchange_n(word, &old, static_cast<Word>(combine(instruction, old)),
                                                false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            }
        }
    };
    switch (bytes) {
        case 1:
            transfer(std::uint8_t{0});
            break;
        case 2:
            transfer(std::uint16_t{0});
            break;
        case 4:
            transfer(std::uint32_t{0});
            break;
        default:
            transfer(std::uint64_t{0});
            break;
    }
    return CUDA_SUCCESS;
}

bool Execution::loop_ends_at(std::size_t first, std::size_t last, Nanoseconds time) {
    now_ = time;
    for (std::size_t at = first; at <= last; ++at) {
        const Instruction& instruction = kernel_.code[at];
        if (instruction.opcode == Opcode::branch) {
            const bool taken = guard_holds(instruction);
            if (at == last) return !taken;
            if (taken) return true;
        } else if (instruction.destination >= 0) {
            registers_[static_cast<std::size_t>(instruction.destination)] = compute(instruction);
        }
    }
    return true;
}

// The first time at which the loop is left. Only registers that the loop sets itself before reading
// them change.
Nanoseconds Execution::loop_end(std::size_t first, std::size_t last) {
    const Nanoseconds start = now_;
    Nanoseconds low = start;  // still looping
    Nanoseconds high = start + 1;
    while (!loop_ends_at(first, last, high)) {
        low = high;
        if (high - start > far_future) {
            high = std::numeric_limits<Nanoseconds>::max();
            break;
        }
        high = start + (high - start) * 2;
    }
    while (high - low > 1 && high != std::numeric_limits<Nanoseconds>::max()) {
        const Nanoseconds middle = low + (high - low) / 2;
        (loop_ends_at(first, last, middle) ? high : low) = middle;
    }
    now_ = start;
    return high;
}

Execution::Progress Execution::resume(GlobalMemory& memory, Nanoseconds now) {
    now_ = now;
    for (;;) {
        const Instruction& instruction = kernel_.code[next_];
        if (++retired_ > model::watchdog_instructions) return {State::faulted, 0, CUDA_ERROR_LAUNCH_TIMEOUT};
        const std::size_t here = next_++;
        if (!guard_holds(instruction)) continue;
        switch (instruction.opcode) {
            case Opcode::leave:
                return {State::finished};
            case Opcode::trap:
                return {State::faulted, 0, CUDA_ERROR_LAUNCH_FAILED};
            case Opcode::nothing:
                break;
            case Opcode::nanosleep: {
                const auto pause = static_cast<Nanoseconds>(read(instruction.a) & 0xffffffffU);
                if (pause > 0) return {State::waiting, now_ + pause};
                break;
            }
            case Opcode::branch: {
                next_ = instruction.target;
                if (!instruction.timed_loop) break;
                // On waking, one more turn of the loop leaves it.
                const Nanoseconds end = loop_end(instruction.target, here);
                if (end == std::numeric_limits<Nanoseconds>::max()) {
                    return {State::faulted, 0, CUDA_ERROR_LAUNCH_TIMEOUT};
                }
                return {State::waiting, end};
            }
            case Opcode::load_param: {
                std::uint64_t value = 0;
                std::memcpy(&value, parameters_.data() + instruction.parameter, instruction.type.bytes);
                registers_[static_cast<std::size_t>(instruction.destination)] =
                    truncate(value, instruction.type);
                break;
            }
            case Opcode::load:
            case Opcode::store:
            case Opcode::atomic: {
                const CUresult result = access(instruction, memory);
                if (result != CUDA_SUCCESS) return {State::faulted, 0, result};
                break;
            }
            default:
                registers_[static_cast<std::size_t>(instruction.destination)] = compute(instruction);
        }
    }
}

BlockWork Execution::work() const {
    BlockWork work;
    work.threads = shape_.threads();
    work.instructions[static_cast<std::size_t>(Work::simple)] = retired_ * work.threads;
    return work;
}

}  // namespace fikit::sim

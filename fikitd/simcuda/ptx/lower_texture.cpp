// Textures and surfaces: tex with one to three dimensions, suld.b and sust.b (CUDA C++ Programming Guide,
// "Texture Fetching"). No layers, cube maps, mipmaps or gathers.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ptx/engine.hpp"
#include "ptx/floats.hpp"
#include "ptx/lowering.hpp"
#include "ptx/texture.hpp"

namespace fikit::sim::ptx {

namespace {

using Index = std::array<std::int64_t, 3>;
using Element = std::array<float, 4>;  // integers: their bits

// Which element a coordinate beyond the end means; false: the border.
bool place_index(std::int64_t& index, std::int64_t count, CUaddress_mode mode, bool normalised) {
    if (mode == CU_TR_ADDRESS_MODE_BORDER) return index >= 0 && index < count;
    if (normalised && mode == CU_TR_ADDRESS_MODE_WRAP) {
        index = (index % count + count) % count;
    } else if (normalised && mode == CU_TR_ADDRESS_MODE_MIRROR) {
        index = (index % (2 * count) + 2 * count) % (2 * count);
        index = std::min(index, 2 * count - 1 - index);
    } else {
        index = std::clamp<std::int64_t>(index, 0, count - 1);
    }
    return true;
}

template <typename T>
float channel_of(const std::byte* place, unsigned channel, bool integers) {
    T value;
    std::memcpy(&value, place + channel * sizeof value, sizeof value);
    if (integers) {
        using Wide = std::conditional_t<std::is_signed_v<T>, s32, u32>;
        return std::bit_cast<float>(static_cast<Wide>(value));
    }
    const float whole = static_cast<float>(std::numeric_limits<T>::max());
    return std::max(static_cast<float>(value) / whole, -1.0F);
}

float read_channel(const Texture& texture, const std::byte* place, unsigned channel) {
    switch (texture.format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
            return channel_of<u8>(place, channel, texture.integers);
        case CU_AD_FORMAT_SIGNED_INT8:
            return channel_of<s8>(place, channel, texture.integers);
        case CU_AD_FORMAT_UNSIGNED_INT16:
            return channel_of<u16>(place, channel, texture.integers);
        case CU_AD_FORMAT_SIGNED_INT16:
            return channel_of<s16>(place, channel, texture.integers);
        case CU_AD_FORMAT_HALF: {
            u16 bits = 0;
            std::memcpy(&bits, place + channel * sizeof bits, sizeof bits);
            return from_half(bits);
        }
        default:
            return channel_of<u32>(place, channel, true);
    }
}

class Fetch {
  public:
    Fetch(Context& context, const Texture& texture, unsigned dimensions, unsigned lane)
        : context_(context), texture_(texture), dimensions_(dimensions), lane_(lane) {}

    Element at(Index index) const {
        Element element{};
        for (unsigned axis = 0; axis < dimensions_; ++axis) {
            const std::int64_t count = texture_.size[axis];
            if (texture_.linear_memory && (index[axis] < 0 || index[axis] >= count)) return element;
            if (!place_index(index[axis], count, texture_.modes[axis], texture_.normalised))
                return texture_.border;
        }
        const u64 address = texture_.address + static_cast<u64>(index[0]) * texture_.element +
                            static_cast<u64>(index[1]) * texture_.pitch +
                            static_cast<u64>(index[2]) * texture_.slice;
        const std::byte* place = context_.block->resolve_one(Space::global, address, texture_.element,
                                                             AccessKind::read, context_, lane_);
        if (place == nullptr) return element;
        for (unsigned channel = 0; channel < texture_.channels; ++channel)
            element[channel] = read_channel(texture_, place, channel);
        return element;
    }

    Element at(const std::array<float, 3>& wished) const {
        Index low{};
        std::array<float, 3> share{};
        for (unsigned axis = 0; axis < dimensions_; ++axis) {
            float x = wished[axis] == wished[axis] ? wished[axis] : 0;
            if (texture_.normalised) x *= static_cast<float>(texture_.size[axis]);
            if (texture_.filtered) x -= 0.5F;
            x = std::clamp(x, -0x1p30F, 0x1p30F);
            low[axis] = static_cast<std::int64_t>(std::floor(x));
            // The share of the upper neighbour has eight bits.
            share[axis] = std::floor((x - std::floor(x)) * 256 + 0.5F) / 256;
        }
        if (!texture_.filtered) return at(low);
        Element sum{};
        for (unsigned corner = 0; corner < 1U << dimensions_; ++corner) {
            Index index = low;
            float weight = 1;
            for (unsigned axis = 0; axis < dimensions_; ++axis) {
                const bool upper = (corner >> axis & 1) != 0;
                index[axis] += upper ? 1 : 0;
                weight *= upper ? share[axis] : 1 - share[axis];
            }
            const Element element = at(index);
            for (unsigned channel = 0; channel < 4; ++channel) sum[channel] += weight * element[channel];
        }
        return sum;
    }

  private:
    Context& context_;
    const Texture& texture_;
    unsigned dimensions_, lane_;
};

// op.a: the object; the function's list number op.extra: coordinates, then four results. op.width:
// dimensions.
template <typename Coordinate>
void fetch(Context& context, const Op& op, Mask mask) {
    const std::vector<Place>& places = context.frame->function->lists[op.extra];
    each_lane(mask, [&](unsigned lane) {
        const Texture* texture = context.block->texture(context.at<u64>(op.a)[lane], context);
        if (texture == nullptr || context.fault != CUDA_SUCCESS) return;
        const Fetch unit(context, *texture, op.width, lane);
        std::array<std::conditional_t<std::is_floating_point_v<Coordinate>, float, std::int64_t>, 3> wished{};
        for (unsigned axis = 0; axis < op.width; ++axis)
            wished[axis] = context.at<Coordinate>(places[axis])[lane];
        const Element element = unit.at(wished);
        for (unsigned channel = 0; channel < 4; ++channel) {
            const Place to = places[op.width + channel];
            if (to != no_place) context.at<float>(to)[lane] = element[channel];
        }
    });
}

void lower_fetch(Lowering& lowering) {
    const bool one = lowering.accept(".1d");
    const bool two = lowering.accept(".2d");
    if (!one && !two && !lowering.accept(".3d")) lowering.refuse();
    const unsigned dimensions = one ? 1 : two ? 2 : 3;
    if (!lowering.accept(".v4")) lowering.refuse();
    const Type type = lowering.type();
    const Type coordinate = lowering.type();
    if (bytes_of(type) != 4 || (coordinate != Type::s32 && coordinate != Type::f32)) lowering.refuse();
    lowering.expect_operands(2);
    const Operand& to = lowering.operand(0);
    const Operand& from = lowering.operand(1);
    if (to.kind != OperandKind::vector || to.parts.size() != 4 || from.kind != OperandKind::address ||
        from.parts.size() != 2 || from.value != 0 || from.parts[1].parts.size() < dimensions)
        lowering.refuse();
    std::vector<Place> places;
    for (unsigned axis = 0; axis < dimensions; ++axis)
        places.push_back(lowering.source(from.parts[1].parts[axis], coordinate));
    const Place object = lowering.source(from.parts[0], Type::b64);
    for (const Operand& part : to.parts)
        places.push_back(part.kind == OperandKind::sink ? no_place : lowering.target(part, Type::b32));
    Op& op = lowering.emit(coordinate == Type::f32 ? &fetch<float> : &fetch<s32>, Work::memory);
    op.kind = Kind::checked;
    op.a = object;
    op.width = static_cast<std::uint8_t>(dimensions);
    op.extra = static_cast<std::uint32_t>(lowering.function().lists.size());
    lowering.function().lists.push_back(std::move(places));
}

// --- surfaces

enum class Beyond : std::uint8_t { trap, clamp, zero };

// The list: coordinates (the first in bytes), then registers of T. op.width: dimensions; op.flags: Beyond.
template <typename T, bool writes>
void surface(Context& context, const Op& op, Mask mask) {
    const std::vector<Place>& places = context.frame->function->lists[op.extra];
    const std::size_t parts = places.size() - op.width;
    const auto beyond = static_cast<Beyond>(op.flags);
    each_lane(mask, [&](unsigned lane) {
        const Texture* object = context.block->texture(context.at<u64>(op.a)[lane], context);
        if (object == nullptr || context.fault != CUDA_SUCCESS) return;
        const auto bytes = static_cast<std::int64_t>(parts * sizeof(T));
        const u64 strides[] = {1, object->pitch, object->slice};
        u64 address = object->address;
        bool inside = true;
        for (unsigned axis = 0; axis < op.width; ++axis) {
            std::int64_t at = context.at<s32>(places[axis])[lane];
            const std::int64_t unit = axis == 0 ? object->element : 1;
            const std::int64_t last = object->size[axis] * unit - (axis == 0 ? bytes : 1);
            inside = inside && at >= 0 && at <= last;
            at = std::clamp<std::int64_t>(at, 0, std::max<std::int64_t>(last, 0));
            address += static_cast<u64>(at) * strides[axis];
        }
        if (!inside && beyond == Beyond::trap) {
            context.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
            return;
        }
        std::byte* place = nullptr;
        if (inside || beyond == Beyond::clamp) {
            place = context.block->resolve_one(Space::global, address, static_cast<std::size_t>(bytes),
                                               writes ? AccessKind::write : AccessKind::read, context, lane);
            if (place == nullptr) return;
        }
        for (std::size_t part = 0; part < parts; ++part) {
            T* value = context.at<T>(places[op.width + part]) + lane;
            if (place == nullptr && !writes) *value = T{};
            if (place == nullptr) continue;
            if (writes)
                std::memcpy(place + part * sizeof(T), value, sizeof(T));
            else
                std::memcpy(value, place + part * sizeof(T), sizeof(T));
        }
    });
}

template <bool writes>
void lower_surface(Lowering& lowering) {
    if (!lowering.accept(".b")) lowering.refuse();
    const bool one = lowering.accept(".1d");
    const bool two = lowering.accept(".2d");
    if (!one && !two && !lowering.accept(".3d")) lowering.refuse();
    const unsigned dimensions = one ? 1 : two ? 2 : 3;
    lowering.accept_any({".ca", ".cg", ".cs", ".cv", ".wb", ".wt"});
    const std::size_t parts = lowering.accept(".v2") ? 2 : lowering.accept(".v4") ? 4 : 1;
    Beyond beyond = Beyond::trap;
    if (lowering.accept(".clamp")) beyond = Beyond::clamp;
    if (lowering.accept(".zero")) beyond = Beyond::zero;
    lowering.accept(".trap");
    const Type type = lowering.type();
    lowering.expect_operands(2);
    const Operand& at = lowering.operand(writes ? 0 : 1);
    const Operand& values = lowering.operand(writes ? 1 : 0);
    if (values.kind != OperandKind::vector || values.parts.size() != parts ||
        at.kind != OperandKind::address || at.parts.size() != 2 || at.value != 0 || bytes_of(type) == 0 ||
        bytes_of(type) > 8 || bytes_of(type) * parts > 16)
        lowering.refuse();
    const Operand& coordinates = at.parts[1];
    const bool single = coordinates.kind != OperandKind::vector;
    if (single ? dimensions != 1 : coordinates.parts.size() < dimensions) lowering.refuse();
    std::vector<Place> places;
    for (unsigned axis = 0; axis < dimensions; ++axis)
        places.push_back(lowering.source(single ? coordinates : coordinates.parts[axis], Type::s32));
    const Place object = lowering.source(at.parts[0], Type::b64);
    for (const Operand& part : values.parts)
        places.push_back(writes ? lowering.narrow(part, type) : lowering.target(part, type, true));
    Op& op = lowering.emit(
        by_bytes(bytes_of(type), [](auto zero) { return Handler{&surface<decltype(zero), writes>}; }),
        Work::memory);
    op.kind = Kind::checked;
    op.a = object;
    op.width = static_cast<std::uint8_t>(dimensions);
    op.flags = static_cast<std::uint8_t>(beyond);
    op.extra = static_cast<std::uint32_t>(lowering.function().lists.size());
    lowering.function().lists.push_back(std::move(places));
}

}  // namespace

void add_texture(Families& families) {
    families["tex"] = &lower_fetch;
    families["suld"] = &lower_surface<false>;
    families["sust"] = &lower_surface<true>;
}

}  // namespace fikit::sim::ptx

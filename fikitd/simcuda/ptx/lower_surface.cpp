// Surfaces: suld.b and sust.b, of one to three dimensions and of layers. A cube's faces are layers to them.
#include <algorithm>
#include <cstring>

#include "ptx/engine.hpp"
#include "ptx/lowering.hpp"
#include "ptx/texture.hpp"

namespace fikit::sim::ptx {

namespace {

enum class Beyond : std::uint8_t { trap, clamp, zero };

// What the coordinates in an operand stand for: x in bytes, y, and plane or layer.
struct Axes {
    unsigned count = 1;
    std::array<std::uint8_t, 3> order{};  // of the operand's parts
};

Axes axes_of(Lowering& lowering) {
    if (lowering.accept(".1d")) return {1, {0}};
    if (lowering.accept(".2d")) return {2, {0, 1}};
    if (lowering.accept(".3d")) return {3, {0, 1, 2}};
    if (lowering.accept(".a1d")) return {2, {2, 0}};
    if (lowering.accept(".a2d")) return {3, {2, 0, 1}};
    lowering.refuse();
}

// The list: x in bytes, y and plane, where they are named, then registers of T. op.flags: Beyond.
template <typename T, bool writes>
void surface(Context& context, const Op& op, Mask mask) {
    const std::vector<Place>& places = context.frame->function->lists[op.extra];
    const std::size_t parts = places.size() - 3;
    const auto beyond = static_cast<Beyond>(op.flags);
    each_lane(mask, [&](unsigned lane) {
        const Texture* object = context.block->texture(context.at<u64>(op.a)[lane], context);
        if (object == nullptr || context.fault != CUDA_SUCCESS) return;
        const TextureLevel& level = object->levels.front();
        const auto bytes = static_cast<std::int64_t>(parts * sizeof(T));
        const u64 strides[] = {1, level.pitch, level.slice};
        u64 address = level.address;
        bool inside = true;
        for (unsigned axis = 0; axis < 3; ++axis) {
            if (places[axis] == no_place) continue;
            std::int64_t at = context.at<s32>(places[axis])[lane];
            const std::int64_t unit = axis == 0 ? object->element : 1;
            const std::int64_t last = level.size[axis] * unit - (axis == 0 ? bytes : 1);
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
            T* value = context.at<T>(places[3 + part]) + lane;
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
    const Axes axes = axes_of(lowering);
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
    const bool bare = parts == 1 && values.kind != OperandKind::vector;  // without braces
    if ((!bare && (values.kind != OperandKind::vector || values.parts.size() != parts)) ||
        at.kind != OperandKind::address || at.parts.size() != 2 || at.value != 0 ||
        bytes_of(type) * parts > 16)
        lowering.refuse();
    const Operand& coordinates = at.parts[1];
    const bool single = coordinates.kind != OperandKind::vector;
    if (single ? axes.count != 1 : coordinates.parts.size() < axes.count || coordinates.parts.size() == 3)
        lowering.mismatch();
    std::vector<Place> places(3, no_place);
    for (unsigned part = 0; part < axes.count; ++part)
        places[axes.order[part]] = lowering.source(single ? coordinates : coordinates.parts[part], Type::b32);
    const Place object = lowering.source(at.parts[0], Type::b64);
    for (std::size_t part = 0; part < parts; ++part) {
        const Operand& value = bare ? values : values.parts[part];
        places.push_back(writes ? lowering.narrow(value, type) : lowering.target(value, type, true));
    }
    Op& op = lowering.emit(
        by_bytes(bytes_of(type), [](auto zero) { return Handler{&surface<decltype(zero), writes>}; }),
        Work::memory);
    op.kind = Kind::checked;
    op.a = object;
    op.flags = static_cast<std::uint8_t>(beyond);
    op.extra = static_cast<std::uint32_t>(lowering.function().lists.size());
    lowering.function().lists.push_back(std::move(places));
}

}  // namespace

void add_surface(Families& families) {
    families["suld"] = &lower_surface<false>;
    families["sust"] = &lower_surface<true>;
}

}  // namespace fikit::sim::ptx

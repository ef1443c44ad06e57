// Textures: tex, tld4, and what txq and suq say of textures and surfaces. How elements are found:
// sampler.hpp.
#include <array>
#include <optional>

#include "ptx/engine.hpp"
#include "ptx/lowering.hpp"
#include "ptx/sampler.hpp"

namespace fikit::sim::ptx {

namespace {

// Which level of a mipmap tex reads. What neither says is of the first.
enum class Detail : std::uint8_t { base, level, gradient };

// Op::width
constexpr std::uint8_t layered_bit = 4, cube_bit = 8;
std::uint8_t packed(const Geometry& geometry) {
    return static_cast<std::uint8_t>(geometry.axes | (geometry.layered ? layered_bit : 0) |
                                     (geometry.cube ? cube_bit : 0));
}
Geometry unpacked(std::uint8_t width) {
    return {width & 3U, (width & layered_bit) != 0, (width & cube_bit) != 0};
}

// The operands in a list of places, one after another, of one lane.
class Operands {
  public:
    Operands(Context& context, const Op& op, unsigned lane)
        : context_(context), places_(context.frame->function->lists[op.extra]), lane_(lane) {}
    template <typename T>
    T take() {
        return context_.at<T>(places_[next_++])[lane_];
    }
    template <typename T, typename Values>
    void take(Values& values, unsigned count) {
        for (unsigned each = 0; each < count; ++each) values[each] = take<T>();
    }
    void give(const Element& element) {
        for (const float value : element) {
            const Place to = places_[next_++];
            if (to != no_place) context_.at<float>(to)[lane_] = value;
        }
    }

  private:
    Context& context_;
    const std::vector<Place>& places_;
    unsigned lane_;
    std::size_t next_ = 0;
};

// Calls `body` for each lane with its texture's sampler, its operands and the layer, where there is one.
// op.a: the object; op.width: the geometry; op.extra: the list of the layer, the coordinates and what
// follows; op.d: takes that the element is there, as it always is.
template <typename Body>
void with_sampler(Context& context, const Op& op, Mask mask, Body body) {
    const Geometry geometry = unpacked(op.width);
    each_lane(mask, [&](unsigned lane) {
        const Texture* texture = context.block->texture(context.at<u64>(op.a)[lane], context);
        if (texture == nullptr || context.fault != CUDA_SUCCESS) return;
        const Sampler sampler(context, lane, *texture, geometry);
        Operands operands(context, op, lane);
        const u32 layer = geometry.layered ? operands.take<u32>() : 0;
        operands.give(body(sampler, geometry, operands, layer));
    });
    if (op.d != no_place) context.predicate(op.d) |= mask;
}

template <Detail detail>
void fetch(Context& context, const Op& op, Mask mask) {
    with_sampler(context, op, mask,
                 [](const Sampler& sampler, const Geometry& geometry, Operands& operands, u32 layer) {
                     Point point{};
                     operands.take<float>(point, geometry.coordinates());
                     if (detail == Detail::base) return sampler.base(point, layer);
                     if (detail == Detail::level)
                         return sampler.at_level(point, layer, operands.take<float>());
                     Gradient gradient;
                     operands.take<float>(gradient.x, geometry.coordinates());
                     operands.take<float>(gradient.y, geometry.coordinates());
                     return sampler.at_level(point, layer, sampler.level_of(point, gradient));
                 });
}

template <Detail detail>
void fetch_element(Context& context, const Op& op, Mask mask) {
    with_sampler(context, op, mask,
                 [](const Sampler& sampler, const Geometry& geometry, Operands& operands, u32 layer) {
                     Index index{};
                     operands.take<s32>(index, geometry.coordinates());
                     return sampler.at(index, layer, detail == Detail::level ? operands.take<s32>() : 0);
                 });
}

// op.flags: the channel
void gather(Context& context, const Op& op, Mask mask) {
    with_sampler(context, op, mask,
                 [&](const Sampler& sampler, const Geometry& geometry, Operands& operands, u32 layer) {
                     Point point{};
                     operands.take<float>(point, geometry.coordinates());
                     return sampler.gather(point, layer, op.flags);
                 });
}

Geometry geometry_of(Lowering& lowering) {
    if (lowering.accept(".1d")) return {1, false, false};
    if (lowering.accept(".2d")) return {2, false, false};
    if (lowering.accept(".3d")) return {3, false, false};
    if (lowering.accept(".a1d")) return {1, true, false};
    if (lowering.accept(".a2d")) return {2, true, false};
    if (lowering.accept(".cube")) return {2, false, true};
    if (lowering.accept(".acube")) return {2, true, true};
    lowering.refuse();
}

// The parts of coordinates or of a gradient: one, two or four, of which `needed` count.
std::vector<Operand> parts_of(const Lowering& lowering, const Operand& operand, std::size_t needed) {
    if (operand.kind != OperandKind::vector) {
        if (needed != 1) lowering.mismatch();
        return {operand};
    }
    if (operand.parts.size() < needed || operand.parts.size() == 3 || operand.parts.size() > 4)
        lowering.mismatch();
    return {operand.parts.begin(), operand.parts.begin() + static_cast<std::ptrdiff_t>(needed)};
}

// The object in the address, and the places of the layer and of the coordinates behind it.
Place coordinates(Lowering& lowering, const Operand& from, const Geometry& geometry, Type type,
                  std::vector<Place>& places) {
    if (from.kind != OperandKind::address || from.parts.size() != 2 || from.value != 0) lowering.refuse();
    bool layer = geometry.layered;
    for (const Operand& part :
         parts_of(lowering, from.parts[1], geometry.coordinates() + (geometry.layered ? 1 : 0))) {
        places.push_back(lowering.source(part, layer ? Type::u32 : type));
        layer = false;
    }
    return lowering.source(from.parts[0], Type::b64);
}

void finish(Lowering& lowering, Handler handler, Place object, const Geometry& geometry,
            std::vector<Place> places, std::uint8_t flags = 0) {
    const Operand& to = lowering.operand(0);
    const bool resident = to.parts.size() == 5;  // {a, b, c, d}|p
    if (to.kind != OperandKind::vector || to.parts.size() != (resident ? 5 : 4)) lowering.mismatch();
    for (std::size_t part = 0; part < 4; ++part)
        places.push_back(
            to.parts[part].kind == OperandKind::sink ? no_place : lowering.target(to.parts[part], Type::b32));
    const Place is_resident = resident ? lowering.target(to.parts[4], Type::pred) : no_place;
    Op& op = lowering.emit(handler, Work::memory);
    op.kind = Kind::checked;
    op.d = is_resident;
    op.a = object;
    op.width = packed(geometry);
    op.flags = flags;
    op.extra = static_cast<std::uint32_t>(lowering.function().lists.size());
    lowering.function().lists.push_back(std::move(places));
}

void lower_fetch(Lowering& lowering) {
    const bool level = lowering.accept(".level"), gradient = lowering.accept(".grad");
    lowering.accept(".base");
    const Geometry geometry = geometry_of(lowering);
    if (!lowering.accept(".v4")) lowering.refuse();
    const Type type = lowering.type();
    const Type coordinate = lowering.type();
    const bool real = coordinate == Type::f32;
    if (bytes_of(type) != 4 || (gradient && !real)) lowering.refuse();
    const std::size_t expected = gradient ? 4 : level ? 3 : 2;
    if (lowering.count() > expected) lowering.refuse("offsets and comparisons of depth");
    lowering.expect_operands(expected);
    std::vector<Place> places;
    const Place object = coordinates(lowering, lowering.operand(1), geometry, coordinate, places);
    if (level) places.push_back(lowering.source(2, coordinate));
    for (std::size_t step = 2; gradient && step < 4; ++step) {
        for (const Operand& part : parts_of(lowering, lowering.operand(step), geometry.coordinates()))
            places.push_back(lowering.source(part, Type::f32));
    }
    const Handler handler = gradient        ? &fetch<Detail::gradient>
                            : real && level ? &fetch<Detail::level>
                            : real          ? &fetch<Detail::base>
                            : level         ? &fetch_element<Detail::level>
                                            : &fetch_element<Detail::base>;
    finish(lowering, handler, object, geometry, std::move(places));
}

void lower_gather(Lowering& lowering) {
    const std::uint8_t channel = lowering.accept(".r")   ? 0
                                 : lowering.accept(".g") ? 1
                                 : lowering.accept(".b") ? 2
                                                         : 3;
    lowering.accept(".a");
    const Geometry geometry = geometry_of(lowering);
    lowering.accept(".v4");
    lowering.type();
    const Type coordinate = lowering.type();
    lowering.expect_operands(2);
    std::vector<Place> places;
    const Place object = coordinates(lowering, lowering.operand(1), geometry, coordinate, places);
    finish(lowering, &gather, object, geometry, std::move(places), channel);
}

// --- queries

using Query = u32 (*)(const Texture& texture, const TextureLevel& level);

// As in the PTX ISA's enumeration: wrap, mirror, clamp_ogl, clamp_to_edge, clamp_to_border.
u32 address_mode(CUaddress_mode mode) {
    switch (mode) {
        case CU_TR_ADDRESS_MODE_WRAP:
            return 0;
        case CU_TR_ADDRESS_MODE_MIRROR:
            return 1;
        case CU_TR_ADDRESS_MODE_BORDER:
            return 4;
        default:
            return 3;
    }
}

struct Attribute {
    std::string_view name;
    Query query;
};
// A surface has the first four. What CUDA C has no values for (.channel_data_type, .channel_order,
// .memory_layout), or no texture object (.force_unnormalized_coords), is missing.
constexpr std::array<Attribute, 11> attributes{{
    {".width", [](const Texture&, const TextureLevel& level) { return level.size[0]; }},
    {".height",
     [](const Texture& texture, const TextureLevel& level) { return texture.axes > 1 ? level.size[1] : 0; }},
    {".depth",
     [](const Texture& texture, const TextureLevel& level) { return texture.axes > 2 ? level.size[2] : 0; }},
    {".array_size", [](const Texture& texture, const TextureLevel&) { return texture.layers; }},
    {".num_mipmap_levels",
     [](const Texture& texture, const TextureLevel&) {
         return texture.mipmapped ? static_cast<u32>(texture.levels.size()) : 0;
     }},
    {".num_samples", [](const Texture&, const TextureLevel&) { return u32{0}; }},
    {".normalized_coords",
     [](const Texture& texture, const TextureLevel&) { return texture.normalised ? u32{1} : 0; }},
    {".filter_mode",
     [](const Texture& texture, const TextureLevel&) { return texture.filtered ? u32{1} : 0; }},
    {".addr_mode_0",
     [](const Texture& texture, const TextureLevel&) { return address_mode(texture.modes[0]); }},
    {".addr_mode_1",
     [](const Texture& texture, const TextureLevel&) { return address_mode(texture.modes[1]); }},
    {".addr_mode_2",
     [](const Texture& texture, const TextureLevel&) { return address_mode(texture.modes[2]); }},
}};

// op.a: the object; op.b: the level, if one is named; op.extra: the attribute
void query(Context& context, const Op& op, Mask mask) {
    each_lane(mask, [&](unsigned lane) {
        const Texture* texture = context.block->texture(context.at<u64>(op.a)[lane], context);
        if (texture == nullptr || context.fault != CUDA_SUCCESS) return;
        const u32 level = op.b != no_place ? context.at<u32>(op.b)[lane] : 0;
        context.at<u32>(op.d)[lane] =
            level < texture->levels.size() ? attributes[op.extra].query(*texture, texture->levels[level]) : 0;
    });
}

void lower_query(Lowering& lowering) {
    const bool level = lowering.accept(".level");
    std::optional<std::uint32_t> attribute;
    for (std::uint32_t index = 0; index < attributes.size() && !attribute; ++index) {
        if (lowering.accept(attributes[index].name)) attribute = index;
    }
    if (!attribute) lowering.refuse();
    const Type type = lowering.type();
    lowering.expect_operands(level ? 3 : 2);
    const Operand& from = lowering.operand(1);
    if (from.kind != OperandKind::address || from.parts.size() != 1 || from.value != 0) lowering.mismatch();
    const Place to = lowering.target(0, type);
    const Place object = lowering.source(from.parts[0], Type::b64);
    const Place number = level ? lowering.source(2, Type::b32) : no_place;
    Op& op = lowering.emit(&query);
    op.kind = Kind::checked;
    op.d = to;
    op.a = object;
    op.b = number;
    op.extra = *attribute;
}

}  // namespace

void add_texture(Families& families) {
    families["tex"] = &lower_fetch;
    families["tld4"] = &lower_gather;
    families["txq"] = &lower_query;
    families["suq"] = &lower_query;
}

}  // namespace fikit::sim::ptx

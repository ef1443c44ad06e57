// See sampler.hpp. Addresses, filtering, layers and cubes as in the CUDA C++ Programming Guide ("Texture
// Fetching"); mipmaps as in cuTexObjectCreate's documentation. A share of a neighbour, or of a level, has
// eight bits.
#include "ptx/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ptx/engine.hpp"
#include "ptx/floats.hpp"

namespace fikit::sim::ptx {

namespace {

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

// A direction seen from the middle of a cube, or a step of one: along the axis of a face, and on the face.
struct OnFace {
    double axis, s, t;
};

unsigned face_of(const Point& direction) {
    const float x = std::abs(direction[0]), y = std::abs(direction[1]), z = std::abs(direction[2]);
    if (z >= x && z >= y) return direction[2] < 0 ? 5 : 4;
    if (y >= x) return direction[1] < 0 ? 3 : 2;
    return direction[0] < 0 ? 1 : 0;
}

OnFace on_face(unsigned face, const Point& direction) {
    const double x = direction[0], y = direction[1], z = direction[2];
    switch (face) {
        case 0:
            return {x, -z, -y};
        case 1:
            return {-x, z, -y};
        case 2:
            return {y, x, z};
        case 3:
            return {-y, x, -z};
        case 4:
            return {z, x, -y};
        default:
            return {-z, -x, -y};
    }
}

Point direction_of(unsigned face, float s, float t) {
    switch (face) {
        case 0:
            return {1, -t, -s};
        case 1:
            return {-1, -t, s};
        case 2:
            return {s, 1, t};
        case 3:
            return {s, -1, -t};
        case 4:
            return {s, -t, 1};
        default:
            return {-s, -t, -1};
    }
}

// From -1 to 1 on a face to 0 to 1; the middle where there is no direction.
float fraction(double minor, double axis) {
    const double ratio = minor / axis;
    return ratio == ratio ? static_cast<float>((ratio + 1) / 2) : 0.5F;
}

// The element of the next face that lies beyond the edge of this one.
void cross_edge(Index& index, unsigned& face, std::uint32_t size) {
    const auto middle = [&](std::int64_t at) {
        return static_cast<float>(2 * at + 1) / static_cast<float>(size) - 1;
    };
    const Point direction = direction_of(face, middle(index[0]), middle(index[1]));
    face = face_of(direction);
    const OnFace place = on_face(face, direction);
    const auto element = [&](double minor) {
        const auto at =
            static_cast<std::int64_t>(std::floor(fraction(minor, place.axis) * static_cast<float>(size)));
        return std::clamp<std::int64_t>(at, 0, std::int64_t{size} - 1);
    };
    index = {element(place.s), element(place.t), 0};
}

float eighth_bit(float share) { return std::floor(share * 256 + 0.5F) / 256; }

Element mixed(const Element& low, const Element& high, float share) {
    Element sum;
    for (unsigned channel = 0; channel < 4; ++channel)
        sum[channel] = (1 - share) * low[channel] + share * high[channel];
    return sum;
}

}  // namespace

Element Sampler::read(const TextureLevel& level, const Index& index, std::uint32_t plane) const {
    Element element{};
    const u64 address = level.address + static_cast<u64>(index[0]) * texture_.element +
                        static_cast<u64>(index[1]) * level.pitch +
                        (static_cast<u64>(index[2]) + plane) * level.slice;
    const std::byte* place = context_.block->resolve_one(Space::global, address, texture_.element,
                                                         AccessKind::read, context_, lane_);
    if (place == nullptr) return element;
    for (unsigned channel = 0; channel < texture_.channels; ++channel)
        element[channel] = read_channel(texture_, place, channel);
    return element;
}

Element Sampler::placed(const TextureLevel& level, Index index, std::uint32_t plane) const {
    for (unsigned axis = 0; axis < geometry_.axes; ++axis) {
        const std::int64_t count = level.size[axis];
        if (texture_.linear_memory && (index[axis] < 0 || index[axis] >= count)) return {};
        if (!place_index(index[axis], count, texture_.modes[axis], texture_.normalised))
            return texture_.border;
    }
    return read(level, index, plane);
}

Element Sampler::at(const Index& index, std::uint32_t layer, std::int64_t level) const {
    const auto last = static_cast<std::int64_t>(texture_.levels.size()) - 1;
    const TextureLevel& chosen =
        texture_.levels[static_cast<std::size_t>(std::clamp<std::int64_t>(level, 0, last))];
    return placed(chosen, index, geometry_.layered ? std::min(layer, chosen.size[2] - 1) : 0);
}

Sampler::Spot Sampler::locate(const TextureLevel& level, const Point& point, std::uint32_t layer,
                              bool between) const {
    Spot spot;
    Point place = point;
    for (float& x : place) x = x == x ? x : 0;
    const std::uint32_t planes = geometry_.cube ? level.size[2] / 6 : level.size[2];
    if (geometry_.layered) spot.plane = std::min(layer, std::max(planes, 1U) - 1);
    if (geometry_.cube) {
        const unsigned face = face_of(place);
        const OnFace found = on_face(face, place);
        place = {fraction(found.s, found.axis), fraction(found.t, found.axis), 0};
        spot.plane = std::min(6 * spot.plane + face, level.size[2] - 1);
    }
    for (unsigned axis = 0; axis < geometry_.axes; ++axis) {
        float x = place[axis];
        if (texture_.normalised || geometry_.cube) x *= static_cast<float>(level.size[axis]);
        if (between) x -= 0.5F;
        x = std::clamp(x, -0x1p30F, 0x1p30F);
        spot.low[axis] = static_cast<std::int64_t>(std::floor(x));
        spot.share[axis] = eighth_bit(x - std::floor(x));
    }
    return spot;
}

Sampler::Footprint Sampler::around(const TextureLevel& level, const Point& point, std::uint32_t layer) const {
    const Spot spot = locate(level, point, layer, true);
    Footprint found;
    found.share = spot.share;
    std::array<bool, 8> nowhere{};
    for (unsigned corner = 0; corner < 1U << geometry_.axes; ++corner) {
        Index index = spot.low;
        unsigned beyond = 0;
        for (unsigned axis = 0; axis < geometry_.axes; ++axis) {
            index[axis] += corner >> axis & 1;
            beyond += index[axis] < 0 || index[axis] >= level.size[axis] ? 1 : 0;
        }
        std::uint32_t plane = spot.plane;
        if (geometry_.cube && texture_.seamless && beyond > 0) {
            // Three faces meet in a corner, not four.
            nowhere[corner] = beyond > 1;
            if (nowhere[corner]) continue;
            unsigned face = plane % 6;
            plane -= face;
            cross_edge(index, face, level.size[0]);
            plane += face;
            found.elements[corner] = read(level, index, plane);
        } else {
            found.elements[corner] = placed(level, index, plane);
        }
    }
    for (unsigned corner = 0; corner < 4; ++corner) {
        if (!nowhere[corner]) continue;
        for (unsigned other = 0; other < 4; ++other) {
            if (other == corner) continue;
            for (unsigned channel = 0; channel < 4; ++channel)
                found.elements[corner][channel] += found.elements[other][channel] / 3;
        }
    }
    return found;
}

Element Sampler::sample(const TextureLevel& level, const Point& point, std::uint32_t layer) const {
    if (!texture_.filtered) {
        const Spot spot = locate(level, point, layer, false);
        if (!geometry_.cube || !texture_.seamless) return placed(level, spot.low, spot.plane);
        Index index = spot.low;
        for (unsigned axis = 0; axis < 2; ++axis)
            index[axis] = std::clamp<std::int64_t>(index[axis], 0, std::int64_t{level.size[axis]} - 1);
        return read(level, index, spot.plane);
    }
    const Footprint found = around(level, point, layer);
    Element sum{};
    for (unsigned corner = 0; corner < 1U << geometry_.axes; ++corner) {
        float weight = 1;
        for (unsigned axis = 0; axis < geometry_.axes; ++axis)
            weight *= (corner >> axis & 1) != 0 ? found.share[axis] : 1 - found.share[axis];
        for (unsigned channel = 0; channel < 4; ++channel)
            sum[channel] += weight * found.elements[corner][channel];
    }
    return sum;
}

Element Sampler::base(const Point& point, std::uint32_t layer) const {
    return sample(texture_.levels.front(), point, layer);
}

Element Sampler::at_level(const Point& point, std::uint32_t layer, float level) const {
    if (!texture_.mipmapped) return base(point, layer);
    level = level == level ? level + texture_.level_bias : 0;
    level = std::max(std::min(level, texture_.greatest_level), texture_.least_level);
    level = std::clamp(level, 0.0F, static_cast<float>(texture_.levels.size() - 1));
    const auto chosen = [&](float number) -> const TextureLevel& {
        return texture_.levels[static_cast<std::size_t>(number)];
    };
    if (!texture_.between_levels) return sample(chosen(std::floor(level + 0.5F)), point, layer);
    const float low = std::floor(level), share = eighth_bit(level - low);
    const Element element = sample(chosen(low), point, layer);
    return share == 0 ? element : mixed(element, sample(chosen(std::ceil(level)), point, layer), share);
}

float Sampler::level_of(const Point& point, const Gradient& gradient) const {
    const TextureLevel& level = texture_.levels.front();
    const unsigned face = geometry_.cube ? face_of(point) : 0;
    const auto length = [&](const Point& step) {
        double sum = 0;
        std::array<double, 3> along{step[0], step[1], step[2]};
        if (geometry_.cube) {
            const OnFace place = on_face(face, point), moved = on_face(face, step);
            const double square = 2 * place.axis * place.axis;
            along = {(moved.s * place.axis - place.s * moved.axis) / square,
                     (moved.t * place.axis - place.t * moved.axis) / square, 0};
        }
        for (unsigned axis = 0; axis < geometry_.axes; ++axis) {
            const double elements =
                along[axis] * (texture_.normalised || geometry_.cube ? level.size[axis] : 1);
            sum += elements * elements;
        }
        return std::sqrt(sum);
    };
    return static_cast<float>(std::log2(std::max(length(gradient.x), length(gradient.y))));
}

Element Sampler::gather(const Point& point, std::uint32_t layer, unsigned channel) const {
    const Footprint found = around(texture_.levels.front(), point, layer);
    Element gathered;
    // x grows to the right and y downwards.
    constexpr unsigned order[] = {2, 3, 1, 0};
    for (unsigned part = 0; part < 4; ++part) gathered[part] = found.elements[order[part]][channel];
    return gathered;
}

}  // namespace fikit::sim::ptx

// What a texture unit reads: the elements of a texture at given coordinates.
#pragma once

#include <array>

#include "ptx/lanes.hpp"
#include "ptx/texture.hpp"

namespace fikit::sim::ptx {

using Element = std::array<float, 4>;  // integers: their bits
using Point = std::array<float, 3>;
using Index = std::array<std::int64_t, 3>;

// What an instruction takes a texture for.
struct Geometry {
    unsigned axes = 1;  // of a layer or of a cube's face
    bool layered = false;
    bool cube = false;
    unsigned coordinates() const { return cube ? 3 : axes; }
};

// How far one goes in the texture from a thread to its neighbours.
struct Gradient {
    Point x{}, y{};
};

// Reads one texture for one lane; a read that faults sets the context's fault.
class Sampler {
  public:
    Sampler(Context& context, unsigned lane, const Texture& texture, Geometry geometry)
        : context_(context), lane_(lane), texture_(texture), geometry_(geometry) {}

    // The element with these indices, of the level.
    Element at(const Index& index, std::uint32_t layer, std::int64_t level) const;
    // Between the elements around a point, as the object says; `level` has a fraction. `base`: of the first.
    Element base(const Point& point, std::uint32_t layer) const;
    Element at_level(const Point& point, std::uint32_t layer, float level) const;
    // The level in which one goes from element to element.
    float level_of(const Point& point, const Gradient& gradient) const;
    // One channel of the four elements between which base() would take its share, counter-clockwise from the
    // lower left.
    Element gather(const Point& point, std::uint32_t layer, unsigned channel) const;

  private:
    // Where in a plane of a level: the element at or below a point in each axis, and the share of the next.
    struct Spot {
        Index low{};
        std::array<float, 3> share{};
        std::uint32_t plane = 0;  // a cube's face, too
    };
    struct Footprint {
        std::array<Element, 8> elements{};
        std::array<float, 3> share{};
    };
    Spot locate(const TextureLevel& level, const Point& point, std::uint32_t layer, bool between) const;
    Element placed(const TextureLevel& level, Index index, std::uint32_t plane) const;
    Element read(const TextureLevel& level, const Index& index, std::uint32_t plane) const;
    Footprint around(const TextureLevel& level, const Point& point, std::uint32_t layer) const;
    Element sample(const TextureLevel& level, const Point& point, std::uint32_t layer) const;

    Context& context_;
    unsigned lane_;
    const Texture& texture_;
    Geometry geometry_;
};

}  // namespace fikit::sim::ptx

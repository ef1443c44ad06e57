// See matrix.hpp.
#include "ptx/matrix.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "ptx/floats.hpp"

namespace fikit::sim::ptx::matrix {

namespace {

struct Name {
    std::string_view text;
    Element element;
    unsigned bits;
};
constexpr Name names[] = {
    {".b1", Element::b1, 1},      {".u4", Element::u4, 4},    {".s4", Element::s4, 4},
    {".u8", Element::u8, 8},      {".s8", Element::s8, 8},    {".e4m3", Element::e4m3, 8},
    {".e5m2", Element::e5m2, 8},  {".f16", Element::f16, 16}, {".bf16", Element::bf16, 16},
    {".tf32", Element::tf32, 32}, {".f32", Element::f32, 32}, {".s32", Element::s32, 32},
    {".f64", Element::f64, 64},
};

bool number_after(std::string_view text, std::size_t& at, char letter, unsigned& value) {
    if (at >= text.size() || text[at] != letter) return false;
    const std::size_t start = ++at;
    value = 0;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9' && at < start + 3) {
        value = value * 10 + static_cast<unsigned>(text[at++] - '0');
    }
    return at > start;
}

}  // namespace

std::optional<Element> element_named(std::string_view modifier) {
    for (const Name& name : names) {
        if (name.text == modifier) return name.element;
    }
    return std::nullopt;
}

Element element(Lowering& lowering) {
    const auto found = lowering.accept_first(&element_named);
    if (!found)
        fail(lowering.instruction().line,
             "Type missing in instruction " + quoted(lowering.instruction().name));
    return *found;
}

unsigned bits_of(Element element) { return names[static_cast<std::size_t>(element)].bits; }

bool multiplies(Element element) { return element != Element::f32 && element != Element::s32; }

bool accumulates(Element element) {
    return element == Element::f16 || element == Element::f32 || element == Element::s32 ||
           element == Element::f64;
}

double number_from(Element element, u64 bits) {
    switch (element) {
        case Element::b1:
        case Element::u4:
        case Element::u8:
            return static_cast<double>(bits);
        case Element::s4:
            return static_cast<s8>(bits << 4) >> 4;
        case Element::s8:
            return static_cast<s8>(bits);
        case Element::e4m3:
            return from_e4m3(static_cast<u8>(bits));
        case Element::e5m2:
            return from_e5m2(static_cast<u8>(bits));
        case Element::s32:
            return static_cast<s32>(bits);
        case Element::f16:
            return from_half(static_cast<u16>(bits));
        case Element::bf16:
            return from_bfloat(static_cast<u16>(bits));
        case Element::f64:
            return std::bit_cast<double>(bits);
        case Element::tf32:
            return std::bit_cast<float>(static_cast<u32>(bits) & 0xffffe000U);
        case Element::f32:
            break;
    }
    return std::bit_cast<float>(static_cast<u32>(bits));
}

u64 bits_from(Element element, double value, bool saturate) {
    switch (element) {
        case Element::s32: {
            // The sums of products of bytes and an accumulator fit a double exactly.
            const auto whole = static_cast<s64>(value);
            if (!saturate) return static_cast<u32>(whole);
            return static_cast<u32>(
                std::clamp<s64>(whole, std::numeric_limits<s32>::min(), std::numeric_limits<s32>::max()));
        }
        case Element::f16:
            return to_half(value, Rounding::nearest);
        case Element::f64:
            return std::bit_cast<u64>(value);
        default:
            return std::bit_cast<u32>(canonical(static_cast<float>(value)));
    }
}

Shape shape_of(Lowering& lowering) {
    const auto text = lowering.accept_prefix(".m");
    Shape shape;
    std::size_t at = 1;
    if (!text || !number_after(*text, at, 'm', shape.m) || !number_after(*text, at, 'n', shape.n) ||
        !number_after(*text, at, 'k', shape.k) || at != text->size() || shape.m == 0 || shape.n == 0 ||
        shape.k == 0 || shape.m > 64 || shape.n > 256 || shape.k > 256) {
        lowering.refuse();
    }
    return shape;
}

std::int64_t pack(const Packed& what) {
    const auto code = [](Element element) { return static_cast<std::int64_t>(element); };
    return static_cast<std::int64_t>(what.shape.m) | static_cast<std::int64_t>(what.shape.n) << 8 |
           static_cast<std::int64_t>(what.shape.k) << 20 | code(what.d) << 32 | code(what.a) << 36 |
           code(what.b) << 40 | code(what.c) << 44;
}

Packed unpack(std::int64_t bits) {
    const auto field = [&](int at, unsigned mask) { return static_cast<unsigned>(bits >> at) & mask; };
    const auto element = [&](int at) { return static_cast<Element>(field(at, 0xf)); };
    return {{field(0, 0xff), field(8, 0xfff), field(20, 0xfff)},
            element(32),
            element(36),
            element(40),
            element(44)};
}

Workspace& Workspace::get() {
    thread_local const auto one = std::make_unique<Workspace>();
    return *one;
}

void Workspace::multiply(const Shape& shape, bool exclusive) {
    for (unsigned row = 0; row < shape.m; ++row) {
        double* sums = c + std::size_t{row} * shape.n;
        for (unsigned k = 0; k < shape.k; ++k) {
            const double left = a[row * shape.k + k];
            const double* right = b + std::size_t{k} * shape.n;
            for (unsigned column = 0; column < shape.n; ++column) {
                sums[column] += exclusive ? (left != right[column] ? 1.0 : 0.0) : left * right[column];
            }
        }
    }
}

std::vector<Place> fragment(Lowering& lowering, const Operand& operand, Element element, bool write) {
    const Type word = element == Element::f64 ? Type::f64 : element == Element::f32 ? Type::f32 : Type::u32;
    std::vector<Place> places;
    const auto add = [&](const Operand& one) {
        places.push_back(write ? lowering.target(one, word) : lowering.source(one, word));
    };
    if (operand.kind == OperandKind::vector) {
        for (const Operand& one : operand.parts) add(one);
    } else {
        add(operand);
    }
    if (places.size() > 128) lowering.refuse("fragments of another size");
    return places;
}

std::uint32_t keep(Lowering& lowering, std::vector<Place> places) {
    lowering.function().lists.push_back(std::move(places));
    return static_cast<std::uint32_t>(lowering.function().lists.size() - 1);
}

}  // namespace fikit::sim::ptx::matrix

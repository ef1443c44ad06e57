// Copies by tensor maps: cp.async.bulk.tensor and cp.reduce.async.bulk.tensor, in tiles of one to five
// dimensions.
//
// A tile lies in shared memory without gaps, but for rows that are narrower than the pattern in which pieces
// of 16 bytes change places: each then takes the pattern's width. The pattern follows the address: its bits 4
// to 6 are exclusive-ored with bits 7 to 9, as many as the pattern has. What a tile has outside of the tensor
// is filled when it comes and left out when it goes (CUDA driver API, cuTensorMapEncodeTiled; PTX ISA,
// "Tensors").
#include <algorithm>
#include <cstring>

#include "ptx/async.hpp"
#include "ptx/engine.hpp"
#include "ptx/tensor_map.hpp"

namespace fikit::sim::ptx {

namespace {

constexpr unsigned piece = 16;

// op.width: the rank, and what is done.
constexpr unsigned rank_bits = 7;
constexpr unsigned stores = 8;
constexpr unsigned reduces = 16;

struct Tile {
    TensorMap map;
    unsigned element = 0;
    std::int64_t start[5] = {};
    std::uint64_t counts[5] = {1, 1, 1, 1, 1};  // elements to move
    std::uint64_t rows = 1, row_bytes = 0, pitch = 0;
};

// op.b + op.c: the map; the function's list number op.extra: coordinates. False, with a fault: no tile.
bool read_tile(Context& context, const Op& op, unsigned lane, Tile& tile) {
    const u64 address = context.at<u64>(op.b)[lane] + context.at<u64>(op.c)[0];
    if (address % 64 != 0) {
        context.fault = CUDA_ERROR_MISALIGNED_ADDRESS;
        return false;
    }
    const std::byte* place = context.block->resolve_one(Space::generic, address, sizeof(CUtensorMap),
                                                        AccessKind::read, context, lane);
    if (place == nullptr) return false;
    std::memcpy(&tile.map, place, sizeof tile.map);
    const TensorMap& map = tile.map;
    tile.element = element_bytes(map.type);
    const unsigned rank = op.width & rank_bits;
    bool valid = map.rank == rank && tile.element != 0 && map.im2col == 0 &&
                 map.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE && map.swizzle <= CU_TENSOR_MAP_SWIZZLE_128B;
    const std::vector<Place>& places = context.frame->function->lists[op.extra];
    for (unsigned axis = 0; valid && axis < rank; ++axis) {
        const unsigned step = axis == 0 ? 1 : map.steps[axis];
        valid = step != 0 && map.box[axis] != 0;
        if (!valid) break;
        tile.start[axis] = context.at<s32>(places[axis])[lane];
        tile.counts[axis] = (map.box[axis] + step - 1) / step;
        if (axis > 0) tile.rows *= tile.counts[axis];
    }
    tile.row_bytes = tile.counts[0] * tile.element;
    tile.pitch = std::max<std::uint64_t>(tile.row_bytes, swizzle_bytes(map.swizzle));
    // Measured: where the tile begins in memory has to be a multiple of 16 bytes, as other rows' places are.
    const bool aligned = (tile.start[0] * tile.element) % piece == 0 && tile.row_bytes % piece == 0;
    if (valid && aligned) return true;
    context.fault = CUDA_ERROR_ILLEGAL_INSTRUCTION;
    return false;
}

u64 swizzled(u64 address, const TensorMap& map) {
    const unsigned pattern = swizzle_bytes(map.swizzle);
    return pattern == 0 ? address : address ^ ((address >> 3) & (pattern - 1) & 0x70);
}

// For each piece of the tile: move(its place in shared memory, the first byte inside of the tensor, how many,
// where they are in global memory).
template <typename Move>
void each_piece(Context& context, const Tile& tile, u64 shared, unsigned lane, AccessKind kind, Move move) {
    const TensorMap& map = tile.map;
    if (shared % 128 != 0) {
        context.fault = CUDA_ERROR_MISALIGNED_ADDRESS;
        return;
    }
    const std::int64_t along = piece / tile.element;
    for (std::uint64_t row = 0; row < tile.rows; ++row) {
        u64 global = map.address;
        bool inside = true;
        std::uint64_t left = row;
        for (unsigned axis = 1; axis < map.rank; ++axis) {
            const auto index = static_cast<std::int64_t>(left % tile.counts[axis]);
            left /= tile.counts[axis];
            const std::int64_t at = tile.start[axis] + index * map.steps[axis];
            inside = inside && at >= 0 && at < static_cast<std::int64_t>(map.dimensions[axis]);
            global += static_cast<u64>(at) * map.strides[axis - 1];
        }
        for (std::uint64_t done = 0; done < tile.row_bytes; done += piece) {
            const u64 place = swizzled(shared + row * tile.pitch + done, map);
            std::byte* host = context.block->resolve_one(Space::shared, place, piece, kind, context, lane);
            if (host == nullptr) return;
            const std::int64_t first = tile.start[0] + static_cast<std::int64_t>(done / tile.element);
            const auto end = static_cast<std::int64_t>(map.dimensions[0]);
            const std::int64_t from = std::clamp<std::int64_t>(-first, 0, along);
            const std::int64_t to = inside ? std::clamp<std::int64_t>(end - first, from, along) : from;
            const auto size = static_cast<std::int64_t>(tile.element);
            move(host, static_cast<std::size_t>(from * size), static_cast<std::size_t>((to - from) * size),
                 global + static_cast<u64>((first + from) * size));
            if (context.fault != CUDA_SUCCESS) return;
        }
    }
}

// What is outside of the tensor: zeros, or the NaN of its type.
void fill_piece(const TensorMap& map, unsigned element, std::byte* host) {
    std::memset(host, 0, piece);
    if (map.fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA) return;
    for (unsigned at = 0; at < piece; ++at)
        host[at] = std::byte{at % element == element - 1 ? u8{0x7f} : u8{0xff}};
}

u64 address_of(const Context& context, const Op& op, unsigned lane) {
    return address_in(context, op.a, op.offset, (op.flags & flag::wide) != 0, lane);
}

// op.d: gets how many bytes come; op.e: the blocks of the cluster, or nothing: the one that the address
// names.
void load_tile(Context& context, const Op& op, Mask mask) {
    each_lane(mask, [&](unsigned lane) {
        Tile tile;
        if (context.fault != CUDA_SUCCESS || !read_tile(context, op, lane, tile)) return;
        const auto one = [&](u64 shared) {
            each_piece(context, tile, shared, lane, AccessKind::write,
                       [&](std::byte* host, std::size_t first, std::size_t bytes, u64 global) {
                           if (bytes < piece) fill_piece(tile.map, tile.element, host);
                           if (bytes == 0) return;
                           const std::byte* source = context.block->resolve_one(
                               Space::global, global, bytes, AccessKind::read, context, lane);
                           if (source != nullptr) std::memcpy(host + first, source, bytes);
                       });
        };
        const u64 shared = address_of(context, op, lane);
        if (op.e == no_place)
            one(shared);
        else
            each_block(context.at<u16>(op.e)[lane], [&](unsigned rank) {
                if (context.fault == CUDA_SUCCESS) one(in_block(shared, rank));
            });
        context.at<u32>(op.d)[lane] = static_cast<u32>(tile.rows * tile.row_bytes);
    });
}

// A reduction's coordinates are followed by a Reduction for each type of tensor, as constants.
void store_tile(Context& context, const Op& op, Mask mask) {
    const std::vector<Place>& places = context.frame->function->lists[op.extra];
    each_lane(mask, [&](unsigned lane) {
        Tile tile;
        if (context.fault != CUDA_SUCCESS || !read_tile(context, op, lane, tile)) return;
        // Tiles that are written may end outside of the tensor but begin in it or behind it (CUDA C++
        // Programming Guide, tensor memory accelerator; measured).
        if (std::any_of(tile.start, tile.start + tile.map.rank, [](auto start) { return start < 0; })) {
            context.fault = CUDA_ERROR_ILLEGAL_INSTRUCTION;
            return;
        }
        const bool reducing = (op.width & reduces) != 0;
        Reduction change = nullptr;
        if (reducing) {
            const Place known = places[(op.width & rank_bits) + tile.map.type];
            if (known == no_place) {
                context.fault = CUDA_ERROR_ILLEGAL_INSTRUCTION;
                return;
            }
            change = reinterpret_cast<Reduction>(context.at<u64>(known)[0]);
        }
        each_piece(context, tile, address_of(context, op, lane), lane, AccessKind::read,
                   [&](std::byte* host, std::size_t first, std::size_t bytes, u64 global) {
                       if (bytes == 0) return;
                       std::byte* target = context.block->resolve_one(
                           Space::global, global, bytes, reducing ? AccessKind::atomic : AccessKind::write,
                           context, lane);
                       if (target == nullptr) return;
                       if (!reducing) {
                           std::memcpy(target, host + first, bytes);
                           return;
                       }
                       for (std::size_t at = 0; at < bytes; at += tile.element)
                           change(target + at, host + first + at);
                   });
    });
}

// --- tensormap.replace: a map that a kernel changes

enum class Field : std::uint8_t {
    address,
    rank,
    box,
    dimension,
    stride,
    step,
    type,
    interleave,
    swizzle,
    fill
};
constexpr std::pair<std::string_view, Field> fields[] = {
    {".global_address", Field::address},
    {".rank", Field::rank},
    {".box_dim", Field::box},
    {".global_dim", Field::dimension},
    {".global_stride", Field::stride},
    {".element_stride", Field::step},
    {".elemtype", Field::type},
    {".swizzle_mode", Field::swizzle},
    {".interleave_layout", Field::interleave},
    {".fill_mode", Field::fill},
};

// The types as tensormap.replace numbers them.
constexpr std::uint8_t element_types[] = {
    CU_TENSOR_MAP_DATA_TYPE_UINT8,        CU_TENSOR_MAP_DATA_TYPE_UINT16,
    CU_TENSOR_MAP_DATA_TYPE_UINT32,       CU_TENSOR_MAP_DATA_TYPE_INT32,
    CU_TENSOR_MAP_DATA_TYPE_UINT64,       CU_TENSOR_MAP_DATA_TYPE_INT64,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16,      CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,  CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,     CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ,
};

void change(TensorMap& map, Field field, unsigned ordinal, u64 value) {
    const auto byte = static_cast<std::uint8_t>(value);
    switch (field) {
        case Field::address:
            map.address = value;
            break;
        case Field::rank:  // one less than the rank
            map.rank = static_cast<std::uint8_t>(byte + 1);
            break;
        case Field::box:
            map.box[ordinal] = static_cast<std::uint16_t>(value);
            break;
        case Field::dimension:
            map.dimensions[ordinal] = value;
            break;
        case Field::stride:
            map.strides[ordinal] = value;
            break;
        case Field::step:
            map.steps[ordinal] = byte;
            break;
        case Field::type:
            map.type = element_types[value];
            break;
        case Field::interleave:
            map.interleave = byte;
            break;
        case Field::swizzle:
            map.swizzle = byte;
            break;
        case Field::fill:
            map.fill = byte;
            break;
    }
}

// op.b: the value, of op.width bytes; op.extra: the address' space, the field, which of its values.
void replace(Context& context, const Op& op, Mask mask) {
    each_lane(mask, [&](unsigned lane) {
        if (context.fault != CUDA_SUCCESS) return;
        std::byte* place =
            context.block->resolve_one(static_cast<Space>(op.extra & 0xff), address_of(context, op, lane),
                                       sizeof(CUtensorMap), AccessKind::write, context, lane);
        if (place == nullptr) return;
        TensorMap map;
        std::memcpy(&map, place, sizeof map);
        const u64 value = op.width == 8 ? context.at<u64>(op.b)[lane] : context.at<u32>(op.b)[lane];
        change(map, static_cast<Field>(op.extra >> 8 & 0xff), op.extra >> 16, value);
        std::memcpy(place, &map, sizeof map);
    });
}

void lower_replace(Lowering& lowering) {
    if (!lowering.accept(".tile") || !lowering.accept(".b1024")) lowering.refuse();
    const std::pair<std::string_view, Field>* found = nullptr;
    for (const auto& known : fields) {
        if (lowering.accept(known.first)) found = &known;
    }
    if (found == nullptr) lowering.refuse();
    const Field field = found->second;
    Space space = Space::generic;
    if (lowering.accept(".global")) space = Space::global;
    if (lowering.accept(".shared::cta")) space = Space::shared;
    const bool listed =
        field == Field::box || field == Field::dimension || field == Field::stride || field == Field::step;
    const bool named = field >= Field::type;
    const bool wide = field == Field::address || field == Field::stride;
    if (bytes_of(lowering.type()) != (wide ? 8 : 4)) lowering.refuse();
    lowering.expect_operands(listed ? 3 : 2);
    const std::uint32_t ordinal = listed ? lowering.literal(1) : 0;
    if (ordinal >= (field == Field::stride ? 4U : 5U)) lowering.refuse("a dimension that is none");
    if (named && lowering.literal(1) >= (field == Field::type ? std::size(element_types) : 4U))
        lowering.refuse("a value that is none");
    const Address address = lowering.address(0, space);
    const Place b = lowering.source(listed ? 2 : 1, wide ? Type::b64 : Type::b32);
    Op& op = lowering.emit(&replace, Work::memory);
    op.kind = Kind::checked;
    op.width = wide ? 8 : 4;
    address.put(op);
    op.b = b;
    op.extra =
        static_cast<std::uint32_t>(address.space) | static_cast<std::uint32_t>(field) << 8 | ordinal << 16;
}

// A map from shared to global memory, by all lanes together.
void copy_map(Context& context, const Op& op, Mask mask) {
    const auto lane = static_cast<unsigned>(std::countr_zero(mask));
    const u64 from =
        address_in(context, op.b, static_cast<s32>(op.extra), (op.flags & flag::negate) == 0, lane);
    const std::byte* source =
        context.block->resolve_one(Space::shared, from, sizeof(CUtensorMap), AccessKind::read, context, lane);
    if (source == nullptr) return;
    std::byte* target = context.block->resolve_one(Space::global, address_of(context, op, lane),
                                                   sizeof(CUtensorMap), AccessKind::write, context, lane);
    if (target != nullptr) std::memcpy(target, source, sizeof(CUtensorMap));
}

void lower_map(Lowering& lowering) {
    if (lowering.accept(".replace")) return lower_replace(lowering);
    if (!lowering.accept(".cp_fenceproxy") || !lowering.accept(".global") || !lowering.accept(".shared::cta"))
        lowering.refuse();
    lowering.accept(".tensormap::generic");
    lowering.accept(".release");
    lowering.accept_any({".cta", ".cluster", ".gpu", ".sys"});
    lowering.accept(".sync");
    lowering.accept(".aligned");
    lowering.expect_operands(3);
    if (lowering.literal(2) != sizeof(CUtensorMap)) lowering.refuse("a map has 128 bytes");
    const Address to = lowering.address(0, Space::global);
    const Address from = lowering.address(1, Space::shared);
    put_async_ends(lowering, lowering.emit(&copy_map, Work::memory), to, from);
}

}  // namespace

void add_tensor(Families& families) { families["tensormap"] = &lower_map; }

void lower_tensor_copy(Lowering& lowering, bool reduction) {
    constexpr std::string_view ranks[] = {".1d", ".2d", ".3d", ".4d", ".5d"};
    unsigned rank = 0;
    for (unsigned axes = 1; axes <= std::size(ranks); ++axes) {
        if (lowering.accept(ranks[axes - 1])) rank = axes;
    }
    lowering.accept(".tile");
    const bool policy = lowering.accept(".L2::cache_hint");
    const bool prefetch = lowering.accept(".prefetch") && lowering.accept(".L2");
    const bool several = lowering.accept(".multicast::cluster");
    const bool comes = lowering.accept(".mbarrier::complete_tx::bytes");
    const bool goes = lowering.accept(".bulk_group");
    const std::string_view name = lowering.instruction().name;
    const bool to_shared = name.find(".shared::c") < name.find(".global");
    const bool shared = lowering.accept_any({".shared::cluster", ".shared::cta"});
    if (rank == 0 || !lowering.accept(".global") || shared == prefetch || prefetch == (comes || goes) ||
        (comes && (goes || reduction)) || comes != (shared && to_shared) || (several && !comes)) {
        lowering.refuse();
    }
    lowering.expect_operands((prefetch ? 1U : comes ? 3U : 2U) + (several ? 1U : 0U) + (policy ? 1U : 0U));
    const Operand& tensor = lowering.operand(comes ? 1 : 0);
    if (tensor.kind != OperandKind::address || tensor.parts.size() != 2 ||
        tensor.parts[1].kind != OperandKind::vector || tensor.parts[1].parts.size() != rank) {
        lowering.refuse("a tensor and its coordinates are needed: [map, {...}]");
    }
    if (prefetch) return;
    std::vector<Place> places;
    for (const Operand& coordinate : tensor.parts[1].parts)
        places.push_back(lowering.source(coordinate, Type::s32));
    if (reduction) {
        for (const Reduction change : reductions_by_tensor(lowering)) {
            places.push_back(change == nullptr
                                 ? no_place
                                 : lowering.constant(reinterpret_cast<std::uintptr_t>(change), 8));
        }
    }
    const Place map = lowering.source(tensor.parts[0], Type::b64);
    const Place offset = lowering.constant(static_cast<u64>(tensor.value), 8);
    const Address place = lowering.address(comes ? 0 : 1, Space::shared);
    const Place blocks = several ? lowering.source(3, Type::u16) : no_place;
    const Place bytes = comes ? lowering.temporary(Type::u32) : no_place;
    Op& op = lowering.emit(comes ? &load_tile : &store_tile, Work::memory);
    op.kind = Kind::checked;
    place.put(op);
    op.b = map;
    op.c = offset;
    op.d = bytes;
    op.e = blocks;
    op.width = static_cast<std::uint8_t>(rank | (comes ? 0U : stores) | (reduction ? reduces : 0U));
    op.extra = static_cast<std::uint32_t>(lowering.function().lists.size());
    lowering.function().lists.push_back(std::move(places));
    if (comes) complete_bytes(lowering, 2, bytes, blocks);
}

}  // namespace fikit::sim::ptx

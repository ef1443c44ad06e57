// Copies and fills as commands: where their ends lie, and what the device has to do.
#include <algorithm>
#include <cstring>

#include "array.hpp"
#include "command.hpp"
#include "pool.hpp"

namespace fikit::sim {

namespace {

struct Size {
    std::size_t width, height, depth;
};

struct End {
    Place place;
    std::size_t slice = 0;  // bytes from one slice to the next
    bool on_device = false;
    bool pageable = false;
    bool read_only = false;
    const Array* array = nullptr;
};

// One end of a CUDA_MEMCPY3D.
struct Description {
    CUmemorytype type;
    const void* host;
    CUdeviceptr device;
    CUarray array;
    std::size_t x, y, z, pitch, height;
};

Description source_of(const CUDA_MEMCPY3D& shape) {
    return {shape.srcMemoryType, shape.srcHost, shape.srcDevice, shape.srcArray, shape.srcXInBytes,
            shape.srcY,          shape.srcZ,    shape.srcPitch,  shape.srcHeight};
}
Description destination_of(const CUDA_MEMCPY3D& shape) {
    return {shape.dstMemoryType, shape.dstHost, shape.dstDevice, shape.dstArray, shape.dstXInBytes,
            shape.dstY,          shape.dstZ,    shape.dstPitch,  shape.dstHeight};
}

CUresult array_end(Driver& driver, const Description& description, const Size& size, End& end) {
    const Array* array = driver.arrays.find(description.array);
    if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::size_t row = array->shape.Width * array->element;
    const auto fits = [](std::size_t from, std::size_t count, std::size_t limit) {
        return from <= limit && count <= limit - from;
    };
    // Bytes, whatever the elements (seen on an H200).
    if (!fits(description.x, size.width, row) || !fits(description.y, size.height, array->rows()) ||
        !fits(description.z, size.depth, array->planes()))
        return CUDA_ERROR_INVALID_VALUE;
    end.place.pitch = array->pitch;
    end.slice = array->pitch * array->rows();
    end.place.address =
        array->address + description.z * end.slice + description.y * array->pitch + description.x;
    end.on_device = true;
    end.array = array;
    return CUDA_SUCCESS;
}

CUresult find_end(Driver& driver, const Description& description, const Size& size, End& end) {
    if (description.type == CU_MEMORYTYPE_ARRAY) return array_end(driver, description, size, end);
    if (description.type != CU_MEMORYTYPE_HOST && description.type != CU_MEMORYTYPE_DEVICE &&
        description.type != CU_MEMORYTYPE_UNIFIED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const std::uint64_t base = description.type == CU_MEMORYTYPE_HOST
                                   ? reinterpret_cast<std::uint64_t>(description.host)
                                   : description.device;
    if (base == 0) return CUDA_ERROR_INVALID_VALUE;
    std::size_t row = 0, column = 0;
    if (__builtin_add_overflow(description.x, size.width, &row) ||
        __builtin_add_overflow(description.y, size.height, &column)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // Of what is not said it is as much as the copy reaches into (as driver 580).
    const std::size_t pitch = description.pitch != 0 ? description.pitch : row;
    const std::size_t height = description.height != 0 ? description.height : column;
    if (row > pitch || column > height) return CUDA_ERROR_INVALID_VALUE;
    std::size_t slice = 0, offset = 0, span = 0;
    if (__builtin_mul_overflow(pitch, height, &slice) || __builtin_mul_overflow(slice, size.depth, &span) ||
        __builtin_mul_overflow(slice, description.z, &offset)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    end.place.pitch = pitch;
    end.slice = slice;
    end.place.address = base + offset + description.y * pitch + description.x;
    span = (size.depth - 1) * slice + (size.height - 1) * pitch + size.width;
    const Block* block = driver.block_of(end.place.address);
    end.on_device = block != nullptr && !block->host();
    end.read_only = block != nullptr && block->read_only();
    // A host pool's memory is nowhere a device's, whoever may reach it (as an H200).
    end.place.host = block == nullptr || block->host_pooled();
    if (end.place.host && description.type == CU_MEMORYTYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    end.pageable = block == nullptr;
    return block == nullptr || driver.holds(*block, end.place.address, span) ? CUDA_SUCCESS
                                                                             : CUDA_ERROR_INVALID_VALUE;
}

// Layers of one dimension lie as rows do: device memory at the other end has them a pitch apart, whatever its
// height is said to be (as an H200).
void close_up(const End& layers, End& memory) {
    const bool lines = layers.array != nullptr && layers.array->layered() && layers.array->shape.Height == 0;
    if (lines && memory.on_device && memory.array == nullptr) memory.slice = memory.place.pitch;
}

CopyEngine engine_of(const End& to, const End& from) {
    if (to.on_device == from.on_device) return CopyEngine::on_device;
    return to.on_device ? CopyEngine::to_device : CopyEngine::to_host;
}

}  // namespace

CUresult plan_copy(Driver& driver, const CUDA_MEMCPY3D& shape, CopyPlan& plan) {
    Size size{shape.WidthInBytes, shape.Height, shape.Depth};
    if (size.width == 0 || size.height == 0 || size.depth == 0) return CUDA_SUCCESS;
    std::size_t rows = 0;
    if (__builtin_mul_overflow(size.height, size.depth, &rows) ||
        __builtin_mul_overflow(rows, size.width, &plan.bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    End to, from;
    CUresult result = find_end(driver, destination_of(shape), size, to);
    if (result == CUDA_SUCCESS) result = find_end(driver, source_of(shape), size, from);
    if (result != CUDA_SUCCESS) return result;
    if (to.read_only) return CUDA_ERROR_INVALID_VALUE;
    close_up(to, from);
    close_up(from, to);
    plan.pageable = to.pageable || from.pageable;
    plan.pageable_source = from.pageable;
    plan.inside = to.on_device && from.on_device;
    const auto dense = [&](const End& end) { return end.slice == end.place.pitch * size.height; };
    if (size.depth > 1 && dense(to) && dense(from)) {
        size.height = rows;
        size.depth = 1;
    }
    for (std::size_t slice = 0; slice < size.depth; ++slice) {
        Copy copy;
        copy.destination = to.place;
        copy.destination.address += slice * to.slice;
        copy.source = from.place;
        copy.source.address += slice * from.slice;
        copy.width = size.width;
        copy.height = size.height;
        copy.engine = engine_of(to, from);
        copy.pageable = plan.pageable;
        plan.parts.push_back(std::move(copy));
    }
    return CUDA_SUCCESS;
}

void stage(Copy& copy) {
    copy.staged.resize(copy.width * copy.height);
    for (std::size_t row = 0; row < copy.height; ++row) {
        std::memcpy(copy.staged.data() + row * copy.width,
                    reinterpret_cast<const void*>(copy.source.address + row * copy.source.pitch), copy.width);
    }
}

CUresult check(Driver& driver, const CopyCommand& command) {
    CopyPlan plan;
    return plan_copy(driver, command.shape, plan);
}

CUresult check_shape(const FillCommand& command) {
    const CUDA_MEMSET_NODE_PARAMS& shape = command.shape;
    const unsigned element = shape.elementSize;
    if (element != 1 && element != 2 && element != 4) return CUDA_ERROR_INVALID_VALUE;
    if (shape.width == 0 || shape.height == 0) return CUDA_SUCCESS;
    std::size_t row = 0, last = 0, whole = 0;
    if (__builtin_mul_overflow(shape.width, std::size_t{element}, &row) ||
        __builtin_mul_overflow(shape.pitch, shape.height - 1, &last) ||
        __builtin_add_overflow(last, row, &whole)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (shape.dst == 0 || shape.dst % element != 0) return CUDA_ERROR_INVALID_VALUE;
    if (shape.height > 1 && (shape.pitch % element != 0 || shape.pitch < row))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult check(Driver& driver, const FillCommand& command) {
    const CUDA_MEMSET_NODE_PARAMS& shape = command.shape;
    if (const CUresult result = check_shape(command); result != CUDA_SUCCESS) return result;
    if (shape.width == 0 || shape.height == 0) return CUDA_SUCCESS;
    const std::size_t row = shape.width * shape.elementSize, last = shape.pitch * (shape.height - 1);
    const Block* block = driver.block_of(shape.dst);
    const bool reached = block != nullptr && !block->read_only() &&
                         (!block->host_pooled() || block->pool->reachable()) &&
                         driver.access_to(*block) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return reached && driver.holds(*block, shape.dst, last + row) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace fikit::sim

// Copies and fills.
//
// A host pointer that the device does not know is pageable: its bytes go through a staging buffer,
// so an upload has read them before the call returns, and a download has written them. Pinned
// copies are asynchronous where the name says so. Copies inside the device and fills never make the
// host wait, whatever their name.
#include <cstring>

#include "driver.hpp"

using namespace fikit::sim;

namespace {

enum class Side : std::uint8_t { host, device, either };

struct End {
    Side side;
    std::uint64_t address;
    std::size_t pitch = 0;
};

struct Extent2D {
    std::size_t width, height;
};

std::size_t span(const End& end, const Extent2D& size) { return end.pitch * (size.height - 1) + size.width; }

// Where an end lies: device memory, pinned host memory or pageable host memory.
CUresult classify(Driver& driver, const End& end, const Extent2D& size, bool& on_device, Place& place) {
    place = {end.address, end.pitch, false};
    const Block* block = driver.block_of(end.address);
    on_device = block != nullptr && !block->host();
    if (end.side == Side::device && block == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (end.address == 0) return CUDA_ERROR_INVALID_VALUE;
    if (block == nullptr) {
        place.host = true;
        return CUDA_SUCCESS;
    }
    return driver.space.covers(end.address, span(end, size)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult copy(CUstream where, const End& to, const End& from, Extent2D size, bool asynchronous) {
    return with_stream(
        where, [&](Driver& driver, Driver::Lock& lock, Stream& stream, SimulatedDevice& device) -> CUresult {
            if (size.width == 0 || size.height == 0) return CUDA_SUCCESS;
            if (size.height > 1 && (to.pitch < size.width || from.pitch < size.width))
                return CUDA_ERROR_INVALID_VALUE;
            Copy work;
            work.width = size.width;
            work.height = size.height;
            bool to_device = false;
            bool from_device = false;
            CUresult result = classify(driver, to, size, to_device, work.destination);
            if (result == CUDA_SUCCESS) result = classify(driver, from, size, from_device, work.source);
            if (result != CUDA_SUCCESS) return result;
            work.engine = to_device == from_device ? CopyEngine::on_device
                          : to_device              ? CopyEngine::to_device
                                                   : CopyEngine::to_host;
            work.pageable = work.destination.host || work.source.host;
            const std::size_t bytes = size.width * size.height;
            const bool inside = to_device && from_device;
            // A small upload is staged and the caller goes on; a large one is read while the caller
            // waits.
            const bool staged = work.source.host && bytes <= model::pageable_staged && !work.destination.host;
            if (staged) {
                work.staged.resize(bytes);
                for (std::size_t row = 0; row < size.height; ++row) {
                    std::memcpy(work.staged.data() + row * size.width,
                                reinterpret_cast<const void*>(from.address + row * from.pitch), size.width);
                }
            }
            const bool waits = work.pageable ? !staged : !asynchronous && !inside;
            auto operation = std::make_shared<Operation>();
            operation->work = std::move(work);
            driver.enqueue(stream, operation);
            return waits ? driver.wait(lock, device, operation) : CUDA_SUCCESS;
        });
}

CUresult fill(CUstream where, CUdeviceptr address, std::size_t pitch, unsigned value, unsigned element,
              Extent2D size) {
    return with_stream(
        where, [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
            if (size.width == 0 || size.height == 0) return CUDA_SUCCESS;
            if (address % element != 0 || pitch % element != 0) return CUDA_ERROR_INVALID_VALUE;
            if (size.height > 1 && pitch < size.width * element) return CUDA_ERROR_INVALID_VALUE;
            Place place;
            bool on_device = false;
            const CUresult result = classify(driver, {Side::device, address, pitch},
                                             {size.width * element, size.height}, on_device, place);
            if (result != CUDA_SUCCESS) return result;
            auto operation = std::make_shared<Operation>();
            operation->work = Fill{place, size.width, size.height, value, element};
            driver.enqueue(stream, operation);
            return CUDA_SUCCESS;
        });
}

std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

CUresult end_of(CUmemorytype type, const void* host, CUdeviceptr device, std::size_t x, std::size_t y,
                std::size_t pitch, End& end) {
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) {
        return type == CU_MEMORYTYPE_ARRAY ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    const std::uint64_t base = type == CU_MEMORYTYPE_HOST ? number(host) : device;
    end.side = type == CU_MEMORYTYPE_HOST     ? Side::host
               : type == CU_MEMORYTYPE_DEVICE ? Side::device
                                              : Side::either;
    end.address = base + y * pitch + x;
    end.pitch = pitch;
    return CUDA_SUCCESS;
}

CUresult copy_2d(const CUDA_MEMCPY2D* shape, CUstream stream, bool asynchronous) {
    if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
    End to{};
    End from{};
    CUresult result = end_of(shape->srcMemoryType, shape->srcHost, shape->srcDevice, shape->srcXInBytes,
                             shape->srcY, shape->srcPitch != 0 ? shape->srcPitch : shape->WidthInBytes, from);
    if (result != CUDA_SUCCESS) return result;
    result = end_of(shape->dstMemoryType, shape->dstHost, shape->dstDevice, shape->dstXInBytes, shape->dstY,
                    shape->dstPitch != 0 ? shape->dstPitch : shape->WidthInBytes, to);
    if (result != CUDA_SUCCESS) return result;
    return copy(stream, to, from, {shape->WidthInBytes, shape->Height}, asynchronous);
}

}  // namespace

extern "C" {

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copy(nullptr, {Side::either, to}, {Side::either, from}, {bytes, 1}, false);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy(stream, {Side::either, to}, {Side::either, from}, {bytes, 1}, true);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
    return copy(nullptr, {Side::device, to}, {Side::host, number(from)}, {bytes, 1}, false);
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
    return copy(nullptr, {Side::host, number(to)}, {Side::device, from}, {bytes, 1}, false);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copy(nullptr, {Side::device, to}, {Side::device, from}, {bytes, 1}, false);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    return copy(stream, {Side::device, to}, {Side::host, number(from)}, {bytes, 1}, true);
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy(stream, {Side::host, number(to)}, {Side::device, from}, {bytes, 1}, true);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy(stream, {Side::device, to}, {Side::device, from}, {bytes, 1}, true);
}
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* shape) { return copy_2d(shape, nullptr, false); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* shape) { return copy_2d(shape, nullptr, false); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* shape, CUstream stream) {
    return copy_2d(shape, stream, true);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    return fill(nullptr, to, 0, value, 1, {count, 1});
}
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
    return fill(nullptr, to, 0, value, 2, {count, 1});
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count) {
    return fill(nullptr, to, 0, value, 4, {count, 1});
}
CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
    return fill(nullptr, to, pitch, value, 1, {width, height});
}
CUresult cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
    return fill(nullptr, to, pitch, value, 2, {width, height});
}
CUresult cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height) {
    return fill(nullptr, to, pitch, value, 4, {width, height});
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    return fill(stream, to, 0, value, 1, {count, 1});
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
    return fill(stream, to, 0, value, 2, {count, 1});
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
    return fill(stream, to, 0, value, 4, {count, 1});
}
CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                           CUstream stream) {
    return fill(stream, to, pitch, value, 1, {width, height});
}
CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                            CUstream stream) {
    return fill(stream, to, pitch, value, 2, {width, height});
}
CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height,
                            CUstream stream) {
    return fill(stream, to, pitch, value, 4, {width, height});
}

}  // extern "C"

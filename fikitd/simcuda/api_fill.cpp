// Fills. They make the host wait where their name says so and the memory is the host's.
#include "command.hpp"

using namespace fikit::sim;

namespace {

struct Extent2D {
    std::size_t width, height;
};

CUresult fill(Wait wait, CUstream where, CUdeviceptr address, std::size_t pitch, unsigned value,
              unsigned element, Extent2D size) {
    return with_stream(
        where, in_capture(wait),
        [&](Driver& driver, Driver::Lock& lock, Stream& stream, SimulatedDevice& device) -> CUresult {
            if (size.width == 0 || size.height == 0) return CUDA_SUCCESS;
            FillCommand command;
            command.shape.dst = address;
            command.shape.pitch = pitch;
            command.shape.value = value;
            command.shape.elementSize = element;
            command.shape.width = size.width;
            command.shape.height = size.height;
            // A capture takes any address.
            if (stream.capture.capture) {
                const CUresult result = check_shape(command);
                return result == CUDA_SUCCESS ? issue(driver, stream, command) : result;
            }
            CUresult result = check(driver, command);
            const Block* block = driver.block_of(address);
            // As an H200 without peer access says.
            if (result == CUDA_SUCCESS && block != nullptr && !block->host() &&
                block->device != device.ordinal)
                result = CUDA_ERROR_INVALID_VALUE;
            OperationPtr last;
            if (result == CUDA_SUCCESS) result = issue(driver, stream, command, &last);
            const bool waits = wait == Wait::yes && last && block != nullptr && block->host();
            return result == CUDA_SUCCESS && waits ? driver.wait(lock, device, last) : result;
        });
}

}  // namespace

extern "C" {

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    return fill(Wait::yes, nullptr, to, 0, value, 1, {count, 1});
}
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
    return fill(Wait::yes, nullptr, to, 0, value, 2, {count, 1});
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count) {
    return fill(Wait::yes, nullptr, to, 0, value, 4, {count, 1});
}
CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
    return fill(Wait::yes, nullptr, to, pitch, value, 1, {width, height});
}
CUresult cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
    return fill(Wait::yes, nullptr, to, pitch, value, 2, {width, height});
}
CUresult cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height) {
    return fill(Wait::yes, nullptr, to, pitch, value, 4, {width, height});
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    return fill(Wait::no, stream, to, 0, value, 1, {count, 1});
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
    return fill(Wait::no, stream, to, 0, value, 2, {count, 1});
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
    return fill(Wait::no, stream, to, 0, value, 4, {count, 1});
}
CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                           CUstream stream) {
    return fill(Wait::no, stream, to, pitch, value, 1, {width, height});
}
CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                            CUstream stream) {
    return fill(Wait::no, stream, to, pitch, value, 2, {width, height});
}
CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height,
                            CUstream stream) {
    return fill(Wait::no, stream, to, pitch, value, 4, {width, height});
}

}  // extern "C"

// Copies.
//
// A host pointer that the device does not know is pageable: its bytes go through a staging buffer,
// so an upload has read them before the call returns, and a download has written them. Pinned
// copies are asynchronous where the name says so. Copies inside the device never make the host wait,
// whatever their name.
#include <cstring>
#include <set>
#include <utility>

#include "capture.hpp"

using namespace fikit::sim;

namespace {

// The legacy streams of other devices whose memory a copy reaches.
std::vector<Stream*> elsewhere(Driver& driver, const Copy& copy, int device) {
    std::set<int> others;
    for (const Place& place : {copy.destination, copy.source}) {
        const Block* block = place.host ? nullptr : driver.block_of(place.address);
        if (block != nullptr && !block->host() && block->device != device) others.insert(block->device);
    }
    std::vector<Stream*> streams;
    if (others.empty()) return streams;
    driver.contexts.each([&](Context& context) {
        if (context.alive && others.contains(context.device)) streams.push_back(&context.legacy);
    });
    return streams;
}

// Puts an operation into each stream, each behind the one before and the first behind `last`; gives the last.
OperationPtr mark_each(Driver& driver, const std::vector<Stream*>& streams, OperationPtr last) {
    for (Stream* stream : streams) {
        auto marker = std::make_shared<Operation>();
        driver.enqueue(*stream, marker, last);
        last = std::move(marker);
    }
    return last;
}

// A line between addresses of either kind, as a node tells it. That a node's kinds are those found, so that
// it may become a copy of that kind later, is an assumption.
CUDA_MEMCPY3D named(Driver& driver, CUDA_MEMCPY3D shape) {
    const auto name = [&](CUmemorytype& type, CUdeviceptr address, auto& host) {
        if (type != CU_MEMORYTYPE_UNIFIED) return;
        const Block* block = driver.block_of(address);
        const bool on_host = block == nullptr || (block->host() && !block->managed());
        type = on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        host = reinterpret_cast<void*>(address);
    };
    if (shape.Height != 1 || shape.Depth != 1) return shape;
    name(shape.dstMemoryType, shape.dstDevice, shape.dstHost);
    name(shape.srcMemoryType, shape.srcDevice, shape.srcHost);
    return shape;
}

CUresult copy(CUstream where, const CUDA_MEMCPY3D& shape, Wait wait) {
    return with_stream(
        where, in_capture(wait),
        [&](Driver& driver, Driver::Lock& lock, Stream& stream, SimulatedDevice& device) -> CUresult {
            CopyPlan plan;
            const CUresult result = plan_copy(driver, shape, plan);
            if (result != CUDA_SUCCESS || plan.parts.empty()) return result;
            if (stream.capture.capture)
                return capture_command(driver, stream, CopyCommand{named(driver, shape)});
            // A small upload is staged and the caller goes on; a large one is read while the caller
            // waits.
            const bool staged = plan.pageable_source && plan.bytes <= model::pageable_staged &&
                                !plan.parts.front().destination.host;
            const bool waits = plan.pageable ? !staged : wait == Wait::yes && !plan.inside;
            // Who waits does so before pageable bytes are read (CUDA Driver API, "API synchronization
            // behavior").
            if (staged && wait == Wait::yes) {
                auto before = std::make_shared<Operation>();
                driver.enqueue(stream, before);
                if (const CUresult fault = driver.wait(lock, device, before); fault != CUDA_SUCCESS)
                    return fault;
                plan = {};  // another thread may have freed what it reached
                if (const CUresult gone = plan_copy(driver, shape, plan); gone != CUDA_SUCCESS) return gone;
            }
            // In the legacy stream a copy between devices begins after what either was given before, and ends
            // before what either is given later (CUDA C++ Programming Guide, "Peer-to-Peer Memory Copy").
            std::vector<Stream*> others;
            if (wait == Wait::yes && stream.kind == Stream::Kind::legacy)
                others = elsewhere(driver, plan.parts.front(), stream.context->device);
            OperationPtr before = mark_each(driver, others, nullptr);
            OperationPtr last;
            for (Copy& part : plan.parts) {
                if (staged) stage(part);
                last = std::make_shared<Operation>();
                last->work = std::move(part);
                driver.enqueue(stream, last, std::exchange(before, nullptr));
            }
            mark_each(driver, others, last);
            return waits ? driver.wait(lock, device, last) : CUDA_SUCCESS;
        });
}

struct End {
    CUmemorytype type;
    std::uint64_t address = 0;
    CUarray array = nullptr;
    std::size_t x = 0;
};
End host(const void* pointer) { return {CU_MEMORYTYPE_HOST, reinterpret_cast<std::uint64_t>(pointer)}; }
End device(CUdeviceptr address) { return {CU_MEMORYTYPE_DEVICE, address}; }
End either(CUdeviceptr address) { return {CU_MEMORYTYPE_UNIFIED, address}; }
End array(CUarray handle, std::size_t x) { return {CU_MEMORYTYPE_ARRAY, 0, handle, x}; }

CUresult copy(CUstream stream, const End& to, const End& from, std::size_t bytes, Wait wait) {
    CUDA_MEMCPY3D shape{};
    shape.dstMemoryType = to.type;
    shape.dstHost = reinterpret_cast<void*>(to.address);
    shape.dstDevice = to.address;
    shape.dstArray = to.array;
    shape.dstXInBytes = to.x;
    shape.srcMemoryType = from.type;
    shape.srcHost = reinterpret_cast<const void*>(from.address);
    shape.srcDevice = from.address;
    shape.srcArray = from.array;
    shape.srcXInBytes = from.x;
    shape.WidthInBytes = bytes;
    shape.Height = shape.Depth = 1;
    return copy(stream, shape, wait);
}

CUresult copy_2d(const CUDA_MEMCPY2D* plane, CUstream stream, Wait wait) {
    if (plane == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D shape{};
    shape.srcXInBytes = plane->srcXInBytes;
    shape.srcY = plane->srcY;
    shape.srcMemoryType = plane->srcMemoryType;
    shape.srcHost = plane->srcHost;
    shape.srcDevice = plane->srcDevice;
    shape.srcArray = plane->srcArray;
    shape.srcPitch = plane->srcPitch;
    shape.dstXInBytes = plane->dstXInBytes;
    shape.dstY = plane->dstY;
    shape.dstMemoryType = plane->dstMemoryType;
    shape.dstHost = plane->dstHost;
    shape.dstDevice = plane->dstDevice;
    shape.dstArray = plane->dstArray;
    shape.dstPitch = plane->dstPitch;
    shape.WidthInBytes = plane->WidthInBytes;
    shape.Height = plane->Height;
    shape.Depth = 1;
    return copy(stream, shape, wait);
}

CUresult copy_3d(const CUDA_MEMCPY3D* shape, CUstream stream, Wait wait) {
    if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return copy(stream, *shape, wait);
}

CUresult check_context(CUcontext handle) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        const Context* context = driver.contexts.find(handle);
        if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
        return context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    });
}

CUresult copy_peer(CUstream stream, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                   CUcontext from_context, std::size_t bytes, Wait wait) {
    for (CUcontext context : {to_context, from_context}) {
        if (context == nullptr) continue;  // the current one
        if (const CUresult result = check_context(context); result != CUDA_SUCCESS) return result;
    }
    return copy(stream, device(to), device(from), bytes, wait);
}

CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER* peer, CUstream stream, Wait wait) {
    if (peer == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D shape{};
    shape.srcXInBytes = peer->srcXInBytes;
    shape.srcY = peer->srcY;
    shape.srcZ = peer->srcZ;
    shape.srcMemoryType = peer->srcMemoryType;
    shape.srcHost = peer->srcHost;
    shape.srcDevice = peer->srcDevice;
    shape.srcArray = peer->srcArray;
    shape.srcPitch = peer->srcPitch;
    shape.srcHeight = peer->srcHeight;
    shape.dstXInBytes = peer->dstXInBytes;
    shape.dstY = peer->dstY;
    shape.dstZ = peer->dstZ;
    shape.dstMemoryType = peer->dstMemoryType;
    shape.dstHost = peer->dstHost;
    shape.dstDevice = peer->dstDevice;
    shape.dstArray = peer->dstArray;
    shape.dstPitch = peer->dstPitch;
    shape.dstHeight = peer->dstHeight;
    shape.WidthInBytes = peer->WidthInBytes;
    shape.Height = peer->Height;
    shape.Depth = peer->Depth;
    return copy(stream, shape, wait);
}

}  // namespace

extern "C" {

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copy(nullptr, either(to), either(from), bytes, Wait::yes);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy(stream, either(to), either(from), bytes, Wait::no);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
    return copy(nullptr, device(to), host(from), bytes, Wait::yes);
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
    return copy(nullptr, host(to), device(from), bytes, Wait::yes);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copy(nullptr, device(to), device(from), bytes, Wait::yes);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    return copy(stream, device(to), host(from), bytes, Wait::no);
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy(stream, host(to), device(from), bytes, Wait::no);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy(stream, device(to), device(from), bytes, Wait::no);
}
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                      size_t bytes) {
    return copy_peer(nullptr, to, to_context, from, from_context, bytes, Wait::yes);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           size_t bytes, CUstream stream) {
    return copy_peer(stream, to, to_context, from, from_context, bytes, Wait::no);
}

CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
    return copy(nullptr, array(to, offset), device(from), bytes, Wait::yes);
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
    return copy(nullptr, device(to), array(from, offset), bytes, Wait::yes);
}
CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t bytes) {
    return copy(nullptr, array(to, offset), host(from), bytes, Wait::yes);
}
CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t bytes) {
    return copy(nullptr, host(to), array(from, offset), bytes, Wait::yes);
}
CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes) {
    return copy(nullptr, array(to, to_offset), array(from, from_offset), bytes, Wait::yes);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t bytes, CUstream stream) {
    return copy(stream, array(to, offset), host(from), bytes, Wait::no);
}
CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t bytes, CUstream stream) {
    return copy(stream, host(to), array(from, offset), bytes, Wait::no);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* shape) { return copy_2d(shape, nullptr, Wait::yes); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* shape) { return copy_2d(shape, nullptr, Wait::yes); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* shape, CUstream stream) {
    return copy_2d(shape, stream, Wait::no);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* shape) { return copy_3d(shape, nullptr, Wait::yes); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* shape, CUstream stream) {
    return copy_3d(shape, stream, Wait::no);
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* shape) { return copy_3d_peer(shape, nullptr, Wait::yes); }
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* shape, CUstream stream) {
    return copy_3d_peer(shape, stream, Wait::no);
}

}  // extern "C"

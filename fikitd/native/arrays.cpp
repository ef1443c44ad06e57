// Arrays, mipmapped arrays, texture and surface objects, and copies of rows. The driver answers a texture's
// value, which the program's kernels get, so it is the object's name to the session too; arrays go by the
// session's own numbers. What a session has not made it cannot name. Destroying an array waits until the GPU
// is idle and may hold launches up meanwhile (50 ms behind a kernel of 60, measured on the H200), so that is
// treated as loading code is (admit.cpp), and put off when a session ends.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "array_shape.hpp"
#include "core.hpp"
#include "program_calls.hpp"

namespace fikit {
namespace {

constexpr uint32_t served_flags =
    CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;

CUresult make(const Driver& driver, SessionArray& array) {
    const fikit_array_shape& shape = array.shape;
    CUDA_ARRAY3D_DESCRIPTOR wanted{};
    wanted.Width = shape.width;
    wanted.Height = shape.height;
    wanted.Depth = shape.depth;
    wanted.Format = static_cast<CUarray_format>(shape.format);
    wanted.NumChannels = shape.channels;
    wanted.Flags = shape.flags;
    if (shape.levels == 0) return driver.cuArray3DCreate_(&array.levels.emplace_back(), &wanted);
    CUresult result = driver.cuMipmappedArrayCreate_(&array.mipmap, &wanted, shape.levels);
    for (uint32_t level = 0; level < shape.levels && result == CUDA_SUCCESS; ++level)
        result = driver.cuMipmappedArrayGetLevel_(&array.levels.emplace_back(), array.mipmap, level);
    if (result != CUDA_SUCCESS && array.mipmap != nullptr) driver.cuMipmappedArrayDestroy_(array.mipmap);
    return result;
}

CUresult destroy(const Driver& driver, const SessionArray& array) {
    return array.mipmap != nullptr ? driver.cuMipmappedArrayDestroy_(array.mipmap)
                                   : driver.cuArrayDestroy_(array.levels.front());
}

CUresult destroy(const Driver& driver, uint64_t texture, bool surface) {
    return surface ? driver.cuSurfObjectDestroy_(texture) : driver.cuTexObjectDestroy_(texture);
}

// The array that a copy's end names; nullptr: the session has none such, or the copy reaches beyond it.
CUarray array_of(const Session& session, const fikit_copy_rows& copy, const fikit_copy_end& end) {
    const auto found = session.arrays.find(end.array);
    if (found == session.arrays.end() || end.level >= found->second.levels.size()) return nullptr;
    const fikit_array_shape shape = level_of(found->second.shape, end.level);
    const bool within = holds(shape, {end.x, end.y, end.z}, {copy.width, copy.rows, copy.slices});
    return within ? found->second.levels[end.level] : nullptr;
}

// An end of a copy as the driver takes it, if the session has it.
struct End {
    CUmemorytype type = CU_MEMORYTYPE_DEVICE;
    uint8_t* host = nullptr;
    CUdeviceptr device = 0;
    CUarray array = nullptr;
    uint64_t x = 0, y = 0, z = 0;  // in an array; memory begins where the session was found to have it
    bool found = false;
};

End end_of(const Session& session, uint64_t staging_bytes, const fikit_copy_rows& rows, bool destination) {
    const fikit_copy& copy = rows.copy;
    const fikit_copy_end& end = destination ? rows.to : rows.from;
    End found;
    uint64_t bytes = 0;
    if (end.array != 0) {
        found.type = CU_MEMORYTYPE_ARRAY;
        found.array = array_of(session, rows, end);
        found.found = found.array != nullptr;
        found.x = end.x;
        found.y = end.y;
        found.z = end.z;
    } else if (!span_of(rows, end, bytes)) {
        return found;
    } else if (copy.kind == (destination ? FIKIT_COPY_TO_HOST : FIKIT_COPY_TO_DEVICE)) {
        found.type = CU_MEMORYTYPE_HOST;
        found.host = session.host_memory(copy.host_buffer, staging_bytes, copy.other, bytes);
        found.found = found.host != nullptr;
    } else {
        found.device = destination || copy.kind == FIKIT_COPY_TO_HOST ? copy.device : copy.other;
        found.found = session.owns(found.device, bytes, destination);
    }
    return found;
}

// What texture and surface objects are made of, as far as the session has it.
CUresult resource_of(const Session& session, const fikit_request_texture_create& request,
                     CUDA_RESOURCE_DESC& resource) {
    if (request.type > CU_RESOURCE_TYPE_PITCH2D) return CUDA_ERROR_INVALID_VALUE;
    resource.resType = static_cast<CUresourcetype>(request.type);
    const auto found = session.arrays.find(request.array);
    const SessionArray* const array = found != session.arrays.end() ? &found->second : nullptr;
    if (resource.resType == CU_RESOURCE_TYPE_ARRAY) {
        if (array == nullptr || request.level >= array->levels.size()) return CUDA_ERROR_INVALID_HANDLE;
        resource.res.array.hArray = array->levels[request.level];
        return CUDA_SUCCESS;
    }
    if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
        if (array == nullptr || array->mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        resource.res.mipmap.hMipmappedArray = array->mipmap;
        return CUDA_SUCCESS;
    }
    const uint64_t element = element_bytes(request.format, request.channels);
    if (element == 0) return CUDA_ERROR_INVALID_VALUE;
    const auto format = static_cast<CUarray_format>(request.format);
    uint64_t bytes = request.width;
    if (resource.resType == CU_RESOURCE_TYPE_LINEAR) {
        resource.res.linear = {request.address, format, request.channels, request.width};
    } else {
        const uint64_t last = std::max<uint64_t>(request.height, 1) - 1;
        if (request.width > longest_extent || __builtin_mul_overflow(request.pitch, last, &bytes) ||
            __builtin_add_overflow(bytes, request.width * element, &bytes))
            return CUDA_ERROR_INVALID_VALUE;
        resource.res.pitch2D = {request.address, format,         request.channels,
                                request.width,   request.height, request.pitch};
    }
    return session.owns(request.address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Whether the driver's types can hold what a texture is to be read like: a number that is none of theirs
// never becomes one of them.
template <class Enumerator>
bool is_upto(const uint8_t* field, Enumerator last) {
    uint32_t number = 0;
    std::memcpy(&number, field, sizeof number);
    return number <= static_cast<uint32_t>(last);
}
bool can_be_held(const fikit_request_texture_create& request) {
    using Manner = CUDA_TEXTURE_DESC;
    const uint8_t* const modes = request.manner + offsetof(Manner, addressMode);
    for (size_t axis = 0; axis < std::extent_v<decltype(Manner::addressMode)>; ++axis)
        if (!is_upto(modes + axis * sizeof(CUaddress_mode), CU_TR_ADDRESS_MODE_BORDER)) return false;
    return is_upto(request.manner + offsetof(Manner, filterMode), CU_TR_FILTER_MODE_LINEAR) &&
           is_upto(request.manner + offsetof(Manner, mipmapFilterMode), CU_TR_FILTER_MODE_LINEAR) &&
           (request.viewed == 0 || is_upto(request.view + offsetof(CUDA_RESOURCE_VIEW_DESC, format),
                                           CU_RES_VIEW_FORMAT_UNSIGNED_BC7));
}

}  // namespace

CUresult ProgramCalls::array_create(const fikit_request_array_create& request,
                                    fikit_reply_array_create& reply) {
    if (request.handle == 0 || request.handle >= FIKIT_MAX_ARRAYS ||
        session_.arrays.contains(request.handle) || !is_possible(request.shape))
        return CUDA_ERROR_INVALID_VALUE;
    if (element_bytes(request.shape) == 0 || (request.shape.flags & ~served_flags) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    SessionArray array{request.shape, nullptr, {}, memory_bytes(request.shape)};
    const std::lock_guard lock(core_.memory_mutex_);
    Arena& arena = *session_.arena;
    const CUresult result = core_.within_limits(session_, array.bytes, true, [&](uint64_t limit) {
        CUresult made = arena.charge(array.bytes, limit);
        if (made != CUDA_SUCCESS) return made;
        made = make(driver_, array);
        if (made == CUDA_ERROR_OUT_OF_MEMORY && arena.kept_bytes() > 0) {
            arena.trim();
            array.levels.clear();
            made = make(driver_, array);
        }
        if (made != CUDA_SUCCESS) arena.discharge(array.bytes);
        return made;
    });
    reply.bytes = array.bytes;
    if (result == CUDA_SUCCESS) session_.arrays.emplace(request.handle, std::move(array));
    return result;
}

CUresult ProgramCalls::array_destroy(const fikit_request_array_destroy& request, fikit_reply_array_destroy&) {
    const auto found = session_.arrays.find(request.handle);
    if (found == session_.arrays.end()) return CUDA_ERROR_INVALID_HANDLE;
    // Without the mutex: it may wait for a kernel of anybody's.
    const CUresult result = destroy(driver_, found->second);
    const std::lock_guard lock(core_.memory_mutex_);
    session_.arena->discharge(found->second.bytes);
    session_.arrays.erase(found);
    core_.account_memory(session_);
    return result;
}

CUresult ProgramCalls::texture_create(const fikit_request_texture_create& request,
                                      fikit_reply_texture_create& reply) {
    if (session_.textures.size() >= FIKIT_MAX_TEXTURES) return CUDA_ERROR_OUT_OF_MEMORY;
    CUDA_RESOURCE_DESC resource{};
    CUresult result = resource_of(session_, request, resource);
    if (result != CUDA_SUCCESS) return result;
    static_assert(sizeof reply.value == sizeof(CUtexObject) && sizeof reply.value == sizeof(CUsurfObject));
    CUtexObject value = 0;
    if (request.surface != 0) {
        result = driver_.cuSurfObjectCreate_(&value, &resource);
    } else if (!can_be_held(request)) {
        return CUDA_ERROR_INVALID_VALUE;
    } else {
        CUDA_TEXTURE_DESC manner;
        CUDA_RESOURCE_VIEW_DESC view;
        static_assert(sizeof manner == sizeof request.manner && sizeof view == sizeof request.view);
        std::memcpy(&manner, request.manner, sizeof manner);
        std::memcpy(&view, request.view, sizeof view);
        result =
            driver_.cuTexObjectCreate_(&value, &resource, &manner, request.viewed != 0 ? &view : nullptr);
    }
    if (result != CUDA_SUCCESS) return result;
    session_.textures.emplace(value, request.surface != 0);
    reply.value = value;
    return CUDA_SUCCESS;
}

CUresult ProgramCalls::texture_destroy(const fikit_request_texture_destroy& request,
                                       fikit_reply_texture_destroy&) {
    const bool surface = request.surface != 0;
    if (session_.textures.erase({request.value, surface}) == 0) return CUDA_ERROR_INVALID_VALUE;
    return destroy(driver_, request.value, surface);
}

// Textures name arrays, and the driver waits for kernels.
void Core::release_arrays(Session& session) {
    struct Held {
        std::unordered_map<uint32_t, SessionArray> arrays;
        std::set<std::pair<uint64_t, bool>> textures;
    };
    if (session.arrays.empty() && session.textures.empty()) return;
    const auto held = std::make_shared<Held>(Held{std::move(session.arrays), std::move(session.textures)});
    session.arrays.clear();
    session.textures.clear();
    // Until then the arrays are the tenant's, as what stacks take is: nothing else discharges them.
    memory_going_.fetch_add(1);
    when_idle([this, held] {
        for (const auto& [value, surface] : held->textures) destroy(driver_, value, surface);
        for (const auto& [handle, array] : held->arrays) {
            destroy(driver_, array);
            ledger_.change(-static_cast<int64_t>(array.bytes));
        }
        memory_going_.fetch_sub(1);
    });
}

CUresult Core::issue_rows(Session& session, CUstream stream) {
    const auto& rows = session.head->as<fikit_copy_rows>();
    const End to = end_of(session, settings_.staging_bytes, rows, true);
    const End from = end_of(session, settings_.staging_bytes, rows, false);
    if (!to.found || !from.found) return CUDA_ERROR_INVALID_VALUE;
    session.usage.bytes_copied += rows.copy.size;
    CUDA_MEMCPY3D what{};
    what.dstMemoryType = to.type;
    what.dstHost = to.host;
    what.dstDevice = to.device;
    what.dstArray = to.array;
    what.dstXInBytes = to.x;
    what.dstY = to.y;
    what.dstZ = to.z;
    what.dstPitch = rows.to.pitch;
    what.dstHeight = rows.to.height;
    what.srcMemoryType = from.type;
    what.srcHost = from.host;
    what.srcDevice = from.device;
    what.srcArray = from.array;
    what.srcXInBytes = from.x;
    what.srcY = from.y;
    what.srcZ = from.z;
    what.srcPitch = rows.from.pitch;
    what.srcHeight = rows.from.height;
    what.WidthInBytes = rows.width;
    what.Height = rows.rows;
    what.Depth = rows.slices;
    return driver_.cuMemcpy3DAsync_(&what, stream);
}

}  // namespace fikit

// The entry points and their controls; streams are in null_streams.cpp. See null_driver.hpp.
#include "null_driver.hpp"

#include <atomic>
#include <cstring>
#include <mutex>

#include "null_streams.hpp"

using fikit::null_driver::Function;

namespace fikit::null_driver {
namespace {

constexpr auto functions = static_cast<size_t>(Function::count);
constexpr uint64_t never = UINT64_MAX;

struct Injection {
    std::atomic<uint64_t> first{never}, last{never};  // numbers of the calls that fail
    std::atomic<CUresult> error{CUDA_SUCCESS};
};

Injection injections[functions];
std::atomic<uint64_t> counts[functions];
std::atomic<uint64_t> next_address{uint64_t{1} << 40}, managed_address{0};
std::atomic<uint64_t> next_handle{1};
std::atomic<int64_t> mappings, allocations, registrations, modules, events, streams;
std::atomic<size_t> stack_bytes{1024}, heap_bytes{8 << 20};
std::atomic<uint64_t> mapped_bytes;
std::atomic<float> elapsed{0.01f};
std::function<void()> on_compile;

template <class Handle>
Handle new_handle() {
    return reinterpret_cast<Handle>(next_handle.fetch_add(1) * 64);
}

}  // namespace

CUresult enter(Function function) {
    const auto index = static_cast<size_t>(function);
    const uint64_t number = counts[index].fetch_add(1, std::memory_order_relaxed);
    const Injection& injection = injections[index];
    if (number < injection.first.load(std::memory_order_acquire)) return CUDA_SUCCESS;
    return number <= injection.last.load(std::memory_order_relaxed) ? injection.error.load() : CUDA_SUCCESS;
}

void reset() {
    for (Injection& injection : injections) injection.first = injection.last = never;
    for (auto& count : counts) count = 0;
    record(false);
    take_calls();
    set_on_launch(nullptr);
    on_compile = nullptr;
    elapsed = 0.01f;
}

void fail(Function function, CUresult error, uint64_t after_calls, uint64_t times) {
    Injection& injection = injections[static_cast<size_t>(function)];
    const uint64_t first = count(function) + after_calls;
    injection.error = error;
    injection.last = times == never ? never : first + times - 1;
    injection.first.store(first, std::memory_order_release);
}

uint64_t count(Function function) { return counts[static_cast<size_t>(function)].load(); }

Live live() {
    return {mappings.load(), allocations.load(), registrations.load(), modules.load(),  events.load(),
            streams.load(),  graphs.load(),      arrays.load(),        textures.load(), mapped_bytes.load()};
}

void set_on_compile(std::function<void()> action) { on_compile = std::move(action); }

void set_elapsed(float milliseconds) { elapsed = milliseconds; }

const char* name_of(Function function) {
    static constexpr const char* names[] = {
#define FIKIT_NULL_NAME(name) #name,
        FIKIT_DRIVER_FUNCTIONS(FIKIT_NULL_NAME)
#undef FIKIT_NULL_NAME
    };
    return names[static_cast<size_t>(function)];
}

}  // namespace fikit::null_driver

using namespace fikit::null_driver;

extern "C" {

CUresult cuGetErrorName(CUresult error, const char** text) {
    ENTER(cuGetErrorName);
    *text = error == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_OTHER";
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext) {
    ENTER(cuCtxSetCurrent);
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
    ENTER(cuCtxGetDevice);
    *device = 0;
    return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
    ENTER(cuTensorMapEncodeTiled);
    return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeIm2col(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const int*, const int*, cuuint32_t, cuuint32_t,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    ENTER(cuTensorMapEncodeIm2col);
    return CUDA_SUCCESS;
}
CUresult cuTensorMapReplaceAddress(CUtensorMap*, void*) {
    ENTER(cuTensorMapReplaceAddress);
    return CUDA_SUCCESS;
}
CUresult cuLinkCreate(unsigned, CUjit_option*, void**, CUlinkState* link) {
    ENTER(cuLinkCreate);
    *link = new_handle<CUlinkState>();
    return CUDA_SUCCESS;
}
CUresult cuLinkAddData(CUlinkState, CUjitInputType, void*, size_t, const char*, unsigned, CUjit_option*,
                       void**) {
    ENTER(cuLinkAddData);
    return CUDA_SUCCESS;
}
CUresult cuLinkComplete(CUlinkState, void** image, size_t* bytes) {
    ENTER(cuLinkComplete);
    static char made[] = "made";
    *image = made;
    *bytes = sizeof made;
    return CUDA_SUCCESS;
}
CUresult cuLinkDestroy(CUlinkState) {
    ENTER(cuLinkDestroy);
    return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream) {
    ENTER(cuStreamSynchronize);
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    ENTER(cuDeviceGetAttribute);
    *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? multiprocessors : 1;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
    ENTER(cuDeviceGetName);
    std::strncpy(name, "null", static_cast<size_t>(length));
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice) {
    ENTER(cuDeviceGetUuid);
    std::memset(uuid, 7, sizeof *uuid);
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
    ENTER(cuDeviceTotalMem);
    *bytes = size_t{64} << 30;
    return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) {
    ENTER(cuDriverGetVersion);
    *version = 13000;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
    ENTER(cuCtxGetLimit);
    *value = (limit == CU_LIMIT_STACK_SIZE ? stack_bytes : heap_bytes).load();
    return CUDA_SUCCESS;
}
CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    ENTER(cuCtxSetLimit);
    (limit == CU_LIMIT_STACK_SIZE ? stack_bytes : heap_bytes).store(value);
    return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(size_t* free, size_t* total) {
    ENTER(cuMemGetInfo);
    *total = size_t{64} << 30;
    *free = *total - mapped_bytes.load();
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t, CUdeviceptr, unsigned long long) {
    ENTER(cuMemAddressReserve);
    *address = next_address.fetch_add(size);
    return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr, size_t) {
    ENTER(cuMemAddressFree);
    return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*,
                     unsigned long long) {
    ENTER(cuMemCreate);
    ++allocations;
    *handle = next_handle.fetch_add(1);
    return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle) {
    ENTER(cuMemRelease);
    --allocations;
    return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr, size_t size, size_t, CUmemGenericAllocationHandle, unsigned long long) {
    ENTER(cuMemMap);
    ++mappings;
    mapped_bytes += size;
    return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr, size_t size) {
    ENTER(cuMemUnmap);
    --mappings;
    mapped_bytes -= size;
    return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
    ENTER(cuMemSetAccess);
    return CUDA_SUCCESS;
}
CUresult cuMemHostRegister(void*, size_t, unsigned) {
    ENTER(cuMemHostRegister);
    ++registrations;
    return CUDA_SUCCESS;
}
CUresult cuMemHostUnregister(void*) {
    ENTER(cuMemHostUnregister);
    --registrations;
    return CUDA_SUCCESS;
}
// The device sees host memory where the host does: that is how writes reach it.
CUresult cuMemHostGetDevicePointer(CUdeviceptr* device, void* host, unsigned) {
    ENTER(cuMemHostGetDevicePointer);
    *device = reinterpret_cast<CUdeviceptr>(host);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void*, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyHtoDAsync);
    return submit(stream, {Item::work, Function::cuMemcpyHtoDAsync_, to, bytes, nullptr});
}
CUresult cuMemcpyDtoHAsync(void*, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyDtoHAsync);
    return submit(stream, {Item::work, Function::cuMemcpyDtoHAsync_, from, bytes, nullptr});
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyDtoDAsync);
    return submit(stream, {Item::work, Function::cuMemcpyDtoDAsync_, to, bytes, nullptr});
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char, size_t count, CUstream stream) {
    ENTER(cuMemsetD8Async);
    return submit(stream, {Item::work, Function::cuMemsetD8Async_, to, count, nullptr});
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short, size_t count, CUstream stream) {
    ENTER(cuMemsetD16Async);
    return submit(stream, {Item::work, Function::cuMemsetD16Async_, to, count, nullptr});
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned, size_t count, CUstream stream) {
    ENTER(cuMemsetD32Async);
    return submit(stream, {Item::work, Function::cuMemsetD32Async_, to, count, nullptr});
}

CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*,
                           void**, unsigned) {
    ENTER(cuLibraryLoadData);
    if (on_compile) on_compile();
    ++modules;
    *library = new_handle<CUlibrary>();
    return CUDA_SUCCESS;
}
CUresult cuLibraryGetModule(CUmodule* module, CUlibrary) {
    ENTER(cuLibraryGetModule);
    *module = new_handle<CUmodule>();
    return CUDA_SUCCESS;
}
CUresult cuLibraryUnload(CUlibrary) {
    ENTER(cuLibraryUnload);
    --modules;
    return CUDA_SUCCESS;
}
// A kernel of any name but "missing".
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
    ENTER(cuModuleGetFunction);
    *function = new_handle<CUfunction>();
    return std::strcmp(name, "missing") == 0 ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
CUresult cuModuleGetGlobal(CUdeviceptr* address, size_t* bytes, CUmodule, const char* name) {
    ENTER(cuModuleGetGlobal);
    *address = next_address.fetch_add(4096);
    *bytes = 256;
    if (std::strcmp(name, "managed") == 0) managed_address = *address;
    return std::strcmp(name, "missing") == 0 ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
// Only whether an address is a managed variable's.
CUresult cuPointerGetAttribute(void* value, CUpointer_attribute, CUdeviceptr address) {
    ENTER(cuPointerGetAttribute);
    *static_cast<unsigned*>(value) = address == managed_address ? 1 : 0;
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction) {
    ENTER(cuFuncGetAttribute);
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? max_threads : 0;
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) {
    ENTER(cuFuncSetAttribute);
    return CUDA_SUCCESS;
}
CUresult cuFuncLoad(CUfunction) {
    ENTER(cuFuncLoad);
    return CUDA_SUCCESS;
}
CUresult cuFuncGetParamInfo(CUfunction, size_t index, size_t* offset, size_t* size) {
    ENTER(cuFuncGetParamInfo);
    *offset = 0;
    *size = parameter_bytes;
    return index == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuFuncGetName(const char** name, CUfunction) {
    ENTER(cuFuncGetName);
    *name = "kernel";
    return CUDA_SUCCESS;
}
CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule) {
    ENTER(cuModuleGetFunctionCount);
    *count = 2;
    return CUDA_SUCCESS;
}
CUresult cuModuleEnumerateFunctions(CUfunction* found, unsigned count, CUmodule) {
    ENTER(cuModuleEnumerateFunctions);
    for (unsigned i = 0; i < count; ++i) found[i] = new_handle<CUfunction>();
    return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, size_t) {
    ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    *blocks = 4;
    return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction, int, size_t,
                                                              unsigned) {
    ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
    *blocks = 4;
    return CUDA_SUCCESS;
}
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction, int, int) {
    ENTER(cuOccupancyAvailableDynamicSMemPerBlock);
    *bytes = 49152;
    return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig*) {
    ENTER(cuOccupancyMaxActiveClusters);
    *clusters = 8;
    return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxPotentialClusterSize(int* blocks, CUfunction, const CUlaunchConfig*) {
    ENTER(cuOccupancyMaxPotentialClusterSize);
    *blocks = 8;
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned grid, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, CUstream stream, void**, void**) {
    ENTER(cuLaunchKernel);
    return submit(
        stream, {Item::work, Function::cuLaunchKernel_, reinterpret_cast<uint64_t>(function), grid, nullptr});
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void**, void**) {
    ENTER(cuLaunchKernelEx);
    return submit(config->hStream, {Item::work, Function::cuLaunchKernelEx_,
                                    reinterpret_cast<uint64_t>(function), config->numAttrs, nullptr});
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned, int) {
    ++streams;
    *stream = reinterpret_cast<CUstream>(new Stream());
    return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
    --streams;
    forget(stream);
    return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream stream) {
    ENTER(cuStreamQuery);
    return query(stream);
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
    ENTER(cuStreamWaitEvent);
    return submit(stream, {Item::wait_event, Function::cuStreamWaitEvent_, reinterpret_cast<uint64_t>(event),
                           0, event_of(event)});
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned) {
    ENTER(cuStreamWriteValue64);
    return submit(stream, {Item::write, Function::cuStreamWriteValue64_, address, value, nullptr});
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned) {
    ENTER(cuStreamWaitValue64);
    return submit(stream, {Item::wait_value, Function::cuStreamWaitValue64_, address, value, nullptr});
}
// Words of 8 bytes; of the conditions GEQ and EQ.
CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* list, unsigned) {
    ENTER(cuStreamBatchMemOp);
    for (unsigned i = 0; i < count; ++i) {
        const bool writes = list[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        if (!writes && list[i].operation != CU_STREAM_MEM_OP_WAIT_VALUE_64) return CUDA_ERROR_INVALID_VALUE;
        const bool equal = list[i].waitValue.flags == CU_STREAM_WAIT_VALUE_EQ;
        const Item::Kind kind = writes ? Item::write : equal ? Item::wait_equal : Item::wait_value;
        submit(stream, {kind, Function::cuStreamBatchMemOp_, list[i].waitValue.address,
                        list[i].waitValue.value64, nullptr});
    }
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
    ENTER(cuEventCreate);
    ++events;
    *event = new_event();
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent) {
    ENTER(cuEventDestroy);
    --events;
    return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
    ENTER(cuEventRecord);
    return submit(stream, {Item::record_event, Function::cuEventRecord_, reinterpret_cast<uint64_t>(event), 0,
                           event_of(event)});
}
CUresult cuEventQuery(CUevent event) {
    ENTER(cuEventQuery);
    return query(event);
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
    ENTER(cuEventElapsedTime);
    *milliseconds = elapsed.load();
    return CUDA_SUCCESS;
}

}  // extern "C"

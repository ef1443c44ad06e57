// Stream memory operations: a stream writes a word, or waits for one.
#include "command.hpp"

using namespace fikit::sim;

namespace {

constexpr unsigned batch_most = 256;

CUresult submit(CUstream handle, ValuesCommand command) {
    return with_stream(handle,
                       [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           command.context = stream.context->handle;
                           const CUresult result = check(driver, command);
                           return result != CUDA_SUCCESS ? result : issue(driver, stream, std::move(command));
                       });
}

CUresult write_value(CUstream stream, CUdeviceptr address, std::uint64_t value, bool wide, unsigned flags) {
    CUstreamBatchMemOpParams entry{};
    entry.writeValue.operation = wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
    entry.writeValue.address = address;
    entry.writeValue.value64 = value;
    entry.writeValue.flags = flags;
    return submit(stream, {{entry}});
}

CUresult wait_value(CUstream stream, CUdeviceptr address, std::uint64_t value, bool wide, unsigned flags) {
    CUstreamBatchMemOpParams entry{};
    entry.waitValue.operation = wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
    entry.waitValue.address = address;
    entry.waitValue.value64 = value;
    entry.waitValue.flags = flags;
    return submit(stream, {{entry}});
}

CUresult batch(CUstream stream, unsigned count, CUstreamBatchMemOpParams* list, unsigned flags) {
    if (flags != 0 || count > batch_most || (count > 0 && list == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, {{list, list + count}});
}

}  // namespace

extern "C" {

// The first versions are not served: they need a setting of the driver that is off by default
// (CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1).
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return write_value(stream, address, value, false, flags);
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return write_value(stream, address, value, true, flags);
}
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return wait_value(stream, address, value, false, flags);
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return wait_value(stream, address, value, true, flags);
}
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* list,
                               unsigned int flags) {
    return batch(stream, count, list, flags);
}

}  // extern "C"

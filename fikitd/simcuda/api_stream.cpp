// Streams, stream memory operations and host functions.
#include "driver.hpp"

using namespace fikit::sim;

namespace {

CUresult create(CUstream* handle, unsigned flags, int priority) {
    return with_context([&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        if (handle == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        auto stream = std::make_shared<Stream>();
        stream->context = &context;
        stream->flags = flags;
        stream->priority = std::clamp(priority, model::priority_highest, model::priority_lowest);
        stream->id = driver.next_id++;
        stream->partition = context.legacy.partition;
        if (context.green != nullptr) stream->green = reinterpret_cast<CUgreenCtx>(context.green);
        context.streams.insert(stream.get());
        *handle = driver.streams.add(std::move(stream));
        return CUDA_SUCCESS;
    });
}

template <typename Work>
CUresult submit(Driver& driver, Stream& stream, Work work) {
    auto operation = std::make_shared<Operation>();
    operation->work = std::move(work);
    driver.enqueue(stream, operation);
    return CUDA_SUCCESS;
}

CUresult check_value(Driver& driver, CUdeviceptr address, bool wide) {
    const std::size_t bytes = wide ? 8 : 4;
    if (address == 0 || address % bytes != 0 || !driver.space.covers(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult check_write(Driver& driver, CUdeviceptr address, bool wide, unsigned flags) {
    if ((flags & ~static_cast<unsigned>(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return check_value(driver, address, wide);
}

CUresult check_wait(Driver& driver, CUdeviceptr address, bool wide, unsigned flags) {
    if ((flags & ~(3U | static_cast<unsigned>(CU_STREAM_WAIT_VALUE_FLUSH))) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    return check_value(driver, address, wide);
}

CUresult write_value(CUstream handle, CUdeviceptr address, std::uint64_t value, bool wide, unsigned flags) {
    return with_stream(
        handle, [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
            const CUresult result = check_write(driver, address, wide, flags);
            return result != CUDA_SUCCESS ? result : submit(driver, stream, WriteValue{address, value, wide});
        });
}

CUresult wait_value(CUstream handle, CUdeviceptr address, std::uint64_t value, bool wide, unsigned flags) {
    return with_stream(
        handle, [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
            const CUresult result = check_wait(driver, address, wide, flags);
            return result != CUDA_SUCCESS ? result
                                          : submit(driver, stream, WaitValue{address, value, wide, flags});
        });
}

CUresult batch(CUstream handle, unsigned count, CUstreamBatchMemOpParams* list, unsigned flags) {
    return with_stream(
        handle, [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
            if (flags != 0 || count > 256 || (count > 0 && list == nullptr)) return CUDA_ERROR_INVALID_VALUE;
            // All are checked before any is submitted.
            for (const bool really : {false, true}) {
                for (unsigned index = 0; index < count; ++index) {
                    const CUstreamBatchMemOpParams& entry = list[index];
                    CUresult result = CUDA_SUCCESS;
                    switch (entry.operation) {
                        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
                        case CU_STREAM_MEM_OP_WAIT_VALUE_64: {
                            const auto& wait = entry.waitValue;
                            const bool wide = entry.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
                            if (!really)
                                result = check_wait(driver, wait.address, wide, wait.flags);
                            else
                                submit(driver, stream,
                                       WaitValue{wait.address, wide ? wait.value64 : wait.value, wide,
                                                 wait.flags});
                            break;
                        }
                        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
                        case CU_STREAM_MEM_OP_WRITE_VALUE_64: {
                            const auto& write = entry.writeValue;
                            const bool wide = entry.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
                            if (!really)
                                result = check_write(driver, write.address, wide, write.flags);
                            else
                                submit(driver, stream,
                                       WriteValue{write.address, wide ? write.value64 : write.value, wide});
                            break;
                        }
                        case CU_STREAM_MEM_OP_BARRIER:
                            break;  // nothing is ever reordered here
                        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
                            result = CUDA_ERROR_NOT_SUPPORTED;
                            break;
                        default:
                            result = CUDA_ERROR_INVALID_VALUE;
                    }
                    if (result != CUDA_SUCCESS) return result;
                }
            }
            return CUDA_SUCCESS;
        });
}

CUresult not_capturing(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
    return with_stream(handle, [&](auto&&...) -> CUresult {
        if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *status = CU_STREAM_CAPTURE_STATUS_NONE;
        if (id != nullptr) *id = 0;
        return CUDA_SUCCESS;
    });
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) { return create(stream, flags, 0); }
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
    return create(stream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
    return with_context([&](Driver& driver, Driver::Lock&, Context&, SimulatedDevice&) -> CUresult {
        Stream* stream = driver.streams.find(handle);
        if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        // What was submitted runs on, as operations need no stream; the legacy stream and whoever
        // synchronises the context go on waiting for it.
        if (stream->tail && !stream->tail->done) {
            if (stream->blocking()) {
                driver.enqueue(stream->context->legacy, std::make_shared<Operation>());
            } else {
                std::vector<OperationPtr>& orphans = stream->context->orphans;
                std::erase_if(orphans, [](const OperationPtr& orphan) { return orphan->done; });
                orphans.push_back(stream->tail);
            }
        }
        stream->context->streams.erase(stream);
        driver.streams.remove(stream);
        return CUDA_SUCCESS;
    });
}
CUresult cuStreamDestroy(CUstream handle) { return cuStreamDestroy_v2(handle); }

CUresult cuStreamQuery(CUstream handle) {
    return with_stream(handle,
                       [](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           return driver.visible(stream.tail) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
                       });
}

CUresult cuStreamSynchronize(CUstream handle) {
    return with_stream(handle,
                       [](Driver& driver, Driver::Lock& lock, Stream& stream, SimulatedDevice& device) {
                           const OperationPtr last = stream.tail;
                           return driver.wait(lock, device, last);
                       });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
    return with_stream(handle,
                       [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           if ((flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0)
                               return CUDA_ERROR_INVALID_VALUE;
                           const Event* event = driver.events.find(event_handle);
                           if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                           if (event->record && !event->record->done) {
                               driver.enqueue(stream, std::make_shared<Operation>(), event->record);
                           }
                           return CUDA_SUCCESS;
                       });
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data, unsigned int flags) {
    return with_stream(
        handle, [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
            if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
            return submit(driver, stream, HostCall{[=] { callback(handle, CUDA_SUCCESS, data); }});
        });
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
    return with_stream(handle,
                       [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
                           return submit(driver, stream, HostCall{[=] { function(data); }});
                       });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
    return with_stream(handle, [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
        if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *priority = stream.priority;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) {
    return with_stream(handle, [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
        if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *flags = stream.flags;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
    return with_stream(handle, [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
        if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *id = stream.id;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
    return with_stream(handle, [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
        if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *context = reinterpret_cast<CUcontext>(stream.context);
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext* context, CUgreenCtx* green) {
    return with_stream(handle, [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
        if (context == nullptr || green == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *green = stream.green;
        *context = stream.green != nullptr ? nullptr : reinterpret_cast<CUcontext>(stream.context);
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
    return with_stream(handle, [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
        if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *device = stream.context->device;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx* green) {
    return with_stream(handle, [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
        if (green == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *green = stream.green;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return write_value(stream, address, value, false, flags);
}
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return write_value(stream, address, value, false, flags);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return write_value(stream, address, value, true, flags);
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return write_value(stream, address, value, true, flags);
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return wait_value(stream, address, value, false, flags);
}
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
    return wait_value(stream, address, value, false, flags);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return wait_value(stream, address, value, true, flags);
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
    return wait_value(stream, address, value, true, flags);
}
CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* list,
                            unsigned int flags) {
    return batch(stream, count, list, flags);
}
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* list,
                               unsigned int flags) {
    return batch(stream, count, list, flags);
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    return not_capturing(stream, status, nullptr);
}
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
    return not_capturing(stream, status, id);
}
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph*,
                                   const CUgraphNode**, size_t*) {
    return not_capturing(stream, status, id);
}
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph*,
                                   const CUgraphNode**, const CUgraphEdgeData**, size_t*) {
    return not_capturing(stream, status, id);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return with_driver([&](Driver&, Driver::Lock&) -> CUresult {
        if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
            *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        std::swap(current, *mode);
        return CUDA_SUCCESS;
    });
}

}  // extern "C"

// Answers to calls (shim/calls.h), on a worker, while the session issues nothing; an allocation that needs no
// driver call is answered by the dispatch thread (admit.cpp). The dispatch table is made from the list of
// calls: one without a handler here does not compile.
#include <calls.h>

#include <algorithm>
#include <cstring>
#include <descriptors.hpp>
#include <utility>

#include "core.hpp"
#include "images.hpp"
#include "program_calls.hpp"

namespace fikit {

class CallHandler {
  public:
    // `at_once`: on the dispatch thread, without the driver.
    CallHandler(Core& core, Session& session, bool at_once)
        : core_(core),
          driver_(core.driver_),
          session_(session),
          reply_(session.inbox.data() + FIKIT_REPLY_OFFSET),
          at_once_(at_once),
          program_calls_(core, session, extra_, reply_, bytes_) {}

    // False: not answered; the call is to be made again.
    bool answer() {
        const auto& call = session_.head->as<fikit_call_record>();
        CUresult status = CUDA_ERROR_NOT_SUPPORTED;
        try {
            status = answer(call);
        } catch (const std::bad_alloc&) {
            status = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (again_ || is_to_wait(status)) return false;
        fikit_inbox* inbox = session_.inbox_header();
        inbox->call_status = static_cast<int32_t>(status);
        inbox->call_bytes = bytes_;
        __atomic_store_n(&inbox->call_done, ++session_.calls_answered, __ATOMIC_RELEASE);
        session_.wake();
        if (is_sticky(status)) core_.suspected_.store(true, std::memory_order_release);
        return true;
    }

  private:
    // The first time that the device has no room, the dispatch thread sees to it that what is on its way back
    // is there, and that nobody keeps any.
    bool is_to_wait(CUresult status) {
        const bool full = std::exchange(session_.device_was_full, false);
        session_.short_of_memory = full && status == CUDA_ERROR_OUT_OF_MEMORY && !session_.short_of_memory;
        return session_.short_of_memory;
    }

    CUresult answer(const fikit_call_record& call) {
        const Operation& asked = *session_.head;
        switch (call.call) {
#define FIKIT_ANSWER(number, name)                                                        \
    case number: {                                                                        \
        const auto request = asked.request<fikit_request_##name>();                       \
        fikit_reply_##name reply{};                                                       \
        bytes_ = sizeof reply;                                                            \
        extra_ = {asked.payload() + sizeof request, call.payload_bytes - sizeof request}; \
        const CUresult status = name(request, reply);                                     \
        std::memcpy(reply_, &reply, sizeof reply);                                        \
        return status;                                                                    \
    }
            FIKIT_CALLS(FIKIT_ANSWER)
#undef FIKIT_ANSWER
            default:
                return CUDA_ERROR_NOT_SUPPORTED;
        }
    }

#define FIKIT_FORWARD(number, name)                                                 \
    CUresult name(const fikit_request_##name& request, fikit_reply_##name& reply) { \
        return program_calls_.name(request, reply);                                 \
    }
    FIKIT_PROGRAM_CALLS(FIKIT_FORWARD)
#undef FIKIT_FORWARD

    template <class Reply>
    uint8_t* behind(const Reply&) {
        return reply_ + sizeof(Reply);
    }

    CUresult device_attributes(const fikit_request_device_attributes&, fikit_reply_device_attributes& reply) {
        for (int id = 0; id < FIKIT_DEVICE_ATTRIBUTES; ++id) {
            int value = 0;
            const CUresult result =
                driver_.cuDeviceGetAttribute_(&value, static_cast<CUdevice_attribute>(id), core_.device_);
            reply.attribute[id] = result == CUDA_SUCCESS ? value : INT32_MIN;
        }
        size_t bytes = 0;
        CUresult result = driver_.cuDeviceTotalMem_(&bytes, core_.device_);
        reply.memory_bytes = bytes;
        if (result == CUDA_SUCCESS)
            result = driver_.cuDeviceGetUuid_(reinterpret_cast<CUuuid*>(reply.uuid), core_.device_);
        if (result == CUDA_SUCCESS)
            result = driver_.cuDeviceGetName_(reply.name, FIKIT_DEVICE_NAME, core_.device_);
        if (result == CUDA_SUCCESS) result = driver_.cuDriverGetVersion_(&reply.driver_version);
        reply.greatest_priority = core_.greatest_priority_;
        reply.addresses = session_.arena->addresses();
        reply.address_bytes = session_.arena->address_bytes();
        return result;
    }

    CUresult memory_allocate(const fikit_request_memory_allocate& request,
                             fikit_reply_memory_allocate& reply) {
        if (session_.buffers.size() >= core_.settings_.most_buffers) return CUDA_ERROR_OUT_OF_MEMORY;
        CUdeviceptr address = 0;
        const auto take = [&](uint64_t limit) {
            if (at_once_) {
                again_ = !session_.arena->take(request.size, limit, address, reply.size);
                return CUDA_SUCCESS;
            }
            return session_.arena->allocate(request.size, limit, address, reply.size);
        };
        const CUresult result = core_.within_limits(session_, Arena::growth(request.size), !at_once_, take);
        if (again_ || result != CUDA_SUCCESS) return result;
        reply.address = address;
        session_.buffers[address] = {request.size, Buffer::no_module};
        return result;
    }

    CUresult memory_information(const fikit_request_memory_information&,
                                fikit_reply_memory_information& reply) {
        // The tenant's other sessions use what is left of the tenant's; the total is the same for all of
        // them.
        if (session_.tenant_limit != 0) {
            const std::lock_guard lock(core_.memory_mutex_);
            core_.ledger_.forget_ended();
        }
        const uint64_t own = session_.memory_limit != 0 ? session_.memory_limit : session_.tenant_limit;
        // What was freed goes once the work before has ended, and is free to be had: who wants it waits.
        std::vector<CUdeviceptr> freed;
        for (const Pending<CUdeviceptr>& pending : session_.frees) freed.push_back(pending.what);
        const uint64_t returning = session_.arena->released_by(std::move(freed));
        const uint64_t limit = core_.memory_limit_of(session_);
        const uint64_t used = session_.arena->used_bytes() - returning;
        const MemoryLeft left = core_.memory_left(own, limit < own ? own - limit + used : used, returning);
        reply.free = left.free;
        reply.total = left.total;
        return left.result;
    }

    CUresult host_allocate(const fikit_request_host_allocate& request, fikit_reply_host_allocate& reply) {
        SharedMemory memory;
        CUresult result = core_.may_pin(session_, request.handle, request.size);
        if (result != CUDA_SUCCESS) return result;
        reply.size = (request.size + FIKIT_PAGE - 1) / FIKIT_PAGE * FIKIT_PAGE;
        if (!memory.create("fikit-pinned", reply.size, false, core_.pinned_place(reply.size)))
            return CUDA_ERROR_OUT_OF_MEMORY;
        const Descriptor file = memory.take_descriptor();  // the tenant's: nobody here needs it again
        result = core_.pin(session_, request.handle, std::move(memory), reply.device_address);
        if (result != CUDA_SUCCESS || send_descriptor(session_.lifeline.get(), file.get())) return result;
        PinnedBuffer buffer = core_.unpin(session_, request.handle);
        session_.host_bytes -= buffer.memory.size();
        core_.unregister_when_idle(std::move(buffer.memory));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    // In two turns: to compile the image takes long and keeps nobody from anything; what then brings it to
    // the GPU does, and is let in by may_load.
    CUresult module_load(const fikit_request_module_load& request, fikit_reply_module_load& reply) {
        if (request.handle >= FIKIT_MAX_MODULES) return CUDA_ERROR_INVALID_VALUE;
        if (session_.module_of(request.handle) != nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (request.handle >= session_.modules.size()) session_.modules.resize(request.handle + 1);
        std::unique_ptr<Compiled> compiled = std::move(session_.compiled);
        const bool first = compiled == nullptr;
        if (first) compiled = std::make_unique<Compiled>(extra_);
        SessionModule& module = compiled->module;
        const CUresult result = first ? compile(request, *compiled) : bring(*compiled);
        if (first && result == CUDA_SUCCESS) {
            session_.compiled = std::move(compiled);
            again_ = true;
            return result;
        }
        bytes_ += compiled->jit.say(behind(reply), reply);
        if (result == CUDA_SUCCESS)
            session_.modules[request.handle] = module;
        else
            core_.unload_when_idle(module);
        return result;
    }

    // To less than the GPU has: all sessions are limited to that.
    bool is_limited() const {
        size_t all = 0;
        driver_.cuDeviceTotalMem_(&all, core_.device_);
        return (session_.memory_limit != 0 && session_.memory_limit < all) ||
               (session_.tenant_limit != 0 && session_.tenant_limit < all);
    }

    // To the GPU, if its variables are within the limits.
    CUresult bring(Compiled& compiled) {
        SessionModule& module = compiled.module;
        if (compiled.variable_bytes > 0) {
            const std::lock_guard lock(core_.memory_mutex_);
            // Without a limit the driver will say so.
            const bool too_many = compiled.variable_bytes == too_many_bytes;
            const uint64_t bytes = too_many && !is_limited() ? 0 : compiled.variable_bytes;
            const CUresult result = core_.within_limits(
                session_, bytes, true, [&](uint64_t limit) { return session_.arena->charge(bytes, limit); });
            if (result != CUDA_SUCCESS) return result;
            module.variable_bytes = bytes;
        }
        const CUresult result = driver_.cuLibraryGetModule_(&module.module, module.library);
        if (result != CUDA_SUCCESS) leave(module);
        return result;
    }

    // Until it is unloaded its variables are the tenant's: nothing else counts them any more.
    void leave(const SessionModule& module) {
        if (module.variable_bytes == 0) return;
        const std::lock_guard lock(core_.memory_mutex_);
        core_.ledger_.change(static_cast<int64_t>(module.variable_bytes));
        session_.arena->discharge(module.variable_bytes);
        core_.account_memory(session_);
    }

    CUresult compile(const fikit_request_module_load& request, Compiled& compiled) {
        Jit& jit = compiled.jit;
        SessionModule& module = compiled.module;
        std::vector<uint8_t> image;
        const CUresult copied = core_.copy_image(session_, request, image);
        if (copied != CUDA_SUCCESS) return copied;
        module.counted = core_.count_host(image.size());
        if (module.counted == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
        image.reserve(image.size() + 1 + extra_.size());
        image.push_back(0);  // PTX ends here whatever it says
        if (const char* wrong = check_image(image); wrong != nullptr) {
            jit.complain(wrong);
            return CUDA_ERROR_INVALID_IMAGE;
        }
        int major = 0;
        if (is_limited())
            driver_.cuDeviceGetAttribute_(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                          core_.device_);
        compiled.variable_bytes = std::min(variable_bytes(image, major), too_many_bytes);
        const CUresult result = driver_.cuLibraryLoadData_(&module.library, image.data(), jit.options(),
                                                           jit.values(), jit.count(), nullptr, nullptr, 0);
        // What is known of its kernels is of the machine code, which the options make another.
        image.insert(image.end(), extra_.begin(), extra_.end());
        module.hash = hash_bytes(image.data(), image.size());
        return result;
    }

    // Waits for nothing: the tenant's library sends it once the session's work is done.
    CUresult module_unload(const fikit_request_module_unload& request, fikit_reply_module_unload&) {
        if (session_.module_of(request.handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        const SessionModule module = std::exchange(session_.modules[request.handle], {});
        program_calls_.forget_graphs_of(static_cast<uint16_t>(request.handle));
        for (SessionFunction& function : session_.functions)
            if (function.module == request.handle) function.function = nullptr;
        std::erase_if(session_.buffers,
                      [&](const auto& buffer) { return buffer.second.module == request.handle; });
        leave(module);
        core_.unload_when_idle(module);
        return CUDA_SUCCESS;
    }

    // The symbol behind a request; empty when its length is wrong, or it has an end before: the driver would
    // find what is before that, for any number of names.
    std::string symbol(uint32_t bytes) const {
        if (bytes == 0 || bytes > extra_.size() || bytes > FIKIT_SYMBOL_NAME) return {};
        const std::string name(reinterpret_cast<const char*>(extra_.data()), bytes);
        return name.find('\0') == name.npos ? name : std::string();
    }

    CUresult module_global(const fikit_request_module_global& request, fikit_reply_module_global& reply) {
        const CUmodule module = session_.module_of(request.module);
        if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        const std::string name = symbol(request.name_bytes);
        if (name.empty()) return CUDA_ERROR_INVALID_VALUE;
        CUdeviceptr address = 0;
        size_t size = 0;
        const CUresult result = driver_.cuModuleGetGlobal_(&address, &size, module, name.c_str());
        if (result != CUDA_SUCCESS) return result;
        // The driver keeps a managed variable for the host of this process; the tenant's never sees it.
        unsigned managed = 0;
        driver_.cuPointerGetAttribute_(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
        if (managed != 0) return CUDA_ERROR_NOT_SUPPORTED;
        session_.buffers[address] = {size, request.module};
        reply.address = address;
        reply.size = size;
        return CUDA_SUCCESS;
    }

    CUresult function_get(const fikit_request_function_get& request, fikit_reply_function_get& reply) {
        const CUmodule module = session_.module_of(request.module);
        if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        const std::string name = symbol(request.name_bytes);
        if (name.empty() || request.handle >= FIKIT_MAX_FUNCTIONS) return CUDA_ERROR_INVALID_VALUE;
        SessionFunction function;
        CUresult result = driver_.cuModuleGetFunction_(&function.function, module, name.c_str());
        // Loaded now rather than lazily at its first launch, which would stop the dispatch thread.
        if (result == CUDA_SUCCESS) result = driver_.cuFuncLoad_(function.function);
        if (result != CUDA_SUCCESS) return result;
        constexpr size_t most =
            (FIKIT_MAX_REPLY_BYTES - sizeof(fikit_reply_function_get)) / sizeof(fikit_parameter);
        auto* parameter = reinterpret_cast<fikit_parameter*>(behind(reply));
        for (size_t i = 0; i < most; ++i) {
            size_t offset = 0, size = 0;
            if (driver_.cuFuncGetParamInfo_(function.function, i, &offset, &size) != CUDA_SUCCESS) break;
            parameter[i] = {static_cast<uint32_t>(offset), static_cast<uint32_t>(size)};
            reply.parameters = static_cast<uint32_t>(i + 1);
            reply.parameter_bytes = std::max(reply.parameter_bytes, static_cast<uint32_t>(offset + size));
        }
        bytes_ += reply.parameters * static_cast<uint32_t>(sizeof(fikit_parameter));
        if (reply.parameter_bytes > FIKIT_MAX_PARAMETERS) return CUDA_ERROR_NOT_SUPPORTED;
        function.module = static_cast<uint16_t>(request.module);
        function.parameter_bytes = reply.parameter_bytes;
        result = attributes(function.function, reply);
        if (result != CUDA_SUCCESS) return result;
        const int32_t threads = reply.attribute[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
        function.max_threads = static_cast<uint16_t>(std::clamp<int32_t>(threads, 0, UINT16_MAX));
        const uint64_t module_hash = session_.modules[request.module].hash;
        function.hash = mix(module_hash, hash_bytes(name.data(), name.size()));
        function.name = core_.name_index({module_hash, name});
        if (request.handle >= session_.functions.size()) session_.functions.resize(request.handle + 1);
        session_.functions[request.handle] = function;
        return CUDA_SUCCESS;
    }

    CUresult attributes(CUfunction function, fikit_reply_function_get& reply) {
        for (int id = 0; id < FIKIT_FUNCTION_ATTRIBUTES; ++id) {
            int value = 0;
            const CUresult result =
                driver_.cuFuncGetAttribute_(&value, static_cast<CUfunction_attribute>(id), function);
            reply.attribute[id] = result == CUDA_SUCCESS ? value : INT32_MIN;
            if (result != CUDA_SUCCESS && id == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) return result;
        }
        return CUDA_SUCCESS;
    }

    SessionFunction* function_of(uint32_t handle) {
        if (handle >= session_.functions.size() || session_.functions[handle].function == nullptr)
            return nullptr;
        return &session_.functions[handle];
    }

    CUresult function_set_attribute(const fikit_request_function_set_attribute& request,
                                    fikit_reply_function_set_attribute&) {
        SessionFunction* function = function_of(request.function);
        if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        return driver_.cuFuncSetAttribute_(
            function->function, static_cast<CUfunction_attribute>(request.attribute), request.value);
    }

    CUresult function_occupancy(const fikit_request_function_occupancy& request,
                                fikit_reply_function_occupancy& reply) {
        SessionFunction* function = function_of(request.function);
        if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (request.block_threads == 0 || request.block_threads > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
        return driver_.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_(
            &reply.blocks_per_multiprocessor, function->function, static_cast<int>(request.block_threads),
            request.shared_bytes, request.flags);
    }

    CUresult event_elapsed(const fikit_request_event_elapsed& request, fikit_reply_event_elapsed& reply) {
        const auto& events = session_.events;
        for (const uint32_t handle : {request.start, request.end})
            if (handle >= events.size() || !events[handle].recorded || !events[handle].timing)
                return CUDA_ERROR_INVALID_HANDLE;
        float milliseconds = 0;
        const CUresult result = driver_.cuEventElapsedTime_(&milliseconds, events[request.start].event,
                                                            events[request.end].event);
        reply.milliseconds = static_cast<double>(milliseconds);
        return result;
    }

    Core& core_;
    const Driver& driver_;
    Session& session_;
    uint8_t* reply_;
    bool at_once_;
    bool again_ = false;
    uint32_t bytes_ = 0;
    std::span<const uint8_t> extra_;  // what follows the request
    ProgramCalls program_calls_;
};

// False: the call is to be made again.
bool Core::answer_call(Session& session, bool at_once) {
    return CallHandler(*this, session, at_once).answer();
}

CUresult Core::copy_image(Session& session, uint32_t is_offered, uint64_t offset, uint64_t size,
                          std::vector<uint8_t>& image) const {
    const TenantDescriptor file = std::exchange(session.offered, {});
    if (is_offered > 1 || size == 0 || size > most_image_bytes) return CUDA_ERROR_INVALID_VALUE;
    if (is_offered == 0) {
        const uint8_t* const from = session.host_memory(0, settings_.staging_bytes, offset, size);
        if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
        image.reserve(size + 1);
        image.assign(from, from + size);
        return CUDA_SUCCESS;
    }
    // The file need not take any memory, but the copy does.
    if (size > settings_.host_limit_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!file) return CUDA_ERROR_INVALID_VALUE;
    image.reserve(size + 1);
    image.resize(size);
    return read_memory(file.get(), offset, image) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

uint32_t Core::name_index(const KernelName& name) {
    const std::lock_guard lock(names_mutex_);
    return names_.index_of(name);
}

}  // namespace fikit

// Records that only change the session's tables: streams, events, memory on its way back.
#include "core.hpp"

namespace fikit {

void Core::manage(Session& session) {
    const fikit_record& record = session.head->record();
    switch (record.op) {
        case FIKIT_OP_STREAM_CREATE: {
            auto& slot = session.streams[record.stream];
            if (slot == nullptr) slot = std::make_unique<SessionStream>();
            const auto& create = session.head->as<fikit_stream>();
            slot->created = true;
            slot->blocking = (create.flags & FIKIT_STREAM_NON_BLOCKING) == 0;
            slot->priority = create.priority;
            break;
        }
        case FIKIT_OP_STREAM_DESTROY:
            // Its lane is kept until its steps are done.
            if (auto& slot = session.streams[record.stream]; slot != nullptr) {
                slot->created = false;
                retire_stream(session, record.stream);
            }
            break;
        case FIKIT_OP_EVENT_DESTROY: {
            const uint32_t handle = session.head->as<fikit_event>().event;
            if (handle < session.events.size() && session.events[handle].event != nullptr) {
                driver_.cuEventDestroy_(session.events[handle].event);
                session.events[handle] = {};
            }
            break;
        }
        case FIKIT_OP_FREE: {
            const CUdeviceptr address = session.head->as<fikit_free>().address;
            auto buffer = session.buffers.find(address);
            if (buffer == session.buffers.end() || buffer->second.module != Buffer::no_module) {
                refuse(session, CUDA_ERROR_INVALID_VALUE, "free: not the address of an allocation");
                break;
            }
            session.buffers.erase(buffer);
            session.frees.push_back({address, session.steps_issued});
            break;
        }
        case FIKIT_OP_HOST_FREE: {
            const auto handle = static_cast<uint32_t>(session.head->as<fikit_free>().address);
            PinnedBuffer buffer = unpin(session, handle);
            if (buffer.registered)
                session.host_frees.push_back({std::move(buffer), session.steps_issued});
            else
                refuse(session, CUDA_ERROR_INVALID_VALUE, "free: no such host buffer");
            break;
        }
        default:
            break;
    }
}

}  // namespace fikit

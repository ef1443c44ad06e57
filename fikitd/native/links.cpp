// The linker: images joined to one, by the driver, for a tenant whose own process has no context.
#include <algorithm>
#include <string>

#include "core.hpp"
#include "images.hpp"
#include "program_calls.hpp"

namespace fikit {

SessionLink::~SessionLink() {
    if (state != nullptr) destroy(state);
}

CUresult ProgramCalls::link_create(const fikit_request_link_create& request, fikit_reply_link_create&) {
    if (request.handle == 0 || request.handle >= FIKIT_MAX_LINKS || session_.links.contains(request.handle))
        return CUDA_ERROR_INVALID_HANDLE;
    auto link = std::make_unique<SessionLink>(driver_.cuLinkDestroy_, extra_);
    const CUresult result =
        driver_.cuLinkCreate_(link->jit.count(), link->jit.options(), link->jit.values(), &link->state);
    if (result != CUDA_SUCCESS) return result;
    session_.links[request.handle] = std::move(link);
    return CUDA_SUCCESS;
}

CUresult ProgramCalls::link_add(const fikit_request_link_add& request, fikit_reply_link_add& reply) {
    const auto found = session_.links.find(request.handle);
    if (found == session_.links.end()) return CUDA_ERROR_INVALID_HANDLE;
    const uint8_t* from = session_.host_memory(request.host_buffer, core_.settings_.staging_bytes,
                                               request.offset, request.size);
    const size_t options = size_t{request.options} * sizeof(fikit_jit_option);
    if (from == nullptr || request.size == 0 || request.options > FIKIT_MAX_JIT_OPTIONS ||
        options > extra_.size() || extra_.size() - options > FIKIT_JIT_NAME)
        return CUDA_ERROR_INVALID_VALUE;
    const auto name_bytes = extra_.subspan(options);
    const std::string name(name_bytes.begin(), name_bytes.end());
    std::vector<uint8_t> image(from, from + request.size);  // the tenant may write on
    image.push_back(0);
    Jit& jit = found->second->jit;
    const auto type = static_cast<CUjitInputType>(request.type);
    const bool headed = type == CU_JIT_INPUT_CUBIN || type == CU_JIT_INPUT_PTX ||
                        type == CU_JIT_INPUT_FATBINARY || type == CU_JIT_INPUT_OBJECT;
    CUresult result = CUDA_ERROR_INVALID_IMAGE;
    if (const char* wrong = headed ? check_image(image) : nullptr; wrong != nullptr) {
        jit.complain(wrong);
    } else {
        // PTX ends with a NUL, the others where they end.
        const size_t size = image.size() - (type == CU_JIT_INPUT_PTX && image[request.size - 1] != 0 ? 0 : 1);
        Jit own(extra_.first(options));
        result = driver_.cuLinkAddData_(found->second->state, type, image.data(), size, name.c_str(),
                                        own.wishes(), own.wished(), own.wished_values());
    }
    bytes_ += jit.say(reply_ + sizeof reply, reply);
    return result;
}

CUresult ProgramCalls::link_complete(const fikit_request_link_complete& request,
                                     fikit_reply_link_complete& reply) {
    const auto found = session_.links.find(request.handle);
    if (found == session_.links.end()) return CUDA_ERROR_INVALID_HANDLE;
    SessionLink& link = *found->second;
    void* image = nullptr;
    size_t size = 0;
    const CUresult result = driver_.cuLinkComplete_(link.state, &image, &size);
    if (result == CUDA_SUCCESS) link.image = {static_cast<const uint8_t*>(image), size};
    reply.size = link.image.size();
    bytes_ += link.jit.say(reply_ + sizeof reply, reply);
    return result;
}

CUresult ProgramCalls::link_read(const fikit_request_link_read& request, fikit_reply_link_read& reply) {
    const auto found = session_.links.find(request.handle);
    if (found == session_.links.end()) return CUDA_ERROR_INVALID_HANDLE;
    const std::span<const uint8_t> image = found->second->image;
    if (request.offset > image.size()) return CUDA_ERROR_INVALID_VALUE;
    const size_t most = std::min<size_t>(request.bytes, FIKIT_MAX_REPLY_BYTES - sizeof reply);
    const auto piece = image.subspan(request.offset, std::min(most, image.size() - request.offset));
    std::copy(piece.begin(), piece.end(), reply_ + sizeof reply);
    reply.bytes = static_cast<uint32_t>(piece.size());
    bytes_ += reply.bytes;
    return CUDA_SUCCESS;
}

CUresult ProgramCalls::link_destroy(const fikit_request_link_destroy& request, fikit_reply_link_destroy&) {
    return session_.links.erase(request.handle) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace fikit

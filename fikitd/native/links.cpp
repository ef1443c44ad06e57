// The linker: images joined to one, by the driver, for a tenant whose own process has no context.
#include <algorithm>
#include <string>

#include "core.hpp"
#include "images.hpp"
#include "jit.hpp"
#include "program_calls.hpp"

namespace fikit {

namespace {

// A linker of the driver's, for one call: calls come on several threads, and what the driver's compiler keeps
// in between is its thread's.
class Linker {
  public:
    Linker(const Driver& driver, std::span<const uint8_t> options) : driver_(driver), jit_(options) {
        result_ = driver_.cuLinkCreate_(jit_.count(), jit_.options(), jit_.values(), &state_);
    }
    Linker(const Linker&) = delete;
    ~Linker() {
        if (state_ != nullptr) driver_.cuLinkDestroy_(state_);
    }

    void add(const LinkPart& part) {
        if (result_ != CUDA_SUCCESS) return;
        Jit own(part.options);
        result_ = driver_.cuLinkAddData_(state_, part.type, const_cast<uint8_t*>(part.image.data()),
                                         part.image.size(), part.name.c_str(), own.wishes(), own.wished(),
                                         own.wished_values());
    }
    void complete(std::vector<uint8_t>& into) {
        void* image = nullptr;
        size_t size = 0;
        if (result_ == CUDA_SUCCESS) result_ = driver_.cuLinkComplete_(state_, &image, &size);
        const auto* const bytes = static_cast<const uint8_t*>(image);
        if (result_ == CUDA_SUCCESS) into.assign(bytes, bytes + size);
    }
    CUresult result() const { return result_; }
    const Jit& jit() const { return jit_; }

  private:
    const Driver& driver_;
    Jit jit_;  // the driver writes its logs
    CUlinkState state_ = nullptr;
    CUresult result_;
};

}  // namespace

CUresult ProgramCalls::link_create(const fikit_request_link_create& request, fikit_reply_link_create&) {
    if (request.handle == 0 || request.handle >= FIKIT_MAX_LINKS || session_.links.contains(request.handle))
        return CUDA_ERROR_INVALID_HANDLE;
    if (extra_.size() > FIKIT_MAX_JIT_OPTIONS * sizeof(fikit_jit_option)) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = Linker(driver_, extra_).result();
    if (result == CUDA_SUCCESS) session_.links[request.handle].options.assign(extra_.begin(), extra_.end());
    return result;
}

// Whether the part is one is found out at once, by a linker that gets it alone.
CUresult ProgramCalls::link_add(const fikit_request_link_add& request, fikit_reply_link_add& reply) {
    const auto found = session_.links.find(request.handle);
    if (found == session_.links.end()) return CUDA_ERROR_INVALID_HANDLE;
    SessionLink& link = found->second;
    const size_t options = size_t{request.options} * sizeof(fikit_jit_option);
    if (request.options > FIKIT_MAX_JIT_OPTIONS || options > extra_.size() ||
        extra_.size() - options > FIKIT_JIT_NAME || request.type >= CU_JIT_NUM_INPUT_TYPES)
        return CUDA_ERROR_INVALID_VALUE;
    if (request.size > most_kept_image_bytes - session_.kept_image_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto type = static_cast<CUjitInputType>(request.type);
    const auto name = extra_.subspan(options);
    LinkPart part = {type, {name.begin(), name.end()}, {}, {}};
    if (const CUresult result = core_.copy_image(session_, request, part.image); result != CUDA_SUCCESS)
        return result;
    part.image.push_back(0);
    part.options.assign(extra_.begin(), extra_.begin() + static_cast<std::ptrdiff_t>(options));
    if (const char* wrong = check_linked(part.image); wrong != nullptr) {
        Jit jit;
        jit.complain(wrong);
        bytes_ += jit.say(reply_ + sizeof reply, reply);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    // PTX ends with a NUL, the others where they end.
    if (type != CU_JIT_INPUT_PTX || part.image[request.size - 1] == 0) part.image.pop_back();
    Linker linker(driver_, link.options);
    linker.add(part);
    bytes_ += linker.jit().say(reply_ + sizeof reply, reply);
    if (linker.result() != CUDA_SUCCESS) return linker.result();
    link.bytes += request.size;
    session_.kept_image_bytes += request.size;
    link.parts.push_back(std::move(part));
    return CUDA_SUCCESS;
}

CUresult ProgramCalls::link_complete(const fikit_request_link_complete& request,
                                     fikit_reply_link_complete& reply) {
    const auto found = session_.links.find(request.handle);
    if (found == session_.links.end()) return CUDA_ERROR_INVALID_HANDLE;
    SessionLink& link = found->second;
    Linker linker(driver_, link.options);
    for (const LinkPart& part : link.parts) linker.add(part);
    linker.complete(link.image);
    reply.size = link.image.size();
    bytes_ += linker.jit().say(reply_ + sizeof reply, reply);
    return linker.result();
}

CUresult ProgramCalls::link_read(const fikit_request_link_read& request, fikit_reply_link_read& reply) {
    const auto found = session_.links.find(request.handle);
    if (found == session_.links.end()) return CUDA_ERROR_INVALID_HANDLE;
    const std::span<const uint8_t> image = found->second.image;
    if (request.offset > image.size()) return CUDA_ERROR_INVALID_VALUE;
    const size_t most = std::min<size_t>(request.bytes, FIKIT_MAX_REPLY_BYTES - sizeof reply);
    const auto piece = image.subspan(request.offset, std::min(most, image.size() - request.offset));
    std::copy(piece.begin(), piece.end(), reply_ + sizeof reply);
    reply.bytes = static_cast<uint32_t>(piece.size());
    bytes_ += reply.bytes;
    return CUDA_SUCCESS;
}

CUresult ProgramCalls::link_destroy(const fikit_request_link_destroy& request, fikit_reply_link_destroy&) {
    const auto found = session_.links.find(request.handle);
    if (found == session_.links.end()) return CUDA_ERROR_INVALID_HANDLE;
    session_.kept_image_bytes -= found->second.bytes;
    session_.links.erase(found);
    return CUDA_SUCCESS;
}

}  // namespace fikit

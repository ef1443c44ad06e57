// The linker: the executor's driver has the parts; what it makes of them is read back.
#include <stdlib.h>

#include <new>

#include "entry.hpp"
#include "file.hpp"
#include "jit.hpp"
#include "large_answer.hpp"
#include "objects.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

struct Link {
    uint32_t magic = link_magic;
    uint32_t number = 0;
    Device* device = nullptr;
    JitWish wish;  // the program's log buffers are kept until the end (CUDA driver API, cuLinkCreate)
    void* image = nullptr;
};

Link* link_of(CUlinkState handle) { return object_of<Link>(handle, link_magic); }

CUresult add(CUlinkState handle, CUjitInputType type, const void* data, size_t bytes, const char* name,
             const JitWish& wish) {
    Link* const link = link_of(handle);
    if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (data == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const LargeAnswer<JitAnswer<fikit_reply_link_add>> answer;
    if (!answer) return CUDA_ERROR_OUT_OF_MEMORY;
    Reply reply = answer.reply();
    const Status status =
        link->device->producer->link_add(link->number, static_cast<uint32_t>(type), {data, bytes},
                                         wish.options(), name != nullptr ? name : "", reply);
    link->wish.hear_more(*answer);
    return result_of(status);
}

// The image, a piece with each answer.
CUresult read_back(Link& link, uint64_t size) {
    struct Piece {
        fikit_reply_link_read head;
        uint8_t bytes[FIKIT_MAX_REPLY_BYTES - sizeof(fikit_reply_link_read)];
    };
    free(link.image);
    link.image = malloc(size + sizeof(Piece));
    if (link.image == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    auto* const image = static_cast<uint8_t*>(link.image);
    auto* const piece = reinterpret_cast<Piece*>(image + size);
    for (uint64_t at = 0; at < size;) {
        const fikit_request_link_read request = {link.number, sizeof piece->bytes, at};
        Reply reply = {piece, sizeof *piece, 0};
        const Status status =
            link.device->producer->call(fikit_call_link_read, {&request, sizeof request}, reply);
        if (status != status::success) return result_of(status);
        const uint64_t got = std::min<uint64_t>(piece->head.bytes, size - at);
        if (got == 0 || got > sizeof piece->bytes) return CUDA_ERROR_UNKNOWN;
        memcpy(image + at, piece->bytes, got);
        at += got;
    }
    return CUDA_SUCCESS;
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option* options, void** values, CUlinkState* handle) {
    if (handle == nullptr || (count != 0 && (options == nullptr || values == nullptr)))
        return CUDA_ERROR_INVALID_VALUE;
    auto* const link = new (std::nothrow) Link();
    if (link == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    link->device = &current_device();
    link->wish = JitWish(count, options, values);
    link->wish.hear_nothing();
    const Status status = link->device->producer->link_create(link->wish.options(), link->number);
    if (status == status::success)
        *handle = reinterpret_cast<CUlinkState>(link);
    else
        delete link;
    return result_of(status);
}

CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void* data, size_t bytes, const char* name,
                          unsigned int count, CUjit_option* options, void** values) {
    return add(handle, type, data, bytes, name, JitWish(count, options, values));
}

CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char* path, unsigned int count,
                          CUjit_option* options, void** values) {
    if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const File file(path);
    if (!file.exists()) return CUDA_ERROR_FILE_NOT_FOUND;
    if (file.data() == nullptr) return CUDA_ERROR_INVALID_IMAGE;
    // PTX is a text: its NUL is part of it.
    const size_t bytes = file.size() - (type == CU_JIT_INPUT_PTX ? 0 : 1);
    return add(handle, type, file.data(), bytes, path, JitWish(count, options, values));
}

CUresult cuLinkComplete(CUlinkState handle, void** image, size_t* bytes) {
    Link* const link = link_of(handle);
    if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (image == nullptr || bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const LargeAnswer<JitAnswer<fikit_reply_link_complete>> answer;
    if (!answer) return CUDA_ERROR_OUT_OF_MEMORY;
    Reply reply = answer.reply();
    const fikit_request_link_complete request = {link->number, 0};
    const Status status =
        link->device->producer->call(fikit_call_link_complete, {&request, sizeof request}, reply);
    link->wish.hear_more(*answer);
    if (status != status::success) return result_of(status);
    if (const CUresult result = read_back(*link, answer->head.size); result != CUDA_SUCCESS) return result;
    *image = link->image;
    *bytes = answer->head.size;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState handle) {
    Link* const link = link_of(handle);
    if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const Status status = link->device->producer->link_destroy(link->number);
    free(link->image);
    wipe(link->magic);
    delete link;
    return result_of(status);
}

}  // namespace fikit::shim

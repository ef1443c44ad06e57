// Objects of the program that graphs keep alive.
#include <new>

#include "graph.hpp"
#include "served.hpp"
#include "user_objects.hpp"

namespace fikit::shim {

bool UserObject::release(unsigned count) {
    unsigned before = load_relaxed(references);
    do {
        if (count > before) return false;
    } while (!__atomic_compare_exchange_n(&references, &before, before - count, false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED));
    if (before != count) return true;
    destroy(value);
    wipe(magic);
    delete this;
    return true;
}

CUresult cuUserObjectCreate(CUuserObject* handle, void* value, CUhostFn destroy, unsigned int references,
                            unsigned int flags) {
    if (handle == nullptr || destroy == nullptr || references == 0 || references > INT32_MAX ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    auto* const object = new (std::nothrow) UserObject();
    if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    object->references = references;
    object->destroy = destroy;
    object->value = value;
    *handle = reinterpret_cast<CUuserObject>(object);
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned int count) {
    UserObject* const object = user_object_of(handle);
    if (object == nullptr || count == 0 || count > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
    object->retain(count);
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned int count) {
    UserObject* const object = user_object_of(handle);
    if (object == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    return object->release(count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count,
                                 unsigned int flags) {
    Graph* const graph = graph_of(graph_handle);
    UserObject* const object = user_object_of(handle);
    if (graph == nullptr || object == nullptr || count == 0 || count > INT32_MAX ||
        (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE}) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    Kept* kept = nullptr;
    for (Kept& each : graph->kept)
        if (each.object == object) kept = &each;
    if (kept == nullptr) {
        if (!graph->kept.add({object, 0})) return CUDA_ERROR_OUT_OF_MEMORY;
        kept = graph->kept.end() - 1;
    }
    kept->count += count;
    if (flags != CU_GRAPH_USER_OBJECT_MOVE) object->retain(count);
    return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count) {
    Graph* const graph = graph_of(graph_handle);
    UserObject* const object = user_object_of(handle);
    if (graph == nullptr || object == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (Kept& kept : graph->kept) {
        if (kept.object != object) continue;
        if (count > kept.count) return CUDA_SUCCESS;  // as the driver: it says so, and releases none
        kept.count -= count;
        if (kept.count == 0) graph->kept.remove({object, 0});
        object->release(count);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace fikit::shim

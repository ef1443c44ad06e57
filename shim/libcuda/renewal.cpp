#include "renewal.hpp"

#include <dlfcn.h>

#include "images.hpp"
#include "jit.hpp"
#include "large_answer.hpp"

namespace fikit::shim {
namespace {

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Module* libraries = nullptr;
bool outdated[most_gpus] = {};

// What the compiler put into the program or one of its libraries.
bool is_of_the_program(const void* image) {
    Dl_info found;
    return dladdr(image, &found) != 0;
}

CUresult renew(Function& function) {
    const LargeAnswer<FunctionAnswer> answer;
    if (!answer) return CUDA_ERROR_OUT_OF_MEMORY;
    Reply reply = answer.reply();
    Producer& producer = *function.module->device->producer;
    const Status status =
        producer.function_renew(function.module->number, function.name, function.number, reply);
    if (status != status::success) return result_of(status);
    // What was wished of it holds for the library.
    for (int32_t id = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES; id < int{FIKIT_FUNCTION_ATTRIBUTES};
         ++id) {
        const int32_t wished = function.attribute[id];
        if (wished == answer->head.attribute[id]) continue;
        const fikit_request_function_set_attribute request = {function.number, id, wished, 0};
        Reply none;
        producer.call(fikit_call_function_set_attribute, {&request, sizeof request}, none);
    }
    return CUDA_SUCCESS;
}

CUresult renew(Module& module) {
    const Module& first = *module.library;
    const Locked lock(module.mutex);
    module.forget_variables();
    const Image image = {.data = first.image, .bytes = first.image_bytes};
    const Device& device = *module.device;
    const UsefulParts useful(image, device.wanted_images());
    const LargeAnswer<JitAnswer<fikit_reply_module_load>> answer;
    if (!answer) return CUDA_ERROR_OUT_OF_MEMORY;
    Reply reply = answer.reply();
    CUresult result = result_of(device.producer->module_renew(
        useful.parts(), {first.options.option, first.options.count}, module.number, reply));
    for (Function* function = module.functions; function != nullptr && result == CUDA_SUCCESS;
         function = function->next)
        result = renew(*function);
    return result;  // managed variables keep what they hold
}

}  // namespace

void remember_library(Module& library, bool kept) {
    library.keeps_image = kept || is_of_the_program(library.image);
    if (!library.keeps_image) return;
    const Locked lock(mutex);
    library.next_library = libraries;
    libraries = &library;
}

void forget_library(Module& library) {
    if (!library.keeps_image) return;
    const Locked lock(mutex);
    for (Module** at = &libraries; *at != nullptr; at = &(*at)->next_library) {
        if (*at != &library) continue;
        *at = library.next_library;
        return;
    }
}

void outdate_libraries(Device& device) {
    const Locked lock(mutex);
    outdated[device.ordinal] = true;
}

CUresult renew_libraries(Device& device) {
    const Locked lock(mutex);
    if (!outdated[device.ordinal]) return CUDA_SUCCESS;
    outdated[device.ordinal] = false;
    if (libraries == nullptr) return CUDA_SUCCESS;
    if (const Status status = device.producer->settle(); status != status::success) return result_of(status);
    for (Module* library = libraries; library != nullptr; library = library->next_library) {
        Module* const module = library->twins[device.ordinal];
        if (module == nullptr || module->wrong != CUDA_SUCCESS) continue;
        module->wrong = renew(*module);  // told when it is used
    }
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim

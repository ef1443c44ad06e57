// Modules and libraries: one thing here, since all contexts of a device are one session. An image is sent
// when it is loaded, a kernel is asked for when it is first named. A library is loaded on another device when
// it is first used there.
#include <stdlib.h>
#include <string.h>

#include <new>

#include "capture.hpp"
#include "entry.hpp"
#include "file.hpp"
#include "image_errors.hpp"
#include "images.hpp"
#include "jit.hpp"
#include "large_answer.hpp"
#include "objects.hpp"
#include "printed.hpp"
#include "renewal.hpp"
#include "served.hpp"
#include "variables.hpp"

namespace fikit::shim {
namespace {

// How a module is to be loaded.
struct Wish {
    JitWish jit = {};
    bool library = false;
    bool preserved = false;  // the program keeps the image as long as the library
};

CUresult unload(Module* module);
CUresult end_module(Module& module);

CUresult load_on(Device& device, Module*& module, const Image& image, const Wish& wish) {
    const LargeAnswer<JitAnswer<fikit_reply_module_load>> answer;
    module = answer ? new (std::nothrow) Module() : nullptr;
    if (module == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    module->device = &device;
    if (!wish.library) module->context = thread.home();
    module->prints = names_printf(image, device.wanted_images());
    Reply reply = answer.reply();
    const UsefulParts useful(image, device.wanted_images());
    const int64_t begin = now_ns();
    Status status = useful.refused();
    if (status == status::success)
        status = device.producer->module_load(useful.parts(), wish.jit.options(), module->number, reply);
    if (call_log.every())
        call_log.say("an image of %llu bytes, %llu of them useful, took %lld us",
                     static_cast<unsigned long long>(image.bytes),
                     static_cast<unsigned long long>(useful.bytes()),
                     static_cast<long long>((now_ns() - begin) / 1000));
    wish.jit.hear(*answer);
    if (status != status::success) {
        call_log.say("load of an image of %llu bytes: %d: %.*s", static_cast<unsigned long long>(image.bytes),
                     status, static_cast<int>(answer->errors().size()), answer->errors().data());
        module->wrong = result_of(status);
        if (wish.library && is_of_image(module->wrong)) return CUDA_SUCCESS;
        delete module;
        module = nullptr;
    }
    if (module != nullptr) module->held.keep<end_module>(module->context, *module);
    return result_of(status);
}

// What a library is loaded from on other devices.
bool keep_image(Module& library, const Image& image, const Wish& wish) {
    library.library = &library;
    library.twins[library.device->ordinal] = &library;
    library.image = image.data;
    library.image_bytes = image.bytes;
    library.options = wish.jit.numbers();
    if (!wish.preserved && process.device_count() != 1) {
        void* const copy = malloc(image.bytes);
        if (copy == nullptr) return false;
        memcpy(copy, image.data, image.bytes);
        library.image = copy;
        library.owns_image = true;
    }
    remember_library(library, wish.preserved || library.owns_image);
    return true;
}

// Loads an image with managed variables. The module is nullptr where there are none, or they cannot be
// served.
CUresult load_placed(Device& device, Module*& module, Image& image, Wish& wish) {
    PlacedVariables* const placed = place_variables(device, image);
    if (placed == nullptr) return CUDA_ERROR_NOT_FOUND;
    const Image rewritten = {.data = placed->image.data(), .bytes = placed->image.size()};
    CUresult result = load_on(device, module, rewritten, wish);
    if (module == nullptr) {
        delete placed;
        return result;
    }
    module->managed = placed;
    if (module->wrong == CUDA_SUCCESS && fill_variables(*module) == CUDA_SUCCESS) {
        image = rewritten;
        wish.preserved = true;
        return result;
    }
    end_module(*module);
    module = nullptr;
    return CUDA_ERROR_NOT_FOUND;
}

// Links what a program's parts were compiled to, as the driver does where their machine code is for other
// devices.
class Linked {
  public:
    CUresult link(const void* const* fatbins, Image& image) {
        CUresult result = fikit::shim::cuLinkCreate_v2(0, nullptr, nullptr, &state_);
        for (; result == CUDA_SUCCESS && *fatbins != nullptr; ++fatbins) {
            if (!find_image(*fatbins, image)) return CUDA_ERROR_INVALID_IMAGE;
            result =
                fikit::shim::cuLinkAddData_v2(state_, CU_JIT_INPUT_FATBINARY, const_cast<void*>(image.data),
                                              image.bytes, nullptr, 0, nullptr, nullptr);
        }
        void* made = nullptr;
        size_t bytes = 0;
        if (result == CUDA_SUCCESS) result = fikit::shim::cuLinkComplete(state_, &made, &bytes);
        image = {.data = made, .bytes = bytes};
        return result;
    }
    ~Linked() {
        if (state_ != nullptr) fikit::shim::cuLinkDestroy(state_);
    }

  private:
    CUlinkState state_ = nullptr;
};

CUresult load(Module*& module, const void* passed, Wish wish, uint64_t most = no_limit) {
    module = nullptr;
    if (passed == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Image image;
    const auto find = wish.library ? find_wrapped : find_image;
    if (!find(passed, image, most)) return CUDA_ERROR_INVALID_IMAGE;
    const Context* const context = thread.current();
    Device& device = context != nullptr ? *context->device : process.device(0);
    if (const CUresult result = process.open(device); result != CUDA_SUCCESS) return result;
    Linked linked;
    if (image.unlinked != nullptr && *image.unlinked != nullptr &&
        !UsefulParts(image, device.wanted_images()).any()) {
        if (const CUresult result = linked.link(image.unlinked, image); result != CUDA_SUCCESS) return result;
        wish.preserved = false;
    }
    CUresult result = load_placed(device, module, image, wish);
    if (module == nullptr) result = load_on(device, module, image, wish);
    if (result != CUDA_SUCCESS || !wish.library || keep_image(*module, image, wish)) return result;
    unload(module);
    module = nullptr;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult load_file(Module*& module, const char* path, const Wish& wish) {
    if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const File file(path);
    if (file.data() == nullptr) return file.exists() ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_FILE_NOT_FOUND;
    return load(module, file.data(), wish, file.size() - 1);
}

CUresult end_module(Module& module) {
    Producer& producer = *module.device->producer;
    if (const CUresult result = settled(*module.device, producer.settle()); result != CUDA_SUCCESS)
        return result;
    // Before another thread's module gets their addresses.
    module.forget_variables();
    const Status status =
        module.wrong == CUDA_SUCCESS ? producer.module_unload(module.number) : status::success;
    if (status != status::success) return result_of(status);
    module.held.let_go();
    for (Function* function = module.functions; function != nullptr;) {
        Function* const next = function->next;
        producer.function_forget(function->number);
        wipe(function->magic);
        delete function->next_launch;
        free(function);
        function = next;
    }
    delete module.managed;
    if (module.owns_image) free(const_cast<void*>(module.image));
    wipe(module.magic);
    delete &module;
    return CUDA_SUCCESS;
}

CUresult unload(Module* module) {
    if (module == nullptr || (module->library != nullptr && module->library != module))
        return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    if (module->library != nullptr) forget_library(*module);
    CUresult result = CUDA_SUCCESS;
    for (Module*& twin : module->twins) {
        if (twin == nullptr || twin == module) continue;
        if (const CUresult done = end_module(*twin); done != CUDA_SUCCESS) result = done;
        twin = nullptr;
    }
    const CUresult done = end_module(*module);
    return done != CUDA_SUCCESS ? done : result;
}

// Parameters by their size, as Function::places has them.
void sort_places(Function& function, const fikit_parameter* layout, Function::Place* places) {
    function.places = places;
    const auto put = [&](auto wanted) {
        const Function::Place* const first = places;
        for (uint32_t i = 0; i < function.parameters; ++i)
            if (wanted(layout[i].size))
                *places++ = {static_cast<uint16_t>(layout[i].offset), static_cast<uint16_t>(i)};
        return static_cast<uint32_t>(places - first);
    };
    function.eights = put([](uint32_t size) { return size == 8; });
    function.fours = put([](uint32_t size) { return size == 4; });
    put([](uint32_t size) { return size != 8 && size != 4; });
}

// Asks the executor for a kernel. The module's mutex is held.
CUresult fetch(Module& module, const char* name, size_t name_bytes, Function*& function) {
    const LargeAnswer<FunctionAnswer> answer;
    if (!answer) return CUDA_ERROR_OUT_OF_MEMORY;
    Reply reply = answer.reply();
    uint32_t number = 0;
    CUresult result = result_of(module.device->producer->function_get(
        module.number, name, static_cast<uint32_t>(name_bytes), number, reply));
    if (result == CUDA_SUCCESS) {
        const uint32_t parameters = answer->head.parameters;
        const size_t layout_bytes = parameters * sizeof(fikit_parameter);
        void* const memory =
            malloc(sizeof(Function) + layout_bytes + parameters * sizeof(Function::Place) + name_bytes + 1);
        if (memory == nullptr || sizeof answer->head + layout_bytes > reply.size ||
            answer->head.parameter_bytes > FIKIT_MAX_PARAMETERS) {
            free(memory);
            module.device->producer->function_forget(number);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            function = new (memory) Function();
            function->number = number;
            function->device = static_cast<uint32_t>(module.device->ordinal);
            function->parameter_bytes = answer->head.parameter_bytes;
            function->parameters = parameters;
            function->context = module.context;
            auto* const layout = reinterpret_cast<fikit_parameter*>(function + 1);
            memcpy(layout, answer->parameter, layout_bytes);
            auto* const places = reinterpret_cast<Function::Place*>(layout + parameters);
            sort_places(*function, layout, places);
            char* const copy = reinterpret_cast<char*>(places + parameters);
            memcpy(copy, name, name_bytes + 1);
            function->layout = layout;
            function->name = copy;
            function->module = &module;
            memcpy(function->attribute, answer->head.attribute, sizeof function->attribute);
            function->next = module.functions;
            module.functions = function;
            if (module.prints && function->next == nullptr) kernels_may_print(*module.device);
        }
    }
    return result;
}

CUresult find_function(Module* module, const char* name, Function*& function) {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const size_t name_bytes = strlen(name);
    if (module->wrong != CUDA_SUCCESS) return module->wrong;
    if (name_bytes == 0 || name_bytes > FIKIT_SYMBOL_NAME) return CUDA_ERROR_NOT_FOUND;
    const Locked lock(module->mutex);
    for (function = module->functions; function != nullptr; function = function->next)
        if (strcmp(function->name, name) == 0) return CUDA_SUCCESS;
    return fetch(*module, name, name_bytes, function);
}

// The names of a module's kernels from that one on, one behind the other, as many as one reply holds; the
// caller frees them.
CUresult function_names(Module* module, unsigned first, fikit_reply_module_functions& answer, char*& names) {
    names = nullptr;
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (module->wrong != CUDA_SUCCESS) return CUDA_SUCCESS;  // there are none
    struct Answer {
        fikit_reply_module_functions head;
        char names[FIKIT_MAX_REPLY_BYTES];
    };
    auto* const whole = static_cast<Answer*>(calloc(1, sizeof(Answer) + 1));
    if (whole == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    Reply reply = {whole, sizeof *whole, 0};
    const fikit_request_module_functions request = {module->number, first};
    const Status status =
        module->device->producer->call(fikit_call_module_functions, {&request, sizeof request}, reply);
    if (status == status::success) {
        answer = whole->head;
        memmove(whole, whole->names, FIKIT_MAX_REPLY_BYTES);
        names = reinterpret_cast<char*>(whole);
        return CUDA_SUCCESS;
    }
    free(whole);
    return result_of(status);
}

CUresult count_functions(Module* module, unsigned* count) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    fikit_reply_module_functions answer{};
    char* names = nullptr;
    const CUresult result = function_names(module, 0, answer, names);
    *count = answer.functions;
    free(names);
    return result;
}

template <class Handle>
CUresult enumerate_functions(Handle* handles, unsigned count, Module* module) {
    if (handles == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count;) {
        fikit_reply_module_functions answer{};
        char* names = nullptr;
        CUresult result = function_names(module, i, answer, names);
        const char* const end = names + answer.name_bytes;
        for (const char* name = names; name < end && i < count && result == CUDA_SUCCESS; ++i) {
            Function* function = nullptr;
            result = find_function(module, name, function);
            handles[i] = reinterpret_cast<Handle>(function);
            name += strlen(name) + 1;
        }
        free(names);
        if (result != CUDA_SUCCESS || answer.name_bytes == 0 || i >= answer.functions) return result;
    }
    return CUDA_SUCCESS;
}

// A module and a library are one thing, and so are a function and a kernel: only the handle's type differs.
template <class Handle, class Load>
CUresult give_module(Handle* handle, const Load& load_it) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Module* module = nullptr;
    const CUresult result = load_it(module);
    if (result == CUDA_SUCCESS) *handle = reinterpret_cast<Handle>(module);
    return result;
}

template <class Handle>
CUresult give_image(Handle* handle, const void* image, const Wish& wish) {
    return give_module(handle, [&](Module*& module) { return load(module, image, wish); });
}

template <class Handle>
CUresult give_file(Handle* handle, const char* path, const Wish& wish) {
    return give_module(handle, [&](Module*& module) { return load_file(module, path, wish); });
}

bool is_preserved(const CUlibraryOption* options, unsigned count) {
    for (unsigned i = 0; i < count && options != nullptr; ++i)
        if (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED) return true;
    return false;
}

// The module of a library on the current device; without a context, where it was loaded first.
CUresult find_current(CUlibrary handle, Module*& module) {
    module = module_of(handle);
    const Context* const context = thread.current();
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return context != nullptr ? twin_of(*module, *context->device, module) : CUDA_SUCCESS;
}

template <class Handle>
CUresult give_function(Handle* handle, Module* module, const char* name) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Function* function = nullptr;
    const CUresult result = find_function(module, name, function);
    if (result == CUDA_SUCCESS) *handle = reinterpret_cast<Handle>(function);
    return result;
}

}  // namespace

CUresult twin_of(Module& module, Device& device, Module*& twin) {
    twin = &module;
    if (module.device == &device) return CUDA_SUCCESS;
    Module* const first = module.library;
    if (first == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult result = process.open(device); result != CUDA_SUCCESS) return result;
    // Its kernels would not reach them.
    if (first->managed != nullptr) return not_served("cuLibraryGetManaged");
    const Locked lock(first->mutex);
    twin = first->twins[device.ordinal];
    if (twin != nullptr) return CUDA_SUCCESS;
    const CUresult result =
        load_on(device, twin, {first->image, first->image_bytes}, {JitWish(first->options), true});
    if (result != CUDA_SUCCESS) return result;
    twin->library = first;
    first->twins[device.ordinal] = twin;
    return CUDA_SUCCESS;
}

Function* twin_of(const Function& function, Device& device) {
    Module* module = nullptr;
    Function* twin = nullptr;
    if (twin_of(*function.module, device, module) != CUDA_SUCCESS) return nullptr;
    return find_function(module, function.name, twin) == CUDA_SUCCESS ? twin : nullptr;
}

CUresult cuModuleLoad(CUmodule* handle, const char* path) { return give_file(handle, path, {}); }

CUresult cuModuleLoadData(CUmodule* handle, const void* image) { return give_image(handle, image, {}); }

CUresult cuModuleLoadDataEx(CUmodule* handle, const void* image, unsigned int count, CUjit_option* options,
                            void** values) {
    return give_image(handle, image, {JitWish(count, options, values)});
}

CUresult cuModuleLoadFatBinary(CUmodule* handle, const void* image) { return give_image(handle, image, {}); }

CUresult cuModuleUnload(CUmodule handle) {
    Module* const module = module_of(handle);
    const bool library = module != nullptr && module->library != nullptr;  // goes with it
    return library ? CUDA_ERROR_NOT_PERMITTED : unload(module);
}

CUresult cuModuleGetFunction(CUfunction* handle, CUmodule module, const char* name) {
    if (name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
    Module* const asked = module_of(module);
    const CUresult result = asked != nullptr ? usable(*asked->device->producer) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? give_function(handle, asked, name) : result;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
    return find_variable(module_of(module), name, address, bytes);
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule module) {
    return count_functions(module_of(module), count);
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count, CUmodule module) {
    return enumerate_functions(functions, count, module_of(module));
}

CUresult cuLibraryLoadData(CUlibrary* handle, const void* image, CUjit_option* options, void** values,
                           unsigned int count, CUlibraryOption* library_options, void**,
                           unsigned int library_count) {
    return give_image(handle, image,
                      {JitWish(count, options, values), true, is_preserved(library_options, library_count)});
}

CUresult cuLibraryLoadFromFile(CUlibrary* handle, const char* path, CUjit_option* options, void** values,
                               unsigned int count, CUlibraryOption*, void**, unsigned int) {
    return give_file(handle, path, {JitWish(count, options, values), true});
}

CUresult cuLibraryUnload(CUlibrary handle) { return unload(module_of(handle)); }

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
    if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Module* twin = nullptr;
    const CUresult result = find_current(library, twin);
    if (result != CUDA_SUCCESS) return result;
    *module = reinterpret_cast<CUmodule>(twin);
    return twin->wrong;
}

CUresult cuLibraryGetKernel(CUkernel* handle, CUlibrary library, const char* name) {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // Here no name is one that nothing has, other than for modules.
    return give_function(handle, module_of(library), *name == '\0' ? " " : name);
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
    Module* module = nullptr;
    const CUresult result = find_current(library, module);
    return result == CUDA_SUCCESS ? find_variable(module, name, address, bytes) : result;
}

CUresult cuLibraryGetManaged(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
    if ((address == nullptr && bytes == nullptr) || name == nullptr || *name == '\0')
        return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr variable = 0;
    const CUresult result = fikit::shim::cuLibraryGetGlobal(&variable, bytes, library, name);
    // A variable of the device's, or a kernel.
    if (result == CUDA_ERROR_INVALID_VALUE ||
        (result == CUDA_SUCCESS && find_managed_variable(*module_of(library), name) == nullptr))
        return CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS && address != nullptr) *address = variable;
    return result;
}

// The host's functions that a device calls are a matter of machines whose devices run in the host's pages;
// others answer so for every name.
CUresult cuLibraryGetUnifiedFunction(void**, CUlibrary library, const char*) {
    return module_of(library) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary library) {
    return count_functions(module_of(library), count);
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count, CUlibrary library) {
    return enumerate_functions(kernels, count, module_of(library));
}

}  // namespace fikit::shim

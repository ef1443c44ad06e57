#include "variables.hpp"

#include <new>

#include "entry.hpp"
#include "host_memory.hpp"
#include "ranges.hpp"

namespace fikit::shim {
namespace {

// Copies must know that it is device memory.
bool remember(Module& module, const fikit_reply_module_global& variable) {
    Range range;
    const Locked lock(module.mutex);
    if (ranges.find(variable.address, range) && range.address == variable.address) return true;
    auto* const entry = new (std::nothrow) Variable{variable.address, module.variables};
    if (entry == nullptr) return false;
    module.variables = entry;
    return ranges.add({.address = variable.address,
                       .bytes = variable.size,
                       .device_address = variable.address,
                       .kind = Range::Kind::variable,
                       .device = static_cast<uint8_t>(module.device->ordinal)});
}

bool allocate(Device& device, ManagedVariable& variable) {
    Range range = {.flags = CU_MEM_ATTACH_GLOBAL};
    if (allocate_managed(device, variable.bytes, {CU_MEM_LOCATION_TYPE_NONE, {0}}, range) != CUDA_SUCCESS)
        return false;
    variable.address = range.address;
    return true;
}

}  // namespace

PlacedVariables::~PlacedVariables() {
    Range range;
    for (const ManagedVariable* variable = variables.first(); variable != nullptr; variable = variable->next)
        if (variable->address != 0 && ranges.take(variable->address, Range::Kind::managed, range))
            free_host(range);
}

PlacedVariables* place_variables(Device& device, const Image& image) {
    const fatbin::Wanted wanted = device.wanted_images();
    auto* const placed = new (std::nothrow) PlacedVariables();
    if (placed == nullptr) return nullptr;
    bool fine = find_managed(image, wanted, placed->variables) && placed->variables.first() != nullptr;
    for (ManagedVariable* variable = placed->variables.first(); variable != nullptr && fine;
         variable = variable->next)
        fine = allocate(device, *variable);
    if (fine && place_managed(image, wanted, placed->variables, placed->image)) return placed;
    delete placed;
    return nullptr;
}

CUresult fill_variables(Module& module) {
    Producer& producer = *module.device->producer;
    for (const ManagedVariable* variable = module.managed->variables.first(); variable != nullptr;
         variable = variable->next) {
        fikit_reply_module_global found{};
        Status status = producer.module_global(module.number, variable->name, found);
        if (status == status::success && found.size != variable->bytes) return CUDA_ERROR_INVALID_IMAGE;
        if (status == status::success)
            status = producer.copy_to_host(0, reinterpret_cast<void*>(variable->address), found.address,
                                           found.size);
        if (status != status::success) return result_of(status);
    }
    return result_of(producer.settle());
}

const ManagedVariable* find_managed_variable(const Module& module, const char* name) {
    const PlacedVariables* const placed = (module.library != nullptr ? *module.library : module).managed;
    return placed != nullptr ? placed->variables.find(name) : nullptr;
}

CUresult find_variable(Module* module, const char* name, CUdeviceptr* address, size_t* bytes) {
    if (name == nullptr || (address == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (*name == '\0') return CUDA_ERROR_INVALID_VALUE;
    if (module->wrong != CUDA_SUCCESS) return module->wrong;
    if (const ManagedVariable* const managed = find_managed_variable(*module, name)) {
        if (address != nullptr) *address = managed->address;
        if (bytes != nullptr) *bytes = managed->bytes;
        return CUDA_SUCCESS;
    }
    fikit_reply_module_global answer{};
    const Status status = module->device->producer->module_global(module->number, name, answer);
    // It is a managed variable that could not be placed: this process has no such memory at its address.
    if (result_of(status) == CUDA_ERROR_NOT_SUPPORTED) return not_served("cuLibraryGetManaged");
    if (status != status::success) return result_of(status);
    if (address != nullptr) *address = answer.address;
    if (bytes != nullptr) *bytes = answer.size;
    return remember(*module, answer) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void Module::forget_variables() {
    while (Variable* const variable = variables) {
        Range range;
        ranges.take(variable->address, Range::Kind::variable, range);
        variables = variable->next;
        delete variable;
    }
}

}  // namespace fikit::shim

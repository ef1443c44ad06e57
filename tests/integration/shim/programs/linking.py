"""Code made of several texts by the driver's linker, and what the JIT is told and says."""

import ctypes
import os
import tempfile

from calls import KERNELS, done, launch, names, read, start
from cuda.bindings import driver
from linked_texts import CALLER, HEAD, TWICE

WRONG = HEAD + b".visible .entry wrong() { no.such.instruction; }\n"
PTX = driver.CUjitInputType.CU_JIT_INPUT_PTX
OPTION = driver.CUjit_option

device, context = start()
memory = done(driver.cuMemAlloc(4))
state = done(driver.cuLinkCreate(0, [], []))
done(driver.cuLinkAddData(state, PTX, CALLER + b"\0", len(CALLER) + 1, b"caller", 0, [], []))
with tempfile.NamedTemporaryFile(suffix=".ptx") as file:
    file.write(TWICE)
    file.flush()
    done(driver.cuLinkAddFile(state, PTX, os.fsencode(file.name), 0, [], []))
names(driver.cuLinkAddFile(state, PTX, b"/no/such/file", 0, [], []))
image, size = done(driver.cuLinkComplete(state))
image = ctypes.string_at(image, size)
done(driver.cuLinkDestroy(state))
module = done(driver.cuModuleLoadData(image))
put = done(driver.cuModuleGetFunction(module, b"put"))
done(launch(put, 0, memory, ctypes.c_uint32(21)))
print(read(memory), size > 64)

# What is missing is found at the end; what is wrong, when it comes. Both are told in the program's buffer.
log = ctypes.create_string_buffer(4096)
options = [OPTION.CU_JIT_ERROR_LOG_BUFFER, OPTION.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
library = ctypes.CDLL("libcuda.so.1")
handle = ctypes.c_void_p()
numbers = (ctypes.c_int * 2)(*(int(option) for option in options))
values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
print(library.cuLinkCreate_v2(2, numbers, values, ctypes.byref(handle)))
size = ctypes.c_size_t(len(WRONG) + 1)
answer = library.cuLinkAddData_v2(handle, int(PTX), WRONG + b"\0", size, b"wrong", 0, None, None)
print(driver.CUresult(answer).name, len(log.value) > 0)
print(library.cuLinkDestroy(handle))
state = done(driver.cuLinkCreate(0, [], []))
done(driver.cuLinkAddData(state, PTX, CALLER + b"\0", len(CALLER) + 1, b"caller", 0, [], []))
print(driver.cuLinkComplete(state)[0].name)  # not the end of the context, though it reads like it
done(driver.cuLinkDestroy(state))

# A kernel may be told how many registers it has, alone and linked.
registers = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS


def registers_of(image, most):
    limit = ([OPTION.CU_JIT_MAX_REGISTERS], [most])
    module = done(driver.cuModuleLoadDataEx(image, 1, *limit))
    used = done(driver.cuFuncGetAttribute(registers, done(driver.cuModuleGetFunction(module, b"store"))))
    done(driver.cuModuleUnload(module))
    state = done(driver.cuLinkCreate(1, *limit))
    done(driver.cuLinkAddData(state, PTX, image, len(image), b"", 0, [], []))
    linked, size = done(driver.cuLinkComplete(state))
    module = done(driver.cuModuleLoadData(ctypes.string_at(linked, size)))
    alone = done(driver.cuFuncGetAttribute(registers, done(driver.cuModuleGetFunction(module, b"store"))))
    done(driver.cuLinkDestroy(state))
    return used <= most and alone <= most, used, alone


print(registers_of(KERNELS + b"\0", 16), registers_of(KERNELS + b"\0", 24))
many = [done(driver.cuLinkCreate(0, [], [])) for _ in range(20)]
for state in many:
    done(driver.cuLinkAddData(state, PTX, KERNELS + b"\0", len(KERNELS) + 1, b"", 0, [], []))
for state in many:
    done(driver.cuLinkDestroy(state))

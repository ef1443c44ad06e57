"""A program linked for another device, as nvcc -rdc=true makes it: here its parts are linked."""

import ctypes
import struct

from calls import done, launch, names, read, start
from cuda.bindings import driver
from linked_texts import CALLER, TWICE

PTX, MACHINE_CODE = 1, 2


def fatbin(kind, target, content):
    """One entry as nvcc writes it, options that are empty in its header, behind the fatbin's own."""
    content += bytes(-len(content) % 8)
    entry = struct.pack("<HHIQIIHHIQQ16x", kind, 0x101, 80, len(content), 0, 64, 0, 8, target, 0, 0x11)
    entry += struct.pack("<QQ", 72, 0) + content
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry


def wrapper(whole, *parts):
    """What the compiler puts around them; with all that must live as long."""
    kept = [ctypes.create_string_buffer(image, len(image)) for image in (whole, *parts)]
    others = (ctypes.c_void_p * (len(parts) + 1))(*(ctypes.addressof(part) for part in kept[1:]), None)
    packed = struct.pack("<IIQQ", 0x466243B1, 2, ctypes.addressof(kept[0]), ctypes.addressof(others))
    return ctypes.create_string_buffer(packed, len(packed)), kept, others


def load(image):
    return driver.cuLibraryLoadData(ctypes.addressof(image), [], [], 0, [], [], 0)


start()
memory = done(driver.cuMemAlloc(4))
foreign = fatbin(MACHINE_CODE, 75, bytes(64))
image, *kept = wrapper(foreign, fatbin(PTX, 80, CALLER + b"\0"), fatbin(PTX, 80, TWICE + b"\0"))
library = done(load(image))
kernel = done(driver.cuLibraryGetKernel(library, b"put"))
done(launch(done(driver.cuKernelGetFunction(kernel)), 0, memory, ctypes.c_uint32(21)))
print(read(memory)[0])
names(driver.cuLibraryUnload(library))
image, *kept = wrapper(foreign, fatbin(PTX, 80, CALLER + b"\0"))
names(load(image))
image, *kept = wrapper(foreign, b"no fatbin\0")
names(load(image))
image, *kept = wrapper(foreign)
names(driver.cuLibraryGetKernel(done(load(image)), b"put"))

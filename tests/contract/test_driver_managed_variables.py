"""Managed variables of modules and libraries."""

import ctypes
from pathlib import Path

import pytest
from cuda_calls import Alone, Check, Cuda

IMAGES = Path(__file__).parents[1] / "data/images"
"""VARIABLES as the toolkit's fatbinary packs it (13.0), with ptxas' machine code and without."""

VARIABLES = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .global .attribute(.managed) .align 8 .u64 shared_counter = 7;
.visible .global .align 8 .u64 own_counter = 3;

.visible .entry bump()
{
    .reg .b64 %rd<3>;
    ld.global.u64 %rd1, [shared_counter];
    ld.global.u64 %rd2, [own_counter];
    add.u64 %rd1, %rd1, %rd2;
    st.global.u64 [shared_counter], %rd1;
    ret;
}
"""


def test_a_module_s_managed_variable(cuda: Cuda) -> None:
    module = cuda.cuModuleLoadData(VARIABLES)
    address, size = cuda.cuModuleGetGlobal(module, b"shared_counter")
    assert size == 8
    counter = ctypes.c_uint64.from_address(int(address))
    assert counter.value == 7
    kind = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
    assert cuda.cuPointerGetAttribute(kind, address) == 1
    assert cuda.cuPointerGetAttribute(kind, cuda.cuModuleGetGlobal(module, b"own_counter")[0]) == 0
    counter.value = 20
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"bump"))
    cuda.cuCtxSynchronize()
    assert counter.value == 23
    cuda.cuModuleUnload(module)


def test_variables_are_not_freed_by_themselves(cuda: Cuda, fails: Check) -> None:
    module = cuda.cuModuleLoadData(VARIABLES)
    for name in (b"shared_counter", b"own_counter"):
        address = cuda.cuModuleGetGlobal(module, name)[0]
        fails("INVALID_VALUE", cuda.cuMemFree, address)
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"bump"))
    cuda.cuCtxSynchronize()
    cuda.cuModuleUnload(module)


@pytest.mark.parametrize("name", ["managed-text", "managed-both"])
def test_a_managed_variable_of_a_fat_binary(cuda: Cuda, name: str) -> None:
    module = cuda.cuModuleLoadData((IMAGES / f"{name}.fatbin").read_bytes())
    counter = ctypes.c_uint64.from_address(int(cuda.cuModuleGetGlobal(module, b"shared_counter")[0]))
    assert counter.value == 7
    counter.value = 20
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"bump"))
    cuda.cuCtxSynchronize()
    assert counter.value == 23
    cuda.cuModuleUnload(module)


def test_a_linked_managed_variable(cuda: Cuda) -> None:
    state = cuda.cuLinkCreate(0, [], [])
    text = VARIABLES + b"\0"
    cuda.cuLinkAddData(state, cuda.CUjitInputType.CU_JIT_INPUT_PTX, text, len(text), b"variables", 0, [], [])
    image, size = cuda.cuLinkComplete(state)
    module = cuda.cuModuleLoadData(ctypes.string_at(int(image), size))
    cuda.cuLinkDestroy(state)
    counter = ctypes.c_uint64.from_address(int(cuda.cuModuleGetGlobal(module, b"shared_counter")[0]))
    assert counter.value == 7
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"bump"))
    cuda.cuCtxSynchronize()
    assert counter.value == 10
    cuda.cuModuleUnload(module)


def resetting(cuda: Cuda) -> None:
    from test_driver_managed_variables import VARIABLES

    kept = cuda.CUlibraryOption.CU_LIBRARY_BINARY_IS_PRESERVED
    library = cuda.cuLibraryLoadData(VARIABLES, [], [], 0, [kept], [True], 1)
    kernel = cuda.cuLibraryGetKernel(library, b"bump")
    places = set()
    for _ in range(2):
        places.add(int(cuda.cuLibraryGetManaged(library, b"shared_counter")[0]))
        cuda.launch_function(cuda.cuKernelGetFunction(kernel))
        cuda.cuCtxSynchronize()
        print(len(places), *(ctypes.c_uint64.from_address(place).value for place in places))
        cuda.cuDevicePrimaryCtxReset(cuda.device)
        cuda.cuCtxSetCurrent(cuda.cuDevicePrimaryCtxRetain(cuda.device))


def test_a_library_s_managed_variable_outlives_a_reset(alone: Alone) -> None:
    assert alone(resetting).splitlines() == ["1 10", "1 13"]


def test_a_library_s_managed_variable(cuda: Cuda) -> None:
    library = cuda.cuLibraryLoadData(VARIABLES, [], [], 0, [], [], 0)
    address, size = cuda.cuLibraryGetManaged(library, b"shared_counter")
    assert size == 8
    assert ctypes.c_uint64.from_address(int(address)).value == 7
    assert int(cuda.cuLibraryGetGlobal(library, b"shared_counter")[0]) == int(address)
    cuda.cuLibraryUnload(library)


def test_what_a_library_lacks(cuda: Cuda, fails: Check) -> None:
    library = cuda.cuLibraryLoadData(VARIABLES, [], [], 0, [], [], 0)
    for name in (b"own_counter", b"bump", b"no_such_thing"):
        fails("NOT_FOUND", cuda.cuLibraryGetManaged, library, name)
    fails("INVALID_VALUE", cuda.cuLibraryGetGlobal, library, b"bump")
    fails("INVALID_VALUE", cuda.cuLibraryGetUnifiedFunction, library, b"bump")
    cuda.cuLibraryUnload(library)


def test_a_managed_variable_works_where_only_kernels_use_it(cuda: Cuda) -> None:
    module = cuda.cuModuleLoadData(VARIABLES)
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"bump"))
    cuda.cuCtxSynchronize()
    cuda.cuModuleUnload(module)


FORMS = b"""
.version 8.0
.target sm_90
.address_size 64
.global .attribute(.managed) .align 4 .u32 total = 7;  // static, as CUDA C++ makes them
.global .attribute(.managed) .align 16 .v2 .f64 pairs[2][3];
.global .attribute(.managed) .align 8 .u64 address_of_total;
.visible .global .align 8 .u64 known[2] = {generic(total), pairs+16};

.visible .entry use(.param .u32 amount)
{
    .reg .pred %p<2>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<6>;
    .reg .f64 %d<3>;
    ld.param.u32 %r1, [amount];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra DONE;
    mov.u64 %rd1, total;
    ld.global.u32 %r2, [total];
    add.s32 %r2, %r2, %r1;
    st.global.u32 [total], %r2;
    atom.global.add.u32 %r3, [%rd1], 1;
AGAIN: @!%p1 red.global.add.u32 [total], 2;
    mov.f64 %d1, 0d3FF8000000000000;
    mov.f64 %d2, 0d4004000000000000;
    st.global.v2.f64 [pairs+80], {%d1, %d2};
    mov.u64 %rd2, pairs+8;
    st.global.f64 [%rd2], %d2;
    cvta.global.u64 %rd3, total;
    st.global.u64 [address_of_total], %rd3;
    ld.global.u64 %rd4, [known];
    ld.u32 %r4, [%rd4];
    st.u32 [%rd4], %r4;
    cvta.global.u64 %rd5, pairs;
    st.f64 [%rd5+32], %d1;
DONE:
    ret;
}
"""


def test_every_way_to_name_a_managed_variable(cuda: Cuda) -> None:
    module = cuda.cuModuleLoadData(FORMS)
    total, pairs, pointer = (
        int(cuda.cuModuleGetGlobal(module, name)[0]) for name in (b"total", b"pairs", b"address_of_total")
    )
    known = cuda.cuModuleGetGlobal(module, b"known")[0]
    assert cuda.cuModuleGetGlobal(module, b"pairs")[1] == 96
    words = (ctypes.c_uint64 * 2)()
    cuda.cuMemcpyDtoH(ctypes.addressof(words), known, 16)
    assert list(words) == [total, pairs + 16]
    counter = ctypes.c_uint32.from_address(total)
    assert counter.value == 7
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"use"), ctypes.c_uint32(5))
    cuda.cuCtxSynchronize()
    assert counter.value == 15
    values = (ctypes.c_double * 12).from_address(pairs)
    assert list(values) == [0, 2.5, 0, 0, 1.5, 0, 0, 0, 0, 0, 1.5, 2.5]
    assert ctypes.c_uint64.from_address(pointer).value == total
    cuda.cuModuleUnload(module)


def test_managed_variables_are_copied_and_filled_like_other_managed_memory(cuda: Cuda) -> None:
    module = cuda.cuModuleLoadData(FORMS)
    pairs = cuda.cuModuleGetGlobal(module, b"pairs")[0]
    cuda.cuMemsetD8(pairs, 1, 96)
    there = (ctypes.c_uint8 * 96)()
    cuda.cuMemcpyDtoH(ctypes.addressof(there), pairs, 96)
    assert set(there) == {1}
    assert set((ctypes.c_uint8 * 96).from_address(int(pairs))) == {1}
    cuda.cuModuleUnload(module)

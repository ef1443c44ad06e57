"""Managed variables of modules and libraries."""

import ctypes

from cuda_calls import Check, Cuda

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

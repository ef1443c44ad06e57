"""Modules, functions and launches."""

import ctypes
from typing import Any

import numpy as np
import pytest
from cuda_calls import KERNELS, SHIM, Check, Cuda


def test_parameters_by_pointers_and_by_buffer(cuda: Cuda) -> None:
    place = cuda.device_words(2)
    cuda.launch("store", place, ctypes.c_uint32(11))
    packed = np.zeros(1, dtype=[("place", "u8"), ("value", "u4")])
    packed["place"], packed["value"] = place + 4, 12
    size = ctypes.c_size_t(12)
    extra = (ctypes.c_void_p * 5)(1, packed.ctypes.data, 2, ctypes.addressof(size), 0)
    cuda.cuLaunchKernel(cuda.function("store"), 1, 1, 1, 1, 1, 1, 0, 0, 0, ctypes.addressof(extra))
    assert cuda.read(place, 2).tolist() == [11, 12]


def test_parameters_in_both_ways_are_refused(cuda: Cuda, fails: Check) -> None:
    value = ctypes.c_uint32(1)
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(value))
    size = ctypes.c_size_t(4)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(value), 2, ctypes.addressof(size), 0)
    both = (ctypes.addressof(pointers), ctypes.addressof(extra))
    fails("INVALID_VALUE", cuda.cuLaunchKernel, cuda.function("small"), 1, 1, 1, 1, 1, 1, 0, 0, *both)
    params = cuda.CUDA_KERNEL_NODE_PARAMS()
    params.func = cuda.function("small")
    params.gridDimX = params.gridDimY = params.gridDimZ = 1
    params.blockDimX = params.blockDimY = params.blockDimZ = 1
    params.kernelParams, params.extra = both
    graph = cuda.cuGraphCreate(0)
    fails("INVALID_VALUE", cuda.cuGraphAddKernelNode, graph, None, 0, params)
    cuda.cuGraphDestroy(graph)


def test_no_buffer_for_no_parameters(cuda: Cuda) -> None:
    size = ctypes.c_size_t(0)
    extra = (ctypes.c_void_p * 5)(1, None, 2, ctypes.addressof(size), 0)
    cuda.cuLaunchKernel(cuda.function("nothing"), 1, 1, 1, 1, 1, 1, 0, 0, 0, ctypes.addressof(extra))
    cuda.cuCtxSynchronize()


def test_every_thread_counts(cuda: Cuda) -> None:
    place = cuda.device_words()
    cuda.launch("count", place, grid=300, block=96)
    assert cuda.read(place)[0] == 300 * 96


def test_variables_of_a_module(cuda: Cuda, fails: Check) -> None:
    address, size = cuda.cuModuleGetGlobal(cuda.module, b"counter")
    assert size == 8
    assert cuda.read(address, 1, np.uint64)[0] == 7
    cuda.launch("bump")
    assert cuda.read(address, 1, np.uint64)[0] == 8
    table, size = cuda.cuModuleGetGlobal(cuda.module, b"table")
    assert cuda.read(table, 4).tolist() == [1, 2, 3, 4]
    fails("NOT_FOUND", cuda.cuModuleGetGlobal, cuda.module, b"nowhere")


@pytest.mark.parametrize(
    ("grid", "block"),
    [
        ((0, 1, 1), (1, 1, 1)),
        ((1, 1, 1), (0, 1, 1)),
        ((1, 1, 1), (1025, 1, 1)),
        ((1, 1, 1), (32, 32, 2)),
        ((1, 1, 1), (1, 1, 65)),
        ((1, 65536, 1), (1, 1, 1)),
        ((1, 1, 65536), (1, 1, 1)),
    ],
)
def test_impossible_shapes(cuda: Cuda, fails: Check, grid: Any, block: Any) -> None:
    fails("INVALID_VALUE", cuda.cuLaunchKernel, cuda.function("nothing"), *grid, *block, 0, 0, 0, 0)


@pytest.mark.parametrize("preference", [4, 1 << 20])
def test_preferences_that_there_are_not(cuda: Cuda, fails: Check, preference: int) -> None:
    fails("INVALID_VALUE", cuda.cuCtxSetCacheConfig, preference)
    fails("INVALID_VALUE", cuda.cuFuncSetCacheConfig, cuda.function("nothing"), preference)
    fails("INVALID_HANDLE", cuda.cuFuncSetCacheConfig, 0, preference)


def test_launch_bounds_of_a_kernel(cuda: Cuda, fails: Check) -> None:
    attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    assert cuda.cuFuncGetAttribute(attribute, cuda.function("small")) == 64
    assert cuda.cuFuncGetAttribute(attribute, cuda.function("nothing")) == 1024
    cuda.launch("small", ctypes.c_uint32(0), block=64)
    fails("INVALID_VALUE", cuda.launch, "small", ctypes.c_uint32(0), block=65)


def test_more_threads_than_there_are_registers_for(cuda: Cuda, fails: Check) -> None:
    words = range(160)  # all of them are read before one is written
    loads = "".join(f"ld.volatile.global.u32 %r{i}, [%place+{4 * i}];\n" for i in words)
    stores = "".join(f"st.volatile.global.u32 [%place+{4 * i}], %r{159 - i};\n" for i in words)
    head = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry turn(.param .u64 place)"
    body = f".reg .b32 %r<160>;\n.reg .b64 %place;\nld.param.u64 %place, [place];\n{loads}{stores}ret;"
    module = cuda.cuModuleLoadData(f"{head} {{ {body} }}\0".encode())
    function = cuda.cuModuleGetFunction(module, b"turn")
    place = cuda.device_words(160)
    attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    most = cuda.cuFuncGetAttribute(attribute, function)
    assert most in (256, 384)  # whole warps of each quarter of a multiprocessor
    cuda.launch_function(function, place, block=most)
    for block in (most + 128, 1024):
        fails("LAUNCH_OUT_OF_RESOURCES", cuda.launch_function, function, place, block=block)
    fails("INVALID_VALUE", cuda.launch_function, function, place, block=1025)
    fails("INVALID_VALUE", cuda.launch_function, function, place, block=1024, shared=300 << 10)
    cuda.cuCtxSynchronize()
    cuda.cuModuleUnload(module)


def test_shared_memory_has_to_be_allowed(cuda: Cuda, fails: Check) -> None:
    attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    module = cuda.cuModuleLoadData(KERNELS)
    function = cuda.cuModuleGetFunction(module, b"nothing")
    cuda.launch_function(function, shared=48 << 10)
    fails("INVALID_VALUE", cuda.launch_function, function, shared=(48 << 10) + 1)
    cuda.cuFuncSetAttribute(function, attribute, 227 << 10)
    cuda.launch_function(function, shared=227 << 10)
    fails("INVALID_VALUE", cuda.launch_function, function, shared=(227 << 10) + 1)
    fails("INVALID_VALUE", cuda.cuFuncSetAttribute, function, attribute, (227 << 10) + 1)
    cuda.cuCtxSynchronize()
    cuda.cuModuleUnload(module)


@pytest.mark.parametrize(
    ("block", "shared", "blocks"),
    [
        (1024, 0, 2),
        (256, 0, 8),
        (64, 0, 32),
        (32, 0, 32),
        (1, 0, 32),
        (128, 100 << 10, 2),
        (128, 227 << 10, 1),
    ],
)
def test_occupancy(cuda: Cuda, block: int, shared: int, blocks: int) -> None:
    module = cuda.cuModuleLoadData(KERNELS)
    function = cuda.cuModuleGetFunction(module, b"nothing")
    attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    cuda.cuFuncSetAttribute(function, attribute, 227 << 10)
    assert cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, block, shared) == blocks
    cuda.cuModuleUnload(module)


def test_occupancy_knows_what_shared_memory_is_allowed(cuda: Cuda) -> None:
    count = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(cuda.function("nothing"), 128, 100 << 10)
    assert count == 0


def test_occupancy_of_what_cannot_be(cuda: Cuda, fails: Check) -> None:
    nothing = cuda.function("nothing")
    fails("INVALID_VALUE", cuda.cuOccupancyMaxPotentialBlockSize, nothing, None, 0, -1)
    config = cuda.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX, config.blockDimY, config.blockDimZ = 128, 1, 1
    assert cuda.cuOccupancyMaxActiveClusters(nothing, config) == 0  # which says nothing of clusters
    fails("INVALID_VALUE", cuda.cuOccupancyMaxActiveClusters, 0, config)
    fails("INVALID_HANDLE", cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor, 0, 32, 0)


@pytest.mark.parametrize(("blocks", "room"), [(1, 49152), (8, 29184)])
def test_shared_memory_that_is_left_for_a_block(cuda: Cuda, blocks: int, room: int) -> None:
    assert cuda.cuOccupancyAvailableDynamicSMemPerBlock(cuda.function("nothing"), blocks, 256) == room


def test_parameters_of_a_kernel(cuda: Cuda, fails: Check) -> None:
    function = cuda.function("spin_store")
    assert [cuda.cuFuncGetParamInfo(function, index) for index in range(3)] == [
        (0, 8),
        (8, 8),
        (16, 4),
    ]
    fails("INVALID_VALUE", cuda.cuFuncGetParamInfo, function, 3)
    assert cuda.cuFuncGetName(function) == b"spin_store"
    assert int(cuda.cuFuncGetModule(function)) == int(cuda.module)


def test_functions_of_a_module(cuda: Cuda, fails: Check) -> None:
    count = cuda.cuModuleGetFunctionCount(cuda.module)
    assert count == KERNELS.count(b".entry")
    found = {bytes(cuda.cuFuncGetName(f)) for f in cuda.cuModuleEnumerateFunctions(count, cuda.module)}
    assert {b"nothing", b"spin", b"crash"} <= found
    fails("NOT_FOUND", cuda.cuModuleGetFunction, cuda.module, b"absent")


@pytest.mark.parametrize("kind", ["ModuleEnumerateFunctions", "LibraryEnumerateKernels"])
def test_none_of_an_image_s_functions_need_a_place_too(cuda: Cuda, kind: str) -> None:
    """As an H200's driver has it."""
    library = cuda.cuLibraryLoadData(KERNELS, [], [], 0, [], [], 0)
    image = cuda.module if kind.startswith("Module") else library
    ask = getattr(ctypes.CDLL("libcuda.so.1"), "cu" + kind)
    place, handle = (ctypes.c_void_p * 1)(), ctypes.c_void_p(int(image))
    assert (ask(place, 0, handle), ask(None, 0, handle), place[0]) == (0, 1, None)
    cuda.cuLibraryUnload(library)


def test_names_as_long_as_templates_make_them(cuda: Cuda) -> None:
    name = b"k" + b"x" * 20000
    text = b".version 7.0\n.target sm_70\n.address_size 64\n"
    module = cuda.cuModuleLoadData(
        text + b".visible .global .u32 g" + name + b" = 5;\n.visible .entry " + name + b"() { ret; }\n"
    )
    function = cuda.cuModuleGetFunction(module, name)
    cuda.launch_function(function)
    assert cuda.cuFuncGetName(function) == name
    assert cuda.read(cuda.cuModuleGetGlobal(module, b"g" + name)[0])[0] == 5
    cuda.cuModuleUnload(module)


def test_more_kernels_of_a_module_than_fit_into_one_answer(cuda: Cuda) -> None:
    names = [f"k{number}_{'x' * 1000}" for number in range(200)]
    entries = "".join(f".visible .entry {name}() {{ ret; }}\n" for name in names)
    module = cuda.cuModuleLoadData(f".version 7.0\n.target sm_70\n.address_size 64\n{entries}".encode())
    assert cuda.cuModuleGetFunctionCount(module) == len(names)
    functions = cuda.cuModuleEnumerateFunctions(len(names), module)
    assert {bytes(cuda.cuFuncGetName(each)).decode() for each in functions} == set(names)
    cuda.cuModuleUnload(module)


def test_a_library_is_a_module_without_a_context(cuda: Cuda) -> None:
    library = cuda.cuLibraryLoadData(KERNELS, [], [], 0, [], [], 0)
    kernel = cuda.cuLibraryGetKernel(library, b"store")
    place = cuda.device_words()
    cuda.launch_function(cuda.cuKernelGetFunction(kernel), place, ctypes.c_uint32(5))
    assert cuda.read(place)[0] == 5
    address, _size = cuda.cuLibraryGetGlobal(library, b"counter")
    assert cuda.read(address, 1, np.uint64)[0] == 7
    assert cuda.cuKernelGetName(kernel) == b"store"
    cuda.cuLibraryUnload(library)


def test_a_kernel_belongs_to_the_context_that_it_was_loaded_in(cuda: Cuda) -> None:
    # Of the two errors that its documentation has for that, this is no place to choose.
    refused = ("ERROR_INVALID_HANDLE", "ERROR_INVALID_CONTEXT")
    kernel, stream, shape = cuda.function("nothing"), cuda.stream(), (1, 1, 1, 1, 1, 1, 0)
    other = cuda.cuCtxCreate(None, 0, cuda.device)
    assert cuda.result("cuLaunchKernel", kernel, *shape, 0, 0, 0) in refused
    assert cuda.result("cuLaunchCooperativeKernel", kernel, *shape, 0, 0) in refused
    module = cuda.cuModuleLoadData(KERNELS)
    there = cuda.cuModuleGetFunction(module, b"nothing")
    assert cuda.result("cuLaunchKernel", there, *shape, stream, 0, 0) in refused
    cuda.cuLaunchKernel(there, *shape, 0, 0, 0)
    cuda.cuCtxSynchronize()
    cuda.cuCtxDestroy(other)


@pytest.mark.parametrize(
    ("image", "error"),
    [
        (b"this is no image at all, whatever it is\0" * 8, "INVALID_IMAGE"),
        (
            b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry broken() { nonsense; }\n",
            "INVALID_PTX",
        ),
        (
            b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry broken() { bra NOWHERE; }\n",
            "INVALID_PTX",
        ),
        (b"\x7fELF" + b"\0" * 100, "INVALID_IMAGE"),
        (b".version 99.0\n.target sm_90\n.address_size 64\n", "UNSUPPORTED_PTX_VERSION"),
    ],
)
def test_images_that_are_none(cuda: Cuda, fails: Check, image: bytes, error: str) -> None:
    fails(error, cuda.cuModuleLoadData, image)


def test_what_is_wrong_with_ptx_goes_to_the_log(cuda: Cuda, fails: Check) -> None:
    text = (
        b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry broken()\n{\n  frobnicate.u32;\n}\n"
    )
    log = bytearray(4096)
    option = cuda.CUjit_option
    fails(
        "INVALID_PTX",
        cuda.cuModuleLoadDataEx,
        text,
        2,
        [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES],
        [log, len(log)],
    )
    assert b"line 6" in log
    assert b"frobnicate" in log


def test_the_log_of_what_is_right_is_empty(cuda: Cuda) -> None:
    """And its size says so (CUDA driver API, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)."""
    log = ctypes.create_string_buffer(b"before", 64)
    option = cuda.CUjit_option
    options = (ctypes.c_int * 2)(option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
    module = ctypes.c_void_p()
    load = ctypes.CDLL("libcuda.so.1").cuModuleLoadDataEx
    assert load(ctypes.byref(module), KERNELS, 2, options, values) == 0
    assert (values[1], log.value) == (None, b"")
    cuda.cuModuleUnload(module.value)


def test_launch_attributes(cuda: Cuda, fails: Check) -> None:
    place = cuda.device_words()
    config = cuda.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    config.hStream = cuda.stream()
    priority = cuda.CUlaunchAttribute()
    priority.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PRIORITY
    priority.value.priority = -5
    config.attrs, config.numAttrs = [priority], 1
    cuda.cuLaunchKernelEx(config, cuda.function("count"), ((place,), (ctypes.c_void_p,)), 0)
    assert cuda.read(place)[0] == 1


def test_a_captured_launch_keeps_its_priority(cuda: Cuda) -> None:
    place, stream = cuda.device_words(), cuda.stream()
    config = cuda.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    config.hStream = stream
    priority = cuda.CUlaunchAttribute()
    priority.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PRIORITY
    priority.value.priority = -3
    config.attrs, config.numAttrs = [priority], 1
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    cuda.cuLaunchKernelEx(config, cuda.function("count"), ((place,), (ctypes.c_void_p,)), 0)
    graph = cuda.cuStreamEndCapture(stream)
    (node,) = cuda.cuGraphGetNodes(graph, 1)[0]
    assert cuda.cuGraphKernelNodeGetAttribute(node, priority.id).priority == -3
    cuda.cuGraphDestroy(graph)


@pytest.mark.parametrize("when", ["LAUNCH_COMPLETION", "PROGRAMMATIC"])
def test_an_event_of_a_launch(cuda: Cuda, fails: Check, when: str) -> None:
    """It is over with the kernel at the latest."""
    flags = cuda.CUevent_flags
    event = cuda.cuEventCreate(flags.CU_EVENT_DISABLE_TIMING)
    attribute = cuda.CUlaunchAttribute()
    attribute.id = getattr(cuda.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{when}_EVENT")
    given = (
        attribute.value.launchCompletionEvent if when != "PROGRAMMATIC" else attribute.value.programmaticEvent
    )
    config = cuda.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    config.hStream = cuda.stream()

    def launch(recorded: Any, record_flags: int = 0) -> None:
        given.event, given.flags = recorded, record_flags
        if when == "PROGRAMMATIC":
            attribute.value.programmaticEvent = given
        else:
            attribute.value.launchCompletionEvent = given
        config.attrs, config.numAttrs = [attribute], 1
        cuda.cuLaunchKernelEx(config, cuda.function("count"), ((place,), (ctypes.c_void_p,)), 0)

    place, other = cuda.device_words(), cuda.stream()
    launch(event)
    cuda.cuStreamSynchronize(config.hStream)
    assert cuda.result("cuEventQuery", event) == "SUCCESS"
    cuda.cuStreamWaitEvent(other, event, 0)
    cuda.cuStreamSynchronize(other)
    fails("NOT_SUPPORTED", launch, cuda.cuEventCreate(0))
    fails("ILLEGAL_STATE", launch, event, cuda.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL)
    assert cuda.read(place)[0] == 1


def test_a_cooperative_grid_must_fit(cuda: Cuda, fails: Check) -> None:
    function = cuda.function("nothing")
    cuda.cuLaunchCooperativeKernel(function, 264, 1, 1, 1024, 1, 1, 0, 0, 0)
    fails(
        "COOPERATIVE_LAUNCH_TOO_LARGE",
        cuda.cuLaunchCooperativeKernel,
        function,
        265,
        1,
        1,
        1024,
        1,
        1,
        0,
        0,
        0,
    )


def test_a_library_kernel_keeps_its_attributes(cuda: Cuda) -> None:
    library = cuda.cuLibraryLoadData(KERNELS, [], [], 0, [], [], 0)
    kernel = cuda.cuLibraryGetKernel(library, b"with_shared")
    attribute = cuda.CUfunction_attribute
    shared = cuda.cuKernelGetAttribute(attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel, cuda.device)
    assert shared in (0, 1024)  # unused, so a compiler may drop it
    assert cuda.cuKernelGetAttribute(attribute.CU_FUNC_ATTRIBUTE_BINARY_VERSION, kernel, cuda.device) == 90
    cuda.cuLibraryUnload(library)


def test_launches_that_a_function_keeps(cuda: Cuda) -> None:
    place = cuda.device_words()
    raw = ctypes.CDLL("libcuda.so.1")
    function = ctypes.c_void_p(int(cuda.function("store")))
    pointer = ctypes.c_uint64(place)
    assert raw.cuFuncSetBlockShape(function, 1, 1, 1) == 0
    assert raw.cuFuncSetSharedSize(function, 0) == 0
    assert raw.cuParamSetv(function, 0, ctypes.byref(pointer), 8) == 0
    assert raw.cuParamSeti(function, 8, 77) == 0
    assert raw.cuParamSetSize(function, 12) == 0
    assert raw.cuLaunch(function) == 0
    assert list(cuda.read(place)) == [77]
    assert raw.cuParamSetf(function, 8, ctypes.c_float(1)) == 0
    assert raw.cuLaunchGridAsync(function, 1, 1, None) == 0
    assert list(cuda.read(place)) == [0x3F800000]
    if cuda.simulated or SHIM:  # a genuine driver writes there
        assert raw.cuParamSetv(function, -1, ctypes.byref(pointer), 8) == 1
    assert raw.cuFuncSetBlockShape(function, 0, 1, 1) == 1
    assert raw.cuLaunchGrid(function, 0, 1) == 1


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint64 * 8)]


class Config(ctypes.Structure):
    _fields_ = [
        ("sizes", ctypes.c_uint * 7),  # of the grid, of a block, of shared memory
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    ]


@pytest.mark.parametrize("unknown", [15, 23, 99])
def test_an_attribute_that_cuda_does_not_have(cuda: Cuda, unknown: int) -> None:
    attribute = Attribute(unknown)
    config = Config((1, 1, 1, 1, 1, 1, 0), None, ctypes.pointer(attribute), 1)
    function = ctypes.c_void_p(int(cuda.function("nothing")))
    answer = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx(ctypes.byref(config), function, None, None)
    assert answer == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    cuda.cuCtxSynchronize()

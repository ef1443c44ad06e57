"""Faults: they are sticky, and they are the whole process's."""

import os

import pytest
from cuda_calls import SHIM, Alone, Cuda

SIMULATED = os.environ.get("FIKIT_TEST_DEVICE", "sim") == "sim"
simulated_only = pytest.mark.skipif(not SIMULATED, reason="the watchdog is the simulator's")
ordered = pytest.mark.skipif(
    not SIMULATED or SHIM, reason="the process that runs the simulator is ordered to fault"
)


def illegal_address(cuda: Cuda) -> None:
    cuda.launch("store", 0x10, 1)
    print(
        cuda.result("cuCtxSynchronize"),
        cuda.result("cuMemAlloc", 16),
        cuda.result("cuStreamCreate", 1),
    )


def test_an_illegal_address_is_sticky(alone: Alone) -> None:
    assert alone(illegal_address).split() == ["ERROR_ILLEGAL_ADDRESS"] * 3


def misaligned_address(cuda: Cuda) -> None:
    cuda.launch("store", cuda.device_words(4) + 2, 1)
    print(cuda.result("cuCtxSynchronize"), cuda.result("cuCtxSynchronize"))


def test_a_misaligned_address(alone: Alone) -> None:
    assert alone(misaligned_address).split() == ["ERROR_MISALIGNED_ADDRESS"] * 2


def trap(cuda: Cuda) -> None:
    cuda.launch("crash")
    print(cuda.result("cuCtxSynchronize"), cuda.result("cuMemAlloc", 16))


def test_a_trap(alone: Alone) -> None:
    assert alone(trap).split() == ["ERROR_LAUNCH_FAILED"] * 2


def asked_afterwards(cuda: Cuda) -> None:
    place, stream = cuda.device_words(), cuda.stream()
    memory_type = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    graph = cuda.cuGraphCreate(0)
    cuda.launch("store", 0x10, 1)
    print(
        cuda.result("cuCtxSynchronize"),
        cuda.result("cuGraphCreate", 0),
        cuda.result("cuGraphDestroy", graph),
        cuda.result("cuGraphDestroy", graph),
        cuda.result("cuPointerGetAttribute", memory_type, place),
        cuda.result("cuPointerGetAttributes", 1, [memory_type], place),
        cuda.result("cuModuleGetFunction", cuda.module, b"store"),
        cuda.result("cuModuleGetFunction", cuda.module, b"count"),
        cuda.result("cuCtxGetLimit", cuda.CUlimit.CU_LIMIT_STACK_SIZE),
        cuda.result("cuStreamGetPriority", stream),
        sep="\n",
    )


def test_what_is_told_after_a_fault(alone: Alone) -> None:
    """As an H200 with driver 580 tells: graphs, and what an address is, are the host's."""
    assert alone(asked_afterwards).split() == [
        "ERROR_ILLEGAL_ADDRESS",
        *["SUCCESS", "SUCCESS", "ERROR_INVALID_VALUE"],
        *["SUCCESS"] * 2,
        *["ERROR_ILLEGAL_ADDRESS"] * 4,
    ]


def unmapped(cuda: Cuda) -> None:
    start = int(cuda.cuMemAddressReserve(4 << 20, 0, 0, 0))
    cuda.launch("store", start, 1)
    print(cuda.result("cuCtxSynchronize"))


def test_reserved_is_not_mapped(alone: Alone) -> None:
    assert alone(unmapped).split() == ["ERROR_ILLEGAL_ADDRESS"]


def another_context(cuda: Cuda) -> None:
    other = cuda.cuCtxCreate(None, 0, cuda.device)
    cuda.cuCtxSetCurrent(cuda.context)
    cuda.launch("store", 0x10, 1)
    print(cuda.result("cuCtxSynchronize"))
    cuda.result("cuCtxSetCurrent", other)
    print(cuda.result("cuCtxSynchronize"))
    print(cuda.result("cuCtxCreate", None, 0, cuda.device))


def test_a_fault_is_every_contexts(alone: Alone) -> None:
    assert alone(another_context).split() == ["ERROR_ILLEGAL_ADDRESS"] * 3


def ordered_launch_fault(cuda: Cuda) -> None:
    nothing = cuda.function("nothing")
    for _ in range(3):
        cuda.result("cuLaunchKernel", nothing, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
        print(cuda.result("cuCtxSynchronize"))


@ordered
def test_a_launch_that_is_ordered_to_fault(alone: Alone) -> None:
    out = alone(ordered_launch_fault, FIKIT_SIM_FAULT="launch:3=700").split()
    assert out == ["SUCCESS", "SUCCESS", "ERROR_ILLEGAL_ADDRESS"]


def ordered_stall(cuda: Cuda) -> None:
    start, _ = cuda.pinned_words(4)
    address = cuda.cuMemAlloc(16)
    stream = cuda.stream()
    cuda.cuMemcpyHtoDAsync(address, start, 16, stream)
    cuda.launch("nothing")
    cuda.cuStreamSynchronize(0)
    print(cuda.result("cuStreamQuery", stream))


@ordered
def test_a_copy_that_is_ordered_to_stall(alone: Alone) -> None:
    assert alone(ordered_stall, FIKIT_SIM_FAULT="copy:1=stall").split() == ["ERROR_NOT_READY"]


def ordered_allocation_failure(cuda: Cuda) -> None:
    print(cuda.result("cuMemAlloc", 16), cuda.result("cuMemAlloc", 16), cuda.result("cuMemAlloc", 16))


@ordered
def test_an_allocation_that_is_ordered_to_fail(alone: Alone) -> None:
    out = alone(ordered_allocation_failure, FIKIT_SIM_FAULT="allocation:2=2").split()
    assert out == ["SUCCESS", "ERROR_OUT_OF_MEMORY", "SUCCESS"]


def lost_device(cuda: Cuda) -> None:
    nothing = cuda.function("nothing")
    for _ in range(4):
        cuda.result("cuLaunchKernel", nothing, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
    print(cuda.result("cuCtxSynchronize"), cuda.result("cuMemAlloc", 16))


@ordered
def test_a_device_that_is_ordered_to_be_lost(alone: Alone) -> None:
    out = alone(lost_device, FIKIT_SIM_FAULT="device_lost:after=3").split()
    assert out == ["ERROR_DEVICE_UNAVAILABLE"] * 2


def too_much_memory(cuda: Cuda) -> None:
    _free, total = cuda.cuMemGetInfo()
    print(cuda.result("cuMemAlloc", total + (1 << 30)), cuda.result("cuMemAlloc", 16))


def test_out_of_memory_is_not_sticky(alone: Alone) -> None:
    assert alone(too_much_memory).split() == ["ERROR_OUT_OF_MEMORY", "SUCCESS"]


def a_graph_that_faults(cuda: Cuda) -> None:
    stream = cuda.stream()
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    cuda.launch("store", 0x10, 1, stream=stream)
    graph = cuda.cuStreamEndCapture(stream)
    executable = cuda.cuGraphInstantiate(graph, 0)
    cuda.cuGraphLaunch(executable, stream)
    print(cuda.result("cuStreamSynchronize", stream), cuda.result("cuMemAlloc", 16))


def test_a_fault_in_a_graph(alone: Alone) -> None:
    assert alone(a_graph_that_faults).split() == ["ERROR_ILLEGAL_ADDRESS"] * 2


def counting(cuda: Cuda) -> None:
    """A loop that only passes time, of one thread that stands for all."""
    module = cuda.cuModuleLoadData(
        b".version 8.0\n.target sm_90\n.address_size 64\n"
        b".visible .entry counting(.param .u64 to) { .reg .pred %p; .reg .b32 %r<2>; .reg .b64 %rd;\n"
        b"ld.param.u64 %rd, [to]; mov.u32 %r1, 0;\nL: add.u32 %r1, %r1, 1;\nsetp.lt.u32 %p, %r1, 3000000;\n"
        b"@%p bra L; st.global.u32 [%rd], %r1; ret;\n}\n"
    )
    to = cuda.device_words()
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"counting"), to)
    print(cuda.result("cuCtxSynchronize"), cuda.read(to)[0])


def test_a_long_loop_ends(alone: Alone) -> None:
    assert alone(counting).split() == ["SUCCESS", "3000000"]


def endless(cuda: Cuda) -> None:
    module = cuda.cuModuleLoadData(
        b".version 8.0\n.target sm_90\n.address_size 64\n"
        b".visible .entry endless() { .reg .b32 %r<2>;\nmov.u32 %r1, 0;\nL: add.u32 %r1, %r1, 1;\nbra L;\n}\n"
    )
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"endless"))
    print(cuda.result("cuCtxSynchronize"))


@simulated_only
def test_an_endless_loop_meets_the_watchdog(alone: Alone) -> None:
    assert alone(endless).split() == ["ERROR_LAUNCH_TIMEOUT"]

"""Green contexts."""

import ctypes
from typing import Any

import pytest
from cuda_calls import Check, Cuda


@pytest.fixture
def resource(cuda: Cuda) -> Any:
    return cuda.cuDeviceGetDevResource(cuda.device, cuda.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM)


def make(cuda: Cuda, resource: Any, count: int) -> Any:
    groups, _number, rest = cuda.cuDevSmResourceSplitByCount(1, resource, 0, count)
    description = cuda.cuDevResourceGenerateDesc(groups, 1)
    flag = cuda.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM.value
    return cuda.cuGreenCtxCreate(description, cuda.device, flag), groups[0], rest


def test_the_device_has_all_its_sms(resource: Any) -> None:
    assert resource.sm.smCount == 132


@pytest.mark.parametrize("count", [8, 16, 32, 64, 96, 120])
def test_sizes(cuda: Cuda, resource: Any, count: int) -> None:
    green, group, rest = make(cuda, resource, count)
    assert group.sm.smCount == count
    assert rest.sm.smCount == 132 - count
    kind = cuda.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    assert cuda.cuGreenCtxGetDevResource(green, kind).sm.smCount == count
    cuda.cuGreenCtxDestroy(green)


def test_too_many_sms(cuda: Cuda, resource: Any, fails: Check) -> None:
    fails("INVALID_RESOURCE_CONFIGURATION", cuda.cuDevSmResourceSplitByCount, 1, resource, 0, 133)


@pytest.mark.parametrize(("asked", "given"), [(0, 8), (1, 8), (9, 16), (20, 24), (60, 64), (130, 132)])
def test_sizes_are_rounded_up_to_eight(cuda: Cuda, resource: Any, asked: int, given: int) -> None:
    groups, number, rest = cuda.cuDevSmResourceSplitByCount(1, resource, 0, asked)
    assert number == 1
    assert (groups[0].sm.smCount, rest.sm.smCount) == (given, 132 - given)


def test_a_stream_of_a_green_context_keeps_to_its_sms(cuda: Cuda, resource: Any) -> None:
    green, _group, _rest = make(cuda, resource, 16)
    stream = cuda.cuGreenCtxStreamCreate(green, cuda.CUstream_flags.CU_STREAM_NON_BLOCKING.value, 0)
    assert int(cuda.cuStreamGetGreenCtx(stream)) == int(green)
    start, end = cuda.cuEventCreate(0), cuda.cuEventCreate(0)
    with cuda.held(stream):
        cuda.launch("nothing", stream=stream)
        cuda.cuEventRecord(start, stream)
        cuda.launch("spin", 3_000_000, grid=64, block=1024, stream=stream)  # 16 SMs hold 32 blocks
        cuda.cuEventRecord(end, stream)
    assert 6 <= cuda.cuEventElapsedTime(start, end) < 7
    cuda.cuStreamDestroy(stream)
    cuda.cuGreenCtxDestroy(green)


def test_events_order_green_and_ordinary_streams(cuda: Cuda, resource: Any) -> None:
    green, _group, _rest = make(cuda, resource, 16)
    stream = cuda.cuGreenCtxStreamCreate(green, cuda.CUstream_flags.CU_STREAM_NON_BLOCKING.value, 0)
    other = cuda.stream()
    place = cuda.device_words()
    event = cuda.cuEventCreate(2)
    cuda.launch("spin_store", 1_000_000, place, ctypes.c_uint32(1), stream=stream)
    cuda.cuEventRecord(event, stream)
    cuda.cuStreamWaitEvent(other, event, 0)
    cuda.launch("store", place, ctypes.c_uint32(2), stream=other)
    cuda.cuStreamSynchronize(other)
    assert cuda.read(place)[0] == 2
    cuda.cuStreamDestroy(stream)
    cuda.cuGreenCtxDestroy(green)


def test_a_flood_on_a_partition_leaves_the_rest_free(cuda: Cuda, resource: Any) -> None:
    green, _group, _rest = make(cuda, resource, 16)
    flood = cuda.cuGreenCtxStreamCreate(green, cuda.CUstream_flags.CU_STREAM_NON_BLOCKING.value, 0)
    high = cuda.stream(-5)
    start, flood_end, high_end = (cuda.cuEventCreate(0) for _ in range(3))
    with cuda.held(flood):
        cuda.cuEventRecord(start, flood)
        cuda.launch("spin", 10_000_000, grid=64, block=1024, stream=flood)
        cuda.cuEventRecord(flood_end, flood)
        cuda.cuStreamWaitEvent(high, start, 0)
        cuda.launch("spin", 100_000, grid=132, block=128, stream=high)
        cuda.cuEventRecord(high_end, high)
    cuda.cuStreamSynchronize(high)
    assert cuda.cuEventElapsedTime(start, high_end) < cuda.cuEventElapsedTime(start, flood_end) / 2
    cuda.cuStreamDestroy(flood)
    cuda.cuGreenCtxDestroy(green)

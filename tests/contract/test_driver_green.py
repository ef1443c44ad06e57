"""Green contexts."""

import ctypes
from typing import Any

import pytest
from cuda_calls import Alone, Check, Cuda


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


def test_a_green_context_is_current_beside_the_primary_one(cuda: Cuda, resource: Any) -> None:
    green, _group, _rest = make(cuda, resource, 16)
    primary = cuda.cuCtxGetCurrent()
    context = cuda.cuCtxFromGreenCtx(green)
    assert int(context) != int(primary)
    assert cuda.cuGreenCtxGetId(green) == cuda.cuCtxGetId(context)
    assert int(cuda.cuStreamGetGreenCtx(0)) == 0
    ready = cuda.cuEventCreate(2)
    cuda.launch("spin_store", 1_000_000, place := cuda.device_words(), ctypes.c_uint32(1))
    cuda.cuEventRecord(ready, 0)
    cuda.cuCtxPushCurrent(context)
    assert int(cuda.cuCtxGetCurrent()) == int(context)
    assert int(cuda.cuCtxGetDevice()) == int(cuda.device)
    assert int(cuda.cuStreamGetGreenCtx(0)) == int(green)
    assert cuda.cuCtxGetDevResource(context, resource.type).sm.smCount == 16
    stream = cuda.cuStreamCreate(1)
    assert int(cuda.cuStreamGetGreenCtx(stream)) == int(green)
    assert int(cuda.cuStreamGetCtx(stream)) == int(context)
    assert [int(each) for each in cuda.cuStreamGetCtx_v2(stream)] == [int(primary), int(green)]
    own, done = cuda.cuMemAlloc(4096), cuda.cuEventCreate(2)
    cuda.cuStreamWaitEvent(0, ready, 0)
    cuda.launch("count", place)  # of the primary context's module
    cuda.cuMemsetD32Async(own, 7, 1, 0)
    cuda.cuEventRecord(done, 0)
    cuda.cuStreamWaitEvent(stream, done, 0)
    cuda.launch("count", own, stream=stream)
    cuda.cuStreamSynchronize(stream)
    cuda.cuStreamDestroy(stream)
    assert int(cuda.cuCtxPopCurrent()) == int(context)
    cuda.cuStreamWaitEvent(0, done, 0)
    cuda.launch("count", place)
    cuda.cuGreenCtxDestroy(green)
    assert (cuda.read(place)[0], cuda.read(own)[0]) == (3, 8)
    cuda.cuEventRecord(done, 0)
    cuda.cuEventSynchronize(done)
    cuda.cuEventDestroy(done)
    cuda.cuMemFree(own)


def test_events_of_a_whole_green_context(cuda: Cuda, resource: Any) -> None:
    green, _group, _rest = make(cuda, resource, 8)
    streams = [cuda.cuGreenCtxStreamCreate(green, 1, 0) for _ in range(2)]
    place, event, other = cuda.device_words(), cuda.cuEventCreate(2), cuda.stream()
    for stream in streams:
        cuda.launch("spin_store", 1_000_000, place, ctypes.c_uint32(1), stream=stream)
    cuda.cuGreenCtxRecordEvent(green, event)
    cuda.cuStreamWaitEvent(other, event, 0)
    cuda.launch("spin_store", 1_000_000, place, ctypes.c_uint32(5), stream=other)
    cuda.cuEventRecord(event, other)
    cuda.cuGreenCtxWaitEvent(green, event)
    cuda.launch("count", place, stream=streams[1])
    cuda.cuStreamSynchronize(streams[1])
    assert cuda.read(place)[0] == 6
    for stream in streams:
        cuda.cuStreamDestroy(stream)
    cuda.cuGreenCtxDestroy(green)


def test_what_resources_are_refused(cuda: Cuda, resource: Any, fails: Check) -> None:
    kind = cuda.CUdevResourceType
    none = kind.CU_DEV_RESOURCE_TYPE_INVALID
    fails("INVALID_RESOURCE_TYPE", cuda.cuDeviceGetDevResource, cuda.device, none)
    groups, number, _rest = cuda.cuDevSmResourceSplitByCount(3, resource, 0, 32)
    assert (number, [group.sm.smCount for group in groups]) == (3, [32, 32, 32])
    fails("INVALID_RESOURCE_CONFIGURATION", cuda.cuDevSmResourceSplitByCount, 1, groups[0], 0, 8)
    description = cuda.cuDevResourceGenerateDesc([groups[0], groups[2]], 2)
    fails("INVALID_VALUE", cuda.cuGreenCtxCreate, description, cuda.device, 0)
    flag = cuda.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM.value
    green = cuda.cuGreenCtxCreate(description, cuda.device, flag)
    assert cuda.cuGreenCtxGetDevResource(green, kind.CU_DEV_RESOURCE_TYPE_SM).sm.smCount == 64
    fails("INVALID_VALUE", cuda.cuGreenCtxStreamCreate, green, 0, 0)
    fails("INVALID_CONTEXT", cuda.cuCtxDestroy, cuda.cuCtxFromGreenCtx(green))
    again, number, _rest = cuda.cuDevSmResourceSplitByCount(
        8, cuda.cuGreenCtxGetDevResource(green, kind.CU_DEV_RESOURCE_TYPE_SM), 0, 16
    )
    assert number == 4
    cuda.cuDevResourceGenerateDesc([again[0], again[0]], 2)
    cuda.cuGreenCtxDestroy(green)


def kept(cuda: Cuda) -> None:
    whole = cuda.cuDeviceGetDevResource(cuda.device, cuda.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM)
    groups, _number, _rest = cuda.cuDevSmResourceSplitByCount(1, whole, 0, 8)
    flag = cuda.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM.value
    green = cuda.cuGreenCtxCreate(cuda.cuDevResourceGenerateDesc(groups, 1), cuda.device, flag)
    place = cuda.device_words()
    print(
        cuda.result("cuDevicePrimaryCtxReset", cuda.device),
        cuda.result("cuDevicePrimaryCtxRelease", cuda.device),
        cuda.result("cuDevicePrimaryCtxRelease", cuda.device),  # what the green one holds
        cuda.cuDevicePrimaryCtxGetState(cuda.device)[1],
    )
    cuda.launch("count", place)
    print(cuda.read(place)[0])
    cuda.cuGreenCtxDestroy(green)
    print(cuda.result("cuDevicePrimaryCtxReset", cuda.device), cuda.result("cuMemFree", place))


def test_a_green_context_keeps_its_primary_one(alone: Alone) -> None:
    refused, over = "ERROR_NOT_PERMITTED", "ERROR_CONTEXT_IS_DESTROYED"
    assert alone(kept).split() == [refused, "SUCCESS", refused, "1", "1", "SUCCESS", over]


def test_events_of_a_whole_green_context_and_captures(cuda: Cuda, resource: Any, fails: Check) -> None:
    """As cuda.h has it of either call: the captures are spoilt, the context's and the event's."""
    green, _group, _rest = make(cuda, resource, 8)
    own, other = cuda.cuGreenCtxStreamCreate(green, 1, 0), cuda.stream()
    event = cuda.cuEventCreate(2)
    mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    for call in (cuda.cuGreenCtxRecordEvent, cuda.cuGreenCtxWaitEvent):
        cuda.cuStreamBeginCapture(own, mode)
        fails("STREAM_CAPTURE_UNSUPPORTED", call, green, event)
        fails("STREAM_CAPTURE_INVALIDATED", cuda.cuStreamEndCapture, own)
    for wait, context in ((cuda.cuGreenCtxWaitEvent, green), (cuda.cuCtxWaitEvent, cuda.context)):
        aside = other if context is green else own
        cuda.cuStreamBeginCapture(aside, mode)
        cuda.cuEventRecord(event, aside)
        fails("CAPTURED_EVENT", wait, context, event)
        fails("STREAM_CAPTURE_INVALIDATED", cuda.cuStreamEndCapture, aside)
    cuda.cuGreenCtxRecordEvent(green, event)
    cuda.cuEventSynchronize(event)
    for stream in (own, other):
        cuda.cuStreamDestroy(stream)
    cuda.cuGreenCtxDestroy(green)

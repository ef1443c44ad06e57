"""The linker: what it joins, what it misses, what it makes of machine code."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cuda_calls import KERNELS, Alone, Check, Cuda, compiled
from test_driver_images import DEFINED, HEAD

CALLER = b"""
__device__ int twice(int);
__device__ int many[5000];
extern "C" __global__ void put(int* place, int value) {
    __shared__ int room[3000];
    room[value] = value;
    many[value] = twice(room[value]);
    *place = many[value];
}"""
TWICE = b"__device__ int twice(int value) { return 2 * value; }"


def test_machine_code_is_linked(cuda: Cuda, fails: Check) -> None:
    """Its shared memory and variables have sizes, and nothing in the file."""
    parts = [compiled(text, b"--gpu-architecture=sm_90", b"-rdc=true") for text in (CALLER, TWICE)]
    state = cuda.cuLinkCreate(0, [], [])
    kind = cuda.CUjitInputType.CU_JIT_INPUT_CUBIN
    if cuda.simulated:
        fails("NOT_SUPPORTED", cuda.cuLinkAddData, state, kind, parts[0], len(parts[0]), b"", 0, [], [])
        cuda.cuLinkDestroy(state)
        return
    for part in parts:
        cuda.cuLinkAddData(state, kind, part, len(part), b"", 0, [], [])
    image, _size = cuda.cuLinkComplete(state)
    put = cuda.cuModuleGetFunction(cuda.cuModuleLoadData(image), b"put")
    place = cuda.device_words()
    cuda.launch_function(put, place, ctypes.c_int(21))
    assert cuda.read(place)[0] == 42
    cuda.cuLinkDestroy(state)


def test_the_linker(cuda: Cuda, fails: Check) -> None:
    state = cuda.cuLinkCreate(0, [], [])
    kind = cuda.CUjitInputType.CU_JIT_INPUT_PTX
    text = KERNELS + b"\0"
    cuda.cuLinkAddData(state, kind, text, len(text), b"kernels", 0, [], [])
    image, _size = cuda.cuLinkComplete(state)
    module = cuda.cuModuleLoadData(image)
    place = cuda.device_words()
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"store"), place, ctypes.c_uint32(6))
    assert cuda.read(place)[0] == 6
    cuda.cuModuleUnload(module)
    cuda.cuLinkDestroy(state)
    fails("FILE_NOT_FOUND", lambda: add_missing(cuda))


def linking_what_is_absent(cuda: Cuda) -> None:
    text = b""".version 7.8
    .target sm_80
    .address_size 64
    .extern .func absent();
    .visible .entry calls() { call.uni absent, (); ret; }
    \0"""
    state = cuda.cuLinkCreate(0, [], [])
    cuda.cuLinkAddData(state, cuda.CUjitInputType.CU_JIT_INPUT_PTX, text, len(text), b"", 0, [], [])
    print(cuda.result("cuLinkComplete", state))
    cuda.cuLinkDestroy(state)
    place = cuda.device_words()
    cuda.launch("store", place, ctypes.c_uint32(7))
    print(cuda.read(place)[0])


def test_what_the_linker_misses_is_not_the_end_of_the_context(alone: Alone) -> None:
    """In a process of its own: what a linker of an H200 says depends on the wrong images that it had before.

    Then it is UNKNOWN, or nothing is missing to it.
    """
    assert alone(linking_what_is_absent).split() == ["ERROR_INVALID_SOURCE", "7"]


LINKED = b"""
.extern .global .align 4 .u32 later;
.shared .align 8 .b8 room[64];
.visible .entry tell(.param .u64 place)
{
    .reg .b32 %value;
    .reg .b64 %place;
    ld.param.u64 %place, [place];
    ld.global.u32 %value, [later];
    st.shared.u32 [room+60], %value;
    ld.shared.u32 %value, [room+60];
    st.global.u32 [%place], %value;
    ret;
}
"""


def linker_of(cuda: Cuda, texts: Sequence[bytes]) -> Any:
    """Return a linker that got these texts, whatever it says of them."""
    state = cuda.cuLinkCreate(0, [], [])
    for text in texts:
        whole = HEAD + text + b"\0"
        kind = cuda.CUjitInputType.CU_JIT_INPUT_PTX
        cuda.result("cuLinkAddData", state, kind, whole, len(whole), b"", 0, [], [])
    return state


def test_what_is_said_to_be_ptx_and_is_none(cuda: Cuda, fails: Check) -> None:
    state = cuda.cuLinkCreate(0, [], [])
    kind = cuda.CUjitInputType.CU_JIT_INPUT_PTX
    for text in (b"garbage\0", b"\0"):
        fails("INVALID_IMAGE", cuda.cuLinkAddData, state, kind, text, len(text), b"", 0, [], [])
    cuda.cuLinkDestroy(state)


def test_the_linker_joins_variables(cuda: Cuda) -> None:
    weak = DEFINED.replace(b".visible", b".weak")
    for texts in ((LINKED, DEFINED), (DEFINED, LINKED), (LINKED + DEFINED,), (LINKED, weak)):
        state = linker_of(cuda, texts)
        image, _size = cuda.cuLinkComplete(state)
        tell = cuda.cuModuleGetFunction(cuda.cuModuleLoadData(image), b"tell")
        place = cuda.device_words()
        cuda.launch_function(tell, place)
        assert list(cuda.read(place)) == [5]
        cuda.cuLinkDestroy(state)


def linking_without_variables(cuda: Cuda) -> None:
    import test_driver_linker as linker

    room = linker.LINKED.replace(b".shared", b".extern .shared", 1)
    other = linker.DEFINED.replace(b"later", b"other")
    missing = ((linker.LINKED,), (linker.LINKED, other), (room, linker.DEFINED))
    for texts in (*missing, (linker.DEFINED, linker.DEFINED)):
        state = linker.linker_of(cuda, texts)
        print(cuda.result("cuLinkComplete", state))
        cuda.cuLinkDestroy(state)


def test_the_linker_finds_every_variable_once(alone: Alone) -> None:
    """Unlike a module that is loaded, where a variable may be declared and nothing more.

    An H200 has given either error for the same texts.
    """
    results = alone(linking_without_variables).split()
    assert len(results) == 4
    assert set(results) <= {"ERROR_INVALID_SOURCE", "ERROR_UNKNOWN"}


# What calls `keep` for a result, and `keep`, which gives none.
FOR_A_RESULT = b""".extern .func (.param .b64 nothing) keep (.param .b64 place, .param .b32 value);
.visible .entry put(.param .u64 place, .param .u32 value) {
    .reg .b64 %place, %unused;
    .reg .b32 %value;
    ld.param.u64 %place, [place];
    ld.param.u32 %value, [value];
    {
        .param .b64 first;
        .param .b32 second;
        .param .b64 back;
        st.param.b64 [first], %place;
        st.param.b32 [second], %value;
        call.uni (back), keep, (first, second);
        ld.param.b64 %unused, [back];
    }
    ret;
}
"""
WITHOUT_A_RESULT = b""".visible .func keep(.param .b64 place, .param .b32 value) {
    .reg .b64 %place;
    .reg .b32 %value;
    ld.param.u64 %place, [place];
    ld.param.u32 %value, [value];
    st.u32 [%place], %value;
    ret;
}
"""


def linking_what_differs(cuda: Cuda) -> None:
    import test_driver_linker as linker

    state = linker.linker_of(cuda, (linker.FOR_A_RESULT, linker.WITHOUT_A_RESULT))
    print(cuda.result("cuLinkComplete", state))


def test_prototypes_that_differ_are_not_linked(alone: Alone) -> None:
    """An H200 has given either error."""
    assert alone(linking_what_differs).strip() in ("ERROR_INVALID_SOURCE", "ERROR_UNKNOWN")


# Two objects as a compiler makes them: both call something `own`, `text` and `shared_by_all`.
IN_BOTH = b"""
.func (.param .u32 result) own() {
    .reg .u32 %value;
    ld.const.u32 %value, [text+4];
    st.param.u32 [result], %value;
    ret;
}
.weak .func (.param .u32 result) shared_by_all() {
    .reg .u32 %value;
    mov.u32 %value, 1000;
    st.param.u32 [result], %value;
    ret;
}
"""
CALLS = (
    b"""
.extern .func (.param .u32 result) other();
.extern .shared .align 4 .u32 room[16];
.const .align 4 .u32 text[2] = {1, 2};
"""
    + IN_BOTH
    + b"""
.weak .global .align 4 .u32 either = 50000;
.visible .entry tell(.param .u64 place) {
    .shared .align 4 .u32 mine[16];
    .reg .u32 %value<4>;
    .reg .u64 %place;
    ld.param.u64 %place, [place];
    mov.u32 %value1, 7;
    st.shared.u32 [mine+60], %value1;
    st.shared.u32 [room+60], 8;
    { .param .u32 result<2>; call (result0), own, (); call (result1), other, ();
      ld.param.u32 %value2, [result0]; ld.param.u32 %value3, [result1]; }
    ld.shared.u32 %value1, [mine+60];
    add.u32 %value2, %value2, %value1;
    add.u32 %value2, %value2, %value3;
    st.global.u32 [%place], %value2;
    ret;
}
"""
)
CALLED = (
    b"""
.visible .shared .align 4 .u32 room[16];
.shared .align 4 .u32 more[16];
.const .align 4 .u32 text[2] = {3, 40};
.weak .global .align 4 .u32 either = 50000;
"""
    + IN_BOTH
    + b"""
.visible .func (.param .u32 result) other() {
    .reg .u32 %value<4>;
    st.shared.u32 [more+60], 300;
    { .param .u32 result<2>; call (result0), own, (); call (result1), shared_by_all, ();
      ld.param.u32 %value0, [result0]; ld.param.u32 %value1, [result1]; }
    ld.shared.u32 %value2, [room+60];
    ld.shared.u32 %value3, [more+60];
    add.u32 %value0, %value0, %value1;
    add.u32 %value0, %value0, %value2;
    add.u32 %value0, %value0, %value3;
    ld.global.u32 %value1, [either];
    add.u32 %value0, %value0, %value1;
    st.param.u32 [result], %value0;
    ret;
}
"""
)


def test_names_without_a_linking_directive_are_their_object_s_own(cuda: Cuda) -> None:
    for texts in ((CALLS, CALLED), (CALLED, CALLS)):
        state = linker_of(cuda, texts)
        image, _size = cuda.cuLinkComplete(state)
        module = cuda.cuModuleLoadData(image)
        place = cuda.device_words()
        cuda.launch_function(cuda.cuModuleGetFunction(module, b"tell"), place)
        assert list(cuda.read(place)) == [2 + 7 + 40 + 1000 + 8 + 300 + 50000]
        cuda.cuModuleUnload(module)
        cuda.cuLinkDestroy(state)


def add_missing(cuda: Cuda) -> None:
    state = cuda.cuLinkCreate(0, [], [])
    kind = cuda.CUjitInputType.CU_JIT_INPUT_PTX
    try:
        cuda.cuLinkAddFile(state, kind, b"/nowhere/at/all", 0, [], [])
    finally:
        cuda.cuLinkDestroy(state)


PLUS = b"""
.visible .func (.param .u32 result) plus(.param .u32 value)
{
    .reg .b32 %value;
    ld.param.u32 %value, [value];
    add.u32 %value, %value, 1;
    st.param.u32 [result], %value;
    ret;
}
.visible .func (.param .u32 result) more(.param .u32 value);
.alias more, plus;
.visible .func (.param .u32 result) again(.param .u32 value);
.alias again, plus;
"""
OF_ANOTHER_OBJECT = b"""
.extern .func (.param .u32 result) more(.param .u32 value);
.extern .func (.param .u32 result) again(.param .u32 value);
"""
MORE = b"""
.global .align 8 .u64 table[1] = {more};
.visible .entry tell(.param .u64 place)
{
    .reg .b32 %value;
    .reg .b64 %place, %function;
    .param .b32 result;
    .param .b32 argument;
    ld.param.u64 %place, [place];
    ld.global.u32 %value, [%place];
    st.param.b32 [argument], %value;
    call (result), more, (argument);
    ld.param.b32 %value, [result];
    st.param.b32 [argument], %value;
    call (result), again, (argument);
    ld.param.b32 %value, [result];
    st.param.b32 [argument], %value;
    ld.global.u64 %function, [table];
prototype: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (result), %function, (argument), prototype;
    ld.param.b32 %value, [result];
    st.global.u32 [%place], %value;
    ret;
}
"""


def test_a_function_has_other_names(cuda: Cuda, fails: Check) -> None:
    state = linker_of(cuda, (OF_ANOTHER_OBJECT + MORE, PLUS))
    linked, _size = cuda.cuLinkComplete(state)
    for image in (linked, HEAD + PLUS + MORE + b"\0"):
        module = cuda.cuModuleLoadData(image)
        place = cuda.device_words()
        cuda.launch_function(cuda.cuModuleGetFunction(module, b"tell"), place)
        assert list(cuda.read(place)) == [3]
        cuda.cuModuleUnload(module)
    cuda.cuLinkDestroy(state)
    for wrong in (
        b".alias other, plus;",
        b".alias more, plus;",
        b".alias plus, more;",
        b".visible .func other(); .alias other, plus;",
        b".visible .func (.param .u32 r) other(.param .u64 v); .alias other, plus;",
        b".visible .entry other() { ret; } .alias other, plus;",
        b".visible .func (.param .u32 r) other(.param .u32 v); .alias other, missing;",
    ):
        fails("INVALID_PTX", cuda.cuModuleLoadData, HEAD + PLUS + wrong + b"\0")


NESTED = b"""
.extern .func (.param .b64 place) __cudaCDP2GetParameterBufferV2(.param .b64 kernel,
    .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12], .param .b32 shared);
.extern .func (.param .b32 result) __cudaCDP2LaunchDeviceV2(.param .b64 place, .param .b64 stream);
.visible .entry nested(.param .u64 place, .param .u32 launches)
{
    .reg .pred %none;
    .reg .b32 %value;
    .reg .b64 %place;
    ld.param.u32 %value, [launches];
    ld.param.u64 %place, [place];
    setp.eq.u32 %none, %value, 0;
    @%none bra STORE;
    {
        .param .b64 kernel;
        .param .align 4 .b8 grid[12];
        .param .align 4 .b8 block[12];
        .param .b32 shared;
        .param .b64 given;
        .param .b64 stream;
        .param .b32 result;
        st.param.b64 [kernel], %place;
        st.param.b32 [shared], 0;
        call.uni (given), __cudaCDP2GetParameterBufferV2, (kernel, grid, block, shared);
        ld.param.b64 %place, [given];
        st.param.b64 [kernel], %place;
        st.param.b64 [stream], 0;
        call.uni (result), __cudaCDP2LaunchDeviceV2, (kernel, stream);
    }
STORE:
    st.global.u32 [%place], 7;
    ret;
}
"""


def test_a_kernel_that_might_launch_kernels_runs_as_long_as_it_does_not(cuda: Cuda) -> None:
    toolkit = pytest.importorskip("nvidia.cu13")
    places = (Path(folder, "lib/libcudadevrt.a") for folder in toolkit.__path__)
    archive = next(place for place in places if place.exists()).read_bytes()
    state = linker_of(cuda, [NESTED])
    cuda.cuLinkAddData(state, cuda.CUjitInputType.CU_JIT_INPUT_LIBRARY, archive, len(archive), b"", 0, [], [])
    image, _ = cuda.cuLinkComplete(state)
    module = cuda.cuModuleLoadData(image)
    cuda.cuLinkDestroy(state)
    place = cuda.device_words()
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"nested"), place, ctypes.c_uint32(0))
    assert cuda.read(place)[0] == 7
    cuda.cuModuleUnload(module)


def test_what_the_linker_said_stays(cuda: Cuda) -> None:
    """A call that has nothing to say leaves what an earlier one said of what was wrong."""
    options, kind = cuda.CUjit_option, cuda.CUjitInputType.CU_JIT_INPUT_PTX
    log = bytearray(b"x" * 4096)
    names = [options.CU_JIT_ERROR_LOG_BUFFER, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    state = cuda.cuLinkCreate(2, names, [log, len(log)])
    assert log[0] == 0
    wrong, right = HEAD + b".visible .entry wrong() { nonsense; }\0", KERNELS + b"\0"
    assert "PTX" in cuda.result("cuLinkAddData", state, kind, wrong, len(wrong), b"", 0, [], [])
    said = bytes(log)
    assert said[0] != 0
    cuda.cuLinkAddData(state, kind, right, len(right), b"", 0, [], [])
    cuda.cuLinkComplete(state)
    assert bytes(log) == said
    cuda.cuLinkDestroy(state)

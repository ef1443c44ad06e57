"""Which instructions the driver's compiler takes and which it refuses, by name and line.

tests/data/forms/instructions.txt has them, `+` or `-` before each, as ptxas 13.0 judges for sm_90. Names of
registers say their type: w has 32 bits, x 64, h 16, b 8, v 128, p and q are predicates; f .f32, e .f64, u
.u32, s .s32. `sust.b.2d.v2.b32.trap [x, {w1,w2}], w;` is not among them: ptxas refuses it, and the driver's
own compiler (580.159.04) crashes on it, so that nobody can be asked.
"""

from pathlib import Path

import numpy as np
import pytest
from cuda_calls import Cuda

LINES = (Path(__file__).parents[1] / "data/forms/instructions.txt").read_text().splitlines()
HEADER = """.version 8.6
.target sm_90
.address_size 64
.global .align 16 .b8 glo[64]; .const .align 16 .b8 con[64];
"""
NAMES = {
    ".b8": "b b1",
    ".b16": "h h1 h2 h3",
    ".b32": "w w1 w2 w3 w4 w5 w6 w7 w8 w9",
    ".b64": "x x1 x2 x3 y",
    ".b128": "v",
    ".f32": "f f1 f2 f3 f4 f5 f6 f7",
    ".f64": "e e1 e2 e3",
    ".u32": "u u1 u2 u3",
    ".s32": "s s1",
    ".pred": "p q",
}
REGISTERS = " ".join(f".reg {kind} {', '.join(names.split())};" for kind, names in NAMES.items())
ROOM = ".local .align 16 .b8 loc[64]; .shared .align 16 .b8 sha[64];"


def kernel(number: int, instruction: str) -> str:
    start = f".visible .entry form_{number}(.param .u64 par_{number}) {{"
    body = instruction.replace("[par", f"[par_{number}").replace(" par;", f" par_{number};")
    return f"{start} {REGISTERS} {ROOM}\n{body}\nret; }}\n"


def test_forms_that_are_taken(cuda: Cuda) -> None:
    text = HEADER + "".join(kernel(number, line[2:]) for number, line in enumerate(LINES) if line[0] == "+")
    cuda.cuModuleUnload(cuda.cuModuleLoadData(text.encode()))


def test_forms_that_are_refused(cuda: Cuda) -> None:
    refused = [line[2:] for line in LINES if line[0] == "-"]
    taken = []
    for instruction in refused:
        text = (HEADER + kernel(0, instruction)).encode()
        if cuda.result("cuModuleLoadData", text) != "ERROR_INVALID_PTX":
            taken.append(instruction)
    assert taken == []
    assert len(refused) > 150


# Constant expressions of C, and what they are in 64 bits.
CONSTANTS = {
    "1+2*3-4": 3,
    "(1+2)*3": 9,
    "7-2-1": 4,
    "-7/2": -3,
    "-7 % 3": 0,  # as unsigned numbers
    "1<<4|3&6^5": 23,
    "1<<2+3": 32,
    "-16>>2": -4,
    "0x8000000000000000>>60": 8,
    "(.s64)0x8000000000000000>>60": -8,
    "(.u64)-1/2": 2**63 - 1,
    "-1<1": 1,
    "-1<1U": 0,
    "3>=3&&!0||0": 1,
    "2==2?5<=4?6:7:8": 7,
    "~(5!=4)": -2,
    "WARP_SZ*2": 64,
    "-+-5": 5,
    "~1>>1": 2**63 - 1,
    "(-2 % -1)>>1": 2**63 - 1,
    "(1?-2:1U)>>1": -1,
    "1<<65": 2,
}


def test_constant_expressions(cuda: Cuda) -> None:
    text = HEADER + f".global .b64 given[{len(CONSTANTS)}] = {{{', '.join(CONSTANTS)}}};\n"
    text += ".visible .entry k(.param .u64 out) { .reg .b64 o, x; ld.param.u64 o, [out];\n"
    for index, expression in enumerate(CONSTANTS):
        text += f"mov.b64 x, {expression}; st.global.b64 [o+8*{index}], x;\n"
        text += f"ld.global.b64 x, [given+{index}*4*2]; st.global.b64 [o+8*({index}+{len(CONSTANTS)})], x;\n"
    module = cuda.cuModuleLoadData((text + "ret; }").encode())
    target = cuda.cuMemAlloc(16 * len(CONSTANTS))
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"k"), target)
    found = cuda.read(target, 2 * len(CONSTANTS), np.int64)
    cuda.cuMemFree(target)
    cuda.cuModuleUnload(module)
    wanted = list(CONSTANTS.values())
    assert (dict(zip(CONSTANTS, found, strict=False)), list(found)) == (CONSTANTS, [*wanted, *wanted])


def test_constant_memory_has_64_kib(cuda: Cuda) -> None:
    head = HEADER[: HEADER.index(".global")]
    loaded = [
        cuda.result("cuModuleLoadData", f"{head}{variables}\n.visible .entry k() {{ ret; }}".encode())
        for variables in (".const .b8 c[65536];", ".const .b8 c[65535]; .const .b8 d[2];")
    ]
    assert loaded == ["SUCCESS", "ERROR_INVALID_PTX"]


def test_bounds_beyond_what_an_sm_takes(cuda: Cuda) -> None:
    text = HEADER + ".visible .entry k() .maxntid 2048, 2, 1 .minnctapersm 2 { ret; }"
    module = cuda.cuModuleLoadData(text.encode())
    most = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    assert cuda.cuFuncGetAttribute(most, cuda.cuModuleGetFunction(module, b"k")) == 1024
    cuda.cuModuleUnload(module)


def test_blocks_have_labels_and_one_element_has_braces(cuda: Cuda) -> None:
    text = (
        HEADER
        + f""".visible .entry k(.param .u64 out) {{ {REGISTERS} {ROOM}
    ld.param.u64 x, [out];
    mov.b32 w, loc;
    mov.u32 w1, 0;
    {{ again: add.u32 w1, w1, 1; setp.lt.u32 p, w1, 5; @p bra again; }}
    {{ again: add.u32 w1, w1, 10; setp.lt.u32 p, w1, 50; @p bra again; }}
    again: add.u32 w1, w1, 100;
    {{ setp.lt.u32 p, w1, 400; @p bra again; }}
    st.local.u32 [w+4], {{w1}};
    ld.local.u32 {{w2}}, [loc+4];
    mov.u32 w3, 0;
    {{  table: .branchtargets first, second;
        brx.idx w3, table;
        first: add.u32 w2, w2, 1000;
        second: }}
    {{  table: .branchtargets second, first;
        brx.idx w3, table;
        first: add.u32 w2, w2, 1000;
        second: }}
    st.global.u32 [x], {{w2}};
    ret; }}"""
    )
    module = cuda.cuModuleLoadData(text.encode())
    target = cuda.cuMemAlloc(4)
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"k"), target)
    assert list(cuda.read(target, 1, np.uint32)) == [1455]
    cuda.cuMemFree(target)
    cuda.cuModuleUnload(module)


def test_a_function_takes_and_gives_vectors_in_registers(cuda: Cuda) -> None:
    text = (
        HEADER
        + """.func (.reg .v2 .u32 sums, .reg .f64 first) f(.reg .v4 .u16 a, .reg .pred p, .reg .v2 .f64 b)
    {   .reg .b32 w<3>;
        cvt.u32.u16 w0, a.x; cvt.u32.u16 w1, a.w; add.u32 sums.x, w0, w1;
        cvt.u32.u16 w0, a.y; cvt.u32.u16 w1, a.z; add.u32 sums.y, w0, w1;
        selp.f64 first, b.x, b.y, p; ret; }
    .visible .entry k(.param .u64 out)
    {   .reg .v4 .u16 a; .reg .v2 .u32 sums; .reg .v2 .f64 b;
        .reg .pred p; .reg .f64 e; .reg .b64 x; .reg .b32 w;
        ld.param.u64 x, [out];
        mov.v4.u16 a, {1, 20, 300, 4000}; mov.f64 b.x, 1.5; mov.f64 b.y, 2.5;
        setp.eq.u32 p, 1, 2; mov.u32 w, 5;
        call (sums, e), f, (a, p, b);
        st.global.v2.u32 [x], sums; st.global.f64 [x+8], e; st.global.u32 [x+16], w;
        ret; }"""
    )
    module = cuda.cuModuleLoadData(text.encode())
    target = cuda.cuMemAlloc(24)
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"k"), target)
    words = cuda.read(target, 5, np.uint32)
    assert list(words[:2]) == [4001, 320]
    assert list(words[4:]) == [5]
    assert list(words[2:4].view(np.float64)) == [2.5]
    cuda.cuMemFree(target)
    cuda.cuModuleUnload(module)


def test_a_register_and_a_constant_is_their_sum(cuda: Cuda) -> None:
    text = (
        HEADER
        + f""".visible .entry k(.param .u64 out) {{ {REGISTERS} {ROOM}
    ld.param.u64 x, [out];
    mov.u32 w, 7; mov.u64 x1, 0x100000000; mov.u16 h, 65535;
    st.local.u32 [loc], w+(2*3);
    ld.local.u32 w1, [loc];
    add.s32 w2, w1+1, w+-8;
    add.u64 x2, x1, x1+5;
    setp.eq.u32 p, w+1, 8;
    @p mov.u32 w3, w+2;
    mov.u16 h1, h+3; cvt.u32.u16 w4, h1;
    st.global.v4.u32 [x], {{w1, w2, w3, w4}}; st.global.u64 [x+16], x2+1;
    ret; }}"""
    )
    module = cuda.cuModuleLoadData(text.encode())
    target = cuda.cuMemAlloc(24)
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"k"), target)
    words = cuda.read(target, 6, np.uint32)
    assert list(words) == [13, 13, 9, 2, 6, 2]
    cuda.cuMemFree(target)
    cuda.cuModuleUnload(module)


def test_a_functions_parameter_has_an_address_in_local_memory(cuda: Cuda) -> None:
    text = """.visible .func (.param .b32 result) f(.param .align 4 .b8 s[32], .param .b32 count)
    {   .reg .b32 w, sum; .reg .b64 x, y; .reg .pred p; .local .align 4 .b8 other[12];
        st.local.u32 [other+8], 10000;
        mov.b64 x, s;
        mov.b64 y, s+4;
        ld.param.b32 w, [x+8];
        ld.param.b32 sum, [y];
        add.u32 sum, sum, w;
        st.local.u32 [x], 1000;
        ld.param.b32 w, [s];
        add.u32 sum, sum, w;
        cvta.local.u64 x, x;
        st.u32 [x+28], sum;
        ld.param.b32 w, [count];
        setp.eq.u32 p, w, 0;
        @p bra last;
        {   .param .align 4 .b8 given[32]; .param .b32 left; .param .b32 found;
            sub.u32 w, w, 1;
            st.param.b32 [given+4], w;
            st.param.b32 [given+8], 7;
            st.param.b32 [left], w;
            call (found), f, (given, left);
            ld.param.b32 w, [found];
            add.u32 sum, sum, w; }
        last: ld.local.u32 w, [other+8];
        add.u32 sum, sum, w;
        ld.u32 w, [x+28];
        add.u32 sum, sum, w;
        st.param.b32 [result], sum;
        ret; }
    .visible .entry k(.param .u64 out)
    {   .reg .b32 w; .reg .b64 x; .param .align 4 .b8 given[32]; .param .b32 count; .param .b32 found;
        mov.u32 w, %tid.x;
        st.param.b32 [given+4], w;
        st.param.b32 [given+8], 40;
        st.param.b32 [count], 1;
        call (found), f, (given, count);
        ld.param.b32 w, [found];
        ld.param.u64 x, [out];
        st.global.u32 [x], w;
        ret; }"""
    module = cuda.cuModuleLoadData((HEADER + text).encode())
    target = cuda.cuMemAlloc(4)
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"k"), target)
    assert list(cuda.read(target, 1, np.uint32)) == [2 * (40 + 1000) + 10000 + 2 * (7 + 1000) + 10000]
    cuda.cuMemFree(target)
    cuda.cuModuleUnload(module)


@pytest.mark.parametrize(
    "text",
    [
        ".visible .entry k(.param .u64 p); .visible .entry k(.param .u64 p) { ret; }",
        ".global .u32 g<3>, h; .visible .entry k() { .reg .u64 x; mov.u64 x, g2; mov.u64 x, h; ret; }",
        ".visible .entry k() { .shared .u32 g<3>; st.shared.u32 [g2], 1; ret; }",
        ".visible .entry k() { .local .u32 g<3>; st.local.u32 [g2], 1; ret; }",
        ".visible .entry k() { .param .u64 g<3>; st.param.u64 [g2], 1; ret; }",
        ".visible .entry k() { .reg .v2 .u32 v<3>; mov.v2.u32 v2, {1, 2}; mov.u32 v1.x, v2.y; ret; }",
    ],
)
def test_directives_that_are_taken(cuda: Cuda, text: str) -> None:
    cuda.cuModuleUnload(cuda.cuModuleLoadData((HEADER + text).encode()))


@pytest.mark.parametrize(
    "text",
    [
        ".global .u32 g<3> = {1, 2, 3};",
        ".const .u32 g<2>[4];",
        ".visible .entry k(.param .u64 p<3>) { ret; }",
        ".visible .entry k() { .param .u64 g<3>; st.param.u64 [g3], 1; ret; }",
        ".visible .entry k() { ret; } .visible .entry k() { ret; }",
        ".visible .func k(); .visible .entry k() { ret; }",
        "/* a comment that never ends",
        ".visible .entry k() { .reg .v2 .pred v; ret; }",
        ".visible .entry k() { .reg .v4 .u64 v; ret; }",
        ".func f(.reg .v2 .b128 v) { ret; }",
        ".visible .entry k() { .reg .u32 u, v; add.u32 u+1, v, v; ret; }",
        ".visible .entry k() { .reg .u32 u; .reg .u64 x; mov.b64 x, {u+1, u}; ret; }",
        ".visible .entry k() { .reg .u32 u, v; add.u32 u, v-1, v; ret; }",
        ".visible",
        ".visible .extern .global .b32 two;",
        '.visible .file 1 "name"',
        ".file 1 name",
        ".pragma nounroll;",
        ".global .b8 nothing[0];",
        ".shared .b8 nothing[];",
        ".visible .entry k() { .local .b8 nothing[0]; ret; }",
        ".visible .entry k() .maxnreg 0 { ret; }",
        ".visible .entry k() .minnctapersm 0 { ret; }",
        ".global .b64 number = 1/0;",
    ],
)
def test_directives_that_are_refused(cuda: Cuda, text: str) -> None:
    assert cuda.result("cuModuleLoadData", (HEADER + text).encode()) == "ERROR_INVALID_PTX"

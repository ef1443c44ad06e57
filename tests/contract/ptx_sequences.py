"""PTX made by a program: each arithmetic instruction, type and rounding on operands at the edges, and random
sequences of them. The same seed makes the same text everywhere, so only digests of the results are kept.

A form is one instruction with its operands' types, as "add.rn.f32 d, a, b; f32 f32 f32": what it writes, then
what it reads. One kernel runs one form on THREADS combinations of operands, which lie in slots of 8 bytes.
"""

from __future__ import annotations

import functools
import itertools
import random
from typing import Any, Final

import kernel_corpus as corpus
import numpy as np
from ptx_later_forms import later_forms

THREADS: Final = 512
HEADER: Final = ".version 8.6\n.target sm_90\n.address_size 64\n"
WIDTH: Final = {"u8": 16, "s8": 16, "u16": 16, "s16": 16, "b16": 16, "f16": 16, "bf16": 16}
WIDTH.update({"u32": 32, "s32": 32, "b32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "n": 32, "u32nz": 32})
WIDTH.update({"s32nz": 32, "u64": 64, "s64": 64, "b64": 64, "f64": 64, "u64nz": 64, "s64nz": 64, "pred": 1})

INTEGERS: Final = [
    0,
    1,
    2,
    3,
    5,
    7,
    10,
    31,
    32,
    33,
    63,
    64,
    100,
    127,
    128,
    255,
    256,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
]
INTEGERS.extend([0x12345678, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xDEADBEEF, 0xFFFFFFFE, 0xFFFFFFFF, 1 << 32])
INTEGERS.extend(
    [(1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 1, (1 << 64) - 2, 0x0123456789ABCDEF, 1 << 53]
)
REALS: Final = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1.5,
    2.0,
    3.0,
    0.5,
    1 / 3,
    -0.1,
    0.75,
    2.5,
    3.5,
    -2.5,
    100.0,
    255.5,
    65504.0,
    65520.0,
]
REALS.extend(
    [1e-3, -1e5, 1e10, -3e10, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, 1e20, 3e38, -3.4028234e38, 1e-38, 1e-40]
)
REALS.extend(
    [6e-8, 6.1e-5, 5.9e-8, 1.17549435e-38, float("inf"), float("-inf"), 1.0000001, 0.9999999, 16777217.0]
)
MORE_F32: Final = [
    0x7FC00000,
    0xFFC12345,
    0x7F800001,
    1,
    0x80000001,
    0x007FFFFF,
    0x00800000,
    0x3F7FFFFF,
    0x4B000001,
]
MORE_F64: Final = [
    1,
    0x7FF8000000000000,
    0x000FFFFFFFFFFFFF,
    0x3FEFFFFFFFFFFFFF,
    0x3810000000000000,
    0x36A0000000000000,
]
MORE_F16: Final = [0x7E00, 0xFE01, 0x7C01, 1, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x3BFF, 0x3C01]


@functools.cache
def edges(kind: str) -> list[int]:
    """Values at the edges of a type, as bits."""
    with np.errstate(over="ignore"):
        if kind == "f32":
            return [int(b) for b in np.array(REALS).astype(np.float32).view(np.uint32)] + MORE_F32
        if kind == "f64":
            return [int(b) for b in np.array(REALS).view(np.uint64)] + MORE_F64
        halves = [int(b) for b in np.array(REALS).astype(np.float16).view(np.uint16)] + MORE_F16
        brains = [int(b) >> 16 for b in np.array(REALS).astype(np.float32).view(np.uint32)] + [
            0x7FC0,
            1,
            0x8001,
            0x7F7F,
        ]
    if kind in ("f16", "bf16"):
        return halves if kind == "f16" else brains
    if kind in ("f16x2", "bf16x2"):
        one = halves if kind == "f16x2" else brains
        return [low | one[(3 * place + 1) % len(one)] << 16 for place, low in enumerate(one)]
    if kind == "n":
        return [*range(40), 63, 64, 65, 128, 255, 256, 0x80000000, 0xFFFFFFFF]
    if kind == "pred":
        return [0, 1]
    mask = (1 << {"u8": 8, "s8": 8}.get(kind, WIDTH[kind])) - 1
    values = sorted({value & mask for value in INTEGERS})
    return [value for value in values if value] if kind.endswith("nz") else values


def operands(kinds: list[str], seed: str) -> Any:
    """For each operand THREADS values, in 8-byte slots: edges against edges, then random bits."""
    chooser = random.Random(seed)
    columns: list[list[int]] = [[] for _ in kinds]
    for thread in range(THREADS):
        for place, kind in enumerate(kinds):
            known = edges(kind)
            if thread < 384 or kind in ("n", "pred") or kind.endswith("nz"):
                value = known[thread % len(known)] if place == 0 else chooser.choice(known)
            else:
                value = chooser.getrandbits(64)
            columns[place].append(value & ((1 << max(WIDTH[kind], 8)) - 1))
    return [np.array(column, dtype=np.uint64) for column in columns]


def _integer_forms() -> list[str]:
    forms = []
    for t in ("u16", "s16", "u32", "s32", "u64", "s64"):
        forms += [f"{op}.{t} d, a, b; {t} {t} {t}" for op in ("add", "sub", "mul.lo", "mul.hi", "min", "max")]
        forms += [f"{op}.{t} d, a, b, c; {t} {t} {t} {t}" for op in ("mad.lo", "mad.hi", "sad")]
        if t in ("u32", "s32", "u64", "s64"):
            forms += [f"{op}.{t} d, a, b; {t} {t} {t}nz" for op in ("div", "rem")]
            forms += [
                f"bfe.{t} d, a, b, c; {t} {t} n n",
                f"bfind.{t} d, a; u32 {t}",
                f"bfind.shiftamt.{t} d, a; u32 {t}",
            ]
    for t in ("s16", "s32", "s64"):
        forms += [f"abs.{t} d, a; {t} {t}", f"neg.{t} d, a; {t} {t}"]
    for t, wide in (("u16", "u32"), ("s16", "s32"), ("u32", "u64"), ("s32", "s64")):
        forms += [f"mul.wide.{t} d, a, b; {wide} {t} {t}", f"mad.wide.{t} d, a, b, c; {wide} {t} {t} {wide}"]
    forms += [f"{op}.sat.s32 d, a, b; s32 s32 s32" for op in ("add", "sub")] + [
        "mad.hi.sat.s32 d, a, b, c; s32 s32 s32 s32"
    ]
    for t in ("u32", "s32"):
        forms += [f"mul24.{half}.{t} d, a, b; {t} {t} {t}" for half in ("lo", "hi")]
        forms += [f"mad24.{half}.{t} d, a, b, c; {t} {t} {t} {t}" for half in ("lo", "hi")]
        forms += [f"dp4a.{t}.{u} d, a, b, c; {t} {t} {u} s32" for u in ("u32", "s32")]
        forms += [
            f"dp2a.{half}.{t}.{u} d, a, b, c; {t} {t} {u} s32"
            for u in ("u32", "s32")
            for half in ("lo", "hi")
        ]
        forms += [f"szext.{m}.{t} d, a, b; {t} {t} n" for m in ("wrap", "clamp")]
    for t in ("u32", "u64"):
        forms += [
            f"add.cc.{t} d, a, b; addc.{t} d, d, c; {t} {t} {t} {t}",
            f"sub.cc.{t} d, a, b; subc.{t} d, d, c; {t} {t} {t} {t}",
        ]
        forms += [f"mad.lo.cc.{t} d, a, b, c; madc.hi.{t} d, a, b, d; {t} {t} {t} {t}"]
    return forms


def _bit_forms() -> list[str]:
    forms = []
    for t in ("b16", "b32", "b64"):
        forms += [f"{op}.{t} d, a, b; {t} {t} {t}" for op in ("and", "or", "xor")] + [
            f"not.{t} d, a; {t} {t}",
            f"cnot.{t} d, a; {t} {t}",
        ]
        forms += [f"shl.{t} d, a, b; {t} {t} n"]
        signs = (t.replace("b", "u"), t.replace("b", "s"))
        forms += [f"shr.{s} d, a, b; {t} {t} n" for s in signs]
    for t in ("b32", "b64"):
        forms += [f"popc.{t} d, a; u32 {t}", f"clz.{t} d, a; u32 {t}", f"brev.{t} d, a; {t} {t}"]
        forms += [f"bfi.{t} d, a, b, c, 7; {t} {t} {t} n", f"bfi.{t} d, a, b, 5, c; {t} {t} {t} n"]
    forms += [f"lop3.b32 d, a, b, c, {table}; b32 b32 b32 b32" for table in (0x96, 0xE8, 0xCA, 0x1B, 0x80)]
    forms += [
        f"shf.{side}.{mode}.b32 d, a, b, c; b32 b32 b32 n" for side in "lr" for mode in ("wrap", "clamp")
    ]
    forms += ["prmt.b32 d, a, b, c; b32 b32 b32 b32"]
    forms += [
        f"prmt.b32.{m} d, a, b, c; b32 b32 b32 b32" for m in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    ]
    forms += ["fns.b32 d, a, 3, c; b32 b32 b32 s32"]
    forms += [f"bmsk.{m}.b32 d, a, b; b32 n n" for m in ("wrap", "clamp")]
    return forms


def _float_forms() -> list[str]:
    forms = []
    for rounding, t in itertools.product(("rn", "rz", "rm", "rp"), ("f32", "f64")):
        for extra in ("", ".ftz", ".sat", ".ftz.sat") if t == "f32" else ("",):
            form = f"{rounding}{extra}.{t}"
            forms += [f"{op}.{form} d, a, b; {t} {t} {t}" for op in ("add", "sub", "mul")]
            forms += [f"fma.{form} d, a, b, c; {t} {t} {t} {t}"]
            if "sat" not in extra:
                forms += [
                    f"div.{form} d, a, b; {t} {t} {t}",
                    f"sqrt.{form} d, a; {t} {t}",
                    f"rcp.{form} d, a; {t} {t}",
                ]
    for t in ("f32", "f64"):
        for extra in ("", ".ftz") if t == "f32" else ("",):
            forms += [f"{op}{extra}.{t} d, a, b; {t} {t} {t}" for op in ("min", "max")]
            forms += [f"{op}{extra}.{t} d, a; {t} {t}" for op in ("abs", "neg")]
        forms += [f"copysign.{t} d, a, b; {t} {t} {t}"]
        forms += [
            f"testp.{k}.{t} d, a; pred {t}"
            for k in ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
        ]
    forms += [
        f"{op}{x}.f32 d, a, b; f32 f32 f32"
        for op in ("min", "max")
        for x in (".NaN", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs")
    ]
    return forms


def _half_forms() -> list[str]:
    forms = []
    for t in ("f16", "f16x2", "bf16", "bf16x2"):
        for extra in ("", ".ftz", ".sat") if t.startswith("f") else ("",):
            forms += [f"{op}{extra}.{t} d, a, b; {t} {t} {t}" for op in ("add", "sub", "mul")]
            forms += [f"fma.rn{extra}.{t} d, a, b, c; {t} {t} {t} {t}"]
        forms += [f"fma.rn.relu.{t} d, a, b, c; {t} {t} {t} {t}"]
        forms += [
            f"{op}{x}.{t} d, a, b; {t} {t} {t}" for op in ("min", "max") for x in ("", ".NaN", ".xorsign.abs")
        ]
        forms += [f"{op}.{t} d, a; {t} {t}" for op in ("abs", "neg")]
        if "x2" not in t:
            forms += [f"setp.{r}.{t} d, a, b; pred {t} {t}" for r in ("eq", "ne", "lt", "geu", "nan")]
    return forms


def _compare_forms() -> list[str]:
    forms = []
    for t in ("u16", "s16", "u32", "s32", "u64", "s64"):
        forms += [f"setp.{r}.{t} d, a, b; pred {t} {t}" for r in ("eq", "ne", "lt", "le", "gt", "ge")]
    for t in ("f32", "f64"):
        for r in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
            forms += [f"setp.{r}.{t} d, a, b; pred {t} {t}"]
    forms += ["setp.lt.ftz.f32 d, a, b; pred f32 f32", "setp.eq.ftz.f32 d, a, b; pred f32 f32"]
    forms += [f"setp.lt.{j}.u32 d, a, b, c; pred u32 u32 pred" for j in ("and", "or", "xor")]
    forms += [
        f"set.lt.{d}.{t} d, a, b; {d} {t} {t}"
        for d in ("u32", "s32", "f32")
        for t in ("u32", "s64", "f32", "f64")
    ]
    forms += [f"selp.{t} d, a, b, c; {t} {t} {t} pred" for t in ("b16", "b32", "b64", "f32", "f64")]
    forms += [
        f"slct.{t}.{s} d, a, b, c; {t} {t} {t} {s}" for t in ("u32", "s64", "f32") for s in ("s32", "f32")
    ]
    return forms


def _convert_forms() -> list[str]:
    integers = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
    forms = [f"cvt.{d}.{s} d, a; {d} {s}" for d in integers for s in integers if d != s]
    clamped = (
        "u8.s16 u8.u32 u8.s32 u8.s64 s16.u32 s16.s32 s16.s64 u32.s16 u32.s32 u32.s64 s32.u32 s32.s64 s64.u64"
    )
    forms += [f"cvt.sat.{pair} d, a; {pair.replace('.', ' ')}" for pair in clamped.split()]
    for real, whole in itertools.product(("f16", "f32", "f64"), integers):
        forms += [f"cvt.{r}.{whole}.{real} d, a; {whole} {real}" for r in ("rni", "rzi", "rmi", "rpi")]
        forms += [f"cvt.{r}.{real}.{whole} d, a; {real} {whole}" for r in ("rn", "rz", "rm", "rp")]
    for narrow, wide in (("f32", "f64"), ("f16", "f64"), ("f16", "f32")):
        forms += [f"cvt.{r}.{narrow}.{wide} d, a; {narrow} {wide}" for r in ("rn", "rz", "rm", "rp")]
    forms += [
        "cvt.f64.f32 d, a; f64 f32",
        "cvt.f32.f16 d, a; f32 f16",
        "cvt.f64.f16 d, a; f64 f16",
        "cvt.f32.bf16 d, a; f32 bf16",
    ]
    forms += [f"cvt.{r}.bf16.f32 d, a; bf16 f32" for r in ("rn", "rz")] + [
        "cvt.rn.relu.bf16.f32 d, a; bf16 f32"
    ]
    forms += [
        "cvt.rn.ftz.f32.f64 d, a; f32 f64",
        "cvt.rn.sat.f32.f64 d, a; f32 f64",
        "cvt.ftz.f64.f32 d, a; f64 f32",
    ]
    forms += [
        f"cvt.{r}{x}.f32.f32 d, a; f32 f32"
        for r in ("rni", "rzi", "rmi", "rpi")
        for x in ("", ".ftz", ".sat")
    ]
    forms += [f"cvt.{r}.f64.f64 d, a; f64 f64" for r in ("rni", "rzi", "rmi", "rpi")]
    forms += [
        f"cvt.{r}{x}.{t}.f32 d, a, b; {t} f32 f32"
        for r in ("rn", "rz")
        for x in ("", ".relu")
        for t in ("f16x2", "bf16x2")
    ]
    forms += ["cvt.rna.tf32.f32 d, a; b32 f32"]
    forms += [f"cvt.rn.satfinite.{t}.f32 d, a, b; b16 f32 f32" for t in ("e4m3x2", "e5m2x2")]
    forms += [f"cvt.rn.f16x2.{t} d, a; f16x2 b16" for t in ("e4m3x2", "e5m2x2")]
    return forms


FORMS: Final = {
    "integer": _integer_forms(),
    "bits": _bit_forms(),
    "float": _float_forms(),
    "half": _half_forms(),
    "compare": _compare_forms(),
    "convert": _convert_forms(),
    "later": later_forms(),
}
SEQUENCES: Final = 24
GROUPS: Final = [*FORMS, "sequences"]


def register_type(kind: str) -> str:
    return ".pred" if kind == "pred" else f".b{WIDTH[kind]}"


def _kernel(name: str, declarations: list[str], body: list[str]) -> str:
    """A kernel of one block: a, b, c are arrays of slots, out is where the results go."""
    parameters = ", ".join(f".param .u64 {name}_{which}" for which in ("a", "b", "c", "out"))
    lines = [f".visible .entry {name}({parameters})", "{", *declarations]
    lines += [".reg .b64 %addr, %base; .reg .b32 %thread; .reg .b64 %slot, %wide; .reg .b32 %bit;"]
    lines += ["mov.u32 %thread, %tid.x;", "mul.wide.u32 %slot, %thread, 8;", *body, "ret;", "}"]
    return "\n".join(lines)


def _load(name: str, which: str, kind: str) -> list[str]:
    lines = [f"ld.param.u64 %base, [{name}_{which}];", "add.u64 %addr, %base, %slot;"]
    if kind == "pred":
        return [*lines, "ld.global.u32 %bit, [%addr];", f"setp.ne.u32 {which}, %bit, 0;"]
    return [*lines, f"ld.global.b{WIDTH[kind]} {which}, [%addr];"]


def _store(name: str, register: str, kind: str) -> list[str]:
    lines = [f"ld.param.u64 %base, [{name}_out];", "add.u64 %addr, %base, %slot;"]
    if kind == "pred":
        return [*lines, f"selp.u32 %bit, 1, 0, {register};", "st.global.b32 [%addr], %bit;"]
    return [*lines, f"st.global.b{WIDTH[kind]} [%addr], {register};"]


def form_kernel(number: int, form: str) -> tuple[str, list[str], str]:
    """PTX of one form; the types of what it reads, and of what it writes."""
    *code, kinds = form.split("; ")
    result, *sources = kinds.split()
    name = f"form_{number}"
    names = dict(zip("abc", sources, strict=False))
    declarations = [
        f".reg {register_type(result)} d;",
        *(f".reg {register_type(k)} {n};" for n, k in names.items()),
    ]
    body = [line for which, kind in names.items() for line in _load(name, which, kind)]
    start = "setp.ne.u32 d, %thread, %thread;" if result == "pred" else f"mov.b{WIDTH[result]} d, 0;"
    body += [start, *(line.rstrip(";") + ";" for line in code), *_store(name, "d", result)]
    return _kernel(name, declarations, body), sources, result


def sequence_kernel(number: int) -> str:
    """A random sequence of forms over registers of every type; nothing in it is undefined."""
    chooser = random.Random(f"sequence {number}")
    name = f"sequence_{number}"
    pool = {
        "32": [f"%w{i}" for i in range(6)],
        "64": [f"%x{i}" for i in range(6)],
        "16": [f"%h{i}" for i in range(4)],
    }
    declarations = [
        ".reg .b32 %w<6>; .reg .b64 %x<6>; .reg .b16 %h<4>; .reg .pred %p<3>; .reg .b64 a, b, c;",
        ".reg .b32 %k; .reg .pred %q;",
    ]
    body = [line for which in "abc" for line in _load(name, which, "b64")]
    for place, register in enumerate(pool["64"]):
        body.append(f"add.u64 {register}, {'abc'[place % 3]}, {place * 0x1234567};")
        body.append(f"cvt.u32.u64 {pool['32'][place]}, {register};")
    body += [f"cvt.u16.u64 {register}, {pool['64'][place]};" for place, register in enumerate(pool["16"])]
    body += [f"setp.lt.u32 %p{i}, %w{i}, %w{i + 1};" for i in range(3)]
    safe = [form for form in FORMS["integer"] + FORMS["bits"] + FORMS["float"] + FORMS["half"] if _fits(form)]
    for step in range(60):
        if step % 12 == 5:  # a loop whose turns differ between threads
            body += [
                "and.b32 %k, %w0, 7;",
                f"LOOP_{number}_{step}:",
                f"xor.b32 %w1, %w1, {chooser.getrandbits(31)};",
            ]
            body += [
                "add.u32 %w0, %w0, %w1;",
                "sub.u32 %k, %k, 1;",
                "setp.gt.s32 %q, %k, 0;",
                f"@%q bra LOOP_{number}_{step};",
            ]
        form = chooser.choice(safe)
        *code, kinds = form.split("; ")
        places = {
            letter: chooser.choice(pool[str(WIDTH[kind])])
            for letter, kind in zip("dabc", kinds.split(), strict=False)
        }
        guard = chooser.choice(("", "", f"@%p{chooser.randrange(3)} ", f"@!%p{chooser.randrange(3)} "))
        for line in code:
            opcode, _, rest = line.partition(" ")
            named = ", ".join(places.get(part, part) for part in rest.rstrip(";").split(", "))
            body.append(f"{guard}{opcode} {named};")
        if chooser.random() < 0.2:
            relation, left, right = (chooser.choice(some) for some in (("lt", "ge", "ne"), *[pool["32"]] * 2))
            body.append(f"setp.{relation}.s32 %p{chooser.randrange(3)}, {left}, {right};")
    body += [f"xor.b64 %x0, %x0, {register};" for register in pool["64"][1:]]
    body += [
        line
        for r in pool["32"]
        for line in (f"cvt.u64.u32 %wide, {r};", "mul.lo.u64 %x0, %x0, 31;", "add.u64 %x0, %x0, %wide;")
    ]
    body += [
        line
        for r in pool["16"]
        for line in (f"cvt.u64.u16 %wide, {r};", "mul.lo.u64 %x0, %x0, 31;", "add.u64 %x0, %x0, %wide;")
    ]
    return _kernel(name, declarations, body + _store(name, "%x0", "b64"))


def _fits(form: str) -> bool:
    """Whether a form may take any bits: no division, no predicate, no NaN of doubtful bits."""
    kinds = form.split("; ")[-1].split()
    return not any(kind.endswith("nz") or kind in ("pred", "f64") for kind in kinds)


def _launch(cuda: Any, module: Any, name: str, columns: list[Any]) -> Any:
    result = np.zeros(THREADS, dtype=np.uint64)
    places = [cuda.cuMemAlloc(result.nbytes) for _ in range(4)]
    for place, column in zip(places, columns, strict=False):
        cuda.cuMemcpyHtoD(place, column.ctypes.data, column.nbytes)
    cuda.cuMemsetD8(places[3], 0, result.nbytes)
    function = cuda.cuModuleGetFunction(module, name.encode())
    cuda.launch_function(function, *places, block=THREADS)
    cuda.cuCtxSynchronize()
    cuda.cuMemcpyDtoH(result.ctypes.data, places[3], result.nbytes)
    for place in places:
        cuda.cuMemFree(place)
    return result


def run_group(cuda: Any, group: str) -> dict[str, Any]:
    """Results by form, of 8 bytes a thread."""
    results = {}
    if group == "sequences":
        text = HEADER + "\n".join(sequence_kernel(number) for number in range(SEQUENCES)) + "\n"
        module = cuda.cuModuleLoadData(text.encode())
        for number in range(SEQUENCES):
            columns = operands(["b64", "b64", "b64"], f"sequence {number}")
            results[f"sequence {number}"] = _launch(cuda, module, f"sequence_{number}", columns)
        return results
    made = [(form, *form_kernel(number, form)) for number, form in enumerate(FORMS[group])]
    module = cuda.cuModuleLoadData((HEADER + "\n".join(text for _, text, _, _ in made) + "\n").encode())
    for number, (form, _, sources, result) in enumerate(made):
        values = _launch(cuda, module, f"form_{number}", operands(sources, form))
        results[form] = values.view(np.float64) if result == "f64" else values
    return results


def record(name: str, values: Any) -> str:
    return corpus.digest(values)

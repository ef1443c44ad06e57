"""Forms of instructions (see ptx_sequences.py) that came to PTX after version 8.0."""

from __future__ import annotations


def later_forms() -> list[str]:
    """Of PTX 8.1 to 8.6. What a real GPU gives is not recorded yet."""
    forms = [f"lop3.{join}.b32 _|d, a, b, 77, 0x2d, c; pred b32 b32 pred" for join in ("or", "and")]
    for t in ("e4m3x2", "e5m2x2"):
        forms += [f"cvt.rn.satfinite.relu.{t}.f32 d, a, b; b16 f32 f32"]
        forms += [f"cvt.rn.satfinite{x}.{t}.f16x2 d, a; b16 f16x2" for x in ("", ".relu")]
        forms += [f"cvt.rn.relu.f16x2.{t} d, a; f16x2 b16"]
    forms += [f"cvt.{r}{x}.tf32.f32 d, a; b32 f32" for r in ("rn", "rz") for x in ("", ".relu")]
    for whole in ("u16", "s16", "u32", "s32", "u64", "s64"):
        forms += [f"cvt.{r}.{whole}.bf16 d, a; {whole} bf16" for r in ("rni", "rzi", "rmi", "rpi")]
        forms += [f"cvt.{r}.bf16.{whole} d, a; bf16 {whole}" for r in ("rn", "rz", "rm", "rp")]
    forms += [
        f"cvt.{r}.{pair} d, a; {pair.replace('.', ' ')}"
        for r in ("rn", "rz", "rm", "rp")
        for pair in ("bf16.f16", "f16.bf16", "bf16.f64")
    ]
    forms += ["cvt.f64.bf16 d, a; f64 bf16"]
    forms += [f"cvt.{r}.{t}.{t} d, a; {t} {t}" for r in ("rni", "rzi", "rmi", "rpi") for t in ("f16", "bf16")]
    forms += [
        f"cvt.{r}.satfinite{x}.{t}.f32 d, a; {t} f32"
        for r in ("rn", "rz")
        for x in ("", ".relu")
        for t in ("f16", "bf16")
    ]
    forms += [
        f"cvt.{r}.satfinite{x}.{t}.f32 d, a, b; {t} f32 f32"
        for r in ("rn", "rz")
        for x in ("", ".relu")
        for t in ("f16x2", "bf16x2")
    ]
    forms += [f"cvt.pack.sat.{t}.s32 d, a, b; b32 s32 s32" for t in ("u16", "s16")]
    forms += [
        f"cvt.pack.sat.{t}.s32.b32 d, a, b, c; b32 s32 s32 b32" for t in ("u8", "s8", "u4", "s4", "u2", "s2")
    ]
    forms += [f"{op}.{t} d, a, b; b32 b32 b32" for op in ("add", "min", "max") for t in ("u16x2", "s16x2")]
    forms += [f"{op}.relu.{t} d, a, b; b32 b32 b32" for op in ("min", "max") for t in ("s32", "s16x2")]
    forms += [
        f"set.{r}.{d}.{t} d, a, b; {d} {t} {t}"
        for r in ("lt", "neu", "num")
        for t in ("f16", "bf16")
        for d in ("u16", "s32", "u32", t)
    ]
    forms += [
        f"set.{r}.{d}.{t} d, a, b; {k} {t} {t}"
        for r in ("ge", "ltu")
        for t in ("f16x2", "bf16x2")
        for d, k in (("u32", "u32"), (t, t))
    ]
    forms += [f"setp.{r}.{t} d|_, a, b; pred {t} {t}" for r in ("gt", "equ") for t in ("f16x2", "bf16x2")]
    forms += [
        f"{op}.rn{x}.{t} d, a, b; {t} {t} {t}"
        for op in ("add", "sub", "mul")
        for t, x in (("f16", ""), ("f16x2", ".ftz"), ("f16", ".sat"), ("bf16", ""), ("bf16x2", ""))
    ]
    forms += [
        f"{op}.ftz{x}.{t} d, a, b; {t} {t} {t}"
        for op in ("min", "max")
        for x in ("", ".NaN")
        for t in ("f16", "f16x2")
    ]
    forms += [
        f"{op}.NaN.xorsign.abs.{t} d, a, b; {t} {t} {t}"
        for op in ("min", "max")
        for t in ("f16", "f16x2", "bf16", "bf16x2")
    ]
    forms += [f"{op}.ftz.{t} d, a; {t} {t}" for op in ("abs", "neg") for t in ("f16", "f16x2")]
    forms += [
        f"fma.rn{x}.{t} d, a, b, c; {t} {t} {t} {t}"
        for x in (".ftz.sat", ".ftz.relu")
        for t in ("f16", "f16x2")
    ]
    return forms

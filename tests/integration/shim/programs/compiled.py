"""Kernels in CUDA C for the programs here, by NVRTC."""

import hashlib
import os
import re
from pathlib import Path

from calls import done
from cuda.bindings import driver, nvrtc
from headers import folders


def load(source):
    """A module of what NVRTC makes of the text, which is kept: it takes longer than all the rest."""
    kept = Path(os.environ["KEPT_PTX"]) / hashlib.sha256(source).hexdigest()
    if not kept.exists():
        kept.write_bytes(ptx_of(source))
    return done(driver.cuModuleLoadData(kept.read_bytes()))


def ptx_of(source):
    program = done(nvrtc.nvrtcCreateProgram(source, b"program.cu", 0, [], []))
    options = [
        b"--gpu-architecture=compute_90",
        b"--std=c++17",
        *(b"-I" + str(folder).encode() for folder in folders()),
    ]
    result = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
    if int(result):
        log = b" " * done(nvrtc.nvrtcGetProgramLogSize(program))
        done(nvrtc.nvrtcGetProgramLog(program, log))
        raise SystemExit(log.decode())
    ptx = b" " * done(nvrtc.nvrtcGetPTXSize(program))
    done(nvrtc.nvrtcGetPTX(program, ptx))
    # An NVRTC newer than the driver marks its text with a version that it refuses; 9.0 is CUDA 13.0's.
    version = re.search(rb"\.version (\d+\.\d+)", ptx)
    if float(version[1]) > 9.0:
        ptx = ptx.replace(version[0], b".version 9.0", 1)
    return ptx

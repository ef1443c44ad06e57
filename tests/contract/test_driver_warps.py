"""Lanes of a warp that meet from several places in the code: by the PTX ISA, qualifiers and mask decide."""

import numpy as np
import pytest
from cuda_calls import Cuda

TEXT = """.version 7.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 place) {
.reg .b32 w, w1, lane, all; .reg .b64 x, y; .reg .pred p, q, upper;
ld.param.u64 x, [place]; mov.u32 lane, %tid.x; mad.wide.u32 x, lane, 4, x;
setp.ge.u32 upper, lane, 20; setp.lt.u32 p, lane, 24; mov.u32 all, -1; cvt.u64.u32 y, lane;
@upper bra OTHER;
add.u32 w1, lane, 100;
HERE
bra.uni END;
OTHER:
add.u32 w1, lane, 1000;
HERE
add.u32 w, w, 0;
END:
st.global.u32 [x], w;
ret; }
"""
LANES = np.arange(32, dtype=np.uint32)
GIVEN = np.where(LANES < 20, LANES + 100, LANES + 1000).astype(np.uint32)
MEETINGS = {
    "vote.sync.ballot.b32 w, p, all;": np.full(32, 0x00FFFFFF),
    "vote.sync.all.pred q, p, all; selp.u32 w, 1, 2, q;": np.full(32, 2),
    "vote.sync.any.pred q, p, all; selp.u32 w, 1, 2, q;": np.full(32, 1),
    "shfl.sync.idx.b32 w, w1, 31, 31, all;": np.full(32, 1031),
    "shfl.sync.bfly.b32 w|q, w1, 16, 31, all;": GIVEN[LANES ^ 16],
    "shfl.sync.down.b32 w|q, w1, 12, 31, all; @!q mov.u32 w, 7;": np.where(
        LANES < 20, GIVEN[(LANES + 12) % 32], 7
    ),
    "redux.sync.add.u32 w, w1, all;": np.full(32, GIVEN.sum()),
    "match.any.sync.b64 w, y, all;": 1 << LANES,
    "bar.warp.sync all; mov.u32 w, 5;": np.full(32, 5),
}


@pytest.mark.parametrize("instruction", MEETINGS)
def test_lanes_meet_from_both_sides_of_a_branch(cuda: Cuda, instruction: str) -> None:
    module = cuda.cuModuleLoadData(TEXT.replace("HERE", instruction).encode())
    place = cuda.device_words(32)
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"k"), place, block=32)
    assert cuda.read(place, 32).tolist() == MEETINGS[instruction].tolist()
    cuda.cuModuleUnload(module)
    cuda.cuMemFree(place)

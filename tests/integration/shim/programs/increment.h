/* A kernel that adds one to a word. */
#pragma once

static const char* ptx =
    ".version 7.8\n.target sm_80\n.address_size 64\n"
    ".visible .entry increment(.param .u64 address)\n{\n.reg .b64 %rd<2>; .reg .b32 %r<3>;\n"
    "ld.param.u64 %rd1, [address];\nld.global.u32 %r1, [%rd1];\nadd.u32 %r2, %r1, 1;\n"
    "st.global.u32 [%rd1], %r2;\nret;\n}\n";

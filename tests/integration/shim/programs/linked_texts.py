"""Two texts that are one program only together."""

HEAD = b".version 7.8\n.target sm_80\n.address_size 64\n"
TWICE = (
    HEAD
    + b"""
.visible .func (.param .u32 result) twice(.param .u32 value)
{
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [value];
    add.u32 %r2, %r1, %r1;
    st.param.u32 [result], %r2;
    ret;
}
"""
)
CALLER = (
    HEAD
    + b"""
.extern .func (.param .u32 result) twice(.param .u32 value);
.visible .entry put(.param .u64 address, .param .u32 value)
{
    .reg .b64 %rd<2>; .reg .b32 %r<3>;
    .param .u32 given; .param .u32 got;
    ld.param.u64 %rd1, [address];
    ld.param.u32 %r1, [value];
    st.param.u32 [given], %r1;
    call.uni (got), twice, (given);
    ld.param.u32 %r2, [got];
    st.global.u32 [%rd1], %r2;
    ret;
}
"""
)

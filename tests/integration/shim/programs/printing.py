"""Kernels that print: the text comes out of the program's own standard output, in time.

With `unread` the program ends without synchronising behind a kernel that has printed.
"""

import ctypes
import os
import sys

from calls import done, start
from cuda.bindings import driver

PRINTING = b"""
.version 7.8
.target sm_80
.address_size 64
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 values);
.global .align 1 .b8 text[10] = {116, 117, 114, 110, 32, 37, 100, 33, 10, 0};
.visible .entry tell(.param .u32 turn)
{
    .local .align 8 .b8 stack[8];
    .reg .b64 %SP; .reg .b64 %rd<4>; .reg .b32 %r<3>;
    mov.u64 %SP, stack;
    cvta.local.u64 %rd1, %SP;
    ld.param.u32 %r1, [turn];
    st.u32 [%rd1], %r1;
    mov.u64 %rd2, text;
    cvta.global.u64 %rd3, %rd2;
    { .param .b64 p0; .param .b64 p1; .param .b32 back;
      st.param.b64 [p0], %rd3; st.param.b64 [p1], %rd1;
      call.uni (back), vprintf, (p0, p1);
      ld.param.b32 %r2, [back]; }
    ret;
}
\0"""
device, context = start()
module = done(driver.cuModuleLoadData(PRINTING))
tell = done(driver.cuModuleGetFunction(module, b"tell"))
stream = done(driver.cuStreamCreate(1))
event = done(driver.cuEventCreate(0))
memory = done(driver.cuMemAlloc(4))
back = (ctypes.c_char * 4)()


def launch(turn, on):
    arguments = ((turn,), (ctypes.c_uint32,))
    done(driver.cuLaunchKernel(tell, 1, 1, 1, 2, 1, 1, 0, on, arguments, 0))


if sys.argv[1:] == ["unread"]:
    word = ctypes.c_uint32.from_address(int(done(driver.cuMemHostAlloc(4, 0))))
    word.value = 0
    launch(6, stream)
    done(driver.cuStreamWriteValue32(stream, ctypes.addressof(word), 1, 0))
    while word.value == 0:
        pass
    os._exit(0)
launch(1, 0)
done(driver.cuCtxSynchronize())
print("context", flush=True)
launch(2, stream)
done(driver.cuStreamSynchronize(stream))
print("stream", flush=True)
launch(3, stream)
done(driver.cuEventRecord(event, stream))
done(driver.cuEventSynchronize(event))
print("event", flush=True)
launch(4, 0)
done(driver.cuMemcpyDtoH(ctypes.addressof(back), memory, 4))
print("copy", flush=True)
for _ in range(2000):
    launch(5, stream)
done(driver.cuModuleUnload(module))
print("module", flush=True)

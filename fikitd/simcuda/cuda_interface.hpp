// cuda.h as the implementer sees it: every historic version of a function under its own symbol, and
// all of them visible (our own code is compiled with hidden visibility).
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT
#include <cuda.h>

// Of cudaProfiler.h, which not every distribution of cuda.h has.
extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI cuProfilerStart(void);
extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI cuProfilerStop(void);

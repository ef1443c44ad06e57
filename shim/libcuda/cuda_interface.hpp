// cuda.h as the implementer sees it: every historic version of a function under its own symbol, and
// all of them visible (our own code is compiled with hidden visibility).
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT
#include <cuda.h>

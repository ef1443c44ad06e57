/* A call that must succeed; else the program says which did not, and ends. */
#pragma once

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                               \
    do {                                                          \
        const CUresult result = (call);                           \
        if (result != CUDA_SUCCESS) {                             \
            printf("%d: %s: %d\n", __LINE__, #call, (int)result); \
            exit(1);                                              \
        }                                                         \
    } while (0)

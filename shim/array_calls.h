/* What the calls about arrays, textures and surfaces (calls.h) ask and answer. */
#ifndef FIKIT_ARRAY_CALLS_H
#define FIKIT_ARRAY_CALLS_H

#include <stdint.h>

/* As CUDA_ARRAY3D_DESCRIPTOR has it. */
typedef struct {
    uint64_t width, height, depth; /* elements */
    uint32_t format, channels, flags;
    uint32_t levels; /* of a mipmapped array; 0: it is a plain one */
} fikit_array_shape;
typedef struct {
    uint32_t handle; /* 1..FIKIT_MAX_ARRAYS-1, not in use */
    uint32_t reserved;
    fikit_array_shape shape;
} fikit_request_array_create;
typedef struct {
    uint64_t bytes; /* charged to the quota */
} fikit_reply_array_create;

/* Answered once all that the session was issued before has completed. */
typedef struct {
    uint32_t handle;
    uint32_t reserved;
} fikit_request_array_destroy;
typedef struct {
    uint64_t reserved;
} fikit_reply_array_destroy;

/* Kernels get the value that the driver gives, so the program knows the object by it. */
typedef struct {
    uint32_t type;             /* CUresourcetype */
    uint32_t array, level;     /* the handle; of a mipmapped array as a resource of its own, level 0 */
    uint32_t format, channels; /* from here: of memory */
    uint32_t surface;          /* 1: it is a surface, and has neither manner nor view */
    uint32_t viewed;           /* 1: it has a view */
    uint32_t reserved;
    uint64_t address;
    uint64_t width, height, pitch; /* width: bytes of a line, elements of rows; pitch: bytes */
    uint8_t manner[104];           /* CUDA_TEXTURE_DESC */
    uint8_t view[112];             /* CUDA_RESOURCE_VIEW_DESC */
} fikit_request_texture_create;
typedef struct {
    uint64_t value;
} fikit_reply_texture_create;

typedef struct {
    uint64_t value;
    uint32_t surface; /* 1: a surface's, which may be a texture's too */
    uint32_t reserved;
} fikit_request_texture_destroy;
typedef struct {
    uint64_t reserved;
} fikit_reply_texture_destroy;

#endif

/* Calls: what needs an answer. One list; the producer's numbers and names and the executor's dispatch table
 * are generated from it, so neither side can know a call that the other does not.
 *
 * A request is fikit_request_NAME (possibly followed by bytes that it counts), the reply
 * fikit_reply_NAME (likewise). The status of a call is a CUresult.
 */
#ifndef FIKIT_CALLS_H
#define FIKIT_CALLS_H

#include <stdint.h>

#include "abi.h"
#include "array_calls.h"

/*  X(number, name)  numbers are never reused */
#define FIKIT_CALLS(X)  \
    FIKIT_CORE_CALLS(X) \
    FIKIT_PROGRAM_CALLS(X)

#define FIKIT_CORE_CALLS(X)                                                             \
    X(1, device_attributes)  /* every CUdevice_attribute, name, memory, UUID */         \
    X(2, memory_allocate)    /* device memory */                                        \
    X(3, memory_information) /* free and total, as the quota allows */                  \
    X(4, host_allocate)      /* pinned memory; its memfd follows on the lifeline */     \
    X(5, module_load)        /* PTX, cubin or fatbin from host memory of the channel */ \
    X(6, module_unload)                                                                 \
    X(7, module_global) /* address and size of a global variable */                     \
    X(8, function_get)  /* a kernel of a module, its attributes and parameters */       \
    X(9, function_set_attribute)                                                        \
    X(10, function_occupancy) /* blocks per SM */                                       \
    X(11, event_elapsed)      /* milliseconds between two timing events */

/* What only unmodified CUDA programs ask for. */
#define FIKIT_PROGRAM_CALLS(X)                                                           \
    X(12, module_functions)  /* names of a module's kernels */                           \
    X(13, function_shared)   /* dynamic shared memory that is left for a block */        \
    X(14, function_clusters) /* occupancy of thread block clusters */                    \
    X(15, memory_reserve)    /* addresses without memory */                              \
    X(16, memory_unreserve)                                                              \
    X(17, memory_create) /* memory without addresses */                                  \
    X(18, memory_release)                                                                \
    X(19, memory_map) /* the one at the other */                                         \
    X(20, memory_unmap)                                                                  \
    X(21, memory_access) /* makes what is mapped there usable */                         \
    X(22, graph_create)  /* a graph that is launched as one operation */                 \
    X(23, graph_destroy)                                                                 \
    X(24, session_identity) /* for handles that another process gets */                  \
    X(25, memory_export)    /* device memory that other sessions may map */              \
    X(26, memory_import)                                                                 \
    X(30, printed)     /* what kernels have printed and nobody has asked for yet */      \
    X(31, tensor_map)  /* made or changed by the driver */                               \
    X(32, link_create) /* one image to be made of several */                             \
    X(33, link_add)                                                                      \
    X(34, link_complete)                                                                 \
    X(35, link_read) /* of what it made */                                               \
    X(36, link_destroy)                                                                  \
    X(37, condition_create) /* a graph's own, before it has nodes */                     \
    X(38, conditions_destroy)                                                            \
    X(39, stack_grow) /* of every thread, in the context that sessions share */          \
    X(40, array_create)                                                                  \
    X(41, array_destroy)                                                                 \
    X(42, texture_create) /* a texture object or a surface object */                     \
    X(43, texture_destroy)                                                               \
    X(44, host_register) /* pins a file of the program's, sent on the lifeline before */ \
    X(45, heap_grow)     /* of malloc in kernels, likewise */

typedef enum {
#define FIKIT_CALL_NUMBER(number, name) fikit_call_##name = number,
    FIKIT_CALLS(FIKIT_CALL_NUMBER)
#undef FIKIT_CALL_NUMBER
        fikit_call_limit
} fikit_call;

enum {
    FIKIT_DEVICE_ATTRIBUTES = 160,
    FIKIT_FUNCTION_ATTRIBUTES = 18, /* by CUfunction_attribute */
    FIKIT_DEVICE_NAME = 128,
    FIKIT_SYMBOL_NAME = 32768 /* what nvcc makes of a kernel with hundreds of template arguments has 20 000 */
};

typedef struct {
    uint64_t reserved;
} fikit_request_device_attributes;
typedef struct {
    int32_t attribute[FIKIT_DEVICE_ATTRIBUTES]; /* by CUdevice_attribute; INT32_MIN: the driver knows none */
    uint64_t memory_bytes;                      /* of the device */
    uint8_t uuid[16];
    char name[FIKIT_DEVICE_NAME];
    int32_t driver_version;
    int32_t greatest_priority;         /* of streams; the least is 0 */
    uint64_t addresses, address_bytes; /* where all device memory of the session lies */
} fikit_reply_device_attributes;

typedef struct {
    uint64_t size; /* bytes, above 0 */
} fikit_request_memory_allocate;
typedef struct {
    uint64_t address;
    uint64_t size; /* charged to the quota */
} fikit_reply_memory_allocate;

typedef struct {
    uint64_t reserved;
} fikit_request_memory_information;
typedef struct {
    uint64_t free, total; /* bytes */
} fikit_reply_memory_information;

typedef struct {
    uint32_t handle; /* 1..FIKIT_MAX_HOST_BUFFERS-1, not in use */
    uint32_t reserved;
    uint64_t size; /* bytes */
} fikit_request_host_allocate;
typedef struct {
    uint64_t size;           /* of the memfd */
    uint64_t device_address; /* the same memory as the GPU sees it */
} fikit_reply_host_allocate;

typedef struct {
    uint32_t handle; /* chosen by the producer, as for host_allocate */
    uint32_t reserved;
    uint64_t size;   /* bytes */
    uint64_t offset; /* in the file, whole pages */
    uint64_t own;    /* where the program has it: there the GPU has it, too, if nothing else is there */
} fikit_request_host_register;
typedef struct {
    uint64_t device_address; /* of its first byte, as the GPU sees it */
} fikit_reply_host_register;

/* What the JIT is told: a CUjit_option whose value is a number. Others are left out. */
enum { FIKIT_MAX_JIT_OPTIONS = 32, FIKIT_JIT_LOG = 8192, FIKIT_JIT_NAME = 1024 };
typedef struct {
    int32_t option;
    uint32_t value;
} fikit_jit_option;

typedef struct {
    uint32_t handle;
    uint32_t offered; /* where the image is. 1: a file in memory, sent with the call; 0: the staging area */
    uint64_t offset;  /* in it; in a file whole pages */
    uint64_t size;    /* bytes; PTX includes its NUL */
} fikit_request_module_load; /* fikit_jit_option follow */
typedef struct {
    uint32_t log_bytes;  /* of the JIT's error log, which follows, at most FIKIT_JIT_LOG, */
    uint32_t note_bytes; /* and what else it says, likewise */
} fikit_reply_module_load;

typedef struct {
    uint32_t handle;
    uint32_t reserved;
} fikit_request_module_unload;
typedef struct {
    uint64_t reserved;
} fikit_reply_module_unload;

typedef struct {
    uint32_t module;
    uint32_t name_bytes; /* the name follows, without a NUL */
} fikit_request_module_global;
typedef struct {
    uint64_t address, size;
} fikit_reply_module_global;

typedef struct {
    uint32_t module;
    uint32_t handle;     /* of the function */
    uint32_t name_bytes; /* the name follows, without a NUL */
    uint32_t reserved;
} fikit_request_function_get;
typedef struct {
    uint32_t offset, size; /* bytes, in the parameter buffer */
} fikit_parameter;
typedef struct {
    int32_t attribute[FIKIT_FUNCTION_ATTRIBUTES]; /* INT32_MIN: the driver knows none */
    uint32_t parameter_bytes;                     /* of the whole parameter buffer */
    uint32_t parameters;                          /* so many fikit_parameter follow */
} fikit_reply_function_get;

typedef struct {
    uint32_t function;
    int32_t attribute; /* CUfunction_attribute */
    int32_t value;
    uint32_t reserved;
} fikit_request_function_set_attribute;
typedef struct {
    uint64_t reserved;
} fikit_reply_function_set_attribute;

typedef struct {
    uint32_t function;
    uint32_t block_threads;
    uint64_t shared_bytes; /* dynamic */
    uint32_t flags;        /* CUoccupancy_flags */
    uint32_t reserved;
} fikit_request_function_occupancy;
typedef struct {
    int32_t blocks_per_multiprocessor;
    uint32_t reserved;
} fikit_reply_function_occupancy;

typedef struct {
    uint32_t start, end; /* event handles */
} fikit_request_event_elapsed;
typedef struct {
    double milliseconds;
} fikit_reply_event_elapsed;

typedef struct {
    uint32_t module;
    uint32_t first; /* of those to be named */
} fikit_request_module_functions;
typedef struct {
    uint32_t functions;  /* all there are */
    uint32_t name_bytes; /* the names follow from the first on, each with its NUL, as far as they fit */
} fikit_reply_module_functions;

typedef struct {
    uint32_t function;
    uint32_t blocks; /* per multiprocessor */
    uint32_t block_threads;
    uint32_t reserved;
} fikit_request_function_shared;
typedef struct {
    uint64_t bytes;
} fikit_reply_function_shared;

enum { FIKIT_CLUSTERS_ACTIVE = 0, FIKIT_CLUSTERS_LARGEST = 1 };

typedef struct {
    uint32_t function;
    uint32_t question;                      /* how many clusters at once, or blocks of the largest cluster */
    uint32_t grid[3], block[3], cluster[3]; /* cluster 0: none given */
    uint32_t shared_bytes;
} fikit_request_function_clusters;
typedef struct {
    int32_t value;
    uint32_t reserved;
} fikit_reply_function_clusters;

typedef struct {
    uint64_t size, alignment; /* bytes */
    uint64_t wished;          /* address; 0: none */
} fikit_request_memory_reserve;
typedef struct {
    uint64_t address;
} fikit_reply_memory_reserve;

typedef struct {
    uint64_t address, size;
} fikit_request_memory_unreserve;
typedef struct {
    uint64_t reserved;
} fikit_reply_memory_unreserve;

typedef struct {
    uint32_t handle; /* 1..FIKIT_MAX_MEMORIES-1, not in use */
    uint32_t reserved;
    uint64_t size; /* bytes */
} fikit_request_memory_create;
typedef struct {
    uint64_t reserved;
} fikit_reply_memory_create;

/* The memory goes once nothing maps it any more. */
typedef struct {
    uint32_t handle;
    uint32_t reserved;
} fikit_request_memory_release;
typedef struct {
    uint64_t reserved;
} fikit_reply_memory_release;

typedef struct {
    uint64_t address, size, offset; /* offset: in the memory */
    uint32_t handle;
    uint32_t reserved;
} fikit_request_memory_map;
typedef struct {
    uint64_t reserved;
} fikit_reply_memory_map;

/* Sent once nothing uses it: whole mappings, as they were mapped. */
typedef struct {
    uint64_t address, size;
} fikit_request_memory_unmap;
typedef struct {
    uint64_t reserved;
} fikit_reply_memory_unmap;

typedef struct {
    uint64_t address, size;
    uint32_t flags; /* CUmemAccess_flags */
    uint32_t reserved;
} fikit_request_memory_access;
typedef struct {
    uint64_t reserved;
} fikit_reply_memory_access;

/* An image of nodes, each after those that it depends on: fikit_graph_node, the dependencies' indices
 * (uint32_t, padded to 8 bytes), then the record (abi.h) of a launch, a copy on the device, a fill, a SYNC:
 * nothing, or a fikit_decision. The record's stream says which graph the node is of: 0, the graph itself, or
 * a body; each decision before has got the next numbers for its bodies. A handle in use gets the new graph.
 * Host memory and functions have no place in it: the tenant's side issues such a graph node by node. */
typedef struct {
    uint32_t dependencies;
    uint32_t record_bytes;
} fikit_graph_node;
enum { FIKIT_OP_DECISION = 128 }; /* in such an image only */
typedef struct {
    fikit_record record;
    uint64_t condition;
    uint32_t type;   /* CUgraphConditionalNodeType */
    uint32_t bodies; /* graphs to choose from */
} fikit_decision;
typedef struct {
    uint32_t handle;  /* 1..FIKIT_MAX_GRAPHS-1 */
    uint32_t offered; /* where the image is, as of module_load */
    uint64_t offset;
    uint64_t size;       /* bytes */
    uint32_t conditions; /* as of condition_create; 0: it decides nothing */
    uint32_t reserved;
} fikit_request_graph_create;
typedef struct {
    uint64_t reserved;
} fikit_reply_graph_create;

/* The driver gives conditions to a graph before it has nodes. A number not in use is that of a new one. */
typedef struct {
    uint32_t conditions; /* 1..FIKIT_MAX_GRAPHS-1 */
    uint32_t initial;
    uint32_t flags; /* CU_GRAPH_COND_ASSIGN_DEFAULT: it is `initial` whenever the graph begins */
    uint32_t reserved;
} fikit_request_condition_create;
typedef struct {
    uint64_t condition; /* what kernels and decisions name */
} fikit_reply_condition_create;

typedef struct {
    uint32_t conditions;
    uint32_t reserved;
} fikit_request_conditions_destroy;
typedef struct {
    uint64_t reserved;
} fikit_reply_conditions_destroy;

/* What is said to other processes of the session's: handles work between the sessions of one executor, so of
 * one trust domain. What the session sent before this call has been issued when it is answered. */
enum { FIKIT_IDENTITY = 16 };
typedef struct {
    uint64_t reserved;
} fikit_request_session_identity;
typedef struct {
    uint8_t executor[FIKIT_IDENTITY]; /* random */
    uint32_t session;                 /* above 0; never used again */
    uint32_t reserved;
} fikit_reply_session_identity;

/* Whole extents: what lies beside a small allocation goes with it. The memory lives until nobody maps it. */
typedef struct {
    uint64_t address; /* of an allocation, or 0: */
    uint32_t handle;  /* memory that the program has created */
    uint32_t reserved;
} fikit_request_memory_export;
typedef struct {
    uint8_t executor[FIKIT_IDENTITY];
    uint32_t session, number;
    uint64_t size, offset; /* bytes: of the extent, and where the address is in it */
} fikit_reply_memory_export;

/* Then it is memory like that of memory_create, and charged to who imports it, too. */
typedef struct {
    uint8_t executor[FIKIT_IDENTITY];
    uint32_t number;
    uint32_t handle; /* as of memory_create */
} fikit_request_memory_import;
typedef struct {
    uint64_t size; /* bytes */
} fikit_reply_memory_import;

typedef struct {
    uint32_t handle;
    uint32_t reserved;
} fikit_request_graph_destroy;
typedef struct {
    uint64_t reserved;
} fikit_reply_graph_destroy;

/* A CUtensorMap, which only the driver can write; by kind, what its parameters are. */
enum { FIKIT_TENSOR_TILED, FIKIT_TENSOR_IM2COL, FIKIT_TENSOR_REPLACE, FIKIT_TENSOR_RANK = 5 };
typedef struct {
    uint32_t kind, type, rank, interleave, swizzle, promotion, fill;
    uint32_t channels, pixels;                                          /* im2col */
    uint32_t box[FIKIT_TENSOR_RANK];                                    /* tiled */
    uint32_t steps[FIKIT_TENSOR_RANK];                                  /* between elements */
    int32_t lower[FIKIT_TENSOR_RANK - 2], upper[FIKIT_TENSOR_RANK - 2]; /* im2col */
    uint32_t reserved;
    uint64_t address;
    uint64_t sizes[FIKIT_TENSOR_RANK];
    uint64_t strides[FIKIT_TENSOR_RANK - 1]; /* bytes */
    uint64_t map[16];                        /* replace: the one that gets another address */
} fikit_request_tensor_map;
typedef struct {
    uint64_t map[16];
} fikit_reply_tensor_map;

typedef struct {
    uint64_t bytes;
} fikit_request_stack_grow;
typedef struct {
    uint64_t bytes; /* what it is now: never less than before */
} fikit_reply_stack_grow;

typedef struct {
    uint64_t bytes;
} fikit_request_heap_grow;
typedef struct {
    uint64_t bytes; /* what it is now: less where kernels have used it already */
} fikit_reply_heap_grow;

typedef struct {
    uint32_t handle; /* 1..FIKIT_MAX_LINKS-1, not in use */
    uint32_t reserved;
} fikit_request_link_create; /* fikit_jit_option follow */
typedef struct {
    uint64_t reserved;
} fikit_reply_link_create;

typedef struct {
    uint32_t handle;
    uint32_t type;    /* CUjitInputType */
    uint32_t offered; /* as of module_load */
    uint32_t options; /* so many fikit_jit_option follow, for this image, then its name */
    uint64_t offset, size;
} fikit_request_link_add;
typedef struct {
    uint32_t log_bytes, note_bytes; /* as of module_load; of the whole link so far */
} fikit_reply_link_add;

typedef struct {
    uint32_t handle;
    uint32_t reserved;
} fikit_request_link_complete;
typedef struct {
    uint32_t log_bytes, note_bytes; /* as of link_add */
    uint64_t size;                  /* bytes of the image */
} fikit_reply_link_complete;

typedef struct {
    uint32_t handle;
    uint32_t bytes;
    uint64_t offset;
} fikit_request_link_read;
typedef struct {
    uint32_t bytes; /* which follow */
    uint32_t reserved;
} fikit_reply_link_read;

typedef struct {
    uint32_t handle;
    uint32_t reserved;
} fikit_request_link_destroy;
typedef struct {
    uint64_t reserved;
} fikit_reply_link_destroy;

typedef struct {
    uint32_t bytes; /* at most; 0: its kernels will print */
    uint32_t reserved;
} fikit_request_printed;
typedef struct {
    uint32_t bytes; /* of text, which follows; 0: that was all */
    uint32_t reserved;
} fikit_reply_printed;

#endif

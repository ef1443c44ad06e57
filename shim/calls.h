/* Calls: what needs an answer. One list; the producer's numbers and names and the executor's dispatch table
 * are generated from it, so neither side can know a call that the other does not.
 *
 * A request is fikit_request_NAME (possibly followed by bytes that it counts), the reply
 * fikit_reply_NAME (likewise). The status of a call is a CUresult.
 */
#ifndef FIKIT_CALLS_H
#define FIKIT_CALLS_H

#include <stdint.h>

/*  X(number, name)  numbers are never reused */
#define FIKIT_CALLS(X)                                                                  \
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

typedef enum {
#define FIKIT_CALL_NUMBER(number, name) fikit_call_##name = number,
    FIKIT_CALLS(FIKIT_CALL_NUMBER)
#undef FIKIT_CALL_NUMBER
        fikit_call_limit
} fikit_call;

enum { FIKIT_DEVICE_ATTRIBUTES = 160, FIKIT_DEVICE_NAME = 128, FIKIT_SYMBOL_NAME = 8192 };

typedef struct {
    uint64_t reserved;
} fikit_request_device_attributes;
typedef struct {
    int32_t attribute[FIKIT_DEVICE_ATTRIBUTES]; /* by CUdevice_attribute; INT32_MIN: the driver knows none */
    uint64_t memory_bytes;                      /* of the device */
    uint8_t uuid[16];
    char name[FIKIT_DEVICE_NAME];
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
    uint32_t handle;
    uint32_t host_buffer; /* where the image is: a pinned buffer, or 0, the staging area */
    uint64_t offset;      /* in it */
    uint64_t size;        /* bytes; PTX includes its NUL */
} fikit_request_module_load;
typedef struct {
    uint32_t log_bytes; /* the JIT's error log follows when the load failed */
    uint32_t reserved;
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
    int32_t max_threads, shared_bytes, const_bytes, local_bytes, registers, max_dynamic_shared_bytes;
    int32_t ptx_version, binary_version;
    uint32_t parameter_bytes; /* of the whole parameter buffer */
    uint32_t parameters;      /* so many fikit_parameter follow */
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

#endif

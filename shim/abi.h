/* The channel between a session (the tenant's process) and its executor: layout and records.
 *
 * Two shared memories, both made and sealed (size) by the executor:
 *   outbox  the tenant writes: operation ring, staging area, a few flags. The executor trusts nothing
 *           in it: it copies a record once, then validates the copy.
 *   inbox   only the executor and the GPU write; the tenant can map it read-only (F_SEAL_FUTURE_WRITE).
 *           Progress ("marks"), call replies, errors. So the executor may rest on its own marks.
 * A third descriptor, the lifeline (a stream socket pair), rings the doorbell (one byte, only while the
 * executor is parked), hands over further descriptors (either way), and ends: whoever sees it closed knows
 * that the other side is gone. A tenant that shuts its own half alone ends the session, and may look at its
 * pinned memory until it shuts the other.
 *
 * Order: records are issued in ring order. Stream operations (LAUNCH to HOST_FUNCTION below, and VALUES) name
 * a stream of the session (0 = its legacy default stream) and count as one step of it; both sides count, and
 * go on counting when a handle is used again. mark[stream] in the inbox is the number of steps that have
 * completed. A record with FIKIT_MARK asks that its step be marked as soon as it completes; without it the
 * mark moves at the executor's leisure.
 *
 * Handles (streams, events, modules, functions, pinned host memory) are numbers the session chooses below
 * the limits here, so that creating a thing needs no round trip and restoring can recreate it.
 */
#ifndef FIKIT_ABI_H
#define FIKIT_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define FIKIT_STATIC_ASSERT static_assert
extern "C" {
#else
#define FIKIT_STATIC_ASSERT _Static_assert
#endif

#define FIKIT_ABI_VERSION 7u
#define FIKIT_OUTBOX_MAGIC 0x584f464bu /* "KFOX" */
#define FIKIT_INBOX_MAGIC 0x5849464bu  /* "KFIX" */

enum {
    FIKIT_RECORD_ALIGN = 64,       /* records start on a cache line and never wrap */
    FIKIT_MAX_RECORD = 40 * 1024,  /* bytes; CUDA's parameter limit is 32764 */
    FIKIT_MAX_PARAMETERS = 32764,  /* bytes of kernel parameters */
    FIKIT_MAX_ATTRIBUTES = 16,     /* launch attributes of one launch */
    FIKIT_MAX_VALUES = 256,        /* words of one operation, as of cuStreamBatchMemOp */
    FIKIT_MAX_STREAMS = 4096,      /* stream handles 0..4095; 0 is the legacy default stream */
    FIKIT_MAX_EVENTS = 65536,      /* event handles */
    FIKIT_MAX_MODULES = 16384,     /* module handles */
    FIKIT_MAX_FUNCTIONS = 65536,   /* function handles */
    FIKIT_MAX_HOST_BUFFERS = 4096, /* pinned host memory handles; 0 is the staging area */
    FIKIT_MAX_GRAPHS = 16384,      /* handles of instantiated graphs */
    FIKIT_MAX_MEMORIES = 65536,    /* handles of physical memory that the program maps itself */
    FIKIT_MAX_LINKS = 256,         /* handles of images that are being linked */
    FIKIT_MAX_ARRAYS = 65536,      /* handles of arrays and mipmapped arrays */
    FIKIT_MAX_TEXTURES = 65536,    /* texture and surface objects of a session */
    FIKIT_MAX_CALL_BYTES = 36864,  /* request payload of a call */
    FIKIT_MAX_REPLY_BYTES = 65536, /* reply payload of a call */
    FIKIT_ERROR_TEXT = 1024,       /* bytes, NUL-terminated */
    FIKIT_PAGE = 4096
};

/* ---- outbox (tenant writes) ---- */

typedef struct {
    uint32_t magic, version;
    uint64_t ring_offset, ring_bytes;       /* ring_bytes is a power of two */
    uint64_t staging_offset, staging_bytes; /* for pageable copies, module images */
    uint8_t reserved0[FIKIT_RECORD_ALIGN - 40];
    uint64_t head; /* bytes ever written to the ring (atomic, release) */
    uint8_t reserved1[FIKIT_RECORD_ALIGN - 8];
    uint32_t waiters; /* threads of the tenant that sleep on a futex of the inbox (atomic) */
    uint32_t reserved2;
    uint64_t room; /* the tail at which those that wait for room in the ring want to be woken (atomic) */
    uint8_t reserved3[FIKIT_RECORD_ALIGN - 16];
} fikit_outbox;

/* host_done[stream], at FIKIT_HOST_DONE_OFFSET of the outbox: steps of the stream whose host function has
 * returned (atomic, release). */
#define FIKIT_HOST_DONE_OFFSET FIKIT_PAGE

/* Notes, at FIKIT_NOTES_OFFSET of the outbox: calls of the CUDA driver interface that the program made and
 * the tenant's side does not serve. They are here, and not in a message, so that they outlive a killed
 * process. */
typedef struct {
    uint64_t count;
    char name[56]; /* of the call; empty: the note is free */
} fikit_note;
#define FIKIT_NOTES_OFFSET (FIKIT_HOST_DONE_OFFSET + FIKIT_MAX_STREAMS * 8)
#define FIKIT_NOTES (FIKIT_PAGE / 64)
#define FIKIT_RING_OFFSET (FIKIT_NOTES_OFFSET + FIKIT_PAGE) /* the least one of a ring */

/* ---- inbox (executor and GPU write) ---- */

typedef struct {
    uint32_t magic, version;
    uint32_t ended;  /* atomic: 0, or 1 once the session is over; error and text are set before */
    int32_t error;   /* CUresult that every later call returns */
    uint64_t tail;   /* bytes ever consumed from the ring (atomic, release) */
    uint32_t parked; /* atomic; odd: the executor sleeps and wants one doorbell byte for this value */
    uint32_t wakes;  /* atomic futex word, moved when something a waiter may wait for happened: a step that
                        was to be marked completed, `room` was reached, a call was answered, the end */
    uint32_t graphs_apart; /* atomic; 1: graphs should come node by node, so that the gate can let kernels by
                              where the whole would have to wait */
    uint32_t woken;        /* where the executor moves sleepers that it wakes later */
    uint8_t reserved0[FIKIT_RECORD_ALIGN - 40];
    /* The reply of the one outstanding call. */
    uint64_t call_done; /* atomic, release: number of calls answered */
    int32_t call_status;
    uint32_t call_bytes;
    uint8_t reserved1[FIKIT_RECORD_ALIGN - 16];
    /* The latest asynchronous error that is not sticky (a refused launch, say). Read count, the rest, count.
     */
    uint64_t deferred_count; /* atomic, release: number of deferred errors so far */
    int32_t deferred_error;
    uint8_t reserved2[FIKIT_RECORD_ALIGN - 12];
    char deferred_text[FIKIT_ERROR_TEXT];
    char error_text[FIKIT_ERROR_TEXT];
} fikit_inbox;

#define FIKIT_MARKS_OFFSET FIKIT_PAGE /* one mark per stream, a cache line each */
#define FIKIT_MARK_STRIDE 64
#define FIKIT_REPLY_OFFSET (FIKIT_MARKS_OFFSET + FIKIT_MAX_STREAMS * FIKIT_MARK_STRIDE)
#define FIKIT_INBOX_BYTES (FIKIT_REPLY_OFFSET + FIKIT_MAX_REPLY_BYTES)

/* ---- records ---- */

typedef enum {
    FIKIT_OP_PAD = 0,    /* fills the ring up to its end */
    FIKIT_OP_LAUNCH = 1, /* the first of the stream operations */
    FIKIT_OP_GRAPH = 2,  /* a whole graph (call graph_create) */
    FIKIT_OP_COPY = 3,
    FIKIT_OP_FILL = 4,
    FIKIT_OP_EVENT_RECORD = 5,
    FIKIT_OP_EVENT_WAIT = 6,
    FIKIT_OP_SYNC = 7,          /* nothing but its mark */
    FIKIT_OP_HOST_FUNCTION = 8, /* its step is marked when it may run */
    FIKIT_OP_STREAM_CREATE = 9,
    FIKIT_OP_STREAM_DESTROY = 10,
    FIKIT_OP_EVENT_DESTROY = 11,
    FIKIT_OP_FREE = 12, /* device memory, once everything issued before has completed */
    FIKIT_OP_HOST_FREE = 13,
    FIKIT_OP_CALL = 14,
    FIKIT_OP_VALUES = 15, /* a stream operation: words written, words waited for */
    FIKIT_OP_COUNT
} fikit_op;

enum {
    FIKIT_MARK = 1u << 0,    /* record flags */
    FIKIT_ROWS = 1u << 1,    /* the copy is a fikit_copy_rows */
    FIKIT_WAITED = 1u << 2,  /* before this step the program waited for all that its stream was asked for, */
    FIKIT_FOUND = 1u << 3,   /* and found it over */
    FIKIT_IN_ORDER = 1u << 4 /* FREE: behind its own stream's work alone. HOST_FREE: behind none */
};

typedef struct {
    uint32_t bytes; /* of the record with everything behind it; a multiple of FIKIT_RECORD_ALIGN */
    uint16_t op;    /* fikit_op */
    uint16_t flags;
    uint32_t stream;
    uint32_t reserved;
} fikit_record;

/* Followed by `attributes` fikit_attribute, then `parameter_bytes` of parameters as the kernel lays them
 * out (fikit_reply_function_get). */
typedef struct {
    fikit_record record;
    uint32_t function;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    uint32_t parameter_bytes;
    uint32_t attributes;
    uint32_t reserved[2];
} fikit_launch;

typedef struct {
    uint32_t id; /* CUlaunchAttributeID */
    uint32_t reserved;
    uint8_t value[64]; /* CUlaunchAttributeValue */
} fikit_attribute;

typedef struct {
    fikit_record record;
    uint32_t graph;
    uint32_t reserved;
} fikit_graph;

enum { FIKIT_COPY_TO_DEVICE = 0, FIKIT_COPY_TO_HOST = 1, FIKIT_COPY_ON_DEVICE = 2 };

typedef struct {
    fikit_record record;
    uint32_t kind;
    uint32_t host_buffer; /* handle; 0 is the staging area */
    uint64_t device;      /* the device address (destination for FIKIT_COPY_ON_DEVICE) */
    uint64_t other;       /* offset in the host buffer, or the source device address */
    uint64_t size;        /* bytes */
} fikit_copy;

/* A copy of rows, of which arrays may be an end. `copy` says where ends that are none begin, and has the size
 * of all rows together. */
typedef struct {
    uint32_t array;         /* handle; 0: memory */
    uint32_t level;         /* of a mipmapped array; else 0 */
    uint64_t x, y, z;       /* of an array: byte, row and slice at which the copy begins */
    uint64_t pitch, height; /* of memory: bytes from row to row, rows from slice to slice */
} fikit_copy_end;
typedef struct {
    fikit_copy copy; /* its record has FIKIT_ROWS */
    fikit_copy_end to, from;
    uint64_t width, rows, slices; /* width: bytes */
} fikit_copy_rows;

typedef struct {
    fikit_record record;
    uint64_t device;
    uint64_t count; /* elements */
    uint32_t value;
    uint32_t width; /* 1, 2 or 4 bytes */
} fikit_fill;

/* Followed by `count` fikit_value, which happen one after the other. Words are 4 or 8 bytes wide, and aligned
 * to that. */
typedef struct {
    fikit_record record;
    uint32_t count; /* 1..FIKIT_MAX_VALUES */
    uint32_t reserved;
} fikit_values;

typedef struct {
    uint32_t operation;   /* CUstreamBatchMemOpType */
    uint32_t flags;       /* as CUDA has them; a barrier's type */
    uint32_t host_buffer; /* handle; 0: device memory */
    uint32_t reserved;
    uint64_t address; /* device address, or offset in the host buffer */
    uint64_t value;
} fikit_value;

enum { FIKIT_EVENT_TIMING = 1u << 0 };

typedef struct {
    fikit_record record; /* EVENT_RECORD, EVENT_WAIT, EVENT_DESTROY */
    uint32_t event;
    uint32_t flags;   /* FIKIT_EVENT_TIMING on EVENT_RECORD */
    uint32_t session; /* whose event, of the executor's (session_identity); 0: the own one */
    uint32_t reserved;
} fikit_event;

enum { FIKIT_STREAM_NON_BLOCKING = 1u << 0 };

typedef struct {
    fikit_record record; /* the stream created or destroyed is record.stream */
    uint32_t flags;
    int32_t priority; /* CUDA's numbers (lower is more urgent), ranked within the session */
} fikit_stream;

typedef struct {
    fikit_record record;
    uint64_t address; /* FREE: device address; HOST_FREE: handle of the pinned buffer */
} fikit_free;

/* Followed by `payload_bytes` of the request (calls.h). */
typedef struct {
    fikit_record record;
    uint32_t call; /* fikit_call */
    uint32_t payload_bytes;
} fikit_call_record;

FIKIT_STATIC_ASSERT(sizeof(fikit_outbox) == 192, "outbox header: three cache lines");
FIKIT_STATIC_ASSERT(offsetof(fikit_outbox, head) == 64, "head has a cache line of its own");
FIKIT_STATIC_ASSERT(offsetof(fikit_outbox, waiters) == 128, "waiters has a cache line of its own");
FIKIT_STATIC_ASSERT(offsetof(fikit_inbox, call_done) == 64, "replies have a cache line of their own");
FIKIT_STATIC_ASSERT(offsetof(fikit_inbox, deferred_count) == 128, "deferred errors likewise");
FIKIT_STATIC_ASSERT(sizeof(fikit_inbox) <= FIKIT_MARKS_OFFSET, "inbox header fits its page");
FIKIT_STATIC_ASSERT(sizeof(fikit_record) == 16, "record header");
FIKIT_STATIC_ASSERT(sizeof(fikit_launch) == 64, "a launch is one cache line and its parameters");
FIKIT_STATIC_ASSERT(sizeof(fikit_attribute) == 72, "launch attribute");
FIKIT_STATIC_ASSERT(sizeof(fikit_copy) == 48, "copy");
FIKIT_STATIC_ASSERT(sizeof(fikit_copy_rows) == 168, "copy of rows");
FIKIT_STATIC_ASSERT(sizeof(fikit_fill) == 40, "fill");
FIKIT_STATIC_ASSERT(sizeof(fikit_call_record) == 24, "call");
FIKIT_STATIC_ASSERT(sizeof(fikit_values) == 24, "values");
FIKIT_STATIC_ASSERT(sizeof(fikit_value) == 32, "value");
FIKIT_STATIC_ASSERT(sizeof(fikit_values) + FIKIT_MAX_VALUES * sizeof(fikit_value) <= FIKIT_MAX_RECORD,
                    "values fit a record");
FIKIT_STATIC_ASSERT(FIKIT_RING_OFFSET % FIKIT_PAGE == 0, "notes and ring begin on a page");
FIKIT_STATIC_ASSERT(sizeof(fikit_note) == 64, "note");

#ifdef __cplusplus
}
#endif
#undef FIKIT_STATIC_ASSERT
#endif

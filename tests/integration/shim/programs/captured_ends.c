/* Graphs, and nodes of them, that end while streams are captured into them, as where a program gives up
   halfway; and a module that ends while a graph has a kernel of it. What comes of these captures is open; the
   program goes on. */
#include <string.h>

#include "check.h"

static const char text[] =
    ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry nothing(.param .u64 unused) { ret; }\n";

static CUfunction nothing;
static CUdeviceptr memory;

static CUstream new_stream(void) {
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void launch(CUstream stream) {
    void* values[] = {&memory};
    cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, values, NULL);
}

static void end(CUstream stream) {
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    launch(stream);
    if (cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS &&
        cuGraphInstantiate(&executable, graph, 0) == CUDA_SUCCESS)
        CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    launch(stream);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy(stream));
}

static void graph_that_was_given(void) {
    CUgraph graph;
    CUstream stream = new_stream();
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(stream);
    CHECK(cuGraphDestroy(graph));
    end(stream);
}

static void body_of_a_graph(int with_its_stream) {
    CUgraph graph;
    CUgraphNode node;
    CUgraphConditionalHandle condition;
    CUcontext context;
    CUstream stream = new_stream();
    CHECK(cuCtxGetCurrent(&context));
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphConditionalHandleCreate(&condition, graph, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    CUgraphNodeParams given;
    memset(&given, 0, sizeof given);
    given.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    given.conditional.handle = condition;
    given.conditional.type = CU_GRAPH_COND_TYPE_IF;
    given.conditional.size = 1;
    given.conditional.ctx = context;
    CHECK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &given));
    CHECK(cuStreamBeginCaptureToGraph(stream, given.conditional.phGraph_out[0], NULL, NULL, 0,
                                      CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(stream);
    CHECK(cuGraphDestroy(graph));
    if (with_its_stream)
        CHECK(cuStreamDestroy(stream));
    else
        end(stream);
}

/* The latest node of a stream: an event stands for it, too. Meanwhile another capture is begun and ended. */
static void graph_or_node_that_was_asked_for(int node) {
    CUstreamCaptureStatus status;
    CUgraph graph, empty;
    const CUgraphNode* latest;
    size_t count;
    CUevent event;
    CUstream stream = new_stream(), other = new_stream();
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(stream);
    CHECK(cuEventRecord(event, stream));
    CHECK(cuStreamGetCaptureInfo(stream, &status, NULL, &graph, &latest, NULL, &count));
    if (node)
        CHECK(cuGraphDestroyNode(latest[0]));
    else
        CHECK(cuGraphDestroy(graph));
    cuStreamWaitEvent(other, event, 0);
    launch(other);
    cuEventRecord(event, other);
    cuStreamWaitEvent(stream, event, 0);
    end(stream);
    CHECK(cuStreamBeginCapture(stream = new_stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuStreamBeginCapture(other = new_stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
    if (cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS) exit(2);
    CHECK(cuStreamDestroy(stream));
    CHECK(cuStreamEndCapture(other, &empty));
}

static void module_of_a_node(void) {
    CUmodule module;
    CUgraph graph;
    CUgraphNode node;
    void* values[] = {&memory};
    CUDA_KERNEL_NODE_PARAMS given = {.gridDimX = 1,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 1,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = values};
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleGetFunction(&given.func, module, "nothing"));
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddKernelNode(&node, graph, NULL, 0, &given));
    CHECK(cuModuleUnload(module));
    cuGraphKernelNodeGetParams(node, &given);
    CHECK(cuGraphDestroy(graph));
}

int main(void) {
    CUcontext context;
    CUmodule module;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleGetFunction(&nothing, module, "nothing"));
    CHECK(cuMemAlloc(&memory, 8));
    graph_that_was_given();
    for (int which = 0; which < 2; ++which) {
        body_of_a_graph(which);
        graph_or_node_that_was_asked_for(which);
    }
    module_of_a_node();
    puts("went on");
    return 0;
}

// A graph in the DOT language, which cuGraphDebugDotPrint writes. For whoever answers in the driver's place.
#pragma once

#include <stdio.h>

#include "cuda_interface.hpp"  // of whoever includes this

namespace fikit {

class GraphPicture {
  public:
    // `flags`: CUgraphDebugDot_flags, of which these say that nodes' parameters are told.
    GraphPicture(const char* path, unsigned flags) : file_(fopen(path, "we")), flags_(flags) {
        if (file_ != nullptr) fputs("digraph dot {\n", file_);
    }
    ~GraphPicture() {
        if (file_ != nullptr) fclose(file_);
    }
    GraphPicture(const GraphPicture&) = delete;
    GraphPicture& operator=(const GraphPicture&) = delete;

    // Graphs lie within each other: what is drawn until `end` is of this one. Its number.
    unsigned begin() {
        const unsigned graph = graphs_++;
        tell("subgraph cluster_%u {\nlabel=\"graph_%u\" graph[style=\"dashed\"];\n", graph, graph);
        return graph;
    }
    void end() {
        if (file_ != nullptr) fputs("}\n", file_);
    }
    void node(unsigned graph, unsigned node, CUgraphNodeType type) {
        begin_node(graph, node, type);
        end_node();
    }
    void kernel(unsigned graph, unsigned node, const char* function, const unsigned (&grid)[3],
                const unsigned (&block)[3], unsigned shared_bytes) {
        begin_node(graph, node, CU_GRAPH_NODE_TYPE_KERNEL);
        tell("\\n%s", function);
        if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS))
            tell("\\ngrid %u x %u x %u, block %u x %u x %u, %u bytes shared", grid[0], grid[1], grid[2],
                 block[0], block[1], block[2], shared_bytes);
        end_node();
    }
    void copy(unsigned graph, unsigned node, const CUDA_MEMCPY3D& copy) {
        begin_node(graph, node, CU_GRAPH_NODE_TYPE_MEMCPY);
        if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS))
            tell("\\n%zu bytes x %zu x %zu", copy.WidthInBytes, copy.Height, copy.Depth);
        end_node();
    }
    void fill(unsigned graph, unsigned node, const CUDA_MEMSET_NODE_PARAMS& fill) {
        begin_node(graph, node, CU_GRAPH_NODE_TYPE_MEMSET);
        if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS))
            tell("\\n%zu x %zu of %u bytes, each %#x, at %#llx", fill.width, fill.height, fill.elementSize,
                 fill.value, fill.dst);
        end_node();
    }
    void edge(unsigned graph, unsigned from, unsigned to) {
        if (file_ != nullptr)
            fprintf(file_, "\"graph_%u_node_%u\" -> \"graph_%u_node_%u\";\n", graph, from, graph, to);
    }
    CUresult finish() {
        if (file_ == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
        fputs("}\n", file_);
        return fflush(file_) == 0 && ferror(file_) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
    }

  private:
    bool wants(CUgraphDebugDot_flags parameters) const {
        return (flags_ & (unsigned{CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE} | unsigned{parameters})) != 0;
    }
    template <class... Values>
    void tell(const char* format, Values... values) {
        if (file_ != nullptr) fprintf(file_, format, values...);
    }
    void begin_node(unsigned graph, unsigned node, CUgraphNodeType type) {
        tell("\"graph_%u_node_%u\" [shape=\"rectangle\" label=\"%u %s", graph, node, node, word(type));
    }
    void end_node() { tell("%s", "\"];\n"); }
    static const char* word(CUgraphNodeType type) {
        switch (type) {
            case CU_GRAPH_NODE_TYPE_KERNEL:
                return "KERNEL";
            case CU_GRAPH_NODE_TYPE_MEMCPY:
                return "MEMCPY";
            case CU_GRAPH_NODE_TYPE_MEMSET:
                return "MEMSET";
            case CU_GRAPH_NODE_TYPE_HOST:
                return "HOST";
            case CU_GRAPH_NODE_TYPE_GRAPH:
                return "GRAPH";
            case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
                return "EVENT_WAIT";
            case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
                return "EVENT_RECORD";
            case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
                return "MEM_ALLOC";
            case CU_GRAPH_NODE_TYPE_MEM_FREE:
                return "MEM_FREE";
            case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
                return "BATCH_MEM_OP";
            case CU_GRAPH_NODE_TYPE_CONDITIONAL:
                return "CONDITIONAL";
            default:
                return "EMPTY";
        }
    }

    FILE* file_;
    unsigned flags_;
    unsigned graphs_ = 0;
};

}  // namespace fikit

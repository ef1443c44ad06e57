// Attributes of kernels' nodes: what travels with each launch, and what only the caller hears of.
#include <string.h>

#include "entry.hpp"
#include "graph.hpp"
#include "launches.hpp"
#include "node_attributes.hpp"

namespace fikit::shim {
namespace {

CUresult check(const Node& node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue& value) {
    const Function* const function = function_of(node.function);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) return fits_clusters(*function, node.shape, value);
    const int32_t* const device = process.device(function->device).attributes.attribute;
    const auto domains = static_cast<unsigned>(device[CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT]);
    return may_be_of_node(id, value, domains) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// What was said of it is said anew; nullptr: nothing was.
fikit_attribute* find(Node& node, uint32_t id) {
    for (uint32_t i = 0; i < node.shape.attributes; ++i)
        if (node.attributes()[i].id == id) return node.attributes() + i;
    for (fikit_attribute& hint : node.hints)
        if (hint.id == id) return &hint;
    return nullptr;
}

// One more that travels, in front of the parameters.
CUresult add(Node& node, const fikit_attribute& attribute) {
    if (node.shape.attributes == FIKIT_MAX_ATTRIBUTES) return CUDA_ERROR_NOT_SUPPORTED;
    List<uint8_t> packed;
    const size_t before = node.shape.attributes * sizeof attribute;
    if (!packed.add(node.packed, before + node.shape.parameter_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    ++node.shape.attributes;
    if (!make_room(node, *function_of(node.function))) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(node.packed, packed.begin(), before);
    memcpy(node.packed + before, &attribute, sizeof attribute);
    memcpy(node.parameters(), packed.begin() + before, node.shape.parameter_bytes);
    return CUDA_SUCCESS;
}

CUresult set(Node& node, const fikit_attribute& attribute) {
    if (fikit_attribute* const known = find(node, attribute.id); known != nullptr) {
        *known = attribute;
        return CUDA_SUCCESS;
    }
    if (use_of(static_cast<CUlaunchAttributeID>(attribute.id)) == AttributeUse::sent)
        return add(node, attribute);
    return node.hints.add(attribute) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID id,
                                       CUkernelNodeAttrValue* value) {
    Node* const node = node_of(handle, CU_GRAPH_NODE_TYPE_KERNEL);
    if (node == nullptr || value == nullptr || !is_node_attribute(id)) return CUDA_ERROR_INVALID_VALUE;
    memset(value, 0, sizeof *value);
    if (id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) value->memSyncDomainMap = {0, 1};
    if (const fikit_attribute* const known = find(*node, id); known != nullptr) {
        memcpy(value, known->value, sizeof *value);
    } else if (const Function* const function = function_of(node->function);
               id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && function != nullptr &&
               has_own_clusters(*function)) {
        const int32_t* const own = function->attribute + CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
        value->clusterDim = {static_cast<unsigned>(own[0]), static_cast<unsigned>(own[1]),
                             static_cast<unsigned>(own[2])};
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID id,
                                       const CUkernelNodeAttrValue* value) {
    Node* const node = node_of(handle, CU_GRAPH_NODE_TYPE_KERNEL);
    if (node == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check(*node, id, *value); result != CUDA_SUCCESS) return result;
    CUkernelNodeAttrValue given = *value;
    if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        given.priority = process.device(function_of(node->function)->device).nearest_priority(given.priority);
    fikit_attribute attribute = {static_cast<uint32_t>(id), 0, {}};
    memcpy(attribute.value, &given, sizeof attribute.value);
    return set(*node, attribute);
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
    const Node* const source = node_of(from, CU_GRAPH_NODE_TYPE_KERNEL);
    Node* const node = node_of(to, CU_GRAPH_NODE_TYPE_KERNEL);
    if (source == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < source->shape.attributes && result == CUDA_SUCCESS; ++i)
        result = set(*node, source->attributes()[i]);
    for (const fikit_attribute& hint : source->hints)
        if (result == CUDA_SUCCESS) result = set(*node, hint);
    return result;
}

}  // namespace fikit::shim

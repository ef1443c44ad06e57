"""cuda.core's textures, surfaces, mipmaps, tensor maps; clusters, cooperative launches, copies in batches."""

import ctypes
import re

import cuda.core as core
import numpy as np
from cuda.core import texture
from cuda.core.utils import StridedMemoryView

SOURCE = r"""
struct alignas(64) Map { unsigned long long opaque[16]; };
extern "C" __global__ void sample(cudaTextureObject_t image, const float2* at, float* out) {
    out[threadIdx.x] = tex2D<float>(image, at[threadIdx.x].x, at[threadIdx.x].y);
}
extern "C" __global__ void level(cudaTextureObject_t image, float* out) {
    out[threadIdx.x] = tex2DLod<float>(image, 0.5f, 0.5f, 0.5f * threadIdx.x);
}
extern "C" __global__ void fetch(cudaTextureObject_t line, float* out) {
    out[threadIdx.x] = tex1Dfetch<float>(line, 3 * threadIdx.x);
}
extern "C" __global__ void draw(cudaSurfaceObject_t image) {
    const int x = threadIdx.x, y = threadIdx.y;
    surf2Dwrite(make_float4(x, y, x + y, 1), image, 16 * x, y);
}
extern "C" __global__ void tile(const __grid_constant__ Map map, float* out) {
    __shared__ alignas(128) float part[64];
    __shared__ alignas(8) unsigned long long barrier;
    const unsigned there = __cvta_generic_to_shared(&barrier), to = __cvta_generic_to_shared(part);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(there));
        asm volatile("fence.proxy.async.shared::cta;");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" ::"r"(there));
        asm volatile(
            "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%2}], [%3];" ::"r"(to), "l"(&map), "r"(64 * blockIdx.x), "r"(there) : "memory");
    }
    __syncthreads();
    asm volatile(
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [%0], 0; @!done bra again; }"
        ::"r"(there) : "memory");
    out[64 * blockIdx.x + threadIdx.x] = part[threadIdx.x] + 1;
}
extern "C" __global__ void sizes(unsigned* out) {
    unsigned blocks, clusters;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
    asm("mov.u32 %0, %%nclusterid.x;" : "=r"(clusters));
    if (blockIdx.x == 0 && threadIdx.x == 0) out[0] = gridDim.x, out[1] = blocks, out[2] = clusters;
}
extern "C" __global__ void total(unsigned* counts) {
    atomicAdd(counts, 1);
    while (atomicAdd(counts, 0) < gridDim.x) {}
    atomicMax(counts + 1, *(volatile unsigned*)counts);
}
"""
device = core.Device(0)
device.set_current()
stream = device.create_stream()
options = core.ProgramOptions(std="c++17", arch="compute_90")
text = core.Program(SOURCE, "c++", options=options).compile("ptx").code
# An NVRTC newer than the driver marks its text with a version that the driver refuses; 9.0 is CUDA 13.0's.
if float((version := re.search(rb"\.version (\d+\.\d+)", text))[1]) > 9.0:
    text = text.replace(version[0], b".version 9.0", 1)
module = core.ObjectCode.from_ptx(text)
pinned = core.LegacyPinnedMemoryResource()


def shared(values):
    """Memory that the host and the GPU see, and the host's view of it."""
    buffer = pinned.allocate(values.nbytes)
    view = np.from_dlpack(buffer).view(values.dtype)
    view[:] = values.ravel()
    return buffer, view


def run(name, block, *arguments, grid=1, **how):
    core.launch(stream, core.LaunchConfig(grid=grid, block=block, **how), module.get_kernel(name), *arguments)
    stream.sync()


class Line:
    """A line of floats on the device."""

    def __init__(self, values):
        source, _ = shared(values)
        self.buffer = device.allocate(values.nbytes, stream=stream)
        self.buffer.copy_from(source, stream=stream)
        stream.sync()
        self.__cuda_array_interface__ = {
            "shape": values.shape,
            "typestr": values.dtype.str,
            "data": (int(self.buffer.handle), False),
            "version": 3,
        }


def of_floats(*shape, **more):
    return {"shape": shape, "format": "float32", "num_channels": 1, **more}


numbers = np.arange(256, dtype=np.float32)
out, results = shared(np.zeros(256, dtype=np.float32))
image = device.create_opaque_array(texture.OpaqueArrayOptions(**of_floats(16, 16)))
image.copy_from(numbers.reshape(16, 16), stream=stream)
sampled = device.create_texture_object(
    resource=texture.ResourceDescriptor.from_opaque_array(image),
    options=texture.TextureObjectOptions(address_mode="clamp", filter_mode="linear"),
)
places, _ = shared(np.array([(0.5, 0.5), (3.5, 4.5), (1, 0.5), (1, 1), (15.5, 15.5), (20, 20)], np.float32))
run("sample", 6, ctypes.c_ulonglong(sampled.handle), places, out)
print(results[:6].tolist(), image.size_bytes)
drawn = device.create_opaque_array(
    texture.OpaqueArrayOptions(shape=(8, 4), format="float32", num_channels=4, is_surface_load_store=True)
)
surface = device.create_surface_object(resource=texture.ResourceDescriptor.from_opaque_array(drawn))
run("draw", (8, 4), ctypes.c_ulonglong(surface.handle))
back = np.zeros((4, 8, 4), np.float32)
drawn.copy_to(back, stream=stream)
stream.sync()
print(back[3, 7].tolist(), back.sum())
levels = device.create_mipmapped_array(texture.MipmappedArrayOptions(**of_floats(16, 16, num_levels=3)))
for number in range(3):
    side = 16 >> number
    levels.get_level(number).copy_from(np.full((side, side), 10 * number + 1, np.float32), stream=stream)
mapped = device.create_texture_object(
    resource=texture.ResourceDescriptor.from_mipmapped_array(levels),
    options=texture.TextureObjectOptions(
        normalized_coords=True, filter_mode="linear", mipmap_filter_mode="linear", max_mipmap_level_clamp=2
    ),
)
run("level", 5, ctypes.c_ulonglong(mapped.handle), out)
print(results[:5].tolist())
line = Line(numbers)
resource = texture.ResourceDescriptor.from_linear(line.buffer, format="float32", num_channels=1)
fetched = device.create_texture_object(resource=resource)
run("fetch", 8, ctypes.c_ulonglong(fetched.handle), out)
print(results[:8].tolist())

# Tiles, of one tensor and then of another one by the same map.
tensor = StridedMemoryView.from_any_interface(line, stream_ptr=-1).as_tensor_map(box_dim=(64,))
run("tile", 64, tensor, out, grid=4)
print(np.array_equal(results, numbers + 1))
other = Line(-numbers)
tensor.replace_address(other)
run("tile", 64, tensor, out, grid=4)
print(np.array_equal(results, 1 - numbers))

counts, counted = shared(np.zeros(4, dtype=np.uint32))
run("sizes", 32, counts, grid=4, cluster=2)
print(counted[:3].tolist())
counted[:] = 0
run("total", 1, counts, grid=16, is_cooperative=True)
print(counted[:2].tolist())
occupancy = module.get_kernel("total").occupancy
print(occupancy.max_active_blocks_per_multiprocessor(64, 0) > 0)

if hasattr(core.utils, "copy_batch"):
    order = core.utils.CopyOptions(src_access_order=core.utils.MemcpySrcAccessOrder.STREAM)
    more, also = shared(np.zeros(256, dtype=np.float32))
    core.utils.copy_batch(stream, [line.buffer, other.buffer], [out, more], options=order)
    stream.sync()
    print(results[:3].tolist(), also[:3].tolist())
for each in (fetched, mapped, levels, surface, drawn, sampled, image):
    each.close()
for each in (line.buffer, other.buffer):
    each.close(stream)
stream.sync()
print("done")

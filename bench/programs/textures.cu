// C++ with textures and surfaces over lines, rows, arrays, layers, cubes and mipmaps; and with a module's variables.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#include "checked.hpp"

constexpr int wide = 32, high = 16, deep = 4, threads = 64;

// What a texel holds: linear in its place, so that what lies between texels is known.
__host__ __device__ float texel(float x, float y, float z) { return x + 100 * y + 10000 * z; }

// Where a thread looks: inside, in quarters of a texel, which the filter's weights of 8 bits hold.
__device__ float3 place() {
    const float i = threadIdx.x;
    return make_float3(1 + i * 0.25f, 1 + i * 0.125f, 1 + static_cast<float>(threadIdx.x % 8) * 0.25f);
}

using Texture = cudaTextureObject_t;

__global__ void line(Texture floats, Texture bytes, float* out) {
    const int i = threadIdx.x;
    out[i] = tex1Dfetch<float>(floats, i * 7 % threads) + tex1Dfetch<float>(bytes, i);
}

__global__ void rows(Texture image, float* out) {  // normalized places, some outside
    const float4 four = tex2D<float4>(image, (threadIdx.x * 8 + 0.5f) / wide - 4, 3.5f / high);
    out[threadIdx.x] = four.x + 2 * four.y + 3 * four.z + 4 * four.w;
}

struct Arrays {
    Texture one, two, three, layers, cube, levels;
};

__global__ void arrays(const Arrays all, float* out) {
    const float3 at = place();
    const int i = threadIdx.x;
    const float x = at.x + 0.5f, y = at.y + 0.5f, z = at.z + 0.5f;
    out[i] = tex1D<float>(all.one, x) - texel(at.x, 0, 0);
    out[threads + i] = tex2D<float>(all.two, x, y) - texel(at.x, at.y, 0);
    out[2 * threads + i] = tex3D<float>(all.three, x, y, z) - texel(at.x, at.y, at.z);
    out[3 * threads + i] = tex2DLayered<float>(all.layers, x, y, i % deep) - texel(at.x, at.y, i % deep);
    const float3 faces[] = {{1, 0, 0}, {-1, 0, 0}, {0, 1, 0}, {0, -1, 0}, {0, 0, 1}, {0, 0, -1}};
    const float3 face = faces[i % 6];
    out[4 * threads + i] = texCubemap<float>(all.cube, face.x, face.y, face.z) - texel(7.5f, 7.5f, i % 6);
    out[5 * threads + i] = tex2DLod<float>(all.levels, 0.5f, 0.5f, 0.25f * (i % 13));  // half of the 4 levels' steps
}

__global__ void gathered(Texture image, float* out) {
    const float x = static_cast<float>(threadIdx.x % (wide - 1));
    const float4 four = tex2Dgather<float4>(image, x + 1, 3.0f, 0);  // between four texels
    out[threadIdx.x] = four.x + 2 * four.y + 3 * four.z + 4 * four.w -
                       (texel(x, 3, 0) + 2 * texel(x + 1, 3, 0) + 3 * texel(x + 1, 2, 0) + 4 * texel(x, 2, 0));
}

// Reads one surface and writes others: the first mirrored, and a sum of it into each layer.
__global__ void mirror(cudaSurfaceObject_t from, cudaSurfaceObject_t to, cudaSurfaceObject_t layers) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    const auto value = surf2Dread<float>(from, x * 4, y);
    surf2Dwrite(value, to, (wide - 1 - x) * 4, y);
    for (int z = 0; z < deep; ++z) surf2DLayeredwrite(texel(1, 0, z) + value, layers, x * 4, y, z);
    surf2Dwrite(-1.0f, to, wide * 4, y, cudaBoundaryModeZero);  // outside, so nowhere
}

__constant__ float weights[threads];
__constant__ struct {
    int first, step;
} manner;
__device__ float results[threads];
__device__ int turns = 3;

__global__ void weigh() {
    results[threadIdx.x] += weights[(manner.first + threadIdx.x * manner.step) % threads] * static_cast<float>(turns);
}

cudaTextureDesc linear() {
    cudaTextureDesc how{};
    for (auto& mode : how.addressMode) mode = cudaAddressModeClamp;
    how.filterMode = cudaFilterModeLinear;
    how.readMode = cudaReadModeElementType;
    return how;
}

Texture texture(const cudaResourceDesc& what, const cudaTextureDesc& how) {
    Texture made = 0;
    CHECK(cudaCreateTextureObject(&made, &what, &how, nullptr));
    return made;
}

cudaResourceDesc of(cudaArray_t array) {
    cudaResourceDesc what{};
    what.resType = cudaResourceTypeArray;
    what.res.array.array = array;
    return what;
}

cudaSurfaceObject_t surface(cudaArray_t array) {
    cudaSurfaceObject_t made = 0;
    const cudaResourceDesc what = of(array);
    CHECK(cudaCreateSurfaceObject(&made, &what));
    return made;
}

// An array that holds texels; of no height or depth where these are 0.
cudaArray_t filled(int width, int height, int depth, unsigned flags) {
    cudaArray_t array = nullptr;
    const auto channel = cudaCreateChannelDesc<float>();
    const cudaExtent extent = make_cudaExtent(width, height, depth);
    CHECK(cudaMalloc3DArray(&array, &channel, extent, flags));
    cudaMemcpy3DParms copy{};
    copy.extent = make_cudaExtent(width, height ? height : 1, depth ? depth : 1);
    std::vector<float> values;
    for (size_t z = 0; z < copy.extent.depth; ++z)
        for (size_t y = 0; y < copy.extent.height; ++y)
            for (size_t x = 0; x < copy.extent.width; ++x) values.push_back(texel(float(x), float(y), float(z)));
    copy.srcPtr = make_cudaPitchedPtr(values.data(), width * sizeof(float), width, copy.extent.height);
    copy.dstArray = array;
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    return array;
}

// Prints what lines of results come to; with `apart`, how far any is from zero.
void report(const char* name, const float* device, int lines, bool apart) {
    std::vector<float> values(lines * threads);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(values.data(), device, values.size() * sizeof(float), cudaMemcpyDeviceToHost));
    std::printf("%s:", name);
    for (int line = 0; line < lines; ++line) {
        double sum = 0, most = 0;
        for (int i = 0; i < threads; ++i) {
            const double value = values[line * threads + i];
            sum += value * (i % 5 + 1);
            if (value * value > most * most) most = value;
        }
        std::printf(" %.3f", apart ? most : sum);
    }
    std::printf("\n");
}

int main() {
    float* out = nullptr;
    CHECK(cudaMalloc(&out, 6 * threads * sizeof(float)));

    // Memory in a line, of floats and of bytes that are read as 0 to 1.
    std::vector<float> floats(threads);
    std::vector<unsigned char> bytes(threads);
    for (int i = 0; i < threads; ++i) floats[i] = static_cast<float>(i * i), bytes[i] = i * 3;
    float* memory = nullptr;
    unsigned char* small = nullptr;
    CHECK(cudaMalloc(&memory, threads * sizeof(float)));
    CHECK(cudaMalloc(&small, threads));
    CHECK(cudaMemcpy(memory, floats.data(), threads * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(small, bytes.data(), threads, cudaMemcpyHostToDevice));
    cudaResourceDesc what{};
    what.resType = cudaResourceTypeLinear;
    what.res.linear = {memory, cudaCreateChannelDesc<float>(), threads * sizeof(float)};
    cudaTextureDesc how{};
    const Texture whole = texture(what, how);
    what.res.linear = {small, cudaCreateChannelDesc<unsigned char>(), threads};
    how.readMode = cudaReadModeNormalizedFloat;
    const Texture parts = texture(what, how);
    line<<<1, threads>>>(whole, parts, out);
    report("line", out, 1, false);

    // Rows of memory, wrapped around.
    void* pitched = nullptr;
    size_t pitch = 0;
    std::vector<float4> image(wide * high);
    for (int i = 0; i < wide * high; ++i) image[i] = make_float4(float(i), float(i % 3), float(i % 5), float(i % 7));
    CHECK(cudaMallocPitch(&pitched, &pitch, wide * sizeof(float4), high));
    CHECK(cudaMemcpy2D(pitched, pitch, image.data(), wide * sizeof(float4), wide * sizeof(float4), high,
                       cudaMemcpyHostToDevice));
    what.resType = cudaResourceTypePitch2D;
    what.res.pitch2D = {pitched, cudaCreateChannelDesc<float4>(), wide, high, pitch};
    how = linear();
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeWrap;
    how.normalizedCoords = 1;
    const Texture around = texture(what, how);
    rows<<<1, threads>>>(around, out);
    report("rows", out, 1, false);

    // Arrays of each form. The levels of the mipmap hold their number.
    cudaArray_t array[] = {filled(wide, 0, 0, 0), filled(wide, high, 0, cudaArraySurfaceLoadStore),
                           filled(wide, high, deep, 0),
                           filled(wide, high, deep, cudaArrayLayered | cudaArraySurfaceLoadStore),
                           filled(high, high, 6, cudaArrayCubemap), filled(wide, high, 0, cudaArrayTextureGather),
                           filled(wide, high, 0, cudaArraySurfaceLoadStore)};
    cudaMipmappedArray_t mipmap = nullptr;
    const auto channel = cudaCreateChannelDesc<float>();
    CHECK(cudaMallocMipmappedArray(&mipmap, &channel, make_cudaExtent(wide, wide, 0), 4));
    for (unsigned level = 0; level < 4; ++level) {
        const unsigned edge = wide >> level;
        const std::vector<float> same(edge * edge, static_cast<float>(level));
        cudaArray_t of_level = nullptr;
        CHECK(cudaGetMipmappedArrayLevel(&of_level, mipmap, level));
        CHECK(cudaMemcpy2DToArray(of_level, 0, 0, same.data(), edge * sizeof(float), edge * sizeof(float), edge,
                                  cudaMemcpyHostToDevice));
    }
    Arrays all{};
    Texture* const each[] = {&all.one, &all.two, &all.three, &all.layers};
    for (int i = 0; i < 4; ++i) *each[i] = texture(of(array[i]), linear());
    how = linear();
    how.normalizedCoords = 1;
    all.cube = texture(of(array[4]), how);
    how.mipmapFilterMode = cudaFilterModeLinear;
    how.maxMipmapLevelClamp = 3;
    what.resType = cudaResourceTypeMipmappedArray;
    what.res.mipmap.mipmap = mipmap;
    all.levels = texture(what, how);
    arrays<<<1, threads>>>(all, out);
    report("arrays", out, 5, true);
    report("levels", out + 5 * threads, 1, false);
    const Texture corners = texture(of(array[5]), linear());
    gathered<<<1, threads>>>(corners, out);
    report("gathered", out, 1, true);

    // Surfaces, and copies from arrays and between them.
    const cudaSurfaceObject_t surfaces[] = {surface(array[1]), surface(array[6]), surface(array[3])};
    mirror<<<dim3(wide / 8, high / 8), dim3(8, 8)>>>(surfaces[0], surfaces[1], surfaces[2]);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy2DArrayToArray(array[5], 0, 0, array[6], 0, 0, wide * sizeof(float), high / 2,
                                   cudaMemcpyDeviceToDevice));
    std::vector<float> back(wide * high * deep);
    const size_t row = wide * sizeof(float);
    CHECK(cudaMemcpy2DFromArray(back.data(), row, array[5], 0, 0, row, high, cudaMemcpyDeviceToHost));
    std::printf("mirrored: %.0f %.0f %.0f, expected 31 726 805\n", back[0], back[wide * 7 + 5], back[wide * 8 + 5]);
    cudaMemcpy3DParms copy{};
    copy.srcArray = array[3];
    copy.dstPtr = make_cudaPitchedPtr(back.data(), row, wide, high);
    copy.extent = make_cudaExtent(wide, high, deep);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    int wrong = 0;
    for (int i = 0; i < wide * high * deep; ++i)
        wrong += back[i] != texel(float(i % wide + 1), float(i / wide % high), float(i / wide / high));
    std::printf("layers: %d wrong\n", wrong);
    cudaChannelFormatDesc format{};
    cudaExtent extent{};
    unsigned flags = 0;
    CHECK(cudaArrayGetInfo(&format, &extent, &flags, array[3]));
    std::printf("%d %d %zu %zu %zu %u\n", format.x, format.f, extent.width, extent.height, extent.depth, flags);

    // Variables of the module, by their symbols.
    cudaStream_t stream = nullptr;
    void *variable = nullptr, *other = nullptr;
    size_t size = 0;
    const int start[] = {5, 3}, more = 4;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemcpyToSymbolAsync(weights, floats.data(), sizeof weights, 0, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpyToSymbolAsync(manner, &start[1], sizeof(int), sizeof(int), cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpyToSymbolAsync(manner, &start[0], sizeof(int), 0, cudaMemcpyHostToDevice, stream));
    weigh<<<1, threads, 0, stream>>>();
    CHECK(cudaGetSymbolAddress(&other, turns));
    CHECK(cudaMemcpyAsync(other, &more, sizeof more, cudaMemcpyHostToDevice, stream));
    weigh<<<1, threads, 0, stream>>>();
    CHECK(cudaMemcpyFromSymbolAsync(floats.data(), results, sizeof results / 2, sizeof results / 2,
                                    cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGetSymbolAddress(&variable, results));
    CHECK(cudaGetSymbolSize(&size, results));
    report("variables", static_cast<const float*>(variable), 1, false);
    std::printf("%zu %.0f %.0f, expected 256 9583 28\n", size, floats[0], floats[threads / 2 - 1]);

    for (const Texture one : {whole, parts, around, all.one, all.two, all.three, all.layers, all.cube,
                              all.levels, corners})
        CHECK(cudaDestroyTextureObject(one));
    for (const cudaSurfaceObject_t one : surfaces) CHECK(cudaDestroySurfaceObject(one));
    for (const cudaArray_t one : array) CHECK(cudaFreeArray(one));
    CHECK(cudaFreeMipmappedArray(mipmap));
    for (void* one : {static_cast<void*>(out), static_cast<void*>(memory), static_cast<void*>(small), pitched})
        CHECK(cudaFree(one));
    std::puts("done");
}

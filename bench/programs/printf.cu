// C++ whose kernels print: printf from the device comes out of the program's own standard output.
#include <cuda_runtime.h>

#include <cstdio>

__global__ void tell(int turn) { printf("block %d thread %d turn %d %.2f %s\n", blockIdx.x, threadIdx.x, turn, 0.5 * turn, "words"); }

int main() {
    std::setvbuf(stdout, nullptr, _IONBF, 0);
    size_t bytes = 0;
    std::printf("%d ", cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 4 << 20));
    std::printf("%d\n", cudaDeviceGetLimit(&bytes, cudaLimitPrintfFifoSize) == cudaSuccess && bytes >= 4 << 20);
    for (int turn = 1; turn <= 3; ++turn) {
        tell<<<1, 1>>>(turn);
        const cudaError_t error = cudaDeviceSynchronize();
        std::printf("%s\n", cudaGetErrorString(error));
        if (error != cudaSuccess) return 1;
    }
}

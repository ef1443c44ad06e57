// What every program in C++ does with the runtime's answers: the first that is wrong ends it.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const cudaError_t error = (call);                                                          \
        if (error != cudaSuccess) {                                                                \
            std::fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(error)); \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

template <typename T>
T* upload(const std::vector<T>& values) {
    T* place = nullptr;
    CHECK(cudaMalloc(&place, values.size() * sizeof(T)));
    CHECK(cudaMemcpy(place, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return place;
}

// Says how many values differ from those expected, and what they come to.
template <typename T>
void report(const char* name, const T* device, const std::vector<T>& expected) {
    std::vector<T> values(expected.size());
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(values.data(), device, values.size() * sizeof(T), cudaMemcpyDeviceToHost));
    int wrong = 0;
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) {
        wrong += values[i] != expected[i];
        sum += static_cast<double>(values[i]) * static_cast<double>(i % 13 + 1);
    }
    std::printf("%s: %d wrong, %.0f\n", name, wrong, sum);
}

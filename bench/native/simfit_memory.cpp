// What copies and memory take.
#include "simfit.hpp"

namespace fikit::bench {

void copies(Bench& bench) {
    const std::size_t bytes = std::size_t{256} << 20;
    void* host = nullptr;
    CUdeviceptr device = 0, other = 0;
    double start = now();
    RUN(cuMemHostAlloc, &host, bytes, CU_MEMHOSTALLOC_PORTABLE);
    bench.results.add("host_allocate", (now() - start) / 1000 * 4);
    RUN(cuMemAlloc, &device, bytes);
    RUN(cuMemAlloc, &other, bytes);
    const auto speed = [&](const char* name, double moved, auto body) {
        body();
        RUN(cuCtxSynchronize);
        const double began = now();
        body();
        RUN(cuCtxSynchronize);
        bench.results.add(name, moved / (now() - began) / 1000);
    };
    const auto whole = static_cast<double>(bytes);
    speed("to_device", whole, [&] { RUN(cuMemcpyHtoDAsync, device, host, bytes, bench.high); });
    speed("to_host", whole, [&] { RUN(cuMemcpyDtoHAsync, host, device, bytes, bench.high); });
    speed("both_ways", whole, [&] {
        RUN(cuMemcpyHtoDAsync, device, host, bytes / 2, bench.high);
        RUN(cuMemcpyDtoHAsync, static_cast<char*>(host) + bytes / 2, other, bytes / 2, bench.low);
    });
    speed("on_device", 2 * whole, [&] { RUN(cuMemcpyDtoDAsync, device, other, bytes, bench.high); });
    for (const std::size_t size : {std::size_t{4} << 10, std::size_t{64} << 10, std::size_t{1} << 20,
                                   std::size_t{2} << 20, std::size_t{16} << 20}) {
        const int count = 100;
        start = now();
        for (int index = 0; index < count; ++index) RUN(cuMemcpyDtoHAsync, host, device, size, bench.high);
        RUN(cuStreamSynchronize, bench.high);
        bench.results.add("to_host_" + std::to_string(size >> 10) + "k",
                          count * static_cast<double>(size) / (now() - start) / 1000);
    }
    std::vector<char> pageable(bytes, 1);
    start = now();
    RUN(cuMemcpyHtoD, device, pageable.data(), bytes);
    bench.results.add("pageable_to_device", whole / (now() - start) / 1000);
    start = now();
    RUN(cuMemcpyDtoH, pageable.data(), device, bytes);
    bench.results.add("pageable_to_host", whole / (now() - start) / 1000);
    start = now();
    RUN(cuMemHostRegister, pageable.data(), bytes, CU_MEMHOSTREGISTER_PORTABLE);
    bench.results.add("host_register", (now() - start) / 1000 * 4);
    start = now();
    RUN(cuMemHostUnregister, pageable.data());
    bench.results.add("host_unregister", (now() - start) / 1000 * 4);
    RUN(cuMemFreeHost, host);
    RUN(cuMemFree, device);
    RUN(cuMemFree, other);
}

void memory(Bench& bench) {
    std::vector<CUdeviceptr> blocks(100);
    bench.results.add("allocate_2m", bench.each(100, [&](int index) {
        RUN(cuMemAlloc, &blocks[static_cast<std::size_t>(index)], 2 << 20);
    }));
    bench.results.add("free_2m", bench.each(100, [&](int index) {
        RUN(cuMemFree, blocks[static_cast<std::size_t>(index)]);
    }));
    RUN(cuMemAlloc, blocks.data(), 2 << 20);
    Bench::launch(bench.spin, bench.low, 1, 32, 100000);
    work(1000);
    double start = now();
    RUN(cuMemFree, blocks[0]);
    bench.results.add("free_behind_kernel", (now() - start) / 1000);

    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (const std::size_t mebibytes : {2U, 64U, 1024U, 8192U}) {
        const std::size_t bytes = mebibytes << 20;
        const int count = mebibytes >= 1024 ? 5 : 50;
        double took[5] = {};
        for (int index = 0; index < count; ++index) {
            CUdeviceptr address = 0;
            CUmemGenericAllocationHandle handle = 0;
            RUN(cuMemAddressReserve, &address, bytes, 0, 0, 0);
            double last = now();
            const auto lap = [&](int which) {
                took[which] += now() - last;
                last = now();
            };
            RUN(cuMemCreate, &handle, bytes, &properties, 0);
            lap(0);
            RUN(cuMemMap, address, bytes, 0, handle, 0);
            lap(1);
            RUN(cuMemSetAccess, address, bytes, &access, 1);
            lap(2);
            RUN(cuMemUnmap, address, bytes);
            lap(3);
            RUN(cuMemRelease, handle);
            lap(4);
            RUN(cuMemAddressFree, address, bytes);
        }
        const char* names[] = {"create", "map", "set_access", "unmap", "release"};
        for (int which = 0; which < 5; ++which) {
            bench.results.add(std::string("vmm_") + names[which] + "_" + std::to_string(mebibytes) + "m",
                              took[which] / count);
        }
    }
    properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    CUmemGenericAllocationHandle handle = 0;
    start = now();
    RUN(cuMemCreate, &handle, std::size_t{256} << 20, &properties, 0);
    bench.results.add("vmm_create_host_256m", (now() - start) / 1000);
    RUN(cuMemRelease, handle);
}

}  // namespace fikit::bench

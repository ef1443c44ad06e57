/* Threads that are cancelled (pthread_cancel) while they are in a call of CUDA's or NVML's: each call ends
 * first, as one that is no cancellation point, and holds up nobody afterwards. What is asked for beforehand
 * happens at the first cancellation point that there is. */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PATIENCE_SECONDS = 30, BYTES = 1 << 16 };
static CUcontext context;
static CUstream stream;
static CUdeviceptr memory;
static void* pinned;
static char* own;

static void slow(void* argument) { usleep((useconds_t)(long)argument); }

static CUresult initialise(void) { return cuInit(0); }
static CUresult retain(void) { return cuDevicePrimaryCtxRetain(&context, 0); }
static CUresult allocate(void) { return cuMemAlloc(&memory, BYTES); }
static CUresult pin(void) { return cuMemAllocHost(&pinned, BYTES); }
static CUresult create(void) { return cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING); }
static CUresult wait(void) {
    const CUresult result = cuLaunchHostFunc(stream, slow, (void*)100000L);
    return result != CUDA_SUCCESS ? result : cuStreamSynchronize(stream);
}
static CUresult register_own(void) {
    own = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return cuMemHostRegister(own, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP);
}
static CUresult reach(void) {
    CUdeviceptr address;
    return cuMemHostGetDevicePointer(&address, own, 0);
}
static CUresult unregister(void) { return cuMemHostUnregister(own); }
static CUresult copy(void) { return cuMemcpyDtoH(own, memory, BYTES); }
static int nvml(const char* name, void* first, void* second) {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*function)(void*, void*);
    if (library == NULL) return 0; /* there is none beside a driver without hardware */
    *(void**)&function = dlsym(library, name);
    return function(first, second);
}
static void* device;
static CUresult begin_nvml(void) { return (CUresult)nvml("nvmlInit_v2", NULL, NULL); }
static CUresult find_device(void) { return (CUresult)nvml("nvmlDeviceGetHandleByIndex_v2", NULL, &device); }
static CUresult ask_memory(void) {
    unsigned long long sizes[3];
    return (CUresult)nvml("nvmlDeviceGetMemoryInfo", device, sizes);
}
static int shared_file = -1;
static CUresult export(void) {
    const CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle made;
    const CUresult result = cuMemCreate(&made, 2 << 20, &kind, 0);
    if (result != CUDA_SUCCESS) return result;
    return cuMemExportToShareableHandle(&shared_file, made, kind.requestedHandleTypes, 0);
}
static CUresult import(void) {
    CUmemGenericAllocationHandle found;
    return cuMemImportFromShareableHandle(&found, (void*)(long)shared_file,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}
static CUresult draw(void) {
    CUgraph graph;
    const CUresult result = cuGraphCreate(&graph, 0);
    return result != CUDA_SUCCESS ? result : cuGraphDebugDotPrint(graph, "/dev/null", 0);
}
static CUresult load(void) {
    CUmodule module;
    const CUresult result = cuModuleLoad(&module, "/dev/null");
    return result == CUDA_ERROR_INVALID_IMAGE ? CUDA_SUCCESS : result;
}
static CUresult release(void) {
    const CUresult result = cuMemFree(memory);
    return result != CUDA_SUCCESS ? result : cuMemFreeHost(pinned);
}

static const struct {
    const char* name;
    CUresult (*call)(void);
} steps[] = {{"initialise", initialise},
             {"retain", retain},
             {"allocate", allocate},
             {"pin", pin},
             {"create", create},
             {"wait", wait},
             {"register", register_own},
             {"reach", reach},
             {"copy", copy},
             {"wait", wait},
             {"unregister", unregister},
             {"export", export},
             {"import", import},
             {"draw", draw},
             {"load", load},
             {"begin NVML", begin_nvml},
             {"find device", find_device},
             {"ask memory", ask_memory},
             {"release", release}};
enum { STEPS = sizeof steps / sizeof *steps };
static int returned;

static void* take(void* argument) {
    const long step = (long)argument;
    if (context != NULL) cuCtxSetCurrent(context);
    pthread_cancel(pthread_self());
    const CUresult result = steps[step].call();
    if (result != CUDA_SUCCESS) printf("%s: %d\n", steps[step].name, (int)result);
    returned = 1;
    pthread_testcancel();
    printf("%s: not cancelled afterwards\n", steps[step].name);
    return NULL;
}

int main(void) {
    alarm(PATIENCE_SECONDS);
    for (long step = 0; step < STEPS; ++step) {
        pthread_t thread;
        void* end;
        returned = 0;
        pthread_create(&thread, NULL, take, (void*)step);
        pthread_join(thread, &end);
        if (!returned || end != PTHREAD_CANCELED) printf("%s: ended in the call\n", steps[step].name);
        fflush(stdout);
    }
    cuCtxSetCurrent(context);
    for (int step = 2; step < STEPS; ++step) {
        const CUresult result = steps[step].call();
        if (result != CUDA_SUCCESS) printf("%s again: %d\n", steps[step].name, (int)result);
    }
    return 0;
}

/* Children forked while another thread is in its first cuInit, or asks NVML: whatever it holds, they hold not. */
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { CHILDREN = 60, PATIENCE_SECONDS = 20, STEP_MICROSECONDS = 150 };
static int (*nvml_begin)(void);
static int (*nvml_device)(unsigned, void**);
static int (*nvml_memory)(void*, unsigned long long*);
static void* device;
static int over;

static void* begin(void* nothing) {
    CHECK(cuInit(0));
    return nothing;
}

static void* ask(void* nothing) {
    unsigned long long memory[3];
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) CHECK(nvml_memory(device, memory));
    return nothing;
}

static int end_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

/* What a child of a process whose thread is in cuInit gets, either way. */
static int beside_cuda(unsigned microseconds) {
    pthread_t thread;
    pthread_create(&thread, NULL, begin, NULL);
    usleep(microseconds);
    const pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_SECONDS);
        const CUresult result = cuInit(0);
        _exit(result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_INITIALIZED);
    }
    const int wrong = end_of(child);
    pthread_join(thread, NULL);
    return wrong;
}

static int beside_nvml(void) {
    unsigned long long memory[3];
    alarm(PATIENCE_SECONDS);
    return nvml_begin() || nvml_memory(device, memory);
}

int main(void) {
    int wrong = 0;
    for (unsigned i = 0; i < CHILDREN && wrong == 0; ++i) {
        const pid_t process = fork();
        if (process == 0) _exit(beside_cuda(i * STEP_MICROSECONDS));
        wrong = end_of(process);
    }
    printf("%d\n", wrong);
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    *(void**)&nvml_begin = dlsym(library, "nvmlInit_v2");
    *(void**)&nvml_device = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void**)&nvml_memory = dlsym(library, "nvmlDeviceGetMemoryInfo");
    CHECK(nvml_begin());
    CHECK(nvml_device(0, &device));
    pthread_t thread;
    pthread_create(&thread, NULL, ask, NULL);
    wrong = 0;
    for (int i = 0; i < CHILDREN && wrong == 0; ++i) {
        const pid_t child = fork();
        if (child == 0) _exit(beside_nvml());
        wrong = end_of(child);
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    printf("%d\n", wrong);
    return 0;
}

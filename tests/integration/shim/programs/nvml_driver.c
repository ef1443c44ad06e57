/* Stands for the NVIDIA driver's libnvidia-ml.so.1: it knows one GPU (FIRST_GPU), and everybody's processes;
 * as the driver, it answers the process alone that initialised it. */
#include <string.h>
#include <unistd.h>

static int uses;
static pid_t process;
int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    process = getpid();
    ++uses;
    return 0;
}
int nvmlShutdown(void) {
    --uses;
    return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
    if (strcmp(uuid, FIRST_GPU) != 0 || getpid() != process) return 6;
    *handle = &uses;
    return 0;
}
int nvmlDeviceGetTemperature(void* handle, unsigned sensor, unsigned* value) {
    *value = handle == &uses && uses == 1 ? 42 + sensor : 0;
    return 0;
}
int nvmlDeviceGetProcessUtilization(void* handle, void* list, unsigned* count, unsigned long long since) {
    (void)handle, (void)list, (void)since;
    *count = 1000;
    return 0;
}
int nvmlDeviceGetAccountingStats(void* handle, unsigned process, void* stats) {
    (void)handle, (void)process, (void)stats;
    return 0;
}
int nvmlDeviceGetAccountingStats_v2(void* handle, void* stats) {
    (void)handle, (void)stats;
    return 0;
}
const char* nvmlErrorString(int code) { return code == 3 ? "Not Supported" : "?"; }

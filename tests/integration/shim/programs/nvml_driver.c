/* Stands for the NVIDIA driver's libnvidia-ml.so.1: it knows the first GPU, and everybody's processes. */
#include <string.h>

static int uses;
int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    ++uses;
    return 0;
}
int nvmlShutdown(void) {
    --uses;
    return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
    if (strncmp(uuid, "GPU-66696b69", 12) != 0) return 6;
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
const char* nvmlErrorString(int code) { return code == 3 ? "Not Supported" : "?"; }

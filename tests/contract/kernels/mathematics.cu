// The functions of the math library, whose results approximations of the hardware go into.
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// Two terms of up to 2, each exact to an ulp or two (CUDA C++ Programming Guide, "Mathematical Functions"), cancel.
// @launch grid=4 block=128 in=f32:512 out=f32:4096 approx=4e-6 absolute=2.4e-7
extern "C" __global__ void single_functions(const float* in, float* out, unsigned n) {
    unsigned i = INDEX;
    float a = in[i], p = fabsf(a) + 0.1f;
    out[i] = expf(a);
    out[n + i] = logf(p);
    out[2 * n + i] = sinf(a) + cosf(a);
    out[3 * n + i] = tanhf(a);
    out[4 * n + i] = powf(p, 1.7f);
    out[5 * n + i] = rsqrtf(p) + cbrtf(a);
    out[6 * n + i] = erff(a) + atan2f(a, p);
    out[7 * n + i] = exp2f(a) + log1pf(p) + sinhf(a) * 0.01f;
}

// @launch grid=4 block=128 in=f32:512 out=f32:2048 approx=2e-4
extern "C" __global__ void fast_functions(const float* in, float* out, unsigned n) {
    unsigned i = INDEX;
    float a = in[i], p = fabsf(a) + 0.1f;
    out[i] = __expf(a) + __logf(p);
    out[n + i] = __sinf(a) * 0.5f + __cosf(a) + 2.0f;
    out[2 * n + i] = __fdividef(a, p) + 2.0f;
    out[3 * n + i] = __powf(p, 0.5f) + __exp10f(a * 0.1f);
}

// @launch grid=4 block=128 in=f64:512 out=f64:2048 approx=1e-13
extern "C" __global__ void double_functions(const double* in, double* out, unsigned n) {
    unsigned i = INDEX;
    double a = in[i], p = fabs(a) + 0.1;
    out[i] = exp(a) + log(p) + 1;
    out[n + i] = sin(a) + cos(a) * 2 + 4;
    out[2 * n + i] = pow(p, 1.7) + cbrt(a) * 0.5;
    out[3 * n + i] = tanh(a) + atan(a) + erf(a) + 5;
}

// @launch grid=4 block=128 in=f32:512 out=f32:512 approx=1e-6
extern "C" __global__ void gelu(const float* in, float* out, unsigned n) {
    float a = in[INDEX];
    out[INDEX] = 0.5f * a * (1.0f + tanhf(0.7978845608f * (a + 0.044715f * a * a * a))) + 8.0f;
}

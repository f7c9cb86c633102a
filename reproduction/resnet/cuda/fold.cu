// Batch norms of K nets in use as scale = gamma / sqrt(variance + epsilon) and shift = beta - mean scale.

constexpr int MOST_LAYERS = 32;

struct Norm {
    const float *gamma, *beta, *mean, *variance;
    float *scale, *shift;
    int channels;
};

struct Norms { Norm at[MOST_LAYERS]; };

KERNEL(fold, THREADS, 1)(Norms norms, float epsilon, int nets) {
    const Norm& norm = norms.at[blockIdx.z];
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= nets * norm.channels) return;
    const float scale = norm.gamma[i] / sqrtf(norm.variance[i] + epsilon);
    norm.scale[i] = scale;
    norm.shift[i] = norm.beta[i] - norm.mean[i] * scale;
}

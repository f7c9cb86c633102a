// What the blocks of `backward` left, added up in their order: the sums of dz_below, (nets, 2, C), and the
// weights' gradient in PyTorch's order, (nets, outputs, inputs, 3, 3).

struct Arguments {
    const float *partial_sums, *partial_weights;  // [net][block][2 C], or null; [net][block][tap][input][output]
    float *sums, *weights;
    int blocks, channels, inputs;  // inputs: the layer's own, of the channels it is padded to
};

// A block of threads does 8 inputs by 8 outputs: what lies together in memory is read and written together.
constexpr int EDGE = 8, SIZE = 9 * EDGE * EDGE;

KERNEL(collect, THREADS, 1)(Arguments of) {
    SHARED_MEMORY(room);
    float* const found = reinterpret_cast<float*>(room);
    const long long net = blockIdx.y;
    const int channels = of.channels, edges = channels / EDGE;
    const int first_input = blockIdx.x / edges * EDGE, first_output = blockIdx.x % edges * EDGE;
    if (of.partial_sums) {
        const int c = blockIdx.x * THREADS + threadIdx.x, width = 2 * channels;
        const float* from = of.partial_sums + net * of.blocks * width + c;
        if (c < width) {
            float total = 0.0f;
#pragma unroll 8
            for (int block = 0; block < of.blocks; ++block) total += from[block * width];
            of.sums[net * width + c] = total;
        }
    }
    const long long layer = 9 * channels * channels;
    for (int i = threadIdx.x; i < SIZE; i += THREADS) {
        const int output = i % EDGE, input = i / EDGE % EDGE, tap = i / EDGE / EDGE;
        const float* from = of.partial_weights + net * of.blocks * layer +
                            (tap * channels + first_input + input) * channels + first_output + output;
        float total = 0.0f;
#pragma unroll 8
        for (int block = 0; block < of.blocks; ++block) total += from[block * layer];
        found[(output * EDGE + input) * 9 + tap] = total;
    }
    meet();
    for (int i = threadIdx.x; i < SIZE; i += THREADS) {
        const int of_output = i % (EDGE * 9), input = first_input + of_output / 9;
        const long long row = (net * channels + first_output + i / (EDGE * 9)) * of.inputs;
        if (input < of.inputs) of.weights[(row + first_input) * 9 + of_output] = found[i];
    }
}

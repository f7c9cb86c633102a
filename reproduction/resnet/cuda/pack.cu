// The weights of layers of K nets, (nets, outputs, inputs, 3, 3) in float32, in bf16 as a matrix product takes
// them: [net][tap][step of 16][tile of 8][lane] Pairs, for the convolution (steps of inputs, tiles of outputs)
// and for its gradient (steps of outputs, tiles of inputs).

constexpr int MOST_LAYERS = 32;

struct Layer {
    const float* weight;
    Pair *forward, *backward;  // backward may be null
    int inputs, channels;      // inputs beyond the layer's own are zero
};

struct Layers { Layer at[MOST_LAYERS]; };

// A block of threads does a step by a tile with all taps, in both directions.
KERNEL(pack, THREADS, 1)(Layers layers) {
    static_assert(THREADS == 9 * 32, "a tap for each warp");
    SHARED_MEMORY(room);
    float *const ahead = reinterpret_cast<float*>(room), *const back = ahead + 16 * 8 * 9;
    const Layer& layer = layers.at[blockIdx.z];
    const int inputs = layer.inputs, channels = layer.channels, steps = channels / 16, tiles = channels / 8;
    if (blockIdx.x >= steps * tiles) return;
    const int step = blockIdx.x / tiles, tile = blockIdx.x % tiles, lane = threadIdx.x % 32, tap = threadIdx.x / 32;
    const long long net = blockIdx.y;
    const float* weight = layer.weight + net * (channels * inputs * 9);
    for (int i = threadIdx.x; i < 16 * 8 * 9; i += THREADS) {
        // Of 8 outputs the numbers of 16 inputs, and of 16 outputs those of 8 inputs.
        const int output = tile * 8 + i / (16 * 9), first = (step * 16 * 9) + i % (16 * 9);
        ahead[i] = first < inputs * 9 ? weight[output * inputs * 9 + first] : 0.0f;
        const int other = step * 16 + i / (8 * 9), second = (tile * 8 * 9) + i % (8 * 9);
        if (layer.backward) back[i] = second < inputs * 9 ? weight[other * inputs * 9 + second] : 0.0f;
    }
    meet();
    Pair forward, backward;
    for (int word = 0; word < 2; ++word) {
        const int k = 2 * (lane & 3) + 8 * word, n = lane >> 2;
        forward.word[word] = rounded(ahead[(n * 16 + k) * 9 + tap], ahead[(n * 16 + k + 1) * 9 + tap]);
        if (layer.backward)
            backward.word[word] = rounded(back[(k * 8 + n) * 9 + tap], back[((k + 1) * 8 + n) * 9 + tap]);
    }
    const long long place = ((net * 9 + tap) * steps * tiles + blockIdx.x) * 32 + lane;
    layer.forward[place] = forward;
    if (layer.backward) layer.backward[place] = backward;
}

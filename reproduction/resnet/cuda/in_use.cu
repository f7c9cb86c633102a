// The layers of one stage of K nets in use, the images in shared memory from the first layer to the last.
//
//     x = relu(scale (convolution of x) + shift  (+ the block's input, where a block ends))
//
// Batch norm is known beforehand, as `scale` and `shift`. The first stage (16 channels) begins with the stem, the
// others within their first block, after its convolution by stride 2: its input, which is added to what it gives,
// is every second pixel of the stage before (`wide`), with C/4 channels of zeros on both sides. The last stage
// (64 channels) gives the means over pixels, the others x itself.

constexpr bool HAS_STEM = C == 16, GIVES_MEANS = C == 64;

struct Arguments {
    const u16 *in, *wide;
    const Pair* weights;          // [layer][net]
    const float *scale, *shift;   // [layer][net][C]
    u16* out;                     // [net][image][pixel][C]
    float* means;                 // [net][image][C]
    int images, images_of_block, layers;
    long long stride_in;
};

__device__ __forceinline__ void copy_in(Chunk* tile, const u16* in, int images, int thread) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        const int i = thread + part * THREADS;
        Chunk found = {{0u, 0u, 0u, 0u}};
        if (i < images * (PIXELS * CHUNKS)) found = read_chunk(in + i * 8);
        tile[first_place(thread) + part * PLACES_APART] = found;
    }
}

__device__ __forceinline__ void copy_wide(Chunk* tile, const u16* wide, int images, int thread) {
    const int chunk = thread % CHUNKS - CHUNKS / 4, pixel = thread / CHUNKS;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        const int row = pixel / SIDE + part * ROWS_APART, image = row / SIDE;
        const int place = (image * 4 * PIXELS + (row % SIDE) * 4 * SIDE + pixel % SIDE * 2) * (C / 2) + chunk * 8;
        Chunk found = {{0u, 0u, 0u, 0u}};
        if (image < images && chunk >= 0 && chunk < CHUNKS / 2) found = read_chunk(wide + place);
        tile[first_place(thread) + part * PLACES_APART] = found;
    }
}

__device__ __forceinline__ void copy_out(u16* out, const Chunk* tile, int images, int thread) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        const int i = thread + part * THREADS;
        if (i < images * (PIXELS * CHUNKS)) write_chunk(out + i * 8, tile[first_place(thread) + part * PLACES_APART]);
    }
}

__device__ __forceinline__ void mean_out(float* means, const Chunk* tile, int images, int thread) {
    for (int i = thread; i < images * C; i += THREADS) {
        const int image = i / C, c = i % C;
        float sum = 0.0f;
        for (int pixel = 0; pixel < PIXELS; ++pixel) {
            const int place = place_of(image * SIDE + pixel / SIDE, pixel % SIDE + 1, c / 8);
            const u32 pair = tile[place].pair[(c % 8) / 2];
            sum += c % 2 ? second_of(pair) : first_of(pair);
        }
        means[i] = sum / PIXELS;
    }
}

KERNEL(in_use, THREADS, 2)(Arguments of) {
    SHARED_MEMORY(tiles);
    const int thread = threadIdx.x, lane = thread & 31;
    const long long net = blockIdx.y, nets = gridDim.y;
    typedef Share<WARPS> Own;
    const Own own(thread >> 5);
    u32 row_at[3], result_at[3];
    const u32 address = shared_address(tiles);
    strip_addresses(row_at, address, own.strip, lane & 15, lane >> 4);
    // The matrices of a tile that belong to the results.
    strip_addresses(result_at, address, ONE_TILE ? lane >> 4 : own.strip, lane & 15,
                    own.group * OUTPUTS + (ONE_TILE ? 0 : lane >> 4));
    clear_sides(tiles, thread);
    clear_sides(tiles + TILE, thread);
    meet();

    const int begin = blockIdx.x * of.images_of_block, end = min(begin + of.images_of_block, of.images);
    for (int image = begin; image < end; image += TOGETHER) {
        const int there = min(TOGETHER, end - image);
        copy_in(tiles, of.in + net * of.stride_in + (long long)image * (PIXELS * C), there, thread);
        if (!HAS_STEM)
            copy_wide(tiles + TILE, of.wide + (net * of.images + image) * (2 * PIXELS * C), there, thread);
        meet();
#pragma unroll 1
        for (int layer = 0; layer < of.layers; ++layer) {
            const long long of_layer = layer * nets + net;
            Weights own_weights;
            load_weights(own_weights, of.weights + of_layer * WEIGHTS, own.group, lane);
            float scale[OUTPUTS][2], shift[OUTPUTS][2];
#pragma unroll
            for (int output = 0; output < OUTPUTS; ++output)
#pragma unroll
                for (int which = 0; which < 2; ++which) {
                    const long long c = of_layer * C + own.channel(output, lane) + which;
                    scale[output][which] = of.scale[c];
                    shift[output][which] = of.shift[c];
                }
            const bool ends_block = layer % 2 == 0 && (layer > 0 || !HAS_STEM);
            // Layers take turns: one from the first tile to the second, the next back.
            u32 from[3];
#pragma unroll
            for (int column = 0; column < 3; ++column) from[column] = row_at[column] + layer % 2 * (TILE * 16);
            const u32 to = result_at[1] + (1 - layer % 2) * (TILE * 16);
            const auto nothing = [](int) {};
            convolve<false, Own::HEIGHT>(own_weights, from, own.first_row, nothing, [&](int row, const RowSums& sums) {
                u32 words[4] = {};
                if (ends_block) load_matrices(words, to + row * ROW_BYTES);
#pragma unroll
                for (int word = 0; word < 4; ++word) {
                    const int output = OUTPUTS == 2 ? word >> 1 : 0;
                    const float* result = sums[word >> 1] + (word & 1) * 2;
                    words[word] = rounded_relu(
                        result[0] * scale[output][0] + shift[output][0] + first_of(words[word]),
                        result[1] * scale[output][1] + shift[output][1] + second_of(words[word]));
                }
                store_matrices(to + row * ROW_BYTES, words);
            });
            meet();
        }
        const long long first = net * of.images + image;
        const Chunk* const last = tiles + of.layers % 2 * TILE;
        if (GIVES_MEANS)
            mean_out(of.means + first * C, last, there, thread);
        else
            copy_out(of.out + first * (PIXELS * C), last, there, thread);
        meet();
    }
}

// A convolution of K nets in training, with the batch norm and relu before it and the statistics after it.
//
//     x = relu((before - mean) inverse gamma + beta + shortcut)     NORMED; ADDED: with a shortcut
//     y = convolution of x,  rounded to bf16
//
// and of each block of images the channels' means of y, before it is rounded, and sums of squared distances from
// them (`partial`).
// KEPT: x is also written. All activations are [K, images, SIDE, SIDE, C].

struct Norm { float scale[C], shift[C]; };

// Where a thread's chunks of images are fetched from.
struct Source { const u16 *before, *shortcut; };

__device__ __forceinline__ void fetch_part(Chunk* raw, const Source& from, int at) {
    fetch_chunk(raw + at, from.before + at * 8);
    if (ADDED) fetch_chunk(raw + RAW + at, from.shortcut + at * 8);
}

// The images that were fetched, as the convolution's input; the next ones are fetched into their places.
__device__ __forceinline__ void make_input(
    Chunk* tile, Chunk* raw, u16* kept, const Norm& norm, bool has_next, const Source& next, int thread) {
    float scale[8], shift[8];
    if (NORMED) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            scale[j] = norm.scale[thread % CHUNKS * 8 + j];
            shift[j] = norm.shift[thread % CHUNKS * 8 + j];
        }
    }
    Chunk* const place = tile + first_place(thread);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        const int at = thread + part * THREADS;
        Chunk x = raw[at], shortcut;
        if (ADDED) shortcut = raw[RAW + at];
        if (NORMED) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                u32& pair = x.pair[j];
                float first = first_of(pair) * scale[2 * j] + shift[2 * j];
                float second = second_of(pair) * scale[2 * j + 1] + shift[2 * j + 1];
                if (ADDED) {
                    first += first_of(shortcut.pair[j]);
                    second += second_of(shortcut.pair[j]);
                }
                pair = rounded_relu(first, second);
            }
        }
        if (has_next) fetch_part(raw, next, at);
        if (KEPT) write_chunk(kept + at * 8, x);
        place[part * PLACES_APART] = x;
    }
    close_fetches();
}

// Two groups of the same size as one (Chan, Golub and LeVeque 1979).
__device__ __forceinline__ void merge(float& mean, float& squares, float other, float other_squares, float each) {
    const float apart = other - mean;
    mean += 0.5f * apart;
    squares += other_squares + 0.5f * each * apart * apart;
}

KERNEL(forward, THREADS, 2)(
    const u16* before, const u16* shortcut, const float* mean, const float* inverse, const float* gamma,
    const float* beta, const Pair* weights, u16* kept, u16* y, float* partial, int images, int images_of_block,
    long long stride_before) {
    SHARED_MEMORY(tile);
    Chunk *const raw = tile + TILE, *const staging = raw + (1 + ADDED) * RAW;
    Norm& norm = *reinterpret_cast<Norm*>(staging + THREADS);
    const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
    const long long net = blockIdx.y;
    typedef Share<WARPS> Own;
    const Own own(warp);
    const int begin = blockIdx.x * images_of_block, end = min(begin + images_of_block, images);
    const auto source_of = [&](int image) -> Source {
        const long long at = (long long)image * (PIXELS * C);
        return {before + net * stride_before + at, shortcut + net * images * (PIXELS * C) + at};
    };

#pragma unroll
    for (int part = 0; part < PARTS; ++part) fetch_part(raw, source_of(begin), thread + part * THREADS);
    close_fetches();
    clear_sides(tile, thread);
    if (NORMED && thread < C) {
        const long long c = net * C + thread;
        const float scale = gamma[c] * inverse[c];
        norm.scale[thread] = scale;
        norm.shift[thread] = beta[c] - mean[c] * scale;
    }
    Weights own_weights;
    load_weights(own_weights, weights + net * WEIGHTS, own.group, lane);
    u32 row_at[3];
    strip_addresses(row_at, shared_address(tile), own.strip, lane & 15, lane >> 4);
    const u32 result_at = result_address(shared_address(staging + 32 * warp), lane);
    const Chunk* const result = staging + 32 * warp + own_chunk(lane);
    const int place = own_place(own.strip, own.group, lane);
    float sum[OUTPUTS][2] = {}, squared[OUTPUTS][2] = {};
    meet();

    for (int image = begin; image < end; image += TOGETHER) {
        const long long here = (net * images + image) * (PIXELS * C);
        wait_for_fetches<0>();
        make_input(tile, raw, kept + here, norm, image + TOGETHER < end, source_of(image + TOGETHER), thread);
        meet();
        u16* const out = y + here + place;
        const auto nothing = [](int) {};
        convolve<false, Own::HEIGHT>(own_weights, row_at, own.first_row, nothing, [&](int row, const RowSums& sums) {
            u32 words[4];
#pragma unroll
            for (int word = 0; word < 4; ++word) {
                const float* of = sums[word >> 1] + (word & 1) * 2;
                words[word] = rounded(of[0], of[1]);
#pragma unroll
                for (int which = 0; which < 2; ++which) {
                    const int output = OUTPUTS == 2 ? word >> 1 : 0;
                    sum[output][which] += of[which];
                    squared[output][which] += of[which] * of[which];
                }
            }
            store_matrices(result_at, words);
            meet_in_warp();
            write_chunk(out + row * (SIDE * C), *result);
            meet_in_warp();
        });
        meet();
    }

    // Of the lanes with the same outputs, of the warps, then of the block. Sums of up to some hundred numbers
    // and of their squares are good enough for numbers of 8 bits; between lanes and warps no digits are lost.
    float(*of_warps)[2][C] = reinterpret_cast<float(*)[2][C]>(tile);
    const float seen = static_cast<float>((end - begin) / TOGETHER * Own::HEIGHT * 2 * STRIPS);
#pragma unroll
    for (int output = 0; output < OUTPUTS; ++output)
#pragma unroll
        for (int which = 0; which < 2; ++which) {
            float count = seen;
            float middle = sum[output][which] / count;
            float squares = squared[output][which] - sum[output][which] * middle;
            if (squares < 0.0f) squares = 0.0f;
#pragma unroll
            for (int mask = 4; mask <= 16; mask *= 2) {
                const float other = from_lane_across(middle, mask);
                merge(middle, squares, other, from_lane_across(squares, mask), count);
                count *= 2.0f;
            }
            if (lane < 4) {
                of_warps[own.sharer][0][own.channel(output, lane) + which] = middle;
                of_warps[own.sharer][1][own.channel(output, lane) + which] = squares;
            }
        }
    meet();
    if (thread < C) {
        float middle = of_warps[0][0][thread], squares = of_warps[0][1][thread];
#pragma unroll
        for (int other = 1; other < Own::SHARERS; ++other) {
            // `other` groups of a size with one more of that size.
            const float apart = of_warps[other][0][thread] - middle, total = other + 1.0f;
            middle += apart / total;
            squares += of_warps[other][1][thread] + apart * apart * (8.0f * seen * other / total);
        }
        float* out = partial + (net * gridDim.x + blockIdx.x) * (2 * C) + thread;
        out[0] = middle;
        out[C] = squares;
    }
}

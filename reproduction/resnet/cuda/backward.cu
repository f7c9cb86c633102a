// The gradients of a convolution of K nets, from that of its batch norm's output.
//
//     dy = gamma inverse (dz - mean(dz) - normed y mean(dz normed y))     rounded to bf16
//     dx = transposed convolution of dy  (+ the shortcut's gradient, ADDED)
//     dz_below = dx where the relu below was active                        rounded to bf16
//     dw[tap] = sum over pixels p of x[p + tap - 1]' dy[p]
//
// and of each block of images the sums of dz_below and of dz_below times the normed y below (`partial_sums`), both
// before dz_below is rounded, and dw (`partial_weights`). MIDDLE: x = relu((below - mean) inverse gamma + beta) is computed again; else it is
// read. INPUT: dx is asked for; WEIGHT: dw is. With 64 channels the two are two launches, and dw is cut in two
// halves, since the registers hold no more.
//
// Some warps make tiles of dy and x, others compute dx and dw from them, all at the same time: there are two sets
// of tiles, which are filled and emptied in turns.

constexpr int LOADING_WARPS = LOADERS / 32;
constexpr int INPUT_WARPS = INPUT ? 8 : 0;
constexpr int WEIGHT_WARPS = WARPS - LOADING_WARPS - INPUT_WARPS;
static_assert(C < 64 || INPUT != WEIGHT, "with 64 channels one launch for each");
// Warp w of those for dw does the square w of 16 channels in (its upper digit) by 16 out; sets of warps with the
// same squares share the pixels, and blocks with the same images the squares.
constexpr int SQUARES = (C / 16) * (C / 16);
constexpr int OWN_SQUARES = WEIGHT && WEIGHT_WARPS < SQUARES ? WEIGHT_WARPS : SQUARES;
constexpr int SHARES = WEIGHT ? SQUARES / OWN_SQUARES : 1;
constexpr int SETS = WEIGHT_WARPS / OWN_SQUARES;
constexpr int SQUARE = 9 * 16 * 16;  // floats
typedef Share<INPUT ? INPUT_WARPS : 8> InputShare;
constexpr int SUMS_SPACE = InputShare::SHARERS * 2 * C;  // floats that the sums of dz_below take in the end

struct Arguments {
    const u16 *dz, *y;
    const float *mean, *inverse, *gamma, *sums;
    const u16 *x, *below;  // x is not there if MIDDLE, below not for the first layer of all
    const float *below_mean, *below_inverse, *below_gamma, *below_beta;
    const u16* shortcut;
    const Pair* weights;
    u16* dz_below;
    float *partial_sums, *partial_weights;
    int images, images_of_block;
    long long stride_x;
};

// Of each channel: dy = by_dz dz + by_y y + constant,  x = relu(scale below + shift).
struct Norms { float by_dz[C], by_y[C], constant[C], scale[C], shift[C]; };

// Which images a block has.
struct Work {
    long long net;
    int begin, end;
};

constexpr int TILES = WEIGHT ? 2 : 1;
enum { FULL = 1, EMPTY = 3 };  // where the two sets of tiles are handed over

// The part of the warps that load: they fetch DEPTH batches of chunks ahead, and make tiles of dy and x of them.
constexpr int BATCH = 2, BATCHES = PARTS / BATCH, TENSORS = 2 + WEIGHT;
constexpr int SPACE = BATCH * TENSORS * LOADERS;  // chunks that a batch takes
constexpr int RING = DEPTH * SPACE;
static_assert(DEPTH >= 2, "one batch is read while others are on their way");

struct Loader {
    const Arguments& of;
    const Work& work;
    Chunk* const ring;  // the thread's own place
    const int thread;
    int image, batch, slot;  // what is asked for next

    __device__ __forceinline__ Loader(const Arguments& of, const Work& work, Chunk* ring, int thread)
        : of(of), work(work), ring(ring + thread), thread(thread), image(work.begin), batch(0), slot(0) {
        for (int ahead = 0; ahead < DEPTH - 1; ++ahead) ask();
    }

    __device__ __forceinline__ void ask() {
        if (image < work.end) {
            const long long at = (long long)image * (PIXELS * C) + (thread + batch * BATCH * LOADERS) * 8;
            const long long here = work.net * of.images * (PIXELS * C) + at;
            const u16* x = MIDDLE ? of.below + here : of.x + work.net * of.stride_x + at;
            Chunk* const into = ring + slot * SPACE;
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                fetch_chunk(into + i * LOADERS, of.dz + here + i * LOADERS * 8);
                fetch_chunk(into + (BATCH + i) * LOADERS, of.y + here + i * LOADERS * 8);
                if (WEIGHT) fetch_chunk(into + (2 * BATCH + i) * LOADERS, x + i * LOADERS * 8);
            }
        }
        close_fetches();
        slot = slot + 1 == DEPTH ? 0 : slot + 1;
        if (++batch == BATCHES) {
            batch = 0;
            image += TOGETHER;
        }
    }
};

__device__ __forceinline__ void load_tiles(Loader& loader, Chunk* tiles, const Norms& norms) {
    const int thread = loader.thread, c = thread % CHUNKS * 8, place = first_place(thread);
    float by_dz[8], by_y[8], constant[8], scale[8], shift[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        by_dz[j] = norms.by_dz[c + j];
        by_y[j] = norms.by_y[c + j];
        constant[j] = norms.constant[c + j];
        scale[j] = norms.scale[c + j];
        shift[j] = norms.shift[c + j];
    }
    int turn = 0, slot = 0;
    for (int image = loader.work.begin; image < loader.work.end; image += TOGETHER, ++turn) {
        Chunk* set = tiles + (turn & 1) * (TILES * TILE) + place;
        if (turn >= 2) meet_at<THREADS>(EMPTY + (turn & 1));
#pragma unroll 1
        for (int batch = 0; batch < BATCHES; ++batch, set += BATCH * PLACES_APART) {
            wait_for_fetches<DEPTH - 2>();
            const Chunk* const from = loader.ring + slot * SPACE;
            slot = slot + 1 == DEPTH ? 0 : slot + 1;
            Chunk gradients[BATCH], outputs[BATCH], inputs[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                gradients[i] = from[i * LOADERS];
                outputs[i] = from[(BATCH + i) * LOADERS];
                if (WEIGHT) inputs[i] = from[(2 * BATCH + i) * LOADERS];
            }
            loader.ask();
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                Chunk dy, x = inputs[i];
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const int a = 2 * j, b = 2 * j + 1;
                    const u32 dz = gradients[i].pair[j], y = outputs[i].pair[j];
                    dy.pair[j] = rounded(first_of(dz) * by_dz[a] + (first_of(y) * by_y[a] + constant[a]),
                                         second_of(dz) * by_dz[b] + (second_of(y) * by_y[b] + constant[b]));
                    if (WEIGHT && MIDDLE)
                        x.pair[j] = rounded_relu(first_of(x.pair[j]) * scale[a] + shift[a],
                                                 second_of(x.pair[j]) * scale[b] + shift[b]);
                }
                set[i * PLACES_APART] = dy;
                if (WEIGHT) set[TILE + i * PLACES_APART] = x;
            }
        }
        leave_word_at<THREADS>(FULL + (turn & 1));
    }
}

// Waits for the tiles of a turn, and has them used.
template <typename Use>
__device__ __forceinline__ void for_each_tile(const Work& work, Use use) {
    int turn = 0;
    for (int image = work.begin; image < work.end; image += TOGETHER, ++turn) {
        meet_at<THREADS>(FULL + (turn & 1));
        use(image, (turn & 1) * (TILES * TILE * 16));
        // Where nobody waits for it, nothing is said.
        if (image + 2 * TOGETHER < work.end) leave_word_at<THREADS>(EMPTY + (turn & 1));
    }
}

// The rows of other tensors that a warp's results need are fetched three rows ahead.
constexpr bool READS_ACTIVE = !MIDDLE && !WEIGHT;
enum { SLOTS = 4, BELOW = 0, SHORTCUT = BELOW + 1, ACTIVE = SHORTCUT + ADDED, SLOT = ACTIVE + READS_ACTIVE };
constexpr int STAGES = SLOTS * SLOT + 1;  // the last for results
constexpr int STAGING = INPUT_WARPS * STAGES * 32;

// The part of the warps that compute dx.
struct InputSums { float plain[OUTPUTS][2], along[OUTPUTS][2]; };

__device__ __forceinline__ void input_gradient(
    InputSums& total, Chunk* tiles, Chunk* all_staging, const Arguments& of, const Work& work,
    const Norms& norms, int thread) {
    constexpr int HEIGHT = InputShare::HEIGHT;
    const int lane = thread & 31, warp = thread >> 5;
    const InputShare own(warp);
    Weights own_weights;
    load_weights(own_weights, of.weights + work.net * WEIGHTS, own.group, lane);
    u32 row_at[3], active_at[3];
    strip_addresses(row_at, shared_address(tiles), own.strip, lane & 15, lane >> 4);
    // The matrices of x that belong to the results.
    strip_addresses(active_at, shared_address(tiles + TILE), ONE_TILE ? lane >> 4 : own.strip, lane & 15,
                    own.group * OUTPUTS + (ONE_TILE ? 0 : lane >> 4));
    Chunk* const staging = all_staging + warp * (STAGES * 32);
    const u32 staged_at = result_address(shared_address(staging), lane);
    Chunk* const mine = staging + own_chunk(lane);
    const long long place =
        work.net * of.images * (PIXELS * C) + own_place(own.strip, own.group, lane) + own.first_row * (SIDE * C);
    float scale[OUTPUTS][2], shift[OUTPUTS][2];
#pragma unroll
    for (int output = 0; output < OUTPUTS; ++output)
#pragma unroll
        for (int which = 0; which < 2; ++which) {
            scale[output][which] = norms.scale[own.channel(output, lane) + which];
            shift[output][which] = norms.shift[own.channel(output, lane) + which];
        }
    // Rows are counted over all images.
    int asked = 0;
    const auto fetch = [&] {
        const int image = work.begin + asked / HEIGHT * TOGETHER;
        if (image < work.end) {
            const long long at = place + (long long)image * (PIXELS * C) + asked % HEIGHT * (SIDE * C);
            Chunk* const slot = mine + (asked % SLOTS) * (SLOT * 32);
            fetch_chunk(slot + BELOW * 32, of.below + at);
            if (ADDED) fetch_chunk(slot + SHORTCUT * 32, of.shortcut + at);
            if (READS_ACTIVE) fetch_chunk(slot + ACTIVE * 32, of.x + at);
        }
        close_fetches();
        ++asked;
    };
    for (int ahead = 0; ahead < SLOTS - 1; ++ahead) fetch();

    for_each_tile(work, [&](int image, u32 set) {
        u32 at[3];
#pragma unroll
        for (int column = 0; column < 3; ++column) at[column] = row_at[column] + set;
        u32 before[4], added[4], after[4];
        const auto prepare = [&](int row) {
            const u32 slot_at = staged_at + ((asked - (SLOTS - 1)) % SLOTS) * (SLOT * 512);
            wait_for_fetches<SLOTS - 2>();
            meet_in_warp();
            load_matrices(before, slot_at + BELOW * 512);
            if (ADDED) load_matrices(added, slot_at + SHORTCUT * 512);
            if (!MIDDLE)
                load_matrices(after, WEIGHT ? active_at[1] + set + row * ROW_BYTES : slot_at + ACTIVE * 512);
            fetch();
        };
        convolve<true, HEIGHT>(own_weights, at, own.first_row, prepare, [&](int row, const RowSums& sums) {
            u32 words[4];
#pragma unroll
            for (int word = 0; word < 4; ++word) {
                const int output = OUTPUTS == 2 ? word >> 1 : 0;
                float out[2];
#pragma unroll
                for (int which = 0; which < 2; ++which) {
                    const float y = which ? second_of(before[word]) : first_of(before[word]);
                    float value = sums[word >> 1][(word & 1) * 2 + which];
                    if (ADDED) value += which ? second_of(added[word]) : first_of(added[word]);
                    const float x = MIDDLE ? y * scale[output][which] + shift[output][which]
                                    : which ? second_of(after[word]) : first_of(after[word]);
                    out[which] = x > 0.0f ? value : 0.0f;
                    total.plain[output][which] += out[which];
                    total.along[output][which] += out[which] * y;
                }
                words[word] = rounded(out[0], out[1]);
            }
            store_matrices(staged_at + (STAGES - 1) * 512, words);
            // The next is stored after the meeting in `prepare`, by which all lanes have read theirs.
            meet_in_warp();
            write_chunk(of.dz_below + place + (long long)image * (PIXELS * C) + (row - own.first_row) * (SIDE * C),
                        mine[(STAGES - 1) * 32]);
        });
    });
}

__device__ __forceinline__ void write_input_sums(
    const InputSums& total, Chunk* tiles, const Arguments& of, const Work& work, int thread) {
    const int lane = thread & 31;
    const InputShare own(thread >> 5);
    float(*of_warps)[2][C] = reinterpret_cast<float(*)[2][C]>(tiles);
#pragma unroll
    for (int output = 0; output < OUTPUTS; ++output)
#pragma unroll
        for (int which = 0; which < 2; ++which) {
            const int c = own.channel(output, lane) + which;
            const long long at = work.net * C + c;
            float sum = total.plain[output][which];
            float product = (total.along[output][which] - sum * of.below_mean[at]) * of.below_inverse[at];
#pragma unroll
            for (int mask = 4; mask <= 16; mask *= 2) {
                sum += from_lane_across(sum, mask);
                product += from_lane_across(product, mask);
            }
            if (lane < 4) {
                of_warps[own.sharer][0][c] = sum;
                of_warps[own.sharer][1][c] = product;
            }
        }
}

// The part of the warps that compute dw.
__device__ __forceinline__ void weight_gradient(
    float (&sums)[9][2][4], Chunk* tiles, const Work& work, int share, int warp, int lane) {
    // Sets have a strip each, and then bands of its rows.
    constexpr int BANDS = SETS < 2 ? 1 : SETS / 2, OWN_STRIPS = SETS < 2 ? 2 : 1;
    constexpr int HEIGHT = SIDE / BANDS;
    const int square = warp % OWN_SQUARES + share * OWN_SQUARES, set_of_warp = warp / OWN_SQUARES;
    const int of_input = square / (C / 16), of_output = square % (C / 16);
    const int first_row = (set_of_warp >> 1) * HEIGHT, first_strip = set_of_warp & 1;
    const bool has_above = first_row > 0, has_below = first_row + HEIGHT < SIDE;
    // Both are read transposed: x gives matrices (inputs, pixels), inputs first in the order of their halves,
    // dy gives (pixels, outputs), pixels first.
    u32 x_at[3], dy_at[3];
    strip_addresses(x_at, shared_address(tiles + TILE), first_strip, (lane & 7) + 8 * (lane >> 4),
                    2 * of_input + ((lane >> 3) & 1));
    strip_addresses(dy_at, shared_address(tiles), first_strip, lane & 15, 2 * of_output + (lane >> 4));

    for_each_tile(work, [&](int, u32 set) {
#pragma unroll 1
        for (int strip = 0; strip < OWN_STRIPS; ++strip) {
            const u32 apart = set + strip * STRIP_BYTES + first_row * ROW_BYTES;
            u32 gradients[3][4] = {};  // of the rows above, at and below, in turns
            if (has_above) load_transposed(gradients[0], dy_at[1] + apart - ROW_BYTES);
            load_transposed(gradients[1], dy_at[1] + apart);
#pragma unroll
            for (int row = 0; row < HEIGHT; ++row) {
                u32(&next)[4] = gradients[(row + 2) % 3];
                if (row + 1 < HEIGHT || has_below) {
                    load_transposed(next, dy_at[1] + apart + (row + 1) * ROW_BYTES);
                } else {
#pragma unroll
                    for (int i = 0; i < 4; ++i) next[i] = 0u;
                }
#pragma unroll
                for (int column = 0; column < 3; ++column) {
                    u32 inputs[4];
                    load_transposed(inputs, x_at[column] + apart + row * ROW_BYTES);
#pragma unroll
                    for (int above = 0; above < 3; ++above)
#pragma unroll
                        for (int tile = 0; tile < 2; ++tile)
                            // The gradient of the row above sees this row by the lowest taps.
                            multiply_add(sums[(2 - above) * 3 + column][tile], inputs,
                                         gradients[(row + above) % 3][2 * tile],
                                         gradients[(row + above) % 3][2 * tile + 1]);
                }
            }
        }
    });
}

// [tap][input][output] of a square, to be added up over the sets.
__device__ __forceinline__ void write_square(const float (&sums)[9][2][4], Chunk* tiles, int warp, int lane) {
    float* out = reinterpret_cast<float*>(tiles) + SUMS_SPACE + warp * SQUARE;
#pragma unroll
    for (int tap = 0; tap < 9; ++tap)
#pragma unroll
        for (int tile = 0; tile < 2; ++tile)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                out[(tap * 16 + (lane >> 2) + 8 * (i >> 1)) * 16 + tile * 8 + 2 * (lane & 3) + (i & 1)] =
                    sums[tap][tile][i];
}

KERNEL(backward, THREADS, 1)(Arguments of) {
    SHARED_MEMORY(tiles);
    Chunk *const staging = tiles + 2 * TILES * TILE, *const ring = staging + STAGING;
    Norms& norms = *reinterpret_cast<Norms*>(ring + RING);
    const int thread = threadIdx.x, warp = thread >> 5;
    const long long net = blockIdx.y;
    const int block = blockIdx.x / SHARES, share = blockIdx.x % SHARES, blocks = gridDim.x / SHARES;
    const int begin = block * of.images_of_block;
    const Work work = {net, begin, min(begin + of.images_of_block, of.images)};

    const auto prepare = [&] {
        for (int tile = 0; tile < 2 * TILES; ++tile) clear_sides(tiles + tile * TILE, thread);
        if (thread >= C) return;
        const long long c = net * C + thread;
        const float count = static_cast<float>(of.images * PIXELS);
        const float plain = of.sums[net * (2 * C) + thread] / count;
        const float along = of.sums[net * (2 * C) + C + thread] / count * of.inverse[c];
        const float by_dz = of.gamma[c] * of.inverse[c];
        norms.by_dz[thread] = by_dz;
        norms.by_y[thread] = -by_dz * along;
        norms.constant[thread] = by_dz * (of.mean[c] * along - plain);
        if (INPUT || MIDDLE) {
            const float scale = of.below_gamma[c] * of.below_inverse[c];
            norms.scale[thread] = scale;
            norms.shift[thread] = of.below_beta[c] - of.below_mean[c] * scale;
        }
    };
    // The tiles serve as room for sums once all warps are done with them.
    if (warp < INPUT_WARPS) {
        InputSums total = {};
        prepare();
        meet();
        input_gradient(total, tiles, staging, of, work, norms, thread);
        meet();
        write_input_sums(total, tiles, of, work, thread);
    } else if (warp < INPUT_WARPS + WEIGHT_WARPS) {
        float sums[9][2][4] = {};
        prepare();
        meet();
        weight_gradient(sums, tiles, work, share, warp - INPUT_WARPS, thread & 31);
        meet();
        write_square(sums, tiles, warp - INPUT_WARPS, thread & 31);
    } else {
        Loader loader(of, work, ring, thread - (INPUT_WARPS + WEIGHT_WARPS) * 32);
        prepare();
        meet();
        load_tiles(loader, tiles, norms);
        meet();
    }
    meet();

    const long long out = net * blocks + block;
    const float* sums = reinterpret_cast<const float*>(tiles);
    if (INPUT && thread < 2 * C) {
        float total = 0.0f;
        for (int sharer = 0; sharer < InputShare::SHARERS; ++sharer) total += sums[sharer * (2 * C) + thread];
        of.partial_sums[out * (2 * C) + thread] = total;
    }
    if (WEIGHT) {
        for (int i = thread; i < OWN_SQUARES * SQUARE; i += THREADS) {
            float total = 0.0f;
            for (int set = 0; set < SETS; ++set) total += sums[SUMS_SPACE + set * OWN_SQUARES * SQUARE + i];
            const int square = i / SQUARE + share * OWN_SQUARES, tap = i % SQUARE / 256;
            const int input = square / (C / 16) * 16 + i / 16 % 16, output = square % (C / 16) * 16 + i % 16;
            of.partial_weights[((out * 9 + tap) * C + input) * C + output] = total;
        }
    }
}

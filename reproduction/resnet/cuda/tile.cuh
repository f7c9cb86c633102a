// Images in shared memory, and how the warps of a block share out the convolution of them.
//
// A stage of the net has CHANNELS = 16, 32 or 64 on images of 32 x 32, 16 x 16 or 8 x 8 pixels, so that 1, 2 or
// 4 images are 32 rows and 32 KiB. A tile holds these rows one below the other, each with a pixel of zeros on
// both sides; whether a row above or below is of the same image, the loops over rows decide.
//
// A pixel's channels are chunks of eight (16 bytes). Chunks change places within a pixel, by a rule that puts
// the same chunk of eight neighbouring pixels into different banks: eight rows of a matrix are read at once. The
// rule asks for the column alone, so that from row to row an address moves by a constant.

constexpr int C = CHANNELS;
constexpr int CHUNKS = C / 8;
constexpr int SIDE = 512 / C;
constexpr int PIXELS = SIDE * SIDE;
constexpr int TOGETHER = C / 16;  // images of a tile
constexpr int ROWS = 32;          // of a tile
constexpr int LINE = SIDE + 2;
constexpr int TILE = ROWS * LINE * CHUNKS;   // chunks
constexpr int ROW_BYTES = LINE * C * 2;
constexpr int WARPS = THREADS / 32;
constexpr int RAW = TOGETHER * PIXELS * CHUNKS;   // chunks of the images, without the zeros
constexpr int PARTS = RAW / LOADERS;              // of each of the threads that load them
constexpr int ROWS_APART = LOADERS / CHUNKS / SIDE;  // rows from one of them to the next
static_assert(PARTS * ROWS_APART == ROWS, "a thread's chunks");

// Where a chunk of a pixel lies; columns begin with the zeros at 0.
__device__ __forceinline__ int place_of(int row, int column, int chunk) {
    constexpr int shift = C == 16 ? 2 : C == 32 ? 1 : 0;
    return (row * LINE + column) * CHUNKS + (chunk ^ ((column >> shift) & (CHUNKS - 1)));
}

// Where the first of a thread's chunks lies.
__device__ __forceinline__ int first_place(int thread) {
    const int pixel = thread / CHUNKS;
    return place_of(pixel / SIDE, pixel % SIDE + 1, thread % CHUNKS);
}
constexpr int PLACES_APART = ROWS_APART * LINE * CHUNKS;

// A matrix product takes 16 pixels of a row, a strip: half a row of one image (16 channels), a row (32), or a
// row of each of two images (64). A tile has two strips side by side, or one below the other; their rows are
// counted from 0 to SIDE.
__device__ __forceinline__ int strip_row(int strip, int i) {
    return C == 16 ? 0 : C == 32 ? strip * SIDE : (2 * strip + (i >> 3)) * SIDE;
}
__device__ __forceinline__ int strip_column(int strip, int i) {
    return C == 16 ? strip * 16 + i : C == 32 ? i : i & 7;
}
// From the first strip to the second where they lie below each other.
constexpr int STRIP_BYTES = TOGETHER / 2 * SIDE * ROW_BYTES;

// Matrix products of a warp go in pairs: two tiles of 8 outputs for one strip, or, where the weights would take
// too many registers, one for two strips. ONE_TILE: which.
constexpr int STRIPS = ONE_TILE ? 2 : 1;
constexpr int OUTPUTS = ONE_TILE ? 1 : 2;
static_assert(!ONE_TILE || C > 16, "two strips must lie below each other");
constexpr int STEPS = C / 16;              // of 16 inputs each
constexpr int GROUPS = C / (8 * OUTPUTS);  // warps for all outputs of the same pixels
constexpr int WEIGHTS = 9 * STEPS * (C / 8) * 32;  // Pairs of a net's layer

// What a warp does of a convolution that so many warps share.
template <int SHARING>
struct Share {
    static constexpr int SHARERS = SHARING / GROUPS;  // warps with the same outputs
    static constexpr int BANDS = SHARERS * STRIPS / 2;
    static constexpr int HEIGHT = SIDE / BANDS;
    static_assert(BANDS >= 1, "each strip has a warp");
    int group, sharer, strip, first_row;
    __device__ __forceinline__ explicit Share(int warp)
        : group(warp % GROUPS), sharer(warp / GROUPS), strip(STRIPS == 2 ? 0 : sharer & 1),
          first_row(sharer / (2 / STRIPS) * HEIGHT) {}
    // The first of the lane's two outputs of a tile.
    __device__ __forceinline__ int channel(int tile, int lane) const {
        return (group * OUTPUTS + tile) * 8 + 2 * (lane & 3);
    }
};

// The weights of a warp, as the matrix product wants them: [tap][step][tile of outputs].
struct Weights { Pair at[9][STEPS][OUTPUTS]; };

__device__ __forceinline__ void load_weights(Weights& into, const Pair* of_layer, int group, int lane) {
#pragma unroll
    for (int tap = 0; tap < 9; ++tap)
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
#pragma unroll
            for (int tile = 0; tile < OUTPUTS; ++tile)
                into.at[tap][step][tile] =
                    of_layer[((tap * STEPS + step) * (C / 8) + group * OUTPUTS + tile) * 32 + lane];
}

// Where a lane's row of the matrices of a strip begins: of the pixels to the left, at and to the right.
__device__ __forceinline__ void strip_addresses(u32 (&at)[3], u32 tile, int strip, int i, int chunk) {
#pragma unroll
    for (int column = 0; column < 3; ++column)
        at[column] = tile + 16 * place_of(strip_row(strip, i), strip_column(strip, i) + column, chunk);
}

// Output rows under way: two tiles of sums each.
typedef float RowSums[2][4];

// Adds what an input row gives to the output rows above, at and below it. FLIPPED: the gradient's convolution.
// `at` is the lane's addresses of that row.
template <bool FLIPPED, bool ABOVE, bool AT, bool BELOW>
__device__ __forceinline__ void add_row(
    RowSums& above, RowSums& same, RowSums& below, const Weights& weights, const u32 (&at)[3]) {
#pragma unroll
    for (int column = 0; column < 3; ++column)
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            u32 pixels[STRIPS][4];
#pragma unroll
            for (int strip = 0; strip < STRIPS; ++strip)
                load_matrices(pixels[strip],
                              (at[FLIPPED ? 2 - column : column] ^ (32 * step)) + strip * STRIP_BYTES);
#pragma unroll
            for (int pair = 0; pair < 2; ++pair) {
                const auto add = [&](RowSums& sums, int row_of_taps) {
                    const Pair& weight = weights.at[row_of_taps * 3 + column][step][OUTPUTS == 2 ? pair : 0];
                    multiply_add(sums[pair], pixels[STRIPS == 2 ? pair : 0], weight.word[0], weight.word[1]);
                };
                if (ABOVE) add(above, FLIPPED ? 0 : 2);
                if (AT) add(same, 1);
                if (BELOW) add(below, FLIPPED ? 2 : 0);
            }
        }
}

__device__ __forceinline__ void set_zero(RowSums& sums) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[pair][i] = 0.0f;
}

// The convolution of a tile, `height` rows from `first_row` on; of each row `finish(row, sums)` is called, and
// `prepare(row)` before its last products, which take a while.
template <bool FLIPPED, int HEIGHT, typename Prepare, typename Finish>
__device__ __forceinline__ void convolve(
    const Weights& weights, u32 (&row_at)[3], int first_row, Prepare prepare, Finish finish) {
    RowSums sums[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) set_zero(sums[i]);
    const auto move = [&](int rows) {
#pragma unroll
        for (int column = 0; column < 3; ++column) row_at[column] += rows * ROW_BYTES;
    };
    move(first_row - 1);
    if (first_row > 0) add_row<FLIPPED, false, false, true>(sums[1], sums[2], sums[0], weights, row_at);
    move(1);
    add_row<FLIPPED, false, true, true>(sums[2], sums[0], sums[1], weights, row_at);
    // Row i ends the row above it. Sums change places by three rows at a time, not in the registers.
    const auto one_row = [&](int i, RowSums& above, RowSums& same, RowSums& below) {
        if (i > HEIGHT) return;
        move(1);
        prepare(first_row + i - 1);
        if (i < HEIGHT)
            add_row<FLIPPED, true, true, true>(above, same, below, weights, row_at);
        else if (first_row + HEIGHT < SIDE)
            add_row<FLIPPED, true, false, false>(above, same, below, weights, row_at);
        finish(first_row + i - 1, above);
        set_zero(above);
    };
#pragma unroll 1
    for (int i = 1; i <= HEIGHT; i += 3) {
        one_row(i, sums[0], sums[1], sums[2]);
        one_row(i + 1, sums[1], sums[2], sums[0]);
        one_row(i + 2, sums[2], sums[0], sums[1]);
    }
    move(-(first_row + HEIGHT));
}

// Results of a warp, two tiles of 16 pixels by 8 channels, between registers and 512 bytes of shared memory in
// which each lane has one chunk of one pixel: so memory is read and written in whole sectors.
__device__ __forceinline__ int result_chunk(int pixel, int tile) {
    return ONE_TILE ? tile * 16 + pixel : 2 * pixel + (tile ^ ((pixel >> 2) & 1));
}
// The address of the matrix row that the lane gives to load_matrices and store_matrices.
__device__ __forceinline__ u32 result_address(u32 staging, int lane) {
    return staging + 16 * result_chunk(lane & 15, lane >> 4);
}
// The lane's own chunk there, and in memory, counted from row 0 of the strip.
__device__ __forceinline__ int own_chunk(int lane) {
    return ONE_TILE ? lane : result_chunk(lane >> 1, lane & 1);
}
__device__ __forceinline__ int own_place(int strip, int group, int lane) {
    const int i = ONE_TILE ? lane & 15 : lane >> 1, tile = ONE_TILE ? 0 : lane & 1;
    const int of = ONE_TILE ? lane >> 4 : strip;
    const int image = strip_row(of, i) / SIDE;
    return (image * PIXELS + strip_column(of, i)) * C + (group * OUTPUTS + tile) * 8;
}

// The pixels of zeros; nothing else is written there.
__device__ __forceinline__ void clear_sides(Chunk* tile, int thread) {
    const Chunk nothing = {{0u, 0u, 0u, 0u}};
    for (int i = thread; i < ROWS * 2 * CHUNKS; i += THREADS)
        tile[place_of(i / (2 * CHUNKS), i / CHUNKS % 2 * (LINE - 1), i % CHUNKS)] = nothing;
}

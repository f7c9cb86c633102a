// What the kernels ask of a GPU (Hopper or later), so that the rest is plain C++.
//
// bf16 is the upper half of a float32; two of them lie in a word, the first in its lower half.

typedef unsigned int u32;
typedef unsigned short u16;

struct alignas(16) Chunk { u32 pair[4]; };
struct alignas(8) Pair { u32 word[2]; };

__device__ __forceinline__ float first_of(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float second_of(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// Two floats rounded to bf16.
__device__ __forceinline__ u32 rounded(float first, float second) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

// The same with zero for negative numbers; a NaN stays one.
__device__ __forceinline__ u32 rounded_relu(float first, float second) {
    u32 pair;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

// What a kernel only reads.
__device__ __forceinline__ Chunk read_chunk(const void* place) {
    Chunk found;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(found.pair[0]), "=r"(found.pair[1]), "=r"(found.pair[2]), "=r"(found.pair[3])
                 : "l"(place));
    return found;
}

// The same into shared memory, while the thread goes on. What it has fetched up to a `close_fetches` is a group,
// and it has them after `wait_for_fetches`, but for the last UNDERWAY groups.
__device__ __forceinline__ void fetch_chunk(Chunk* into, const void* place) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<u32>(__cvta_generic_to_shared(into))),
                 "l"(place)
                 : "memory");
}
__device__ __forceinline__ void close_fetches() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int UNDERWAY>
__device__ __forceinline__ void wait_for_fetches() {
    asm volatile("cp.async.wait_group %0;" ::"n"(UNDERWAY) : "memory");
}

__device__ __forceinline__ void write_chunk(void* place, const Chunk& chunk) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(place), "r"(chunk.pair[0]),
                 "r"(chunk.pair[1]), "r"(chunk.pair[2]), "r"(chunk.pair[3])
                 : "memory");
}

__device__ __forceinline__ u32 shared_address(const void* place) {
    return static_cast<u32>(__cvta_generic_to_shared(place));
}

// Four 8 x 8 matrices of bf16 from shared memory; lane 8 m + r gives the address of row r of matrix m.
__device__ __forceinline__ void load_matrices(u32 (&into)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                 : "r"(address));
}

__device__ __forceinline__ void load_transposed(u32 (&into)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                 : "r"(address));
}

// The reverse of load_matrices.
__device__ __forceinline__ void store_matrices(u32 address, const u32 (&from)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
}

// sums (16 x 8) += a (16 x 16) b (16 x 8), spread over the lanes of a warp as the instruction has it.
__device__ __forceinline__ void multiply_add(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <typename T>
__device__ __forceinline__ T from_lane_across(T value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// All threads of a block meet here, from whichever branch they come.
__device__ __forceinline__ void meet() { asm volatile("bar.sync 0;" ::: "memory"); }

// The same at other places, where some of the threads only leave word that they were there.
template <int ALL>
__device__ __forceinline__ void meet_at(int place) {
    asm volatile("bar.sync %0, %1;" ::"r"(place), "n"(ALL) : "memory");
}
template <int ALL>
__device__ __forceinline__ void leave_word_at(int place) {
    asm volatile("bar.arrive %0, %1;" ::"r"(place), "n"(ALL) : "memory");
}

// The lanes of a warp see what the others have written to shared memory.
__device__ __forceinline__ void meet_in_warp() { __syncwarp(); }

// At 128 bytes, since addresses within a pixel's channels are reckoned by exclusive or.
#define SHARED_MEMORY(name) extern __shared__ __align__(128) Chunk name[]
#define KERNEL(name, threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks) name

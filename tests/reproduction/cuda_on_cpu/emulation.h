// Runs the CUDA kernels on a CPU, thread by thread, in place of primitives.cuh: g++ is all it needs.
//
// Each thread of a block is a fiber. A fiber runs until it must wait for others, at a barrier of the block or at
// an instruction that the 32 lanes of a warp do together; the last of them to arrive does it for all. Which fiber
// runs next is drawn, the same way every time. Shared memory begins as NaN in every block, so that what was never
// written is seen. What cannot be seen is a `meet_in_warp` that is missing: all that lanes do together is a meeting
// here.

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#define __device__
#define __forceinline__ inline

typedef unsigned int u32;
typedef unsigned short u16;

struct alignas(16) Chunk { u32 pair[4]; };
struct alignas(8) Pair { u32 word[2]; };
struct Place { int x, y, z; };

using std::min;

namespace emulated {

constexpr int LANES = 32, STACK = 256 * 1024, MOST_SHARED = 232448;

alignas(1024) unsigned char shared[MOST_SHARED];
int shared_size;  // what the kernel was given of it
Place thread_place, block_place, grid_size;
const char* failure = nullptr;  // the first thing that a GPU would not have done

inline bool is_wrong(bool wrong, const char* what) {
    if (wrong && !failure) failure = what;
    return wrong;
}

// What fibers wait for: that `turn` moves on.
struct Meeting {
    long turn = 0;
    int arrived = 0;
    void* brought[LANES];
};

struct Fiber {
    ucontext_t start;
    jmp_buf place;  // once it runs: unlike swapcontext, a jump asks nothing of the kernel
    bool is_begun = false;
    std::vector<char> stack = std::vector<char>(STACK);
    bool is_done = false;
    const Meeting* waits_for = nullptr;
    long turn = 0;
};

std::vector<Fiber> fibers;
std::vector<Meeting> warps;
Meeting block, places[16];
ucontext_t first_scheduler;
jmp_buf scheduler;
int current, running;

inline void leave() {
    if (!_setjmp(fibers[current].place)) _longjmp(scheduler, 1);
}

inline void enter(Fiber& fiber) {
    if (_setjmp(scheduler)) return;
    if (fiber.is_begun) _longjmp(fiber.place, 1);
    fiber.is_begun = true;
    swapcontext(&first_scheduler, &fiber.start);
}

inline void wait_for(const Meeting& meeting) {
    Fiber& self = fibers[current];
    self.waits_for = &meeting;
    self.turn = meeting.turn;
    leave();
    self.waits_for = nullptr;
}

// Every lane brings something; the last to come does the work for all of them.
template <typename Work>
void together(void* mine, Work work) {
    Meeting& warp = warps[current / LANES];
    warp.brought[current % LANES] = mine;
    if (++warp.arrived < LANES) return wait_for(warp);
    warp.arrived = 0;
    work(warp.brought);
    ++warp.turn;
}

inline float as_float(u32 bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline float element(const u16* place) { return as_float(static_cast<u32>(*place) << 16); }

inline u32 to_bf16(float value) {
    u32 bits;
    std::memcpy(&bits, &value, 4);
    if (std::isnan(value)) return 0x7fff;
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

// What is fetched is not there before it was waited for.
struct Fetch { Chunk* into; const Chunk* from; int thread, group; };
std::vector<Fetch> fetches;
std::vector<int> groups;  // of each thread, how many it has closed
inline bool fetches_are_done() { return fetches.empty(); }

void (*body)();
void run_fiber() {
    body();
    fibers[current].is_done = true;
    --running;
    leave();
}

inline void run_block(int threads) {
    std::memset(shared, 0xff, MOST_SHARED);
    if (static_cast<int>(fibers.size()) != threads) fibers = std::vector<Fiber>(threads);
    warps.assign(threads / LANES, Meeting());
    block = Meeting();
    for (Meeting& place : places) place = Meeting();
    fetches.clear();
    groups.assign(threads, 0);
    running = threads;
    for (Fiber& fiber : fibers) {
        fiber.is_begun = fiber.is_done = false;
        fiber.waits_for = nullptr;
        getcontext(&fiber.start);
        fiber.start.uc_stack.ss_sp = fiber.stack.data();
        fiber.start.uc_stack.ss_size = STACK;
        fiber.start.uc_link = nullptr;
        makecontext(&fiber.start, run_fiber, 0);
    }
    unsigned draw = 1;
    while (running) {
        bool moved = false;
        draw = draw * 1664525u + 1013904223u;
        // Numbers of threads have no other factors than 2 and 3.
        const int strides[] = {1, 5, 7, 11, 13, 35, 55, 77}, stride = strides[draw >> 29];
        const int first = static_cast<int>(draw >> 8) % threads;
        for (int i = 0; i < threads; ++i) {
            current = (first + i * stride) % threads;
            Fiber& fiber = fibers[current];
            if (fiber.is_done || (fiber.waits_for && fiber.waits_for->turn == fiber.turn)) continue;
            thread_place = {current, 0, 0};
            moved = true;
            enter(fiber);
        }
        if (is_wrong(!moved, "all threads wait for each other")) return;
    }
}

template <typename... Arguments, std::size_t... I>
void call(void (*kernel)(Arguments...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_reference_t<Arguments>*>(arguments[I])...);
}

void** current_arguments;

template <auto kernel, typename... Arguments>
void call_current(void (*)(Arguments...)) {
    call<Arguments...>(kernel, current_arguments, std::index_sequence_for<Arguments...>());
}

template <auto kernel>
const char* launch(int x, int y, int z, int threads, int size, void** arguments) {
    grid_size = {x, y, z};
    shared_size = size;
    failure = nullptr;
    current_arguments = arguments;
    body = [] { call_current<kernel>(kernel); };
    for (int i = 0; i < z; ++i)
        for (int j = 0; j < y; ++j)
            for (int k = 0; k < x; ++k) {
                block_place = {k, j, i};
                run_block(threads);
                for (int at = shared_size; at < MOST_SHARED; ++at)
                    is_wrong(shared[at] != 0xff, "more shared memory was written than there is");
                is_wrong(!fetches_are_done(), "something was fetched and not waited for");
                if (failure) return failure;
            }
    return nullptr;
}

}  // namespace emulated

#define threadIdx emulated::thread_place
#define blockIdx emulated::block_place
#define gridDim emulated::grid_size

inline float first_of(u32 pair) { return emulated::as_float(pair << 16); }
inline float second_of(u32 pair) { return emulated::as_float(pair & 0xffff0000u); }
inline u32 rounded(float first, float second) {
    return emulated::to_bf16(first) | emulated::to_bf16(second) << 16;
}
inline u32 rounded_relu(float first, float second) {
    return rounded(first < 0 ? 0.0f : first, second < 0 ? 0.0f : second);
}

inline bool is_crooked(const void* place) {
    return emulated::is_wrong(reinterpret_cast<std::uintptr_t>(place) % 16, "a chunk must begin at 16 bytes");
}
inline Chunk read_chunk(const void* place) {
    return is_crooked(place) ? Chunk() : *static_cast<const Chunk*>(place);
}
inline void write_chunk(void* place, const Chunk& chunk) {
    if (!is_crooked(place)) *static_cast<Chunk*>(place) = chunk;
}
inline void fetch_chunk(Chunk* into, const void* place) {
    if (is_crooked(place)) return;
    const int group = emulated::groups[emulated::current];
    emulated::fetches.push_back({into, static_cast<const Chunk*>(place), emulated::current, group});
}
inline void close_fetches() { ++emulated::groups[emulated::current]; }
template <int UNDERWAY>
void wait_for_fetches() {
    using namespace emulated;
    const auto is_waited_for = [](const Fetch& fetch) {
        return fetch.thread == current && fetch.group < groups[current] - UNDERWAY;
    };
    for (const Fetch& fetch : fetches)
        if (is_waited_for(fetch)) *fetch.into = *fetch.from;
    fetches.erase(std::remove_if(fetches.begin(), fetches.end(), is_waited_for), fetches.end());
}

inline u32 shared_address(const void* place) {
    return static_cast<u32>(static_cast<const unsigned char*>(place) - emulated::shared);
}

// An address of a matrix row that a GPU would take, or one that is there.
inline u32 row_address(u32 address) {
    const bool is_there = address % 16 == 0 && static_cast<int>(address) + 16 <= emulated::shared_size;
    return emulated::is_wrong(!is_there, "a matrix row must lie in shared memory") ? 0 : address;
}

struct MatrixLoad {
    u32* into;
    u32 address;
};

template <bool TRANSPOSED>
void load_any(u32 (&into)[4], u32 address) {
    MatrixLoad mine = {into, row_address(address)};
    emulated::together(&mine, [](void** brought) {
        for (int lane = 0; lane < emulated::LANES; ++lane)
            for (int matrix = 0; matrix < 4; ++matrix) {
                const auto at = [&](int row, int column) -> u32 {
                    const u32 start = static_cast<MatrixLoad*>(brought[8 * matrix + row])->address;
                    return *reinterpret_cast<const u16*>(emulated::shared + start + 2 * column);
                };
                const int g = lane >> 2, t = 2 * (lane & 3);
                static_cast<MatrixLoad*>(brought[lane])->into[matrix] =
                    TRANSPOSED ? at(t, g) | at(t + 1, g) << 16 : at(g, t) | at(g, t + 1) << 16;
            }
    });
}
inline void load_matrices(u32 (&into)[4], u32 address) { load_any<false>(into, address); }
inline void load_transposed(u32 (&into)[4], u32 address) { load_any<true>(into, address); }

inline void store_matrices(u32 address, const u32 (&from)[4]) {
    struct MatrixStore { const u32* from; u32 address; } mine = {from, row_address(address)};
    emulated::together(&mine, [](void** brought) {
        for (int lane = 0; lane < emulated::LANES; ++lane)
            for (int matrix = 0; matrix < 4; ++matrix) {
                const u32 row = static_cast<MatrixStore*>(brought[8 * matrix + (lane >> 2)])->address;
                std::memcpy(emulated::shared + row + 4 * (lane & 3),
                            &static_cast<MatrixStore*>(brought[lane])->from[matrix], 4);
            }
    });
}

struct Product {
    float* sums;
    const u32* a;
    u32 b[2];
};

inline void multiply_add(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    Product mine = {sums, a, {b0, b1}};
    emulated::together(&mine, [](void** brought) {
        float left[16][16], right[16][8];
        for (int lane = 0; lane < emulated::LANES; ++lane) {
            const Product& of = *static_cast<Product*>(brought[lane]);
            const int g = lane >> 2, t = 2 * (lane & 3);
            for (int i = 0; i < 4; ++i) {
                left[g + 8 * (i & 1)][t + 8 * (i >> 1)] = first_of(of.a[i]);
                left[g + 8 * (i & 1)][t + 8 * (i >> 1) + 1] = second_of(of.a[i]);
            }
            for (int i = 0; i < 2; ++i) {
                right[t + 8 * i][g] = first_of(of.b[i]);
                right[t + 8 * i + 1][g] = second_of(of.b[i]);
            }
        }
        for (int lane = 0; lane < emulated::LANES; ++lane)
            for (int i = 0; i < 4; ++i) {
                const int row = (lane >> 2) + 8 * (i >> 1), column = 2 * (lane & 3) + (i & 1);
                float sum = static_cast<Product*>(brought[lane])->sums[i];
                for (int k = 0; k < 16; ++k) sum += left[row][k] * right[k][column];
                static_cast<Product*>(brought[lane])->sums[i] = sum;
            }
    });
}

template <typename T>
T from_lane_across(T value, int mask) {
    struct Exchange { T given, got; int mask; } mine = {value, value, mask};
    emulated::together(&mine, [](void** brought) {
        for (int lane = 0; lane < emulated::LANES; ++lane) {
            Exchange& of = *static_cast<Exchange*>(brought[lane]);
            of.got = static_cast<Exchange*>(brought[lane ^ of.mask])->given;
        }
    });
    return mine.got;
}

inline bool is_last_at(emulated::Meeting& meeting, int all) {
    if (++meeting.arrived < all) return false;
    meeting.arrived = 0;
    ++meeting.turn;
    return true;
}
inline void meet() {
    if (!is_last_at(emulated::block, emulated::running)) emulated::wait_for(emulated::block);
}
template <int ALL>
void meet_at(int place) {
    if (!is_last_at(emulated::places[place], ALL)) emulated::wait_for(emulated::places[place]);
}
template <int ALL>
void leave_word_at(int place) {
    is_last_at(emulated::places[place], ALL);
}

inline void meet_in_warp() {
    emulated::together(nullptr, [](void**) {});
}

#define SHARED_MEMORY(name) Chunk* name = reinterpret_cast<Chunk*>(emulated::shared)
#define KERNEL(name, threads, blocks)                                       \
    static void name

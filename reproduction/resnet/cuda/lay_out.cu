// Images (count, colours, pixels) in float32 as (count, pixels, 16) in bf16, the channels beyond the colours zero.

KERNEL(lay_out, THREADS, 1)(const float* images, u16* out, int colours, int pixels, long long all) {
    const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= all) return;
    const float* from = images + i / pixels * colours * pixels + i % pixels;
    Chunk chunks[2];
#pragma unroll
    for (int pair = 0; pair < 8; ++pair)
        chunks[pair / 4].pair[pair % 4] = rounded(2 * pair < colours ? from[2 * pair * pixels] : 0.0f,
                                                  2 * pair + 1 < colours ? from[(2 * pair + 1) * pixels] : 0.0f);
    write_chunk(out + i * 16, chunks[0]);
    write_chunk(out + i * 16 + 8, chunks[1]);
}

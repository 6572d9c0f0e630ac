#include "kernels/matmul.h"

#include <immintrin.h>

#include "kernels/variants.h"

// One vector is the 16 rows of a panel.
namespace waste::kernels::avx512 {
namespace {

__m512i load(const std::byte* at) {
    return _mm512_load_si512(at);
}

__m512 widen_bf16(const std::byte* at) {
    const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/// Byte 0 stands for 2^-127, a subnormal; every other exponent is larger, so the maximum puts it right.
__m512 widen_e8m0(const std::byte* at) {
    const __m512i exponent = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
    const __m512i bits = _mm512_max_epu32(_mm512_slli_epi32(exponent, 23), _mm512_set1_epi32(0x00400000));
    return _mm512_castsi512_ps(bits);
}

__m512i broadcast_quad(const int8_t* codes) {
    int32_t quad;
    __builtin_memcpy(&quad, codes, sizeof quad);
    return _mm512_set1_epi32(quad);
}

/// The two chains of a block.
struct Chains {
    __m512 even;
    __m512 odd;
};

struct F32Block {
    static constexpr int64_t kBytes = kF32BlockBytes;

    static void accumulate(const std::byte* block, const float* x, Chains& sum) {
        for (int64_t c = 0; c < kBlockCols; c += 2) {
            const __m512 even = _mm512_load_ps(block + c * 64);
            const __m512 odd = _mm512_load_ps(block + c * 64 + 64);
            sum.even = _mm512_fmadd_ps(even, _mm512_set1_ps(x[c]), sum.even);
            sum.odd = _mm512_fmadd_ps(odd, _mm512_set1_ps(x[c + 1]), sum.odd);
        }
    }
};

struct Bf16Block {
    static constexpr int64_t kBytes = kBf16BlockBytes;

    static void accumulate(const std::byte* block, const float* x, Chains& sum) {
        const __m512i high = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u));
        for (int64_t c = 0; c < kBlockCols; c += 2) {
            const __m512i pairs = load(block + c * 32);
            const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
            const __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, high));
            sum.even = _mm512_fmadd_ps(even, _mm512_set1_ps(x[c]), sum.even);
            sum.odd = _mm512_fmadd_ps(odd, _mm512_set1_ps(x[c + 1]), sum.odd);
        }
    }
};

/// Adds four columns whose values stand in the four bytes of each lane; `decode` picks one by its shift.
template <typename Decode>
void accumulate_quad(const Decode& decode, __m512 scale, const float* x, Chains& sum) {
    sum.even = _mm512_fmadd_ps(_mm512_mul_ps(decode(0), scale), _mm512_set1_ps(x[0]), sum.even);
    sum.odd = _mm512_fmadd_ps(_mm512_mul_ps(decode(8), scale), _mm512_set1_ps(x[1]), sum.odd);
    sum.even = _mm512_fmadd_ps(_mm512_mul_ps(decode(16), scale), _mm512_set1_ps(x[2]), sum.even);
    sum.odd = _mm512_fmadd_ps(_mm512_mul_ps(decode(24), scale), _mm512_set1_ps(x[3]), sum.odd);
}

struct Q8Block {
    static constexpr int64_t kBytes = kQ8BlockBytes;
    static constexpr float kScaleFactor = 1.0f;

    static __m512 scale(const std::byte* block, int64_t group) {
        return widen_bf16(block + group / 2 * kPanelRows * 2);
    }

    static void accumulate(const std::byte* block, const float* x, Chains& sum) {
        for (int64_t quad = 0; quad < kBlockCols / 4; ++quad) {
            const __m512i codes = load(block + kQ8ScaleBytes + quad * 64);
            const auto decode = [codes](int shift) {
                const __m512i top = _mm512_sllv_epi32(codes, _mm512_set1_epi32(24 - shift));
                return _mm512_cvtepi32_ps(_mm512_srai_epi32(top, 24));
            };
            accumulate_quad(decode, scale(block, quad / 8), x + quad * 4, sum);
        }
    }

    /// vpdpbusd wants the weights unsigned: 128 more each, taken back through the sum of the activations.
    static __m512i dot(const std::byte* block, int64_t group, const int8_t* a, int32_t a_sum) {
        const std::byte* codes = block + kQ8ScaleBytes + group * kGroupCols * kPanelRows;
        const __m512i flip = _mm512_set1_epi8(-128);
        __m512i even = _mm512_set1_epi32(-128 * a_sum);
        __m512i odd = _mm512_setzero_si512();
        for (int64_t quad = 0; quad < 8; quad += 2) {
            const __m512i first = _mm512_xor_si512(load(codes + quad * 64), flip);
            const __m512i second = _mm512_xor_si512(load(codes + quad * 64 + 64), flip);
            even = _mm512_dpbusd_epi32(even, first, broadcast_quad(a + quad * 4));
            odd = _mm512_dpbusd_epi32(odd, second, broadcast_quad(a + quad * 4 + 4));
        }
        return _mm512_add_epi32(even, odd);
    }
};

/// A block of nibbles: in vector i of a group, quad i is in the low and quad i + 4 in the high halves.
/// `decode(lanes)` maps the low nibble of each lane to its value.
template <typename Decode>
void accumulate_nibbles(const std::byte* codes, const Decode& decode, __m512 scale, const float* x,
                        Chains& sum) {
    for (int half = 0; half < 2; ++half) {
        for (int64_t quad = 0; quad < 4; ++quad) {
            const __m512i bytes = load(codes + quad * 64);
            const auto column = [&](int shift) {
                return decode(_mm512_srlv_epi32(bytes, _mm512_set1_epi32(shift + half * 4)));
            };
            accumulate_quad(column, scale, x + half * 16 + quad * 4, sum);
        }
    }
}

/// `decode(bytes)` maps nibbles in bytes to unsigned codes, `offset` too large each.
template <typename Decode>
__m512i dot_nibbles(const std::byte* codes, const Decode& decode, int32_t offset, const int8_t* a,
                    int32_t a_sum) {
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i low = _mm512_set1_epi32(-offset * a_sum);
    __m512i high = _mm512_setzero_si512();
    for (int64_t quad = 0; quad < 4; ++quad) {
        const __m512i bytes = load(codes + quad * 64);
        const __m512i first = decode(_mm512_and_si512(bytes, nibble));
        const __m512i second = decode(_mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble));
        low = _mm512_dpbusd_epi32(low, first, broadcast_quad(a + quad * 4));
        high = _mm512_dpbusd_epi32(high, second, broadcast_quad(a + 16 + quad * 4));
    }
    return _mm512_add_epi32(low, high);
}

struct Q4Block {
    static constexpr int64_t kBytes = kQ4BlockBytes;
    static constexpr float kScaleFactor = 1.0f;

    static __m512 scale(const std::byte* block, int64_t group) {
        return widen_bf16(block + group * kPanelRows * 2);
    }

    static void accumulate(const std::byte* block, const float* x, Chains& sum) {
        const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
        const auto decode = [values](__m512i lanes) { return _mm512_permutexvar_ps(lanes, values); };
        for (int64_t group = 0; group < 4; ++group) {
            const std::byte* codes = block + kQ4ScaleBytes + group * kNibbleGroupBytes;
            accumulate_nibbles(codes, decode, scale(block, group), x + group * kGroupCols, sum);
        }
    }

    static __m512i dot(const std::byte* block, int64_t group, const int8_t* a, int32_t a_sum) {
        const std::byte* codes = block + kQ4ScaleBytes + group * kNibbleGroupBytes;
        return dot_nibbles(
            codes, [](__m512i stored) { return stored; }, 8, a, a_sum);
    }
};

struct Mxfp4Block {
    static constexpr int64_t kBytes = kMxfp4BlockBytes;
    static constexpr float kScaleFactor = 0.5f;  // because the codes are doubled

    static __m512 scale(const std::byte* block, int64_t group) {
        return widen_e8m0(block + group * kPanelRows);
    }

    static void accumulate(const std::byte* block, const float* x, Chains& sum) {
        const __m512 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f,  //
                                             0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
        const auto decode = [values](__m512i lanes) { return _mm512_permutexvar_ps(lanes, values); };
        for (int64_t group = 0; group < 4; ++group) {
            const std::byte* codes = block + kMxfp4ScaleBytes + group * kNibbleGroupBytes;
            accumulate_nibbles(codes, decode, scale(block, group), x + group * kGroupCols, sum);
        }
    }

    static __m512i dot(const std::byte* block, int64_t group, const int8_t* a, int32_t a_sum) {
        const std::byte* codes = block + kMxfp4ScaleBytes + group * kNibbleGroupBytes;
        const __m512i doubled_plus_12 =
            _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
        const auto decode = [doubled_plus_12](__m512i nibbles) {
            return _mm512_shuffle_epi8(doubled_plus_12, nibbles);
        };
        return dot_nibbles(codes, decode, 12, a, a_sum);
    }
};

void store_rows(__m512 total, int64_t rows, float* y) {
    const auto mask = static_cast<__mmask16>(rows >= kPanelRows ? 0xffff : (1 << rows) - 1);
    _mm512_mask_storeu_ps(y, mask, total);
}

template <typename Block>
void one_f32(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y) {
    const int64_t full_blocks = w.cols / kBlockCols;
    const int64_t blocks = (w.cols + kBlockCols - 1) / kBlockCols;
    // The last block may reach past x.
    float tail[kBlockCols] = {};
    for (int64_t c = full_blocks * kBlockCols; c < w.cols; ++c) tail[c % kBlockCols] = x[c];

    const std::byte* block = w.data + panel_begin * blocks * Block::kBytes;
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        __m512 total = _mm512_setzero_ps();
        for (int64_t b = 0; b < blocks; ++b, block += Block::kBytes) {
            Chains sum{_mm512_setzero_ps(), _mm512_setzero_ps()};
            Block::accumulate(block, b < full_blocks ? x + b * kBlockCols : tail, sum);
            total = _mm512_add_ps(total, _mm512_add_ps(sum.even, sum.odd));
        }
        store_rows(total, w.rows - panel * kPanelRows, y + panel * kPanelRows);
    }
}

template <typename Block>
void one_int8(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end, float* y) {
    const int64_t blocks = (w.cols + kBlockCols - 1) / kBlockCols;
    const std::byte* block = w.data + panel_begin * blocks * Block::kBytes;
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        __m512 total = _mm512_setzero_ps();
        for (int64_t b = 0; b < blocks; ++b, block += Block::kBytes) {
            for (int64_t g = 0; g < 4; ++g) {
                const int64_t group = b * x.stride * 4 + g;
                const __m512i dot = Block::dot(block, g, x.codes + group * kGroupCols, x.sums[group]);
                const __m512 activation_scale = _mm512_set1_ps(Block::kScaleFactor * x.scales[group]);
                const __m512 scale = _mm512_mul_ps(Block::scale(block, g), activation_scale);
                total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, total);
            }
        }
        store_rows(total, w.rows - panel * kPanelRows, y + panel * kPanelRows);
    }
}

template <typename Block>
void run_f32(const Panels& w, const float* x, int64_t x_stride, int64_t tokens, int64_t panel_begin,
             int64_t panel_end, float* y, int64_t y_stride) {
    for (int64_t t = 0; t < tokens; ++t) {
        one_f32<Block>(w, x + t * x_stride, panel_begin, panel_end, y + t * y_stride);
    }
}

template <typename Block>
void run_int8(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end, float* y,
              int64_t y_stride) {
    for (int64_t t = 0; t < x.tokens; ++t) {
        one_int8<Block>(w, x.part(t, 1), panel_begin, panel_end, y + t * y_stride);
    }
}

}  // namespace

const MatmulF32Variant kMatmulF32[] = {
    {Tier::avx512, Format::f32, run_f32<F32Block>},     {Tier::avx512, Format::bf16, run_f32<Bf16Block>},
    {Tier::avx512, Format::q8, run_f32<Q8Block>},       {Tier::avx512, Format::q4, run_f32<Q4Block>},
    {Tier::avx512, Format::mxfp4, run_f32<Mxfp4Block>},
};

const MatmulInt8Variant kMatmulInt8[] = {
    {Tier::avx512, Format::q8, run_int8<Q8Block>},
    {Tier::avx512, Format::q4, run_int8<Q4Block>},
    {Tier::avx512, Format::mxfp4, run_int8<Mxfp4Block>},
};

}  // namespace waste::kernels::avx512

#include "kernels/matmul.h"

#include <immintrin.h>

#include "kernels/variants.h"

// Two vectors are the 16 rows of a panel: `half` 0 has rows 0-7, `half` 1 rows 8-15.
namespace waste::kernels::avx2 {
namespace {

__m256i load(const std::byte* at) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
}
__m128i load_half(const std::byte* at) {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(at));
}

__m256 widen_bf16(const std::byte* at) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_half(at)), 16));
}

/// Byte 0 stands for 2^-127, a subnormal; every other exponent is larger, so the maximum puts it right.
__m256 widen_e8m0(const std::byte* at) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23);
    return _mm256_castsi256_ps(_mm256_max_epu32(bits, _mm256_set1_epi32(0x00400000)));
}

__m256i broadcast_quad(const int8_t* codes) {
    int32_t quad;
    __builtin_memcpy(&quad, codes, sizeof quad);
    return _mm256_set1_epi32(quad);
}

/// Adds the pairs of 16-bit sums.
__m256i fold_pairs(__m256i sums) {
    return _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
}

/// The two chains of a block for both halves of the rows.
struct Chains {
    __m256 even[2];
    __m256 odd[2];

    void add_even(int half, __m256 weight, float x) {
        even[half] = _mm256_fmadd_ps(weight, _mm256_set1_ps(x), even[half]);
    }
    void add_odd(int half, __m256 weight, float x) {
        odd[half] = _mm256_fmadd_ps(weight, _mm256_set1_ps(x), odd[half]);
    }
};

struct F32Block {
    static constexpr int64_t kBytes = kF32BlockBytes;

    static void accumulate(const std::byte* block, const float* x, Chains& sum) {
        for (int64_t c = 0; c < kBlockCols; c += 2) {
            for (int half = 0; half < 2; ++half) {
                const std::byte* at = block + c * 64 + half * 32;
                sum.add_even(half, _mm256_castsi256_ps(load(at)), x[c]);
                sum.add_odd(half, _mm256_castsi256_ps(load(at + 64)), x[c + 1]);
            }
        }
    }
};

struct Bf16Block {
    static constexpr int64_t kBytes = kBf16BlockBytes;

    static void accumulate(const std::byte* block, const float* x, Chains& sum) {
        const __m256i high = _mm256_set1_epi32(static_cast<int32_t>(0xffff0000u));
        for (int64_t c = 0; c < kBlockCols; c += 2) {
            for (int half = 0; half < 2; ++half) {
                const __m256i pairs = load(block + c * 32 + half * 32);
                sum.add_even(half, _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)), x[c]);
                sum.add_odd(half, _mm256_castsi256_ps(_mm256_and_si256(pairs, high)), x[c + 1]);
            }
        }
    }
};

/// Adds four columns whose signed codes stand in the four bytes of each lane.
void accumulate_quad(__m256i codes, __m256 scale, int half, const float* x, Chains& sum) {
    const auto weight = [codes, scale](int shift) {
        const __m256i top = _mm256_sllv_epi32(codes, _mm256_set1_epi32(24 - shift));
        return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(top, 24)), scale);
    };
    sum.add_even(half, weight(0), x[0]);
    sum.add_odd(half, weight(8), x[1]);
    sum.add_even(half, weight(16), x[2]);
    sum.add_odd(half, weight(24), x[3]);
}

struct Q8Block {
    static constexpr int64_t kBytes = kQ8BlockBytes;
    static constexpr float kScaleFactor = 1.0f;

    static __m256 scale(const std::byte* block, int64_t group, int half) {
        return widen_bf16(block + (group / 2 * kPanelRows + half * 8) * 2);
    }

    static void accumulate(const std::byte* block, const float* x, Chains& sum) {
        for (int64_t quad = 0; quad < kBlockCols / 4; ++quad) {
            for (int half = 0; half < 2; ++half) {
                const __m256i codes = load(block + kQ8ScaleBytes + quad * 64 + half * 32);
                accumulate_quad(codes, scale(block, quad / 8, half), half, x + quad * 4, sum);
            }
        }
    }

    /// Weights lose their sign to the activations: 2 * 127 * 127 fits 16 bits, an unsigned offset would not.
    static __m256i dot(const std::byte* block, int64_t group, int half, const int8_t* a, int32_t) {
        const std::byte* codes = block + kQ8ScaleBytes + group * kGroupCols * kPanelRows + half * 32;
        __m256i sum = _mm256_setzero_si256();
        for (int64_t quad = 0; quad < 8; ++quad) {
            const __m256i weights = load(codes + quad * 64);
            const __m256i signed_a = _mm256_sign_epi8(broadcast_quad(a + quad * 4), weights);
            const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), signed_a);
            sum = _mm256_add_epi32(sum, fold_pairs(pairs));
        }
        return sum;
    }
};

/// A block of nibbles: in vector i of a group, quad i is in the low and quad i + 4 in the high halves.
/// `decode(bytes)` maps nibbles to signed codes; `scale` is that of one code.
template <typename Decode>
void accumulate_nibbles(const std::byte* codes, const Decode& decode, __m256 scale, int half, const float* x,
                        Chains& sum) {
    const __m256i nibble = _mm256_set1_epi8(15);
    for (int64_t quad = 0; quad < 4; ++quad) {
        const __m256i low = _mm256_and_si256(load(codes + quad * 64 + half * 32), nibble);
        accumulate_quad(decode(low), scale, half, x + quad * 4, sum);
    }
    for (int64_t quad = 0; quad < 4; ++quad) {
        const __m256i bytes = load(codes + quad * 64 + half * 32);
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
        accumulate_quad(decode(high), scale, half, x + 16 + quad * 4, sum);
    }
}

/// `decode(bytes)` maps nibbles to unsigned codes of at most 24, `offset` too large each: four products of
/// pairs stay below 2^15, so 16-bit sums last for one nibble of a group.
template <typename Decode>
__m256i dot_nibbles(const std::byte* codes, const Decode& decode, int32_t offset, const int8_t* a,
                    int32_t a_sum) {
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i low = _mm256_setzero_si256();
    __m256i high = _mm256_setzero_si256();
    for (int64_t quad = 0; quad < 4; ++quad) {
        const __m256i bytes = load(codes + quad * 64);
        const __m256i first = decode(_mm256_and_si256(bytes, nibble));
        const __m256i second = decode(_mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble));
        low = _mm256_add_epi16(low, _mm256_maddubs_epi16(first, broadcast_quad(a + quad * 4)));
        high = _mm256_add_epi16(high, _mm256_maddubs_epi16(second, broadcast_quad(a + 16 + quad * 4)));
    }
    const __m256i sum = _mm256_add_epi32(fold_pairs(low), fold_pairs(high));
    return _mm256_sub_epi32(sum, _mm256_set1_epi32(offset * a_sum));
}

struct Q4Block {
    static constexpr int64_t kBytes = kQ4BlockBytes;
    static constexpr float kScaleFactor = 1.0f;

    static __m256 scale(const std::byte* block, int64_t group, int half) {
        return widen_bf16(block + (group * kPanelRows + half * 8) * 2);
    }

    static void accumulate(const std::byte* block, const float* x, Chains& sum) {
        const auto decode = [](__m256i stored) { return _mm256_sub_epi8(stored, _mm256_set1_epi8(8)); };
        for (int64_t group = 0; group < 4; ++group) {
            const std::byte* codes = block + kQ4ScaleBytes + group * kNibbleGroupBytes;
            for (int half = 0; half < 2; ++half) {
                accumulate_nibbles(codes, decode, scale(block, group, half), half, x + group * kGroupCols,
                                   sum);
            }
        }
    }

    static __m256i dot(const std::byte* block, int64_t group, int half, const int8_t* a, int32_t a_sum) {
        const std::byte* codes = block + kQ4ScaleBytes + group * kNibbleGroupBytes + half * 32;
        return dot_nibbles(
            codes, [](__m256i stored) { return stored; }, 8, a, a_sum);
    }
};

struct Mxfp4Block {
    static constexpr int64_t kBytes = kMxfp4BlockBytes;
    static constexpr float kScaleFactor = 0.5f;  // because the codes are doubled

    static __m256 scale(const std::byte* block, int64_t group, int half) {
        return widen_e8m0(block + group * kPanelRows + half * 8);
    }

    static void accumulate(const std::byte* block, const float* x, Chains& sum) {
        const __m256i doubled = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
        const auto decode = [doubled](__m256i nibbles) { return _mm256_shuffle_epi8(doubled, nibbles); };
        const __m256 factor = _mm256_set1_ps(kScaleFactor);
        for (int64_t group = 0; group < 4; ++group) {
            const std::byte* codes = block + kMxfp4ScaleBytes + group * kNibbleGroupBytes;
            for (int half = 0; half < 2; ++half) {
                const __m256 code_scale = _mm256_mul_ps(factor, scale(block, group, half));
                accumulate_nibbles(codes, decode, code_scale, half, x + group * kGroupCols, sum);
            }
        }
    }

    static __m256i dot(const std::byte* block, int64_t group, int half, const int8_t* a, int32_t a_sum) {
        const std::byte* codes = block + kMxfp4ScaleBytes + group * kNibbleGroupBytes + half * 32;
        const __m256i doubled_plus_12 = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
        const auto decode = [doubled_plus_12](__m256i nibbles) {
            return _mm256_shuffle_epi8(doubled_plus_12, nibbles);
        };
        return dot_nibbles(codes, decode, 12, a, a_sum);
    }
};

void store_rows(const __m256 (&total)[2], int64_t rows, float* y) {
    for (int half = 0; half < 2; ++half, rows -= 8, y += 8) {
        const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        const auto present = static_cast<int32_t>(rows < 8 ? rows : 8);
        _mm256_maskstore_ps(y, _mm256_cmpgt_epi32(_mm256_set1_epi32(present), lane), total[half]);
    }
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
        __m256 total[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int64_t b = 0; b < blocks; ++b, block += Block::kBytes) {
            Chains sum{{_mm256_setzero_ps(), _mm256_setzero_ps()},
                       {_mm256_setzero_ps(), _mm256_setzero_ps()}};
            Block::accumulate(block, b < full_blocks ? x + b * kBlockCols : tail, sum);
            for (int half = 0; half < 2; ++half) {
                total[half] = _mm256_add_ps(total[half], _mm256_add_ps(sum.even[half], sum.odd[half]));
            }
        }
        store_rows(total, w.rows - panel * kPanelRows, y + panel * kPanelRows);
    }
}

template <typename Block>
void one_int8(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end, float* y) {
    const int64_t blocks = (w.cols + kBlockCols - 1) / kBlockCols;
    const std::byte* block = w.data + panel_begin * blocks * Block::kBytes;
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        __m256 total[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int64_t b = 0; b < blocks; ++b, block += Block::kBytes) {
            for (int64_t g = 0; g < 4; ++g) {
                const int64_t group = b * x.stride * 4 + g;
                const __m256 activation_scale = _mm256_set1_ps(Block::kScaleFactor * x.scales[group]);
                for (int half = 0; half < 2; ++half) {
                    const __m256i dot =
                        Block::dot(block, g, half, x.codes + group * kGroupCols, x.sums[group]);
                    const __m256 scale = _mm256_mul_ps(Block::scale(block, g, half), activation_scale);
                    total[half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, total[half]);
                }
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
    {Tier::avx2, Format::f32, run_f32<F32Block>},     {Tier::avx2, Format::bf16, run_f32<Bf16Block>},
    {Tier::avx2, Format::q8, run_f32<Q8Block>},       {Tier::avx2, Format::q4, run_f32<Q4Block>},
    {Tier::avx2, Format::mxfp4, run_f32<Mxfp4Block>},
};

const MatmulInt8Variant kMatmulInt8[] = {
    {Tier::avx2, Format::q8, run_int8<Q8Block>},
    {Tier::avx2, Format::q4, run_int8<Q4Block>},
    {Tier::avx2, Format::mxfp4, run_int8<Mxfp4Block>},
};

}  // namespace waste::kernels::avx2

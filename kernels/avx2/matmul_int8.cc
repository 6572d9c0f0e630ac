#include "kernels/avx2/int8.h"

namespace waste::kernels::avx2 {
namespace {

/// Adds the pairs of 16-bit sums.
__m256i fold_pairs(__m256i sums) {
    return _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
}

/// Keeps GCC from reassociating a sum of integers into a tree, which takes more registers than there are.
void keep_order(__m256i& sum) {
    asm("" : "+x"(sum));
}

/// vpmaddubsw leaves pairs of products in 16 bits. Small weights let such pairs add up before they are widened.
struct Sum {
    static constexpr int kTokens = 4;

    static constexpr int64_t safe_quads(int32_t largest) { return 8 * 2 * 127 * largest < 0x8000 ? 8 : 4; }

    Sum() = default;
    explicit Sum(int32_t) : pairs(_mm256_setzero_si256()) {}
    void add(__m256i weights, __m256i activations) {
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(weights, activations));
        keep_order(pairs);
    }
    __m256i total(int32_t start) const {
        return _mm256_add_epi32(fold_pairs(pairs), _mm256_set1_epi32(start));
    }

    __m256i pairs;
};
static_assert(4 * 2 * 127 * Mxfp4Layout::kLargest < 0x8000);

/// Weights lose their sign to the activations: 2 * 127 * 127 fits 16 bits, an unsigned offset would not. Tried
/// on paper only: 16-bit weights and activations for vpmaddwd, and two planes of nibbles, need as many
/// instructions.
struct Q8Block : Q8Layout {
    static constexpr int kTokens = 4;
    static constexpr int32_t kOffset = 0;

    static __m256i multiply(__m256i magnitudes, __m256i weights, __m256i activations) {
        return fold_pairs(_mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(activations, weights)));
    }

    static const std::byte* unpack_codes(const std::byte* block, std::byte*) { return block + kQ8ScaleBytes; }

    template <int kUsedTokens>
    static void dots(const std::byte* codes, int64_t group, const int8_t* a, const int32_t (*)[kBlockGroups],
                     __m256i (*dot)[2]) {
        for (int t = 0; t < kUsedTokens; ++t) dot[t][0] = dot[t][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int64_t quad = 0; quad < 8; ++quad) {
            for (int half = 0; half < 2; ++half) {
                const __m256i weights = load(codes + group * 512 + quad * 64 + half * 32);
                const __m256i magnitudes = _mm256_abs_epi8(weights);
                for (int t = 0; t < kUsedTokens; ++t) {
                    const __m256i activations = broadcast_quad(a + t * kBlockCols + quad * 4);
                    dot[t][half] = _mm256_add_epi32(dot[t][half], multiply(magnitudes, weights, activations));
                    keep_order(dot[t][half]);
                }
            }
        }
    }

    static __m256i dot(const std::byte* block, int64_t group, int half, const int8_t* a, int32_t) {
        const std::byte* codes = block + kQ8ScaleBytes + group * kGroupCols * kPanelRows + half * 32;
        __m256i sum = _mm256_setzero_si256();
        for (int64_t quad = 0; quad < 8; ++quad) {
            const __m256i weights = load(codes + quad * 64);
            const __m256i activations = broadcast_quad(a + quad * 4);
            sum = _mm256_add_epi32(sum, multiply(_mm256_abs_epi8(weights), weights, activations));
        }
        return sum;
    }
};

}  // namespace

const MatmulInt8Variant kMatmulInt8[] = {
    {Tier::avx2, Format::q8, run_int8<Q8Block>},
    {Tier::avx2, Format::q4, run_int8<NibbleBlock<Q4Layout, Sum>>},
    {Tier::avx2, Format::mxfp4, run_int8<NibbleBlock<Mxfp4Layout, Sum>>},
};

}  // namespace waste::kernels::avx2

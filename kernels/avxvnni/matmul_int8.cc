#include "kernels/avx2/int8.h"

namespace waste::kernels::avxvnni {
namespace {

/// 6 tokens x 2 halves are 12 sums, enough to cover the latency of 5 cycles at two a cycle.
struct Sum {
    static constexpr int kTokens = 6;

    static constexpr int64_t safe_quads(int32_t) { return 8; }

    Sum() = default;
    explicit Sum(int32_t start) : lanes(_mm256_set1_epi32(start)) {}
    void add(__m256i weights, __m256i activations) {
        lanes = _mm256_dpbusd_avx_epi32(lanes, weights, activations);
    }
    __m256i total(int32_t) const { return lanes; }

    __m256i lanes;
};

/// vpdpbusd wants the weights unsigned: 128 more each, taken back through the sum of the activations.
struct Q8Block : Q8Layout {
    static constexpr int kTokens = Sum::kTokens;
    static constexpr int32_t kOffset = 128;

    static __m256i flip_sign(__m256i codes) { return _mm256_xor_si256(codes, _mm256_set1_epi8(-128)); }

    static const std::byte* unpack_codes(const std::byte* block, std::byte* scratch) {
        for (int64_t i = 0; i < kBlockCols * kPanelRows; i += 32) {
            const __m256i codes = load(block + kQ8ScaleBytes + i);
            _mm256_store_si256(reinterpret_cast<__m256i*>(scratch + i), flip_sign(codes));
        }
        return scratch;
    }

    template <int kUsedTokens>
    static void dots(const std::byte* codes, int64_t group, const int8_t* a,
                     const int32_t (*starts)[kBlockGroups], __m256i (*dot)[2]) {
        sum_group<Sum, 255, kUsedTokens>(codes + group * 512, a, starts, dot);
    }

    static __m256i dot(const std::byte* block, int64_t group, int half, const int8_t* a, int32_t a_sum) {
        const std::byte* codes = block + kQ8ScaleBytes + group * kGroupCols * kPanelRows + half * 32;
        Sum even(-kOffset * a_sum);
        Sum odd(0);
        for (int64_t quad = 0; quad < 8; quad += 2) {
            even.add(flip_sign(load(codes + quad * 64)), broadcast_quad(a + quad * 4));
            odd.add(flip_sign(load(codes + quad * 64 + 64)), broadcast_quad(a + quad * 4 + 4));
        }
        return _mm256_add_epi32(even.total(0), odd.total(0));
    }
};

}  // namespace

const MatmulInt8Variant kMatmulInt8[] = {
    {Tier::avxvnni, Format::q8, run_int8<Q8Block>},
    {Tier::avxvnni, Format::q4, run_int8<NibbleBlock<Q4Layout, Sum>>},
    {Tier::avxvnni, Format::mxfp4, run_int8<NibbleBlock<Mxfp4Layout, Sum>>},
};

}  // namespace waste::kernels::avxvnni

// The integer formats as this tier reads them: scales; signed codes in column quads [32 quads][16 rows][4]; and
// the dot product of one group with one token straight from the block.
#pragma once

#include "kernels/neon/lanes.h"

namespace waste::kernels {
namespace {

/// A block of nibbles: in vector i of a group, quad i is in the low and quad i + 4 in the high halves.
/// Format::decode maps nibbles to signed codes.
template <typename Format>
inline const int8_t* unpack_nibbles(const std::byte* codes, int8_t* to) {
    const auto* from = at<uint8_t>(codes);
    for (int64_t group = 0; group < kBlockGroups; ++group, from += 256) {
        for (int64_t i = 0; i < 256; i += 16) {
            const uint8x16_t both = vld1q_u8(from + i);
            vst1q_s8(to + group * 512 + i, Format::decode(vandq_u8(both, vdupq_n_u8(15))));
            vst1q_s8(to + group * 512 + 256 + i, Format::decode(vshrq_n_u8(both, 4)));
        }
    }
    return to;
}

inline int8x16_t broadcast_quad(const int8_t* codes) {
    int32_t quad;
    __builtin_memcpy(&quad, codes, sizeof quad);
    return vreinterpretq_s8_s32(vdupq_n_s32(quad));
}

template <typename Format>
inline int32x4_t dot_nibbles(const std::byte* codes, int64_t group, int part, const int8_t* a) {
    const auto* bytes = at<uint8_t>(codes + group * kNibbleGroupBytes + part * 16);
    int32x4_t low = vdupq_n_s32(0);
    int32x4_t high = vdupq_n_s32(0);
    for (int64_t quad = 0; quad < 4; ++quad) {
        const uint8x16_t both = vld1q_u8(bytes + quad * 64);
        const int8x16_t first = Format::decode(vandq_u8(both, vdupq_n_u8(15)));
        const int8x16_t second = Format::decode(vshrq_n_u8(both, 4));
        low = vdotq_s32(low, first, broadcast_quad(a + quad * 4));
        high = vdotq_s32(high, second, broadcast_quad(a + 16 + quad * 4));
    }
    return vaddq_s32(low, high);
}

struct Q8Layout {
    static constexpr int64_t kBytes = kQ8BlockBytes;
    static constexpr float kScaleFactor = 1.0f;

    static float32x4_t scale(const std::byte* block, int64_t group, int part) {
        return widen_bf16(block + (group / 2 * kPanelRows + part * 4) * 2);
    }
    static const int8_t* signed_codes(const std::byte* block, int8_t*) {
        return at<int8_t>(block + kQ8ScaleBytes);
    }
    static int32x4_t dot(const std::byte* block, int64_t group, int part, const int8_t* a) {
        const auto* codes = at<int8_t>(block + kQ8ScaleBytes + group * kGroupCols * kPanelRows + part * 16);
        int32x4_t sum = vdupq_n_s32(0);
        for (int64_t quad = 0; quad < 8; ++quad) {
            sum = vdotq_s32(sum, vld1q_s8(codes + quad * 64), broadcast_quad(a + quad * 4));
        }
        return sum;
    }
};

struct Q4Layout {
    static constexpr int64_t kBytes = kQ4BlockBytes;
    static constexpr float kScaleFactor = 1.0f;

    static float32x4_t scale(const std::byte* block, int64_t group, int part) {
        return widen_bf16(block + (group * kPanelRows + part * 4) * 2);
    }
    static int8x16_t decode(uint8x16_t stored) {
        return vsubq_s8(vreinterpretq_s8_u8(stored), vdupq_n_s8(8));
    }
    static const int8_t* signed_codes(const std::byte* block, int8_t* scratch) {
        return unpack_nibbles<Q4Layout>(block + kQ4ScaleBytes, scratch);
    }
    static int32x4_t dot(const std::byte* block, int64_t group, int part, const int8_t* a) {
        return dot_nibbles<Q4Layout>(block + kQ4ScaleBytes, group, part, a);
    }
};

struct Mxfp4Layout {
    static constexpr int64_t kBytes = kMxfp4BlockBytes;
    static constexpr float kScaleFactor = 0.5f;  // because the codes are doubled

    static float32x4_t scale(const std::byte* block, int64_t group, int part) {
        return widen_e8m0(block + group * kPanelRows + part * 4);
    }
    static int8x16_t decode(uint8x16_t nibbles) {
        alignas(16) constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
        return vqtbl1q_s8(vld1q_s8(kDoubled), nibbles);
    }
    static const int8_t* signed_codes(const std::byte* block, int8_t* scratch) {
        return unpack_nibbles<Mxfp4Layout>(block + kMxfp4ScaleBytes, scratch);
    }
    static int32x4_t dot(const std::byte* block, int64_t group, int part, const int8_t* a) {
        return dot_nibbles<Mxfp4Layout>(block + kMxfp4ScaleBytes, group, part, a);
    }
};

}  // namespace
}  // namespace waste::kernels

// The panel layout: how a weight matrix lies in memory, on disk and in every kernel.
//
// A matrix W [rows][cols] (rows = outputs, cols = inputs) is cut into panels of 16 rows. A panel is a run of
// blocks of 128 columns; a block holds its scales first, then its codes:
//
//   f32     codes [128 cols][16 rows] f32
//   bf16    codes [64 column pairs][16 rows][2] bf16
//   q8      scales [2 groups of 64][16 rows] bf16;  codes [32 column quads][16 rows][4] int8, -127..127
//   q4      scales [4 groups of 32][16 rows] bf16;  nibbles (below) of code + 8, code -8..7
//   mxfp4   scales [4 groups of 32][16 rows] E8M0;  nibbles (below) of E2M1
//
// Nibbles: a group of 32 columns is eight column quads of 64 codes [16 rows][4]. It is stored as four vectors
// of 64 bytes; byte j of vector i has code j of quad i in its low and code j of quad i + 4 in its high
// nibble.
//
// Rows are padded to a multiple of 16 and columns to a multiple of 128; padding decodes to zero. Block sizes
// are multiples of 64 bytes, so every block starts on a cache line where the matrix does.
#pragma once

#include <cstddef>
#include <cstdint>

namespace waste::kernels {

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kBlockCols = 128;
/// Columns that share one activation scale in the integer kernels, and one weight scale in q4 and mxfp4.
inline constexpr int64_t kGroupCols = 32;
inline constexpr int64_t kBlockGroups = kBlockCols / kGroupCols;

enum class Format : uint8_t { f32, bf16, q8, q4, mxfp4 };
inline constexpr int kFormatCount = 5;

/// A matrix in panel layout that somebody else owns. `data` is aligned to 64 bytes.
struct Panels {
    const std::byte* data;
    int64_t rows;
    int64_t cols;
};

}  // namespace waste::kernels

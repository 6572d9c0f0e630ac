// The table of weight formats: one row each. Layouts are drawn in panel.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/panel.h"

namespace waste::kernels {

struct FormatInfo {
    Format format;
    std::string_view name;
    int64_t block_bytes;  ///< 16 rows x 128 columns, scales included
    bool int8_kernel;     ///< the integer kernels take it (activations are quantized); otherwise f32 only

    /// Encodes one panel. `rows` [16][cols] row-major f32, missing rows zero; `panel` receives panel_bytes().
    /// Null for mxfp4, which is only ever repacked (mxfp4.h), so that converting loses nothing.
    void (*encode)(const float* rows, int64_t cols, std::byte* panel);
    /// Decodes one panel into row-major f32 `rows` [16][cols]. Exact for every format.
    void (*decode)(const std::byte* panel, int64_t cols, float* rows);
};

const FormatInfo& format_info(Format format);
std::span<const FormatInfo> all_formats();
std::optional<Format> format_from_name(std::string_view name);

inline constexpr int64_t panel_count(int64_t rows) {
    return (rows + kPanelRows - 1) / kPanelRows;
}
inline constexpr int64_t block_count(int64_t cols) {
    return (cols + kBlockCols - 1) / kBlockCols;
}

/// Bytes of one panel, and of a whole matrix. rows and cols are below 2^31 each (the caller's duty);
/// a product past INT64_MAX is given as INT64_MAX.
int64_t panel_bytes(Format format, int64_t cols);
int64_t matrix_bytes(Format format, int64_t rows, int64_t cols);

}  // namespace waste::kernels

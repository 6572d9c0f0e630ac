// MXFP4 as compressed-tensors stores it ("mxfp4-pack-quantized"), and its repacking into panels.
//
//   packed [rows][cols/2]   two E2M1 codes a byte, the even column in the low nibble
//   scale  [rows][cols/32]  E8M0: factor 2^(e-127) for 32 consecutive columns of a row
//   E2M1: bit 3 sign, magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6
//
// Source: OCP Microscaling Formats 1.0, section 5.3-5.4; byte 255 is NaN there and is refused by the reader
// before it gets here. Byte 0 is 2^-127.
#pragma once

#include <cstddef>
#include <cstdint>

namespace waste::kernels {

/// Row-major f32 [rows][cols] of a packed matrix; cols a multiple of 32. Exact, subnormal products included.
void mxfp4_unpack(const uint8_t* packed, const uint8_t* scale, int64_t rows, int64_t cols, float* out);

/// One panel of 16 rows (fewer in the last: `rows`) repacked without loss. `packed` and `scale` point at the
/// panel's first row; `panel` receives panel_bytes(Format::mxfp4, cols).
void mxfp4_repack_panel(const uint8_t* packed, const uint8_t* scale, int64_t rows, int64_t cols,
                        std::byte* panel);

}  // namespace waste::kernels

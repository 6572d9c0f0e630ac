// NEON: the vectors that kernels/portable is written in.
#pragma once

#include <arm_neon.h>

namespace waste::kernels {
namespace {

inline constexpr int kVectorBytes = 16;
using Floats __attribute__((vector_size(kVectorBytes))) = float;

inline Floats fma(Floats a, Floats b, Floats c) {
    return vfmaq_f32(c, a, b);
}

}  // namespace
}  // namespace waste::kernels

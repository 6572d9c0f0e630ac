// AVX-512: the vectors that kernels/portable is written in.
#pragma once

#include <immintrin.h>

namespace waste::kernels {
namespace {

inline constexpr int kVectorBytes = 64;
using Floats __attribute__((vector_size(kVectorBytes))) = float;

inline Floats fma(Floats a, Floats b, Floats c) {
    return _mm512_fmadd_ps(a, b, c);
}

}  // namespace
}  // namespace waste::kernels

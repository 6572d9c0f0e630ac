// SSE2 or NEON without fma instructions, as any CPU has it: the vectors that kernels/portable is written in.
#pragma once

namespace waste::kernels {
namespace {

inline constexpr int kVectorBytes = 16;
using Floats __attribute__((vector_size(kVectorBytes))) = float;

inline Floats fma(Floats a, Floats b, Floats c) {
    return Floats{__builtin_fmaf(a[0], b[0], c[0]), __builtin_fmaf(a[1], b[1], c[1]),
                  __builtin_fmaf(a[2], b[2], c[2]), __builtin_fmaf(a[3], b[3], c[3])};
}

}  // namespace
}  // namespace waste::kernels

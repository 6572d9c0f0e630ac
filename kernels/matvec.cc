#include "kernels/matvec.h"

#include "kernels/variants.h"

namespace waste::kernels {
namespace {

constexpr MatvecF32Variant kF32Variants[] = {
    {Tier::scalar, Format::f32, scalar::matvec_f32_f32},
    {Tier::scalar, Format::bf16, scalar::matvec_f32_bf16},
    {Tier::scalar, Format::q8, scalar::matvec_f32_q8},
    {Tier::scalar, Format::q4, scalar::matvec_f32_q4},
    {Tier::scalar, Format::mxfp4, scalar::matvec_f32_mxfp4},
#if defined(__x86_64__)
    {Tier::avx2, Format::f32, avx2::matvec_f32_f32},
    {Tier::avx2, Format::bf16, avx2::matvec_f32_bf16},
    {Tier::avx2, Format::q8, avx2::matvec_f32_q8},
    {Tier::avx2, Format::q4, avx2::matvec_f32_q4},
    {Tier::avx2, Format::mxfp4, avx2::matvec_f32_mxfp4},
    {Tier::avx512, Format::f32, avx512::matvec_f32_f32},
    {Tier::avx512, Format::bf16, avx512::matvec_f32_bf16},
    {Tier::avx512, Format::q8, avx512::matvec_f32_q8},
    {Tier::avx512, Format::q4, avx512::matvec_f32_q4},
    {Tier::avx512, Format::mxfp4, avx512::matvec_f32_mxfp4},
#elif defined(__aarch64__)
    {Tier::neon, Format::f32, neon::matvec_f32_f32},
    {Tier::neon, Format::bf16, neon::matvec_f32_bf16},
    {Tier::neon, Format::q8, neon::matvec_f32_q8},
    {Tier::neon, Format::q4, neon::matvec_f32_q4},
    {Tier::neon, Format::mxfp4, neon::matvec_f32_mxfp4},
#endif
};

constexpr MatvecInt8Variant kInt8Variants[] = {
    {Tier::scalar, Format::q8, scalar::matvec_int8_q8},
    {Tier::scalar, Format::q4, scalar::matvec_int8_q4},
    {Tier::scalar, Format::mxfp4, scalar::matvec_int8_mxfp4},
#if defined(__x86_64__)
    {Tier::avx2, Format::q8, avx2::matvec_int8_q8},
    {Tier::avx2, Format::q4, avx2::matvec_int8_q4},
    {Tier::avx2, Format::mxfp4, avx2::matvec_int8_mxfp4},
    {Tier::avx512, Format::q8, avx512::matvec_int8_q8},
    {Tier::avx512, Format::q4, avx512::matvec_int8_q4},
    {Tier::avx512, Format::mxfp4, avx512::matvec_int8_mxfp4},
#elif defined(__aarch64__)
    {Tier::neon, Format::q8, neon::matvec_int8_q8},
    {Tier::neon, Format::q4, neon::matvec_int8_q4},
    {Tier::neon, Format::mxfp4, neon::matvec_int8_mxfp4},
#endif
};

}  // namespace

std::span<const MatvecF32Variant> matvec_f32_variants() {
    return kF32Variants;
}
std::span<const MatvecInt8Variant> matvec_int8_variants() {
    return kInt8Variants;
}

}  // namespace waste::kernels

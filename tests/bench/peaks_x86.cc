#include "tests/bench/loop_rate.h"
#include "tests/bench/peaks.h"

// Loops stand in assembly whole, so that one object for every CPU can hold the instructions of all tiers. The
// registers from 16 on belong to no code of this file's baseline and cannot be named as clobbered.

namespace waste::bench {
namespace {

using kernels::Tier;

void loop_vnni_512(int64_t rounds) {
    asm volatile(
        "1:\n"
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
        "vpdpbusd %%zmm30, %%zmm31, %%zmm\\r\n"
        ".endr\n"
        "dec %0\n jnz 1b\n vzeroupper\n"
        : "+r"(rounds)
        :
        : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

void loop_vnni_256(int64_t rounds) {
    asm volatile(
        "1:\n"
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n"
        "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm\\r\n"
        ".endr\n"
        "dec %0\n jnz 1b\n vzeroupper\n"
        : "+r"(rounds)
        :
        : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm14", "xmm15");
}

void loop_maddubs_256(int64_t rounds) {
    asm volatile(
        "1:\n"
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n"
        "vpmaddubsw %%ymm14, %%ymm15, %%ymm12\n"
        "vpmaddwd %%ymm12, %%ymm13, %%ymm12\n"
        "vpaddd %%ymm12, %%ymm\\r, %%ymm\\r\n"
        ".endr\n"
        "dec %0\n jnz 1b\n vzeroupper\n"
        : "+r"(rounds)
        :
        : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

// Zeros, because garbage may be subnormal, which is slow.
void loop_fma_512(int64_t rounds) {
    asm volatile(
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,30,31\n"
        "vpxord %%zmm\\r, %%zmm\\r, %%zmm\\r\n"
        ".endr\n"
        "1:\n"
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
        "vfmadd231ps %%zmm30, %%zmm31, %%zmm\\r\n"
        ".endr\n"
        "dec %0\n jnz 1b\n vzeroupper\n"
        : "+r"(rounds)
        :
        : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

void loop_fma_256(int64_t rounds) {
    asm volatile(
        "vzeroall\n"
        "1:\n"
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n"
        "vfmadd231ps %%ymm14, %%ymm15, %%ymm\\r\n"
        ".endr\n"
        "dec %0\n jnz 1b\n vzeroupper\n"
        : "+r"(rounds)
        :
        : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

}  // namespace

double int8_peak(Tier tier) {
    switch (tier) {
        case Tier::avx2:
            return loop_rate(loop_maddubs_256, 12 * 32);
        case Tier::avxvnni:
            return loop_rate(loop_vnni_256, 12 * 32);
        case Tier::avx512:
            return loop_rate(loop_vnni_512, 16 * 64);
        default:
            return 0.0;
    }
}

double f32_peak(Tier tier) {
    switch (tier) {
        case Tier::avx2:
        case Tier::avxvnni:
            return loop_rate(loop_fma_256, 12 * 8);
        case Tier::avx512:
            return loop_rate(loop_fma_512, 16 * 16);
        default:
            return 0.0;
    }
}

}  // namespace waste::bench

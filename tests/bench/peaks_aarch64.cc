#include "tests/bench/loop_rate.h"
#include "tests/bench/peaks.h"

// Loops stand in assembly whole: the file is compiled with the flags of all tiers, which the assembler asks for, and
// the compiler shall find no use for.

namespace waste::bench {
namespace {

using kernels::Tier;

void loop_sdot(int64_t rounds) {
    asm volatile(
        "1:\n"
        ".irp r,0,1,2,3,4,5,6,7,16,17,18,19,20,21,22,23\n"
        "sdot v\\r\\().4s, v30.16b, v31.16b\n"
        ".endr\n"
        "subs %0, %0, #1\n b.ne 1b\n"
        : "+r"(rounds)
        :
        : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21",
          "v22", "v23");
}

void loop_smmla(int64_t rounds) {
    asm volatile(
        "1:\n"
        ".irp r,0,1,2,3,4,5,6,7,16,17,18,19,20,21,22,23\n"
        "smmla v\\r\\().4s, v30.16b, v31.16b\n"
        ".endr\n"
        "subs %0, %0, #1\n b.ne 1b\n"
        : "+r"(rounds)
        :
        : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21",
          "v22", "v23");
}

// Zeros, because garbage may be subnormal, which is slow.
void loop_fmla(int64_t rounds) {
    asm volatile(
        ".irp r,0,1,2,3,4,5,6,7,16,17,18,19,20,21,22,23,30,31\n"
        "movi v\\r\\().4s, #0\n"
        ".endr\n"
        "1:\n"
        ".irp r,0,1,2,3,4,5,6,7,16,17,18,19,20,21,22,23\n"
        "fmla v\\r\\().4s, v30.4s, v31.4s\n"
        ".endr\n"
        "subs %0, %0, #1\n b.ne 1b\n"
        : "+r"(rounds)
        :
        : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21",
          "v22", "v23", "v30", "v31");
}

}  // namespace

double int8_peak(Tier tier) {
    switch (tier) {
        case Tier::neon:
            return loop_rate(loop_sdot, 16 * 16);
        case Tier::i8mm:
            return loop_rate(loop_smmla, 16 * 32);
        default:
            return 0.0;
    }
}

double f32_peak(Tier tier) {
    return tier == Tier::scalar ? 0.0 : loop_rate(loop_fmla, 16 * 4);
}

}  // namespace waste::bench

#include "kernels/kda.h"

#include <algorithm>

#include "kernels/kernel_set.h"
#include "kernels/variants.h"

namespace waste::kernels {
namespace {

constexpr KdaStepVariant kStepVariants[] = {
    {Tier::scalar, scalar::kda_step},
#if defined(__x86_64__)
    {Tier::avx2, avx2::kda_step},
    {Tier::avx512, avx512::kda_step},
#elif defined(__aarch64__)
    {Tier::neon, neon::kda_step},
#endif
};

constexpr KdaChunkVariant kChunkVariants[] = {
    {Tier::scalar, scalar::kda_chunk},
#if defined(__x86_64__)
    {Tier::avx2, avx2::kda_chunk},
    {Tier::avx512, avx512::kda_chunk},
#elif defined(__aarch64__)
    {Tier::neon, neon::kda_chunk},
#endif
};

/// Widths that the chunk kernel takes.
int64_t padded(int64_t dim) {
    return (dim + 15) / 16 * 16;
}

/// A cache line, so that the chunk kernel's scratch can begin on one.
constexpr int64_t kAlignFloats = 16;

struct Scratch {
    float* chunk;
    float* decay;  ///< [kKdaChunk][K]
    float* beta;   ///< [kKdaChunk]
    // Padded copies, for widths that are not multiples of 16.
    float* q;      ///< [kKdaChunk][K]
    float* k;      ///< [kKdaChunk][K]
    float* v;      ///< [kKdaChunk][V], of the output too
    float* state;  ///< [K][V]
};

Scratch carve(float* scratch, int64_t key_dim, int64_t value_dim) {
    const int64_t key_rows = kKdaChunk * padded(key_dim);
    const auto misaligned =
        static_cast<int64_t>(reinterpret_cast<uintptr_t>(scratch) / sizeof(float) % kAlignFloats);
    Scratch at{};
    at.chunk = scratch + (kAlignFloats - misaligned) % kAlignFloats;
    at.decay = at.chunk + kda_chunk_scratch_floats(padded(key_dim));
    at.beta = at.decay + key_rows;
    at.q = at.beta + kKdaChunk;
    at.k = at.q + key_rows;
    at.v = at.k + key_rows;
    at.state = at.v + kKdaChunk * padded(value_dim);
    return at;
}

/// Rows of `width` floats, of `padded_width` with zeros behind them in the copy.
void copy_rows(const float* from, int64_t stride, int64_t rows, int64_t width, int64_t padded_width,
               float* to) {
    for (int64_t i = 0; i < rows; ++i, from += stride, to += padded_width) {
        std::copy_n(from, width, to);
        std::fill(to + width, to + padded_width, 0.0f);
    }
}

void activate_gate(const KernelSet& kernels, const KdaCall& call, int64_t row, float* decay) {
    const float* raw = call.gate + row * call.stride;
    if (call.gate_form == KdaGate::bounded) {
        kernels.kda_gate->bounded(raw, call.dt_bias, call.a_log, call.lower_bound, call.key_dim, decay);
    } else {
        kernels.kda_gate->softplus(raw, call.dt_bias, call.a_log, call.key_dim, decay);
    }
}

void take_beta(const KernelSet& kernels, const KdaCall& call, int64_t row, int64_t tokens, float* beta) {
    for (int64_t i = 0; i < tokens; ++i) beta[i] = call.beta[(row + i) * call.beta_stride];
    if (call.beta_is_logit) kernels.activation->sigmoid(beta, tokens, beta);
}

void run_token(const KernelSet& kernels, const KdaCall& call, int64_t row, const Scratch& scratch,
               float* state) {
    const float* decay = call.gate + row * call.stride;
    if (call.gate_form != KdaGate::decay) {
        activate_gate(kernels, call, row, scratch.decay);
        decay = scratch.decay;
    }
    take_beta(kernels, call, row, 1, scratch.beta);
    const KdaHead head{call.q + row * call.stride,
                       call.k + row * call.stride,
                       call.v + row * call.stride,
                       decay,
                       *scratch.beta,
                       call.key_dim,
                       call.value_dim};
    kernels.kda_step(head, state, call.out + row * call.out_stride);
}

/// The chunk's inputs where they lie; what is raw or of an odd width becomes a copy in the scratch.
KdaChunkHead gather_chunk(const KernelSet& kernels, const KdaCall& call, int64_t row,
                          const Scratch& scratch) {
    const int64_t key_dim = padded(call.key_dim);
    const int64_t offset = row * call.stride;
    KdaChunkHead head{call.q + offset,
                      call.k + offset,
                      call.stride,
                      call.gate + offset,
                      call.stride,
                      call.v + offset,
                      call.stride,
                      scratch.beta,
                      key_dim,
                      padded(call.value_dim),
                      call.out + row * call.out_stride,
                      call.out_stride};
    take_beta(kernels, call, row, kKdaChunk, scratch.beta);
    if (call.gate_form != KdaGate::decay) {
        for (int64_t i = 0; i < kKdaChunk; ++i) {
            float* decay = scratch.decay + i * key_dim;
            activate_gate(kernels, call, row + i, decay);
            std::fill(decay + call.key_dim, decay + key_dim, 0.0f);
        }
        head.decay = scratch.decay;
        head.decay_stride = key_dim;
    }
    if (head.key_dim != call.key_dim) {
        copy_rows(head.q, call.stride, kKdaChunk, call.key_dim, key_dim, scratch.q);
        copy_rows(head.k, call.stride, kKdaChunk, call.key_dim, key_dim, scratch.k);
        head.q = scratch.q;
        head.k = scratch.k;
        head.key_stride = key_dim;
        if (call.gate_form == KdaGate::decay) {
            copy_rows(head.decay, call.stride, kKdaChunk, call.key_dim, key_dim, scratch.decay);
            head.decay = scratch.decay;
            head.decay_stride = key_dim;
        }
    }
    if (head.value_dim != call.value_dim) {
        copy_rows(head.v, call.stride, kKdaChunk, call.value_dim, head.value_dim, scratch.v);
        head.v = head.out = scratch.v;
        head.value_stride = head.out_stride = head.value_dim;
    }
    return head;
}

void run_chunk(const KernelSet& kernels, const KdaCall& call, int64_t row, const Scratch& scratch,
               float* state) {
    const KdaChunkHead head = gather_chunk(kernels, call, row, scratch);
    if (head.key_dim == call.key_dim && head.value_dim == call.value_dim) {
        kernels.kda_chunk(head, state, scratch.chunk);
        return;
    }
    copy_rows(state, call.value_dim, call.key_dim, call.value_dim, head.value_dim, scratch.state);
    std::fill_n(scratch.state + call.key_dim * head.value_dim, (head.key_dim - call.key_dim) * head.value_dim,
                0.0f);
    kernels.kda_chunk(head, scratch.state, scratch.chunk);
    for (int64_t i = 0; i < call.key_dim; ++i) {
        std::copy_n(scratch.state + i * head.value_dim, call.value_dim, state + i * call.value_dim);
    }
    if (head.out != scratch.v) return;
    for (int64_t i = 0; i < kKdaChunk; ++i) {
        std::copy_n(scratch.v + i * head.value_dim, call.value_dim, call.out + (row + i) * call.out_stride);
    }
}

}  // namespace

std::span<const KdaStepVariant> kda_step_variants() {
    return kStepVariants;
}

std::span<const KdaChunkVariant> kda_chunk_variants() {
    return kChunkVariants;
}

int64_t kda_chunk_scratch_floats(int64_t key_dim) {
    const int64_t rows = 3 * kKdaChunk + kKdaChunk / kKdaBlock + kKdaStripCols;
    return rows * key_dim + kKdaBlock * kKdaStripCols + 2 * kKdaChunk * kKdaBlock;
}

int64_t kda_scratch_floats(int64_t key_dim, int64_t value_dim) {
    const int64_t k = padded(key_dim);
    const int64_t v = padded(value_dim);
    const int64_t decay_and_beta = kKdaChunk * (k + 1);
    const int64_t copies = k == key_dim && v == value_dim ? 0 : kKdaChunk * (2 * k + v) + k * v;
    return kAlignFloats + kda_chunk_scratch_floats(k) + decay_and_beta + copies;
}

void kda_run(const KernelSet& kernels, const KdaCall& call, float* scratch) {
    const Scratch parts = carve(scratch, call.key_dim, call.value_dim);
    for (const KdaSequence& sequence : call.sequences) {
        float* state = call.states + sequence.slot * call.slot_stride;
        int64_t done = 0;
        while (done < sequence.tokens) {
            const int64_t row = sequence.first_token + done;
            const bool on_grid = (sequence.position + done) % kKdaChunk == 0;
            if (on_grid && sequence.tokens - done >= kKdaChunk) {
                run_chunk(kernels, call, row, parts, state);
                done += kKdaChunk;
            } else {
                run_token(kernels, call, row, parts, state);
                ++done;
            }
        }
    }
}

}  // namespace waste::kernels

#include "kernels/kda.h"
#include "kernels/variants.h"

namespace waste::kernels::scalar {
namespace {

constexpr int64_t kChains = 16;

/// The block of the chunk that begins at token `first`, and what it needs of the scratch.
struct Block {
    const KdaChunkHead& head;
    int64_t first;
    float* k_out;      ///< [kKdaBlock][K]
    float* k_in;       ///< [kKdaBlock][K]
    float* q_in;       ///< [kKdaBlock][K]
    float* decay_all;  ///< [K]

    const float* q(int64_t i) const { return head.q + (first + i) * head.key_stride; }
    const float* k(int64_t i) const { return head.k + (first + i) * head.key_stride; }
    const float* decay(int64_t i) const { return head.decay + (first + i) * head.decay_stride; }
};

float dot(const float* a, const float* b, int64_t n) {
    float chain[kChains] = {};
    for (int64_t i = 0; i < n; ++i) chain[i % kChains] = __builtin_fmaf(a[i], b[i], chain[i % kChains]);
    for (int64_t width = kChains / 2; width > 0; width /= 2) {
        for (int64_t i = 0; i < width; ++i) chain[i] += chain[i + width];
    }
    return chain[0];
}

void scale_rows(const Block& block) {
    const int64_t key_dim = block.head.key_dim;
    for (int64_t c = 0; c < key_dim; ++c) {
        float running = 1.0f;
        for (int64_t i = 0; i < kKdaBlock; ++i) {
            running *= block.decay(i)[c];
            block.k_in[i * key_dim + c] = block.k(i)[c] * running;
            block.q_in[i * key_dim + c] = block.q(i)[c] * running;
        }
        block.decay_all[c] = running;
    }
}

void pair_rows(const Block& block, float (&kk)[kKdaBlock][kKdaBlock], float (&qk)[kKdaBlock][kKdaBlock]) {
    const int64_t key_dim = block.head.key_dim;
    for (int64_t j = 0; j < kKdaBlock; ++j) {
        float* key = block.k_out + j * key_dim;
        for (int64_t c = 0; c < key_dim; ++c) key[c] = block.k(j)[c];
        qk[j][j] = dot(block.q(j), key, key_dim);
        for (int64_t i = j + 1; i < kKdaBlock; ++i) {
            for (int64_t c = 0; c < key_dim; ++c) key[c] *= block.decay(i)[c];
            kk[i][j] = dot(block.k(i), key, key_dim);
            qk[i][j] = dot(block.q(i), key, key_dim);
        }
    }
}

void run_block(const Block& block, float* state) {
    const KdaChunkHead& head = block.head;
    float kk[kKdaBlock][kKdaBlock];
    float qk[kKdaBlock][kKdaBlock];
    scale_rows(block);
    pair_rows(block, kk, qk);
    for (int64_t col = 0; col < head.value_dim; ++col) {
        float u[kKdaBlock];
        for (int64_t i = 0; i < kKdaBlock; ++i) {
            float sum = 0.0f;
            for (int64_t c = 0; c < head.key_dim; ++c) {
                sum = __builtin_fmaf(block.k_in[i * head.key_dim + c], state[c * head.value_dim + col], sum);
            }
            for (int64_t j = 0; j < i; ++j) sum = __builtin_fmaf(kk[i][j], u[j], sum);
            u[i] = head.beta[block.first + i] * (head.v[(block.first + i) * head.value_stride + col] - sum);
        }
        for (int64_t i = 0; i < kKdaBlock; ++i) {
            float sum = 0.0f;
            for (int64_t c = 0; c < head.key_dim; ++c) {
                sum = __builtin_fmaf(block.q_in[i * head.key_dim + c], state[c * head.value_dim + col], sum);
            }
            for (int64_t j = 0; j <= i; ++j) sum = __builtin_fmaf(qk[i][j], u[j], sum);
            head.out[(block.first + i) * head.out_stride + col] = sum;
        }
        for (int64_t c = 0; c < head.key_dim; ++c) {
            float s = block.decay_all[c] * state[c * head.value_dim + col];
            for (int64_t j = 0; j < kKdaBlock; ++j)
                s = __builtin_fmaf(block.k_out[j * head.key_dim + c], u[j], s);
            state[c * head.value_dim + col] = s;
        }
    }
}

}  // namespace

void kda_chunk(const KdaChunkHead& head, float* state, float* scratch) {
    const int64_t rows = kKdaBlock * head.key_dim;
    float* k_in = scratch;
    float* q_in = k_in + rows;
    float* k_out = q_in + rows;
    float* decay_all = k_out + rows;
    for (int64_t first = 0; first < kKdaChunk; first += kKdaBlock) {
        run_block({head, first, k_out, k_in, q_in, decay_all}, state);
    }
}

}  // namespace waste::kernels::scalar

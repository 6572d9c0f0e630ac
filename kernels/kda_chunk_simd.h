// The chunk kernel over a tier's vectors; scalar/kda_chunk.cc is its definition in plain loops. Private to
// the tiers' kda_chunk.cc: all of it in an unnamed namespace, so that each tier compiles a copy of its own.
//
// A tier brings a `Simd` with
//   Vector, kLanes             16 / kLanes whole vectors hold the sixteen chains of a dot product
//   zero load store broadcast mul sub fma(a, b, c) = a b + c
//   fold(chains)               sum of sixteen chains: chain i and i + 8, then i + 4, i + 2, i + 1
//   kTileRows, kTileVectors    accumulators of a product: enough to hide the latency of fma, few enough for
//   the
//                              registers
//   kPairRows                  rows of k and q that share one pass over a decayed key
//
// Where the time goes, at K = V = 128 on AVX-512, in cycles a token: the three products with the state are 3
// K V multiply-adds, 3072 vector fma on two ports, so 1536 at least; measured 1810 with what solves and
// updates around them, the keys' dot products 180, scaled rows 80, strips in and out 125, the rest misses of
// the first cache. Blocks of 8 tokens took 1.04 us a token, of 16 1.11, of 32 1.37, of 64 2.03: the products
// with the state are the same for all, the rest grows with the block.
//
// To be bound by fma a tile must do more of them than it loads vectors: eight rows by two vectors load 2 + 8
// for 16. The state is walked in strips of 32 columns, copied so that they are contiguous (rows of V floats
// would fall on a few sets of the first cache): 16 KiB, in which a strip stays for all blocks of the chunk.
// Fetching rows of the inputs or of the scratch ahead changed nothing.
#pragma once

#include <cstdint>

#include "kernels/kda.h"
#include "kernels/variants.h"

namespace waste::kernels {
namespace {

/// Scratch of a chunk. Rows are tokens of the chunk, columns of k_in, q_in and k_out channels.
struct ChunkScratch {
    float* k_in;   ///< k decayed from the block's begin to the token, that included
    float* q_in;   ///< q likewise
    float* k_out;  ///< k decayed from the token, that excluded, to the block's end
    float* decay;  ///< [blocks][K] of the whole block
    float* kk;     ///< [tokens][kKdaBlock] k_i . k_j decayed from j to i, j < i
    float* qk;     ///< likewise with q_i, j <= i
    float* strip;  ///< [K][kKdaStripCols]
    float* u;      ///< [kKdaBlock][kKdaStripCols]
};

inline ChunkScratch carve(float* scratch, int64_t key_dim) {
    const int64_t rows = kKdaChunk * key_dim;
    ChunkScratch at{};
    at.strip = scratch;
    at.u = at.strip + key_dim * kKdaStripCols;
    at.k_in = at.u + kKdaBlock * kKdaStripCols;
    at.q_in = at.k_in + rows;
    at.k_out = at.q_in + rows;
    at.decay = at.k_out + rows;
    at.kk = at.decay + kKdaChunk / kKdaBlock * key_dim;
    at.qk = at.kk + kKdaChunk * kKdaBlock;
    return at;
}

/// k_in, q_in and decay of the block that begins at `first`. Row by row: the rows of a call may lie a
/// multiple of 4 KiB apart, where walking down them would use one set of the cache. Structures come by value
/// so that the stores are seen not to change them.
template <typename Simd>
void scale_rows(KdaChunkHead head, int64_t first, ChunkScratch to) {
    float* running = to.decay + first / kKdaBlock * head.key_dim;
    for (int64_t i = first; i < first + kKdaBlock; ++i) {
        const float* decay = head.decay + i * head.decay_stride;
        const float* k = head.k + i * head.key_stride;
        const float* q = head.q + i * head.key_stride;
        float* k_in = to.k_in + i * head.key_dim;
        float* q_in = to.q_in + i * head.key_dim;
        for (int64_t c = 0; c < head.key_dim; c += Simd::kLanes) {
            __builtin_prefetch(k_in + head.key_dim + c);
            __builtin_prefetch(q_in + head.key_dim + c);
            auto product = Simd::load(decay + c);
            if (i > first) product = Simd::mul(Simd::load(running + c), product);
            Simd::store(running + c, product);
            Simd::store(k_in + c, Simd::mul(Simd::load(k + c), product));
            Simd::store(q_in + c, Simd::mul(Simd::load(q + c), product));
        }
    }
}

/// Decays the key of token `from` through tokens row .. row + kRows - 1 and multiplies it with their k and q;
/// on its first stretch with the q of `from` too.
template <typename Simd, int kRows, bool kFirst>
[[gnu::always_inline]] inline void pair_rows(const KdaChunkHead& head, int64_t from, int64_t row,
                                             const ChunkScratch& to) {
    constexpr int kVectors = 16 / Simd::kLanes;
    typename Simd::Vector self[kVectors];
    typename Simd::Vector kk[kRows + 1][kVectors];
    typename Simd::Vector qk[kRows + 1][kVectors];
    for (int v = 0; v < kVectors; ++v) {
        self[v] = Simd::zero();
        for (int r = 0; r < kRows; ++r) kk[r][v] = qk[r][v] = Simd::zero();
    }
    const int64_t stride = head.key_stride;
    const int64_t decay_stride = head.decay_stride;
    const int64_t key_dim = head.key_dim;
    const float* decay = head.decay + row * decay_stride;
    const float* k = head.k + row * stride;
    const float* q = head.q + row * stride;
    const float* q_self = head.q + from * stride;
    float* decayed = to.k_out + from * key_dim;
    const float* start = kFirst ? head.k + from * stride : decayed;
    for (int64_t c = 0; c < key_dim; c += 16) {
        for (int v = 0; v < kVectors; ++v) {
            const int64_t at = c + v * Simd::kLanes;
            auto key = Simd::load(start + at);
            if (kFirst) self[v] = Simd::fma(Simd::load(q_self + at), key, self[v]);
            for (int r = 0; r < kRows; ++r) {
                key = Simd::mul(key, Simd::load(decay + r * decay_stride + at));
                kk[r][v] = Simd::fma(Simd::load(k + r * stride + at), key, kk[r][v]);
                qk[r][v] = Simd::fma(Simd::load(q + r * stride + at), key, qk[r][v]);
            }
            Simd::store(decayed + at, key);
        }
    }
    float* to_kk = to.kk + row * kKdaBlock + from % kKdaBlock;
    float* to_qk = to.qk + row * kKdaBlock + from % kKdaBlock;
    if (kFirst) to.qk[from * kKdaBlock + from % kKdaBlock] = Simd::fold(self);
    for (int r = 0; r < kRows; ++r) {
        to_kk[r * kKdaBlock] = Simd::fold(kk[r]);
        to_qk[r * kKdaBlock] = Simd::fold(qk[r]);
    }
}

/// The key of token `from` through the last kLeft tokens of its block.
template <typename Simd, int kLeft, bool kFirst = true>
void pair_key(const KdaChunkHead& head, int64_t from, int64_t end, const ChunkScratch& to) {
    constexpr int kRows = kLeft < Simd::kPairRows ? kLeft : Simd::kPairRows;
    pair_rows<Simd, kRows, kFirst>(head, from, end - kLeft, to);
    if constexpr (kRows < kLeft) pair_key<Simd, kLeft - kRows, false>(head, from, end, to);
}

/// kk, qk and k_out of the last kLeft tokens of a block that stops at `end`.
template <typename Simd, int kLeft = kKdaBlock>
void pair_block(const KdaChunkHead& head, int64_t end, const ChunkScratch& to) {
    if constexpr (kLeft > 0) {
        pair_key<Simd, kLeft - 1>(head, end - kLeft, end, to);
        pair_block<Simd, kLeft - 1>(head, end, to);
    }
}

/// kTileRows tokens by kVectors vectors of the strip's columns: `row` is the first token of the chunk, `col`
/// the first column of the strip, `head_col` of the head. What it calls must be inlined for the sums to stay
/// in registers; the triangles are unrolled by recursion, since both compilers give up on loops of that form.
template <typename Simd, int kCols, int kVectors>
struct Tile {
    using Vector = typename Simd::Vector;
    using Sums = Vector[Simd::kTileRows][kVectors];

    const KdaChunkHead& head;
    const ChunkScratch& in;
    int64_t block;  ///< its first token
    int64_t row;
    int64_t col;
    int64_t head_col;

    float* u(int64_t token) const { return in.u + token * kCols + col; }

    /// sums = rows of k_in or q_in times the strip. Two channels at a time, since counting takes issue slots
    /// from fma.
    [[gnu::always_inline]] void multiply(const float* rows, Sums& sums) const {
        for (int r = 0; r < Simd::kTileRows; ++r) {
            for (int v = 0; v < kVectors; ++v) sums[r][v] = Simd::zero();
        }
        const float* strip = in.strip + col;
        for (int64_t c = 0; c < head.key_dim; c += 2) {
            for (int64_t half = c; half < c + 2; ++half, strip += kCols) {
                Vector state[kVectors];
                for (int v = 0; v < kVectors; ++v) state[v] = Simd::load(strip + v * Simd::kLanes);
                for (int r = 0; r < Simd::kTileRows; ++r) {
                    const Vector factor = Simd::broadcast(rows[r * head.key_dim + half]);
                    for (int v = 0; v < kVectors; ++v) sums[r][v] = Simd::fma(factor, state[v], sums[r][v]);
                }
            }
        }
    }

    /// sums[r] += pairs[r][j] u_j from row kBegin on; `pairs` stands at column j.
    template <int kBegin>
    [[gnu::always_inline]] void add_pairs(const float* pairs, const Vector (&delta)[kVectors],
                                          Sums& sums) const {
        for (int r = kBegin; r < Simd::kTileRows; ++r) {
            const Vector factor = Simd::broadcast(pairs[r * kKdaBlock]);
            for (int v = 0; v < kVectors; ++v) sums[r][v] = Simd::fma(factor, delta[v], sums[r][v]);
        }
    }

    /// The tokens of the block before this tile.
    [[gnu::always_inline]] void add_earlier(const float* pairs, Sums& sums) const {
        for (int64_t j = 0; j < row - block; ++j) {
            Vector delta[kVectors];
            for (int v = 0; v < kVectors; ++v) delta[v] = Simd::load(u(j) + v * Simd::kLanes);
            add_pairs<0>(pairs + j, delta, sums);
        }
    }

    /// Forward substitution: u_r = beta_r (v_r - sums_r), taken into all later rows at once, which so do not
    /// wait for each other.
    template <int r = 0>
    [[gnu::always_inline]] void substitute(const float* pairs, Sums& sums) const {
        if constexpr (r < Simd::kTileRows) {
            const float* value = head.v + (row + r) * head.value_stride + head_col;
            const Vector beta = Simd::broadcast(head.beta[row + r]);
            Vector delta[kVectors];
            for (int v = 0; v < kVectors; ++v) {
                delta[v] = Simd::mul(beta, Simd::sub(Simd::load(value + v * Simd::kLanes), sums[r][v]));
                Simd::store(u(row - block + r) + v * Simd::kLanes, delta[v]);
            }
            add_pairs<r + 1>(pairs + r, delta, sums);
            substitute<r + 1>(pairs, sums);
        }
    }

    template <int r = 0>
    [[gnu::always_inline]] void add_triangle(const float* pairs, Sums& sums) const {
        if constexpr (r < Simd::kTileRows) {
            Vector delta[kVectors];
            for (int v = 0; v < kVectors; ++v) delta[v] = Simd::load(u(row - block + r) + v * Simd::kLanes);
            add_pairs<r>(pairs + r, delta, sums);
            add_triangle<r + 1>(pairs, sums);
        }
    }

    void solve() const {
        Sums sums;
        multiply(in.k_in + row * head.key_dim, sums);
        const float* pairs = in.kk + row * kKdaBlock;
        add_earlier(pairs, sums);
        substitute(pairs + (row - block), sums);
    }

    void output() const {
        Sums sums;
        multiply(in.q_in + row * head.key_dim, sums);
        const float* pairs = in.qk + row * kKdaBlock;
        add_earlier(pairs, sums);
        add_triangle(pairs + (row - block), sums);
        for (int r = 0; r < Simd::kTileRows; ++r) {
            float* out = head.out + (row + r) * head.out_stride + head_col;
            for (int v = 0; v < kVectors; ++v) Simd::store(out + v * Simd::kLanes, sums[r][v]);
        }
    }
};

/// strip = decay strip + sum over the block's tokens of k_out u^T. The loop over tokens is unrolled by hand:
/// what counts it would take issue slots from fma.
template <typename Simd, int kCols, int kVectors>
void update_strip(const ChunkScratch& in, int64_t block, int64_t key_dim) {
    const float* decay = in.decay + block / kKdaBlock * key_dim;
    const float* k_out = in.k_out + block * key_dim;
    for (int64_t c = 0; c < key_dim; c += Simd::kTileRows) {
        for (int64_t col = 0; col < kCols; col += kVectors * Simd::kLanes) {
            typename Simd::Vector state[Simd::kTileRows][kVectors];
            float* strip = in.strip + c * kCols + col;
            for (int r = 0; r < Simd::kTileRows; ++r) {
                const auto factor = Simd::broadcast(decay[c + r]);
                for (int v = 0; v < kVectors; ++v) {
                    state[r][v] = Simd::mul(factor, Simd::load(strip + r * kCols + v * Simd::kLanes));
                }
            }
            const float* key = k_out + c;
            const float* delta = in.u + col;
            for (int64_t j = 0; j < kKdaBlock; j += 4) {
                for (int step = 0; step < 4; ++step, key += key_dim, delta += kCols) {
                    typename Simd::Vector u[kVectors];
                    for (int v = 0; v < kVectors; ++v) u[v] = Simd::load(delta + v * Simd::kLanes);
                    for (int r = 0; r < Simd::kTileRows; ++r) {
                        const auto factor = Simd::broadcast(key[r]);
                        for (int v = 0; v < kVectors; ++v) state[r][v] = Simd::fma(factor, u[v], state[r][v]);
                    }
                }
            }
            for (int r = 0; r < Simd::kTileRows; ++r) {
                for (int v = 0; v < kVectors; ++v) {
                    Simd::store(strip + r * kCols + v * Simd::kLanes, state[r][v]);
                }
            }
        }
    }
}

template <typename Simd, int kCols>
void copy_rows(const float* from, int64_t from_stride, int64_t rows, float* to, int64_t to_stride) {
    for (int64_t i = 0; i < rows; ++i, from += from_stride, to += to_stride) {
        for (int v = 0; v < kCols; v += Simd::kLanes) Simd::store(to + v, Simd::load(from + v));
    }
}

/// All tokens of the chunk for kCols columns from `head_col` on.
template <typename Simd, int kCols>
void run_strip(const KdaChunkHead& head, const ChunkScratch& in, int64_t head_col, float* state) {
    constexpr int kAll = kCols / Simd::kLanes;
    constexpr int kVectors = kAll < Simd::kTileVectors ? kAll : Simd::kTileVectors;
    copy_rows<Simd, kCols>(state + head_col, head.value_dim, head.key_dim, in.strip, kCols);
    for (int64_t block = 0; block < kKdaChunk; block += kKdaBlock) {
        for (int64_t col = 0; col < kCols; col += kVectors * Simd::kLanes) {
            for (int64_t row = block; row < block + kKdaBlock; row += Simd::kTileRows) {
                const Tile<Simd, kCols, kVectors> tile{head, in, block, row, col, head_col + col};
                tile.solve();
                tile.output();
            }
        }
        update_strip<Simd, kCols, kVectors>(in, block, head.key_dim);
    }
    copy_rows<Simd, kCols>(in.strip, kCols, head.key_dim, state + head_col, head.value_dim);
}

template <typename Simd>
void run_chunk(const KdaChunkHead& head, float* state, float* scratch) {
    const ChunkScratch in = carve(scratch, head.key_dim);
    for (int64_t block = 0; block < kKdaChunk; block += kKdaBlock) {
        scale_rows<Simd>(head, block, in);
        pair_block<Simd>(head, block + kKdaBlock, in);
    }
    int64_t col = 0;
    for (; col + kKdaStripCols <= head.value_dim; col += kKdaStripCols)
        run_strip<Simd, kKdaStripCols>(head, in, col, state);
    if (col < head.value_dim) run_strip<Simd, 16>(head, in, col, state);
}

}  // namespace
}  // namespace waste::kernels

// Random matrices made straight in the form they are stored in: codes from random bits, a scale a group from a table.
// A core makes more than a gigabyte a second, so that a drive, not this, limits how fast a model is written.
//
// Everything is a function of a 64-bit stream and a panel's (row's) number, so that the bytes do not depend on who
// makes them in which order.
//
// Distributions, before scaling:
//   f32, bf16   the sum of two uniform 16-bit integers, centred: a triangle, +-2.45 standard deviations wide
//   q8          the same from 7 bits: -127..127
//   q4          the same from 3 bits: -7..7
//   mxfp4       a random sign, a magnitude's upper bit set in one of four: E2M1 0..6, small ones more often
// Scales vary by +-25 % from group to group; those of mxfp4 are the two powers of two that give the deviation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/format.h"

namespace waste::engine {

/// SplitMix64: a counter, mixed.
class RandomWords {
  public:
    explicit RandomWords(uint64_t stream) : state_(stream) {}
    uint64_t next();
    double uniform();                            ///< in (0, 1)
    double uniform(double least, double most) {  ///< in (least, most)
        return least + (most - least) * uniform();
    }
    double triangular();  ///< mean 0, standard deviation 1

  private:
    uint64_t state_;
};

/// The stream of one named thing of a model.
uint64_t stream_of(uint64_t seed, std::string_view name);
/// Stream number `index` under another.
uint64_t substream(uint64_t stream, int64_t index);

/// A matrix in panels, or a batch of them back to back, of independent weights with mean 0 and the given standard
/// deviation after decoding. Immutable, thread-safe.
class RandomPanels {
  public:
    RandomPanels(kernels::Format format, int64_t rows, int64_t cols, double deviation, uint64_t stream);

    int64_t panel_bytes() const { return kernels::panel_bytes(format_, cols_); }
    /// Panel `panel`, counted over all matrices of the batch, into `out` [panel_bytes()]. Padding decodes to zero.
    void fill(int64_t panel, std::byte* out) const;

  private:
    void fill_block(RandomWords& words, std::byte* block) const;

    kernels::Format format_;
    int64_t rows_, cols_;
    uint64_t stream_;
    float unit_ = 0.0f;             ///< f32 and bf16: what an integer step is worth
    std::vector<uint16_t> scales_;  ///< the others: one of 256 at random, in stored form
};

/// Row `row` of a matrix in rows, f32 or bf16, into `out`.
void random_row(kernels::Format format, int64_t cols, double deviation, uint64_t stream, int64_t row,
                std::byte* out);

}  // namespace waste::engine

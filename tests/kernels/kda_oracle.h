// The recurrence in f64, token by token, with a bound on what the f32 kernels may be off.
//
// One token maps the state by (I - beta k k^T) diag(decay), whose norm is at most 1 for |k| <= 1, beta and
// decay in [0, 1]: it makes no error longer. So the error of a column of the state, as a vector, is at most
// the sum of the rounding errors that each block makes on its own; those follow from the kernels' order of
// operations, with the sizes of all terms in place of the terms.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/kernel_set.h"
#include "tests/support/kernel_matrix.h"

namespace waste::test {

/// Tokens of one head, as the layer hands them over: k of length 1, q of length K^-0.5.
struct KdaTokens {
    int64_t key_dim;
    int64_t value_dim;
    int64_t count;
    int64_t stride;  ///< of all rows but beta
    std::vector<float> q, k, v, decay, beta;

    /// The call for these tokens; the caller adds states, sequences and out.
    kernels::KdaCall call() const;
};

/// `decay` is asked once a channel and token.
KdaTokens random_kda_tokens(int64_t key_dim, int64_t value_dim, int64_t count, Random& random,
                            const std::function<float(Random&)>& decay);

class KdaOracle {
  public:
    KdaOracle(const KdaTokens& tokens, std::span<const float> state);

    /// The next tokens as kda_run() takes them: `count` of them, the first at `position` of its sequence.
    void run(int64_t count, int64_t position);

    /// Empty when all tokens' `out` [count][stride] and the state [K][V] are within the bound.
    std::string difference(std::span<const float> out, std::span<const float> state) const;

  private:
    struct Block;

    void run_block(int64_t count);
    Block describe_block(int64_t count) const;
    void run_column(const Block& block, int64_t col);

    const KdaTokens& tokens_;
    int64_t done_ = 0;
    std::vector<double> state_;        ///< [K][V]
    std::vector<double> state_error_;  ///< [V] norms
    std::vector<double> out_;          ///< [count][V]
    std::vector<double> out_error_;    ///< [count][V]
};

}  // namespace waste::test

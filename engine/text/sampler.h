// From logits to the next token. In this order:
//
//   1. Repetition penalty, once for each distinct token among the last `repeat_window` ones:
//      a logit > 0 is divided by `repeat_penalty`, any other multiplied by it.
//   2. Temperature: logits are divided by it and become weights exp(l - largest). 0 ends here: the largest
//      logit, on ties the lower id. Nothing is drawn then.
//   3. top-k: the k largest (on ties the lower ids). 0 is off.
//   4. top-p: of these, the fewest, largest first, whose share of the weight left is at least `top_p`. 1 is
//      off.
//   5. min-p: of these, those of at least `min_p` times the largest weight. 0 is off.
//   6. One draw in proportion to the weights: a function of the seed and of the position it is drawn for, so that a
//      sequence that goes back, or is restored, draws as it did.
//
// Logits that are NaN or -infinity are never chosen; +infinity beats everything finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "container/result.h"

namespace waste::engine {

struct SamplerOptions {
    float temperature = 1.0f;
    float top_p = 1.0f;
    float min_p = 0.0f;
    float repeat_penalty = 1.0f;  ///< 1 is off
    int top_k = 0;
    uint64_t seed = 0;
    int repeat_window = 64;
};

/// An error names the option and the values it can have.
Result<void> validate(const SamplerOptions& options);

/// Same options, logits and position: same token. One thread.
class Sampler {
  public:
    static Result<Sampler> create(const SamplerOptions& options, int64_t vocab_size);

    /// `logits [vocab_size]`; `recent`: the tokens so far, oldest first; `position` of the token to be. An error if the
    /// sizes differ or no logit can be chosen. Allocates nothing unless it fails. Cost: O(vocab_size), plus the log of
    /// it for each token that passes top-k or top-p.
    Result<int32_t> sample(std::span<const float> logits, std::span<const int32_t> recent, int64_t position);

  private:
    struct Candidate {
        float logit;
        int32_t id;
        double weight;
    };

    Sampler(const SamplerOptions& options, size_t vocab_size);

    /// Larger logits first, lower ids on ties: a strict order, so what is kept never depends on the library.
    static bool comes_before(const Candidate& a, const Candidate& b);

    void penalize(std::span<const float> logits, std::span<const int32_t> recent);
    void collect();
    int32_t largest_candidate() const;
    void weigh();
    void keep_top_k();
    void keep_top_p();
    int32_t draw(int64_t position) const;
    double uniform(int64_t position) const;

    SamplerOptions options_;
    std::vector<float> logits_;          ///< [vocab_size], after the penalty
    std::vector<Candidate> candidates_;  ///< at most vocab_size
};

}  // namespace waste::engine

// Guessing a layer's experts one layer early, so that the drive works while attention is computed.
//
// The guess is the next router applied to the stream as it stands: early, when this layer's experts have been asked for,
// so that the drive goes on behind them; and late, when their sum has been added, which is more often right. Its reads are
// spare ones, begun where the drive would have too little to do, and taken back where the next guess, or the router, has
// spoken first. The real router decides, so results do not depend on it. How often it chose what was guessed is measured as
// it goes, for each layer and rank (the likeliest expert, the second, …), and so is how long after a late guess it does.
// Ranks that miss too often for that and the drive's speed are not read, layers that miss no expert are not guessed at.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/expert_store.h"

namespace waste::engine {

enum class Guess { early, late };

/// One sequence's. One thread.
class LookAhead {
  public:
    LookAhead(size_t banks, int64_t top_k);

    /// Whether guessing at the bank's next choice may pay.
    bool worth_guessing(size_t bank) const;
    /// Starts the reads that are worth it. `guess`: the likeliest first, top_k of them.
    void begin(size_t bank, Guess when, std::span<const int32_t> guess, ExpertStore& store);
    /// What the real router chose, before its experts are asked for.
    void settle(size_t bank, std::span<const int32_t> chosen, const ExpertStore& store);

  private:
    using Clock = std::chrono::steady_clock;
    struct Made {
        std::vector<int32_t> guess;    ///< -1: it was here, or on its way, already; empty: none made
        std::vector<float> precision;  ///< [rank] of guesses that were not here, running average
    };
    struct Bank {
        Made made[2];             ///< early, late
        ExpertCounters seen;      ///< at the last choice
        float misses = 1.0f;      ///< of a choice, running average; what was read ahead included
        Clock::time_point begun;  ///< the last late guess
        double gap_seconds = 0;   ///< from there to the choice, running average
    };
    static float least_precision(const Bank& bank, Guess when, const ExpertStore& store);

    std::vector<Bank> banks_;
    std::vector<int32_t> wanted_;
};

}  // namespace waste::engine

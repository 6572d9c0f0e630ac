#include "engine/look_ahead.h"

#include <algorithm>

namespace waste::engine {
namespace {

// A wrong guess takes the drive's time from reads that are wanted and may push out what is; a right one hides a read.
constexpr float kLeastPrecision[] = {0.7f, 0.6f};  // early, late
// A layer that asks the drive for fewer experts than this a token gains nothing that is worth another router product.
constexpr float kLeastMisses = 0.02f;
constexpr float kFirstPrecision = 0.5f, kPrecisionRate = 1.0f / 16, kMissRate = 1.0f / 8;
constexpr double kGapRate = 1.0 / 8;

void average(float& value, float sample, float rate) {
    value += rate * (sample - value);
}

}  // namespace

LookAhead::LookAhead(size_t banks, int64_t top_k) : banks_(banks) {
    const auto ranks = static_cast<size_t>(top_k);
    for (Bank& bank : banks_) {
        for (Made& made : bank.made) {
            made.guess.reserve(ranks);
            made.precision.assign(ranks, kFirstPrecision);
        }
    }
    wanted_.reserve(ranks);
}

bool LookAhead::worth_guessing(size_t bank) const {
    return banks_[bank].misses >= kLeastMisses;
}

void LookAhead::begin(size_t bank, Guess when, std::span<const int32_t> guess, ExpertStore& store) {
    const auto index = static_cast<size_t>(when);
    Bank& b = banks_[bank];
    Made& made = b.made[index];
    if (when == Guess::late) b.begun = Clock::now();
    const float least = least_precision(b, when, store);
    made.guess.assign(guess.begin(), guess.end());
    store.take_back_expected();
    store.keep_absent(bank, made.guess);
    wanted_.clear();
    for (size_t rank = 0; rank < guess.size(); rank++) {
        if (made.guess[rank] >= 0 && made.precision[rank] >= least) wanted_.push_back(guess[rank]);
    }
    if (!wanted_.empty()) store.expect(bank, wanted_);
}

/// A read that turns out wrong goes on when the router has spoken, and what is wanted then waits. Begun when the drive runs
/// dry, one that takes t has p (gap / t) to gain and (1 - p) (1 - gap / t) to lose: its chance p must be above 1 - gap / t.
float LookAhead::least_precision(const Bank& b, Guess when, const ExpertStore& store) {
    const container::DriveReaderCounters drive = store.drive();
    const float least = kLeastPrecision[static_cast<size_t>(when)];
    if (drive.bytes == 0) return least;
    const double record_seconds = static_cast<double>(drive.busy_nanoseconds) * 1e-9 /
                                  static_cast<double>(drive.bytes) * static_cast<double>(store.slot_bytes());
    return std::max(least, static_cast<float>(1 - b.gap_seconds / record_seconds));
}

void LookAhead::settle(size_t bank, std::span<const int32_t> chosen, const ExpertStore& store) {
    Bank& b = banks_[bank];
    const ExpertCounters now = store.counters(bank);
    const ExpertCounters since = now - b.seen;
    b.seen = now;
    average(b.misses, static_cast<float>(since.misses + since.ahead_reads), kMissRate);
    if (b.made[static_cast<size_t>(Guess::late)].guess.empty()) return;
    for (Made& made : b.made) {
        for (size_t rank = 0; rank < made.guess.size(); rank++) {
            if (made.guess[rank] < 0) continue;
            const bool right = std::find(chosen.begin(), chosen.end(), made.guess[rank]) != chosen.end();
            average(made.precision[rank], right ? 1.0f : 0.0f, kPrecisionRate);
        }
        made.guess.clear();
    }
    const double gap = std::chrono::duration<double>(Clock::now() - b.begun).count();
    b.gap_seconds = b.gap_seconds == 0 ? gap : b.gap_seconds + kGapRate * (gap - b.gap_seconds);
}

}  // namespace waste::engine

#include "engine/look_ahead.h"

#include <algorithm>

namespace waste::engine {
namespace {

// A wrong guess delays reads that are wanted and may push out what is; a right one hides a whole read. Below this share
// of right guesses a rank is not read.
constexpr float kLeastPrecision = 0.6f;
// From this share on a read is as good as one the router has asked for: the earlier the better, however many.
constexpr float kSure = 0.9f;
// A layer that asks the drive for fewer experts than this a token gains nothing that is worth another router product.
constexpr float kLeastMisses = 0.02f;
constexpr float kPrecisionRate = 1.0f / 16, kMissRate = 1.0f / 8;

void average(float& value, float sample, float rate) {
    value += rate * (sample - value);
}

}  // namespace

LookAhead::LookAhead(size_t banks, int64_t top_k) : banks_(banks) {
    const auto ranks = static_cast<size_t>(top_k);
    for (Bank& bank : banks_) {
        bank.guess.reserve(ranks);
        bank.precision.assign(ranks, 0.5f);
    }
    wanted_.reserve(ranks);
}

bool LookAhead::worth_guessing(size_t bank, const ExpertStore& store) {
    Bank& b = banks_[bank];
    const ExpertCounters now = store.counters(bank);
    const ExpertCounters since = now - b.seen;
    b.seen = now;
    average(b.misses, static_cast<float>(since.misses + since.ahead_reads), kMissRate);
    return b.misses >= kLeastMisses;
}

void LookAhead::begin(size_t bank, std::span<const int32_t> guess, ExpertStore& store) {
    Bank& b = banks_[bank];
    b.guess.assign(guess.begin(), guess.end());
    store.keep_absent(bank, b.guess);
    b.begun = Clock::now();
    const double in_time = records_in_time(b, store);
    wanted_.clear();
    for (size_t rank = 0; rank < guess.size(); rank++) {
        if (b.guess[rank] < 0 || b.precision[rank] < kLeastPrecision) continue;
        if (b.precision[rank] >= kSure || static_cast<double>(wanted_.size()) < in_time) {
            wanted_.push_back(guess[rank]);
        }
    }
    if (!wanted_.empty()) store.expect(bank, wanted_);
}

/// What the drive delivers from a guess to the router's choice, and one more, so that it does not run dry.
double LookAhead::records_in_time(const Bank& b, const ExpertStore& store) {
    const container::DriveReaderCounters drive = store.drive();
    const double record_seconds = drive.bytes == 0 ? 0
                                                   : static_cast<double>(drive.busy_nanoseconds) * 1e-9 /
                                                         static_cast<double>(drive.bytes) *
                                                         static_cast<double>(store.slot_bytes());
    return record_seconds > 0 ? b.gap_seconds / record_seconds + 1 : 1;
}

void LookAhead::settle(size_t bank, std::span<const int32_t> chosen) {
    Bank& b = banks_[bank];
    if (b.guess.empty()) return;
    for (size_t rank = 0; rank < b.guess.size(); rank++) {
        if (b.guess[rank] < 0) continue;
        const bool right = std::find(chosen.begin(), chosen.end(), b.guess[rank]) != chosen.end();
        average(b.precision[rank], right ? 1.0f : 0.0f, kPrecisionRate);
    }
    const double gap = std::chrono::duration<double>(Clock::now() - b.begun).count();
    b.gap_seconds = b.gap_seconds == 0 ? gap : b.gap_seconds + (gap - b.gap_seconds) / 8;
    b.guess.clear();
}

}  // namespace waste::engine

#include "engine/look_ahead.h"

#include <algorithm>

namespace waste::engine {
namespace {

// A wrong guess delays reads that are wanted and may push out what is; a right one hides a read. Late, only the time to
// the router's choice would be lost otherwise; early, the drive has this layer's reads to do, and only what is as good
// as asked for goes behind them.
constexpr float kLeastPrecision[] = {0.9f, 0.6f};
// From this share on a read need not end before the router has chosen.
constexpr float kSure = 0.9f;
// A layer that asks the drive for fewer experts than this a token gains nothing that is worth another router product.
constexpr float kLeastMisses = 0.02f;
constexpr float kFirstPrecision = 0.5f, kPrecisionRate = 1.0f / 16, kMissRate = 1.0f / 8;

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
    Bank& b = banks_[bank];
    const auto index = static_cast<size_t>(when);
    Made& made = b.made[index];
    made.guess.assign(guess.begin(), guess.end());
    store.keep_absent(bank, made.guess);
    if (when == Guess::late) b.begun = Clock::now();
    const double in_time = records_in_time(b, store);
    wanted_.clear();
    for (size_t rank = 0; rank < guess.size(); rank++) {
        const float precision = made.precision[rank];
        if (made.guess[rank] < 0 || precision < kLeastPrecision[index]) continue;
        if (precision >= kSure || static_cast<double>(wanted_.size()) < in_time)
            wanted_.push_back(guess[rank]);
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
    b.gap_seconds = b.gap_seconds == 0 ? gap : b.gap_seconds + (gap - b.gap_seconds) / 8;
}

}  // namespace waste::engine

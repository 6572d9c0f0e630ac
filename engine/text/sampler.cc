#include "engine/text/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace waste::engine {
namespace {

tl::unexpected<Error> bad_option(const char* name, const char* allowed) {
    return fail(ErrorKind::invalid, name, fmt::format("must be {}", allowed));
}

}  // namespace

Result<void> validate(const SamplerOptions& options) {
    // Written so that NaN fails too.
    if (!(options.temperature >= 0.0f && std::isfinite(options.temperature))) {
        return bad_option("temperature", "a number from 0 (greedy) up");
    }
    if (!(options.top_p > 0.0f && options.top_p <= 1.0f)) {
        return bad_option("top_p", "above 0 and at most 1 (off)");
    }
    if (!(options.min_p >= 0.0f && options.min_p <= 1.0f)) return bad_option("min_p", "from 0 (off) to 1");
    if (!(options.repeat_penalty > 0.0f && std::isfinite(options.repeat_penalty))) {
        return bad_option("repeat_penalty", "a number above 0 (1 is off)");
    }
    if (options.top_k < 0) return bad_option("top_k", "0 (off) or more");
    if (options.repeat_window < 0) return bad_option("repeat_window", "0 or more");
    return {};
}

Result<Sampler> Sampler::create(const SamplerOptions& options, int64_t vocab_size) {
    const auto valid = validate(options);
    if (!valid) return pass(valid);
    if (vocab_size <= 0 || vocab_size > std::numeric_limits<int32_t>::max()) {
        return fail(ErrorKind::invalid, "sampler",
                    fmt::format("a vocabulary of {} tokens is impossible", vocab_size));
    }
    return Sampler(options, static_cast<size_t>(vocab_size));
}

Sampler::Sampler(const SamplerOptions& options, size_t vocab_size) : options_(options), logits_(vocab_size) {
    candidates_.reserve(vocab_size);
}

Result<int32_t> Sampler::sample(std::span<const float> logits, std::span<const int32_t> recent,
                                int64_t position) {
    if (logits.size() != logits_.size()) {
        return fail(ErrorKind::invalid, "sampler",
                    fmt::format("{} logits for a vocabulary of {}", logits.size(), logits_.size()));
    }
    penalize(logits, recent);
    collect();
    if (candidates_.empty()) {
        return fail(ErrorKind::invalid, "sampler", "no logit is a number: the model's output is unusable");
    }
    if (options_.temperature == 0.0f) return largest_candidate();
    weigh();
    keep_top_k();
    keep_top_p();
    return draw(position);
}

void Sampler::penalize(std::span<const float> logits, std::span<const int32_t> recent) {
    std::copy(logits.begin(), logits.end(), logits_.begin());
    if (options_.repeat_penalty == 1.0f) return;
    const auto window = static_cast<size_t>(options_.repeat_window);
    for (const int32_t id : recent.last(std::min(window, recent.size()))) {
        if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
        // Always from the original logit, so a token that came twice is penalized once.
        const float logit = logits[static_cast<size_t>(id)];
        const float penalty = options_.repeat_penalty;
        logits_[static_cast<size_t>(id)] = logit > 0.0f ? logit / penalty : logit * penalty;
    }
}

bool Sampler::comes_before(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

void Sampler::collect() {
    candidates_.clear();
    for (size_t id = 0; id < logits_.size(); ++id) {
        if (logits_[id] > -std::numeric_limits<float>::infinity()) {
            candidates_.push_back({logits_[id], static_cast<int32_t>(id), 0.0});
        }
    }
}

int32_t Sampler::largest_candidate() const {
    return std::min_element(candidates_.begin(), candidates_.end(), comes_before)->id;
}

void Sampler::weigh() {
    float largest = candidates_.front().logit;
    for (const Candidate& candidate : candidates_) largest = std::max(largest, candidate.logit);
    for (Candidate& candidate : candidates_) {
        // The difference of two infinities would be NaN.
        const double below = candidate.logit == largest ? 0.0 : double{candidate.logit} - double{largest};
        candidate.weight = std::exp(below / double{options_.temperature});
    }
}

void Sampler::keep_top_k() {
    const auto count = static_cast<size_t>(options_.top_k);
    if (count == 0 || count >= candidates_.size()) return;
    const auto end = candidates_.begin() + options_.top_k;
    std::partial_sort(candidates_.begin(), end, candidates_.end(), comes_before);
    candidates_.resize(count);
}

void Sampler::keep_top_p() {
    if (options_.top_p == 1.0f) return;
    double total = 0.0;
    for (const Candidate& candidate : candidates_) total += candidate.weight;

    // Takes the largest off a heap, one by one, until enough are there: cheaper than sorting when few are
    // kept.
    const auto comes_later = [](const Candidate& a, const Candidate& b) { return comes_before(b, a); };
    std::make_heap(candidates_.begin(), candidates_.end(), comes_later);
    auto rest = candidates_.end();
    double share = 0.0;
    while (rest != candidates_.begin() && share < double{options_.top_p} * total) {
        std::pop_heap(candidates_.begin(), rest, comes_later);
        --rest;
        share += rest->weight;
    }
    candidates_.erase(candidates_.begin(), rest);
    std::reverse(candidates_.begin(), candidates_.end());
}

int32_t Sampler::draw(int64_t position) const {
    double largest = 0.0;
    for (const Candidate& candidate : candidates_) largest = std::max(largest, candidate.weight);
    const double floor = double{options_.min_p} * largest;
    double total = 0.0;
    for (const Candidate& candidate : candidates_)
        total += candidate.weight >= floor ? candidate.weight : 0.0;

    double left = uniform(position) * total;
    int32_t chosen = candidates_.front().id;
    for (const Candidate& candidate : candidates_) {
        if (candidate.weight < floor || candidate.weight == 0.0) continue;
        chosen = candidate.id;
        left -= candidate.weight;
        if (left < 0.0) break;
    }
    return chosen;
}

/// The number of that position in the sequence of SplitMix64 (Steele, Lea and Flood, 2014): every seed is good. 53 bits
/// in [0, 1).
double Sampler::uniform(int64_t position) const {
    uint64_t z = options_.seed + (static_cast<uint64_t>(position) + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return static_cast<double>(z >> 11) * 0x1.0p-53;
}

}  // namespace waste::engine

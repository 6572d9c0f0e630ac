// Misses of the expert cache under each replacement policy and under the best that there is, on routing traces.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "engine/replacement.h"
#include "tests/bench/cache_trace.h"

namespace waste::bench {
namespace {

using engine::Replacement;
using engine::ReplacementPolicy;

constexpr const char* kAbout =
    "Simulates the expert cache on traces of `waste run --trace-routing` (with --trace-scores for the router "
    "policy).\n"
    "Each cell: misses a token from an empty cache / after the first quarter of the trace. A layer's experts "
    "are\n"
    "requested at once, none of them makes room for another. best: Belady, who knows the future.";

/// Gives up what is needed last; knows the trace.
class Belady : public Replacement {
  public:
    explicit Belady(const CacheTrace& trace)
        : layers_(trace.layers), uses_(static_cast<size_t>(trace.keys())) {
        for (int64_t time = 0; time < trace.tokens * trace.layers; time++) {
            const int64_t layer = time % layers_;
            for (const int32_t id : trace.chosen(time / layers_, layer)) {
                uses_[static_cast<size_t>(layer * trace.experts + id)].push_back(static_cast<float>(time));
            }
        }
        for (auto& times : uses_) std::reverse(times.begin(), times.end());
    }

    void expect(std::span<const float>) override {}
    void on_layer(int64_t, int64_t) override {}
    void on_use(int64_t key) override { uses_[static_cast<size_t>(key)].pop_back(); }
    float value(int64_t key) const override {
        const auto& times = uses_[static_cast<size_t>(key)];
        return times.empty() ? -std::numeric_limits<float>::max() : -times.back();
    }

  private:
    int64_t layers_;
    std::vector<std::vector<float>>
        uses_;  ///< times of each key's uses to come, the next one last; exact to 2^24
};

struct Misses {
    double cold = 0, warm = 0;  ///< a token
};

class Cache {
  public:
    Cache(const CacheTrace& trace, int64_t slots, Replacement& replacement)
        : trace_(trace),
          slots_(static_cast<size_t>(slots)),
          replacement_(replacement),
          resident_(static_cast<size_t>(trace.keys())),
          pinned_(static_cast<size_t>(trace.keys())) {}

    void load(int64_t key) {
        if (resident_[static_cast<size_t>(key)]) return;
        resident_[static_cast<size_t>(key)] = true;
        if (held_.size() < slots_) {
            held_.push_back(key);
            return;
        }
        const size_t victim = least_value();
        resident_[static_cast<size_t>(held_[victim])] = false;
        held_[victim] = key;
    }

    /// Returns the misses.
    int64_t run_layer(int64_t token, int64_t layer) {
        const auto ids = trace_.chosen(token, layer);
        const auto key = [&](int32_t id) { return layer * trace_.experts + id; };
        replacement_.on_layer(layer, 1);
        for (const int32_t id : ids) {
            replacement_.on_use(key(id));
            pinned_[static_cast<size_t>(key(id))] = true;
        }
        if (!trace_.scores.empty()) replacement_.on_scores(trace_.layer_scores(token, layer), ids);
        int64_t misses = 0;
        for (const int32_t id : ids) {
            misses += !resident_[static_cast<size_t>(key(id))];
            load(key(id));
        }
        for (const int32_t id : ids) pinned_[static_cast<size_t>(key(id))] = false;
        return misses;
    }

  private:
    size_t least_value() const {
        size_t least = held_.size();
        float value = 0;
        for (size_t i = 0; i < held_.size(); i++) {
            if (pinned_[static_cast<size_t>(held_[i])]) continue;
            const float other = replacement_.value(held_[i]);
            if (least == held_.size() || other < value) {
                least = i;
                value = other;
            }
        }
        return least;
    }

    const CacheTrace& trace_;
    size_t slots_;
    Replacement& replacement_;
    std::vector<int64_t> held_;  ///< keys by slot
    std::vector<bool> resident_, pinned_;
};

/// Each key's share of tokens.
std::vector<float> chances(const CacheTrace& trace) {
    std::vector<float> out(static_cast<size_t>(trace.keys()));
    for (int64_t time = 0; time < trace.tokens * trace.layers; time++) {
        const int64_t layer = time % trace.layers;
        for (const int32_t id : trace.chosen(time / trace.layers, layer)) {
            out[static_cast<size_t>(layer * trace.experts + id)] += 1 / static_cast<float>(trace.tokens);
        }
    }
    return out;
}

/// `learned`: chances from another trace; the cache starts full of the likeliest.
Misses simulate(const CacheTrace& trace, int64_t slots, Replacement& replacement,
                const std::vector<float>& learned) {
    Cache cache(trace, slots, replacement);
    if (!learned.empty()) {
        replacement.expect(learned);
        std::vector<int64_t> keys(learned.size());
        for (size_t i = 0; i < keys.size(); i++) keys[i] = static_cast<int64_t>(i);
        std::stable_sort(keys.begin(), keys.end(), [&](int64_t a, int64_t b) {
            return learned[static_cast<size_t>(a)] > learned[static_cast<size_t>(b)];
        });
        for (int64_t i = 0; i < slots; i++) cache.load(keys[static_cast<size_t>(i)]);
    }
    const int64_t warm_from = trace.tokens / 4;
    int64_t all = 0, warm = 0;
    for (int64_t token = 0; token < trace.tokens; token++) {
        for (int64_t layer = 0; layer < trace.layers; layer++) {
            const int64_t misses = cache.run_layer(token, layer);
            all += misses;
            if (token >= warm_from) warm += misses;
        }
    }
    return {static_cast<double>(all) / static_cast<double>(trace.tokens),
            static_cast<double>(warm) / static_cast<double>(trace.tokens - warm_from)};
}

/// 2 x top_k, and shares of all records where they are more.
std::vector<int64_t> sizes(const CacheTrace& trace) {
    std::vector<int64_t> out{2 * trace.top_k};
    for (const double share : {0.015, 0.03, 0.06, 0.12, 0.25, 0.5}) {
        const int64_t slots = std::llround(share * static_cast<double>(trace.keys()));
        if (slots > out.back()) out.push_back(slots);
    }
    return out;
}

void print_table(const std::string& name, const CacheTrace& trace, const std::vector<float>& learned) {
    fmt::print("{}: {} tokens, {} layers of {} experts, {} chosen: {} uses a token\n{:<14}", name,
               trace.tokens, trace.layers, trace.experts, trace.top_k, trace.layers * trace.top_k, "slots");
    for (const int64_t slots : sizes(trace)) {
        const double percent = 100 * static_cast<double>(slots) / static_cast<double>(trace.keys());
        fmt::print("{:>17}", fmt::format("{} ({:.1f} %)", slots, percent));
    }
    const auto row = [&](std::string_view title, const auto& make, const std::vector<float>& expected) {
        fmt::print("\n{:<14}", title);
        for (const int64_t slots : sizes(trace)) {
            const auto replacement = make();
            const Misses misses = simulate(trace, slots, *replacement, expected);
            fmt::print("{:>17}", fmt::format("{:.2f} / {:.2f}", misses.cold, misses.warm));
            std::fflush(stdout);
        }
    };
    row("best", [&] { return std::make_unique<Belady>(trace); }, {});
    for (const auto policy : {ReplacementPolicy::lru, ReplacementPolicy::lfu, ReplacementPolicy::router}) {
        if (policy == ReplacementPolicy::router && trace.scores.empty()) continue;
        const auto make = [&] { return make_replacement(policy, trace.layers, trace.experts); };
        row(replacement_name(policy), make, {});
        if (!learned.empty()) row(fmt::format("{}, learned", replacement_name(policy)), make, learned);
    }
    fmt::print("\n\n");
}

int run(const std::vector<std::string>& paths, const std::string& learn_from, int64_t experts) {
    const auto refuse = [](const Error& error) {
        fmt::print(stderr, "waste-cache-table: {}\n", error.text());
        return 1;
    };
    std::optional<CacheTrace> earlier;
    if (!learn_from.empty()) {
        auto trace = read_cache_trace(learn_from, experts);
        if (!trace) return refuse(trace.error());
        earlier = std::move(*trace);
    }
    for (const std::string& path : paths) {
        const auto trace = read_cache_trace(path, experts);
        if (!trace) return refuse(trace.error());
        if (earlier && (earlier->layers != trace->layers || earlier->experts != trace->experts)) {
            return refuse({ErrorKind::invalid, learn_from, "is of a model of another shape"});
        }
        print_table(path, *trace, earlier ? chances(*earlier) : std::vector<float>());
    }
    return 0;
}

}  // namespace
}  // namespace waste::bench

int main(int argc, char** argv) {
    CLI::App app(waste::bench::kAbout, "waste-cache-table");
    std::vector<std::string> paths;
    std::string learn_from;
    int64_t experts = 0;
    app.add_option("TRACE", paths, "Traces, each simulated by itself")->required();
    app.add_option("--learn", learn_from, "Also start from what this trace of an earlier run teaches");
    app.add_option("--experts", experts, "Experts a layer (default: from the trace)")
        ->check(CLI::PositiveNumber);
    CLI11_PARSE(app, argc, argv);
    return waste::bench::run(paths, learn_from, experts);
}

#include "engine/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "container/checksum.h"
#include "engine/plan.h"

namespace waste::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Spread over the vocabulary, so that routing is too.
std::vector<int32_t> arbitrary_ids(int64_t count, int64_t vocab_size) {
    std::vector<int32_t> ids;
    uint64_t state = 1;
    for (int64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ids.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab_size)));
    }
    return ids;
}

int64_t prompt_multiply_adds(const Model& model) {
    const ModelConfig& c = model.config();
    int64_t sum =
        c.moe_layer_count() * c.num_experts_per_token * 3 * c.moe_intermediate_size * c.expert_input_size();
    for (const container::TensorEntry& tensor : model.container().manifest().tensors) {
        if (tensor.layout != container::Layout::panels || tensor.name == "lm_head") continue;
        int64_t elements = 1;
        for (const int64_t extent : tensor.shape) elements *= extent;
        sum += elements;
    }
    return sum;
}

/// What a decoded token at `position` moves: weights read, recurrent state read and written, latents read.
uint64_t decode_bytes(const Model& model, int64_t position) {
    const container::Manifest& manifest = model.container().manifest();
    const ContainerSizes sizes = container_sizes(manifest.trunk_bytes, manifest.tensors, manifest.banks);
    const Plan row = plan(model.config(), sizes, {kernels::kKdaChunk, position, 1}, std::nullopt);
    return row.trunk_read_bytes + row.expert_read_bytes + 2 * (row.kda_state_bytes + row.conv_ring_bytes) +
           row.mla_latent_bytes;
}

class Bench {
  public:
    Bench(const Model& model, Session& session, const BenchOptions& options,
          const std::function<bool(const std::string&)>& go_on)
        : model_(model), session_(session), options_(options), go_on_(go_on) {}

    Result<BenchResult> run() {
        const int64_t longest =
            *std::max_element(options_.prompt_lengths.begin(), options_.prompt_lengths.end());
        ids_ = arbitrary_ids(longest + options_.decode_tokens, model_.config().vocab_size);
        BenchResult out{};
        // First, while experts have not come to take their part of the memory.
        const auto rate = measure_memory_rate(session_.executor().threads(), options_.memory_rate_bytes);
        if (!rate) return pass(rate);
        out.memory_bytes_per_second = *rate;
        session_.clear();
        if (const auto ok = read_prompt(longest, "warming up"); !ok) return pass(ok);
        out.prompt_multiply_adds = prompt_multiply_adds(model_);
        for (const int64_t length : options_.prompt_lengths) {
            auto row = run_prompt(length);
            if (!row) return pass(row);
            out.prompts.push_back(std::move(*row));
        }
        auto decoded = decode(options_.prompt_lengths.back());
        if (!decoded) return pass(decoded);
        out.decode = std::move(*decoded);
        out.decode_bytes = decode_bytes(model_, session_.position());
        out.logits_hash = container::xxh3_64(std::as_bytes(session_.logits()));
        return out;
    }

  private:
    std::span<const int32_t> first(int64_t count) const {
        return std::span(ids_).first(static_cast<size_t>(count));
    }
    static tl::unexpected<Error> interrupted() { return fail(ErrorKind::interrupted, "bench", "stopped"); }

    /// Asks before each of its blocks whether to go on.
    Result<void> read_prompt(int64_t length, const std::string& what) {
        if (!go_on_(what)) return interrupted();
        const auto fed = session_.feed(first(length), nullptr, [&] { return go_on_(what); });
        if (fed && session_.position() < length) return interrupted();
        return fed;
    }

    Result<BenchRow> run_prompt(int64_t length) {
        BenchRow row{0, length, {}, {}, {}};
        const StreamCounters before = model_.counters();
        for (int i = 0; i < options_.repeats; i++) {
            const std::string what = fmt::format("prompt of {}, {} of {}", length, i + 1, options_.repeats);
            session_.clear();
            session_.set_profile(options_.profile ? &row.profile : nullptr);
            const auto start = Clock::now();
            const auto fed = read_prompt(length, what);
            row.seconds.push_back(seconds_since(start));
            session_.set_profile(nullptr);
            if (!fed) return pass(fed);
        }
        row.stream = model_.counters() - before;
        return row;
    }

    Result<BenchRow> decode(int64_t position) {
        BenchRow row{position, options_.decode_tokens > 0 ? 1 : 0, {}, {}, {}};
        const StreamCounters before = model_.counters();
        session_.set_profile(options_.profile ? &row.profile : nullptr);
        for (int64_t i = 0; i < options_.decode_tokens; i++) {
            if (!go_on_(fmt::format("token {} of {}", i + 1, options_.decode_tokens))) break;
            const auto start = Clock::now();
            const auto fed = session_.feed({&ids_[static_cast<size_t>(position + i)], 1});
            row.seconds.push_back(seconds_since(start));
            if (!fed) {
                session_.set_profile(nullptr);
                return pass(fed);
            }
        }
        session_.set_profile(nullptr);
        row.stream = model_.counters() - before;
        if (static_cast<int64_t>(row.seconds.size()) < options_.decode_tokens) return interrupted();
        return row;
    }

    const Model& model_;
    Session& session_;
    const BenchOptions& options_;
    const std::function<bool(const std::string&)>& go_on_;
    std::vector<int32_t> ids_;
};

}  // namespace

double BenchRow::median_seconds() const {
    if (seconds.empty()) return 0;
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    const size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double BenchRow::tokens_per_second() const {
    const double median = median_seconds();
    return median > 0 ? static_cast<double>(tokens) / median : 0;
}

int64_t BenchRow::all_tokens() const {
    return tokens * static_cast<int64_t>(seconds.size());
}

double BenchRow::all_seconds() const {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

double BenchResult::decode_share_of_memory_rate() const {
    const double floor = static_cast<double>(decode_bytes) / memory_bytes_per_second;
    const double taken = decode.median_seconds();
    return taken > 0 ? floor / taken : 0;
}

Result<BenchResult> run_bench(const Model& model, Session& session, const BenchOptions& options,
                              const std::function<bool(const std::string&)>& go_on) {
    if (options.prompt_lengths.empty() || options.repeats < 1 || options.decode_tokens < 0) {
        return fail(ErrorKind::invalid, "bench", "needs a prompt length, a repeat, and no negative count");
    }
    for (const int64_t length : options.prompt_lengths) {
        if (length >= 1 && length + options.decode_tokens <= session.context_length()) continue;
        return fail(ErrorKind::invalid, "bench",
                    fmt::format("a prompt of {} and {} tokens after it do not fit the context of {}", length,
                                options.decode_tokens, session.context_length()));
    }
    return Bench(model, session, options, go_on).run();
}

}  // namespace waste::engine

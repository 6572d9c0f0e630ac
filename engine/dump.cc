#include "engine/dump.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "engine/evaluate.h"

namespace waste::engine {
namespace {

using container::Dtype;
using container::NamedTensor;

template <typename T>
NamedTensor tensor(std::string name, std::vector<int64_t> shape, std::span<const T> values) {
    NamedTensor out{
        std::move(name), std::is_same_v<T, int32_t> ? Dtype::i32 : Dtype::f32, std::move(shape), {}};
    const auto bytes = std::as_bytes(values);
    out.data.assign(bytes.begin(), bytes.end());
    return out;
}

/// Keeps the vectors of the last token and the routing of all.
class Recorder : public Trace {
  public:
    explicit Recorder(int64_t layers) : routing_(static_cast<size_t>(layers)) {}

    void on_vector(TracePoint point, int64_t layer, int64_t, std::span<const float> values) override {
        auto& kept = vectors_[static_cast<size_t>(point)];
        const auto index = point == TracePoint::final ? 0 : static_cast<size_t>(layer);
        if (kept.size() <= index) kept.resize(index + 1);
        kept[index].assign(values.begin(), values.end());
    }

    void on_router(int64_t layer, int64_t, std::span<const int32_t> ids, std::span<const float> weights,
                   float margin, std::span<const float>) override {
        Routing& r = routing_[static_cast<size_t>(layer)];
        r.ids.insert(r.ids.end(), ids.begin(), ids.end());
        r.weights.insert(r.weights.end(), weights.begin(), weights.end());
        r.margins.push_back(margin);
    }

    /// All layers' vectors of one point, back to back.
    std::vector<float> vectors(TracePoint point) const {
        std::vector<float> out;
        for (const auto& v : vectors_[static_cast<size_t>(point)]) out.insert(out.end(), v.begin(), v.end());
        return out;
    }

    void add_routing(const ModelConfig& c, int64_t tokens, const std::string& name,
                     std::vector<NamedTensor>& out) const {
        std::vector<int32_t> ids;
        std::vector<float> weights, margins;
        for (const Routing& r : routing_) {
            ids.insert(ids.end(), r.ids.begin(), r.ids.end());
            weights.insert(weights.end(), r.weights.begin(), r.weights.end());
            margins.insert(margins.end(), r.margins.begin(), r.margins.end());
        }
        const int64_t layers = c.moe_layer_count(), k = c.num_experts_per_token;
        out.push_back(tensor<int32_t>(name + ".router_ids", {layers, tokens, k}, ids));
        out.push_back(tensor<float>(name + ".router_weights", {layers, tokens, k}, weights));
        out.push_back(tensor<float>(name + ".router_margin", {layers, tokens}, margins));
    }

  private:
    struct Routing {
        std::vector<int32_t> ids;
        std::vector<float> weights;
        std::vector<float> margins;
    };
    std::array<std::vector<std::vector<float>>, 6> vectors_;
    std::vector<Routing> routing_;
};

/// Ring [taps-1][width] as [width][taps-1], oldest first.
std::vector<float> unrolled(const float* ring, int64_t taps, int64_t width, int64_t position) {
    const int64_t rows = taps - 1;
    std::vector<float> out(static_cast<size_t>(rows * width));
    for (int64_t age = 0; age < rows; age++) {
        const float* row = ring + (position + age) % rows * width;
        for (int64_t c = 0; c < width; c++) out[static_cast<size_t>(c * rows + age)] = row[c];
    }
    return out;
}

void add_state(const ModelConfig& c, const SequenceState& state, const std::string& name,
               std::vector<NamedTensor>& out) {
    const int64_t heads = c.kda_num_heads, dim = c.kda_head_dim, width = c.kda_width(),
                  taps = c.conv_kernel_size;
    const int64_t tokens = state.position;
    for (size_t layer = 0; layer < c.kda_layer.size(); layer++) {
        if (c.kda_layer[layer]) {
            const KdaState& kda = state.kda[layer];
            out.push_back(tensor<float>(fmt::format("{}.kda_state.{}", name, layer), {heads, dim, dim},
                                        {kda.state, static_cast<size_t>(width * dim)}));
            const std::pair<const char*, const float*> rings[] = {
                {"q", kda.q_ring}, {"k", kda.k_ring}, {"v", kda.v_ring}};
            for (const auto& [which, ring] : rings) {
                out.push_back(tensor<float>(fmt::format("{}.conv_state.{}.{}", name, layer, which),
                                            {width, taps - 1}, unrolled(ring, taps, width, tokens)));
            }
        } else {
            const MlaState& mla = state.mla[layer];
            out.push_back(tensor<float>(fmt::format("{}.mla_latent.{}", name, layer),
                                        {tokens, c.kv_lora_rank},
                                        {mla.latent, static_cast<size_t>(tokens * c.kv_lora_rank)}));
            out.push_back(tensor<float>(fmt::format("{}.mla_rope.{}", name, layer),
                                        {tokens, c.qk_rope_head_dim},
                                        {mla.rope, static_cast<size_t>(tokens * c.qk_rope_head_dim)}));
        }
    }
}

Result<void> add_greedy(Session& session, int64_t steps, int64_t vocab, const std::string& name,
                        std::vector<NamedTensor>& out) {
    std::vector<int32_t> ids;
    std::vector<float> rows, margins;
    for (int64_t i = 0; i < steps; i++) {
        const auto top = likeliest(session.logits(), 2);
        rows.insert(rows.end(), session.logits().begin(), session.logits().end());
        ids.push_back(top[0].id);
        margins.push_back(top.size() > 1 ? top[0].logit - top[1].logit : 0.0f);
        if (i + 1 == steps) break;
        if (const auto ok = session.feed({&ids.back(), 1}); !ok) return ok;
    }
    out.push_back(tensor<int32_t>(name + ".greedy", {steps}, ids));
    out.push_back(tensor<float>(name + ".greedy_logits", {steps, vocab}, rows));
    out.push_back(tensor<float>(name + ".greedy_margin", {steps}, margins));
    return {};
}

}  // namespace

Result<std::vector<NamedTensor>> dump_sequence(const Model& model, Session& session,
                                               std::span<const int32_t> ids, const std::string& name,
                                               int64_t greedy_steps) {
    const ModelConfig& c = model.config();
    const auto tokens = static_cast<int64_t>(ids.size());
    Recorder recorder(c.num_hidden_layers);
    std::vector<float> logits;
    session.set_trace(&recorder);
    const auto fed = session.feed(ids, [&](int64_t, std::span<const float> row) {
        logits.insert(logits.end(), row.begin(), row.end());
    });
    session.set_trace(nullptr);
    if (!fed) return pass(fed);

    std::vector<NamedTensor> out;
    out.push_back(tensor<int32_t>(name + ".ids", {tokens}, ids));
    out.push_back(tensor<float>(name + ".logits", {tokens, c.vocab_size}, logits));
    const std::pair<const char*, TracePoint> points[] = {{"hidden", TracePoint::hidden},
                                                         {"attn_in", TracePoint::attn_in},
                                                         {"attn_out", TracePoint::attn_out},
                                                         {"ffn_in", TracePoint::ffn_in},
                                                         {"ffn_out", TracePoint::ffn_out}};
    for (const auto& [what, point] : points) {
        out.push_back(tensor<float>(fmt::format("{}.{}_last", name, what),
                                    {c.num_hidden_layers, c.hidden_size}, recorder.vectors(point)));
    }
    out.push_back(tensor<float>(name + ".final_last", {c.hidden_size}, recorder.vectors(TracePoint::final)));
    recorder.add_routing(c, tokens, name, out);
    add_state(c, session.state(), name, out);
    if (greedy_steps > 0) {
        if (const auto ok = add_greedy(session, greedy_steps, c.vocab_size, name, out); !ok) return pass(ok);
    }
    return out;
}

}  // namespace waste::engine

// Models no release has, end to end: each size is the largest once and the smallest once. Worth most under the
// address sanitizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

#include "engine/session.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace waste::test {
namespace {

using engine::Compute;
using engine::Session;
using engine::SessionOptions;
using engine::TrunkRecipe;
using kernels::Format;
using nlohmann::json;

constexpr int64_t kTokens = kernels::kKdaChunk + 5;
constexpr int kRandomCases = 40;

struct Case {
    std::string name;
    std::string config;
};

void PrintTo(const Case& test, std::ostream* out) {
    *out << test.name;
}

/// A config.json open to change: the text model's fields, whichever the family.
class Architecture {
  public:
    explicit Architecture(const std::string& checkpoint) {
        std::ifstream file(std::string(WASTE_TEST_DATA) + "/" + checkpoint + "/config.json");
        root_ = json::parse(file);
        for (const char* key : {"bos_token_id", "eos_token_id"}) root_[key] = 0;
        set_layers({true, true, false, true, false});
        text()["num_experts"] = 6;
        text()["num_experts_per_token"] = 2;
        text()["vocab_size"] = 40;
    }

    json& text() { return root_.contains("text_config") ? root_["text_config"] : root_; }
    json& kda() { return text()["linear_attn_config"]; }

    void set_layers(const std::vector<bool>& kda_layer) {
        json with_kda = json::array(), with_mla = json::array();
        for (size_t i = 0; i < kda_layer.size(); i++) (kda_layer[i] ? with_kda : with_mla).push_back(i + 1);
        text()["num_hidden_layers"] = kda_layer.size();
        kda()["kda_layers"] = with_kda;
        kda()["full_attn_layers"] = with_mla;
    }

    void set_heads(int64_t count) {
        text()["num_attention_heads"] = count;
        text()["num_key_value_heads"] = count;
    }

    void set(const std::vector<std::pair<const char*, int64_t>>& fields) {
        for (const auto& [key, value] : fields) text()[key] = value;
    }

    std::string dump() const { return root_.dump(); }

  private:
    json root_;
};

struct Change {
    const char* name;
    std::function<void(Architecture&)> apply;
};

const Change kChanges[] = {
    {"Unchanged", [](Architecture&) {}},
    {"ConvKernel2", [](Architecture& a) { a.kda()["short_conv_kernel_size"] = 2; }},
    {"ConvKernel5", [](Architecture& a) { a.kda()["short_conv_kernel_size"] = 5; }},
    {"EveryExpertChosen",
     [](Architecture& a) {
         a.set({{"num_experts_per_token", 6}});
     }},
    {"OneExpertChosen",
     [](Architecture& a) {
         a.set({{"num_experts_per_token", 1}});
     }},
    {"OneExpert",
     [](Architecture& a) {
         a.set({{"num_experts", 1}, {"num_experts_per_token", 1}});
     }},
    {"NoSharedExperts",
     [](Architecture& a) {
         a.set({{"num_shared_experts", 0}});
     }},
    {"OneKdaHead", [](Architecture& a) { a.kda()["num_heads"] = 1; }},
    {"OneMlaHead", [](Architecture& a) { a.set_heads(1); }},
    {"MoreHeadsThanExperts", [](Architecture& a) { a.set_heads(9); }},
    {"NoMoeLayer",
     [](Architecture& a) {
         a.set({{"first_k_dense_replace", 5}});
     }},
    {"OnlyMoeLayers",
     [](Architecture& a) {
         a.set({{"first_k_dense_replace", 0}});
     }},
    {"EverySecondLayerMoe",
     [](Architecture& a) {
         a.set({{"moe_layer_freq", 2}});
     }},
    {"AllKda",
     [](Architecture& a) {
         a.set_layers({true, true, true});
     }},
    {"AllMla",
     [](Architecture& a) {
         a.set_layers({false, false, false});
     }},
    {"OneLayer", [](Architecture& a) { a.set_layers({true}); }},
    {"QueryRankLargest",
     [](Architecture& a) {
         a.set({{"q_lora_rank", 700}});
     }},
    {"QueryRank1",
     [](Architecture& a) {
         a.set({{"q_lora_rank", 1}});
     }},
    {"LatentRankLargest",
     [](Architecture& a) {
         a.set({{"kv_lora_rank", 700}});
     }},
    {"LatentRank1",
     [](Architecture& a) {
         a.set({{"kv_lora_rank", 1}});
     }},
    {"KdaHeadLargest",
     [](Architecture& a) {
         a.kda()["head_dim"] = 300;
         a.set({{"kv_lora_rank", 8}, {"qk_nope_head_dim", 8}, {"moe_intermediate_size", 8}});
     }},
    {"NopeLargest",
     [](Architecture& a) {
         a.set({{"qk_nope_head_dim", 700}});
     }},
    {"ValueHeadLargest",
     [](Architecture& a) {
         a.set({{"v_head_dim", 700}});
     }},
    {"NoRopeChannels",
     [](Architecture& a) {
         a.set({{"qk_rope_head_dim", 0}});
     }},
    {"HeadDims1",
     [](Architecture& a) {
         a.kda()["head_dim"] = 1;
         a.set({{"qk_nope_head_dim", 1}, {"qk_rope_head_dim", 1}, {"v_head_dim", 1}});
     }},
    {"ExpertLargest",
     [](Architecture& a) {
         a.set({{"moe_intermediate_size", 700}});
     }},
    {"ExpertInputLargest",
     [](Architecture& a) {
         a.set({{"routed_expert_hidden_size", 700}});
     }},
    {"ExpertSizes1",
     [](Architecture& a) {
         a.set({{"moe_intermediate_size", 1}, {"routed_expert_hidden_size", 1}});
     }},
    {"DenseLargest",
     [](Architecture& a) {
         a.set({{"intermediate_size", 700}});
     }},
    {"Dense1",
     [](Architecture& a) {
         a.set({{"intermediate_size", 1}});
     }},
    {"ResidualBlocksOfOneLayer",
     [](Architecture& a) {
         a.set({{"attn_res_block_size", 1}});
     }},
    {"OneResidualBlock",
     [](Architecture& a) {
         a.set({{"attn_res_block_size", 5}});
     }},
    {"ResidualBlockLongerThanModel",
     [](Architecture& a) {
         a.set({{"attn_res_block_size", 9}});
     }},
    {"HiddenPrime",
     [](Architecture& a) {
         a.set({{"hidden_size", 131}});
     }},
    {"Hidden1",
     [](Architecture& a) {
         a.set({{"hidden_size", 1}});
     }},
    {"Vocabulary1",
     [](Architecture& a) {
         a.set({{"vocab_size", 1}});
     }},
};

/// Every dimension in 1..70 and every switch at random.
std::string random_config(const char* checkpoint, uint32_t seed) {
    std::mt19937 random(seed);
    const auto up_to = [&](uint32_t most) { return static_cast<int64_t>(1 + random() % most); };
    const auto coin = [&] { return random() % 2 == 0; };
    Architecture a(checkpoint);
    std::vector<bool> kda_layer(static_cast<size_t>(up_to(4)));
    for (size_t i = 0; i < kda_layer.size(); i++) kda_layer[i] = coin();
    a.set_layers(kda_layer);
    for (const char* key :
         {"hidden_size", "vocab_size", "intermediate_size", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim",
          "qk_rope_head_dim", "v_head_dim", "moe_intermediate_size", "routed_expert_hidden_size"}) {
        a.text()[key] = up_to(70);
    }
    a.kda()["head_dim"] = up_to(70);
    a.kda()["num_heads"] = up_to(12);
    a.kda()["short_conv_kernel_size"] = 1 + up_to(6);
    a.kda()["use_full_rank_gate"] = coin();
    a.set_heads(up_to(12));
    a.text()["mla_use_output_gate"] = coin();
    a.text()["latent_moe_use_norm"] = coin();
    a.text()["moe_renormalize"] = coin();
    const int64_t experts = up_to(30);
    a.set({{"num_experts", experts},
           {"num_experts_per_token", up_to(static_cast<uint32_t>(experts))},
           {"num_shared_experts", up_to(3) - 1},
           {"first_k_dense_replace", up_to(3) - 1},
           {"moe_layer_freq", up_to(2)},
           {"attn_res_block_size", up_to(5)}});
    return a.dump();
}

std::vector<Case> cases() {
    std::vector<Case> out;
    for (const auto& [family, checkpoint] : {std::pair{"K3", "tiny-k3"}, {"Linear", "tiny-kimi-linear"}}) {
        for (const Change& change : kChanges) {
            Architecture architecture(checkpoint);
            change.apply(architecture);
            out.push_back({std::string(family) + change.name, architecture.dump()});
        }
        for (uint32_t i = 0; i < kRandomCases / 2; i++) {
            out.push_back({std::string(family) + "Random" + std::to_string(i), random_config(checkpoint, i)});
        }
    }
    return out;
}

/// Logits after every token.
std::vector<float> run(const engine::Model& model, Compute compute, int threads, size_t piece) {
    SessionOptions options;
    options.context_length = kTokens;
    options.compute = compute;
    options.threads = threads;
    auto session = Session::create(model, options);
    if (!session) throw std::runtime_error(session.error().text());
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < kTokens; i++) {
        ids.push_back(static_cast<int32_t>((3 + 7 * i) % model.config().vocab_size));
    }
    std::vector<float> out;
    // The first feed fills a chunk of KDA, the rest come in pieces.
    for (size_t at = 0, size = kernels::kKdaChunk; at < ids.size(); at += size, size = piece) {
        size = std::min(size, ids.size() - at);
        const auto fed = session->feed(std::span(ids).subspan(at, size), [&](int64_t, auto logits) {
            out.insert(out.end(), logits.begin(), logits.end());
        });
        if (!fed) throw std::runtime_error(fed.error().text());
    }
    return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class Architectures : public ::testing::TestWithParam<Case> {
  protected:
    void check(const RandomModelRecipe& recipe) {
        const TempDir directory;
        const auto written = write_random_model(GetParam().config, recipe, 1, directory.path());
        ASSERT_TRUE(written) << written.error().text();
        const auto model = engine::Model::open(directory.path());
        ASSERT_TRUE(model) << model.error().text();
        for (const Compute compute : {Compute::int8, Compute::f32}) {
            SCOPED_TRACE(compute == Compute::int8 ? "int8" : "f32");
            const std::vector<float> logits = run(*model, compute, 1, kTokens);
            EXPECT_EQ(logits.size(), static_cast<size_t>(kTokens * model->config().vocab_size));
            EXPECT_TRUE(std::all_of(logits.begin(), logits.end(), [](float v) { return std::isfinite(v); }));
            EXPECT_TRUE(same_bits(run(*model, compute, 2, kTokens), logits)) << "two threads";
            EXPECT_TRUE(same_bits(run(*model, compute, 1, 1), logits)) << "token by token";
        }
    }
};

TEST_P(Architectures, Q4) {
    check({TrunkRecipe::q4, Format::mxfp4});
}

TEST_P(Architectures, Q8) {
    check({TrunkRecipe::q8, Format::q8});
}

TEST_P(Architectures, F32) {
    check({TrunkRecipe::f32, Format::f32});
}

INSTANTIATE_TEST_SUITE_P(, Architectures, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace waste::test

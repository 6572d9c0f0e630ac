// Attention over more positions than one span (kernels/mla.h). A single layer of it without position encoding sees
// what is before a token as a set: in whatever order it comes, the token's logits stay. A span left out, taken twice
// or merged wrongly breaks that, because other tokens lie in it.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/session.h"
#include "kernels/mla.h"
#include "tests/support/golden.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace waste::test {
namespace {

constexpr const char* kConfig = R"({
  "model_type": "kimi_linear", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "rms_norm_eps": 1e-5,
  "model_max_length": 16384, "bos_token_id": 0, "eos_token_id": 1, "tie_word_embeddings": false,
  "linear_attn_config": {"kda_layers": [], "full_attn_layers": [1], "num_heads": 2, "head_dim": 16,
    "short_conv_kernel_size": 4},
  "num_attention_heads": 2, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16,
  "mla_use_nope": true, "hidden_act": "silu", "intermediate_size": 32, "first_k_dense_replace": 1,
  "moe_layer_freq": 1, "num_experts": 4, "num_experts_per_token": 2, "num_shared_experts": 1,
  "moe_intermediate_size": 32, "moe_router_activation_func": "sigmoid", "moe_renormalize": true,
  "routed_scaling_factor": 1.0
})";

// Two spans and a part of a third, and a span's block that is not full.
constexpr int64_t kBefore = 2 * kernels::kMlaSpan + 3 * kernels::kMlaBlock + 77;

/// A token of its own for each span, with some others among them.
std::vector<int32_t> tokens_by_span() {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < kBefore; i++) {
        const int64_t span = i / kernels::kMlaSpan;
        ids.push_back(static_cast<int32_t>(20 * span + i * i % 20));
    }
    return ids;
}

std::vector<float> last_logits(const engine::Model& model, std::vector<int32_t> ids, int64_t block,
                               int threads) {
    engine::SessionOptions options;
    options.context_length = kBefore + 1;
    options.block_tokens = block;
    options.compute = engine::Compute::f32;
    options.threads = threads;
    auto session = engine::Session::create(model, options);
    if (!session) throw std::runtime_error(session.error().text());
    ids.push_back(63);
    if (const auto fed = session->feed(ids); !fed) throw std::runtime_error(fed.error().text());
    return {session->logits().begin(), session->logits().end()};
}

class LongAttention : public ::testing::Test {
  protected:
    void SetUp() override {
        const RandomModelRecipe recipe{engine::TrunkRecipe::f32, kernels::Format::f32};
        const auto written = write_random_model(kConfig, recipe, 7, directory_.path());
        ASSERT_TRUE(written) << written.error().text();
        auto model = engine::Model::open(directory_.path());
        ASSERT_TRUE(model) << model.error().text();
        model_.emplace(std::move(*model));
    }

    TempDir directory_;
    std::optional<engine::Model> model_;
};

TEST_F(LongAttention, OrderOfTheTokensBeforeDoesNotMatter) {
    const std::vector<int32_t> ids = tokens_by_span();
    std::vector<int32_t> reversed(ids.rbegin(), ids.rend());
    const auto forward = last_logits(*model_, ids, 512, 2);
    EXPECT_LE(relative_error(last_logits(*model_, reversed, 512, 2), forward), 1e-5);
    // And it does see them all: without the last span's tokens it is another result.
    std::replace_if(
        reversed.begin(), reversed.end(), [](int32_t id) { return id >= 40; }, 5);
    EXPECT_GT(relative_error(last_logits(*model_, reversed, 512, 2), forward), 1e-3);
}

TEST_F(LongAttention, BlocksAndThreadsGiveTheSameBits) {
    const std::vector<int32_t> ids = tokens_by_span();
    const auto one = last_logits(*model_, ids, 4096, 1);
    EXPECT_EQ(last_logits(*model_, ids, 64, 3), one);
}

}  // namespace
}  // namespace waste::test

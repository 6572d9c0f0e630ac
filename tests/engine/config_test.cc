#include "engine/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

namespace waste::engine {
namespace {

using nlohmann::json;

constexpr const char* kPlace = "models/x/config.json";

std::string read_test_config(const std::string& model) {
    std::ifstream file(std::string(WASTE_TEST_DATA) + "/" + model + "/config.json");
    return {std::istreambuf_iterator<char>(file), {}};
}

/// A JSON pointer of a key, and its spelling in errors.
struct Key {
    std::string pointer;

    json::json_pointer at() const { return json::json_pointer(pointer); }
    std::string dotted() const {
        std::string out = pointer.substr(1);
        std::replace(out.begin(), out.end(), '/', '.');
        return out;
    }
};

enum class Type { integer, number, boolean, string, list, object };

struct KeyRow {
    Key key;
    Type type;
};

struct FamilyCase {
    const char* model;
    std::vector<KeyRow> required;
    std::vector<KeyRow> optional;  ///< may be absent, may not be mistyped
};

void PrintTo(const FamilyCase& family, std::ostream* out) {
    *out << family.model;
}

/// The keys that both families need, below `root`.
std::vector<KeyRow> common_keys(const std::string& root) {
    std::vector<KeyRow> rows{{{"/model_type"}, Type::string}};
    const std::string lin = root + "/linear_attn_config";
    for (const char* key :
         {"vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads",
          "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "num_experts",
          "num_experts_per_token", "num_shared_experts", "moe_intermediate_size", "first_k_dense_replace"}) {
        rows.push_back({{root + "/" + key}, Type::integer});
    }
    for (const char* key : {"rms_norm_eps", "routed_scaling_factor"}) {
        rows.push_back({{root + "/" + key}, Type::number});
    }
    for (const char* key : {"mla_use_nope", "moe_renormalize"}) {
        rows.push_back({{root + "/" + key}, Type::boolean});
    }
    for (const char* key : {"hidden_act", "moe_router_activation_func"}) {
        rows.push_back({{root + "/" + key}, Type::string});
    }
    rows.push_back({{lin}, Type::object});
    for (const char* key : {"kda_layers", "full_attn_layers"})
        rows.push_back({{lin + "/" + key}, Type::list});
    for (const char* key : {"num_heads", "head_dim", "short_conv_kernel_size"}) {
        rows.push_back({{lin + "/" + key}, Type::integer});
    }
    return rows;
}

FamilyCase k3_case() {
    FamilyCase out{"tiny-k3", common_keys("/text_config"), {}};
    const std::string text = "/text_config/", lin = text + "linear_attn_config/";
    const std::vector<KeyRow> own{
        {{"/text_config"}, Type::object},
        {{text + "max_position_embeddings"}, Type::integer},
        {{text + "q_lora_rank"}, Type::integer},
        {{text + "routed_expert_hidden_size"}, Type::integer},
        {{text + "attn_res_block_size"}, Type::integer},
        {{text + "activation_situ_beta"}, Type::number},
        {{text + "activation_situ_linear_beta"}, Type::number},
        {{text + "mla_use_output_gate"}, Type::boolean},
        {{text + "latent_moe_use_norm"}, Type::boolean},
        {{lin + "gate_lower_bound"}, Type::number},
        {{lin + "use_full_rank_gate"}, Type::boolean},
        {{text + "moe_layer_freq"}, Type::integer},
        {{text + "num_key_value_heads"}, Type::integer},
        {{text + "num_expert_group"}, Type::integer},
        {{text + "topk_group"}, Type::integer},
        {{text + "tie_word_embeddings"}, Type::boolean},
        {{"/tie_word_embeddings"}, Type::boolean},
        {{"/bos_token_id"}, Type::integer},
    };
    out.required.insert(out.required.end(), own.begin(), own.end());
    return out;
}

FamilyCase kimi_linear_case() {
    FamilyCase out{"tiny-kimi-linear", common_keys(""), {}};
    out.required.push_back({{"/model_max_length"}, Type::integer});
    out.optional = {{{"/moe_layer_freq"}, Type::integer},
                    {{"/num_key_value_heads"}, Type::integer},
                    {{"/num_expert_group"}, Type::integer},
                    {{"/topk_group"}, Type::integer},
                    {{"/tie_word_embeddings"}, Type::boolean},
                    {{"/bos_token_id"}, Type::integer},
                    {{"/q_lora_rank"}, Type::integer},
                    {{"/routed_expert_hidden_size"}, Type::integer},
                    {{"/attn_res_block_size"}, Type::integer},
                    {{"/mla_use_output_gate"}, Type::boolean},
                    {{"/latent_moe_use_norm"}, Type::boolean},
                    {{"/linear_attn_config/gate_lower_bound"}, Type::number},
                    {{"/linear_attn_config/use_full_rank_gate"}, Type::boolean}};
    return out;
}

std::vector<json> values_of_other_types(Type type) {
    const std::vector<std::pair<Type, json>> values{
        {Type::integer, 3},  {Type::number, 0.5},         {Type::boolean, true},
        {Type::string, "3"}, {Type::list, json::array()}, {Type::object, json::object()}};
    std::vector<json> out;
    for (const auto& [value_type, value] : values) {
        const bool fits = value_type == type || (type == Type::number && value_type == Type::integer);
        if (!fits) out.push_back(value);
    }
    if (type == Type::list) out.push_back(json::array({1, "2"}));
    return out;
}

Result<ModelConfig> parse(const json& config) {
    return parse_config(config.dump(), kPlace);
}

/// The config must be refused with an error that names file and key.
void expect_refused(const json& config, const std::string& name, ErrorKind kind, const std::string& what) {
    const auto parsed = parse(config);
    ASSERT_FALSE(parsed) << what << " is accepted";
    EXPECT_EQ(parsed.error().kind, kind) << what << ": " << parsed.error().text();
    EXPECT_NE(parsed.error().text().find(std::string(kPlace) + ": " + name), std::string::npos)
        << what << ": " << parsed.error().text();
    EXPECT_EQ(parsed.error().text().find('\n'), std::string::npos);
}

class ConfigTest : public testing::TestWithParam<FamilyCase> {
  protected:
    json config_ = json::parse(read_test_config(GetParam().model));

    json without(const Key& key) const {
        json out = config_;
        const auto pointer = key.at();
        out[pointer.parent_pointer()].erase(pointer.back());
        return out;
    }
    json with(const Key& key, const json& value) const {
        json out = config_;
        out[key.at()] = value;
        return out;
    }
    /// Key of text_config, wherever this family has it.
    Key text(const std::string& key) const {
        return {(config_.contains("text_config") ? "/text_config/" : "/") + key};
    }
};

INSTANTIATE_TEST_SUITE_P(Families, ConfigTest, testing::Values(k3_case(), kimi_linear_case()),
                         [](const auto& family) { return family.index == 0 ? "K3" : "KimiLinear"; });

TEST_P(ConfigTest, RequiredKeysAreRefusedByNameWhenMissing) {
    for (const KeyRow& row : GetParam().required) {
        ASSERT_TRUE(config_.contains(row.key.at())) << row.key.pointer;
        expect_refused(without(row.key), row.key.dotted(), ErrorKind::not_found, row.key.pointer + " absent");
        expect_refused(with(row.key, nullptr), row.key.dotted(), ErrorKind::not_found,
                       row.key.pointer + " null");
    }
}

TEST_P(ConfigTest, KeysOfTheWrongTypeAreRefusedByName) {
    std::vector<KeyRow> rows = GetParam().required;
    rows.insert(rows.end(), GetParam().optional.begin(), GetParam().optional.end());
    for (const KeyRow& row : rows) {
        for (const json& value : values_of_other_types(row.type)) {
            expect_refused(with(row.key, value), row.key.dotted(), ErrorKind::corrupt,
                           row.key.pointer + " = " + value.dump());
        }
    }
}

TEST_P(ConfigTest, OptionalKeysMayBeAbsentOrNull) {
    for (const KeyRow& row : GetParam().optional) {
        if (!config_.contains(row.key.at())) continue;
        EXPECT_TRUE(parse(without(row.key))) << row.key.pointer;
        EXPECT_TRUE(parse(with(row.key, nullptr))) << row.key.pointer;
    }
}

TEST_P(ConfigTest, NumbersOutOfRangeAreRefusedByName) {
    const json huge = 18446744073709551615u;
    for (const KeyRow& row : GetParam().required) {
        if (row.type == Type::integer) {
            for (const json& value : {json(-1), json(INT64_MIN), json(INT64_MAX), huge}) {
                expect_refused(with(row.key, value), row.key.dotted(), ErrorKind::corrupt,
                               row.key.pointer + " = " + value.dump());
            }
        } else if (row.type == Type::number) {
            for (const json& value : {json(-1e30), json(1e30)}) {
                expect_refused(with(row.key, value), row.key.dotted(), ErrorKind::corrupt,
                               row.key.pointer + " = " + value.dump());
            }
        }
    }
}

TEST_P(ConfigTest, ZeroIsRefusedWhereThereIsNothingToCompute) {
    for (const char* key :
         {"vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads",
          "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "num_experts", "num_experts_per_token",
          "moe_intermediate_size", "rms_norm_eps", "routed_scaling_factor"}) {
        expect_refused(with(text(key), 0), text(key).dotted(), ErrorKind::corrupt, key);
    }
    for (const char* key : {"num_heads", "head_dim", "short_conv_kernel_size"}) {
        const Key lin = text(std::string("linear_attn_config/") + key);
        expect_refused(with(lin, 0), lin.dotted(), ErrorKind::corrupt, key);
    }
}

TEST_P(ConfigTest, MoreExpertsPerTokenThanExpertsAreRefused) {
    const Key key = text("num_experts_per_token");
    expect_refused(with(key, 17), key.dotted(), ErrorKind::corrupt, "17 of 16 experts");
}

TEST_P(ConfigTest, EveryLayerStandsInExactlyOneList) {
    const Key kda = text("linear_attn_config/kda_layers"), full = text("linear_attn_config/full_attn_layers");
    const auto appended = [&](const Key& key, int64_t layer) {
        json list = config_[key.at()];
        list.push_back(layer);
        return with(key, list);
    };
    const auto shortened = [&](const Key& key) {
        json list = config_[key.at()];
        list.erase(list.begin());
        return with(key, list);
    };
    const auto expect = [&](const json& config, const Key& key, const std::string& what) {
        expect_refused(config, key.dotted(), ErrorKind::corrupt, what);
    };
    expect(appended(kda, 4), kda, "layer 4 in both lists");
    expect(appended(full, 1), kda, "layer 1 in both lists");
    expect(appended(kda, 1), kda, "layer 1 twice");
    expect(shortened(kda), kda, "layer 1 in neither list");
    expect(shortened(full), kda, "layer 4 in neither list");
    expect(with(kda, json::array()), kda, "no KDA layer listed");
    for (const int64_t layer : {0, -1, 14, 1 << 30}) {
        expect(appended(kda, layer), kda, "layer " + std::to_string(layer));
        expect(appended(full, layer), full, "layer " + std::to_string(layer));
    }
    const auto overlap = parse(appended(kda, 4));
    EXPECT_NE(overlap.error().message.find("layer 4"), std::string::npos) << overlap.error().text();
}

TEST_P(ConfigTest, UnsupportedValuesAreNamedAsSuch) {
    const std::vector<std::pair<Key, json>> rows{
        {text("hidden_act"), "gelu"},    {text("moe_router_activation_func"), "softmax"},
        {text("num_expert_group"), 2},   {text("topk_group"), 2},
        {text("mla_use_nope"), false},   {text("tie_word_embeddings"), true},
        {text("num_key_value_heads"), 1}};
    for (const auto& [key, value] : rows) {
        const json config = with(key, value);
        expect_refused(config, key.dotted(), ErrorKind::unsupported, key.pointer);
        EXPECT_NE(parse(config).error().message.find("support"), std::string::npos)
            << parse(config).error().text();
    }
}

TEST_P(ConfigTest, ForeignModelTypesAreUnsupportedNotCorrupt) {
    for (const char* type : {"llama", "deepseek_v3", "kimi_k2", "", "KIMI_K3"}) {
        const auto parsed = parse(with({"/model_type"}, type));
        ASSERT_FALSE(parsed) << type;
        EXPECT_EQ(parsed.error().kind, ErrorKind::unsupported);
        EXPECT_NE(parsed.error().message.find("not supported"), std::string::npos) << parsed.error().text();
        EXPECT_NE(parsed.error().message.find(type), std::string::npos) << parsed.error().text();
    }
}

TEST_P(ConfigTest, TokenIdsStayInsideTheVocabulary) {
    EXPECT_EQ(parse(config_)->eos_token_ids, std::vector<int32_t>({2}));
    EXPECT_EQ(parse(with({"/eos_token_id"}, {2, 7}))->eos_token_ids, std::vector<int32_t>({2, 7}));
    if (std::string_view(GetParam().model) == "tiny-kimi-linear") {
        EXPECT_TRUE(parse(without({"/eos_token_id"}))->eos_token_ids.empty());
        EXPECT_EQ(parse(without({"/bos_token_id"}))->bos_token_id, -1);
    } else {
        expect_refused(without({"/eos_token_id"}), "eos_token_id", ErrorKind::not_found, "absent");
    }
    for (const json& value : {json(512), json(-1), json("2"), json({2, 512}), json({2, nullptr})}) {
        expect_refused(with({"/eos_token_id"}, value), "eos_token_id", ErrorKind::corrupt, value.dump());
    }
    expect_refused(with({"/bos_token_id"}, 512), "bos_token_id", ErrorKind::corrupt, "512 of 512");
}

TEST_P(ConfigTest, UnknownKeysChangeNothing) {
    const auto parsed = parse(with(text("some_future_key"), {{"a", 1}}));
    ASSERT_TRUE(parsed) << parsed.error().text();
    EXPECT_EQ(parsed->hidden_size, parse(config_)->hidden_size);
}

// Whatever happens to the text, the answer is a config or an error.
TEST_P(ConfigTest, DamagedTextIsAnErrorOrAConfig) {
    const std::string text = read_test_config(GetParam().model);
    for (size_t length = 0; length + 1 < text.size(); length += 7) {
        const auto parsed = parse_config(std::string_view(text).substr(0, length), kPlace);
        ASSERT_FALSE(parsed) << "cut to " << length;
        EXPECT_EQ(parsed.error().text().find(kPlace), 0u) << parsed.error().text();
    }
    std::mt19937 random(1);
    int refused = 0;
    for (int round = 0; round < 1500; round++) {
        std::string damaged = text;
        damaged[random() % damaged.size()] = static_cast<char>(random() & 0xff);
        const auto parsed = parse_config(damaged, kPlace);
        if (parsed) continue;
        refused++;
        ASSERT_EQ(parsed.error().text().find(kPlace), 0u) << parsed.error().text();
    }
    EXPECT_GT(refused, 100);
}

TEST(Config, ReadsK3) {
    const auto c = parse_config(read_test_config("odd-k3"), kPlace);
    ASSERT_TRUE(c) << c.error().text();
    EXPECT_EQ(c->family, Family::kimi_k3);
    EXPECT_EQ(c->tensor_prefix, "language_model.");
    EXPECT_EQ(c->vocab_size, 391);
    EXPECT_EQ(c->hidden_size, 160);
    EXPECT_EQ(c->intermediate_size, 224);
    EXPECT_EQ(c->max_context, 4096);
    EXPECT_EQ(c->rms_norm_eps, 1e-5f);
    EXPECT_EQ(c->kda_layer, std::vector<bool>({true, false, true, false}));
    EXPECT_EQ(c->kda_layer_count(), 2);
    EXPECT_EQ(c->mla_layer_count(), 2);
    EXPECT_EQ(c->kda_num_heads, 3);
    EXPECT_EQ(c->kda_head_dim, 64);
    EXPECT_EQ(c->kda_width(), 192);
    EXPECT_EQ(c->conv_kernel_size, 4);
    EXPECT_EQ(c->gate_lower_bound, -5.0f);
    EXPECT_TRUE(c->use_full_rank_gate);
    EXPECT_EQ(c->num_attention_heads, 3);
    EXPECT_EQ(c->q_lora_rank, 36);
    EXPECT_EQ(c->kv_lora_rank, 56);
    EXPECT_EQ(c->q_head_dim(), 64);
    EXPECT_EQ(c->v_head_dim, 40);
    EXPECT_TRUE(c->mla_use_output_gate);
    EXPECT_EQ(c->hidden_act, HiddenAct::situ);
    EXPECT_EQ(c->situ_beta, 4.0f);
    EXPECT_EQ(c->situ_linear_beta, 25.0f);
    EXPECT_EQ(c->num_experts, 10);
    EXPECT_EQ(c->num_experts_per_token, 3);
    EXPECT_EQ(c->num_shared_experts, 1);
    EXPECT_EQ(c->moe_intermediate_size, 160);
    EXPECT_EQ(c->routed_expert_hidden_size, 96);
    EXPECT_EQ(c->expert_input_size(), 96);
    EXPECT_TRUE(c->latent_moe_use_norm);
    EXPECT_TRUE(c->moe_renormalize);
    EXPECT_EQ(c->routed_scaling_factor, 1.7f);
    EXPECT_EQ(c->attn_res_block_size, 3);
    EXPECT_EQ(c->attn_res_snapshots(), 2);
    EXPECT_FALSE(c->is_moe(0));
    EXPECT_EQ(c->moe_layer_count(), 3);
    EXPECT_EQ(c->bos_token_id, 1);
}

TEST(Config, ReadsKimiLinear) {
    const auto c = parse_config(read_test_config("tiny-kimi-linear"), kPlace);
    ASSERT_TRUE(c) << c.error().text();
    EXPECT_EQ(c->family, Family::kimi_linear);
    EXPECT_EQ(c->tensor_prefix, "");
    EXPECT_EQ(c->num_hidden_layers, 8);
    EXPECT_EQ(c->kda_layer_count(), 6);
    EXPECT_FALSE(c->gate_lower_bound.has_value());
    EXPECT_FALSE(c->use_full_rank_gate);
    EXPECT_EQ(c->q_lora_rank, 0);
    EXPECT_FALSE(c->mla_use_output_gate);
    EXPECT_EQ(c->hidden_act, HiddenAct::silu);
    EXPECT_EQ(c->routed_expert_hidden_size, 0);
    EXPECT_EQ(c->expert_input_size(), 96);
    EXPECT_FALSE(c->latent_moe_use_norm);
    EXPECT_EQ(c->routed_scaling_factor, 2.446f);
    EXPECT_EQ(c->attn_res_block_size, 0);
    EXPECT_EQ(c->attn_res_snapshots(), 0);
    EXPECT_EQ(c->moe_layer_count(), 7);
}

TEST(Config, MoeLayersFollowTheFrequency) {
    json config = json::parse(read_test_config("tiny-kimi-linear"));
    config["moe_layer_freq"] = 2;
    config["first_k_dense_replace"] = 3;
    const auto c = parse(config);
    ASSERT_TRUE(c) << c.error().text();
    for (int64_t layer = 0; layer < 8; layer++)
        EXPECT_EQ(c->is_moe(layer), layer == 4 || layer == 6) << layer;
}

TEST(Config, TooManyResidualBlocksAreUnsupported) {
    json config = json::parse(read_test_config("tiny-k3"));
    json& text = config["text_config"];
    text["num_hidden_layers"] = 100;
    for (int layer = 14; layer <= 100; layer++) text["linear_attn_config"]["kda_layers"].push_back(layer);
    EXPECT_TRUE(parse(config));
    text["attn_res_block_size"] = 1;
    expect_refused(config, "text_config.attn_res_block_size", ErrorKind::unsupported, "100 blocks");
}

TEST(Config, ALatentNormNeedsALatent) {
    json config = json::parse(read_test_config("tiny-kimi-linear"));
    config["latent_moe_use_norm"] = true;
    expect_refused(config, "latent_moe_use_norm", ErrorKind::corrupt, "no latent");
}

TEST(Config, TextThatIsNoConfigIsRefused) {
    const std::string deep(200000, '[');
    for (const std::string& text :
         {std::string(), std::string("null"), std::string("[]"), std::string("3"), std::string("{"),
          std::string("\xff\xfe{}"), std::string("{\"a\": \"\xff\"}"), std::string("{\"model_type\": 1e999}"),
          std::string(100, '\0'), deep}) {
        const auto parsed = parse_config(text, kPlace);
        ASSERT_FALSE(parsed) << text.substr(0, 20);
        EXPECT_EQ(parsed.error().kind, ErrorKind::corrupt);
        EXPECT_EQ(parsed.error().text().find(kPlace), 0u) << parsed.error().text();
    }
}

}  // namespace
}  // namespace waste::engine

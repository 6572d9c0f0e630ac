// config.json, to the end: whatever parse_config accepts must open and compute, within its memory. Inputs
// stay JSON; what changes are whole numbers and switches. Each run writes and removes a small model: point
// TMPDIR at memory.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/convert/layout.h"
#include "engine/session.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using nlohmann::json;
namespace engine = waste::engine;

// Enough for every relation between dimensions, few enough for many runs a second.
constexpr uint64_t kMostElements = 1 << 18;
constexpr int64_t kMostLayers = 64;
constexpr int64_t kTokens = 3;
// A chunk of KDA that is full, and tiles that are not.
constexpr int64_t kPrompt = 70;

void find_leaves(json& value, std::vector<json*>& leaves) {
    if (value.is_structured()) {
        for (json& item : value) find_leaves(item, leaves);
    } else if (value.is_number_integer() || value.is_boolean()) {
        leaves.push_back(&value);
    }
}

int64_t interesting_number(std::mt19937& random, int64_t old) {
    constexpr int64_t kEdges[] = {0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 256, 257};
    switch (random() % 4) {
        case 0:
            return kEdges[random() % std::size(kEdges)];
        case 1:
            return old < 1 << 20 ? old + (random() % 2 == 0 ? 1 : -1) : 1;
        case 2:
            return static_cast<int64_t>(random() % 12);
        default:
            return static_cast<int64_t>(random() % 400);
    }
}

/// Another number of layers, dealt anew to the two kinds: changed one by one, the lists would seldom agree.
void deal_layers(json& text, std::mt19937& random) {
    const size_t layers = 1 + random() % 9;
    json kda = json::array(), mla = json::array();
    for (size_t layer = 1; layer <= layers; layer++) (random() % 2 == 0 ? kda : mla).push_back(layer);
    text["num_hidden_layers"] = layers;
    json& linear = text["linear_attn_config"];
    if (!linear.is_object()) return;
    linear["kda_layers"] = kda;
    linear["full_attn_layers"] = mla;
}

void mutate(json& root, std::mt19937& random) {
    if (root.is_object() && random() % 8 == 0) {
        const auto text = root.find("text_config");
        deal_layers(text != root.end() && text->is_object() ? *text : root, random);
        return;
    }
    std::vector<json*> leaves;
    find_leaves(root, leaves);
    if (leaves.empty()) return;
    json& leaf = *leaves[random() % leaves.size()];
    if (leaf.is_boolean()) {
        leaf = !leaf.get<bool>();
    } else {
        leaf = interesting_number(random, leaf.get<int64_t>());
    }
}

bool small_enough(const engine::ModelConfig& config) {
    if (config.num_hidden_layers > kMostLayers) return false;
    uint64_t elements = 0;
    for (const engine::TensorSpec& spec : engine::trunk_tensors(config)) {
        uint64_t count = 1;
        for (const int64_t dimension : spec.shape) {
            if (static_cast<uint64_t>(dimension) > kMostElements) return false;
            count *= static_cast<uint64_t>(dimension);
            if (count > kMostElements) return false;
        }
        elements += count;
    }
    // The router's rows bound the number of experts.
    const int64_t inner = config.moe_intermediate_size, input = config.expert_input_size();
    constexpr auto kMost = static_cast<int64_t>(kMostElements);
    if (config.moe_layer_count() > 0) {
        if (inner > kMost || input > kMost || inner * input > kMost) return false;
        elements += static_cast<uint64_t>(3 * inner * input * config.num_experts * config.moe_layer_count());
    }
    return elements <= kMostElements;
}

void require(bool ok, const std::string& what) {
    if (ok) return;
    std::fprintf(stderr, "%s\n", what.c_str());
    std::abort();
}

template <typename T>
void require(const waste::Result<T>& result) {
    require(result.has_value(), result ? "" : result.error().text());
}

void require_finite(std::span<const float> logits) {
    for (const float logit : logits) require(std::isfinite(logit), "a logit is not finite");
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
    json root = json::parse(data, data + size, nullptr, false);
    if (root.is_discarded()) return LLVMFuzzerMutate(data, size, max_size);
    std::mt19937 random(seed);
    for (auto changes = 1 + random() % 3; changes > 0; changes--) mutate(root, random);
    const std::string text = root.dump();
    if (text.size() > max_size) return size;
    std::memcpy(data, text.data(), text.size());
    return text.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const auto config = engine::parse_config(text, "fuzz");
    if (!config || !small_enough(*config)) return 0;
    const waste::test::TempDir directory;
    const waste::test::RandomModelRecipe recipe{engine::TrunkRecipe::q4, waste::kernels::Format::mxfp4};
    require(waste::test::write_random_model(text, recipe, 1, directory.path()));
    const auto model = engine::Model::open(directory.path());
    require(model);
    engine::SessionOptions options;
    options.context_length = std::min(kPrompt + kTokens + 1, config->max_context);
    options.threads = 2;
    auto session = engine::Session::create(*model, options);
    require(session);
    // The prompt in one piece, then token by token: the two take different paths.
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < std::min(kPrompt + kTokens, options.context_length); i++) {
        ids.push_back(static_cast<int32_t>(i % config->vocab_size));
    }
    const auto prompt = static_cast<size_t>(std::min(kPrompt, options.context_length));
    require(session->feed(std::span(ids).first(prompt)));
    require_finite(session->logits());
    for (const int32_t& id : std::span(ids).subspan(prompt)) require(session->feed({&id, 1}));
    require_finite(session->logits());
    return 0;
}

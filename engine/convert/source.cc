#include "engine/convert/source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "container/file.h"
#include "container/manifest.h"

namespace waste::engine {
namespace {

using container::Checkpoint;
using container::Dtype;
using container::SourceTensor;

constexpr uint64_t kMaxConfigBytes = 16 << 20;

bool is_float(Dtype dtype) {
    return dtype == Dtype::bf16 || dtype == Dtype::f16 || dtype == Dtype::f32;
}

std::string place_of(const Checkpoint& checkpoint, size_t index) {
    return fmt::format("{}: tensor {}", checkpoint.file_of(index), checkpoint.name(index));
}

Result<void> check_shape(const Checkpoint& checkpoint, size_t index,
                         const std::vector<std::vector<int64_t>>& accepted) {
    const SourceTensor tensor = checkpoint.tensor(index);
    const std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.rank);
    if (std::find(accepted.begin(), accepted.end(), shape) != accepted.end()) return {};
    return fail(ErrorKind::corrupt, place_of(checkpoint, index),
                fmt::format("has shape {}, config.json asks for [{}]", tensor.shape_text(),
                            fmt::join(accepted.front(), ", ")));
}

Result<void> check_dtype(const Checkpoint& checkpoint, size_t index, bool wanted, std::string_view expected) {
    if (wanted) return {};
    return fail(
        ErrorKind::unsupported, place_of(checkpoint, index),
        fmt::format("is {}, expected {}", container::dtype_name(checkpoint.tensor(index).dtype), expected));
}

/// "language_model.model.layers.12.…" -> 12, or -1.
int64_t layer_of(std::string_view name, std::string_view prefix) {
    if (!name.starts_with(prefix)) return -1;
    int64_t layer = -1;
    for (const char c : name.substr(prefix.size())) {
        if (c < '0' || c > '9') break;
        layer = std::min<int64_t>((layer < 0 ? 0 : layer) * 10 + (c - '0'), 1 << 20);
    }
    return layer;
}

/// Groups names for the list of what was left out: everything up to the first dot, layers by number.
std::string group_of(std::string_view name, int64_t layer, std::string_view layer_prefix) {
    if (layer >= 0) return fmt::format("{}{}.*", layer_prefix, layer);
    const size_t dot = name.find('.');
    return dot == std::string_view::npos ? std::string(name) : fmt::format("{}.*", name.substr(0, dot));
}

}  // namespace

Result<Source> Source::open(const std::string& directory) {
    if (!container::is_directory(directory)) {
        return fail(ErrorKind::not_found, directory, "is not a directory; give the folder of a release");
    }
    const std::string config_path = container::join_path(directory, container::kConfigName);
    if (!container::is_file(config_path)) {
        return fail(ErrorKind::not_found, config_path,
                    "is missing; a release holds config.json and *.safetensors files");
    }
    auto text = container::read_text_file(config_path, kMaxConfigBytes);
    if (!text) return pass(text);
    auto config = parse_config(*text, config_path);
    if (!config) return pass(config);
    auto checkpoint = Checkpoint::open(directory);
    if (!checkpoint) return pass(checkpoint);

    Source source(std::move(*text), std::move(*config), std::move(*checkpoint));
    std::vector<bool> used(source.checkpoint_.size(), false);
    if (const auto ok = source.check_trunk(used); !ok) return pass(ok);
    if (const auto ok = source.check_experts(used); !ok) return pass(ok);
    if (const auto ok = source.check_leftovers(used); !ok) return pass(ok);
    if (const auto ok = source.check_a_log_padding(); !ok) return pass(ok);
    return source;
}

Result<void> Source::check_trunk(std::vector<bool>& used) {
    trunk_ = trunk_tensors(config_);
    for (const TensorSpec& spec : trunk_) {
        const auto index = checkpoint_.find(spec.source);
        if (!index) return pass(index);
        if (const auto ok = check_shape(checkpoint_, *index, spec.source_shapes); !ok) return ok;
        const bool wanted = is_float(checkpoint_.tensor(*index).dtype);
        if (const auto ok = check_dtype(checkpoint_, *index, wanted, "BF16, F16 or F32"); !ok) return ok;
        trunk_source_.push_back(*index);
        used[*index] = true;
    }
    return {};
}

Result<void> Source::check_experts(std::vector<bool>& used) {
    bool first = true;
    for (int64_t layer = 0; layer < config_.num_hidden_layers; layer++) {
        if (!config_.is_moe(layer)) continue;
        // Told by the tensors present, not by quantization_config, whose ignore list does not name them all.
        if (first) {
            packed_experts_ = checkpoint_.contains(expert_tensor(config_, layer, 0, "w1") + ".weight_packed");
        }
        first = false;
        for (int64_t expert = 0; expert < config_.num_experts; expert++) {
            if (const auto ok = check_expert(layer, expert, used); !ok) return ok;
        }
    }
    return {};
}

Result<void> Source::check_expert(int64_t layer, int64_t expert, std::vector<bool>& used) const {
    const int64_t inner = config_.moe_intermediate_size, width = config_.expert_input_size();
    for (const char* which : {"w1", "w2", "w3"}) {
        const auto source = expert_source(layer, expert, which);
        if (!source) return pass(source);
        const bool down = std::string_view(which) == "w2";
        const int64_t rows = down ? width : inner, cols = down ? inner : width;
        used[source->weight] = true;
        if (!packed_experts_) {
            if (const auto ok = check_shape(checkpoint_, source->weight, {{rows, cols}}); !ok) return ok;
            const bool wanted = is_float(checkpoint_.tensor(source->weight).dtype);
            if (const auto ok = check_dtype(checkpoint_, source->weight, wanted, "BF16, F16 or F32"); !ok)
                return ok;
            continue;
        }
        used[source->scale] = true;
        if (cols % kernels::kGroupCols != 0) {
            return fail(ErrorKind::unsupported, place_of(checkpoint_, source->weight),
                        fmt::format("has {} columns; MXFP4 needs a multiple of 32", cols));
        }
        if (const auto ok = check_shape(checkpoint_, source->weight, {{rows, cols / 2}}); !ok) return ok;
        if (const auto ok = check_shape(checkpoint_, source->scale, {{rows, cols / kernels::kGroupCols}});
            !ok) {
            return ok;
        }
        for (const size_t index : {source->weight, source->scale}) {
            const bool wanted = checkpoint_.tensor(index).dtype == Dtype::u8;
            if (const auto ok = check_dtype(checkpoint_, index, wanted, "U8 (packed MXFP4)"); !ok) return ok;
        }
    }
    return {};
}

Result<ExpertMatrixSource> Source::expert_source(int64_t layer, int64_t expert, const char* which) const {
    const std::string name = expert_tensor(config_, layer, expert, which) + ".weight";
    const auto weight = checkpoint_.find(packed_experts_ ? name + "_packed" : name);
    if (!weight) return pass(weight);
    if (!packed_experts_) return ExpertMatrixSource{*weight, 0};
    const auto scale = checkpoint_.find(name + "_scale");
    if (!scale) return pass(scale);
    return ExpertMatrixSource{*weight, *scale};
}

Result<void> Source::check_leftovers(const std::vector<bool>& used) {
    const std::string layers = config_.tensor_prefix + "model.layers.";
    const std::vector<std::string> unused = unused_tensors(config_);
    std::map<std::string, int> groups;
    for (size_t i = 0; i < used.size(); i++) {
        if (used[i]) continue;
        const std::string_view name = checkpoint_.name(i);
        if (std::find(unused.begin(), unused.end(), name) != unused.end()) {
            groups[std::string(name) + " (the graph never reads it)"] = 0;
            continue;
        }
        const int64_t layer = layer_of(name, layers);
        const bool inside = layer >= 0 && layer < config_.num_hidden_layers;
        if (inside && !name.ends_with("rotary_emb.inv_freq")) {
            return fail(
                ErrorKind::unsupported, place_of(checkpoint_, i),
                "is not explained by config.json: a key is missing there, or this engine does not know the "
                "architecture");
        }
        groups[group_of(name, layer, layers)]++;
    }
    for (const auto& [group, count] : groups) {
        ignored_.push_back(count == 0 ? group : fmt::format("{} ({} tensors)", group, count));
    }
    return {};
}

Result<void> Source::check_a_log_padding() const {
    for (size_t i = 0; i < trunk_.size(); i++) {
        if (!trunk_[i].name.ends_with("self_attn.A_log")) continue;
        const SourceTensor tensor = checkpoint_.tensor(trunk_source_[i]);
        const auto heads =
            static_cast<size_t>(config_.kda_num_heads) * static_cast<size_t>(dtype_bytes(tensor.dtype));
        const auto tail = tensor.data.subspan(std::min(heads, tensor.data.size()));
        if (std::all_of(tail.begin(), tail.end(), [](std::byte b) { return b == std::byte{0}; })) continue;
        return fail(ErrorKind::unsupported, place_of(checkpoint_, trunk_source_[i]),
                    fmt::format("has non-zero values past its {} heads; they should be zero padding",
                                config_.kda_num_heads));
    }
    return {};
}

}  // namespace waste::engine

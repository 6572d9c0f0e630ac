#include "engine/plan_source.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "container/file.h"
#include "container/reader.h"
#include "engine/convert/convert.h"
#include "engine/convert/layout.h"
#include "engine/convert/source.h"

namespace waste::engine {
namespace {

using container::Dtype;
using kernels::Format;

constexpr uint64_t kMaxConfigBytes = 16 << 20;

Result<PlannedModel> look_up_container(const std::string& path) {
    const auto container = container::Container::open(path);
    if (!container) return pass(container);
    const container::Manifest& manifest = container->manifest();
    const std::string place = container::join_path(path, container::kManifestName) + ": config";
    const auto config = parse_config(manifest.config, place);
    if (!config) return pass(config);
    const auto sizes = container_sizes(manifest.trunk_bytes, manifest.tensors, manifest.banks);
    return PlannedModel{PlanSource::container, *config, sizes, manifest.trunk_recipe, manifest.expert_recipe,
                        manifest.fingerprint};
}

/// The sizes of a container that is not written yet.
Result<PlannedModel> lay_out(PlanSource source, const ModelConfig& config,
                             const std::vector<TensorSpec>& specs, TrunkRecipe trunk, Format experts,
                             const std::function<Dtype(size_t)>& released) {
    const auto layout = plan_layout(config, specs, trunk, experts, released);
    if (!layout) return pass(layout);
    const auto sizes = container_sizes(layout->trunk_bytes, layout->tensors, layout->banks);
    return PlannedModel{source,
                        config,
                        sizes,
                        std::string(trunk_recipe_name(trunk)),
                        std::string(kernels::format_info(experts).name),
                        {}};
}

Result<PlannedModel> look_up_release(const std::string& path, TrunkRecipe trunk,
                                     std::optional<Format> experts) {
    const auto source = Source::open(path);
    if (!source) return pass(source);
    ConvertOptions options;
    options.experts = experts;
    const auto format = choose_expert_format(options, *source);
    if (!format) return pass(format);
    const auto released = [&](size_t i) {
        return source->checkpoint().tensor(source->trunk_source(i)).dtype;
    };
    return lay_out(PlanSource::release, source->config(), source->trunk(), trunk, *format, released);
}

/// True if quantization_config, which K3 keeps in text_config, says that experts are MXFP4. A release with
/// weights is asked for its tensors instead (Source::packed_experts).
bool says_mxfp4(std::string_view config_text) {
    const auto root = nlohmann::json::parse(config_text, nullptr, false);
    for (const char* key : {"", "/text_config"}) {
        const nlohmann::json::json_pointer pointer(std::string(key) + "/quantization_config/format");
        if (!root.contains(pointer)) continue;
        const auto& format = root[pointer];
        if (format.is_string() && format.get_ref<const std::string&>().starts_with("mxfp4")) return true;
    }
    return false;
}

Result<PlannedModel> look_up_config(const std::string& path, TrunkRecipe trunk,
                                    std::optional<Format> experts) {
    const auto text = container::read_text_file(path, kMaxConfigBytes);
    if (!text) return pass(text);
    const auto config = parse_config(*text, path);
    if (!config) return pass(config);
    const bool packed = says_mxfp4(*text);
    const Format format = experts.value_or(packed ? Format::mxfp4 : Format::q4);
    if (format == Format::mxfp4 && !packed) {
        return fail(ErrorKind::invalid, "--experts mxfp4",
                    "copies MXFP4 experts as released, and by its config.json this release has none");
    }
    const auto specs = trunk_tensors(*config);
    return lay_out(PlanSource::config, *config, specs, trunk, format, [](size_t) { return Dtype::bf16; });
}

Result<bool> has_weights(const std::string& directory) {
    const auto names = container::list_directory(directory);
    if (!names) return pass(names);
    return std::any_of(names->begin(), names->end(),
                       [](const std::string& name) { return name.ends_with(".safetensors"); });
}

}  // namespace

Result<PlannedModel> look_up_model(const std::string& path, std::optional<TrunkRecipe> trunk,
                                   std::optional<Format> experts) {
    const TrunkRecipe recipe = trunk.value_or(TrunkRecipe::q4);
    if (container::is_file(path)) return look_up_config(path, recipe, experts);
    if (container::is_container(path)) {
        if (trunk || experts) {
            return fail(ErrorKind::invalid, path,
                        "is converted already; --trunk and --experts are for a release or its config.json");
        }
        return look_up_container(path);
    }
    const std::string config_path = container::join_path(path, container::kConfigName);
    if (!container::is_file(config_path)) {
        return fail(ErrorKind::not_found, path,
                    "is neither a container nor a release (it has no manifest.json and no config.json)");
    }
    const auto weights = has_weights(path);
    if (!weights) return pass(weights);
    return *weights ? look_up_release(path, recipe, experts) : look_up_config(config_path, recipe, experts);
}

}  // namespace waste::engine

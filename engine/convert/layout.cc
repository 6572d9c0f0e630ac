#include "engine/convert/layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace waste::engine {
namespace {

// More than any drive holds, and far from where sums of sizes would overflow.
constexpr uint64_t kMaxContainerBytes = uint64_t{1} << 60;

Result<void> add_bytes(uint64_t& total, uint64_t bytes) {
    total += bytes;
    if (total <= kMaxContainerBytes) return {};
    return fail(ErrorKind::corrupt, "config.json", "describes a model of more than 2^60 bytes");
}

bool same_tensor(const container::TensorEntry& a, const container::TensorEntry& b) {
    return a.name == b.name && a.format == b.format && a.layout == b.layout && a.shape == b.shape &&
           a.offset == b.offset && a.bytes == b.bytes;
}

bool same_bank(const container::BankEntry& a, const container::BankEntry& b) {
    return a.layer == b.layer && a.shape.experts == b.shape.experts && a.shape.format == b.shape.format &&
           a.shape.input_size == b.shape.input_size && a.shape.intermediate_size == b.shape.intermediate_size;
}

}  // namespace

bool same_layout(const ContainerLayout& layout, const container::Manifest& manifest) {
    return std::equal(layout.tensors.begin(), layout.tensors.end(), manifest.tensors.begin(),
                      manifest.tensors.end(), same_tensor) &&
           std::equal(layout.banks.begin(), layout.banks.end(), manifest.banks.begin(), manifest.banks.end(),
                      same_bank);
}

std::string bank_file_name(int64_t layer) {
    return fmt::format("experts-{:03}.bin", layer);
}

uint64_t ContainerLayout::expert_bytes() const {
    uint64_t bytes = 0;
    for (const container::BankEntry& bank : banks) bytes += bank.shape.file_bytes();
    return bytes;
}

Result<ContainerLayout> plan_layout(const ModelConfig& config, const std::vector<TensorSpec>& specs,
                                    TrunkRecipe recipe, kernels::Format expert_format,
                                    const std::function<container::Dtype(size_t)>& released) {
    ContainerLayout layout{};
    for (size_t i = 0; i < specs.size(); i++) {
        const TensorSpec& spec = specs[i];
        const bool rows = spec.role == Role::embedding || spec.role == Role::vector;
        container::TensorEntry entry{};
        entry.name = spec.name;
        entry.format = trunk_format(recipe, spec.role, released(i));
        entry.layout = rows ? container::Layout::rows : container::Layout::panels;
        entry.shape = spec.shape;
        const auto bytes = container::tensor_bytes(entry.format, entry.layout, entry.shape);
        if (!bytes) return fail(bytes.error().kind, spec.source, bytes.error().message);
        entry.bytes = *bytes;
        entry.offset = layout.trunk_bytes;
        const uint64_t padded =
            (entry.bytes + container::kAlignment - 1) / container::kAlignment * container::kAlignment;
        if (const auto ok = add_bytes(layout.trunk_bytes, padded); !ok) return pass(ok);
        layout.tensors.push_back(std::move(entry));
    }
    uint64_t total_bytes = layout.trunk_bytes;
    for (int64_t layer = 0; layer < config.num_hidden_layers; layer++) {
        if (!config.is_moe(layer)) continue;
        const container::BankShape shape{config.num_experts, config.expert_input_size(),
                                         config.moe_intermediate_size, expert_format};
        if (const auto ok = container::check_bank_shape(shape, "config.json"); !ok) return pass(ok);
        if (const auto ok = add_bytes(total_bytes, shape.file_bytes()); !ok) return pass(ok);
        layout.banks.push_back({layer, bank_file_name(layer), shape, shape.file_bytes(), 0});
    }
    return layout;
}

}  // namespace waste::engine

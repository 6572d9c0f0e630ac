#include "tools/plan_recipes.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "engine/plan_source.h"
#include "engine/run_plan.h"
#include "tools/command.h"
#include "tools/describe.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

using engine::PlannedModel;
using engine::TrunkRecipe;
using kernels::Format;

struct TrunkQuality {
    TrunkRecipe trunk;
    double percent;  ///< more perplexity of the demo model than as released; docs/performance.md
};
constexpr TrunkQuality kTrunks[] = {
    {TrunkRecipe::q4pure, 3.87}, {TrunkRecipe::q4, 1.41}, {TrunkRecipe::q8, 0.06}, {TrunkRecipe::bf16, 0.02}};
constexpr Format kExperts[] = {Format::mxfp4, Format::q4, Format::q8, Format::bf16};

struct RecipeRow {
    PlannedModel model;
    engine::Plan needs;
    uint64_t least_bytes;
    std::optional<double> percent;  ///< nothing where it was not measured
};

/// Every recipe that the release allows, the smallest container first.
Result<std::vector<RecipeRow>> plan_rows(const std::string& path, const engine::SessionShape& shape) {
    const auto released = engine::look_up_model(path, TrunkRecipe::bf16, std::nullopt);
    if (!released) return pass(released);
    std::vector<RecipeRow> rows;
    for (const Format experts : kExperts) {
        const bool as_released = released->expert_recipe == "mxfp4" && experts == Format::mxfp4;
        for (const auto& [trunk, percent] : kTrunks) {
            auto model = engine::look_up_model(path, trunk, experts);
            // Only a release of MXFP4 experts can keep them.
            if (!model && experts == Format::mxfp4 && released->expert_recipe != "mxfp4") continue;
            if (!model) return pass(model);
            const auto run = engine::plan_run(model->config, model->sizes, shape, std::nullopt, std::nullopt);
            if (!run) return pass(run);
            const auto needs = engine::plan(model->config, model->sizes, shape, std::nullopt);
            rows.push_back({std::move(*model), needs, run->least_bytes,
                            as_released ? std::optional(percent) : std::nullopt});
        }
    }
    std::stable_sort(rows.begin(), rows.end(), [](const RecipeRow& a, const RecipeRow& b) {
        return a.model.sizes.total_bytes() < b.model.sizes.total_bytes();
    });
    return rows;
}

void print_text(const std::string& path, const std::vector<RecipeRow>& rows) {
    const engine::ModelConfig& config = rows.front().model.config;
    put_out(fmt::format("{}: {}, {}\n", printable(path), family_name(config.family), layers_text(config)));
    put_out(fmt::format(
        "What `waste convert --trunk … --experts …` would write, and memory for a context of {}:\n\n",
        rows.front().needs.context_length));
    put_out(fmt::format("{:<8} {:<9} {:>12} {:>12} {:>12} {:>12} {:>14} {:>12}\n", "--trunk", "--experts",
                        "on the drive", "trunk", "least", "floor", "a token reads", "perplexity"));
    for (const RecipeRow& row : rows) {
        const auto& sizes = row.model.sizes;
        put_out(fmt::format("{:<8} {:<9} {:>12} {:>12} {:>12} {:>12} {:>14} {:>12}\n", row.model.trunk_recipe,
                            row.model.expert_recipe, memory_text(sizes.total_bytes()),
                            memory_text(sizes.trunk_bytes), memory_text(row.least_bytes),
                            memory_text(row.needs.floor_bytes), memory_text(row.needs.expert_read_bytes),
                            row.percent ? fmt::format("+{:.2f} %", *row.percent) : "not measured"));
    }
    put_out(
        "\nLeast: the smallest budget, whose trunk is read again for every token. Floor: the trunk stays in "
        "memory.\n"
        "A token reads: of experts, with none in memory. Perplexity: the demo model's against its "
        "release.\n");
}

void print_json(const std::string& path, const std::vector<RecipeRow>& rows) {
    nlohmann::ordered_json json{{"model", path}, {"context_length", rows.front().needs.context_length}};
    for (const RecipeRow& row : rows) {
        const auto& sizes = row.model.sizes;
        json["recipes"].push_back(
            {{"trunk", row.model.trunk_recipe},
             {"experts", row.model.expert_recipe},
             {"total_bytes", sizes.total_bytes()},
             {"trunk_bytes", sizes.trunk_bytes},
             {"expert_bytes", sizes.expert_bytes},
             {"least_bytes", row.least_bytes},
             {"floor_bytes", row.needs.floor_bytes},
             {"expert_read_bytes_per_token", row.needs.expert_read_bytes},
             {"perplexity_percent", row.percent ? nlohmann::ordered_json(*row.percent) : nullptr}});
    }
    put_out(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace

int compare_recipes(const std::string& path, const engine::SessionShape& shape, bool as_json) {
    const auto rows = plan_rows(path, shape);
    if (!rows) return report(rows.error());
    (as_json ? print_json : print_text)(path, *rows);
    return kOk;
}

}  // namespace waste::tools

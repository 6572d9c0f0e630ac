#include "engine/plan.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/convert/convert.h"
#include "engine/plan_source.h"
#include "engine/session.h"
#include "tests/support/planned_models.h"
#include "tests/support/temp_dir.h"

namespace waste::engine {
namespace {

using kernels::Format;

using waste::test::k3_config;
using waste::test::linear_config;
using waste::test::look_up;
using waste::test::planned;

Plan plan_of(const PlannedModel& model, int64_t context_length, std::optional<uint64_t> usable = {}) {
    engine::SessionOptions options;
    options.context_length = context_length;
    options.threads = 2;
    return plan(model.config, model.sizes, options.shape(), usable);
}

/// The least memory whose safe part holds `bytes`.
uint64_t memory_for(uint64_t bytes) {
    uint64_t usable = bytes;
    while (safe_part(usable) < bytes) usable += (bytes - safe_part(usable) + 7) / 8 * 8;
    while (safe_part(usable - 1) >= bytes) usable--;
    return usable;
}

TEST(Plan, KimiK3HasThePublishedNumbers) {
    const PlannedModel model = planned(k3_config());
    EXPECT_EQ(model.source, PlanSource::config);
    EXPECT_EQ(model.expert_recipe, "mxfp4");
    EXPECT_EQ(model.sizes.record_bytes, 17'547'264u);
    EXPECT_EQ(model.sizes.embedding_bytes, 2'348'810'240u);
    const Plan p = plan_of(model, 4096);
    EXPECT_EQ(p.kda_state_bytes, 434'110'464u);
    EXPECT_EQ(p.conv_ring_bytes, 30'523'392u);
    EXPECT_EQ(p.mla_latent_bytes, 4096u * 55'296u);
    EXPECT_EQ(plan_of(model, 1048576).mla_latent_bytes, uint64_t{54} << 30);
    EXPECT_EQ(p.least_cache_bytes, arena_bytes(2 * 16, 17'547'264));
    EXPECT_EQ(p.expert_read_bytes, 92u * 16u * uint64_t{17'547'264});
    // All experts, and the tables behind them: less than a page for two experts.
    EXPECT_GT(model.sizes.expert_bytes, 1'446'456'066'048u);
    EXPECT_LT(model.sizes.expert_bytes, 1'446'456'066'048u + 82'432u * 2048u);
}

TEST(Plan, KimiK3TrunkIsThatOfTheRelease) {
    // In bf16: what the release holds besides experts and embedding; vectors grow to f32 and to pages.
    const uint64_t released = 113'509'540'864u - 2'348'810'240u;
    const uint64_t read = plan_of(planned(k3_config(), TrunkRecipe::bf16), 1).trunk_read_bytes;
    EXPECT_GT(read, released);
    EXPECT_LT(read, released + released / 1000);
    // 4.5 bits a weight at the least, 8.25 at the most.
    const uint64_t q4 = plan_of(planned(k3_config(), TrunkRecipe::q4), 1).trunk_read_bytes;
    EXPECT_GT(q4, released / 16 * 9 / 2);
    EXPECT_LT(q4, released / 16 * 33 / 4);
}

TEST(Plan, KimiLinearHasThePublishedNumbers) {
    const PlannedModel model = planned(linear_config());
    EXPECT_EQ(model.expert_recipe, "q4");
    EXPECT_EQ(model.sizes.record_bytes, 7'077'888u * 9 / 16);
    const Plan p = plan_of(model, 32768);
    EXPECT_EQ(p.kda_state_bytes, 41'943'040u);
    EXPECT_EQ(p.conv_ring_bytes, 2'949'120u);
    EXPECT_EQ(p.mla_latent_bytes, 32768u * 16'128u);
    EXPECT_EQ(p.expert_read_bytes, 26u * 8u * model.sizes.record_bytes);
}

TEST(Plan, FloorIsTheSumOfItsRows) {
    for (const std::string& text : {k3_config(), linear_config()}) {
        const Plan p = plan_of(planned(text), 4096);
        EXPECT_EQ(p.floor_bytes, p.trunk_bytes + p.kda_state_bytes + p.conv_ring_bytes + p.mla_latent_bytes +
                                     p.activation_bytes + p.least_cache_bytes + p.program_bytes);
        EXPECT_EQ(p.recommended_bytes, p.floor_bytes - p.least_cache_bytes + p.cache_bytes);
        EXPECT_EQ(p.fit, Fit::unknown);
        EXPECT_EQ(p.longest_context, 0);
    }
}

TEST(Plan, RecommendsTheLargestCacheThatIsSafe) {
    const PlannedModel model = planned(k3_config());
    const Plan alone = plan_of(model, 4096);
    const uint64_t before_cache = alone.floor_bytes - alone.least_cache_bytes;
    for (const uint64_t sets : {1u, 2u, 3u}) {
        const uint64_t wanted = before_cache + arena_bytes(2 * 16 + sets * 92 * 16, model.sizes.record_bytes);
        const Plan enough = plan_of(model, 4096, memory_for(wanted));
        EXPECT_EQ(enough.working_sets, static_cast<int>(sets));
        EXPECT_EQ(enough.recommended_bytes, wanted);
        EXPECT_EQ(enough.fit, Fit::comfortable);
        EXPECT_EQ(plan_of(model, 4096, memory_for(wanted) - 1).working_sets, static_cast<int>(sets) - 1);
    }
    const Plan rich = plan_of(model, 4096, uint64_t{4} << 40);
    EXPECT_EQ(rich.working_sets, 3);
    EXPECT_TRUE(rich.all_experts_fit);
}

TEST(Plan, JudgesAtTheFloor) {
    const PlannedModel model = planned(k3_config());
    const uint64_t floor = plan_of(model, 32768).floor_bytes;
    const Plan tight = plan_of(model, 32768, floor);
    EXPECT_EQ(tight.fit, Fit::tight);
    EXPECT_EQ(tight.missing_bytes, 0u);
    EXPECT_EQ(tight.longest_context, 32768);
    EXPECT_EQ(tight.recommended_bytes, floor);
    const Plan over = plan_of(model, 32768, floor - 1);
    EXPECT_EQ(over.fit, Fit::does_not_fit);
    EXPECT_EQ(over.missing_bytes, 1u);
    EXPECT_EQ(over.longest_context, 32767);
    EXPECT_EQ(plan_of(model, over.longest_context, floor - 1).fit, Fit::tight);
    EXPECT_EQ(plan_of(model, 4096, 1u << 30).longest_context, 0);
    EXPECT_EQ(plan_of(model, 4096, uint64_t{4} << 40).longest_context, 1048576)
        << "no more than the model has";
}

TEST(Plan, SumsOfHostileConfigsDoNotWrap) {
    PlannedModel model = planned(linear_config());
    model.config.kv_lora_rank = int64_t{1} << 24;
    model.config.kda_layer.assign(4096, false);
    model.config.num_hidden_layers = 4096;
    model.sizes.record_bytes = uint64_t{1} << 62;
    model.sizes.expert_bytes = UINT64_MAX;
    const Plan p = plan_of(model, int64_t{1} << 32, uint64_t{1} << 40);
    EXPECT_EQ(p.mla_latent_bytes, UINT64_MAX);
    EXPECT_EQ(p.floor_bytes, UINT64_MAX);
    EXPECT_EQ(p.working_set_bytes, UINT64_MAX);
    EXPECT_EQ(p.fit, Fit::does_not_fit);
}

TEST(PlanSource, ContainerReleaseAndConfigAgree) {
    const std::string release = std::string(WASTE_TEST_DATA) + "/demo-model";
    const waste::test::TempDir dir;
    ConvertOptions options{release, dir.file("demo.waste"), TrunkRecipe::q8, {}, 2};
    const auto converted = convert(options, {});
    ASSERT_TRUE(converted) << converted.error().text();
    const auto from_container = look_up_model(options.destination, {}, {});
    const auto from_release = look_up_model(release, TrunkRecipe::q8, {});
    const auto from_config = look_up_model(release + "/config.json", TrunkRecipe::q8, {});
    ASSERT_TRUE(from_container && from_release && from_config);
    EXPECT_EQ(from_container->source, PlanSource::container);
    EXPECT_EQ(from_release->source, PlanSource::release);
    EXPECT_EQ(from_config->source, PlanSource::config);
    uint64_t bank_files = 0;
    for (const auto& file : std::filesystem::directory_iterator(options.destination)) {
        if (file.path().filename().string().starts_with("experts-")) bank_files += file.file_size();
    }
    EXPECT_EQ(from_container->sizes.expert_bytes, bank_files);
    EXPECT_EQ(from_container->sizes.trunk_bytes,
              std::filesystem::file_size(options.destination + "/trunk.bin"));
    for (const auto& model : {*from_release, *from_config}) {
        EXPECT_EQ(model.trunk_recipe, "q8");
        EXPECT_EQ(model.expert_recipe, from_container->expert_recipe);
        EXPECT_EQ(model.sizes.trunk_bytes, from_container->sizes.trunk_bytes);
        EXPECT_EQ(model.sizes.embedding_bytes, from_container->sizes.embedding_bytes);
        EXPECT_EQ(model.sizes.embedding_row_bytes, 256u * 2);
        EXPECT_EQ(model.sizes.expert_bytes, from_container->sizes.expert_bytes);
        EXPECT_EQ(model.sizes.record_bytes, from_container->sizes.record_bytes);
    }
    const auto refused = look_up_model(options.destination, TrunkRecipe::q4, {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::invalid);
}

TEST(PlanSource, AFolderWithoutWeightsStandsForItsConfig) {
    const waste::test::TempDir dir;
    EXPECT_EQ(look_up_model(dir.path(), {}, {}).error().kind, ErrorKind::not_found);
    std::ofstream(dir.file("config.json")) << k3_config();
    const auto model = look_up_model(dir.path(), {}, {});
    ASSERT_TRUE(model) << model.error().text();
    EXPECT_EQ(model->source, PlanSource::config);
}

TEST(PlanSource, RefusesWhatCannotBeConverted) {
    EXPECT_EQ(look_up(linear_config(), {}, Format::mxfp4).error().kind, ErrorKind::invalid);
    EXPECT_EQ(look_up("{").error().kind, ErrorKind::corrupt);
}

TEST(PlanSource, RefusesBanksBeyondAnyDrive) {
    std::string huge = linear_config();
    huge.replace(huge.find("1024,"), 5, "16777216,");
    huge.replace(huge.find("\"num_experts\": 256"), 18, "\"num_experts\": 1048576");
    const auto model = look_up(huge);
    ASSERT_FALSE(model);
    EXPECT_NE(model.error().text().find("1048576 experts"), std::string::npos) << model.error().text();
}

}  // namespace
}  // namespace waste::engine

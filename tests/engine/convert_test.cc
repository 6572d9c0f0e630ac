// Recipe, layout and destination of a conversion. Encoding has encode_test.cc; the command as a whole is
// tested by tests/tools/test_convert.py.
#include "engine/convert/convert.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "container/file.h"
#include "tests/support/release.h"
#include "tests/support/temp_dir.h"

namespace waste::engine {
namespace {

namespace fs = std::filesystem;
using container::Dtype;
using kernels::Format;
using test::layout_of;
using test::open_source;

const std::string kData = WASTE_TEST_DATA;

// ---- Recipe

struct RecipeRow {
    const char* name;
    TrunkRecipe recipe;
    Format matrix, fine, router_bf16, router_f32;
};

TEST(Recipe, GivesEachRoleItsFormat) {
    const RecipeRow rows[] = {
        {"q4", TrunkRecipe::q4, Format::q4, Format::q8, Format::bf16, Format::f32},
        {"q4pure", TrunkRecipe::q4pure, Format::q4, Format::q4, Format::bf16, Format::f32},
        {"q8", TrunkRecipe::q8, Format::q8, Format::q8, Format::bf16, Format::f32},
        {"bf16", TrunkRecipe::bf16, Format::bf16, Format::bf16, Format::bf16, Format::bf16},
        {"f32", TrunkRecipe::f32, Format::f32, Format::f32, Format::f32, Format::f32},
    };
    for (const RecipeRow& row : rows) {
        SCOPED_TRACE(row.name);
        EXPECT_EQ(trunk_recipe_from_name(row.name), row.recipe);
        EXPECT_EQ(trunk_recipe_name(row.recipe), row.name);
        for (const Dtype released : {Dtype::bf16, Dtype::f16, Dtype::f32}) {
            const bool bf16 = released == Dtype::bf16;
            EXPECT_EQ(trunk_format(row.recipe, Role::vector, released), Format::f32);
            EXPECT_EQ(trunk_format(row.recipe, Role::embedding, released), bf16 ? Format::bf16 : Format::f32);
            EXPECT_EQ(trunk_format(row.recipe, Role::router, released),
                      bf16 ? row.router_bf16 : row.router_f32);
            EXPECT_EQ(trunk_format(row.recipe, Role::matrix, released), row.matrix);
            for (const Role fine : {Role::fine_matrix, Role::k_absorb, Role::v_up}) {
                EXPECT_EQ(trunk_format(row.recipe, fine, released), row.fine);
            }
        }
    }
    for (const char* name : {"", "q5", "Q4", "mxfp4", "q4 "})
        EXPECT_FALSE(trunk_recipe_from_name(name)) << name;
}

// ---- Layout

TEST(Layout, TensorsLieInOrderAlignedAndApart) {
    for (const char* model : {"tiny-k3", "odd-k3", "tiny-kimi-linear"}) {
        const Source source = open_source(kData + "/" + model);
        for (const TrunkRecipe recipe : {TrunkRecipe::q4, TrunkRecipe::bf16, TrunkRecipe::f32}) {
            const ContainerLayout layout = layout_of(source, recipe, Format::q4);
            ASSERT_EQ(layout.tensors.size(), source.trunk().size());
            uint64_t end = 0;
            for (size_t i = 0; i < layout.tensors.size(); i++) {
                const container::TensorEntry& entry = layout.tensors[i];
                EXPECT_EQ(entry.name, source.trunk()[i].name);
                EXPECT_EQ(entry.offset % container::kAlignment, 0u) << entry.name;
                EXPECT_EQ(entry.offset,
                          (end + container::kAlignment - 1) / container::kAlignment * container::kAlignment)
                    << entry.name;
                EXPECT_EQ(entry.bytes,
                          container::tensor_bytes(entry.format, entry.layout, entry.shape).value())
                    << entry.name;
                end = entry.offset + entry.bytes;
            }
            EXPECT_GE(layout.trunk_bytes, end);
            EXPECT_LT(layout.trunk_bytes - end, container::kAlignment);
            EXPECT_EQ(layout.trunk_bytes % container::kAlignment, 0u);
        }
    }
}

TEST(Layout, BanksFollowTheMoeLayers) {
    const Source source = open_source(kData + "/odd-k3");
    const ContainerLayout layout = layout_of(source, TrunkRecipe::q4, Format::mxfp4);
    ASSERT_EQ(layout.banks.size(), 3u);
    uint64_t bytes = 0;
    for (size_t i = 0; i < layout.banks.size(); i++) {
        const container::BankEntry& bank = layout.banks[i];
        EXPECT_EQ(bank.layer, static_cast<int64_t>(i) + 1);
        EXPECT_EQ(bank.file, "experts-00" + std::to_string(i + 1) + ".bin");
        EXPECT_EQ(bank.shape.experts, 10);
        EXPECT_EQ(bank.shape.input_size, 96);
        EXPECT_EQ(bank.shape.intermediate_size, 160);
        EXPECT_EQ(bank.shape.record_bytes() % container::kAlignment, 0u);
        EXPECT_EQ(bank.bytes, bank.shape.file_bytes());
        bytes += bank.bytes;
    }
    EXPECT_EQ(layout.expert_bytes(), bytes);
    EXPECT_EQ(layout.total_bytes(), bytes + layout.trunk_bytes);
    EXPECT_EQ(bank_file_name(0), "experts-000.bin");
    EXPECT_EQ(bank_file_name(1234), "experts-1234.bin");
}

// A config alone can ask for anything: sizes that no drive holds are an error, not an overflow.
TEST(Layout, SizesBeyondReasonAreRefused) {
    const Source source = open_source(kData + "/tiny-kimi-linear");
    const auto released = [](size_t) { return Dtype::bf16; };
    const auto refused = [&](const ModelConfig& config) {
        return !plan_layout(config, trunk_tensors(config), TrunkRecipe::f32, Format::f32, released);
    };
    ModelConfig config = source.config();
    EXPECT_FALSE(refused(config));
    config.num_experts = 1 << 20;
    EXPECT_TRUE(refused(config)) << "experts of one bank";
    config = source.config();
    config.moe_intermediate_size = 1 << 24;
    EXPECT_TRUE(refused(config)) << "an expert's width";
    config = source.config();
    config.vocab_size = config.hidden_size = 1 << 24;
    config.num_hidden_layers = 4096;
    config.kda_layer.assign(4096, true);
    EXPECT_TRUE(refused(config)) << "everything";
}

// ---- Destination

std::map<std::string, fs::file_time_type> files_of(const std::string& directory) {
    std::map<std::string, fs::file_time_type> files;
    for (const auto& entry : fs::directory_iterator(directory)) {
        files[entry.path().filename().string()] = entry.last_write_time();
    }
    return files;
}

/// A conversion of odd-k3 that finds its destination empty and is then overtaken: `rival` runs to its end
/// before this one takes the lock.
struct Overtaken {
    Result<std::string> rival, result;
    std::map<std::string, fs::file_time_type> files_of_rival;
    std::vector<bool> starts;  ///< ConvertSummary::finished of each

    Overtaken(const std::string& destination, TrunkRecipe recipe_of_rival) {
        ConvertOptions options;
        options.source = kData + "/odd-k3";
        options.destination = destination;
        ConvertOptions other = options;
        other.trunk = recipe_of_rival;
        ConvertCallbacks callbacks;
        callbacks.on_start = [&](const ConvertSummary& summary) {
            starts.push_back(summary.finished);
            if (summary.finished) return;
            rival = convert(other, {});
            files_of_rival = files_of(destination);
        };
        result = convert(options, callbacks);
    }
};

TEST(Destination, FinishedByAnotherRunMeanwhileIsFinished) {
    const test::TempDir dir;
    const std::string destination = dir.file("out.waste");
    const Overtaken run(destination, TrunkRecipe::q4);
    ASSERT_TRUE(run.rival) << run.rival.error().text();
    ASSERT_TRUE(run.result) << run.result.error().text();
    EXPECT_EQ(*run.result, *run.rival);
    EXPECT_EQ(run.starts, (std::vector<bool>{false, true}));
    EXPECT_EQ(files_of(destination), run.files_of_rival);
    EXPECT_FALSE(run.files_of_rival.contains(std::string(container::kJournalName)));
}

TEST(Destination, FinishedByAnotherRecipeMeanwhileIsLeftAlone) {
    const test::TempDir dir;
    const std::string destination = dir.file("out.waste");
    const Overtaken run(destination, TrunkRecipe::q8);
    ASSERT_TRUE(run.rival) << run.rival.error().text();
    ASSERT_FALSE(run.result);
    EXPECT_NE(run.result.error().text().find("another model or recipe"), std::string::npos)
        << run.result.error().text();
    EXPECT_EQ(files_of(destination), run.files_of_rival);
}

}  // namespace
}  // namespace waste::engine

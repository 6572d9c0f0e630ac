// Containers of random weights: whole, reproducible, distributed as promised. The command as a user meets it is tested
// by tests/tools/test_synth.py.
#include "engine/synth/synth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <set>

#include "container/file.h"
#include "container/reader.h"
#include "engine/plan_source.h"
#include "engine/session.h"
#include "engine/synth/presets.h"
#include "engine/synth/random.h"
#include "engine/synth/weights.h"
#include "kernels/router.h"
#include "tests/support/planned_models.h"
#include "tests/support/temp_dir.h"

namespace waste::engine {
namespace {

namespace fs = std::filesystem;
using container::Container;
using kernels::Format;

std::string config_of(const std::string& model) {
    const std::string path = std::string(WASTE_TEST_DATA) + "/" + model + "/config.json";
    return *container::read_text_file(path, 1 << 20);
}

std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

class SynthTest : public ::testing::Test {
  protected:
    SynthOptions options(const std::string& model = "tiny-k3") {
        SynthOptions out;
        out.config_text = config_of(model);
        out.config_place = "config.json";
        out.destination = path("model.waste");
        out.threads = 2;
        return out;
    }

    std::string path(const std::string& name) const { return dir_.file(name); }

    /// The fingerprint; what lies there opens and every hash of it matches.
    std::string write(const SynthOptions& options) {
        const auto fingerprint = synthesize(options, {});
        EXPECT_TRUE(fingerprint) << fingerprint.error().text();
        const auto container = Container::open(options.destination);
        EXPECT_TRUE(container) << container.error().text();
        if (!fingerprint || !container) return {};
        const auto damage = container->verify([](uint64_t, uint64_t) { return true; });
        EXPECT_TRUE(damage && damage->empty());
        EXPECT_EQ(container->manifest().fingerprint, *fingerprint);
        EXPECT_FALSE(fs::exists(options.destination + ".partial"));
        return *fingerprint;
    }

    std::string refusal(const SynthOptions& options) {
        const auto fingerprint = synthesize(options, {});
        EXPECT_FALSE(fs::exists(options.destination + ".partial"));
        return fingerprint ? "" : fingerprint.error().text();
    }

    test::TempDir dir_;
};

TEST_F(SynthTest, WritesEveryArchitectureInEveryFormat) {
    const struct {
        const char* model;
        TrunkRecipe trunk;
        Format experts;
    } rows[] = {{"tiny-k3", TrunkRecipe::q4, Format::mxfp4},
                {"tiny-k3", TrunkRecipe::f32, Format::f32},
                {"tiny-kimi-linear", TrunkRecipe::q8, Format::q8},
                {"tiny-kimi-linear", TrunkRecipe::q4pure, Format::q4},
                {"odd-k3", TrunkRecipe::bf16, Format::bf16},
                {"odd-k3", TrunkRecipe::q4, Format::mxfp4}};
    std::set<std::string> fingerprints;
    for (const auto& row : rows) {
        SCOPED_TRACE(row.model);
        SynthOptions o = options(row.model);
        o.trunk = row.trunk;
        o.experts = row.experts;
        o.destination = path(std::to_string(fingerprints.size()));
        EXPECT_TRUE(fingerprints.insert(write(o)).second);
        EXPECT_EQ(Container::open(o.destination)->manifest().config, o.config_text);
    }
}

TEST_F(SynthTest, IsTheSameForAnyNumberOfThreadsAndNoOtherSeed) {
    SynthOptions o = options("odd-k3");
    o.skew = 0.7;
    o.destination = path("a");
    o.threads = 1;
    const std::string one = write(o);
    o.destination = path("b");
    o.threads = 5;
    EXPECT_EQ(write(o), one);
    for (const auto& file : fs::directory_iterator(path("a"))) {
        const std::string name = file.path().filename().string();
        EXPECT_EQ(content_of(path("a/" + name)), content_of(path("b/" + name))) << name;
    }
    o.destination = path("c");
    o.seed = 2;
    EXPECT_NE(write(o), one);
}

TEST_F(SynthTest, ExpertsShareStoredRecords) {
    SynthOptions o = options();
    o.unique_experts = 3;
    write(o);
    const auto container = Container::open(o.destination);
    const auto& bank = container->manifest().banks.front();
    EXPECT_EQ(bank.bytes, 3 * bank.shape.record_bytes() + container::bank_tail_bytes(16));
    const auto gate = [&](size_t b, int64_t e) { return container->expert(b, e)->gate.data; };
    std::set<const std::byte*> places;
    for (int64_t e = 0; e < 16; e++) {
        EXPECT_EQ(gate(0, e), gate(0, e % 3));
        places.insert(gate(0, e));
    }
    EXPECT_EQ(places.size(), 3u);
    EXPECT_NE(std::memcmp(gate(0, 0), gate(0, 1), 1088), 0);
    EXPECT_NE(std::memcmp(gate(0, 0), gate(1, 0), 1088), 0) << "each layer has weights of its own";
}

TEST_F(SynthTest, RefusesWhatMakesNoSense) {
    SynthOptions o = options();
    for (const double skew : {-0.1, 10.1, std::nan("")}) {
        o.skew = skew;
        EXPECT_EQ(refusal(o), "--skew: must lie in 0..10");
    }
    o.skew = 0;
    for (const int64_t stored : {int64_t{0}, int64_t{-1}, int64_t{17}}) {
        o.unique_experts = stored;
        EXPECT_EQ(refusal(o), "--unique-experts: must lie in 1..16, the experts of a layer");
    }
    o.unique_experts.reset();
    o.config_text = "{}";
    EXPECT_EQ(refusal(o), "config.json: model_type: is missing; this model family needs it");
    EXPECT_FALSE(fs::exists(o.destination));
}

TEST_F(SynthTest, LeavesWhatIsThereAlone) {
    SynthOptions o = options();
    const std::string first = write(o);
    EXPECT_NE(refusal(o).find("exists already"), std::string::npos);
    o.replace = true;
    o.seed = 9;
    EXPECT_NE(write(o), first);
    // Neither a folder of other things nor a model that took hours goes for the asking.
    o.destination = path("folder");
    fs::create_directory(o.destination);
    write(o);
    std::ofstream(path("folder/notes.txt")) << "x";
    EXPECT_NE(refusal(o).find("holds notes.txt"), std::string::npos);
    fs::remove(path("folder/manifest.json"));
    EXPECT_NE(refusal(o).find("is not empty"), std::string::npos);
    EXPECT_TRUE(fs::exists(path("folder/trunk.bin")));
    o.destination = path("file");
    std::ofstream(o.destination) << "x";
    EXPECT_NE(refusal(o).find("is a file"), std::string::npos);
}

TEST_F(SynthTest, LeavesNothingWhenStoppedAndTidiesUpAfterAKill) {
    SynthOptions o = options();
    for (const int last : {1, 40, 300}) {
        int calls = 0;
        const auto stopped = synthesize(o, {{}, [&](const ConvertProgress&) { return ++calls < last; }});
        ASSERT_FALSE(stopped);
        EXPECT_EQ(stopped.error().kind, ErrorKind::interrupted);
        EXPECT_TRUE(fs::is_empty(dir_.path()));
    }
    fs::create_directory(o.destination + ".partial");
    std::ofstream(o.destination + ".partial/experts-001.bin.partial") << "left";
    write(o);
    fs::create_directory(path("x.partial"));
    std::ofstream(path("x.partial/mine")) << "x";
    o.destination = path("x");
    EXPECT_NE(synthesize(o, {}).error().text().find("holds mine"), std::string::npos);
    EXPECT_TRUE(fs::exists(path("x.partial/mine")));
}

TEST_F(SynthTest, ReportsAllBytesOnce) {
    SynthOptions o = options();
    uint64_t done = 0, total = 0;
    SynthSummary summary{};
    const auto ok = synthesize(o, {[&](const SynthSummary& s) { summary = s; },
                                   [&](const ConvertProgress& p) {
                                       EXPECT_GE(p.bytes_done, done);
                                       done = p.bytes_done;
                                       total = p.bytes_total;
                                       return true;
                                   }});
    ASSERT_TRUE(ok);
    EXPECT_EQ(done, total);
    EXPECT_EQ(summary.trunk_bytes + summary.expert_bytes, total);
    uint64_t on_disk = 0;
    for (const auto& file : fs::directory_iterator(o.destination)) on_disk += file.file_size();
    EXPECT_EQ(on_disk - fs::file_size(path("model.waste/manifest.json")), total);
}

TEST(SynthPresets, AreWholeConfigs) {
    for (const SynthPreset& preset : synth_presets()) {
        const auto config = parse_config(preset.config, std::string(preset.name));
        ASSERT_TRUE(config) << config.error().text();
        EXPECT_EQ(synth_preset_config(preset.name), preset.config);
    }
    EXPECT_FALSE(synth_preset_config("k4"));
    const auto preset = parse_config(*synth_preset_config("demo"), "demo");
    const auto demo = parse_config(config_of("demo-model"), "demo-model");
    const auto a = trunk_tensors(*preset), b = trunk_tensors(*demo);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); i++) {
        EXPECT_EQ(a[i].name, b[i].name);
        EXPECT_EQ(a[i].shape, b[i].shape);
    }
    EXPECT_EQ(preset->num_experts, demo->num_experts);
    EXPECT_EQ(preset->num_experts_per_token, demo->num_experts_per_token);
}

uint64_t parameter_count(const ModelConfig& config) {
    uint64_t sum = 0;
    for (const TensorSpec& tensor : trunk_tensors(config)) {
        sum += std::accumulate(
            tensor.shape.begin(), tensor.shape.end(), uint64_t{1},
            [](uint64_t product, int64_t size) { return product * static_cast<uint64_t>(size); });
    }
    const int64_t expert = 3 * config.expert_input_size() * config.moe_intermediate_size;
    return sum + static_cast<uint64_t>(config.moe_layer_count() * config.num_experts * expert);
}

TEST(SynthPresets, K3IsAsLargeAsKimiK3) {
    const auto config = parse_config(*synth_preset_config("k3"), "k3");
    ASSERT_TRUE(config) << config.error().text();
    EXPECT_NEAR(static_cast<double>(parameter_count(*config)) / 2'779'484'478'208.0, 1, 1e-4);
    EXPECT_TRUE(config->eos_token_ids.empty()) << "a measurement must not stop by chance";
}

TEST(SynthPresets, K3IsPlannedAsKimiK3) {
    const PlannedModel preset = test::planned(std::string(*synth_preset_config("k3")), TrunkRecipe::q4);
    const PlannedModel release = test::planned(test::k3_config(), TrunkRecipe::q4);
    EXPECT_EQ(preset.sizes.trunk_bytes, release.sizes.trunk_bytes);
    EXPECT_EQ(preset.sizes.expert_bytes, release.sizes.expert_bytes);
    EXPECT_EQ(preset.sizes.layer_bytes, release.sizes.layer_bytes);
    SessionOptions session;
    session.context_length = 4096;
    session.threads = 16;
    const Plan a = plan(preset.config, preset.sizes, session.shape(), std::nullopt);
    const Plan b = plan(release.config, release.sizes, session.shape(), std::nullopt);
    EXPECT_EQ(a.floor_bytes, b.floor_bytes);
    EXPECT_EQ(a.expert_read_bytes, b.expert_read_bytes);
}

/// What is about to be written, without writing it: the drive of this test could not hold it.
TEST_F(SynthTest, K3WouldBeWrittenWithTwoExpertsALayer) {
    SynthOptions o = options();
    o.config_text = *synth_preset_config("k3");
    o.config_place = "preset k3";
    o.unique_experts = 2;
    SynthSummary summary{};
    const auto stopped = synthesize(
        o, {[&](const SynthSummary& s) { summary = s; }, [](const ConvertProgress&) { return false; }});
    ASSERT_FALSE(stopped);
    if (stopped.error().kind != ErrorKind::interrupted) GTEST_SKIP() << stopped.error().text();
    EXPECT_EQ(summary.stored_experts, 2);
    const uint64_t records = uint64_t{92} * 2 * 17'547'264;
    EXPECT_GE(summary.expert_bytes, records);
    EXPECT_LT(summary.expert_bytes, records + 92 * 896 * 64) << "and tables";
    EXPECT_GT(summary.trunk_bytes, uint64_t{26} * 1'000'000'000);
    EXPECT_LT(summary.trunk_bytes, uint64_t{45} * 1'000'000'000);
    EXPECT_TRUE(fs::is_empty(dir_.path()));
}

// ---- Distributions

/// Sum and sum of squares of all decoded weights, and the largest that stands in the padding.
struct Moments {
    double mean, square, padding;
};

Moments moments(Format format, int64_t rows, int64_t cols, double deviation) {
    const RandomPanels matrix(format, rows, cols, deviation, stream_of(1, "test"));
    std::vector<std::byte> panel(static_cast<size_t>(matrix.panel_bytes()));
    const int64_t padded = kernels::block_count(cols) * kernels::kBlockCols;
    std::vector<float> values(static_cast<size_t>(kernels::kPanelRows * padded));
    Moments out{};
    for (int64_t p = 0; p < kernels::panel_count(rows); p++) {
        matrix.fill(p, panel.data());
        // Decoded as if all columns were there, so that padding shows.
        kernels::format_info(format).decode(panel.data(), padded, values.data());
        for (int64_t i = 0; i < kernels::kPanelRows * padded; i++) {
            const double value = values[static_cast<size_t>(i)];
            const bool inside = p * kernels::kPanelRows + i / padded < rows && i % padded < cols;
            if (!inside) out.padding = std::max(out.padding, std::abs(value));
            out.mean += value;
            out.square += value * value;
        }
    }
    const auto count = static_cast<double>(rows * cols);
    return {out.mean / count, out.square / count, out.padding};
}

TEST(SynthRandom, MatricesHaveTheDeviationAskedForAndCleanPadding) {
    for (const Format format : {Format::f32, Format::bf16, Format::q8, Format::q4, Format::mxfp4}) {
        for (const double deviation : {0.02, 0.0442, 1.0}) {
            SCOPED_TRACE(testing::Message() << kernels::format_info(format).name << " " << deviation);
            const int64_t rows = 501, cols = 1003;
            const Moments m = moments(format, rows, cols, deviation);
            // Half a million weights: five standard errors of the mean, and of the mean square, where a weight counts
            // for less than five squares (mxfp4's, whose groups of 32 share a scale) and mxfp4's two scales are mixed
            // in steps of a 256th, three times the smaller square each.
            const double n = static_cast<double>(rows * cols);
            EXPECT_LT(std::abs(m.mean), 5 * deviation / std::sqrt(n));
            EXPECT_LT(std::abs(m.square / (deviation * deviation) - 1), 5 * 5 / std::sqrt(n) + 1.5 / 256);
            EXPECT_EQ(m.padding, 0.0);
        }
    }
}

TEST(SynthRandom, PanelsDiffer) {
    const RandomPanels matrix(Format::q4, 64, 128, 1.0, stream_of(1, "a"));
    const RandomPanels other(Format::q4, 64, 128, 1.0, stream_of(2, "a"));
    std::set<std::string> seen;
    for (int64_t panel = 0; panel < 4; panel++) {
        for (const RandomPanels* source : {&matrix, &other}) {
            std::string bytes(static_cast<size_t>(source->panel_bytes()), '\0');
            source->fill(panel, reinterpret_cast<std::byte*>(bytes.data()));
            EXPECT_TRUE(seen.insert(bytes).second);
        }
    }
}

TEST(SynthWeights, SharesAddUpAndFall) {
    for (const double skew : {0.0, 0.5, 1.0, 3.0, 10.0}) {
        for (const int64_t top_k : {int64_t{1}, int64_t{8}, int64_t{255}, int64_t{256}}) {
            SCOPED_TRACE(testing::Message() << skew << " " << top_k);
            const std::vector<double> shares = expert_shares(256, top_k, skew);
            const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
            EXPECT_NEAR(sum, static_cast<double>(top_k), 256 * 256 * 0x1p-52);
            EXPECT_TRUE(std::is_sorted(shares.rbegin(), shares.rend()));
            EXPECT_LE(shares.front(), 1.0 + 0x1p-40);
            const std::vector<float> bias = expert_bias(256, top_k, skew, 7);
            for (const float b : bias) EXPECT_TRUE(std::abs(b) <= 1.0f);
            if (skew == 0) {
                EXPECT_EQ(bias, std::vector<float>(256, 0.0f));
            }
        }
    }
    const std::vector<double> shares = expert_shares(100, 10, 1.0);
    EXPECT_EQ(shares[0], 1.0);
    EXPECT_NEAR(shares[19] / shares[39], 2.0, 1e-12) << "r^-1";
}

/// How often each expert is chosen, most often first, by a router of independent scores.
std::vector<double> simulated_shares(const std::vector<float>& bias, int64_t top_k, int tokens) {
    const auto experts = static_cast<int64_t>(bias.size());
    const kernels::RouterRule rule{experts, top_k, true, 1.0f};
    std::mt19937 engine(3);
    std::normal_distribution<double> normal;
    std::vector<double> chosen(bias.size(), 0.0);
    std::vector<float> score(bias.size()), scratch(bias.size()), weights(static_cast<size_t>(top_k));
    std::vector<int32_t> ids(static_cast<size_t>(top_k));
    for (int t = 0; t < tokens; t++) {
        for (float& s : score) s = static_cast<float>(1 / (1 + std::exp(-1.5 * normal(engine))));
        kernels::route(rule, score.data(), bias.data(), scratch.data(), ids.data(), weights.data());
        for (const int32_t id : ids) chosen[static_cast<size_t>(id)] += 1.0 / tokens;
    }
    std::sort(chosen.rbegin(), chosen.rend());
    return chosen;
}

TEST(SynthWeights, SkewGivesThePopularityPromised) {
    for (const double skew : {0.0, 0.5, 1.0, 2.0}) {
        SCOPED_TRACE(skew);
        const std::vector<double> aimed = expert_shares(256, 8, skew);
        const std::vector<double> found = simulated_shares(expert_bias(256, 8, skew, 5), 8, 4000);
        // The threshold of a choice varies from token to token, the shares are those of the usual one; so they are
        // nearly right: of eight choices, what the most popular tenth gets is right within a third of one.
        const auto head = [](const std::vector<double>& v) {
            return std::accumulate(v.begin(), v.begin() + 26, 0.0);
        };
        EXPECT_NEAR(head(found), head(aimed), 1.0 / 3);
    }
}

}  // namespace
}  // namespace waste::engine

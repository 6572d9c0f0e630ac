#include "engine/run_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/session.h"
#include "tests/support/planned_models.h"

namespace waste::engine {
namespace {

using waste::test::k3_config;
using waste::test::linear_config;
using waste::test::planned;

constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;

SessionShape shape_of(int64_t context_length, int64_t block_tokens = kDefaultBlockTokens) {
    SessionOptions options;
    options.context_length = context_length;
    options.block_tokens = block_tokens;
    options.threads = 2;
    return options.shape();
}

Result<RunPlan> run_of(const PlannedModel& model, std::optional<uint64_t> budget,
                       const std::optional<MemoryFacts>& memory = {}, int64_t context_length = 4096) {
    return plan_run(model.config, model.sizes, shape_of(context_length), budget, memory);
}

/// All of the machine's memory is free.
MemoryFacts idle(uint64_t bytes) {
    return {bytes, bytes};
}

uint64_t everything(const PlannedModel& model) {
    return run_of(model, {})->total_bytes;
}

uint64_t sum_of_rows(const RunPlan& run) {
    const Plan& needs = run.needs;
    return needs.kda_state_bytes + needs.conv_ring_bytes + needs.mla_latent_bytes + needs.activation_bytes +
           needs.program_bytes + run.mapped_trunk_bytes + run.trunk_stream_bytes + run.expert_bytes;
}

/// What must hold of any plan that was granted.
void expect_sound(const RunPlan& run, const PlannedModel& model) {
    const ContainerSizes& sizes = model.sizes;
    EXPECT_EQ(run.total_bytes, sum_of_rows(run));
    EXPECT_LE(run.total_bytes, run.budget_bytes);
    EXPECT_LE(run.cache_slots, sizes.record_count);
    uint64_t streamed = 0, largest = 0;
    const auto count = static_cast<int64_t>(sizes.layer_bytes.size());
    for (int64_t layer = run.mapped_layers; layer < count; layer++) {
        const uint64_t bytes = sizes.layer_bytes[static_cast<size_t>(layer)];
        streamed += bytes;
        largest = std::max(largest, bytes);
    }
    if (!run.head_mapped) {
        streamed += sizes.head_bytes;
        largest = std::max(largest, sizes.head_bytes);
    }
    EXPECT_EQ(run.trunk_drive_bytes, streamed);
    EXPECT_EQ(run.stream_buffer_bytes, largest) << "pieces are whole blocks already";
    EXPECT_EQ(run.trunk_stream_bytes, arena_bytes(2, largest));
    EXPECT_EQ(run.trunk, streamed == 0 ? Held::mapped : Held::streamed);
    EXPECT_EQ(run.mapped_trunk_bytes + streamed, run.needs.trunk_bytes);
    if (run.experts == Held::mapped) {
        EXPECT_EQ(run.cache_slots, 0u);
        EXPECT_EQ(run.expert_bytes, sizes.expert_bytes);
        EXPECT_EQ(run.trunk, Held::mapped);
    } else {
        const auto chosen = static_cast<uint64_t>(model.config.num_experts_per_token);
        EXPECT_GE(run.cache_slots, 2 * chosen);
        EXPECT_EQ(run.expert_bytes, arena_bytes(run.cache_slots, run.slot_bytes));
    }
}

/// Budgets from nothing to twice everything, close together where plans differ, in order.
std::vector<uint64_t> many_budgets(const PlannedModel& model) {
    const RunPlan whole = run_of(model, {}).value();
    std::vector<uint64_t> budgets;
    for (const uint64_t to :
         {whole.least_bytes + kGiB, whole.needs.floor_bytes + kGiB, 2 * whole.total_bytes}) {
        for (uint64_t step = 0; step <= 300; step++) budgets.push_back(to / 300 * step);
    }
    std::sort(budgets.begin(), budgets.end());
    return budgets;
}

double uniform_drive_bytes(const RunPlan& run, const PlannedModel& model) {
    return estimate(run, uniform_hit_rate(run, model.sizes), 0, 0).drive_bytes;
}

TEST(RunPlan, AnyBudgetIsKeptAndFilled) {
    for (const std::string& text : {k3_config(), linear_config()}) {
        const PlannedModel model = planned(text);
        const uint64_t least = run_of(model, {})->least_bytes;
        for (const uint64_t budget : many_budgets(model)) {
            const auto run = run_of(model, budget);
            ASSERT_EQ(run.has_value(), budget >= least) << budget;
            if (!run) {
                EXPECT_EQ(run.error().kind, ErrorKind::capacity);
                continue;
            }
            EXPECT_EQ(run->budget_source, BudgetSource::asked);
            expect_sound(*run, model);
            if (run->experts == Held::streamed && run->cache_slots < model.sizes.record_count) {
                EXPECT_GT(run->total_bytes + run->slot_bytes + 4 * kMiB, budget) << "a budget is filled";
            }
        }
    }
}

TEST(RunPlan, ALargerBudgetIsNeverWorse) {
    for (const std::string& text : {k3_config(), linear_config()}) {
        const PlannedModel model = planned(text);
        std::optional<RunPlan> last;
        for (const uint64_t budget : many_budgets(model)) {
            const auto run = run_of(model, budget);
            if (!run) continue;
            if (last) {
                EXPECT_LE(run->trunk_drive_bytes, last->trunk_drive_bytes) << budget;
                // One more layer mapped may take slots, but reads less altogether.
                EXPECT_LE(uniform_drive_bytes(*run, model), uniform_drive_bytes(*last, model) * 1.000001)
                    << budget;
                if (last->trunk == Held::mapped && run->experts == Held::streamed) {
                    EXPECT_GE(run->cache_slots, last->cache_slots) << budget;
                }
            }
            last = *run;
        }
        ASSERT_TRUE(last);
        EXPECT_EQ(last->experts, Held::mapped);
    }
}

TEST(RunPlan, TurnsExactlyAtItsBorders) {
    for (const std::string& text : {k3_config(), linear_config()}) {
        const PlannedModel model = planned(text);
        const uint64_t all = everything(model);
        const RunPlan whole = run_of(model, all).value();
        EXPECT_EQ(whole.experts, Held::mapped);
        EXPECT_EQ(run_of(model, all - 1)->experts, Held::streamed);
        const RunPlan floor = run_of(model, whole.needs.floor_bytes).value();
        EXPECT_EQ(floor.trunk, Held::mapped);
        EXPECT_EQ(floor.total_bytes, whole.needs.floor_bytes);
        EXPECT_EQ(floor.cache_slots, 2u * static_cast<uint64_t>(model.config.num_experts_per_token));
        EXPECT_EQ(run_of(model, whole.needs.floor_bytes - 1)->trunk, Held::streamed);
        EXPECT_TRUE(run_of(model, whole.least_bytes));
        EXPECT_FALSE(run_of(model, whole.least_bytes - 1));
        EXPECT_LT(whole.least_bytes, whole.needs.floor_bytes);
    }
}

TEST(RunPlan, KimiK3RunsInFourGiB) {
    const PlannedModel model = planned(k3_config());
    ASSERT_EQ(model.sizes.layer_bytes.size(), 93u);
    EXPECT_EQ(std::accumulate(model.sizes.layer_bytes.begin(), model.sizes.layer_bytes.end(), uint64_t{0}) +
                  model.sizes.head_bytes + model.sizes.embedding_bytes,
              model.sizes.trunk_bytes);
    EXPECT_EQ(model.sizes.record_count, 92u * 896u);
    const auto run = run_of(model, 4 * kGiB);
    ASSERT_TRUE(run) << run.error().text();
    EXPECT_EQ(run->trunk, Held::streamed);
    EXPECT_TRUE(run->head_mapped) << "it is larger than two buffers for layers";
    EXPECT_EQ(run->slot_bytes, 17'547'264u);
}

TEST(RunPlan, AutomaticBudgetUsesWhatIsSafe) {
    for (const std::string& text : {k3_config(), linear_config()}) {
        const PlannedModel model = planned(text);
        const uint64_t all = everything(model), least = run_of(model, {})->least_bytes;
        for (const uint64_t usable : {least * 3 / 2, 8 * kGiB, 24 * kGiB, 64 * kGiB, all}) {
            const auto run = run_of(model, {}, idle(usable));
            ASSERT_TRUE(run) << run.error().text();
            expect_sound(*run, model);
            EXPECT_EQ(run->budget_source, BudgetSource::safe);
            EXPECT_EQ(run->budget_bytes, safe_part(usable));
            if (run->experts == Held::streamed) {
                EXPECT_GE(run->total_bytes, safe_part(usable) / 10 * 9) << usable;
            }
        }
        EXPECT_EQ(run_of(model, {}, idle(2 * all))->experts, Held::mapped);
    }
}

TEST(RunPlan, AutomaticBudgetKeepsOutOfOthersWay) {
    const PlannedModel model = planned(linear_config());
    const MemoryFacts busy{64 * kGiB, 16 * kGiB};
    EXPECT_EQ(safe_bytes(busy), 15 * kGiB);
    EXPECT_EQ(run_of(model, {}, busy)->budget_source, BudgetSource::available);
    // Another engine has 20 GiB and has taken five of them: what is available shows only those.
    const MemoryFacts shared{64 * kGiB, 59 * kGiB, 20 * kGiB, 15 * kGiB};
    EXPECT_EQ(safe_bytes(shared), 36 * kGiB);
    const MemoryFacts crowded{64 * kGiB, 32 * kGiB, 20 * kGiB, 15 * kGiB};
    EXPECT_EQ(safe_bytes(crowded), 15 * kGiB);
    const MemoryFacts full{64 * kGiB, 4 * kGiB, 80 * kGiB, 40 * kGiB};
    EXPECT_EQ(safe_bytes(full), 0u);
    const auto least = run_of(model, {}, full);
    ASSERT_TRUE(least) << "what is promised may not be taken; the least is worth a try";
    EXPECT_EQ(least->budget_source, BudgetSource::least);
    EXPECT_EQ(least->budget_bytes, least->least_bytes);
    expect_sound(*least, model);
}

TEST(RunPlan, ABudgetAboveTheMachineIsCutToIt) {
    const PlannedModel model = planned(linear_config());
    const auto run = run_of(model, 100 * kGiB, idle(8 * kGiB));
    EXPECT_EQ(run->budget_source, BudgetSource::usable);
    EXPECT_EQ(run->budget_bytes, 8 * kGiB);
    EXPECT_EQ(run_of(model, 7 * kGiB, MemoryFacts{8 * kGiB, 1})->budget_bytes, 7 * kGiB)
        << "who names a number gets it, whatever else runs";
}

TEST(RunPlan, WithoutMemoryFactsEverythingIsMapped) {
    const PlannedModel model = planned(linear_config());
    const auto run = run_of(model, {});
    EXPECT_EQ(run->budget_source, BudgetSource::unknown);
    EXPECT_EQ(run->experts, Held::mapped);
    expect_sound(*run, model);
}

TEST(RunPlan, RefusalNamesTheLeastTheBudgetAndWaysOut) {
    const PlannedModel model = planned(k3_config());
    const auto refused = run_of(model, 4 * kGiB, {}, 131072);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::capacity);
    const std::string text = refused.error().text();
    for (const char* words : {"--budget: a context of 131072 in blocks of 512 tokens needs ",
                              " at the least, and the budget is 4.00 GiB", "--budget 1", "MiB; --ctx ",
                              " or less; --block 64 (takes ", "with --ctx "}) {
        EXPECT_NE(text.find(words), std::string::npos) << words << " in " << text;
    }
    EXPECT_EQ(text.find('\n'), std::string::npos);
    // What it advises works, and one position more would not.
    const size_t at = text.find("; --ctx ");
    const int64_t context = std::stoll(text.substr(at + 8));
    EXPECT_TRUE(run_of(model, 4 * kGiB, {}, context));
    EXPECT_FALSE(run_of(model, 4 * kGiB, {}, context + 1));
    const auto no_machine = run_of(model, {}, idle(kGiB));
    ASSERT_FALSE(no_machine);
    EXPECT_NE(no_machine.error().text().find("this machine gives the process 1.00 GiB"), std::string::npos)
        << no_machine.error().text();
    EXPECT_EQ(no_machine.error().text().find("--ctx"), std::string::npos) << "none is short enough";
}

TEST(RunPlan, HostileSizesDoNotWrap) {
    PlannedModel model = planned(linear_config());
    model.config.kv_lora_rank = int64_t{1} << 24;
    model.config.kda_layer.assign(4096, false);
    model.config.num_hidden_layers = 4096;
    model.sizes.record_bytes = uint64_t{1} << 62;
    model.sizes.expert_bytes = UINT64_MAX;
    model.sizes.record_count = UINT64_MAX;
    model.sizes.layer_bytes.assign(4096, UINT64_MAX / 2);
    model.sizes.head_bytes = UINT64_MAX;
    const auto run = run_of(model, uint64_t{1} << 40, {}, int64_t{1} << 32);
    ASSERT_FALSE(run);
    EXPECT_EQ(run.error().kind, ErrorKind::capacity);
    EXPECT_EQ(run_of(model, {}, {}, int64_t{1} << 32)->total_bytes, UINT64_MAX);
}

TEST(RunPlan, AModelWithoutBanksHasNoSlots) {
    PlannedModel model = planned(linear_config());
    model.sizes.record_bytes = model.sizes.record_count = model.sizes.expert_bytes = 0;
    const uint64_t all = everything(model);
    EXPECT_EQ(run_of(model, all)->cache_slots, 0u);
    EXPECT_EQ(run_of(model, all - 1)->cache_slots, 0u);
    EXPECT_EQ(run_of(model, all - 1)->trunk, Held::streamed);
    EXPECT_EQ(uniform_hit_rate(*run_of(model, all - 1), model.sizes), 1);
}

TEST(RunPlan, NeverMoreSlotsThanRecords) {
    PlannedModel model = planned(linear_config());
    model.sizes.expert_bytes += 100 * model.sizes.record_bytes;  // banks with large tables
    const RunPlan run = run_of(model, everything(model) - 1).value();
    EXPECT_EQ(run.experts, Held::streamed);
    EXPECT_EQ(run.cache_slots, model.sizes.record_count);
    EXPECT_EQ(uniform_hit_rate(run, model.sizes), 1);
    expect_sound(run, model);
}

TEST(RunPlan, EstimatesTheSlowerOfDriveAndMemory) {
    const PlannedModel model = planned(linear_config());
    const RunPlan run = run_of(model, run_of(model, {})->needs.floor_bytes + kGiB).value();
    const auto experts = static_cast<double>(run.needs.expert_read_bytes);
    EXPECT_DOUBLE_EQ(estimate(run, 0, 0, 0).drive_bytes, experts);
    EXPECT_DOUBLE_EQ(estimate(run, 0.75, 0, 0).drive_bytes, experts / 4);
    EXPECT_EQ(estimate(run, 0, 0, 0).seconds, 0);
    EXPECT_DOUBLE_EQ(estimate(run, 0.5, 1e9, 0).seconds, experts / 2 / 1e9);
    const double memory = estimate(run, 0, 0, 1e9).seconds;
    EXPECT_DOUBLE_EQ(estimate(run, 1, 1e9, 1e9).seconds, memory);
    EXPECT_DOUBLE_EQ(estimate(run, 0, 1e3, 1e9).seconds, experts / 1e3);
    EXPECT_EQ(estimate(run_of(model, everything(model)).value(), 0, 1, 0).drive_bytes, 0) << "all mapped";
}

TEST(ContainerSizes, LayersBeyondReasonAreOfNone) {
    std::vector<container::TensorEntry> tensors(3);
    for (auto& tensor : tensors) {
        tensor.bytes = 5000;
        tensor.shape = {1};
    }
    tensors[0].name = "layers.1.norm";
    tensors[1].name = "layers.999999999999999999.norm";
    tensors[2].name = "layers.2";
    const ContainerSizes sizes = container_sizes(24576, tensors, {});
    EXPECT_EQ(sizes.layer_bytes, (std::vector<uint64_t>{0, 8192}));
    EXPECT_EQ(sizes.head_bytes, 16384u);
}

}  // namespace
}  // namespace waste::engine

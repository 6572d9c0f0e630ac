// The whole engine against the independent float64 reference: every tensor of every golden.safetensors, on
// every tier. Limits and what each golden notices: docs/model.md.
#include "tests/support/golden.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/dump.h"
#include "kernels/tier.h"
#include "tests/support/converted.h"

namespace waste::test {
namespace {

using engine::Session;
using engine::SessionOptions;
using kernels::Tier;

// A float32 engine with float32 activations and state stays this near (docs/model.md, "How closely to
// match").
constexpr double kRelativeLimit = 5e-5;
constexpr float kRouterLimit = 2e-5f;

struct Case {
    std::string checkpoint;
    Tier tier;
};

void PrintTo(const Case& test, std::ostream* out) {
    *out << test.checkpoint << " on " << kernels::tier_name(test.tier);
}

class Golden : public ::testing::TestWithParam<Case> {};

SessionOptions exact(Tier tier, int64_t context_length) {
    SessionOptions options;
    options.compute = engine::Compute::f32;
    options.tier = tier;
    options.context_length = context_length;
    options.threads = 2;
    return options;
}

/// What `waste eval --dump` writes for the golden's two sequences.
GoldenFile dump_both(const engine::Model& model, Tier tier, const GoldenFile& golden,
                     const std::string& path) {
    std::vector<container::NamedTensor> all;
    for (const std::string name : {"a", "b"}) {
        const auto ids = golden.i32(name + ".ids").values;
        const int64_t greedy = golden.has(name + ".greedy") ? golden.i32(name + ".greedy").dim(0) : 0;
        auto session = Session::create(model, exact(tier, static_cast<int64_t>(ids.size()) + greedy));
        if (!session) throw std::runtime_error(session.error().text());
        auto tensors = engine::dump_sequence(model, *session, ids, name, greedy);
        if (!tensors) throw std::runtime_error(tensors.error().text());
        std::move(tensors->begin(), tensors->end(), std::back_inserter(all));
    }
    const auto written = container::write_safetensors(path, all);
    if (!written) throw std::runtime_error(written.error().text());
    return GoldenFile::load(path);
}

void expect_same_sets(const GoldenTensor<int32_t>& got, const GoldenTensor<int32_t>& want) {
    const int64_t k = want.shape.back();
    for (int64_t row = 0; row * k < static_cast<int64_t>(want.values.size()); row++) {
        const auto a = got.row(row, k), b = want.row(row, k);
        EXPECT_EQ(std::multiset<int32_t>(a.begin(), a.end()), std::multiset<int32_t>(b.begin(), b.end()))
            << "row " << row;
    }
}

void expect_near(const GoldenTensor<float>& got, const GoldenTensor<float>& want, float limit) {
    for (size_t i = 0; i < want.values.size(); i++) {
        ASSERT_NEAR(got.values[i], want.values[i], limit) << "element " << i;
    }
}

/// Relative per layer for vectors of one position, over the whole tensor otherwise.
void expect_relative(const std::string& name, const GoldenTensor<float>& got,
                     const GoldenTensor<float>& want) {
    const bool by_layer = name.ends_with("_last") && want.shape.size() == 2;
    const auto width = by_layer ? want.shape[1] : static_cast<int64_t>(want.values.size());
    for (int64_t row = 0; row * width < static_cast<int64_t>(want.values.size()); row++) {
        EXPECT_LE(relative_error(got.row(row, width), want.row(row, width)), kRelativeLimit)
            << (by_layer ? "layer " + std::to_string(row) : "");
    }
}

TEST_P(Golden, EveryTensorAgrees) {
    if (!kernels::tier_supported(GetParam().tier)) GTEST_SKIP() << "this CPU cannot run the tier";
    const GoldenFile golden =
        GoldenFile::load(WASTE_TEST_DATA "/" + GetParam().checkpoint + "/golden.safetensors");
    const Converted converted(lossless(GetParam().checkpoint));
    const TempDir directory;
    const GoldenFile mine =
        dump_both(converted.model(), GetParam().tier, golden, directory.file("dump.safetensors"));
    for (const std::string& name : golden.names()) {
        SCOPED_TRACE(name);
        ASSERT_TRUE(mine.has(name));
        if (golden.dtype(name) == "I32") {
            const auto got = mine.i32(name), want = golden.i32(name);
            ASSERT_EQ(got.shape, want.shape);
            if (name.ends_with("router_ids")) {
                expect_same_sets(got, want);
            } else {
                EXPECT_EQ(got.values, want.values);
            }
            continue;
        }
        const auto got = mine.f32(name), want = golden.f32(name);
        ASSERT_EQ(got.shape, want.shape);
        if (name.ends_with("router_weights") || name.ends_with("router_margin")) {
            expect_near(got, want, kRouterLimit);
        } else if (!name.ends_with("greedy_margin")) {  // a difference of two greedy_logits
            expect_relative(name, got, want);
        }
    }
}

std::vector<Case> cases() {
    std::vector<Case> out;
    for (const char* checkpoint : {"tiny-k3", "odd-k3", "tiny-kimi-linear"}) {
        for (const Tier tier :
             {Tier::scalar, Tier::avx2, Tier::avxvnni, Tier::avx512, Tier::neon, Tier::i8mm})
            out.push_back({checkpoint, tier});
    }
    return out;
}

INSTANTIATE_TEST_SUITE_P(, Golden, ::testing::ValuesIn(cases()), [](const auto& test) {
    std::string name = test.param.checkpoint + "_" + std::string(kernels::tier_name(test.param.tier));
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

}  // namespace
}  // namespace waste::test

// Where the weights are held must not change a bit, and what the drive delivers damaged must not be computed with.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "engine/session.h"
#include "tests/support/converted.h"

namespace waste::test {
namespace {

using container::ReadMethod;
using engine::Arrangement;
using engine::Model;
using engine::ReplacementPolicy;
using engine::Session;
using engine::SessionOptions;

// A block of two chunks, and what is generated behind it.
constexpr size_t kPrompt = 130, kGenerated = 12;

std::vector<int32_t> arbitrary_ids(int64_t vocab_size) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < kPrompt + kGenerated; i++) {
        ids.push_back(static_cast<int32_t>((7 + 61 * i) % static_cast<size_t>(vocab_size)));
    }
    return ids;
}

SessionOptions two_threads() {
    SessionOptions options;
    options.context_length = kPrompt + kGenerated;
    options.threads = 2;
    return options;
}

Model open_as(const std::string& directory, const Arrangement& arrangement) {
    auto model = Model::open(directory);
    if (!model) throw std::runtime_error(model.error().text());
    if (const auto ok = model->arrange(arrangement); !ok) throw std::runtime_error(ok.error().text());
    return std::move(*model);
}

/// Logits after the prompt and after every further token.
Result<std::vector<float>> run(const Model& model, const SessionOptions& options = two_threads()) {
    auto session = Session::create(model, options);
    if (!session) return pass(session);
    const auto ids = arbitrary_ids(model.config().vocab_size);
    std::vector<float> out;
    const auto keep = [&] { out.insert(out.end(), session->logits().begin(), session->logits().end()); };
    if (const auto ok = session->feed(std::span(ids).first(kPrompt)); !ok) return pass(ok);
    keep();
    for (size_t i = kPrompt; i < ids.size(); i++) {
        if (const auto ok = session->feed(std::span(ids).subspan(i, 1)); !ok) return pass(ok);
        keep();
    }
    return out;
}

std::vector<float> bits_of(const Model& model, const SessionOptions& options = two_threads()) {
    auto out = run(model, options);
    if (!out) throw std::runtime_error(out.error().text());
    return std::move(*out);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

Arrangement with_slots(int64_t slots) {
    Arrangement arrangement;
    arrangement.experts.slots = slots;
    return arrangement;
}

class Streaming : public ::testing::TestWithParam<std::string> {
  protected:
    int64_t least_slots() const { return 2 * converted_.model().config().num_experts_per_token; }
    int64_t all_slots() const {
        const auto& config = converted_.model().config();
        return config.num_experts * config.moe_layer_count();
    }
    Model open(const Arrangement& arrangement) const { return open_as(converted_.directory(), arrangement); }

    /// Flips a bit of every record of the first bank.
    void damage_first_bank() const {
        const auto& bank = converted_.model().container().manifest().banks[0];
        std::fstream file(converted_.directory() + "/" + bank.file,
                          std::ios::binary | std::ios::in | std::ios::out);
        for (int64_t expert = 0; expert < bank.shape.experts; expert++) {
            const auto at = static_cast<std::streamoff>(
                converted_.model().container().expert_entry(0, expert).offset + 1);
            char byte = 0;
            file.seekg(at).read(&byte, 1);
            byte = static_cast<char>(byte ^ 4);
            file.seekp(at).write(&byte, 1);
        }
        ASSERT_TRUE(file.good());
    }

    Converted converted_{defaults(GetParam())};
    std::vector<float> mapped_ = bits_of(converted_.model());
};

TEST_P(Streaming, CacheSizeAndPolicyChangeNoBit) {
    for (const int64_t slots : {least_slots(), least_slots() + 3, all_slots() / 2, all_slots()}) {
        for (const ReplacementPolicy policy :
             {ReplacementPolicy::lru, ReplacementPolicy::lfu, ReplacementPolicy::router}) {
            Arrangement arrangement = with_slots(slots);
            arrangement.experts.policy = policy;
            EXPECT_TRUE(same_bits(bits_of(open(arrangement)), mapped_))
                << slots << " slots, " << engine::replacement_name(policy);
        }
    }
}

TEST_P(Streaming, LookAheadAndThreadsChangeNoBit) {
    for (const bool look_ahead : {false, true}) {
        for (const int threads : {1, 3}) {
            SessionOptions options = two_threads();
            options.look_ahead = look_ahead;
            options.threads = threads;
            EXPECT_TRUE(same_bits(bits_of(open(with_slots(least_slots() + 8)), options), mapped_))
                << threads << " threads, look-ahead " << look_ahead;
        }
    }
}

TEST_P(Streaming, WayOfReadingChangesNoBit) {
    for (const ReadMethod method : {ReadMethod::automatic, ReadMethod::threads}) {
        for (const bool direct : {true, false}) {
            Arrangement arrangement = with_slots(least_slots());
            arrangement.reader.method = method;
            arrangement.reader.direct = direct;
            arrangement.experts.verify = direct;
            EXPECT_TRUE(same_bits(bits_of(open(arrangement)), mapped_))
                << (method == ReadMethod::threads ? "threads" : "automatic") << ", direct " << direct;
        }
    }
}

TEST_P(Streaming, TrunkMayBeCopiedOrStreamed) {
    Arrangement copied;
    copied.trunk.copy = true;
    EXPECT_TRUE(same_bits(bits_of(open(copied)), mapped_));
    const int64_t layers = converted_.model().config().num_hidden_layers;
    for (const int64_t mapped : {int64_t{0}, int64_t{1}, layers - 1}) {
        for (const int64_t slots : {int64_t{0}, least_slots()}) {
            Arrangement arrangement = with_slots(slots);
            arrangement.trunk.mapped_layers = mapped;
            EXPECT_TRUE(same_bits(bits_of(open(arrangement)), mapped_))
                << mapped << " layers mapped, " << slots << " slots";
        }
    }
}

TEST_P(Streaming, CountersAddUp) {
    const auto& config = converted_.model().config();
    const Model model = open(with_slots(all_slots()));
    SessionOptions options = two_threads();
    auto session = Session::create(model, options);
    ASSERT_TRUE(session);
    const auto ids = arbitrary_ids(config.vocab_size);
    ASSERT_TRUE(session->feed(std::span(ids).first(kPrompt)));
    // A block wants each expert once, whatever the number of its tokens.
    const engine::ExpertCounters prompt = model.experts().counters();
    EXPECT_LE(prompt.uses, static_cast<uint64_t>(all_slots()));
    EXPECT_EQ(prompt.misses, prompt.uses);
    EXPECT_EQ(prompt.bytes, prompt.misses * model.experts().slot_bytes());
    ASSERT_TRUE(session->feed(std::span(ids).subspan(kPrompt)));
    session->clear();
    ASSERT_TRUE(session->feed(std::span(ids).first(kPrompt)));
    const engine::ExpertCounters all = model.experts().counters();
    EXPECT_EQ(all.hits + all.joined + all.misses, all.uses);
    EXPECT_EQ(all.bytes, (all.misses + all.ahead_reads) * model.experts().slot_bytes());
    EXPECT_LE(all.misses + all.ahead_reads, static_cast<uint64_t>(all_slots())) << "nothing was evicted";
    EXPECT_GE(model.experts().drive().bytes, all.bytes - all.ahead_reads * model.experts().slot_bytes());
}

TEST_P(Streaming, LayersAreToldAsTheyBegin) {
    const Model model = open(with_slots(least_slots()));
    SessionOptions options = two_threads();
    options.block_tokens = 64;
    auto session = Session::create(model, options);
    ASSERT_TRUE(session);
    const int64_t layers = model.config().num_hidden_layers;
    std::vector<int64_t> blocks;
    int64_t next = 0;
    session->set_on_layer([&](int64_t layer, int64_t of, int64_t tokens) {
        EXPECT_EQ(layer, next % layers);
        EXPECT_EQ(of, layers);
        if (layer == 0) blocks.push_back(tokens);
        next++;
    });
    const auto ids = arbitrary_ids(model.config().vocab_size);
    ASSERT_TRUE(session->feed(std::span(ids).first(kPrompt)));
    EXPECT_EQ(blocks, (std::vector<int64_t>{64, 64, 2}));
    EXPECT_EQ(next, 3 * layers);
    session->set_on_layer(nullptr);
    ASSERT_TRUE(session->feed(std::span(ids).subspan(kPrompt, 1)));
    EXPECT_EQ(next, 3 * layers);
}

TEST_P(Streaming, SlotsMayComeAndGo) {
    const Model model = open(with_slots(all_slots()));
    auto session = Session::create(model, two_threads());
    ASSERT_TRUE(session);
    const auto ids = arbitrary_ids(model.config().vocab_size);
    std::vector<float> out;
    const auto keep = [&] { out.insert(out.end(), session->logits().begin(), session->logits().end()); };
    ASSERT_TRUE(session->feed(std::span(ids).first(kPrompt)));
    keep();
    for (size_t i = kPrompt; i < ids.size(); i++) {
        model.experts().limit_slots(i % 2 == 0 ? 0 : static_cast<int64_t>(i) / 2);
        ASSERT_TRUE(session->feed(std::span(ids).subspan(i, 1)));
        keep();
    }
    EXPECT_TRUE(same_bits(out, mapped_));
}

TEST_P(Streaming, DamagedRecordIsNotComputedWith) {
    const Model model = open(with_slots(least_slots()));
    const Model unchecked = [&] {
        Arrangement arrangement = with_slots(least_slots());
        arrangement.experts.verify = false;
        return open(arrangement);
    }();
    ASSERT_NO_FATAL_FAILURE(damage_first_bank());
    const auto out = run(model);
    ASSERT_FALSE(out);
    EXPECT_EQ(out.error().kind, ErrorKind::corrupt);
    const auto& bank = model.container().manifest().banks[0];
    EXPECT_NE(out.error().text().find("layer " + std::to_string(bank.layer) + " expert "), std::string::npos)
        << out.error().text();
    EXPECT_NE(out.error().text().find(bank.file), std::string::npos) << out.error().text();
    // Who does not want to be told is not: the damage is real.
    EXPECT_FALSE(same_bits(bits_of(unchecked), mapped_));
}

TEST_P(Streaming, ShrunkenBankIsAnError) {
    const Model model = open(with_slots(least_slots()));
    const auto& bank = model.container().manifest().banks.back();
    std::filesystem::resize_file(converted_.directory() + "/" + bank.file, container::kAlignment);
    const auto out = run(model);
    ASSERT_FALSE(out);
    EXPECT_EQ(out.error().kind, ErrorKind::corrupt) << out.error().text();
    EXPECT_NE(out.error().text().find(bank.file), std::string::npos) << out.error().text();
}

TEST_P(Streaming, DamagedTrunkIsNotComputedWith) {
    Arrangement arrangement;
    arrangement.trunk.mapped_layers = 0;
    const Model model = open(arrangement);
    const auto& tensors = model.container().manifest().tensors;
    const auto found = std::find_if(tensors.begin(), tensors.end(), [](const container::TensorEntry& tensor) {
        return tensor.name == "layers.1.self_attn.o_proj";
    });
    ASSERT_NE(found, tensors.end());
    std::fstream file(converted_.directory() + "/trunk.bin", std::ios::binary | std::ios::in | std::ios::out);
    const char byte = 77;
    file.seekp(static_cast<std::streamoff>(found->offset + 70)).write(&byte, 1);
    file.close();
    const auto out = run(model);
    ASSERT_FALSE(out);
    EXPECT_NE(out.error().text().find("tensor layers.1.self_attn.o_proj"), std::string::npos)
        << out.error().text();
}

TEST_P(Streaming, TooFewSlotsAreRefused) {
    auto model = Model::open(converted_.directory());
    ASSERT_TRUE(model);
    EXPECT_FALSE(model->arrange(with_slots(least_slots() - 1)));
    EXPECT_FALSE(model->arrange(with_slots(1)));
    EXPECT_TRUE(model->arrange(with_slots(least_slots())));
}

/// Two conversations over one cache that holds little more than one of them needs.
TEST_P(Streaming, SessionsShareACache) {
    const Model model = open(with_slots(least_slots() + 1));
    std::vector<float> first, second;
    std::thread other([&] { first = bits_of(model); });
    second = bits_of(model);
    other.join();
    EXPECT_TRUE(same_bits(first, mapped_));
    EXPECT_TRUE(same_bits(second, mapped_));
}

std::string name_of(const ::testing::TestParamInfo<std::string>& test) {
    std::string name = test.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}
INSTANTIATE_TEST_SUITE_P(, Streaming, ::testing::Values("tiny-k3", "odd-k3", "tiny-kimi-linear"), name_of);

}  // namespace
}  // namespace waste::test

// Session files by the thousands, each changed at random, half of them with checksums that hold again: never a
// crash, and where the checksums do not hold never an acceptance.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "container/file.h"
#include "container/section_format.h"
#include "engine/session.h"
#include "tests/support/random_model.h"
#include "tests/support/reseal.h"
#include "tests/support/temp_dir.h"

namespace waste::test {
namespace {

using container::SectionHeader;

constexpr int kMutations = 10'000;

/// Where a change bites: header, table, description, anywhere.
size_t place_to_change(const std::string& bytes, std::mt19937_64& random) {
    SectionHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    switch (random() % 4) {
        case 0:
            return random() % sizeof(header);
        case 1:
            return header.table_offset + random() % (bytes.size() - header.table_offset);
        case 2:
            return container::kSectionHeaderBytes + random() % 400;
        default:
            return random() % bytes.size();
    }
}

TEST(DamagedSessions, AreNeverTakenForWholeOnes) {
    TempDir directory;
    const std::string model_directory = directory.file("model.waste"), path = directory.file("a.session");
    const RandomModelRecipe recipe{engine::TrunkRecipe::q4, kernels::Format::mxfp4};
    ASSERT_TRUE(
        write_random_model(*container::read_text_file(WASTE_TEST_DATA "/tiny-k3/config.json", 1 << 20),
                           recipe, 1, model_directory));
    const auto model = engine::Model::open(model_directory);
    ASSERT_TRUE(model);
    engine::SessionOptions options;
    options.context_length = 200;
    options.threads = 1;
    options.checkpoints = 2;
    auto session = engine::Session::create(*model, options);
    ASSERT_TRUE(session);
    for (int32_t turn = 0; turn < 3; turn++) {
        session->begin_turn(engine::TurnRole::user);
        const std::vector<int32_t> ids(20, 5 + turn);
        ASSERT_TRUE(session->feed(ids));
    }
    ASSERT_TRUE(session->save(path));
    const std::string good = *container::read_text_file(path, 1 << 30);

    std::mt19937_64 random(1);
    int accepted = 0;
    for (int i = 0; i < kMutations; i++) {
        std::string bad = good;
        for (uint64_t changes = 1 + random() % 3; changes > 0; changes--) {
            const size_t at = place_to_change(good, random);
            const auto was = static_cast<uint64_t>(bad[at]);
            bad[at] = static_cast<char>(random() % 3 == 0 ? random() : was ^ uint64_t{1} << random() % 8);
        }
        if (random() % 16 == 0) bad.resize(container::kSectionHeaderBytes + random() % bad.size());
        const bool sealed = i % 2 == 0;
        if (sealed) reseal(bad);
        if (bad == good) continue;
        {
            std::filesystem::remove(path);  // writing over it would wait for the drive
            std::ofstream file(path, std::ios::binary);
            file << bad;
        }
        const auto saved = engine::SavedSession::open(path);
        if (saved && session->load(*saved)) {
            accepted++;
            // An unsealed change may lie in a checkpoint, which is read when it is needed, and then is refused.
            ASSERT_TRUE(sealed || !saved->verify()) << "mutation " << i;
            static_cast<void>(session->rewind(session->position() / 2));
        }
    }
    EXPECT_GT(accepted, kMutations / 100) << "the mutations reach behind the checksums";
    EXPECT_LT(accepted, kMutations);
}

}  // namespace
}  // namespace waste::test

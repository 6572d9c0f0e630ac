// A container on disk: opened, read, damaged, verified.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <thread>

#include "container/reader.h"
#include "kernels/format.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_container.h"

namespace waste::container {
namespace {

using test::arbitrary_values;
using test::TempDir;
using test::tiny_container;
using test::TinyContainer;

void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

std::string open_error(const std::string& directory) {
    const auto container = Container::open(directory);
    return container ? "opened" : container.error().text();
}

void flip_bit(const std::string& path, uint64_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 1));
    ASSERT_TRUE(file.good()) << path << " at " << offset;
}

class OnDisk : public ::testing::Test {
  protected:
    void SetUp() override { write(); }
    void write() {
        const auto written = tiny_.write(path());
        ASSERT_TRUE(written) << written.error().text();
    }
    const std::string& path() const { return dir_.path(); }

    TempDir dir_;
    TinyContainer tiny_ = tiny_container();
};

std::vector<Damage> verified(const std::string& path) {
    const auto container = Container::open(path);
    EXPECT_TRUE(container) << container.error().text();
    if (!container) return {};
    const auto damage = container->verify({});
    EXPECT_TRUE(damage) << damage.error().text();
    return damage.value_or(std::vector<Damage>());
}

TEST_F(OnDisk, TensorsComeBack) {
    const auto container = Container::open(path());
    ASSERT_TRUE(container) << container.error().text();
    EXPECT_TRUE(container->tensor("lm_head"));
    EXPECT_FALSE(container->tensor("lm_hea"));
    const auto missing = container->tensor("nope");
    ASSERT_FALSE(missing);
    expect_contains(missing.error().text(), "no tensor nope");

    const auto norm = container->tensor("layers.0.norm");
    ASSERT_TRUE(norm);
    const auto values = arbitrary_values(40, 1);
    EXPECT_TRUE(std::equal(values.begin(), values.end(), norm->floats().begin(), norm->floats().end()));

    const auto absorb = container->tensor("layers.0.self_attn.k_absorb");
    ASSERT_TRUE(absorb);
    const auto second = absorb->panels(1);
    EXPECT_EQ(second.rows, 17);
    EXPECT_EQ(second.cols, 40);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(second.data) % 64, 0u);
    const auto batch = arbitrary_values(2 * 17 * 40, 3);
    const auto expected =
        test::encode_panels(kernels::Format::q8, 17, 40, std::span(batch).subspan(size_t{17 * 40}));
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), second.data));
}

TEST_F(OnDisk, RowsAreReadAsFloats) {
    const auto container = Container::open(path());
    ASSERT_TRUE(container);
    const auto embed = *container->tensor("embed");
    const auto values = arbitrary_values(8 * 40, 0);
    std::vector<float> row(40);
    for (int64_t r = 0; r < 8; ++r) {
        ASSERT_TRUE(container->read_row(embed, r, row));
        for (size_t i = 0; i < 40; ++i) {
            const auto bits = std::bit_cast<uint32_t>(values[static_cast<size_t>(r) * 40 + i]) & 0xffff0000u;
            EXPECT_EQ(row[i], std::bit_cast<float>(bits)) << r << ' ' << i;
        }
    }
    const auto norm = *container->tensor("layers.0.norm");
    ASSERT_TRUE(container->read_row(norm, 0, row));
    EXPECT_EQ(row, arbitrary_values(40, 1));
    EXPECT_FALSE(container->read_row(embed, 8, row));
    EXPECT_FALSE(container->read_row(embed, -1, row));
    EXPECT_FALSE(container->read_row(embed, 0, std::span(row).first(39)));
    EXPECT_FALSE(container->read_row(*container->tensor("lm_head"), 0, row));
}

TEST_F(OnDisk, ExpertsLieInTheirRecords) {
    const auto container = Container::open(path());
    ASSERT_TRUE(container);
    const std::vector<int32_t> wanted = {2, 0, -1, 99};
    container->prefetch(0, wanted);
    container->prefetch(7, wanted);
    const auto expert = container->expert(0, 2);
    ASSERT_TRUE(expert) << expert.error().text();
    const auto& entry = tiny_.banks[0].table[2];
    const auto record =
        std::span<const std::byte>(tiny_.banks[0].records).subspan(entry.offset, entry.length);
    const BankShape& shape = tiny_.manifest.banks[0].shape;
    EXPECT_TRUE(std::equal(record.begin(), record.begin() + 100, expert->gate.data));
    EXPECT_EQ(expert->up.data - expert->gate.data, static_cast<ptrdiff_t>(shape.up_offset()));
    EXPECT_EQ(expert->down.data - expert->gate.data, static_cast<ptrdiff_t>(shape.down_offset()));
    EXPECT_EQ(expert->gate.rows, 32);
    EXPECT_EQ(expert->gate.cols, 64);
    EXPECT_EQ(expert->down.rows, 64);
    EXPECT_EQ(expert->down.cols, 32);
    EXPECT_FALSE(container->expert(0, 3));
    EXPECT_FALSE(container->expert(0, -1));
    EXPECT_FALSE(container->expert(2, 0));
}

TEST_F(OnDisk, ADamagedExpertIsNamedEveryTime) {
    flip_bit(dir_.file("experts-1.bin"), tiny_.banks[0].table[1].offset + 77);
    const auto container = Container::open(path());
    ASSERT_TRUE(container) << container.error().text();
    EXPECT_TRUE(container->expert(0, 0));
    for (int i = 0; i < 2; ++i) {
        const auto expert = container->expert(0, 1);
        ASSERT_FALSE(expert);
        EXPECT_EQ(expert.error().kind, ErrorKind::corrupt);
        expect_contains(expert.error().text(), "layer 1 expert 1 does not match its checksum");
    }
}

TEST_F(OnDisk, ExpertsAreCheckedFromManyThreads) {
    const auto container = Container::open(path());
    ASSERT_TRUE(container);
    std::vector<std::thread> threads;
    std::atomic<int> good = 0;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 30; ++i) good += container->expert(0, i % 3).has_value();
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(good, 120);
}

TEST_F(OnDisk, CarriedFiles) {
    const auto container = Container::open(path());
    ASSERT_TRUE(container);
    EXPECT_EQ(*container->carried_file("tiktoken.model"), tiny_.files["tiktoken.model"]);
    const auto missing = container->carried_file("tokenizer.json");
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().kind, ErrorKind::not_found);
    EXPECT_EQ(container->manifest().config, tiny_.manifest.config);
    EXPECT_EQ(container->directory(), path());
}

TEST_F(OnDisk, VerifyOfAnIntactContainerFindsNothing) {
    const auto container = Container::open(path());
    ASSERT_TRUE(container);
    uint64_t last = 0;
    uint64_t all = 0;
    const auto damage = container->verify([&](uint64_t done, uint64_t total) {
        EXPECT_GE(done, last);
        last = done;
        all = total;
        return true;
    });
    ASSERT_TRUE(damage);
    EXPECT_TRUE(damage->empty());
    EXPECT_EQ(last, all);
    const auto stopped = container->verify([](uint64_t, uint64_t) { return false; });
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().kind, ErrorKind::interrupted);
}

TEST_F(OnDisk, VerifyFindsDamageInEveryKindOfByte) {
    const TensorEntry& tensor = tiny_.manifest.tensors[2];
    flip_bit(dir_.file("trunk.bin"), tensor.offset + 5);
    flip_bit(dir_.file("trunk.bin"), tensor.offset + tensor.bytes + 1);
    flip_bit(dir_.file("experts-3.bin"), tiny_.banks[1].table[1].offset + tiny_.banks[1].table[1].length - 1);
    const auto damage = verified(path());
    ASSERT_EQ(damage.size(), 3u);
    EXPECT_EQ(damage[0].what, "tensor layers.0.self_attn.q_proj");
    EXPECT_EQ(damage[1].what, "file trunk.bin");
    expect_contains(damage[1].message, std::to_string(tensor.offset + tensor.bytes + 1));
    EXPECT_EQ(damage[2].what, "layer 3 expert 1");
}

TEST_F(OnDisk, VerifySeesFilesThatChangeUnderneath) {
    const auto container = Container::open(path());
    ASSERT_TRUE(container);
    flip_bit(dir_.file("tiktoken.model"), 0);
    ASSERT_TRUE(remove_file(dir_.file("generation_config.json")));
    flip_bit(dir_.file("experts-1.bin"), tiny_.bank_bytes(0).size() - 100);
    const auto damage = container->verify({});
    ASSERT_TRUE(damage);
    ASSERT_EQ(damage->size(), 3u);
    EXPECT_EQ((*damage)[0].what, "file experts-1.bin");
    EXPECT_EQ((*damage)[1].what, "file generation_config.json");
    EXPECT_EQ((*damage)[2].what, "file tiktoken.model");
}

TEST_F(OnDisk, EveryShortFileIsRefusedWithItsMissingBytes) {
    for (const std::string name : {"trunk.bin", "experts-1.bin", "experts-3.bin", "tiktoken.model"}) {
        const std::string file = dir_.file(name);
        const uint64_t size = *file_size(file);
        for (uint64_t length = 0; length < size; length += 1 + size / 50) {
            ASSERT_EQ(truncate(file.c_str(), static_cast<off_t>(length)), 0);
            const std::string error = open_error(path());
            expect_contains(error, file);
            expect_contains(
                error, std::to_string(size - length) + " of " + std::to_string(size) + " bytes are missing");
        }
        ASSERT_EQ(truncate(file.c_str(), static_cast<off_t>(size + 3)), 0);
        expect_contains(open_error(path()), "3 bytes longer");
        write();
        ASSERT_TRUE(remove_file(file));
        expect_contains(open_error(path()), file + ": cannot");
        ASSERT_TRUE(make_directory(file));
        expect_contains(open_error(path()), "is a directory, not a file");
        ASSERT_EQ(rmdir(file.c_str()), 0);
        write();
    }
    EXPECT_EQ(open_error(path()), "opened");
}

TEST_F(OnDisk, EveryTruncatedManifestIsRefused) {
    const std::string manifest = manifest_text(tiny_.manifest);
    for (size_t length = 0; length + 1 < manifest.size(); length += 7) {
        ASSERT_TRUE(write_file(dir_.file("manifest.json"), manifest.substr(0, length)));
        ASSERT_FALSE(Container::open(path())) << length;
    }
}

TEST_F(OnDisk, DamageThatTheFingerprintCovers) {
    flip_bit(dir_.file("tiktoken.model"), 3);
    expect_contains(open_error(path()), "tiktoken.model: its checksum does not match");
    // Resealed hashes with the old fingerprint: the container is consistent, but not the one it claims to be.
    const std::string old = tiny_.manifest.fingerprint;
    tiny_.files["tiktoken.model"] += "\n";
    tiny_.seal();
    tiny_.manifest.fingerprint = old;
    write();
    expect_contains(open_error(path()), "fingerprint " + old + " does not match");
}

// What no expert names, verify would never read.
TEST_F(OnDisk, ARecordWithoutAnExpertIsRefused) {
    tiny_.banks[0].table[0] = tiny_.banks[0].table[1];
    tiny_.seal();
    write();
    expect_contains(open_error(path()), "experts-1.bin: the record at byte 0 belongs to no expert");
}

TEST_F(OnDisk, DirectoriesThatAreNoContainer) {
    const TempDir other;
    expect_contains(open_error(other.file("none")), "no such directory");
    expect_contains(open_error(other.path()), "has no manifest.json");
    EXPECT_FALSE(is_container(other.path()));
    ASSERT_TRUE(write_file(other.file("model.safetensors"), "x"));
    expect_contains(open_error(other.path()), "is a release, not a container");
    EXPECT_FALSE(is_container(other.path()));
    ASSERT_TRUE(write_file(other.file("trunk.bin.partial"), "x"));
    expect_contains(open_error(other.path()), "conversion has not finished: run `waste convert` again");
    EXPECT_TRUE(is_container(other.path()));
    ASSERT_TRUE(remove_file(other.file("trunk.bin.partial")));
    ASSERT_TRUE(write_file(other.file("convert.journal"), "x"));
    expect_contains(open_error(other.path()), "conversion has not finished");
    expect_contains(open_error(other.file("model.safetensors")), "name the container's directory");
    EXPECT_TRUE(is_container(path()));
}

TEST(Container, MovesAndOpensWithoutBanksOrTensors) {
    const TempDir dir;
    TinyContainer bare;
    bare.seal();
    ASSERT_TRUE(bare.write(dir.path()));
    auto container = Container::open(dir.path());
    ASSERT_TRUE(container) << container.error().text();
    const Container moved = std::move(*container);
    EXPECT_TRUE(moved.verify({})->empty());
}

}  // namespace
}  // namespace waste::container

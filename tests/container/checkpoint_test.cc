// A release's directory.
#include <gtest/gtest.h>

#include <cstring>

#include "container/safetensors.h"
#include "tests/support/temp_dir.h"

namespace waste::container {
namespace {

using test::TempDir;

NamedTensor named(const std::string& name, const std::vector<float>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    NamedTensor tensor{name, Dtype::f32, {static_cast<int64_t>(values.size())}, {}};
    tensor.data.assign(bytes.begin(), bytes.end());
    return tensor;
}

std::vector<float> values_of(const SourceTensor& tensor) {
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
    return values;
}

void write_shard(const TempDir& dir, const std::string& file, const std::vector<NamedTensor>& tensors) {
    const auto written = write_safetensors(dir.file(file), tensors);
    ASSERT_TRUE(written) << written.error().text();
}

void write_index(const TempDir& dir, const std::string& map) {
    ASSERT_TRUE(write_file(dir.file("model.safetensors.index.json"), "{\"weight_map\":{" + map + "}}"));
}

std::string open_error(const std::string& directory) {
    const auto checkpoint = Checkpoint::open(directory);
    return checkpoint ? "opened" : checkpoint.error().message;
}

void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

class Sharded : public ::testing::Test {
  protected:
    void SetUp() override {
        write_shard(dir_, "1.safetensors", {named("c", {1, 2}), named("a", {3})});
        write_shard(dir_, "2.safetensors", {named("b", {4, 5, 6})});
        write_index(dir_, R"("a":"1.safetensors","b":"2.safetensors","c":"1.safetensors")");
    }
    TempDir dir_;
};

TEST_F(Sharded, FindsTensorsAcrossShards) {
    const auto checkpoint = Checkpoint::open(dir_.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().text();
    ASSERT_EQ(checkpoint->size(), 3u);
    EXPECT_EQ(checkpoint->name(0), "a");
    EXPECT_EQ(checkpoint->name(2), "c");
    EXPECT_EQ(checkpoint->file_of(1), dir_.file("2.safetensors"));
    const auto b = checkpoint->get("b");
    ASSERT_TRUE(b);
    EXPECT_EQ(b->shape_text(), "[3]");
    EXPECT_EQ(values_of(*b), (std::vector<float>{4, 5, 6}));
    EXPECT_EQ(values_of(checkpoint->tensor(2)), (std::vector<float>{1, 2}));
    checkpoint->release_pages(2);
    EXPECT_EQ(values_of(checkpoint->tensor(2)), (std::vector<float>{1, 2}));
    EXPECT_EQ(checkpoint->data_bytes(), 24u);
    EXPECT_TRUE(checkpoint->contains("a"));
    EXPECT_FALSE(checkpoint->contains("ab"));
    const auto missing = checkpoint->get("zz");
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().text(), dir_.path() + ": has no tensor zz");
}

TEST_F(Sharded, IdentityFollowsPlaceAndType) {
    const uint64_t before = Checkpoint::open(dir_.path())->identity();
    EXPECT_EQ(Checkpoint::open(dir_.path())->identity(), before);
    write_shard(dir_, "2.safetensors", {named("b", {7, 8, 9})});
    EXPECT_EQ(Checkpoint::open(dir_.path())->identity(), before) << "values alone are not part of it";
    auto reshaped = named("b", {7, 8, 9});
    reshaped.shape = {3, 1};
    write_shard(dir_, "2.safetensors", {reshaped});
    EXPECT_NE(Checkpoint::open(dir_.path())->identity(), before);
}

TEST_F(Sharded, TensorsOutsideTheIndexAreVisible) {
    write_index(dir_, R"("a":"1.safetensors","b":"2.safetensors")");
    const auto checkpoint = Checkpoint::open(dir_.path());
    ASSERT_TRUE(checkpoint);
    EXPECT_EQ(checkpoint->size(), 3u);
    EXPECT_TRUE(checkpoint->contains("c"));
}

TEST_F(Sharded, MissingShardsAreCountedAndNamed) {
    write_index(dir_, R"("a":"1.safetensors","b":"2.safetensors","x":"3.safetensors","y":"4.safetensors")");
    const std::string error = open_error(dir_.path());
    expect_contains(error, "2 of 4 shards missing, the first is 3.safetensors");
}

TEST_F(Sharded, IndexAndShardsMustAgree) {
    write_index(dir_, R"("a":"2.safetensors","b":"2.safetensors","c":"1.safetensors")");
    expect_contains(open_error(dir_.path()), "tensor a into 2.safetensors, which does not hold it");
    write_index(dir_, R"("a":"1.safetensors","b":"2.safetensors","bb":"1.safetensors")");
    expect_contains(open_error(dir_.path()), "tensor bb into 1.safetensors");
    write_index(dir_, R"("a":"1.safetensors","b":"2.safetensors","z":"1.safetensors")");
    expect_contains(open_error(dir_.path()), "tensor z into 1.safetensors");
}

TEST_F(Sharded, OneNameInTwoShardsIsRefused) {
    write_shard(dir_, "2.safetensors", {named("b", {4}), named("a", {9})});
    expect_contains(open_error(dir_.path()), "tensor a is in two shards");
}

TEST_F(Sharded, AShortShardIsNamedWithItsMissingBytes) {
    const uint64_t size = *file_size(dir_.file("2.safetensors"));
    std::string content = *read_text_file(dir_.file("2.safetensors"), 1 << 20);
    for (const size_t cut : {size_t{1}, size_t{12}}) {
        ASSERT_TRUE(write_file(dir_.file("2.safetensors"), content.substr(0, size - cut)));
        const auto checkpoint = Checkpoint::open(dir_.path());
        ASSERT_FALSE(checkpoint);
        EXPECT_EQ(checkpoint.error().place, dir_.file("2.safetensors"));
        expect_contains(checkpoint.error().message, std::to_string(cut) + " bytes are missing");
    }
    ASSERT_TRUE(write_file(dir_.file("2.safetensors"), ""));
    expect_contains(open_error(dir_.path()), "is empty");
}

TEST(Checkpoint, OneFileWithoutIndex) {
    const TempDir dir;
    write_shard(dir, "model.safetensors", {named("x", {1}), named("y", {})});
    const auto checkpoint = Checkpoint::open(dir.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().text();
    EXPECT_EQ(checkpoint->size(), 2u);
    EXPECT_EQ(checkpoint->get("y")->elements(), 0);
}

TEST(Checkpoint, DirectoriesThatAreNoRelease) {
    const TempDir dir;
    expect_contains(open_error(dir.file("none")), "no such directory");
    expect_contains(open_error(dir.path()), "a release has config.json and either");
    ASSERT_TRUE(write_file(dir.file("file"), "x"));
    expect_contains(open_error(dir.file("file")), "name the release's directory");
    ASSERT_TRUE(write_file(dir.file("model.gguf"), "x"));
    const auto foreign = Checkpoint::open(dir.path());
    ASSERT_FALSE(foreign);
    EXPECT_EQ(foreign.error().kind, ErrorKind::unsupported);
    expect_contains(foreign.error().message, "holds model.gguf");
    write_shard(dir, "model-00001-of-00002.safetensors", {named("x", {1})});
    expect_contains(open_error(dir.path()), "download the index too");
    ASSERT_TRUE(write_file(dir.file("manifest.json"), "{}"));
    expect_contains(open_error(dir.path()), "converted container");
}

TEST(Checkpoint, FixturesOfTheRepositoryOpen) {
    const struct {
        const char* name;
        const char* tensor;
        const char* shape;
    } fixtures[] = {{"tiny-k3", "language_model.model.layers.0.self_attn.q_conv1d.weight", "[256, 1, 4]"},
                    {"odd-k3", "language_model.model.norm.weight", nullptr},
                    {"tiny-kimi-linear", "model.norm.weight", nullptr},
                    {"demo-model", "language_model.model.norm.weight", nullptr}};
    for (const auto& fixture : fixtures) {
        const auto checkpoint = Checkpoint::open(std::string(WASTE_TEST_DATA "/") + fixture.name);
        ASSERT_TRUE(checkpoint) << checkpoint.error().text();
        const auto tensor = checkpoint->get(fixture.tensor);
        ASSERT_TRUE(tensor) << tensor.error().text();
        if (fixture.shape != nullptr) {
            EXPECT_EQ(tensor->shape_text(), fixture.shape);
        }
    }
}

TEST(WriteSafetensors, RefusesDataThatDoesNotFitItsShape) {
    const TempDir dir;
    auto tensor = named("x", {1, 2});
    tensor.shape = {3};
    EXPECT_FALSE(write_safetensors(dir.file("a"), std::vector{tensor}));
    tensor.shape = {-2};
    EXPECT_FALSE(write_safetensors(dir.file("a"), std::vector{tensor}));
    EXPECT_FALSE(is_file(dir.file("a")));
}

TEST(WriteSafetensors, NamesAreEscaped) {
    const TempDir dir;
    write_shard(dir, "model.safetensors", {named("quote\" back\\ line\n", {1})});
    const auto checkpoint = Checkpoint::open(dir.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().text();
    EXPECT_TRUE(checkpoint->contains("quote\" back\\ line\n"));
}

}  // namespace
}  // namespace waste::container

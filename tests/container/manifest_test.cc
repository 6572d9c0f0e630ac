// manifest.json and the bank table, parsed from memory.
#include "container/manifest.h"

#include <gtest/gtest.h>

#include <functional>

#include "container/checksum.h"
#include "kernels/format.h"
#include "tests/support/tiny_container.h"

namespace waste::container {
namespace {

using kernels::Format;
using test::tiny_container;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(TensorBytes, FollowLayoutAndFormat) {
    const auto bytes = [](Format format, Layout layout, std::vector<int64_t> shape) {
        return tensor_bytes(format, layout, shape).value_or(0);
    };
    EXPECT_EQ(bytes(Format::f32, Layout::rows, {7}), 28u);
    EXPECT_EQ(bytes(Format::bf16, Layout::rows, {8, 40}), 640u);
    EXPECT_EQ(bytes(Format::f32, Layout::panels, {1, 1}), 16u * 128 * 4);
    EXPECT_EQ(bytes(Format::q4, Layout::panels, {17, 129}), 4u * (4 * 16 * 2 + 16 * 128 / 2));
    EXPECT_EQ(bytes(Format::q8, Layout::panels, {3, 16, 128}), 3u * (2 * 16 * 2 + 16 * 128));
    EXPECT_EQ(bytes(Format::mxfp4, Layout::panels, {16, 128}), 4u * 16 + 16 * 128 / 2);
    // Refused: what the layout cannot hold, wrong ranks, empty and overflowing shapes.
    EXPECT_EQ(bytes(Format::q8, Layout::rows, {16, 128}), 0u);
    EXPECT_EQ(bytes(Format::f32, Layout::panels, {16}), 0u);
    EXPECT_EQ(bytes(Format::f32, Layout::rows, {}), 0u);
    EXPECT_EQ(bytes(Format::f32, Layout::rows, {1, 1, 1, 1}), 0u);
    EXPECT_EQ(bytes(Format::f32, Layout::rows, {0}), 0u);
    EXPECT_EQ(bytes(Format::f32, Layout::rows, {-1}), 0u);
    EXPECT_EQ(bytes(Format::f32, Layout::rows, {1 << 30, 1 << 30, 1 << 30}), 0u);
    EXPECT_EQ(bytes(Format::f32, Layout::rows, {INT64_MAX}), 0u);
}

TEST(BankShape, RecordIsThreeMatricesPadded) {
    const BankShape k3{896, 3584, 3072, Format::mxfp4};
    EXPECT_EQ(k3.up_offset(), 3072u * 3584 / 2 + 3072u * 3584 / 32);
    EXPECT_EQ(k3.down_offset(), 2 * k3.up_offset());
    EXPECT_EQ(k3.record_bytes() % kAlignment, 0u);
    EXPECT_EQ(k3.record_bytes(), 17547264u) << "an expert of the release, to the byte";
    EXPECT_EQ(k3.file_bytes(), 896 * k3.record_bytes() + 896 * 32 + 80);
}

TEST(Manifest, RoundTrip) {
    const Manifest manifest = tiny_container().manifest;
    const std::string text = manifest_text(manifest);
    const auto parsed = parse_manifest(text, "m");
    ASSERT_TRUE(parsed) << parsed.error().text();
    EXPECT_EQ(manifest_text(*parsed), text);
    EXPECT_EQ(parsed->config, manifest.config);
    EXPECT_EQ(parsed->fingerprint, manifest.fingerprint);
    EXPECT_EQ(parsed->tensors.size(), 6u);
    EXPECT_EQ(parsed->tensors[3].shape, (std::vector<int64_t>{2, 17, 40}));
    EXPECT_EQ(parsed->banks[1].layer, 3);
    EXPECT_EQ(parsed->files[0].name, "generation_config.json");
    Manifest empty{};
    empty.fingerprint = std::string(32, '0');
    EXPECT_TRUE(parse_manifest(manifest_text(empty), "m"));
}

TEST(Manifest, EveryTruncatedLengthIsRefused) {
    std::string text = manifest_text(tiny_container().manifest);
    text.pop_back();  // the last newline may go
    for (size_t length = 0; length < text.size(); ++length) {
        const std::string part(text, 0, length);
        ASSERT_FALSE(parse_manifest(part, "m")) << length;
    }
    EXPECT_TRUE(parse_manifest(text, "m"));
}

TEST(Manifest, EveryFlippedBitIsSafe) {
    const std::string text = manifest_text(tiny_container().manifest);
    for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
        std::string flipped = text;
        flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
        const auto parsed = parse_manifest(flipped, "m");
        if (!parsed) {
            ASSERT_EQ(parsed.error().message.find('\n'), std::string::npos);
            continue;
        }
        for (const TensorEntry& tensor : parsed->tensors) {
            ASSERT_LE(tensor.offset + tensor.bytes, parsed->trunk_bytes) << bit;
        }
    }
}

TEST(Manifest, EveryMissingFieldIsNamed) {
    const std::string text = manifest_text(tiny_container().manifest);
    for (const std::string field : {"format",
                                    "version",
                                    "fingerprint",
                                    "recipe",
                                    "experts",
                                    "config",
                                    "trunk",
                                    "file",
                                    "bytes",
                                    "tensors",
                                    "name",
                                    "layout",
                                    "shape",
                                    "offset",
                                    "xxh3",
                                    "banks",
                                    "layer",
                                    "input_size",
                                    "intermediate_size",
                                    "record_bytes",
                                    "table_xxh3",
                                    "files"}) {
        const auto parsed = parse_manifest(replaced(text, '"' + field + "\":", "\"no_" + field + "\":"), "m");
        ASSERT_FALSE(parsed) << field;
        EXPECT_NE(parsed.error().message.find(field), std::string::npos)
            << field << ": " << parsed.error().text();
    }
}

struct Change {
    const char* name;
    std::function<void(Manifest&)> apply;
    const char* message;
};

void PrintTo(const Change& change, std::ostream* out) {
    *out << change.name;
}

std::vector<Change> changes() {
    return {
        {"OffsetUnaligned", [](Manifest& m) { m.tensors[1].offset += 64; }, "not a multiple of 4096"},
        {"OffsetBackwards", [](Manifest& m) { m.tensors[1].offset = 0; },
         "before the end of the tensor before"},
        {"OffsetPastTrunk", [](Manifest& m) { m.tensors[5].offset = uint64_t{1} << 40; },
         "do not fit the trunk"},
        {"OffsetOverflow", [](Manifest& m) { m.tensors[5].offset = UINT64_MAX - 4095; },
         "do not fit the trunk"},
        {"TrunkShort", [](Manifest& m) { --m.trunk_bytes; }, "do not fit the trunk"},
        {"BytesWrong", [](Manifest& m) { ++m.tensors[2].bytes; }, "its shape needs"},
        {"ShapeZero", [](Manifest& m) { m.tensors[2].shape[0] = 0; }, "empty or too large"},
        {"ShapeHuge", [](Manifest& m) { m.tensors[2].shape[0] = INT64_MAX; }, "empty or too large"},
        {"ShapeRank", [](Manifest& m) { m.tensors[0].shape.assign(5, 1); }, "1 to 3 dimensions"},
        {"RowsOfCodes", [](Manifest& m) { m.tensors[2].layout = Layout::rows; }, "cannot hold format q4"},
        {"NameTwice", [](Manifest& m) { m.tensors[1].name = m.tensors[0].name; }, "name occurs twice"},
        {"NameEmpty", [](Manifest& m) { m.tensors[1].name.clear(); }, "name is empty"},
        {"Fingerprint", [](Manifest& m) { m.fingerprint.back() = 'G'; }, "fingerprint must be"},
        {"BankOrder", [](Manifest& m) { std::swap(m.banks[0], m.banks[1]); }, "layer 1 comes after layer 3"},
        {"BankTwice", [](Manifest& m) { m.banks[1].layer = m.banks[0].layer; }, "comes after"},
        {"BankLayer", [](Manifest& m) { m.banks[1].layer = int64_t{1} << 40; }, "layer is"},
        {"BankFileTwice", [](Manifest& m) { m.banks[1].file = m.banks[0].file; }, "occurs twice"},
        {"BankIsTrunk", [](Manifest& m) { m.banks[1].file = "trunk.bin"; }, "occurs twice"},
        {"BankEscapes", [](Manifest& m) { m.banks[1].file = "../b"; }, "not a plain file name"},
        {"BankNoExperts", [](Manifest& m) { m.banks[1].shape.experts = 0; }, "out of range"},
        {"BankManyExperts", [](Manifest& m) { m.banks[1].shape.experts = int64_t{1} << 40; }, "out of range"},
        {"BankBytes", [](Manifest& m) { m.banks[1].bytes += 1; }, "bytes is"},
        {"BankNoRecord", [](Manifest& m) { m.banks[1].bytes = bank_tail_bytes(2); }, "bytes is"},
        {"FileEscapes", [](Manifest& m) { m.files[0].name = "/etc/x"; }, "not a plain file name"},
        {"FileHuge", [](Manifest& m) { m.files[0].bytes = UINT64_MAX; }, "bytes is"},
        {"FileOrder", [](Manifest& m) { std::swap(m.files[0], m.files[1]); }, "out of order"},
        {"FileTwice", [](Manifest& m) { m.files[1] = m.files[0]; }, "out of order or occurs twice"},
        {"FileIsBank", [](Manifest& m) { m.files[0].name = m.banks[0].file; }, "occurs twice"},
    };
}

class BadManifest : public ::testing::TestWithParam<Change> {};

TEST_P(BadManifest, IsRefusedByName) {
    Manifest manifest = tiny_container().manifest;
    GetParam().apply(manifest);
    const auto parsed = parse_manifest(manifest_text(manifest), "m");
    ASSERT_FALSE(parsed);
    EXPECT_NE(parsed.error().text().find(GetParam().message), std::string::npos) << parsed.error().text();
}

INSTANTIATE_TEST_SUITE_P(All, BadManifest, ::testing::ValuesIn(changes()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Manifest, OtherTexts) {
    const std::string text = manifest_text(tiny_container().manifest);
    const auto error = [](const std::string& changed) {
        const auto parsed = parse_manifest(changed, "m");
        return parsed ? std::string("parsed") : parsed.error().text();
    };
    EXPECT_NE(
        error(replaced(text, "\"version\": 1", "\"version\": 2")).find("made by a newer waste: version 2"),
        std::string::npos);
    EXPECT_NE(error(replaced(text, "\"version\": 1", "\"version\": 0")).find("version 0"), std::string::npos);
    EXPECT_NE(error(replaced(text, "\"version\": 1", "\"version\": -1")).find("version must be"),
              std::string::npos);
    EXPECT_NE(error(replaced(text, "\"waste\"", "\"other\"")).find("not a container's manifest"),
              std::string::npos);
    EXPECT_NE(error(replaced(text, "\"q8\"", "\"q9\"")).find("format \"q9\" is not known"),
              std::string::npos);
    EXPECT_NE(error(replaced(text, "\"rows\"", "\"cols\"")).find("layout \"cols\" is not known"),
              std::string::npos);
    EXPECT_NE(error(replaced(text, "[24, 40]", "[24.5, 40]")).find("empty or too large"), std::string::npos);
    EXPECT_NE(error(replaced(text, "[24, 40]", "{}")).find("shape must be an array"), std::string::npos);
    EXPECT_EQ(error("[]"), "m: must be an object");
    EXPECT_EQ(error("\xff"), "m: is not valid JSON in UTF-8");
    EXPECT_NE(error(std::string(100000, '[')).find("JSON"), std::string::npos);
    EXPECT_NE(error(std::string(kMaxManifestBytes + 1, ' ')).find("more than a manifest has"),
              std::string::npos);
}

TEST(Fingerprint, FollowsContentAndNothingElse) {
    const auto tiny = tiny_container();
    const auto print = [&](const std::function<void(Manifest&)>& change) {
        Manifest manifest = tiny.manifest;
        change(manifest);
        return compute_fingerprint(manifest, std::vector{tiny.banks[0].table, tiny.banks[1].table});
    };
    const std::string same = tiny.manifest.fingerprint;
    EXPECT_EQ(print([](Manifest&) {}), same);
    EXPECT_EQ(print([](Manifest& m) { m.banks[0].file = "elsewhere.bin"; }), same);
    EXPECT_EQ(print([](Manifest& m) { m.tensors[1].offset += kAlignment; }), same);
    EXPECT_EQ(print([](Manifest& m) { std::swap(m.tensors[0], m.tensors[1]); }), same);
    EXPECT_NE(print([](Manifest& m) { m.config += ' '; }), same);
    EXPECT_NE(print([](Manifest& m) { ++m.tensors[0].hash; }), same);
    EXPECT_NE(print([](Manifest& m) { m.tensors[0].name += 'x'; }), same);
    EXPECT_NE(print([](Manifest& m) { std::swap(m.tensors[0].shape[0], m.tensors[0].shape[1]); }), same);
    EXPECT_NE(print([](Manifest& m) { m.tensors[0].format = Format::f32; }), same);
    EXPECT_NE(print([](Manifest& m) { ++m.files[0].hash; }), same);
    EXPECT_NE(print([](Manifest& m) { ++m.banks[0].layer; }), same);
    auto tables = std::vector{tiny.banks[0].table, tiny.banks[1].table};
    ++tables[1][0].hash;
    EXPECT_NE(compute_fingerprint(tiny.manifest, tables), same);
}

}  // namespace
}  // namespace waste::container

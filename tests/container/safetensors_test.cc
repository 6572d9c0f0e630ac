// One file's header: what is accepted, and each way of being wrong.
#include <gtest/gtest.h>

#include <algorithm>

#include "container/safetensors_header.h"

namespace waste::container {
namespace {

std::vector<std::byte> file_of(std::string_view header, size_t data_bytes) {
    std::vector<std::byte> file(kHeaderLengthBytes + header.size() + data_bytes);
    for (size_t i = 0; i < kHeaderLengthBytes; ++i) {
        file[i] = static_cast<std::byte>(uint64_t{header.size()} >> (8 * i));
    }
    std::ranges::copy(std::as_bytes(std::span(header)), file.begin() + kHeaderLengthBytes);
    return file;
}

constexpr std::string_view kTwo =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[2,10]},)"
    R"("a":{"data_offsets":[0,2],"shape":[],"dtype":"BF16"}}   )";

TEST(SafetensorsHeader, ReadsTensorsInHeaderOrder) {
    const auto file = file_of(kTwo, 10);
    const auto tensors = parse_safetensors_header(file, "f");
    ASSERT_TRUE(tensors) << tensors.error().text();
    ASSERT_EQ(tensors->size(), 2u);
    const uint64_t data = kHeaderLengthBytes + kTwo.size();
    EXPECT_EQ((*tensors)[0].name, "b");
    EXPECT_EQ((*tensors)[0].dtype, Dtype::f32);
    EXPECT_EQ((*tensors)[0].shape, (std::vector<int64_t>{2, 1}));
    EXPECT_EQ((*tensors)[0].begin, data + 2);
    EXPECT_EQ((*tensors)[0].end, data + 10);
    EXPECT_EQ((*tensors)[1].name, "a");
    EXPECT_TRUE((*tensors)[1].shape.empty());
}

TEST(SafetensorsHeader, TrailingBytesAndEmptyTensorsAreFine) {
    EXPECT_TRUE(parse_safetensors_header(file_of(kTwo, 11), "f"));
    const auto empty = parse_safetensors_header(
        file_of(R"({"a":{"dtype":"U8","shape":[0,3],"data_offsets":[0,0]}})", 0), "f");
    ASSERT_TRUE(empty) << empty.error().text();
    EXPECT_TRUE(parse_safetensors_header(file_of("{}", 0), "f"));
}

TEST(SafetensorsHeader, EveryTruncatedLengthIsRefused) {
    const auto whole = file_of(kTwo, 10);
    for (size_t length = 0; length < whole.size(); ++length) {
        // A buffer of exactly this length, so that a sanitizer sees any read past it.
        const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
        const auto parsed = parse_safetensors_header(part, "f");
        ASSERT_FALSE(parsed) << length;
        EXPECT_EQ(parsed.error().kind, ErrorKind::corrupt) << length;
    }
}

TEST(SafetensorsHeader, TruncationSaysHowManyBytesAreMissing) {
    const auto parsed = parse_safetensors_header(file_of(kTwo, 3), "f");
    ASSERT_FALSE(parsed);
    const uint64_t needed = kHeaderLengthBytes + kTwo.size() + 10;
    EXPECT_EQ(parsed.error().text(), "f: truncated: tensor data needs " + std::to_string(needed) +
                                         " bytes, the file has " + std::to_string(needed - 7) +
                                         "; 7 bytes are missing: download it again");
}

TEST(SafetensorsHeader, EveryFlippedBitIsSafe) {
    const auto whole = file_of(kTwo, 10);
    size_t refused = 0;
    for (size_t bit = 0; bit < 8 * (kHeaderLengthBytes + kTwo.size()); ++bit) {
        auto flipped = whole;
        flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
        const auto parsed = parse_safetensors_header(flipped, "f");
        if (!parsed) {
            ++refused;
            EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
            continue;
        }
        for (const HeaderTensor& tensor : *parsed) EXPECT_LE(tensor.end, flipped.size()) << bit;
    }
    EXPECT_GT(refused, 8 * kTwo.size() / 2);
}

struct Bad {
    const char* name;
    std::string header;
    ErrorKind kind;
    const char* message;
};

void PrintTo(const Bad& bad, std::ostream* out) {
    *out << bad.name;
}

std::string one(std::string_view dtype, std::string_view shape, std::string_view offsets) {
    std::string header = R"({"t":{"dtype":)";
    header.append(dtype).append(R"(,"shape":)").append(shape);
    return header.append(R"(,"data_offsets":)").append(offsets) + "}}";
}

std::vector<Bad> bad_headers() {
    const auto corrupt = ErrorKind::corrupt;
    std::vector<Bad> bad = {
        {"NotJson", "{]", corrupt, "not valid JSON"},
        {"TwoDocuments", "{}{}", corrupt, "not valid JSON"},
        {"NotUtf8", "{\"\xff\":{}}", corrupt, "not valid JSON"},
        {"TopArray", "[]", corrupt, "must not be an array"},
        {"TopNumber", "3", corrupt, "must not be a number"},
        {"TensorIsNumber", R"({"t":3})", corrupt, "tensor t must not be a number"},
        {"Deep", R"({"t":{"shape":[[[[1]]]]}})", corrupt, "tensor t: shape must not be an array"},
        {"DeepMetadata", R"({"__metadata__":{"a":{}}})", corrupt, "an entry of __metadata__"},
        {"MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", corrupt, "occurs twice"},
        {"NoFields", R"({"t":{}})", corrupt, "tensor t: needs dtype"},
        {"UnknownField", R"({"t":{"stride":1}})", corrupt, "field \"stride\""},
        {"FieldTwice", R"({"t":{"dtype":"U8","dtype":"U8"}})", corrupt, "occurs twice"},
        {"DtypeNumber", one("3", "[1]", "[0,1]"), corrupt, "tensor t: dtype must not be a number"},
        {"DtypeUnknown", one(R"("F4")", "[1]", "[0,1]"), ErrorKind::unsupported,
         "tensor t: unsupported dtype F4"},
        {"ShapeString", one(R"("U8")", R"("1")", "[0,1]"), corrupt, "shape must not be a string"},
        {"ShapeNegative", one(R"("U8")", "[-1]", "[0,1]"), corrupt, "shape must not be a negative"},
        {"ShapeFloat", one(R"("U8")", "[1.0]", "[0,1]"), corrupt, "not whole"},
        {"ShapeHuge", one(R"("U8")", "[99999999999999999999]", "[0,1]"), corrupt, "too large"},
        {"ShapeAboveSigned", one(R"("U8")", "[9223372036854775808]", "[0,1]"), corrupt, "too large"},
        {"ShapeOverflow", one(R"("F32")", "[4294967296,4294967296]", "[0,0]"), corrupt, "too large"},
        {"RankNine", one(R"("U8")", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), corrupt, "more than 8 dimensions"},
        {"OffsetsOne", one(R"("U8")", "[1]", "[0]"), corrupt, "two numbers"},
        {"OffsetsThree", one(R"("U8")", "[1]", "[0,1,2]"), corrupt, "two numbers"},
        {"OffsetsNegative", one(R"("U8")", "[1]", "[-1,0]"), corrupt, "negative"},
        {"OffsetsReversed", one(R"("U8")", "[1]", "[2,1]"), corrupt, "data_offsets 2 > 1"},
        {"SizeMismatch", one(R"("F32")", "[2]", "[0,7]"), corrupt, "needs 8 bytes, data_offsets span 7"},
        {"EndPastData", one(R"("U8")", "[9]", "[0,9]"), corrupt, "truncated"},
        {"EndOverflows", one(R"("U8")", "[1]", "[18446744073709551614,18446744073709551615]"), corrupt,
         "tensor t: data_offsets are too large"},
    };
    const std::string entry = R"({"dtype":"U8","shape":[4],"data_offsets":[)";
    bad.push_back(
        {"NameTwice", "{\"t\":" + entry + "0,4]},\"t\":" + entry + "4,8]}}", corrupt, "t occurs twice"});
    bad.push_back(
        {"Overlap", "{\"a\":" + entry + "0,4]},\"b\":" + entry + "3,7]}}", corrupt, "a and b overlap"});
    bad.push_back({"Same", "{\"a\":" + entry + "0,4]},\"b\":" + entry + "0,4]}}", corrupt, "overlap"});
    bad.push_back({"DeepNesting", std::string(100000, '['), corrupt, "must not be an array"});
    bad.push_back({"LineBreak", R"({"x\ny":3})", corrupt, "tensor x\\x0ay must not"});
    return bad;
}

class BadHeader : public ::testing::TestWithParam<Bad> {};

TEST_P(BadHeader, IsRefusedInOneLine) {
    const auto parsed = parse_safetensors_header(file_of(GetParam().header, 8), "dir/f.safetensors");
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().kind, GetParam().kind);
    EXPECT_EQ(parsed.error().place, "dir/f.safetensors");
    EXPECT_NE(parsed.error().message.find(GetParam().message), std::string::npos) << parsed.error().message;
    EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, BadHeader, ::testing::ValuesIn(bad_headers()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(SafetensorsHeader, HeaderLengthIsCapped) {
    auto file = file_of("{}", 0);
    file[7] = std::byte{0x10};
    const auto parsed = parse_safetensors_header(file, "f");
    ASSERT_FALSE(parsed);
    EXPECT_NE(parsed.error().message.find("over the limit"), std::string::npos) << parsed.error().message;
}

TEST(WeightMap, SortsNamesAndShards) {
    const auto map =
        parse_weight_map(R"({"metadata":{"total_size":7,"x":[1,{"weight_map":null}]},)"
                         R"("weight_map":{"b":"2.safetensors","a":"1.safetensors","c":"2.safetensors"}})",
                         "i");
    ASSERT_TRUE(map) << map.error().text();
    EXPECT_EQ(map->shards, (std::vector<std::string>{"1.safetensors", "2.safetensors"}));
    ASSERT_EQ(map->entries.size(), 3u);
    const char* names[] = {"a", "b", "c"};
    const uint32_t shards[] = {0, 1, 1};
    for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(map->name(map->entries[i]), names[i]);
        EXPECT_EQ(map->entries[i].shard, shards[i]);
    }
}

TEST(WeightMap, BadIndexes) {
    const std::pair<const char*, const char*> bad[] = {
        {"", "not valid JSON"},
        {"[]", "must hold a JSON object"},
        {"7", "must hold a JSON object"},
        {"{}", "names no tensor"},
        {R"({"weight_map":{}})", "names no tensor"},
        {R"({"weight_map":[]})", "weight_map must be an object"},
        {R"({"weight_map":"x.safetensors"})", "weight_map must be an object"},
        {R"({"weight_map":{"a":1}})", "must be a file name"},
        {R"({"weight_map":{"a":null}})", "must be a file name"},
        {R"({"weight_map":{"a":["x.safetensors"]}})", "must be a file name"},
        {R"({"weight_map":{"a":{"b":"x.safetensors"}}})", "must be a file name"},
        {R"({"weight_map":{"a":"../x.safetensors"}})", "plain name"},
        {R"({"weight_map":{"a":"/x.safetensors"}})", "plain name"},
        {R"({"weight_map":{"a":"d/x.safetensors"}})", "plain name"},
        {R"({"weight_map":{"a":".safetensors"}})", "plain name"},
        {R"({"weight_map":{"a":"model.safetensors.index.json"}})", "plain name"},
        {R"({"weight_map":{"a":"x\u0000.safetensors"}})", "plain name"},
        {R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})", "tensor a twice"},
        {R"({"weight_map":{"a":"x.safetensors"},"weight_map":{}})", "occurs twice"},
        {R"({"m":[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]})", "nested too deeply"},
    };
    for (const auto& [text, message] : bad) {
        const auto map = parse_weight_map(text, "i");
        ASSERT_FALSE(map) << text;
        EXPECT_NE(map.error().message.find(message), std::string::npos)
            << text << ": " << map.error().message;
        EXPECT_EQ(map.error().place, "i");
    }
}

}  // namespace
}  // namespace waste::container

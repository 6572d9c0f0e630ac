// Tensors of a release as the bytes of a container.
#include "engine/convert/encode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "kernels/format.h"
#include "kernels/mxfp4.h"
#include "tests/support/release.h"
#include "tests/support/temp_dir.h"

namespace waste::engine {
namespace {

namespace fs = std::filesystem;
using container::Dtype;
using kernels::Format;
using test::layout_of;
using test::open_source;
using test::TempDir;

const std::string kData = WASTE_TEST_DATA;

size_t spec_index(const Source& source, const std::string& name) {
    const auto& specs = source.trunk();
    const auto at = std::find_if(specs.begin(), specs.end(), [&](const auto& s) { return s.name == name; });
    if (at == specs.end()) throw std::runtime_error("no tensor " + name);
    return static_cast<size_t>(at - specs.begin());
}

float bf16_value(const std::byte* bytes) {
    uint16_t bits;
    std::memcpy(&bits, bytes, sizeof bits);
    return std::bit_cast<float>(uint32_t{bits} << 16);
}

/// Values of a bf16 or f32 tensor of the checkpoint, read without any code of the converter.
std::vector<float> source_values(const container::Checkpoint& checkpoint, const std::string& name) {
    const auto tensor = checkpoint.get(name);
    if (!tensor) throw std::runtime_error(tensor.error().text());
    std::vector<float> out(static_cast<size_t>(tensor->elements()));
    for (size_t i = 0; i < out.size(); i++) {
        if (tensor->dtype == Dtype::f32) {
            std::memcpy(&out[i], tensor->data.data() + 4 * i, 4);
        } else {
            out[i] = bf16_value(tensor->data.data() + 2 * i);
        }
    }
    return out;
}

/// What the encoder hands out for a trunk tensor.
Result<std::vector<std::byte>> try_encode(const Source& source, size_t index,
                                          const container::TensorEntry& entry, int threads = 2) {
    ThreadPool pool(threads);
    TrunkEncoder encoder(source, pool);
    std::vector<std::byte> bytes;
    const auto done = encoder.encode(index, entry, [&](uint64_t offset, auto slab) -> Result<void> {
        EXPECT_EQ(offset, bytes.size());  // in order, without gaps
        bytes.insert(bytes.end(), slab.begin(), slab.end());
        return {};
    });
    if (!done) return pass(done);
    return bytes;
}

std::vector<std::byte> encode(const Source& source, size_t index, const container::TensorEntry& entry,
                              int threads = 2) {
    auto bytes = try_encode(source, index, entry, threads);
    if (!bytes) throw std::runtime_error(bytes.error().text());
    return std::move(*bytes);
}

/// Row-major values of one matrix of a batch in panels.
std::vector<float> decode(Format format, const std::vector<std::byte>& bytes, int64_t batch, int64_t rows,
                          int64_t cols) {
    const int64_t panel = kernels::panel_bytes(format, cols);
    const int64_t panels = kernels::panel_count(rows);
    std::vector<float> out(static_cast<size_t>(panels * kernels::kPanelRows * cols));
    for (int64_t p = 0; p < panels; p++) {
        kernels::format_info(format).decode(bytes.data() + (batch * panels + p) * panel, cols,
                                            out.data() + p * kernels::kPanelRows * cols);
    }
    out.resize(static_cast<size_t>(rows * cols));
    return out;
}

// kv_b_proj [heads * (nope + v)][rank], a head's key rows before its value rows:
//   k_absorb[h][r][n] = kv_b[h * (nope + v) + n][r],  v_up[h][i][r] = kv_b[h * (nope + v) + nope + i][r].
TEST(Encode, SplitsKvBIntoTheAbsorbedMatrices) {
    for (const char* model : {"tiny-k3", "odd-k3", "tiny-kimi-linear"}) {
        SCOPED_TRACE(model);
        const Source source = open_source(kData + "/" + model);
        const ModelConfig& c = source.config();
        const int64_t layer = std::find(c.kda_layer.begin(), c.kda_layer.end(), false) - c.kda_layer.begin();
        const std::string at = "layers." + std::to_string(layer) + ".self_attn.";
        const auto kv_b =
            source_values(source.checkpoint(), c.tensor_prefix + "model." + at + "kv_b_proj.weight");
        const int64_t heads = c.num_attention_heads, rank = c.kv_lora_rank, nope = c.qk_nope_head_dim,
                      v = c.v_head_dim;
        const auto released = [&](int64_t row, int64_t col) {
            return kv_b[static_cast<size_t>(row * rank + col)];
        };
        const ContainerLayout layout = layout_of(source, TrunkRecipe::f32, Format::f32);
        const size_t k_index = spec_index(source, at + "k_absorb"), v_index = spec_index(source, at + "v_up");
        ASSERT_EQ(layout.tensors[k_index].shape, (std::vector<int64_t>{heads, rank, nope}));
        ASSERT_EQ(layout.tensors[v_index].shape, (std::vector<int64_t>{heads, v, rank}));
        const auto k_bytes = encode(source, k_index, layout.tensors[k_index]);
        const auto v_bytes = encode(source, v_index, layout.tensors[v_index]);
        ASSERT_EQ(k_bytes.size(), layout.tensors[k_index].bytes);
        ASSERT_EQ(v_bytes.size(), layout.tensors[v_index].bytes);
        for (int64_t h = 0; h < heads; h++) {
            const auto k_absorb = decode(Format::f32, k_bytes, h, rank, nope);
            const auto v_up = decode(Format::f32, v_bytes, h, v, rank);
            const int64_t head = h * (nope + v);
            for (int64_t r = 0; r < rank; r++) {
                for (int64_t n = 0; n < nope; n++) {
                    ASSERT_EQ(k_absorb[static_cast<size_t>(r * nope + n)], released(head + n, r))
                        << h << " " << r << " " << n;
                }
                for (int64_t i = 0; i < v; i++) {
                    ASSERT_EQ(v_up[static_cast<size_t>(i * rank + r)], released(head + nope + i, r))
                        << h << " " << i << " " << r;
                }
            }
        }
    }
}

TEST(Encode, LosslessFormatsHoldEveryTrunkTensor) {
    const Source source = open_source(kData + "/odd-k3");
    const ContainerLayout layout = layout_of(source, TrunkRecipe::bf16, Format::bf16);
    for (size_t i = 0; i < layout.tensors.size(); i++) {
        const TensorSpec& spec = source.trunk()[i];
        if (spec.role == Role::k_absorb || spec.role == Role::v_up) continue;
        const container::TensorEntry& entry = layout.tensors[i];
        const auto bytes = encode(source, i, entry);
        ASSERT_EQ(bytes.size(), entry.bytes) << entry.name;
        auto expected = source_values(source.checkpoint(), spec.source);
        std::vector<float> found;
        if (entry.layout == container::Layout::panels) {
            found = decode(entry.format, bytes, 0, entry.shape[0], entry.shape[1]);
        } else {
            const size_t width = entry.format == Format::f32 ? 4 : 2;
            found.resize(bytes.size() / width);
            for (size_t k = 0; k < found.size(); k++) {
                if (width == 2) {
                    found[k] = bf16_value(bytes.data() + 2 * k);
                } else {
                    std::memcpy(&found[k], bytes.data() + 4 * k, 4);
                }
            }
        }
        // A_log is released with zero padding behind its heads.
        ASSERT_GE(expected.size(), found.size()) << entry.name;
        expected.resize(found.size());
        EXPECT_EQ(found, expected) << entry.name;
    }
}

TEST(Encode, DoesNotDependOnTheThreads) {
    const Source source = open_source(kData + "/odd-k3");
    const ContainerLayout layout = layout_of(source, TrunkRecipe::q4, Format::mxfp4);
    for (size_t i = 0; i < layout.tensors.size(); i++) {
        const auto one = encode(source, i, layout.tensors[i], 1);
        EXPECT_EQ(one, encode(source, i, layout.tensors[i], 3)) << layout.tensors[i].name;
    }
}

TEST(Encode, AnExpertsRecordIsTheReleasedMxfp4) {
    const Source source = open_source(kData + "/odd-k3");
    const container::BankShape shape = layout_of(source, TrunkRecipe::q4, Format::mxfp4).banks[1].shape;
    std::vector<float> scratch;
    std::vector<std::byte> record(shape.record_bytes(), std::byte{0xee});
    ASSERT_TRUE(encode_expert(source, 2, 7, shape, scratch, record));
    const auto check = [&](const char* which, int64_t rows, int64_t cols, uint64_t offset) {
        const std::string name = expert_tensor(source.config(), 2, 7, which) + ".weight";
        const auto packed = source.checkpoint().get(name + "_packed"),
                   scale = source.checkpoint().get(name + "_scale");
        const auto raw = [](const auto& tensor) {
            return reinterpret_cast<const uint8_t*>(tensor->data.data());
        };
        std::vector<float> expected(static_cast<size_t>(rows * cols));
        kernels::mxfp4_unpack(raw(packed), raw(scale), rows, cols, expected.data());
        const auto bytes = static_cast<size_t>(kernels::matrix_bytes(Format::mxfp4, rows, cols));
        const auto begin = record.begin() + static_cast<std::ptrdiff_t>(offset);
        const std::vector<std::byte> matrix(begin, begin + static_cast<std::ptrdiff_t>(bytes));
        EXPECT_EQ(decode(Format::mxfp4, matrix, 0, rows, cols), expected) << which;
        return offset + bytes;
    };
    EXPECT_EQ(check("w1", 160, 96, 0), shape.up_offset());
    EXPECT_EQ(check("w3", 160, 96, shape.up_offset()), shape.down_offset());
    const uint64_t end = check("w2", 96, 160, shape.down_offset());
    EXPECT_TRUE(std::all_of(record.begin() + static_cast<std::ptrdiff_t>(end), record.end(),
                            [](std::byte b) { return b == std::byte{0}; }));
}

// ---- Sources in other floats

std::vector<container::NamedTensor> copy_tensors(const std::string& directory) {
    const auto checkpoint = container::Checkpoint::open(directory);
    if (!checkpoint) throw std::runtime_error(checkpoint.error().text());
    std::vector<container::NamedTensor> tensors;
    for (size_t i = 0; i < checkpoint->size(); i++) {
        const container::SourceTensor tensor = checkpoint->tensor(i);
        tensors.push_back({std::string(checkpoint->name(i)),
                           tensor.dtype,
                           {tensor.shape.begin(), tensor.shape.begin() + tensor.rank},
                           {tensor.data.begin(), tensor.data.end()}});
    }
    return tensors;
}

/// Copies a one-file checkpoint with its bf16 tensors in another dtype. Values that f16 cannot hold would
/// make the comparison meaningless, so they are rounded to f16 first, in both copies.
class OtherFloats : public ::testing::Test {
  protected:
    static uint16_t to_f16(float value);  // finite, small values only
    static float from_f16(uint16_t bits);

    void write(const std::string& directory, Dtype dtype) {
        fs::create_directory(directory);
        fs::copy_file(kData + "/tiny-kimi-linear/config.json", directory + "/config.json");
        auto tensors = copy_tensors(kData + "/tiny-kimi-linear");
        for (container::NamedTensor& tensor : tensors) {
            if (tensor.dtype != Dtype::bf16) continue;
            std::vector<std::byte> data;
            for (size_t at = 0; at < tensor.data.size(); at += 2) {
                const uint16_t half = to_f16(bf16_value(tensor.data.data() + at));
                const float single = from_f16(half);
                const auto bytes = dtype == Dtype::f16 ? std::as_bytes(std::span(&half, 1))
                                                       : std::as_bytes(std::span(&single, 1));
                data.insert(data.end(), bytes.begin(), bytes.end());
            }
            tensor.dtype = dtype;
            tensor.data = std::move(data);
        }
        write_tensors(directory, tensors);
    }

    /// Gives element 5 of an f32 tensor this value.
    static void set(const std::string& directory, const std::string& name, float value) {
        auto tensors = copy_tensors(directory);
        for (container::NamedTensor& tensor : tensors) {
            if (tensor.name != name) continue;
            ASSERT_EQ(tensor.dtype, Dtype::f32);
            std::memcpy(tensor.data.data() + 5 * sizeof value, &value, sizeof value);
        }
        write_tensors(directory, tensors);
    }

    static void write_tensors(const std::string& directory,
                              const std::vector<container::NamedTensor>& tensors) {
        ASSERT_TRUE(container::write_safetensors(directory + "/model.safetensors", tensors));
    }

    TempDir dir_;
};

uint16_t OtherFloats::to_f16(float value) {
    // Through the integer 2^24 * value, which every f16 is; rounds to 11 significant bits, half away from
    // zero.
    const double scaled = static_cast<double>(value) * (1 << 24);
    auto magnitude = static_cast<uint64_t>(std::abs(scaled) + 0.5);
    int shift = std::max(0, static_cast<int>(std::bit_width(magnitude)) - 11);
    magnitude = (magnitude + (shift > 0 ? uint64_t{1} << (shift - 1) : 0)) >> shift;
    if (magnitude == 2048) {
        magnitude = 1024;
        shift++;
    }
    const uint64_t exponent = magnitude >= 1024 ? static_cast<uint64_t>(shift) + 1 : 0;
    return static_cast<uint16_t>((std::signbit(value) ? 0x8000u : 0u) | exponent << 10 | (magnitude & 1023));
}

float OtherFloats::from_f16(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    return static_cast<float>(bits & 0x8000 ? -magnitude : magnitude);
}

TEST_F(OtherFloats, F16AndF32OfTheSameValuesEncodeAlike) {
    write(dir_.file("f16"), Dtype::f16);
    write(dir_.file("f32"), Dtype::f32);
    const Source half = open_source(dir_.file("f16")), single = open_source(dir_.file("f32"));
    for (const TrunkRecipe recipe : {TrunkRecipe::q4, TrunkRecipe::f32}) {
        const ContainerLayout a = layout_of(half, recipe, Format::q4);
        const ContainerLayout b = layout_of(single, recipe, Format::q4);
        EXPECT_EQ(a.trunk_bytes, b.trunk_bytes);
        for (size_t i = 0; i < a.tensors.size(); i++) {
            ASSERT_EQ(a.tensors[i].format, b.tensors[i].format) << a.tensors[i].name;
            EXPECT_EQ(encode(half, i, a.tensors[i]), encode(single, i, b.tensors[i])) << a.tensors[i].name;
        }
    }
    const container::BankShape shape = layout_of(half, TrunkRecipe::q4, Format::q4).banks[0].shape;
    std::vector<float> scratch;
    std::vector<std::byte> a(shape.record_bytes()), b(shape.record_bytes());
    ASSERT_TRUE(encode_expert(half, 1, 3, shape, scratch, a));
    ASSERT_TRUE(encode_expert(single, 1, 3, shape, scratch, b));
    EXPECT_EQ(a, b);
}

// Beyond bf16's largest value a weight, or the scale of a block, would round to infinity.
constexpr float kLargestBf16 = 0x1.fep127f;

std::vector<float> refused_values() {
    const float beyond = std::nextafter(kLargestBf16, std::numeric_limits<float>::infinity());
    return {beyond, -beyond, std::numeric_limits<float>::max(), -std::numeric_limits<float>::infinity(),
            std::numeric_limits<float>::quiet_NaN()};
}

TEST_F(OtherFloats, TrunkValuesBeyondBf16AreRefused) {
    const std::string directory = dir_.file("f32");
    write(directory, Dtype::f32);
    for (const Role role : {Role::embedding, Role::vector, Role::matrix, Role::fine_matrix, Role::router}) {
        const Source original = open_source(directory);
        const auto& specs = original.trunk();
        const auto spec = std::find_if(specs.begin(), specs.end(), [&](const TensorSpec& s) {
            return s.role == role && original.checkpoint().get(s.source)->elements() > 5;
        });
        ASSERT_NE(spec, specs.end());
        SCOPED_TRACE(spec->source);
        const auto index = static_cast<size_t>(spec - specs.begin());
        const auto encoded_as = [&](const Source& source, TrunkRecipe recipe) {
            return try_encode(source, index, layout_of(source, recipe, Format::q4).tensors[index]);
        };
        for (const float value : refused_values()) {
            set(directory, spec->source, value);
            const Source source = open_source(directory);
            for (const TrunkRecipe recipe : {TrunkRecipe::q4, TrunkRecipe::q8, TrunkRecipe::bf16}) {
                const auto encoded = encoded_as(source, recipe);
                ASSERT_FALSE(encoded) << value << " as " << trunk_recipe_name(recipe);
                EXPECT_EQ(encoded.error().kind, ErrorKind::corrupt);
                EXPECT_NE(encoded.error().place.find(spec->source), std::string::npos);
            }
        }
        set(directory, spec->source, -kLargestBf16);
        const Source source = open_source(directory);
        for (const TrunkRecipe recipe : {TrunkRecipe::q4, TrunkRecipe::q8, TrunkRecipe::bf16}) {
            const auto encoded = encoded_as(source, recipe);
            ASSERT_TRUE(encoded) << encoded.error().text();
            const container::TensorEntry entry = layout_of(source, recipe, Format::q4).tensors[index];
            if (entry.layout == container::Layout::rows) continue;
            for (const float weight : decode(entry.format, *encoded, 0, entry.shape[0], entry.shape[1])) {
                ASSERT_TRUE(std::isfinite(weight)) << trunk_recipe_name(recipe);
            }
        }
        set(directory, spec->source, 0.25f);
    }
}

TEST_F(OtherFloats, ExpertValuesBeyondBf16AreRefused) {
    const std::string directory = dir_.file("f32");
    write(directory, Dtype::f32);
    const std::string name = expert_tensor(open_source(directory).config(), 1, 3, "w2") + ".weight";
    const auto encoded_as = [&](Format format) {
        const Source source = open_source(directory);
        const container::BankShape shape = layout_of(source, TrunkRecipe::q4, format).banks[0].shape;
        std::vector<float> scratch;
        std::vector<std::byte> record(shape.record_bytes());
        return encode_expert(source, 1, 3, shape, scratch, record);
    };
    for (const float value : refused_values()) {
        set(directory, name, value);
        for (const Format format : {Format::q4, Format::q8, Format::bf16}) {
            const auto encoded = encoded_as(format);
            ASSERT_FALSE(encoded) << value;
            EXPECT_NE(encoded.error().place.find(name), std::string::npos);
        }
    }
    set(directory, name, kLargestBf16);
    EXPECT_TRUE(encoded_as(Format::q4));
}

}  // namespace
}  // namespace waste::engine

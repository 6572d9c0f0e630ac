// Recipe, layout and encoding of a conversion. The command as a whole is tested by
// tests/tools/test_convert.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "engine/convert/encode.h"
#include "engine/convert/layout.h"
#include "kernels/format.h"
#include "kernels/mxfp4.h"
#include "tests/support/temp_dir.h"

namespace waste::engine {
namespace {

namespace fs = std::filesystem;
using container::Dtype;
using kernels::Format;
using test::TempDir;

const std::string kData = WASTE_TEST_DATA;

Source open_source(const std::string& directory) {
    auto source = Source::open(directory);
    if (!source) throw std::runtime_error(source.error().text());
    return std::move(*source);
}

size_t spec_index(const Source& source, const std::string& name) {
    const auto& specs = source.trunk();
    const auto at = std::find_if(specs.begin(), specs.end(), [&](const auto& s) { return s.name == name; });
    if (at == specs.end()) throw std::runtime_error("no tensor " + name);
    return static_cast<size_t>(at - specs.begin());
}

ContainerLayout layout_of(const Source& source, TrunkRecipe recipe, Format experts) {
    const auto released = [&](size_t i) { return source.checkpoint().tensor(source.trunk_source(i)).dtype; };
    auto layout = plan_layout(source.config(), source.trunk(), recipe, experts, released);
    if (!layout) throw std::runtime_error(layout.error().text());
    return std::move(*layout);
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
std::vector<std::byte> encode(const Source& source, size_t index, const container::TensorEntry& entry,
                              int threads = 2) {
    ThreadPool pool(threads);
    TrunkEncoder encoder(source, pool);
    std::vector<std::byte> bytes;
    const auto done = encoder.encode(index, entry, [&](uint64_t offset, auto slab) -> Result<void> {
        EXPECT_EQ(offset, bytes.size());  // in order, without gaps
        bytes.insert(bytes.end(), slab.begin(), slab.end());
        return {};
    });
    if (!done) throw std::runtime_error(done.error().text());
    return bytes;
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

// ---- Recipe

struct RecipeRow {
    const char* name;
    TrunkRecipe recipe;
    Format matrix, fine, router_bf16, router_f32;
};

TEST(Recipe, GivesEachRoleItsFormat) {
    const RecipeRow rows[] = {
        {"q4", TrunkRecipe::q4, Format::q4, Format::q8, Format::bf16, Format::f32},
        {"q4pure", TrunkRecipe::q4pure, Format::q4, Format::q4, Format::bf16, Format::f32},
        {"q8", TrunkRecipe::q8, Format::q8, Format::q8, Format::bf16, Format::f32},
        {"bf16", TrunkRecipe::bf16, Format::bf16, Format::bf16, Format::bf16, Format::bf16},
        {"f32", TrunkRecipe::f32, Format::f32, Format::f32, Format::f32, Format::f32},
    };
    for (const RecipeRow& row : rows) {
        SCOPED_TRACE(row.name);
        EXPECT_EQ(trunk_recipe_from_name(row.name), row.recipe);
        EXPECT_EQ(trunk_recipe_name(row.recipe), row.name);
        for (const Dtype released : {Dtype::bf16, Dtype::f16, Dtype::f32}) {
            const bool bf16 = released == Dtype::bf16;
            EXPECT_EQ(trunk_format(row.recipe, Role::vector, released), Format::f32);
            EXPECT_EQ(trunk_format(row.recipe, Role::embedding, released), bf16 ? Format::bf16 : Format::f32);
            EXPECT_EQ(trunk_format(row.recipe, Role::router, released),
                      bf16 ? row.router_bf16 : row.router_f32);
            EXPECT_EQ(trunk_format(row.recipe, Role::matrix, released), row.matrix);
            for (const Role fine : {Role::fine_matrix, Role::k_absorb, Role::v_up}) {
                EXPECT_EQ(trunk_format(row.recipe, fine, released), row.fine);
            }
        }
    }
    for (const char* name : {"", "q5", "Q4", "mxfp4", "q4 "})
        EXPECT_FALSE(trunk_recipe_from_name(name)) << name;
}

// ---- Layout

TEST(Layout, TensorsLieInOrderAlignedAndApart) {
    for (const char* model : {"tiny-k3", "odd-k3", "tiny-kimi-linear"}) {
        const Source source = open_source(kData + "/" + model);
        for (const TrunkRecipe recipe : {TrunkRecipe::q4, TrunkRecipe::bf16, TrunkRecipe::f32}) {
            const ContainerLayout layout = layout_of(source, recipe, Format::q4);
            ASSERT_EQ(layout.tensors.size(), source.trunk().size());
            uint64_t end = 0;
            for (size_t i = 0; i < layout.tensors.size(); i++) {
                const container::TensorEntry& entry = layout.tensors[i];
                EXPECT_EQ(entry.name, source.trunk()[i].name);
                EXPECT_EQ(entry.offset % container::kAlignment, 0u) << entry.name;
                EXPECT_EQ(entry.offset,
                          (end + container::kAlignment - 1) / container::kAlignment * container::kAlignment)
                    << entry.name;
                EXPECT_EQ(entry.bytes,
                          container::tensor_bytes(entry.format, entry.layout, entry.shape).value())
                    << entry.name;
                end = entry.offset + entry.bytes;
            }
            EXPECT_GE(layout.trunk_bytes, end);
            EXPECT_LT(layout.trunk_bytes - end, container::kAlignment);
            EXPECT_EQ(layout.trunk_bytes % container::kAlignment, 0u);
        }
    }
}

TEST(Layout, BanksFollowTheMoeLayers) {
    const Source source = open_source(kData + "/odd-k3");
    const ContainerLayout layout = layout_of(source, TrunkRecipe::q4, Format::mxfp4);
    ASSERT_EQ(layout.banks.size(), 3u);
    uint64_t bytes = 0;
    for (size_t i = 0; i < layout.banks.size(); i++) {
        const container::BankEntry& bank = layout.banks[i];
        EXPECT_EQ(bank.layer, static_cast<int64_t>(i) + 1);
        EXPECT_EQ(bank.file, "experts-00" + std::to_string(i + 1) + ".bin");
        EXPECT_EQ(bank.shape.experts, 10);
        EXPECT_EQ(bank.shape.input_size, 96);
        EXPECT_EQ(bank.shape.intermediate_size, 160);
        EXPECT_EQ(bank.shape.record_bytes() % container::kAlignment, 0u);
        EXPECT_EQ(bank.bytes, bank.shape.file_bytes());
        bytes += bank.bytes;
    }
    EXPECT_EQ(layout.expert_bytes(), bytes);
    EXPECT_EQ(layout.total_bytes(), bytes + layout.trunk_bytes);
    EXPECT_EQ(bank_file_name(0), "experts-000.bin");
    EXPECT_EQ(bank_file_name(1234), "experts-1234.bin");
}

// A config alone can ask for anything: sizes that no drive holds are an error, not an overflow.
TEST(Layout, SizesBeyondReasonAreRefused) {
    const Source source = open_source(kData + "/tiny-kimi-linear");
    const auto released = [](size_t) { return Dtype::bf16; };
    const auto refused = [&](const ModelConfig& config) {
        return !plan_layout(config, trunk_tensors(config), TrunkRecipe::f32, Format::f32, released);
    };
    ModelConfig config = source.config();
    EXPECT_FALSE(refused(config));
    config.num_experts = 1 << 20;
    EXPECT_TRUE(refused(config)) << "experts of one bank";
    config = source.config();
    config.moe_intermediate_size = 1 << 24;
    EXPECT_TRUE(refused(config)) << "an expert's width";
    config = source.config();
    config.vocab_size = config.hidden_size = 1 << 24;
    config.num_hidden_layers = 4096;
    config.kda_layer.assign(4096, true);
    EXPECT_TRUE(refused(config)) << "everything";
}

// ---- Encoding

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

/// Copies a one-file checkpoint with its bf16 tensors in another dtype. Values that f16 cannot hold would
/// make the comparison meaningless, so they are rounded to f16 first, in both copies.
class OtherFloats : public ::testing::Test {
  protected:
    static uint16_t to_f16(float value);  // finite, small values only
    static float from_f16(uint16_t bits);

    void write(const std::string& directory, Dtype dtype) {
        fs::create_directory(directory);
        fs::copy_file(kData + "/tiny-kimi-linear/config.json", directory + "/config.json");
        const auto checkpoint = container::Checkpoint::open(kData + "/tiny-kimi-linear");
        ASSERT_TRUE(checkpoint);
        std::vector<container::NamedTensor> tensors;
        for (size_t i = 0; i < checkpoint->size(); i++) {
            const container::SourceTensor tensor = checkpoint->tensor(i);
            container::NamedTensor out{std::string(checkpoint->name(i)),
                                       tensor.dtype,
                                       {tensor.shape.begin(), tensor.shape.begin() + tensor.rank},
                                       {tensor.data.begin(), tensor.data.end()}};
            if (tensor.dtype == Dtype::bf16) {
                out.dtype = dtype;
                out.data.clear();
                for (size_t k = 0; k < static_cast<size_t>(tensor.elements()); k++) {
                    const uint16_t half = to_f16(bf16_value(tensor.data.data() + 2 * k));
                    const float single = from_f16(half);
                    const auto bytes = dtype == Dtype::f16 ? std::as_bytes(std::span(&half, 1))
                                                           : std::as_bytes(std::span(&single, 1));
                    out.data.insert(out.data.end(), bytes.begin(), bytes.end());
                }
            }
            tensors.push_back(std::move(out));
        }
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

}  // namespace
}  // namespace waste::engine

// Kernels that go once over activations in cache, time an element: small beside the products, no limit given.
#include <fmt/format.h>

#include "tests/bench/bench.h"
#include "tests/support/kernel_matrix.h"

namespace waste::bench {
namespace {

constexpr int64_t kHidden = 7168;  ///< of K3
constexpr int64_t kHeadDim = 128;
constexpr int64_t kChannels = 12288;
constexpr int64_t kCandidates = 9;

using Floats = std::vector<float>;

Floats values(int64_t count) {
    return test::Random(static_cast<uint32_t>(count)).normals(count, 1.0f);
}

/// Calls body(a, b, y) on arrays of `count`.
template <typename Body>
std::function<void()> over_arrays(int64_t count, Body body) {
    return [body, a = values(count), b = values(count), y = Floats(static_cast<size_t>(count))]() mutable {
        body(a.data(), b.data(), y.data());
    };
}

std::function<void()> quantize_call(const kernels::KernelSet& set) {
    return [run = set.quantize->int8, x = values(kHidden), codes = std::vector<int8_t>(kHidden),
            scales = Floats(kHidden / kernels::kGroupCols),
            sums = std::vector<int32_t>(kHidden / kernels::kGroupCols)]() mutable {
        run(x.data(), kHidden, 1, codes.data(), scales.data(), sums.data());
    };
}

std::function<void()> rms_norm_call(const kernels::KernelSet& set) {
    return over_arrays(kHidden, [run = set.norm->rms_norm](const float* x, const float* weight, float* y) {
        run(x, weight, 1e-5f, kHidden, y);
    });
}

std::function<void()> silu_call(const kernels::KernelSet& set) {
    return over_arrays(kHidden, [run = set.activation->silu_glu](const float* gate, const float* up,
                                                                 float* y) { run(gate, up, kHidden, y); });
}

std::function<void()> situ_call(const kernels::KernelSet& set) {
    return over_arrays(kHidden,
                       [run = set.activation->situ_glu](const float* gate, const float* up, float* y) {
                           run(gate, up, 4.0f, 25.0f, kHidden, y);
                       });
}

std::function<void()> bounded_call(const kernels::KernelSet& set) {
    return over_arrays(kHeadDim,
                       [run = set.kda_gate->bounded](const float* raw, const float* bias, float* y) {
                           run(raw, bias, 0.3f, -5.0f, kHeadDim, y);
                       });
}

std::function<void()> softplus_call(const kernels::KernelSet& set) {
    return over_arrays(kHeadDim,
                       [run = set.kda_gate->softplus](const float* raw, const float* bias, float* y) {
                           run(raw, bias, 0.3f, kHeadDim, y);
                       });
}

std::function<void()> conv_call(const kernels::KernelSet& set) {
    constexpr int64_t kTaps = 4;
    return [run = set.conv->short_conv, weight = values(kChannels * kTaps),
            ring = values(kChannels * (kTaps - 1)), x = values(kChannels), y = Floats(kChannels),
            position = int64_t{0}]() mutable {
        run({weight.data(), ring.data(), kChannels, kTaps, kChannels, position++, 1}, x.data(), kChannels,
            y.data(), kChannels);
    };
}

std::function<void()> attn_res_call(const kernels::KernelSet& set) {
    return [run = set.attn_res->mix, candidates = values(kCandidates * kHidden), weight = values(kHidden),
            y = Floats(kHidden)]() mutable {
        const float* rows[kCandidates];
        for (int64_t i = 0; i < kCandidates; ++i) rows[i] = candidates.data() + i * kHidden;
        run(rows, kCandidates, weight.data(), 1e-5f, kHidden, y.data());
    };
}

struct Pointwise {
    std::string_view name;
    int64_t elements;
    std::function<void()> (*prepare)(const kernels::KernelSet& set);
};

constexpr Pointwise kKernels[] = {
    {"quantize", kHidden, quantize_call},       {"rms_norm", kHidden, rms_norm_call},
    {"silu_glu", kHidden, silu_call},           {"situ_glu", kHidden, situ_call},
    {"short_conv", kChannels, conv_call},       {"gate_bounded", kHeadDim, bounded_call},
    {"gate_softplus", kHeadDim, softplus_call}, {"attn_res_mix", kCandidates* kHidden, attn_res_call},
};

}  // namespace

void add_pointwise_rows(Bench& bench) {
    for (const Pointwise& kernel : kKernels) {
        for (const kernels::Tier tier : portable_tiers()) {
            Row row;
            row.name = fmt::format("{}/{}/{}/t1", kernel.name, kernels::tier_name(tier), kernel.elements);
            row.threads = 1;
            row.units_a_call = kernel.elements;
            row.work = Work::none;
            row.work_a_unit = 0.0;
            row.limit = 0.0;
            row.prepare = [tier, prepare = kernel.prepare] { return prepare(kernels::kernels_for(tier)); };
            bench.add(std::move(row));
        }
    }
}

}  // namespace waste::bench

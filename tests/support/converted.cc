#include "tests/support/converted.h"

#include <stdexcept>

namespace waste::test {

engine::ConvertOptions defaults(const std::string& checkpoint) {
    engine::ConvertOptions options;
    options.source = std::string(WASTE_TEST_DATA) + "/" + checkpoint;
    return options;
}

engine::ConvertOptions lossless(const std::string& checkpoint) {
    engine::ConvertOptions options = defaults(checkpoint);
    options.trunk = engine::TrunkRecipe::bf16;
    // The other checkpoints' experts are MXFP4, which is kept by default.
    if (checkpoint == "tiny-kimi-linear") options.experts = kernels::Format::bf16;
    return options;
}

Converted::Converted(engine::ConvertOptions options) : options_(std::move(options)) {
    options_.destination = directory_.file("model.waste");
    const auto fingerprint = engine::convert(options_, {});
    if (!fingerprint) throw std::runtime_error(fingerprint.error().text());
    auto model = engine::Model::open(options_.destination);
    if (!model) throw std::runtime_error(model.error().text());
    model_.emplace(std::move(*model));
}

}  // namespace waste::test

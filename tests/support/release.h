// A release of tests/data, opened and laid out as a conversion would.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "engine/convert/layout.h"
#include "engine/convert/source.h"

namespace waste::test {

inline engine::Source open_source(const std::string& directory) {
    auto source = engine::Source::open(directory);
    if (!source) throw std::runtime_error(source.error().text());
    return std::move(*source);
}

inline engine::ContainerLayout layout_of(const engine::Source& source, engine::TrunkRecipe recipe,
                                         kernels::Format experts) {
    const auto released = [&](size_t i) { return source.checkpoint().tensor(source.trunk_source(i)).dtype; };
    auto layout = engine::plan_layout(source.config(), source.trunk(), recipe, experts, released);
    if (!layout) throw std::runtime_error(layout.error().text());
    return std::move(*layout);
}

}  // namespace waste::test

// Checkpoints of tests/data, converted for a test and removed after it.
#pragma once

#include <optional>
#include <string>

#include "engine/convert/convert.h"
#include "engine/model.h"
#include "tests/support/temp_dir.h"

namespace waste::test {

/// What turns a checkpoint into a container without loss.
engine::ConvertOptions lossless(const std::string& checkpoint);
/// The defaults of `waste convert`.
engine::ConvertOptions defaults(const std::string& checkpoint);

/// A model converted from tests/data/CHECKPOINT into a directory that goes with it. Throws where it cannot
/// be.
class Converted {
  public:
    explicit Converted(engine::ConvertOptions options);

    const engine::Model& model() const { return *model_; }
    const std::string& directory() const { return options_.destination; }

  private:
    TempDir directory_;
    engine::ConvertOptions options_;
    std::optional<engine::Model> model_;
};

}  // namespace waste::test

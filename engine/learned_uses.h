// What earlier runs of a model learned about its experts, used from the start of a run and added to at its end.
#pragma once

#include <optional>
#include <string>

#include "engine/hot_list.h"
#include "engine/model.h"

namespace waste::engine {

/// Does nothing for a model whose experts do not stream, or where there is no place to keep anything. One thread.
class LearnedUses {
  public:
    /// Begins to read the experts that earlier runs chose most. After the model was arranged; it outlives this.
    explicit LearnedUses(const Model& model);

    /// What was wrong with the file, which is then started anew; empty: nothing.
    const std::string& warning() const { return warning_; }
    /// Adds this run's uses to the file. Once, at the end.
    Result<void> save();

  private:
    const Model& model_;
    std::string path_;
    std::string warning_;
    std::optional<HotList> list_;
};

}  // namespace waste::engine

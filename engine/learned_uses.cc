#include "engine/learned_uses.h"

#include <utility>

namespace waste::engine {

LearnedUses::LearnedUses(const Model& model) : model_(model) {
    if (!model.experts().streams()) return;
    const auto& manifest = model.container().manifest();
    path_ = hot_list_path(manifest.fingerprint);
    if (path_.empty()) return;
    const auto layers = static_cast<int64_t>(manifest.banks.size());
    const int64_t experts = model.config().num_experts;
    auto list = HotList::load(path_, manifest.fingerprint, layers, experts);
    if (!list) {
        warning_ = list.error().text() + "; it is started anew";
        list = HotList(manifest.fingerprint, layers, experts);
    }
    list_ = std::move(*list);
    model.experts().warm(list_->counts(), list_->hottest(static_cast<size_t>(model.experts().slots())));
}

Result<void> LearnedUses::save() {
    if (!list_) return {};
    const auto uses = model_.experts().use_counts();
    for (size_t key = 0; key < uses.size(); key++) {
        if (uses[key] > 0) list_->add(static_cast<int64_t>(key), uses[key]);
    }
    return list_->save(path_);
}

}  // namespace waste::engine

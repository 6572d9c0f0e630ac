#include "engine/model.h"

#include "container/file.h"

namespace waste::engine {

Result<Model> Model::open(const std::string& directory) {
    auto container = container::Container::open(directory);
    if (!container) return pass(container);
    const std::string place = container::join_path(directory, container::kManifestName) + ": config";
    auto config = parse_config(container->manifest().config, place);
    if (!config) return pass(config);
    auto weights = bind_weights(*container, *config);
    if (!weights) return pass(weights);
    return Model(std::move(*container), std::move(*config), std::move(*weights));
}

}  // namespace waste::engine

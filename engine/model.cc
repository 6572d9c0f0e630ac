#include "engine/model.h"

#include "container/file.h"
#include "container/mirrors.h"

namespace waste::engine {

Result<Model> Model::open(const std::string& directory) {
    auto container = container::Container::open(directory);
    if (!container) return pass(container);
    const std::string place = container::join_path(directory, container::kManifestName) + ": config";
    auto config = parse_config(container->manifest().config, place);
    if (!config) return pass(config);
    Model model(std::make_unique<container::Container>(std::move(*container)), std::move(*config));
    if (const auto ok = model.arrange({}); !ok) return pass(ok);
    return model;
}

StreamCounters StreamCounters::operator-(const StreamCounters& earlier) const {
    StreamCounters out;
    out.experts = experts - earlier.experts;
    out.drive.reads = drive.reads - earlier.drive.reads;
    out.drive.bytes = drive.bytes - earlier.drive.bytes;
    out.drive.busy_nanoseconds = drive.busy_nanoseconds - earlier.drive.busy_nanoseconds;
    out.drive.retries = drive.retries - earlier.drive.retries;
    out.trunk_wait_nanoseconds = trunk_wait_nanoseconds - earlier.trunk_wait_nanoseconds;
    return out;
}

StreamCounters Model::counters() const {
    return {experts_->counters(), reader_ ? reader_->counters() : container::DriveReaderCounters{},
            trunk_->wait_nanoseconds()};
}

Result<void> Model::arrange(const Arrangement& arrangement) {
    const container::Manifest& manifest = container_->manifest();
    reader_.reset();
    const auto trunk_file = static_cast<uint32_t>(manifest.banks.size());
    if (arrangement.trunk.streams(config_.num_hidden_layers) || arrangement.experts.slots > 0) {
        auto reader = container::DriveReader::start(container::read_paths(container_->directory(), manifest),
                                                    arrangement.reader);
        if (!reader) return pass(reader);
        reader_ = std::move(*reader);
    }
    auto trunk = Trunk::open(*container_, config_, arrangement.trunk, reader_.get(), trunk_file);
    if (!trunk) return pass(trunk);
    trunk_ = std::move(*trunk);
    auto experts =
        ExpertStore::open(*container_, config_.num_experts_per_token, arrangement.experts, reader_.get());
    if (!experts) return pass(experts);
    experts_ = std::move(*experts);
    auto weights = bind_weights(*container_, config_, *trunk_);
    if (!weights) return pass(weights);
    weights_ = std::move(*weights);
    return {};
}

}  // namespace waste::engine

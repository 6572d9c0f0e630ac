// The index of a sharded checkpoint: {"metadata": {...}, "weight_map": {"tensor": "shard", ...}}.
#include <algorithm>
#include <map>

#include "container/json_events.h"
#include "container/safetensors_header.h"
#include "container/text.h"

namespace waste::container {
namespace {

bool is_shard_name(std::string_view name) {
    return is_plain_file_name(name) && name.ends_with(kSafetensorsSuffix);
}

class WeightMapEvents : public JsonEvents {
  public:
    WeightMap map;
    bool seen = false;

    bool start_object(size_t) override {
        if (expecting_map_) {
            expecting_map_ = false;
            inside_ = true;
        } else if (inside_) {
            return refuse_entry();
        }
        return deeper();
    }
    bool end_object() override {
        inside_ = false;
        --depth_;
        return true;
    }
    bool start_array(size_t) override { return depth_ == 0 ? refuse_top() : scalar() && deeper(); }
    bool end_array() override {
        --depth_;
        return true;
    }

    bool key(std::string& text) override {
        if (inside_) {
            name_ = std::move(text);
        } else if (depth_ == 1 && text == "weight_map") {
            if (seen) return refuse(ErrorKind::corrupt, "weight_map occurs twice");
            seen = expecting_map_ = true;
        }
        return true;
    }

    bool string(std::string& text) override {
        if (!inside_) return scalar();
        if (!is_shard_name(text)) {
            return refuse(ErrorKind::corrupt,
                          fmt::format("tensor {}: \"{}\" is not the plain name of a .safetensors file",
                                      printable(name_), printable(text)));
        }
        const auto shard = shards_.try_emplace(text, static_cast<uint32_t>(shards_.size())).first->second;
        map.entries.push_back({map.names.size(), static_cast<uint32_t>(name_.size()), shard});
        map.names += name_;
        return true;
    }

    bool null() override { return scalar(); }
    bool boolean(bool) override { return scalar(); }
    bool number_integer(int64_t) override { return scalar(); }
    bool number_unsigned(uint64_t) override { return scalar(); }
    bool number_float(double, const std::string&) override { return scalar(); }

    /// Sorts shards and names; an error for a name that occurs twice.
    Result<void> finish(const std::string& place) {
        std::vector<uint32_t> rank(shards_.size());
        for (const auto& [name, first_seen] : shards_) {
            rank[first_seen] = static_cast<uint32_t>(map.shards.size());
            map.shards.push_back(name);
        }
        for (WeightMap::Entry& entry : map.entries) entry.shard = rank[entry.shard];
        std::sort(map.entries.begin(), map.entries.end(),
                  [&](const auto& a, const auto& b) { return map.name(a) < map.name(b); });
        const auto twice =
            std::adjacent_find(map.entries.begin(), map.entries.end(),
                               [&](const auto& a, const auto& b) { return map.name(a) == map.name(b); });
        if (twice == map.entries.end()) return {};
        return fail(ErrorKind::corrupt, place,
                    fmt::format("weight_map names tensor {} twice", printable(map.name(*twice))));
    }

  private:
    bool deeper() {
        constexpr int kDeepest = 16;
        return ++depth_ <= kDeepest || refuse(ErrorKind::corrupt, "is nested too deeply");
    }
    bool refuse_top() { return refuse(ErrorKind::corrupt, "must hold a JSON object"); }
    bool refuse_entry() {
        return refuse(ErrorKind::corrupt,
                      fmt::format("tensor {}: its weight_map entry must be a file name", printable(name_)));
    }
    /// A value outside weight_map, where everything is allowed and nothing is kept.
    bool scalar() {
        if (depth_ == 0) return refuse_top();
        if (expecting_map_) return refuse(ErrorKind::corrupt, "weight_map must be an object");
        return inside_ ? refuse_entry() : true;
    }
    std::string where() const override { return "the index"; }

    int depth_ = 0;
    bool expecting_map_ = false;
    bool inside_ = false;
    std::string name_;
    std::map<std::string, uint32_t, std::less<>> shards_;
};

}  // namespace

Result<WeightMap> parse_weight_map(std::string_view text, const std::string& place) {
    WeightMapEvents events;
    const auto done = events.run(text, place);
    if (!done) return pass(done);
    if (!events.seen || events.map.entries.empty()) {
        return fail(ErrorKind::corrupt, place, "its weight_map names no tensor: download it again");
    }
    const auto finished = events.finish(place);
    if (!finished) return pass(finished);
    return std::move(events.map);
}

}  // namespace waste::container

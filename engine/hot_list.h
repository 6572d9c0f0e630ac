// How often a model's experts were chosen, kept between runs: what a cache should hold before the first token, and
// what a planner may expect of it.
//
// The file, little-endian, 4 bytes an expert (K3: 330 kB):
//   "WASTEHOT", u32 version = 1, u32 layers, u32 experts, u32 bytes of the fingerprint, the fingerprint,
//   u32 counts[layers * experts], u64 XXH3 of everything before it
// Keys are layer * experts + expert, as in engine/replacement.h. Old runs fade: whenever the counts add up to more than
// kMeanCount an expert, all are halved.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/result.h"

namespace waste::engine {

/// One thread.
class HotList {
  public:
    static constexpr uint64_t kMeanCount = 256;

    /// Nothing counted yet.
    HotList(std::string fingerprint, int64_t layers, int64_t experts);
    /// A missing file is an empty list. A damaged one is an error of kind `corrupt`, one of another version or model
    /// `unsupported`; the caller warns and goes on with an empty list, which save() then puts in its place.
    static Result<HotList> load(const std::string& path, const std::string& fingerprint, int64_t layers,
                                int64_t experts);
    /// The bytes of a file; `place` names them in errors.
    static Result<HotList> parse(std::string_view bytes, const std::string& place,
                                 const std::string& fingerprint, int64_t layers, int64_t experts);

    void add(int64_t key, uint32_t count);
    std::span<const uint32_t> counts() const { return counts_; }
    /// The keys with the highest counts, highest first, at most `n`; none that was never used. Ties go to the lower
    /// key.
    std::vector<int64_t> hottest(size_t n) const;

    /// Adds what was counted since load() or the last save() to what the file holds by now, so that of two runs at
    /// once neither is lost, and replaces it at once and durably. Makes the file's directory and that one's parent.
    Result<void> save(const std::string& path);
    std::string file_bytes() const;

  private:
    void fade();

    std::string fingerprint_;
    int64_t layers_;
    int64_t experts_;
    std::vector<uint32_t> counts_;
    std::vector<uint32_t> unsaved_;  ///< of counts_, what no file holds
};

/// $XDG_CACHE_HOME/waste/FINGERPRINT.hot, else ~/.cache/waste/FINGERPRINT.hot; empty where neither is set.
std::string hot_list_path(const std::string& fingerprint);

/// The share of uses that find their expert resident if uses go on as counted and the hottest experts stay: of `slots`,
/// top_k are always taken by the layer at work. Every expert counts for half a use more than it has, so that few
/// counts promise little. 0 to 1. A cache that follows what the last tokens used does somewhat better
/// (docs/measurements/2026-11-30-replacement.md).
double expected_hit_rate(std::span<const uint32_t> counts, int64_t slots, int64_t top_k);

}  // namespace waste::engine

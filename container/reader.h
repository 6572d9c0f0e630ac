// An opened container: everything mapped, everything checked that can be checked without reading the weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/file.h"
#include "container/manifest.h"
#include "container/result.h"
#include "kernels/panel.h"

namespace waste::container {

/// A tensor of the trunk where it lies in the mapping; lives as long as the Container.
struct TensorView {
    const TensorEntry* entry;
    std::span<const std::byte> data;

    /// Matrix `batch` of a panel tensor (0 unless it has three dimensions).
    kernels::Panels panels(int64_t batch = 0) const;
    /// An f32 tensor in rows.
    std::span<const float> floats() const;
};

/// The three matrices of one expert where they lie; lives as long as the Container.
struct ExpertView {
    kernels::Panels gate;
    kernels::Panels up;
    kernels::Panels down;
};

/// One line of what `verify` found.
struct Damage {
    std::string what;  ///< "tensor layers.3.self_attn.q_proj", "layer 4 expert 17", "file tiktoken.model"
    std::string message;
};

/// Immutable and thread-safe once open.
class Container {
  public:
    /// Refuses what is not a finished container, whose files are short, or whose fingerprint does not match
    /// its manifest, tables and carried files.
    static Result<Container> open(const std::string& directory);
    Container(Container&&) noexcept;
    Container& operator=(Container&&) noexcept;
    ~Container();

    const std::string& directory() const;
    const Manifest& manifest() const;
    Result<TensorView> tensor(std::string_view name) const;

    /// Row `row` of a tensor in rows, as f32, read from the file and not through the mapping: the embedding
    /// never becomes resident.
    Result<void> read_row(const TensorView& tensor, int64_t row, std::span<float> out) const;

    /// Expert `expert` of manifest().banks[bank]. Its hash is checked the first time; a mismatch names layer
    /// and expert. Thread-safe.
    Result<ExpertView> expert(size_t bank, int64_t expert) const;
    /// Where its record lies in the bank's file. Both indices must be in range.
    const ExpertEntry& expert_entry(size_t bank, int64_t expert) const;
    /// The matrices of a record of that bank that lies elsewhere in memory, its hash checked by the caller.
    ExpertView expert_at(size_t bank, std::span<const std::byte> record) const;
    /// Tells the kernel that these experts are wanted now, so that their reads overlap.
    void prefetch(size_t bank, std::span<const int32_t> experts) const;

    /// Reads every byte and compares every checksum. `progress(done, total)` in bytes; returning false stops.
    Result<std::vector<Damage>> verify(const std::function<bool(uint64_t, uint64_t)>& progress) const;

    /// A carried file's content (hash already checked at open), or not_found.
    Result<std::string> carried_file(std::string_view name) const;

  private:
    struct State;
    explicit Container(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

/// True if `path` looks like a container or an unfinished one (for choosing a message, not for trusting it).
bool is_container(const std::string& path);

}  // namespace waste::container

// What a conversion has finished so far, so that a later run goes on where an earlier one stopped.
//
// `convert.journal` in the destination: one line per finished layer of the trunk and per finished bank, each
// with its own checksum; a line is written once the bytes it speaks of are on the drive. A torn last line is
// ignored. The first line identifies source, options and format version: another conversion's journal is
// refused.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "container/file.h"
#include "container/result.h"

namespace waste::engine {

class Journal {
  public:
    /// Opens the destination's journal, or starts one.
    static Result<Journal> open(const std::string& directory, const std::string& identity);

    /// Hashes of the finished trunk layer's tensors, in file order, or null.
    const std::vector<uint64_t>* trunk_layer(int64_t layer) const;
    /// Table hash of a finished bank, or null.
    const uint64_t* bank(int64_t layer) const;

    Result<void> finish_trunk_layer(int64_t layer, const std::vector<uint64_t>& hashes);
    Result<void> finish_bank(int64_t layer, uint64_t table_hash);

  private:
    explicit Journal(container::AppendFile file) : file_(std::move(file)) {}

    container::AppendFile file_;
    std::map<int64_t, std::vector<uint64_t>> trunk_;
    std::map<int64_t, uint64_t> banks_;
};

}  // namespace waste::engine

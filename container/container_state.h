// What an open Container holds; shared by reader.cc and verify.cc only.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "container/reader.h"

namespace waste::container {

struct OpenBank {
    MappedFile file;
    std::vector<ExpertEntry> table;
    /// One flag an expert: its hash was compared and matched.
    std::unique_ptr<std::atomic<bool>[]> checked;

    std::span<const std::byte> record(size_t expert) const {
        return file.bytes().subspan(table[expert].offset, table[expert].length);
    }
};

struct Container::State {
    std::string directory;
    Manifest manifest;
    MappedFile trunk;
    ReadableFile trunk_reader;
    std::vector<OpenBank> banks;                             ///< as manifest.banks
    bool fits_in_memory;                                     ///< what was read once may be expected to stay
    std::vector<std::string> files;                          ///< contents, as manifest.files
    std::unordered_map<std::string_view, size_t> tensor_at;  ///< name -> index in manifest.tensors
};

}  // namespace waste::container

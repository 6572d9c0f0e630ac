// Files opened for DriveReader, each past the page cache where its file system can.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "container/result.h"
#include "container/system.h"

namespace waste::container {

struct ReadFile {
    Descriptor descriptor;
    bool direct = false;      ///< reads go past the page cache
    bool drop_pages = false;  ///< pages are to be given back once read
};

struct ReadFiles {
    std::vector<ReadFile> files;
    bool direct = false;         ///< all of them
    std::string why_not_direct;  ///< empty where `direct`
};

/// Opens all of `paths`, or none. Whether direct reads work is found by reading: some file systems take the
/// flag and then refuse the read.
Result<ReadFiles> open_read_files(const std::vector<std::string>& paths, bool direct);

/// Gives the page cache's copy of a range back, where the file wants that.
void drop_pages(const ReadFile& file, uint64_t offset, uint64_t length);

}  // namespace waste::container

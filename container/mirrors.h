// Copies of a container's large files in other directories, on drives that are to be read beside its own.
#pragma once

#include <string>
#include <vector>

#include "container/drive_reader.h"
#include "container/manifest.h"
#include "container/result.h"

namespace waste::container {

/// The files of a container that a reader is given, in its order: the banks as the manifest has them, then the trunk.
std::vector<std::string> read_paths(const std::string& directory, const Manifest& manifest);

/// What `mirrors` have of those files, the first mirror as drive 1. Refuses a directory without a manifest of the same
/// fingerprint, one with none of the files, and a copy of another length. Bytes are compared with their checksums as they
/// are read.
Result<std::vector<FileCopy>> find_copies(const Manifest& manifest, const std::vector<std::string>& mirrors);

}  // namespace waste::container

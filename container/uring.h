// Pieces through an io_uring: a queue that the kernel works off, one system call for all that is new and all
// that has ended.
#pragma once

#include <memory>
#include <vector>

#include "container/read_backend.h"
#include "container/read_files.h"
#include "container/result.h"

namespace waste::container {

/// `files` outlive the backend. An error of kind `unsupported` where the kernel does not grant a ring or
/// cannot read through it (an old kernel, a sandbox, an emulator).
Result<std::unique_ptr<ReadBackend>> make_uring_backend(const std::vector<ReadFile>& files, int depth);

}  // namespace waste::container

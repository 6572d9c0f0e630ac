// Pieces through threads that each wait inside a pread: for where there is no io_uring.
#pragma once

#include <memory>
#include <vector>

#include "container/read_backend.h"
#include "container/read_files.h"
#include "container/result.h"

namespace waste::container {

/// `files` outlive the backend. An error of kind `capacity` where the system grants no thread.
Result<std::unique_ptr<ReadBackend>> make_thread_backend(const std::vector<ReadFile>& files, int depth);

}  // namespace waste::container

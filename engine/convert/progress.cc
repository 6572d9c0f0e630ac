#include "engine/convert/progress.h"

namespace waste::engine {

Result<void> ProgressMeter::advance(uint64_t bytes, const std::string& what) {
    return add(bytes, 0, what);
}

Result<void> ProgressMeter::skip(uint64_t bytes, const std::string& what) {
    return add(bytes, bytes, what);
}

Result<void> ProgressMeter::add(uint64_t bytes, uint64_t skipped, const std::string& what) {
    const std::lock_guard lock(mutex_);
    progress_.bytes_done += bytes;
    progress_.bytes_skipped += skipped;
    progress_.what = what;
    if (report_ && !report_(progress_)) {
        return fail(ErrorKind::interrupted, destination_,
                    "stopped; run the same command again to go on from here");
    }
    return {};
}

}  // namespace waste::engine

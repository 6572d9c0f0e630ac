#include "container/io_stats.h"

#include <fstream>
#include <string>

namespace waste::container {

std::optional<uint64_t> drive_bytes_read() {
    std::ifstream file("/proc/self/io");
    std::string key;
    uint64_t value = 0;
    while (file >> key >> value) {
        if (key == "read_bytes:") return value;
    }
    return std::nullopt;
}

}  // namespace waste::container

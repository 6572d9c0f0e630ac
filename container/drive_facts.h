// Which drive holds a path, as far as the system tells.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "container/result.h"

namespace waste::container {

/// What is not known is empty.
struct DriveFacts {
    uint64_t device = 0;             ///< number of the file system's device (st_dev)
    std::string file_system;         ///< "ext4", "tmpfs", "fuse.sshfs"
    std::string mount_point;         ///< "/", "/mnt/models"
    std::string name;                ///< "nvme0n1p2", or what is mounted: "server:/export"
    std::string model;               ///< "Samsung SSD 990 PRO 2TB"
    std::optional<bool> rotational;  ///< as the system believes; virtual drives often claim it
    std::string link;                ///< "16.0 GT/s PCIe x4"

    /// "major:minor" of the device.
    std::string device_text() const;
};

/// Of an existing file or directory. `root` stands before every path of /proc and /sys ("" outside tests).
Result<DriveFacts> read_drive_facts(const std::string& path, const std::string& root);

}  // namespace waste::container

#include "container/drive_facts.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <vector>

#include "container/file.h"
#include "container/system.h"

namespace waste::container {
namespace {

std::vector<std::string_view> words_of(std::string_view line) {
    std::vector<std::string_view> words;
    while (!line.empty()) {
        const size_t end = std::min(line.find(' '), line.size());
        if (end > 0) words.push_back(line.substr(0, end));
        line.remove_prefix(std::min(end + 1, line.size()));
    }
    return words;
}

/// mountinfo writes blanks and backslashes as three octal digits.
std::string without_escapes(std::string_view text) {
    std::string plain;
    const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
    for (size_t i = 0; i < text.size(); i++) {
        const bool escaped = text[i] == '\\' && text.size() - i > 3 && is_octal(text[i + 1]) &&
                             is_octal(text[i + 2]) && is_octal(text[i + 3]);
        if (!escaped) {
            plain += text[i];
            continue;
        }
        plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
        i += 3;
    }
    return plain;
}

bool is_below(const std::string& path, const std::string& directory) {
    if (directory == "/") return path.starts_with('/');
    return path.starts_with(directory) && (path.size() == directory.size() || path[directory.size()] == '/');
}

/// "36 35 8:1 ROOT MOUNT_POINT options… - TYPE SOURCE …": the deepest mount above `path`, the last of equals.
void read_mount(const std::string& mountinfo, const std::string& path, DriveFacts& facts) {
    std::string_view rest = mountinfo;
    while (!rest.empty()) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        const auto words = words_of(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
        size_t dash = 5;
        while (dash < words.size() && words[dash] != "-") dash++;
        if (dash + 2 >= words.size()) continue;
        std::string mount_point = without_escapes(words[4]);
        if (!is_below(path, mount_point) || mount_point.size() < facts.mount_point.size()) continue;
        facts.mount_point = std::move(mount_point);
        facts.file_system = words[dash + 1];
        facts.name = without_escapes(words[dash + 2]);
    }
}

/// The first line, without blanks at its ends; empty where it cannot be read.
std::string line_of(const std::string& path) {
    std::string text = read_pseudo_file(path).value_or(std::string());
    text.erase(std::min(text.find('\n'), text.size()));
    while (text.ends_with(' ')) text.pop_back();
    return text;
}

/// A partition's directory lies in its drive's.
std::string drive_directory(const DriveFacts& facts, const std::string& root) {
    std::string directory = root + "/sys/dev/block/" + facts.device_text();
    // Some file systems have device numbers of their own; then what is mounted tells.
    if (!is_directory(directory)) directory = root + "/sys/class/block/" + base_name(facts.name);
    return is_file(directory + "/partition") ? directory + "/.." : directory;
}

void read_drive(const std::string& directory, DriveFacts& facts) {
    const std::string rotational = line_of(directory + "/queue/rotational");
    if (rotational == "0" || rotational == "1") facts.rotational = rotational == "1";
    facts.model = line_of(directory + "/device/model");
    // An NVMe drive's device is its controller, and the controller's the PCI function.
    const std::string speed = line_of(directory + "/device/device/current_link_speed");
    const std::string width = line_of(directory + "/device/device/current_link_width");
    if (!speed.empty() && !width.empty()) facts.link = speed + " x" + width;
}

}  // namespace

std::string DriveFacts::device_text() const {
    return fmt::format("{}:{}", major(device), minor(device));
}

Result<DriveFacts> read_drive_facts(const std::string& path, const std::string& root) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return system_failure(errno, path, "find its drive");
    std::error_code code;
    const auto whole_path = std::filesystem::canonical(path, code);
    if (code) return system_failure(code.value(), path, "find its drive");
    DriveFacts facts;
    facts.device = status.st_dev;
    const auto mountinfo = read_pseudo_file(root + "/proc/self/mountinfo");
    if (mountinfo) read_mount(*mountinfo, whole_path.string(), facts);
    if (facts.name.starts_with("/dev/")) {
        const auto device = std::filesystem::canonical(facts.name, code);  // of /dev/mapper/NAME
        facts.name = base_name(code ? facts.name : device.string());
        read_drive(drive_directory(facts, root), facts);
    }
    return facts;
}

}  // namespace waste::container

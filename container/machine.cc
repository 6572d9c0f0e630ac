#include "container/machine.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "container/file.h"
#include "container/system.h"

namespace waste::container {
namespace {

constexpr size_t kMaxPseudoFileBytes = 1 << 20;

/// Files of /proc and of control groups have no size to ask for.
Result<std::string> read_pseudo_file(const std::string& path) {
    const auto file = open_descriptor(path, O_RDONLY);
    if (!file) return pass(file);
    std::string text;
    char buffer[4096];
    while (text.size() < kMaxPseudoFileBytes) {
        const ssize_t got = read(file->number(), buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return system_failure(errno, path, "read");
        if (got == 0) break;
        text.append(buffer, static_cast<size_t>(got));
    }
    return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (!text.empty()) {
        const size_t end = std::min(text.find(separator), text.size());
        parts.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return parts;
}

bool contains(const std::vector<std::string_view>& parts, std::string_view wanted) {
    return std::find(parts.begin(), parts.end(), wanted) != parts.end();
}

/// The number a text starts with; nothing for "max".
std::optional<uint64_t> leading_number(std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() ? std::optional(value) : std::nullopt;
}

Result<uint64_t> physical_memory(const std::string& root) {
    const std::string path = root + "/proc/meminfo";
    const auto text = read_pseudo_file(path);
    if (!text) return pass(text);
    constexpr std::string_view kKey = "MemTotal:";
    for (std::string_view line : split(*text, '\n')) {
        if (!line.starts_with(kKey)) continue;
        line.remove_prefix(std::min(line.find_first_not_of(' ', kKey.size()), line.size()));
        if (const auto kib = leading_number(line)) return *kib << 10;
    }
    return fail(ErrorKind::unsupported, path, "does not tell MemTotal");
}

/// The process's group in the hierarchy that limits memory: version 2's "0::/path", or version 1's
/// "7:memory:/path".
std::string_view group_path(std::string_view self_cgroup, bool version_2) {
    for (const std::string_view line : split(self_cgroup, '\n')) {
        const size_t first = line.find(':');
        const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
        if (second == line.npos) continue;
        const std::string_view controllers = line.substr(first + 1, second - first - 1);
        if (version_2 ? controllers.empty() : contains(split(controllers, ','), "memory")) {
            return line.substr(second + 1);
        }
    }
    return {};
}

void apply_limit(const std::string& path, MachineMemory& memory) {
    const auto text = read_pseudo_file(path);
    if (!text) return;  // a root group, for example, has no limits
    const auto limit = leading_number(*text);
    if (!limit || *limit >= memory.usable_bytes) return;
    memory.usable_bytes = *limit;
    memory.limited_by = path;
}

/// One line of mountinfo: "36 35 0:31 ROOT MOUNT_POINT options… - TYPE SOURCE SUPER_OPTIONS".
void apply_mount(std::string_view line, std::string_view self_cgroup, const std::string& root,
                 MachineMemory& memory) {
    const auto fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 5 || fields.end() - dash < 4) return;
    const bool version_2 = dash[1] == "cgroup2";
    if (!version_2 && !(dash[1] == "cgroup" && contains(split(dash[3], ','), "memory"))) return;
    std::string_view group = group_path(self_cgroup, version_2);
    const std::string_view mount_root = fields[3] == "/" ? "" : fields[3];
    // A group outside what is mounted here can only be judged by the mount itself.
    const bool inside = group.starts_with(mount_root) && group.find("..") == group.npos;
    group = inside ? group.substr(mount_root.size()) : "";
    if (!group.starts_with('/')) group = "";
    while (true) {
        const std::string directory = root + std::string(fields[4]) + std::string(group);
        for (const char* name : {"memory.max", "memory.high", "memory.limit_in_bytes"}) {
            apply_limit(join_path(directory, name), memory);
        }
        if (group.empty()) return;
        const size_t slash = group.rfind('/');
        group = group.substr(0, slash == group.npos ? 0 : slash);
    }
}

}  // namespace

Result<MachineMemory> read_machine_memory(const std::string& root) {
    const auto physical = physical_memory(root);
    if (!physical) return pass(physical);
    MachineMemory memory{*physical, *physical, {}};
    const auto self_cgroup = read_pseudo_file(root + "/proc/self/cgroup");
    const auto mounts = read_pseudo_file(root + "/proc/self/mountinfo");
    if (!self_cgroup || !mounts) return memory;  // a kernel without control groups
    for (const std::string_view line : split(*mounts, '\n')) {
        apply_mount(line, *self_cgroup, root, memory);
    }
    return memory;
}

}  // namespace waste::container

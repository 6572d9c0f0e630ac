#include "container/machine.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "container/file.h"
#include "container/system.h"

namespace waste::container {
namespace {

constexpr uint64_t kMostCpus = 1 << 16;

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

/// The process's group in the hierarchy of a controller: version 2's "0::/path", or version 1's "7:memory:/path".
std::string_view group_path(std::string_view self_cgroup, bool version_2, std::string_view controller) {
    for (const std::string_view line : split(self_cgroup, '\n')) {
        const size_t first = line.find(':');
        const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
        if (second == line.npos) continue;
        const std::string_view controllers = line.substr(first + 1, second - first - 1);
        if (version_2 ? controllers.empty() : contains(split(controllers, ','), controller)) {
            return line.substr(second + 1);
        }
    }
    return {};
}

using Visit = std::function<void(const std::string& directory)>;

/// One line of mountinfo: "36 35 0:31 ROOT MOUNT_POINT options… - TYPE SOURCE SUPER_OPTIONS".
void visit_mount(std::string_view line, std::string_view self_cgroup, const std::string& root,
                 std::string_view controller, const Visit& visit) {
    const auto fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 5 || fields.end() - dash < 4) return;
    const bool version_2 = dash[1] == "cgroup2";
    if (!version_2 && !(dash[1] == "cgroup" && contains(split(dash[3], ','), controller))) return;
    std::string_view group = group_path(self_cgroup, version_2, controller);
    const std::string_view mount_root = fields[3] == "/" ? "" : fields[3];
    // A group outside what is mounted here can only be judged by the mount itself.
    const bool inside = group.starts_with(mount_root) && group.find("..") == group.npos;
    group = inside ? group.substr(mount_root.size()) : "";
    if (!group.starts_with('/')) group = "";
    while (true) {
        visit(root + std::string(fields[4]) + std::string(group));
        if (group.empty()) return;
        const size_t slash = group.rfind('/');
        group = group.substr(0, slash == group.npos ? 0 : slash);
    }
}

/// The directories of the process's control group and all its ancestors, as far as they are mounted; none on a kernel
/// without control groups.
void visit_groups(const std::string& root, std::string_view controller, const Visit& visit) {
    const auto self_cgroup = read_pseudo_file(root + "/proc/self/cgroup");
    const auto mounts = read_pseudo_file(root + "/proc/self/mountinfo");
    if (!self_cgroup || !mounts) return;
    for (const std::string_view line : split(*mounts, '\n')) {
        visit_mount(line, *self_cgroup, root, controller, visit);
    }
}

void apply_limit(const std::string& path, MachineMemory& memory) {
    const auto text = read_pseudo_file(path);
    if (!text) return;  // a root group, for example, has no limits
    const auto limit = leading_number(*text);
    if (!limit || *limit >= memory.usable_bytes) return;
    memory.usable_bytes = *limit;
    memory.limited_by = path;
}

/// CPUs' worth of time that a group grants: version 2's "QUOTA PERIOD" or "max PERIOD", or version 1's two files, the
/// quota -1 for none.
std::optional<uint64_t> group_quota(const std::string& directory) {
    std::string text = read_pseudo_file(join_path(directory, "cpu.max")).value_or(std::string());
    if (text.empty()) {
        text = read_pseudo_file(join_path(directory, "cpu.cfs_quota_us")).value_or(std::string()) + " " +
               read_pseudo_file(join_path(directory, "cpu.cfs_period_us")).value_or(std::string());
    }
    std::replace(text.begin(), text.end(), '\n', ' ');
    std::vector<std::string_view> words = split(text, ' ');
    std::erase(words, "");
    if (words.size() < 2) return std::nullopt;
    const auto quota = leading_number(words[0]), period = leading_number(words[1]);
    if (!quota || !period || *quota == 0 || *period == 0) return std::nullopt;
    return (*quota - 1) / *period + 1;
}

}  // namespace

Result<MachineMemory> read_machine_memory(const std::string& root) {
    const auto physical = physical_memory(root);
    if (!physical) return pass(physical);
    MachineMemory memory{*physical, *physical, {}};
    visit_groups(root, "memory", [&](const std::string& directory) {
        for (const char* name : {"memory.max", "memory.high", "memory.limit_in_bytes"}) {
            apply_limit(join_path(directory, name), memory);
        }
    });
    return memory;
}

int read_cpu_quota(const std::string& root) {
    uint64_t least = 0;
    visit_groups(root, "cpu", [&](const std::string& directory) {
        const auto quota = group_quota(directory);
        if (quota && (least == 0 || *quota < least)) least = *quota;
    });
    return static_cast<int>(std::min(least, kMostCpus));
}

}  // namespace waste::container

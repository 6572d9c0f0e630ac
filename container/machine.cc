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

/// The number behind a key that starts a line, for example "MemTotal:   123 kB" or "inactive_file 456".
std::optional<uint64_t> value_of(std::string_view text, std::string_view key) {
    for (std::string_view line : split(text, '\n')) {
        if (!line.starts_with(key)) continue;
        line.remove_prefix(key.size());
        const size_t number = line.find_first_not_of(" \t");
        if (number != 0 && number != line.npos) return leading_number(line.substr(number));
    }
    return std::nullopt;
}

/// A line of /proc/meminfo or a process's status, in bytes; its text was read from `path`.
Result<uint64_t> meminfo_bytes(std::string_view text, const char* name, const std::string& path) {
    const auto kib = value_of(text, std::string(name) + ":");
    if (!kib || *kib > UINT64_MAX >> 10) {
        return fail(ErrorKind::unsupported, path, std::string("does not tell ") + name);
    }
    return *kib << 10;
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

/// The number that a file of a control group starts with; nothing for "max", or where there is no such file (a root
/// group, for example, has no limits).
std::optional<uint64_t> group_number(const std::string& path) {
    const auto text = read_pseudo_file(path);
    return text ? leading_number(*text) : std::nullopt;
}

constexpr const char* kLimitNames[] = {"memory.max", "memory.high", "memory.limit_in_bytes"};

void apply_limit(const std::string& path, MachineMemory& memory) {
    const auto limit = group_number(path);
    if (!limit || *limit >= memory.usable_bytes) return;
    memory.usable_bytes = *limit;
    memory.limited_by = path;
}

/// What a group's processes hold and the kernel cannot just drop: usage less file pages, in both versions' names.
std::optional<uint64_t> group_held_bytes(const std::string& directory) {
    auto usage = group_number(join_path(directory, "memory.current"));
    const bool version_2 = usage.has_value();
    if (!version_2) usage = group_number(join_path(directory, "memory.usage_in_bytes"));
    const auto stat = read_pseudo_file(join_path(directory, "memory.stat"));
    if (!usage || !stat) return usage;
    uint64_t held = *usage;
    // Version 1 counts descendants in lines of their own, version 2 in every line.
    const std::string prefix = version_2 ? "" : "total_";
    for (const char* key : {"inactive_file", "active_file"}) {
        held -= std::min(held, value_of(*stat, prefix + key).value_or(0));
    }
    return held;
}

void apply_room(const std::string& directory, MemoryNow& now) {
    const auto held = group_held_bytes(directory);
    if (!held) return;
    for (const char* name : kLimitNames) {
        const std::string path = join_path(directory, name);
        const auto limit = group_number(path);
        if (!limit) continue;
        const uint64_t room = *limit - std::min(*held, *limit);
        if (room >= now.available_bytes) continue;
        now.available_bytes = room;
        now.limited_by = path;
    }
}

/// "some avg10=0.12 avg60=…" of a file of pressure stall information.
std::optional<double> read_pressure(const std::string& path) {
    const auto text = read_pseudo_file(path);
    constexpr std::string_view kStart = "some avg10=";
    if (!text || !text->starts_with(kStart)) return std::nullopt;
    double percent = 0;
    const auto [end, error] =
        std::from_chars(text->data() + kStart.size(), text->data() + text->size(), percent);
    // Not a number fails both comparisons.
    return error == std::errc() && percent >= 0 && percent <= 100 ? std::optional(percent) : std::nullopt;
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
    const std::string path = root + "/proc/meminfo";
    const auto meminfo = read_pseudo_file(path);
    if (!meminfo) return pass(meminfo);
    const auto physical = meminfo_bytes(*meminfo, "MemTotal", path);
    if (!physical) return pass(physical);
    MachineMemory memory{*physical, *physical, {}};
    visit_groups(root, "memory", [&](const std::string& directory) {
        for (const char* name : kLimitNames) apply_limit(join_path(directory, name), memory);
    });
    return memory;
}

Result<MemoryNow> read_memory_now(const std::string& root) {
    const std::string path = root + "/proc/meminfo";
    const auto meminfo = read_pseudo_file(path);
    if (!meminfo) return pass(meminfo);
    const auto available = meminfo_bytes(*meminfo, "MemAvailable", path);
    if (!available) return pass(available);
    MemoryNow now{*available, {}, {}, meminfo_bytes(*meminfo, "SwapTotal", path).value_or(0) > 0};
    visit_groups(root, "memory", [&](const std::string& directory) {
        apply_room(directory, now);
        // The process's own group comes first.
        if (!now.pressure_percent)
            now.pressure_percent = read_pressure(join_path(directory, "memory.pressure"));
    });
    if (!now.pressure_percent) now.pressure_percent = read_pressure(root + "/proc/pressure/memory");
    return now;
}

uint64_t read_taken_bytes(const std::string& root, int64_t pid) {
    const std::string path = root + "/proc/" + std::to_string(pid) + "/status";
    const auto status = read_pseudo_file(path);
    if (!status) return 0;
    const uint64_t anonymous = meminfo_bytes(*status, "RssAnon", path).value_or(0);
    const uint64_t shared = meminfo_bytes(*status, "RssShmem", path).value_or(0);
    return anonymous <= UINT64_MAX - shared ? anonymous + shared : UINT64_MAX;
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

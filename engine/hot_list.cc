#include "engine/hot_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <thread>

#include "container/checksum.h"
#include "container/file.h"

namespace waste::engine {
namespace {

constexpr std::string_view kMagic = "WASTEHOT";
constexpr uint32_t kVersion = 1;
constexpr size_t kChecksumBytes = 8;
constexpr uint64_t kMaxFileBytes = uint64_t{16} << 20;

template <typename T>
void append(std::string& out, T value) {
    for (size_t i = 0; i < sizeof(T); i++) out += static_cast<char>(value >> (8 * i));
}

template <typename T>
T read(std::string_view bytes, size_t at) {
    T value = 0;
    for (size_t i = 0; i < sizeof(T); i++)
        value |= static_cast<T>(T{static_cast<uint8_t>(bytes[at + i])} << (8 * i));
    return value;
}

std::string header_bytes(const std::string& fingerprint, int64_t layers, int64_t experts) {
    std::string out(kMagic);
    append(out, kVersion);
    append(out, static_cast<uint32_t>(layers));
    append(out, static_cast<uint32_t>(experts));
    append(out, static_cast<uint32_t>(fingerprint.size()));
    return out + fingerprint;
}

uint32_t add_saturated(uint32_t a, uint32_t b) {
    return a + std::min(b, std::numeric_limits<uint32_t>::max() - a);
}

std::string parent_directory(const std::string& path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

Result<void> make_parents(const std::string& directory) {
    if (container::is_directory(directory)) return {};
    const std::string above = parent_directory(directory);
    if (!container::is_directory(above)) {
        if (const auto made = container::make_directory(above); !made) return made;
    }
    return container::make_directory(directory);
}

/// Another process holds the lock for the milliseconds that its own save takes.
Result<container::DirectoryLock> wait_for_lock(const std::string& directory) {
    constexpr int kTries = 100;
    for (int i = 1;; i++) {
        auto lock = container::DirectoryLock::acquire(directory);
        if (lock || lock.error().kind != ErrorKind::invalid || i == kTries) return lock;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

}  // namespace

HotList::HotList(std::string fingerprint, int64_t layers, int64_t experts)
    : fingerprint_(std::move(fingerprint)),
      layers_(layers),
      experts_(experts),
      counts_(static_cast<size_t>(layers * experts)),
      unsaved_(counts_.size()) {}

Result<HotList> HotList::load(const std::string& path, const std::string& fingerprint, int64_t layers,
                              int64_t experts) {
    if (!container::is_file(path)) return HotList(fingerprint, layers, experts);
    const auto bytes = container::read_text_file(path, kMaxFileBytes);
    if (!bytes) return pass(bytes);
    return parse(*bytes, path, fingerprint, layers, experts);
}

Result<HotList> HotList::parse(std::string_view bytes, const std::string& place,
                               const std::string& fingerprint, int64_t layers, int64_t experts) {
    const auto damaged = [&](const char* what) {
        return fail(ErrorKind::corrupt, place,
                    fmt::format("{}; the next run that ends well replaces it", what));
    };
    if (bytes.size() < kMagic.size() + sizeof(kVersion) + kChecksumBytes || !bytes.starts_with(kMagic)) {
        return damaged("is not a list of hot experts");
    }
    const size_t checked = bytes.size() - kChecksumBytes;
    if (container::xxh3_64(bytes.substr(0, checked)) != read<uint64_t>(bytes, checked)) {
        return damaged("is damaged: its checksum does not match");
    }
    if (const auto version = read<uint32_t>(bytes, kMagic.size()); version != kVersion) {
        return fail(ErrorKind::unsupported, place,
                    fmt::format("has version {} of the list of hot experts; this program knows {}", version,
                                kVersion));
    }
    HotList list(fingerprint, layers, experts);
    const std::string header = header_bytes(fingerprint, layers, experts);
    if (!bytes.starts_with(header))
        return fail(ErrorKind::unsupported, place, "is the list of another model");
    if (checked - header.size() != list.counts_.size() * sizeof(uint32_t)) {
        return damaged("is damaged: its length does not fit the model");
    }
    for (size_t i = 0; i < list.counts_.size(); i++) {
        list.counts_[i] = read<uint32_t>(bytes, header.size() + i * sizeof(uint32_t));
    }
    return list;
}

void HotList::add(int64_t key, uint32_t count) {
    for (std::vector<uint32_t>* counts : {&counts_, &unsaved_}) {
        uint32_t& kept = (*counts)[static_cast<size_t>(key)];
        kept = add_saturated(kept, count);
    }
}

std::vector<int64_t> HotList::hottest(size_t n) const {
    std::vector<int64_t> keys;
    for (size_t i = 0; i < counts_.size(); i++) {
        if (counts_[i] > 0) keys.push_back(static_cast<int64_t>(i));
    }
    std::stable_sort(keys.begin(), keys.end(), [&](int64_t a, int64_t b) {
        return counts_[static_cast<size_t>(a)] > counts_[static_cast<size_t>(b)];
    });
    if (keys.size() > n) keys.resize(n);
    return keys;
}

std::string HotList::file_bytes() const {
    std::string out = header_bytes(fingerprint_, layers_, experts_);
    out.reserve(out.size() + counts_.size() * sizeof(uint32_t) + kChecksumBytes);
    for (const uint32_t count : counts_) append(out, count);
    append(out, container::xxh3_64(out));
    return out;
}

void HotList::fade() {
    const auto sum = [&] { return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0}); };
    while (sum() > kMeanCount * counts_.size()) {
        for (uint32_t& count : counts_) count /= 2;
    }
}

Result<void> HotList::save(const std::string& path) {
    const std::string directory = parent_directory(path);
    if (const auto made = make_parents(directory); !made) return made;
    const auto lock = wait_for_lock(directory);
    if (!lock) return pass(lock);
    HotList merged(fingerprint_, layers_, experts_);
    if (auto saved = load(path, fingerprint_, layers_, experts_)) {
        merged = std::move(*saved);
    } else if (saved.error().kind == ErrorKind::io) {
        return pass(saved);
    }
    for (size_t i = 0; i < unsaved_.size(); i++)
        merged.counts_[i] = add_saturated(merged.counts_[i], unsaved_[i]);
    merged.fade();
    const auto written = container::write_file(path, merged.file_bytes());
    if (written) *this = std::move(merged);
    return written;
}

std::string hot_list_path(const std::string& fingerprint) {
    const std::string name = "waste/" + fingerprint + ".hot";
    const char* cache = std::getenv("XDG_CACHE_HOME");
    // The specification has relative paths ignored.
    if (cache != nullptr && cache[0] == '/') return container::join_path(cache, name);
    const char* home = std::getenv("HOME");
    if (home == nullptr || home[0] == '\0') return {};
    return container::join_path(home, ".cache/" + name);
}

double expected_hit_rate(std::span<const uint32_t> counts, int64_t slots, int64_t top_k) {
    const auto keys = static_cast<int64_t>(counts.size());
    if (slots >= keys) return 1;
    if (slots <= top_k) return 0;
    std::vector<uint32_t> sorted(counts.begin(), counts.end());
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    constexpr double kUncounted = 0.5;
    double kept = 0, all = 0;
    for (int64_t i = 0; i < keys; i++) {
        const double count = static_cast<double>(sorted[static_cast<size_t>(i)]) + kUncounted;
        all += count;
        if (i < slots - top_k) kept += count;
    }
    return kept / all;
}

}  // namespace waste::engine

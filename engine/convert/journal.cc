#include "engine/convert/journal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <optional>

#include "container/checksum.h"
#include "container/manifest.h"

namespace waste::engine {
namespace {

constexpr uint64_t kMaxJournalBytes = 64 << 20;

std::string sealed(const std::string& body) {
    return fmt::format("{} #{}", body, container::to_hex(container::xxh3_64(body)));
}

/// The body of a line whose checksum holds, else nothing.
std::optional<std::string_view> unsealed(std::string_view line) {
    const size_t mark = line.rfind(" #");
    if (mark == std::string_view::npos) return std::nullopt;
    const auto hash = container::from_hex(line.substr(mark + 2));
    const std::string_view body = line.substr(0, mark);
    if (!hash || *hash != container::xxh3_64(body)) return std::nullopt;
    return body;
}

std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    while (!text.empty()) {
        const size_t space = std::min(text.find(' '), text.size());
        words.push_back(text.substr(0, space));
        text.remove_prefix(std::min(space + 1, text.size()));
    }
    return words;
}

struct Entry {
    bool trunk;
    int64_t layer;
    std::vector<uint64_t> hashes;
};

std::string body_of(const Entry& entry) {
    std::vector<std::string> hashes;
    for (const uint64_t hash : entry.hashes) hashes.push_back(container::to_hex(hash));
    return fmt::format("{} {} {}", entry.trunk ? "trunk" : "bank", entry.layer, fmt::join(hashes, " "));
}

/// "trunk LAYER HASH…" or "bank LAYER HASH".
std::optional<Entry> parse_entry(std::string_view body) {
    const auto words = words_of(body);
    if (words.size() < 3 || (words[0] != "trunk" && words[0] != "bank")) return std::nullopt;
    Entry entry{words[0] == "trunk", 0, {}};
    const char* end = words[1].data() + words[1].size();
    if (std::from_chars(words[1].data(), end, entry.layer).ptr != end) return std::nullopt;
    for (size_t i = 2; i < words.size(); i++) {
        const auto hash = container::from_hex(words[i]);
        if (!hash) return std::nullopt;
        entry.hashes.push_back(*hash);
    }
    return entry;
}

}  // namespace

Result<Journal> Journal::open(const std::string& directory, const std::string& identity) {
    const std::string path = container::join_path(directory, container::kJournalName);
    const std::string head = "waste-convert " + identity;
    std::string kept = sealed(head) + '\n';
    std::vector<Entry> entries;
    if (container::is_file(path)) {
        auto text = container::read_text_file(path, kMaxJournalBytes);
        if (!text) return pass(text);
        std::string_view rest = *text;
        for (bool first = true; !rest.empty(); first = false) {
            const size_t end = rest.find('\n');
            const auto body = unsealed(rest.substr(0, std::min(end, rest.size())));
            rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
            if (first && body && *body != head) {
                return fail(
                    ErrorKind::invalid, directory,
                    "holds an unfinished conversion of another source or with other options; finish that "
                    "one, remove the directory, or choose another destination");
            }
            if (!body) break;  // torn by a crash: what follows was never acknowledged
            if (first) continue;
            auto entry = parse_entry(*body);
            if (!entry) break;
            kept += sealed(std::string(*body)) + '\n';
            entries.push_back(std::move(*entry));
        }
    }
    if (const auto ok = container::write_file(path, kept); !ok) return pass(ok);
    auto file = container::AppendFile::open(path);
    if (!file) return pass(file);
    Journal journal(std::move(*file));
    for (Entry& entry : entries) {
        if (entry.trunk) {
            journal.trunk_[entry.layer] = std::move(entry.hashes);
        } else {
            journal.banks_[entry.layer] = entry.hashes[0];
        }
    }
    return journal;
}

const std::vector<uint64_t>* Journal::trunk_layer(int64_t layer) const {
    const auto it = trunk_.find(layer);
    return it == trunk_.end() ? nullptr : &it->second;
}

const uint64_t* Journal::bank(int64_t layer) const {
    const auto it = banks_.find(layer);
    return it == banks_.end() ? nullptr : &it->second;
}

Result<void> Journal::finish_trunk_layer(int64_t layer, const std::vector<uint64_t>& hashes) {
    trunk_[layer] = hashes;
    return file_.append(sealed(body_of({true, layer, hashes})));
}

Result<void> Journal::finish_bank(int64_t layer, uint64_t table_hash) {
    banks_[layer] = table_hash;
    return file_.append(sealed(body_of({false, layer, {table_hash}})));
}

}  // namespace waste::engine

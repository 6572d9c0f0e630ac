#include "container/drive_rate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "container/file.h"
#include "container/manifest.h"
#include "container/memory.h"
#include "container/system.h"

namespace waste::container {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kWriteBytes = uint64_t{4} << 20;
constexpr double kAsGoodAsBest = 0.97;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The value below which `share` of them lie.
double quantile(std::vector<double> values, double share) {
    if (values.empty()) return 0;
    const auto position = static_cast<size_t>(std::lround(share * static_cast<double>(values.size() - 1)));
    std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(position), values.end());
    return values[position];
}

Error interrupted_error() {
    return {ErrorKind::interrupted, "", "interrupted"};
}

Result<void> check(const DriveRateOptions& options, uint64_t shortest_file) {
    for (const uint64_t bytes : options.record_bytes) {
        if (bytes == 0 || bytes % kAlignment != 0 || bytes > shortest_file) {
            return fail(ErrorKind::invalid, "",
                        fmt::format("records of {} bytes: not a multiple of {} up to the file's {} bytes",
                                    bytes, kAlignment, shortest_file));
        }
    }
    const bool nothing = options.record_bytes.empty() || options.depths.empty() || options.runs < 1;
    if (nothing) return fail(ErrorKind::invalid, "", "no record size, depth or run to measure");
    return {};
}

/// Newer kernels take direct reads here too, and read memory.
bool lives_in_memory(const DriveFacts& facts) {
    return facts.file_system == "tmpfs" || facts.file_system == "ramfs";
}

/// A file without a name: it goes with its descriptor, even if the process is killed.
Result<Descriptor> create_nameless(const std::string& directory) {
    std::string path = join_path(directory, ".waste-drive-XXXXXX");
    Descriptor descriptor(mkostemp(path.data(), O_CLOEXEC));
    if (descriptor.number() < 0) return system_failure(errno, directory, "create a file");
    const auto removed = remove_file(path);
    if (!removed) return pass(removed);
    return descriptor;
}

/// Random bytes, so that no drive and no file system can store less than it is given.
Result<double> fill(const Descriptor& file, const std::string& directory, uint64_t bytes,
                    const std::function<bool(double share)>& go_on) {
    const auto memory = SystemMemory::map(kWriteBytes);
    if (!memory) return fail(ErrorKind::capacity, "", "not enough memory to write from");
    std::mt19937_64 random(bytes);
    const auto begin = Clock::now();
    for (uint64_t offset = 0; offset < bytes; offset += kWriteBytes) {
        if (!go_on(static_cast<double>(offset) / static_cast<double>(bytes))) {
            return tl::unexpected<Error>(interrupted_error());
        }
        const uint64_t length = std::min(kWriteBytes, bytes - offset);
        for (uint64_t i = 0; i < length; i += sizeof(uint64_t)) {
            const uint64_t value = random();
            std::memcpy(memory->data() + i, &value, sizeof value);
        }
        const std::span<const std::byte> chunk(memory->data(), length);
        const auto written = write_fully(file.number(), directory, offset, chunk);
        if (!written) return pass(written);
        // Now and then, so that an interruption need not wait for a gigabyte.
        constexpr uint64_t kSyncBytes = uint64_t{64} << 20;
        if ((offset + length) % kSyncBytes == 0 || offset + length == bytes) {
            const auto synced = sync_descriptor(file.number(), directory);
            if (!synced) return pass(synced);
        }
    }
    const double seconds = seconds_since(begin);
    posix_fadvise(file.number(), 0, 0, POSIX_FADV_DONTNEED);
    return seconds;
}

/// What is read from.
struct Target {
    std::vector<std::string> paths;
    std::vector<uint64_t> bytes;  ///< of each

    uint64_t total() const { return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}); }
};

/// As few records as it takes to keep `depth` pieces in flight.
uint64_t records_in_flight(uint64_t record_bytes, int depth) {
    const uint64_t piece_bytes = std::min(kDefaultPieceBytes, record_bytes);
    const uint64_t ahead = static_cast<uint64_t>(depth - 1) * piece_bytes;
    return 1 + (ahead + record_bytes - 1) / record_bytes;
}

/// Memory to read into, record after record: larger than a processor's caches, as an expert cache is, since writing into
/// memory that they hold costs the drive less.
uint64_t bytes_to_read_into(const DriveRateOptions& options) {
    constexpr uint64_t kUsual = uint64_t{256} << 20;
    uint64_t bytes = kUsual;
    for (const uint64_t record : options.record_bytes) {
        for (const int depth : options.depths) {
            bytes = std::max(bytes, 2 * record * records_in_flight(record, depth));
        }
    }
    return bytes;
}

/// Keeps `depth` pieces in flight.
class RecordReads {
  public:
    RecordReads(DriveReader& reader, const Target& target, std::span<std::byte> memory, uint64_t record_bytes,
                int depth)
        : reader_(reader),
          target_(target),
          memory_(memory),
          record_bytes_(record_bytes),
          count_(records_in_flight(record_bytes, depth)),
          file_(target.bytes.begin(), target.bytes.end()) {}

    /// Reads until the time is over; the rate. Adds each record's time to `latencies`.
    Result<double> run(double seconds, std::mt19937_64& random, std::vector<double>& latencies);

  private:
    struct Slot {
        DriveRead read;
        Clock::time_point begin;
        bool open = false;
    };

    void submit(Slot& slot, std::mt19937_64& random);

    DriveReader& reader_;
    const Target& target_;
    const std::span<std::byte> memory_;
    const uint64_t record_bytes_;
    const uint64_t count_;
    std::discrete_distribution<uint32_t> file_;
    uint64_t next_place_ = 0;  ///< in memory_, in records
};

void RecordReads::submit(Slot& slot, std::mt19937_64& random) {
    slot.read.file = file_(random);
    const uint64_t places = (target_.bytes[slot.read.file] - record_bytes_) / kAlignment;
    slot.read.offset = std::uniform_int_distribution<uint64_t>(0, places)(random) * kAlignment;
    slot.read.to = memory_.data() + next_place_ * record_bytes_;
    next_place_ = (next_place_ + 1) % (memory_.size() / record_bytes_);
    slot.begin = Clock::now();
    slot.open = true;
    DriveRead* read = &slot.read;
    reader_.submit({&read, 1});
}

Result<double> RecordReads::run(double seconds, std::mt19937_64& random, std::vector<double>& latencies) {
    std::deque<Slot> slots(count_);
    for (size_t i = 0; i < slots.size(); i++) {
        slots[i].read.length = record_bytes_;
        slots[i].read.verify = false;
    }
    const auto begin = Clock::now();
    for (Slot& slot : slots) submit(slot, random);
    std::optional<Error> error;
    uint64_t records = 0;
    for (uint64_t open = slots.size(); open > 0;) {
        const uint32_t landed = reader_.landed();
        bool any = false;
        for (Slot& slot : slots) {
            if (!slot.open || slot.read.state.load(std::memory_order_acquire) == ReadState::pending) continue;
            any = true;
            slot.open = false;
            if (slot.read.state.load(std::memory_order_acquire) == ReadState::failed) error = slot.read.error;
            latencies.push_back(seconds_since(slot.begin));
            records++;
            if (error || seconds_since(begin) >= seconds) {
                open--;
            } else {
                submit(slot, random);
            }
        }
        if (!any) reader_.wait_for_landing(landed);
    }
    if (error) return tl::unexpected<Error>(*error);
    return static_cast<double>(records * record_bytes_) / seconds_since(begin);
}

/// All that one measurement shares.
struct Measurement {
    const Target& target;
    std::span<std::byte> memory;
    const DriveRateOptions& options;
    std::mt19937_64 random;
    std::vector<std::vector<double>> latencies;  ///< of each row
};

Result<void> measure_row(Measurement& measurement, DriveRate& rate, size_t index) {
    DriveRateRow& row = rate.rows[index];
    const DriveRateOptions& options = measurement.options;
    const auto reader = DriveReader::start(measurement.target.paths, {options.method, true, row.depth, 0});
    if (!reader) return pass(reader);
    rate.direct = (*reader)->direct() && !lives_in_memory(rate.facts);
    const std::string description = (*reader)->description();
    rate.description = description.substr(0, description.find(", depth"));
    RecordReads reads(**reader, measurement.target, measurement.memory, row.record_bytes, row.depth);
    const auto bytes_per_second =
        reads.run(options.seconds_each, measurement.random, measurement.latencies[index]);
    if (!bytes_per_second) return pass(bytes_per_second);
    row.bytes_per_second.push_back(*bytes_per_second);
    return {};
}

Result<void> measure_rows(const Target& target, const DriveRateOptions& options,
                          const DriveProgress& progress, double share_before, DriveRate& rate) {
    const auto memory = SystemMemory::map(bytes_to_read_into(options));
    if (!memory) return fail(ErrorKind::capacity, "", "not enough memory to read into");
    const std::span<std::byte> all(memory->data(), bytes_to_read_into(options));
    std::memset(all.data(), 0, all.size());  // no page is missing once the clock runs
    Measurement measurement{target, all, options, std::mt19937_64(1), {}};
    rate.file_bytes = target.total();
    for (const uint64_t bytes : options.record_bytes) {
        for (const int depth : options.depths) rate.rows.push_back({bytes, depth, {}, 0, 0});
    }
    measurement.latencies.resize(rate.rows.size());
    const double steps = static_cast<double>(rate.rows.size()) * options.runs;
    double done = 0;
    // Run by run, not row by row: a drive that slows down shows as the spread of every row.
    for (int run = 0; run < options.runs; run++) {
        for (size_t i = 0; i < rate.rows.size(); i++) {
            if (!progress("reading", share_before + (1 - share_before) * done++ / steps)) {
                return tl::unexpected<Error>(interrupted_error());
            }
            const auto measured = measure_row(measurement, rate, i);
            if (!measured) return measured;
        }
    }
    for (size_t i = 0; i < rate.rows.size(); i++) {
        rate.rows[i].median_seconds = quantile(measurement.latencies[i], 0.5);
        rate.rows[i].p99_seconds = quantile(measurement.latencies[i], 0.99);
    }
    return {};
}

}  // namespace

double DriveRateRow::rate() const {
    if (bytes_per_second.empty()) return 0;
    std::vector<double> runs = bytes_per_second;
    std::sort(runs.begin(), runs.end());
    return runs[(runs.size() - 1) / 2];
}

double DriveRateRow::spread() const {
    const auto [least, most] = std::minmax_element(bytes_per_second.begin(), bytes_per_second.end());
    return rate() > 0 ? (*most - *least) / rate() : 0;
}

const DriveRateRow& DriveRate::best() const {
    double fastest = 0;
    for (const DriveRateRow& row : rows) fastest = std::max(fastest, row.rate());
    const DriveRateRow* best = &rows.front();
    for (const DriveRateRow& row : rows) {
        if (row.rate() < kAsGoodAsBest * fastest) continue;
        const bool first = best->rate() < kAsGoodAsBest * fastest;
        if (first || std::pair(row.depth, row.record_bytes) < std::pair(best->depth, best->record_bytes))
            best = &row;
    }
    return *best;
}

Result<DriveRate> measure_read_rate(const std::vector<std::string>& paths, const DriveRateOptions& options,
                                    const DriveProgress& progress) {
    if (paths.empty()) return fail(ErrorKind::invalid, "", "there is no file to read from");
    Target target{paths, {}};
    for (const std::string& path : paths) {
        const auto bytes = file_size(path);
        if (!bytes) return pass(bytes);
        target.bytes.push_back(*bytes);
    }
    const auto checked = check(options, *std::min_element(target.bytes.begin(), target.bytes.end()));
    if (!checked) return pass(checked);
    DriveRate rate;
    const auto facts = read_drive_facts(parent_directory(paths.front()), "");
    if (!facts) return pass(facts);
    rate.facts = *facts;
    const auto measured = measure_rows(target, options, progress, 0, rate);
    if (!measured) return pass(measured);
    return rate;
}

Result<DriveRate> measure_drive_rate(const std::string& directory, const DriveRateOptions& options,
                                     const DriveProgress& progress) {
    const auto checked = check(options, options.file_bytes);
    if (!checked) return pass(checked);
    DriveRate rate;
    const auto facts = read_drive_facts(directory, "");
    if (!facts) return pass(facts);
    rate.facts = *facts;
    const auto room = free_space(directory);
    if (!room) return pass(room);
    if (*room < options.file_bytes) {
        return fail(ErrorKind::capacity, directory,
                    fmt::format("{} bytes are needed for the measurement and {} are free", options.file_bytes,
                                *room));
    }
    const auto file = create_nameless(directory);
    if (!file) return pass(file);
    // Writing often takes as long as all the reading.
    constexpr double kWriteShare = 0.3;
    const auto written = fill(*file, directory, options.file_bytes,
                              [&](double share) { return progress("writing", kWriteShare * share); });
    if (!written) return pass(written);
    rate.write_bytes_per_second = static_cast<double>(options.file_bytes) / *written;
    const Target target{{fmt::format("/proc/self/fd/{}", file->number())}, {options.file_bytes}};
    const auto measured = measure_rows(target, options, progress, kWriteShare, rate);
    if (!measured) return pass(measured);
    return rate;
}

}  // namespace waste::container

#include "engine/memory_watch.h"

#include <algorithm>
#include <chrono>
#include <system_error>

namespace waste::engine {
namespace {

constexpr double kWaiting = 10, kQuiet = 1, kSettling = 5;  ///< percent of the time

}  // namespace

int64_t slots_for(const container::MachineMemory& machine, const container::MemoryNow& now,
                  uint64_t slot_bytes, int64_t slots, int64_t planned, int64_t least) {
    const uint64_t margin = machine.usable_bytes / 16;
    const double pressure = now.pressure_percent.value_or(0);
    int64_t wanted = slots;
    if (now.available_bytes < margin) {
        const uint64_t lacking = (margin - now.available_bytes + slot_bytes - 1) / slot_bytes;
        wanted -= static_cast<int64_t>(std::min(lacking, static_cast<uint64_t>(slots)));
    }
    if (pressure >= kWaiting) wanted = std::min(wanted, slots - std::max<int64_t>(slots / 8, 1));
    if (wanted == slots && pressure <= kQuiet && now.available_bytes > 2 * margin) {
        const auto room = static_cast<int64_t>(std::min<uint64_t>(
            (now.available_bytes - 2 * margin) / slot_bytes, static_cast<uint64_t>(planned)));
        wanted += std::min(room, std::max<int64_t>(planned / 16, 1));
    }
    return std::clamp(wanted, std::min(least, planned), planned);
}

MemoryWatch::MemoryWatch(ExpertStore& experts) : experts_(experts), least_seen_(experts.slots()) {
    if (!experts.streams()) return;
    try {
        thread_ = std::thread([this] { watch(); });
    } catch (const std::system_error&) {
        // No more threads: the budget holds as it was planned.
    }
}

MemoryWatch::~MemoryWatch() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    stopping_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void MemoryWatch::watch() {
    constexpr auto kPause = std::chrono::seconds(1);
    // The ten-second average still shows a pressure that the last cut has ended.
    constexpr auto kSettle = std::chrono::seconds(10);
    auto cut_at = std::chrono::steady_clock::now() - kSettle;
    std::unique_lock lock(mutex_);
    while (!stopping_.wait_for(lock, kPause, [this] { return stop_; })) {
        const auto machine = container::read_machine_memory("");
        auto now = container::read_memory_now("");
        if (!machine || !now) return;
        const auto moment = std::chrono::steady_clock::now();
        if (moment - cut_at < kSettle && now->pressure_percent) now->pressure_percent = kSettling;
        const int64_t slots = experts_.usable_slots();
        const int64_t wanted =
            slots_for(*machine, *now, experts_.slot_bytes(), slots, experts_.slots(), experts_.least_slots());
        if (wanted == slots) continue;
        if (wanted < slots) cut_at = moment;
        experts_.limit_slots(wanted);
        least_seen_.store(std::min(least_seen_.load(std::memory_order_relaxed), wanted),
                          std::memory_order_relaxed);
    }
}

}  // namespace waste::engine

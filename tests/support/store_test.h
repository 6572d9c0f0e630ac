// The expert cache of a small model over a drive that answers when the test says so and fails where it says so.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "container/file.h"
#include "container/read_backend.h"
#include "engine/model.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace waste::test {

/// The banks' files in memory. Reads end at once, or when release() is called.
class TestDrive final : public container::ReadBackend {
  public:
    explicit TestDrive(std::vector<std::string> files) : files_(std::move(files)) {}

    void start(const container::ReadPiece& piece) override {
        const std::lock_guard lock(mutex_);
        pieces_.push_back(piece);
        started_++;
        changed_.notify_all();
    }
    size_t collect(std::span<container::PieceEnd> ends, bool wait) override {
        std::unique_lock lock(mutex_);
        if (wait) changed_.wait(lock, [this] { return woken_ || (!held_ && !pieces_.empty()); });
        woken_ = false;
        size_t count = 0;
        while (!held_ && count < ends.size() && !pieces_.empty()) {
            ends[count++] = {pieces_.front().id, answer(pieces_.front())};
            pieces_.pop_front();
        }
        return count;
    }
    void wake() override {
        const std::lock_guard lock(mutex_);
        woken_ = true;
        changed_.notify_all();
    }

    void hold() {
        const std::lock_guard lock(mutex_);
        held_ = true;
    }
    void release() {
        const std::lock_guard lock(mutex_);
        held_ = false;
        changed_.notify_all();
    }
    void wait_for_started(size_t pieces) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return started_ >= pieces; });
    }
    void break_down(bool broken) {
        const std::lock_guard lock(mutex_);
        broken_ = broken;
    }

  private:
    int64_t answer(const container::ReadPiece& piece) {
        if (broken_) return -EIO;
        std::memcpy(piece.to, files_[piece.file].data() + piece.offset, piece.length);
        return static_cast<int64_t>(piece.length);
    }

    const std::vector<std::string> files_;
    std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    std::deque<container::ReadPiece> pieces_;
    size_t started_ = 0;
    bool held_ = false, broken_ = false, woken_ = false;
};

inline std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// A store of the twelve banks of a model like tiny-k3: sixteen experts each, of which a token chooses four.
class StoreTest : public ::testing::Test {
  protected:
    static constexpr int64_t kTopK = 4, kExperts = 16, kLeast = 2 * kTopK;

    StoreTest() : model_(random_tiny_k3(directory_.file("model.waste"))) {}
    ~StoreTest() override { end(); }

    static engine::Model random_tiny_k3(const std::string& directory) {
        const RandomModelRecipe recipe{engine::TrunkRecipe::q4, kernels::Format::mxfp4};
        const auto written =
            write_random_model(*container::read_text_file(WASTE_TEST_DATA "/tiny-k3/config.json", 1 << 20),
                               recipe, 1, directory);
        if (!written) throw std::runtime_error(written.error().text());
        auto model = engine::Model::open(directory);
        if (!model) throw std::runtime_error(model.error().text());
        return std::move(*model);
    }

    void open(int64_t slots, engine::ReplacementPolicy policy = engine::ReplacementPolicy::lru) {
        end();
        std::vector<std::string> paths, files;
        for (const container::BankEntry& bank : container().manifest().banks) {
            paths.push_back(container().directory() + "/" + bank.file);
            files.push_back(content_of(paths.back()));
        }
        auto drive = std::make_unique<TestDrive>(std::move(files));
        drive_ = drive.get();
        reader_ = std::move(*container::DriveReader::start_with(std::move(drive), std::move(paths), {}));
        store_ =
            std::move(*engine::ExpertStore::open(container(), kTopK, {slots, policy, true}, reader_.get()));
    }
    void end() {
        if (drive_ != nullptr) drive_->release();
        reader_.reset();  // before the memory that it fills
        store_.reset();
        drive_ = nullptr;
    }

    using Lease = engine::ExpertStore::Lease;

    const container::Container& container() const { return model_.container(); }
    size_t banks() const { return container().manifest().banks.size(); }

    /// As many leases as there are slots for.
    std::vector<Lease> acquire(size_t bank, const std::vector<int32_t>& experts, bool at_least_one = false) {
        std::vector<Lease> leases(experts.size());
        leases.resize(store_->acquire(bank, experts, leases, at_least_one));
        return leases;
    }
    /// Whether it is that expert, byte for byte.
    bool holds(const Lease& lease, size_t bank, int32_t expert) const {
        const auto view = lease.view();
        const auto mapped = container().expert(bank, expert);
        if (!view || !mapped) return false;
        return std::memcmp(view->gate.data, mapped->gate.data,
                           container().expert_entry(bank, expert).length) == 0;
    }
    /// As a token that chose these would: taught, asked for, waited for, given back.
    void use(size_t bank, const std::vector<int32_t>& experts) {
        const std::vector<float> scores(kExperts, 0.5f);
        store_->learn(bank, 1, scores, experts);
        const auto leases = acquire(bank, experts);
        ASSERT_EQ(leases.size(), experts.size());
        for (size_t i = 0; i < leases.size(); i++) EXPECT_TRUE(holds(leases[i], bank, experts[i]));
    }
    bool is_here(size_t bank, int32_t expert) const {
        store_->keep_absent(bank, {&expert, 1});
        return expert < 0;
    }
    int64_t resident() const {
        int64_t count = 0;
        for (size_t bank = 0; bank < banks(); bank++) {
            for (int32_t expert = 0; expert < kExperts; expert++) count += is_here(bank, expert);
        }
        return count;
    }
    void wait_until_landed(uint32_t reads) const {
        for (uint32_t seen = store_->landed(); seen < reads; seen = store_->landed()) {
            store_->wait_for_landing(0, seen);
        }
    }

    void wait_for_all_reads() const {
        const engine::ExpertCounters all = store_->counters();
        wait_until_landed(static_cast<uint32_t>(all.misses + all.ahead_reads));
    }

    TempDir directory_;
    engine::Model model_;
    TestDrive* drive_ = nullptr;
    std::unique_ptr<container::DriveReader> reader_;
    std::unique_ptr<engine::ExpertStore> store_;
};

}  // namespace waste::test

#include "container/live_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include "tests/support/child.h"
#include "tests/support/temp_dir.h"

namespace waste::container {
namespace {

namespace fs = std::filesystem;

class LiveFilesTest : public ::testing::Test {
  protected:
    Result<LiveFile> enter(const std::string& content) {
        return LiveFile::enter(directory_, [&](std::span<const LiveEntry>) { return content; });
    }

    std::vector<std::string> contents() {
        const auto entries = list_live_files(directory_);
        EXPECT_TRUE(entries) << entries.error().text();
        std::vector<std::string> out;
        if (entries) {
            for (const LiveEntry& entry : *entries) out.push_back(entry.content);
        }
        std::sort(out.begin(), out.end());
        return out;
    }

    waste::test::TempDir dir_;
    std::string directory_ = dir_.file("live");
};

using Texts = std::vector<std::string>;

TEST_F(LiveFilesTest, ListsWhatLives) {
    EXPECT_EQ(contents(), Texts{});
    {
        const auto one = enter("one");
        ASSERT_TRUE(one) << one.error().text();
        auto two = enter("two");
        EXPECT_EQ(contents(), (Texts{"one", "two"}));
        EXPECT_EQ(list_live_files(directory_)->front().pid, getpid());
        const LiveFile moved = std::move(*two);
        EXPECT_EQ(contents(), (Texts{"one", "two"}));
    }
    EXPECT_EQ(contents(), Texts{});
    EXPECT_TRUE(fs::is_empty(directory_));
}

TEST_F(LiveFilesTest, SeesOtherProcessesUntilTheyEnd) {
    std::optional<Result<LiveFile>> kept;
    waste::test::Child child([&] { kept = enter("child"); });
    EXPECT_EQ(contents(), Texts{"child"});
    EXPECT_EQ(list_live_files(directory_)->front().pid, child.pid());
    child.kill_and_wait();
    EXPECT_FALSE(fs::is_empty(directory_)) << "killed: it leaves its file behind";
    EXPECT_EQ(contents(), Texts{});
    EXPECT_TRUE(fs::is_empty(directory_)) << "which whoever looks next removes";
}

TEST_F(LiveFilesTest, AForkLeavesItsParentsFileAlone) {
    auto file = std::make_unique<Result<LiveFile>>(enter("parent"));
    const pid_t pid = fork();
    if (pid == 0) {
        file.reset();
        _exit(0);
    }
    waitpid(pid, nullptr, 0);
    EXPECT_EQ(contents(), Texts{"parent"});
}

/// Each writes how many it saw. Without the lock some would see the same.
TEST_F(LiveFilesTest, NobodyComesBetweenLookAndEntry) {
    constexpr size_t kEach = 8, kThreads = 4;
    std::vector<std::vector<LiveFile>> files(kThreads);
    std::vector<std::thread> threads;
    for (auto& own : files) {
        threads.emplace_back([this, &own] {
            for (size_t i = 0; i < kEach; i++) {
                auto file = LiveFile::enter(directory_, [](std::span<const LiveEntry> others) {
                    return Result<std::string>(std::to_string(100 + others.size()));
                });
                if (file) own.push_back(std::move(*file));
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    const Texts seen = contents();
    ASSERT_EQ(seen.size(), kEach * kThreads);
    for (size_t i = 0; i < seen.size(); i++) EXPECT_EQ(seen[i], std::to_string(100 + i));
}

TEST_F(LiveFilesTest, ARefusalEntersNothing) {
    const auto refused = LiveFile::enter(directory_, [](std::span<const LiveEntry>) -> Result<std::string> {
        return fail(ErrorKind::capacity, "memory", "is short");
    });
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::capacity);
    EXPECT_FALSE(enter(std::string(4097, 'x')));
    EXPECT_TRUE(fs::is_empty(directory_));
}

TEST_F(LiveFilesTest, IsTheUsersAlone) {
    ASSERT_TRUE(enter("x"));
    EXPECT_EQ(fs::status(directory_).permissions(), fs::perms::owner_all);
    fs::permissions(directory_, fs::perms::owner_all | fs::perms::others_exec);
    const auto open_to_all = list_live_files(directory_);
    ASSERT_FALSE(open_to_all);
    EXPECT_EQ(open_to_all.error().kind, ErrorKind::invalid);
    EXPECT_NE(open_to_all.error().text().find("XDG_RUNTIME_DIR"), std::string::npos);
    EXPECT_FALSE(enter("x"));
}

TEST_F(LiveFilesTest, FollowsNoLinks) {
    const std::string real = dir_.file("real");
    fs::create_directory(real);
    fs::permissions(real, fs::perms::owner_all);
    fs::create_directory_symlink(real, directory_);
    EXPECT_FALSE(list_live_files(directory_));
    EXPECT_FALSE(enter("x"));
    EXPECT_TRUE(fs::is_empty(real));
    fs::remove(directory_);
    std::ofstream(dir_.file("precious")) << "data";
    ASSERT_TRUE(list_live_files(directory_));
    fs::create_symlink(dir_.file("precious"), directory_ + "/77-0");
    EXPECT_EQ(contents(), Texts{});
    EXPECT_TRUE(fs::exists(dir_.file("precious")));
    EXPECT_EQ(fs::file_size(dir_.file("precious")), 4u);
}

TEST_F(LiveFilesTest, LeavesWhatIsNotItsOwn) {
    ASSERT_TRUE(list_live_files(directory_));
    for (const char* name : {"notes", "1", "1-", "-1-0", "0-0", "1-0x", "x-0", "1-0.partial"}) {
        std::ofstream(directory_ + "/" + name) << "data";
    }
    fs::create_directory(directory_ + "/5-0");
    ASSERT_EQ(mkfifo((directory_ + "/6-0").c_str(), 0600), 0);
    EXPECT_EQ(contents(), Texts{});
    EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 10);
}

TEST(UserRuntimeDirectory, IsPrivateOrInTmp) {
    const waste::test::TempDir dir;
    const char* before = std::getenv("XDG_RUNTIME_DIR");
    const std::optional<std::string> saved = before ? std::optional<std::string>(before) : std::nullopt;
    const std::string in_tmp = "/tmp/waste-" + std::to_string(geteuid());
    fs::permissions(dir.path(), fs::perms::owner_all);
    setenv("XDG_RUNTIME_DIR", dir.path().c_str(), 1);
    EXPECT_EQ(user_runtime_directory(), dir.path() + "/waste");
    for (const char* unusable : {"", "relative", "/nonexistent", "/tmp"}) {
        setenv("XDG_RUNTIME_DIR", unusable, 1);
        EXPECT_EQ(user_runtime_directory(), in_tmp) << unusable;
    }
    unsetenv("XDG_RUNTIME_DIR");
    EXPECT_EQ(user_runtime_directory(), in_tmp);
    if (saved) setenv("XDG_RUNTIME_DIR", saved->c_str(), 1);
}

}  // namespace
}  // namespace waste::container

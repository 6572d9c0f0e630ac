#include "container/machine.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace waste::container {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

/// A file tree that stands for a machine of 64 GiB.
class MachineMemoryTest : public ::testing::Test {
  protected:
    void SetUp() override {
        write("proc/meminfo", "MemTotal:       67108864 kB\nMemFree:        1 kB\n");
        write("proc/self/cgroup", "0::/\n");
        write("proc/self/mountinfo", kMountV2);
    }

    void write(const std::string& name, const std::string& content) {
        const std::filesystem::path path = dir_.file(name);
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << content;
    }

    MachineMemory read() {
        const auto memory = read_machine_memory(dir_.path());
        EXPECT_TRUE(memory) << memory.error().text();
        return memory.value_or(MachineMemory{});
    }

    static constexpr const char* kMountV2 =
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "30 22 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
    static constexpr const char* kMountV1 =
        "31 22 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "35 22 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    waste::test::TempDir dir_;
};

TEST_F(MachineMemoryTest, IsPhysicalMemoryWithoutLimits) {
    EXPECT_EQ(read().physical_bytes, 64 * kGiB);
    EXPECT_EQ(read().usable_bytes, 64 * kGiB);
    EXPECT_EQ(read().limited_by, "");
    write("sys/fs/cgroup/memory.max", "max\n");
    write("sys/fs/cgroup/memory.high", std::to_string(65 * kGiB));
    EXPECT_EQ(read().usable_bytes, 64 * kGiB) << "a limit above what there is limits nothing";
}

TEST_F(MachineMemoryTest, TakesTheSmallestLimitOfAllAncestors) {
    write("proc/self/cgroup", "0::/outer/middle/inner\n");
    write("sys/fs/cgroup/outer/middle/inner/memory.max", std::to_string(32 * kGiB));
    EXPECT_EQ(read().usable_bytes, 32 * kGiB);
    write("sys/fs/cgroup/outer/middle/memory.high", std::to_string(16 * kGiB));
    EXPECT_EQ(read().usable_bytes, 16 * kGiB);
    write("sys/fs/cgroup/outer/memory.max", std::to_string(8 * kGiB));
    EXPECT_EQ(read().usable_bytes, 8 * kGiB);
    EXPECT_EQ(read().limited_by, dir_.file("sys/fs/cgroup/outer/memory.max"));
    write("sys/fs/cgroup/memory.max", std::to_string(4 * kGiB));
    EXPECT_EQ(read().usable_bytes, 4 * kGiB);
    write("sys/fs/cgroup/sibling/memory.max", "1\n");
    EXPECT_EQ(read().usable_bytes, 4 * kGiB);
}

TEST_F(MachineMemoryTest, ReadsVersion1) {
    write("proc/self/mountinfo", kMountV1);
    write("proc/self/cgroup", "9:cpu:/wrong\n4:blkio,memory:/a/b\n0::/elsewhere\n");
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT_EQ(read().usable_bytes, 64 * kGiB);
    write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", std::to_string(20 * kGiB));
    EXPECT_EQ(read().usable_bytes, 20 * kGiB);
    write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", std::to_string(10 * kGiB));
    EXPECT_EQ(read().usable_bytes, 10 * kGiB);
    write("sys/fs/cgroup/cpu/wrong/memory.limit_in_bytes", "1\n");
    EXPECT_EQ(read().usable_bytes, 10 * kGiB) << "only the hierarchy that controls memory counts";
}

TEST_F(MachineMemoryTest, FindsGroupsBelowTheRootOfTheMount) {
    // In a container the mount shows a part of the hierarchy, the group is named from the host's root.
    write("proc/self/mountinfo", "30 22 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
    write("proc/self/cgroup", "0::/docker/abc/job\n");
    write("sys/fs/cgroup/memory.max", std::to_string(12 * kGiB));
    EXPECT_EQ(read().usable_bytes, 12 * kGiB);
    write("sys/fs/cgroup/job/memory.max", std::to_string(6 * kGiB));
    EXPECT_EQ(read().usable_bytes, 6 * kGiB);
    for (const char* outside : {"0::/../other\n", "0::/docker/abcdef\n", "0::/\n"}) {
        write("proc/self/cgroup", outside);
        EXPECT_EQ(read().usable_bytes, 12 * kGiB) << outside;
    }
}

TEST_F(MachineMemoryTest, SurvivesOddFiles) {
    write("proc/self/mountinfo",
          "\n- - -\n1 2 3\n30 22 0:26 / /sys/fs/cgroup rw -\n" + std::string(kMountV2));
    write("proc/self/cgroup", "\n:\nx\n0::/a\n");
    write("sys/fs/cgroup/a/memory.max", "\n");
    EXPECT_EQ(read().usable_bytes, 64 * kGiB);
    std::filesystem::remove(dir_.file("proc/self/cgroup"));
    EXPECT_EQ(read().usable_bytes, 64 * kGiB) << "a kernel without control groups";
    write("proc/meminfo", "MemFree: 3 kB\n");
    EXPECT_EQ(read_machine_memory(dir_.path()).error().text(),
              dir_.file("proc/meminfo") + ": does not tell MemTotal");
    std::filesystem::remove(dir_.file("proc/meminfo"));
    EXPECT_EQ(read_machine_memory(dir_.path()).error().kind, ErrorKind::not_found);
}

/// The same machine with 48 GiB available and memory control groups two deep.
class MemoryNowTest : public MachineMemoryTest {
  protected:
    void SetUp() override {
        MachineMemoryTest::SetUp();
        write("proc/meminfo",
              "MemTotal:       67108864 kB\nMemFree:        1 kB\nMemAvailable:   50331648 kB\n"
              "SwapTotal:             0 kB\n");
    }

    /// A group's usage, of which `inactive` and `active` are file pages.
    void use(const std::string& group, uint64_t usage, uint64_t inactive, uint64_t active) {
        write(group + "/memory.current", std::to_string(usage));
        write(group + "/memory.stat", "anon 1\nfile 77\ninactive_anon 5\ninactive_file " +
                                          std::to_string(inactive) + "\nactive_file " +
                                          std::to_string(active) + "\ninactive_file_other 1\n");
    }

    MemoryNow now() {
        const auto memory = read_memory_now(dir_.path());
        EXPECT_TRUE(memory) << memory.error().text();
        return memory.value_or(MemoryNow{});
    }
};

TEST_F(MemoryNowTest, IsWhatTheKernelCallsAvailable) {
    EXPECT_EQ(now().available_bytes, 48 * kGiB);
    EXPECT_EQ(now().limited_by, "");
    EXPECT_EQ(now().pressure_percent, std::nullopt);
    EXPECT_FALSE(now().has_swap);
    std::filesystem::remove(dir_.file("proc/self/cgroup"));
    EXPECT_EQ(now().available_bytes, 48 * kGiB) << "a kernel without control groups";
    write("proc/meminfo", "MemAvailable: 4 kB\nSwapTotal: 8 kB\n");
    EXPECT_EQ(now().available_bytes, 4096u);
    EXPECT_TRUE(now().has_swap);
    for (const char* odd : {"MemTotal: 3 kB\n", "MemAvailable:\n", "MemAvailable:3 kB\n",
                            "MemAvailable: 18446744073709551615 kB\n"}) {
        write("proc/meminfo", odd);
        EXPECT_EQ(read_memory_now(dir_.path()).error().text(),
                  dir_.file("proc/meminfo") + ": does not tell MemAvailable")
            << odd;
    }
}

TEST_F(MemoryNowTest, TakesTheLeastRoomOfAllAncestors) {
    write("proc/self/cgroup", "0::/outer/inner\n");
    const std::string outer = "sys/fs/cgroup/outer", inner = "sys/fs/cgroup/outer/inner";
    write(inner + "/memory.max", std::to_string(32 * kGiB));
    EXPECT_EQ(now().available_bytes, 48 * kGiB) << "a limit whose usage is not told";
    use(inner, 12 * kGiB, 4 * kGiB, 2 * kGiB);
    EXPECT_EQ(now().available_bytes, 26 * kGiB) << "file pages are free to take";
    EXPECT_EQ(now().limited_by, dir_.file(inner + "/memory.max"));
    write(inner + "/memory.high", std::to_string(20 * kGiB));
    EXPECT_EQ(now().available_bytes, 14 * kGiB);
    EXPECT_EQ(now().limited_by, dir_.file(inner + "/memory.high"));
    write(outer + "/memory.max", std::to_string(40 * kGiB));
    use(outer, 31 * kGiB, kGiB, 0);
    EXPECT_EQ(now().available_bytes, 10 * kGiB) << "a sibling fills the parent";
    use(outer, 50 * kGiB, 0, 0);
    EXPECT_EQ(now().available_bytes, 0u) << "over its limit";
    use(outer, 2 * kGiB, 3 * kGiB, 0);
    EXPECT_EQ(now().available_bytes, 14 * kGiB) << "numbers of two moments";
    write(outer + "/memory.max", "max\n");
    write(inner + "/memory.high", "max\n");
    write(inner + "/memory.stat", "\n");
    EXPECT_EQ(now().available_bytes, 20 * kGiB) << "no file pages told: none are free";
}

TEST_F(MemoryNowTest, ReadsVersion1) {
    write("proc/self/mountinfo", kMountV1);
    write("proc/self/cgroup", "4:memory:/a/b\n0::/elsewhere\n");
    const std::string group = "sys/fs/cgroup/memory/a";
    write(group + "/memory.limit_in_bytes", std::to_string(20 * kGiB));
    write(group + "/memory.usage_in_bytes", std::to_string(9 * kGiB));
    write(group + "/memory.stat", "inactive_file 1\nactive_file 1\ntotal_inactive_file " +
                                      std::to_string(2 * kGiB) + "\ntotal_active_file " +
                                      std::to_string(3 * kGiB) + "\n");
    EXPECT_EQ(now().available_bytes, 16 * kGiB);
    write(group + "/b/memory.limit_in_bytes", std::to_string(8 * kGiB));
    write(group + "/b/memory.usage_in_bytes", std::to_string(5 * kGiB));
    write(group + "/b/memory.stat", "total_inactive_file " + std::to_string(kGiB) + "\n");
    EXPECT_EQ(now().available_bytes, 4 * kGiB);
    EXPECT_EQ(now().limited_by, dir_.file(group + "/b/memory.limit_in_bytes"));
    write(group + "/b/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT_EQ(now().available_bytes, 16 * kGiB);
}

TEST_F(MemoryNowTest, ReadsPressureOfTheNearestGroupThatTells) {
    write("proc/self/cgroup", "0::/outer/inner\n");
    const std::string rest =
        " avg60=1.00 avg300=0.00 total=5\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=0\n";
    write("proc/pressure/memory", "some avg10=1.50" + rest);
    EXPECT_EQ(now().pressure_percent, 1.5);
    write("sys/fs/cgroup/outer/memory.pressure", "some avg10=20.00" + rest);
    EXPECT_EQ(now().pressure_percent, 20);
    write("sys/fs/cgroup/outer/inner/memory.pressure", "some avg10=0.00" + rest);
    EXPECT_EQ(now().pressure_percent, 0);
    for (const char* odd : {"", "some", "some avg10=", "some avg10=x", "some avg10=-1", "some avg10=101",
                            "some avg10=nan", "some avg10=inf", "full avg10=3"}) {
        write("sys/fs/cgroup/outer/inner/memory.pressure", odd);
        EXPECT_EQ(now().pressure_percent, 20) << odd;
    }
}

TEST_F(MachineMemoryTest, TellsWhatAProcessHas) {
    write("proc/7/status",
          "Name:\twaste\nVmRSS:\t 900 kB\nRssAnon:\t    100 kB\nRssFile:\t  700 kB\nRssShmem:\t  28 kB\n");
    EXPECT_EQ(read_taken_bytes(dir_.path(), 7), 128u << 10);
    EXPECT_EQ(read_taken_bytes(dir_.path(), 8), 0u) << "no such process";
    write("proc/7/status", "RssAnon:\t18014398509481983 kB\nRssShmem:\t18014398509481983 kB\n");
    EXPECT_EQ(read_taken_bytes(dir_.path(), 7), UINT64_MAX);
}

using CpuQuotaTest = MachineMemoryTest;

TEST_F(CpuQuotaTest, IsTheSmallestOfAllAncestors) {
    const auto quota = [&] { return read_cpu_quota(dir_.path()); };
    EXPECT_EQ(quota(), 0) << "no limit";
    write("proc/self/cgroup", "0::/outer/inner\n");
    write("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
    EXPECT_EQ(quota(), 0);
    write("sys/fs/cgroup/outer/cpu.max", "800000 100000\n");
    EXPECT_EQ(quota(), 8);
    write("sys/fs/cgroup/outer/inner/cpu.max", "150000 100000\n");
    EXPECT_EQ(quota(), 2) << "rounded up";
    write("sys/fs/cgroup/outer/inner/cpu.max", "1000 100000\n");
    EXPECT_EQ(quota(), 1);
    write("sys/fs/cgroup/other/cpu.max", "1 100000\n");
    write("sys/fs/cgroup/outer/inner/cpu.max", "900000 100000\n");
    EXPECT_EQ(quota(), 8);
    for (const char* odd : {"", "\n", "x", "1", "0 0", "5 0", "0 5", "max", "-1 100000", " 1", "1 x"}) {
        write("sys/fs/cgroup/outer/inner/cpu.max", odd);
        EXPECT_EQ(quota(), 8) << odd;
    }
    write("sys/fs/cgroup/outer/inner/cpu.max", "18446744073709551615 1\n");
    EXPECT_EQ(quota(), 8);
    std::filesystem::remove_all(dir_.file("proc"));
    EXPECT_EQ(quota(), 0) << "a kernel without control groups";
}

TEST_F(CpuQuotaTest, ReadsVersion1) {
    write("proc/self/mountinfo", kMountV1);
    write("proc/self/cgroup", "9:cpu,cpuacct:/job\n4:memory:/wrong\n");
    write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(read_cpu_quota(dir_.path()), 0);
    write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "250000\n");
    EXPECT_EQ(read_cpu_quota(dir_.path()), 0) << "no period";
    write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "50000\n");
    EXPECT_EQ(read_cpu_quota(dir_.path()), 5);
}

TEST(MachineMemory, OfThisMachine) {
    const auto memory = read_machine_memory("");
    ASSERT_TRUE(memory) << memory.error().text();
    EXPECT_GT(memory->usable_bytes, uint64_t{1} << 20);
    EXPECT_LE(memory->usable_bytes, memory->physical_bytes);
}

TEST(MemoryNow, OfThisMachine) {
    const auto memory = read_machine_memory("");
    const auto now = read_memory_now("");
    ASSERT_TRUE(memory) << memory.error().text();
    ASSERT_TRUE(now) << now.error().text();
    EXPECT_GT(now->available_bytes, uint64_t{1} << 20);
    EXPECT_LE(now->available_bytes, memory->usable_bytes);
}

}  // namespace
}  // namespace waste::container

#include "container/drive_rate.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "container/drive_facts.h"
#include "container/drive_reader.h"
#include "container/file.h"
#include "container/known_drives.h"
#include "tests/support/temp_dir.h"

namespace waste::container {
namespace {

using test::TempDir;

/// Trees that stand for /proc and /sys; the path that is asked about is a real one.
class DriveFactsTest : public testing::Test {
  protected:
    void write(const std::string& name, const std::string& content) {
        const std::filesystem::path path = root_.file(name);
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << content;
    }
    void link(const std::string& name, const std::string& target) {
        const std::filesystem::path path = root_.file(name);
        std::filesystem::create_directories(path.parent_path());
        std::filesystem::create_directory_symlink(target, path);
    }
    std::string device_directory() const {
        struct stat status {};
        stat(place_.path().c_str(), &status);
        return "sys/dev/block/" + std::to_string(major(status.st_dev)) + ":" +
               std::to_string(minor(status.st_dev));
    }
    DriveFacts read() {
        const auto facts = read_drive_facts(place_.path(), root_.path());
        EXPECT_TRUE(facts) << facts.error().text();
        return facts.value_or(DriveFacts{});
    }

    const TempDir root_;
    const TempDir place_;
};

TEST_F(DriveFactsTest, ANvmePartitionIsDescribedByItsDrive) {
    write("proc/self/mountinfo",
          "22 1 8:1 / / rw - xfs /dev/sda1 rw\n"
          "23 22 259:2 / " +
              place_.path() +
              " rw,noatime shared:7 - ext4 /dev/nvme9n1p2 rw\n"
              "24 22 8:7 / " +
              place_.path() + "er rw - ntfs /dev/sdz rw\n");
    const std::string drive = "sys/devices/pci0/nvme/nvme9/nvme9n1";
    write(drive + "/queue/rotational", "0\n");
    write(drive + "/nvme9n1p2/partition", "2\n");
    write("sys/devices/pci0/nvme/nvme9/model", "Fast SSD 2TB                \n");
    write("sys/devices/pci0/current_link_speed", "16.0 GT/s PCIe\n");
    write("sys/devices/pci0/current_link_width", "4\n");
    link(drive + "/device", "..");
    link("sys/devices/pci0/nvme/nvme9/device", "../..");
    link(device_directory(), "../../../" + drive + "/nvme9n1p2");
    const DriveFacts facts = read();
    EXPECT_EQ(facts.file_system, "ext4");
    EXPECT_EQ(facts.mount_point, place_.path());
    EXPECT_EQ(facts.name, "nvme9n1p2");
    EXPECT_EQ(facts.model, "Fast SSD 2TB");
    EXPECT_EQ(facts.rotational, false);
    EXPECT_EQ(facts.link, "16.0 GT/s PCIe x4");
}

TEST_F(DriveFactsTest, AFileSystemWithNumbersOfItsOwnIsFoundByWhatIsMounted) {
    write("proc/self/mountinfo", "22 1 0:33 /sub / rw - btrfs /dev/sdq9 rw,subvol=/sub\n");
    write("sys/class/block/sdq9/queue/rotational", "1\n");
    const DriveFacts facts = read();
    EXPECT_EQ(facts.file_system, "btrfs");
    EXPECT_EQ(facts.name, "sdq9");
    EXPECT_EQ(facts.rotational, true);
    EXPECT_EQ(facts.link, "");
}

TEST_F(DriveFactsTest, ServersAndBlanksInNames) {
    write("proc/self/mountinfo", "22 1 0:33 / / rw - nfs4 server:/my\\040models\\x rw\n");
    const DriveFacts facts = read();
    EXPECT_EQ(facts.file_system, "nfs4");
    EXPECT_EQ(facts.name, "server:/my models\\x");
    EXPECT_FALSE(facts.rotational);
}

TEST_F(DriveFactsTest, WhatCannotBeUnderstoodIsEmpty) {
    EXPECT_EQ(read().file_system, "") << "no /proc";
    for (const char* text :
         {"", "\n\n", "1 2 3", "22 1 0:33 / / rw -", "22 1 0:33 / / rw - ext4", "a b c d / e f g"}) {
        write("proc/self/mountinfo", text);
        EXPECT_EQ(read().mount_point, "") << text;
    }
    write("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/../.. rw\n");
    EXPECT_EQ(read().model, "");
    EXPECT_FALSE(read_drive_facts(place_.file("none"), root_.path()));
}

DriveRateOptions tiny_options() {
    DriveRateOptions options;
    options.file_bytes = 1 << 20;
    options.record_bytes = {4096, 256 << 10};
    options.depths = {1, 3};
    options.runs = 2;
    options.seconds_each = 0.01;
    return options;
}

bool go_on(std::string_view, double) {
    return true;
}

TEST(DriveRate, EverySizeAndDepthIsMeasured) {
    const TempDir dir;
    double last = 0;
    const auto rate = measure_drive_rate(dir.path(), tiny_options(), [&](std::string_view, double share) {
        EXPECT_GE(share, last);
        EXPECT_LE(share, 1);
        last = share;
        return true;
    });
    ASSERT_TRUE(rate) << rate.error().text();
    ASSERT_EQ(rate->rows.size(), 4u);
    for (const DriveRateRow& row : rate->rows) {
        EXPECT_EQ(row.bytes_per_second.size(), 2u);
        EXPECT_GT(row.rate(), 0);
        EXPECT_GT(row.median_seconds, 0);
        EXPECT_GE(row.p99_seconds, row.median_seconds);
    }
    EXPECT_EQ(rate->rows[1].record_bytes, 4096u);
    EXPECT_EQ(rate->rows[1].depth, 3);
    EXPECT_GT(rate->write_bytes_per_second, 0);
    EXPECT_FALSE(rate->description.empty());
    EXPECT_TRUE(list_directory(dir.path())->empty()) << "nothing is left";
}

TEST(DriveRate, FilesThatAreThereAreReadAndLeft) {
    const TempDir dir;
    std::ofstream(dir.file("one")) << std::string(300 << 10, 'x');
    std::ofstream(dir.file("two")) << std::string(256 << 10, 'y');
    const std::vector<std::string> paths{dir.file("one"), dir.file("two")};
    const auto rate = measure_read_rate(paths, tiny_options(), go_on);
    ASSERT_TRUE(rate) << rate.error().text();
    ASSERT_EQ(rate->rows.size(), 4u);
    for (const DriveRateRow& row : rate->rows) EXPECT_GT(row.rate(), 0);
    EXPECT_EQ(rate->file_bytes, uint64_t{556} << 10);
    EXPECT_EQ(rate->write_bytes_per_second, 0);
    EXPECT_EQ(list_directory(dir.path())->size(), 2u);
    DriveRateOptions options = tiny_options();
    options.record_bytes = {260 << 10};
    const auto short_file = measure_read_rate(paths, options, go_on);
    ASSERT_FALSE(short_file);
    EXPECT_EQ(short_file.error().kind, ErrorKind::invalid);
    EXPECT_FALSE(measure_read_rate({}, tiny_options(), go_on));
    EXPECT_EQ(measure_read_rate({dir.file("three")}, options, go_on).error().kind, ErrorKind::not_found);
}

TEST(DriveRate, EndsWhereItIsToldTo) {
    const TempDir dir;
    for (const std::string_view last : {"writing", "reading"}) {
        const auto rate = measure_drive_rate(dir.path(), tiny_options(),
                                             [&](std::string_view what, double) { return what != last; });
        ASSERT_FALSE(rate);
        EXPECT_EQ(rate.error().kind, ErrorKind::interrupted);
        EXPECT_TRUE(list_directory(dir.path())->empty());
    }
}

TEST(DriveRate, ImpossibleRequestsAreRefused) {
    const TempDir dir;
    DriveRateOptions options = tiny_options();
    EXPECT_EQ(measure_drive_rate(dir.file("none"), options, go_on).error().kind, ErrorKind::not_found);
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1000}, uint64_t{2} << 20}) {
        options.record_bytes = {bytes};
        EXPECT_EQ(measure_drive_rate(dir.path(), options, go_on).error().kind, ErrorKind::invalid) << bytes;
    }
    options = tiny_options();
    options.file_bytes = uint64_t{1} << 60;
    EXPECT_EQ(measure_drive_rate(dir.path(), options, go_on).error().kind, ErrorKind::capacity);
}

DriveRate made_up_rate(std::vector<DriveRateRow> rows) {
    DriveRate rate;
    rate.facts.device = makedev(259, 2);
    rate.facts.file_system = "ext4";
    rate.direct = true;
    rate.rows = std::move(rows);
    return rate;
}

TEST(DriveRate, BestIsTheLeastThatIsAsGood) {
    const DriveRate rate = made_up_rate({{1 << 20, 1, {5e9}, 0, 0},
                                         {1 << 20, 8, {9.8e9}, 0, 0},
                                         {4 << 20, 4, {9.9e9, 1e9, 9.9e9}, 0, 0},
                                         {4 << 20, 16, {10e9}, 0, 0}});
    EXPECT_EQ(rate.best().record_bytes, 4u << 20);
    EXPECT_EQ(rate.best().depth, 4);
    EXPECT_NEAR(rate.best().spread(), 8.9 / 9.9, 1e-9);
    EXPECT_EQ(rate.rows[0].spread(), 0);
}

double rate_of(const std::string& path, const DriveRate& rate) {
    return known_drive(path, rate.facts).value_or(KnownDrive{}).bytes_per_second;
}

TEST(KnownDrives, AreKeptByDeviceAndFileSystem) {
    const TempDir dir;
    const std::string path = dir.file("cache/waste/drives.json");
    DriveRate rate = made_up_rate({{4096, 2, {3e9}, 0, 0}});
    EXPECT_FALSE(known_drive(path, rate.facts));
    ASSERT_TRUE(remember_drive_rate(path, rate));
    DriveRate other = made_up_rate({{4096, 2, {4e9}, 0, 0}});
    other.facts.device = makedev(259, 3);
    ASSERT_TRUE(remember_drive_rate(path, other));
    EXPECT_EQ(rate_of(path, rate), 3e9);
    EXPECT_EQ(rate_of(path, other), 4e9);
    rate.rows[0].bytes_per_second = {2e9};
    ASSERT_TRUE(remember_drive_rate(path, rate));
    EXPECT_EQ(rate_of(path, rate), 2e9) << "the newest counts";
    rate.rows[0].bytes_per_second = {30e9};
    rate.direct = false;
    ASSERT_TRUE(remember_drive_rate(path, rate));
    EXPECT_EQ(rate_of(path, rate), 2e9) << "the page cache's rate is not the drive's";
    rate.facts.file_system = "xfs";
    EXPECT_FALSE(known_drive(path, rate.facts));
}

TEST(KnownDrives, TellDepthAndPieces) {
    const TempDir dir;
    const std::string path = dir.file("drives.json");
    DriveRate rate = made_up_rate({{512 << 10, 16, {3e9}, 0, 0}});
    ASSERT_TRUE(remember_drive_rate(path, rate));
    EXPECT_EQ(known_drive(path, rate.facts)->depth, kDefaultReadDepth) << "never deeper";
    EXPECT_EQ(known_drive(path, rate.facts)->piece_bytes, 512u << 10);
    rate = made_up_rate({{1 << 20, 4, {3e9}, 0, 0}});
    ASSERT_TRUE(remember_drive_rate(path, rate));
    EXPECT_EQ(known_drive(path, rate.facts)->depth, 4);
    rate = made_up_rate({{16 << 20, 4, {3e9}, 0, 0}});
    ASSERT_TRUE(remember_drive_rate(path, rate));
    EXPECT_EQ(known_drive(path, rate.facts)->piece_bytes, kDefaultPieceBytes) << "it was read in pieces";
    for (const char* wrong :
         {R"("depth":-1,"record_bytes":4096)", R"("depth":2000000,"record_bytes":4096)",
          R"("depth":1.5,"record_bytes":100)", R"("depth":4,"record_bytes":100)", R"("depth":4294967297)",
          R"("depth":"4","record_bytes":[])", R"("record_bytes":18446744073709551615)"}) {
        std::ofstream(path) << R"({"version":1,"drives":[{"device":"259:2","file_system":"ext4",)"
                            << R"("bytes_per_second":3e9,)" << wrong << "}]}";
        const auto known = known_drive(path, rate.facts);
        ASSERT_TRUE(known) << wrong;
        EXPECT_EQ(known->bytes_per_second, 3e9);
        DriveReaderOptions options;
        options.depth = known->depth;
        options.piece_bytes = known->piece_bytes;
        EXPECT_TRUE(DriveReader::start({path}, options)) << wrong;
    }
}

TEST(KnownDrives, DamagedContentIsIgnoredAndReplaced) {
    const TempDir dir;
    const std::string path = dir.file("drives.json");
    const DriveRate rate = made_up_rate({{4096, 2, {3e9}, 0, 0}});
    ASSERT_TRUE(remember_drive_rate(path, rate));
    const std::string whole = *read_text_file(path, 1 << 20);
    std::vector<std::string> damaged = {
        "[]",
        "7",
        "{\"version\":1}",
        "{\"version\":1,\"drives\":{}}",
        "{\"version\":1,\"drives\":[1,null,[]]}",
        "{\"version\":2,\"drives\":[]}",
        "\xff\xfe",
        std::string(1000, '['),
        R"({"version":1,"drives":[{"device":"259:2","file_system":"ext4"}]})",
        R"({"version":1,"drives":[{"device":"259:2","file_system":"ext4","bytes_per_second":"fast"}]})",
        R"({"version":1,"drives":[{"device":"259:2","file_system":"ext4","bytes_per_second":-1}]})",
        R"({"version":1,"drives":[{"device":259,"file_system":"ext4","bytes_per_second":1}]})"};
    for (size_t length = 0; length + 2 < whole.size(); length++) damaged.push_back(whole.substr(0, length));
    for (const std::string& text : damaged) {
        std::ofstream(path) << text;
        EXPECT_FALSE(known_drive(path, rate.facts)) << text;
    }
    for (size_t i = 0; i < 12; i++) {
        std::ofstream(path) << damaged[i];
        ASSERT_TRUE(remember_drive_rate(path, rate));
        EXPECT_EQ(rate_of(path, rate), 3e9) << damaged[i];
    }
}

/// Puts a variable of the environment back at its end.
class Variable {
  public:
    explicit Variable(const char* name) : name_(name) {
        if (const char* value = std::getenv(name)) before_ = value;
    }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;
    ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

  private:
    const char* name_;
    std::optional<std::string> before_;
};

TEST(KnownDrives, LieInTheUsersCache) {
    const Variable cache("XDG_CACHE_HOME");
    const Variable home("HOME");
    setenv("XDG_CACHE_HOME", "/a/cache", 1);
    EXPECT_EQ(known_drives_path(), "/a/cache/waste/drives.json");
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "/home/me", 1);
    EXPECT_EQ(known_drives_path(), "/home/me/.cache/waste/drives.json");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    EXPECT_EQ(known_drives_path(), "");
    EXPECT_TRUE(remember_drive_rate("", made_up_rate({{4096, 2, {3e9}, 0, 0}})))
        << "nowhere to keep it is no error";
}

}  // namespace
}  // namespace waste::container

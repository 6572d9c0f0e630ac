// Machines are trees of files under a temporary directory, as Linux 6 shows them.
#include "container/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "container/cpu_list.h"
#include "container/machine.h"
#include "tests/support/temp_dir.h"

namespace waste::container {
namespace {

using Ids = std::vector<int>;

Ids range(int first, int last) {
    Ids out;
    for (int id = first; id <= last; id++) out.push_back(id);
    return out;
}

class TopologyTest : public ::testing::Test {
  protected:
    void write(const std::string& name, const std::string& content) {
        const std::filesystem::path path = dir_.file("devices/system/cpu/" + name);
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << content << "\n";
    }

    void write_cpu(int id, const std::string& name, const std::string& content) {
        write("cpu" + std::to_string(id) + "/" + name, content);
    }

    struct Place {
        std::string siblings, l3;
        int package = 0, node = 0;
    };

    void add_cpu(int id, const Place& place) {
        write_cpu(id, "topology/core_cpus_list", place.siblings);
        write_cpu(id, "topology/physical_package_id", std::to_string(place.package));
        if (!place.l3.empty()) write_cpu(id, "cache/index3/shared_cpu_list", place.l3);
        write_cpu(id, "node" + std::to_string(place.node) + "/cpulist", "");
    }

    /// `cores` cores of two threads, the second ones numbered behind all first ones, and one L3 a `domain` cores.
    void smt_machine(int cores, int domain, int cores_of_node) {
        write("online", "0-" + std::to_string(2 * cores - 1));
        for (int id = 0; id < 2 * cores; id++) {
            const int core = id % cores, first = core / domain * domain, last = first + domain - 1;
            const auto text = [](int a, int b) { return std::to_string(a) + "-" + std::to_string(b); };
            const std::string l3 = text(first, last) + "," + text(first + cores, last + cores);
            const int node = core / cores_of_node;
            add_cpu(id, {std::to_string(core) + "," + std::to_string(core + cores), l3, node, node});
        }
    }

    CpuTopology read(const Ids& affinity) { return read_topology(affinity, dir_.file("devices/system/cpu")); }

    waste::test::TempDir dir_;
};

Ids efficient(const CpuTopology& topology) {
    Ids out;
    for (const Cpu& cpu : topology.cpus) {
        if (cpu.efficient) out.push_back(cpu.id);
    }
    return out;
}

TEST_F(TopologyTest, SmtDesktopGivesEachCoreOneThread) {
    smt_machine(8, 8, 8);
    const CpuTopology topology = read(range(0, 15));
    EXPECT_EQ(topology.cpus.size(), 16u);
    EXPECT_EQ(topology.physical_cores(), 8);
    EXPECT_EQ(topology.performance_cores(), 8);
    EXPECT_EQ(topology.cpus[11].core, 3);
    EXPECT_EQ(topology.cpus[11].smt_rank, 1);
    EXPECT_EQ(choose_cpus(topology, 8), range(0, 7));
    EXPECT_EQ(choose_cpus(topology, 3), range(0, 2));
    EXPECT_EQ(choose_cpus(topology, 10), range(0, 9)) << "then second threads";
    EXPECT_EQ(choose_cpus(topology, 99), range(0, 15)) << "no more than there are";
    EXPECT_EQ(choose_cpus(topology, 0), Ids());
    EXPECT_EQ(default_threads(topology, 0), 8);
    EXPECT_EQ(default_threads(topology, 3), 3);
    EXPECT_EQ(default_threads(topology, 99), 8);
}

TEST_F(TopologyTest, NeighbouringNumbersMayBeSiblings) {
    write("online", "0-3");
    add_cpu(0, {"0-1", "0-3"});
    add_cpu(1, {"0-1", "0-3"});
    add_cpu(2, {"2-3", "0-3"});
    add_cpu(3, {"2-3", "0-3"});
    EXPECT_EQ(choose_cpus(read(range(0, 3)), 2), (Ids{0, 2}));
    EXPECT_EQ(choose_cpus(read({1, 2, 3}), 2), (Ids{1, 2})) << "a core is there through any of its threads";
    EXPECT_EQ(read({1, 3}).physical_cores(), 2);
}

TEST_F(TopologyTest, OldKernelsNameSiblingsOtherwise) {
    write("online", "0-1");
    for (const int id : {0, 1}) write_cpu(id, "topology/thread_siblings_list", "0-1");
    EXPECT_EQ(read({0, 1}).physical_cores(), 1);
}

TEST_F(TopologyTest, ThreadsThatFitOneCacheDomainStayInIt) {
    smt_machine(16, 8, 16);  // two dies of eight cores
    const CpuTopology topology = read(range(0, 31));
    EXPECT_EQ(topology.cpus[9].l3_domain, 8);
    EXPECT_EQ(choose_cpus(topology, 6), range(0, 5));
    EXPECT_EQ(choose_cpus(topology, 8), range(0, 7));
    EXPECT_EQ(choose_cpus(topology, 10), range(0, 9)) << "a whole domain before the next";
    EXPECT_EQ(choose_cpus(topology, 16), range(0, 15));
    // Of the first die three cores are left.
    Ids affinity = range(0, 2);
    for (const int id : range(8, 15)) affinity.push_back(id);
    EXPECT_EQ(choose_cpus(read(affinity), 3), range(0, 2)) << "the smallest domain with room";
    EXPECT_EQ(choose_cpus(read(affinity), 4), range(8, 11));
    EXPECT_EQ(choose_cpus(read(affinity), 9), (Ids{8, 9, 10, 11, 12, 13, 14, 15, 0}));
}

TEST_F(TopologyTest, NodesAreFilledOneAfterTheOther) {
    smt_machine(32, 4, 16);  // two sockets of four dies
    const CpuTopology topology = read(range(0, 63));
    EXPECT_EQ(topology.cpus[17].node, 1);
    EXPECT_EQ(topology.cpus[17].package, 1);
    EXPECT_EQ(choose_cpus(topology, 6), range(0, 5));
    EXPECT_EQ(choose_cpus(topology, 20), range(0, 19));
    // Two cores in node 0, all in node 1: six fit node 1 alone.
    Ids affinity{0, 1};
    for (const int id : range(16, 31)) affinity.push_back(id);
    EXPECT_EQ(choose_cpus(read(affinity), 6), range(16, 21));
}

/// Two fast cores of two threads, four slow ones: 0-3 and 4-7, one L3.
class HybridTest : public TopologyTest {
  protected:
    void SetUp() override {
        write("online", "0-7");
        for (int id = 0; id < 4; id++) add_cpu(id, {id < 2 ? "0-1" : "2-3", "0-7"});
        for (int id = 4; id < 8; id++) add_cpu(id, {std::to_string(id), "0-7"});
    }
};

TEST_F(HybridTest, IntelSaysWhichCoresAreSlow) {
    write("../../cpu_core/cpus", "0-3");
    write("../../cpu_atom/cpus", "4-7");
    const CpuTopology topology = read(range(0, 7));
    EXPECT_EQ(efficient(topology), range(4, 7));
    EXPECT_EQ(topology.physical_cores(), 6);
    EXPECT_EQ(default_threads(topology, 0), 2);
    EXPECT_EQ(choose_cpus(topology, 2), (Ids{0, 2}));
    EXPECT_EQ(choose_cpus(topology, 4), (Ids{0, 2, 4, 5})) << "a slow core before a second thread";
    EXPECT_EQ(choose_cpus(topology, 8), (Ids{0, 2, 4, 5, 6, 7, 1, 3}));
    EXPECT_EQ(default_threads(read(range(4, 7)), 0), 4) << "slow cores, where there are no others";
    write("../../cpu_atom/cpus", "");
    for (int id = 0; id < 8; id++) write_cpu(id, "cpu_capacity", id < 6 ? "1000" : "300");
    EXPECT_EQ(efficient(read(range(0, 7))), (Ids{6, 7})) << "both lists, or others are asked";
}

TEST_F(HybridTest, FrequencyTellsWhereNothingElseDoes) {
    for (int id = 0; id < 8; id++) {
        write_cpu(id, "cpufreq/cpuinfo_max_freq", id == 0 ? "5200000" : id < 4 ? "4900000" : "3900000");
    }
    EXPECT_EQ(efficient(read(range(0, 7))), range(4, 7)) << "a favoured core's 6 % make no class";
    std::filesystem::remove(dir_.file("devices/system/cpu/cpu5/cpufreq/cpuinfo_max_freq"));
    EXPECT_EQ(efficient(read(range(0, 7))), Ids()) << "told for all or not told";
}

TEST_F(TopologyTest, ArmTellsCapacities) {
    write("online", "0-7");
    for (int id = 0; id < 8; id++) {
        add_cpu(id, {std::to_string(id), ""});
        write_cpu(id, "cpu_capacity", id < 4 ? "250" : id < 7 ? "870" : "1024");
        write_cpu(id, "cpufreq/cpuinfo_max_freq", "2000000");  // says nothing where capacities are told
    }
    const CpuTopology topology = read(range(0, 7));
    EXPECT_EQ(efficient(topology), range(0, 3));
    EXPECT_EQ(choose_cpus(topology, default_threads(topology, 0)), range(4, 7));
    EXPECT_EQ(topology.cpus[6].l3_domain, 0) << "no L3: the package";
    EXPECT_EQ(default_threads(read(range(0, 3)), 0), 4);
}

TEST_F(TopologyTest, FallsBackToTheAffinityMask) {
    for (const std::string& directory : {dir_.path(), dir_.file("nowhere")}) {
        const CpuTopology topology = read_topology(Ids{2, 5, 6}, directory);
        EXPECT_EQ(topology.online, (Ids{2, 5, 6}));
        EXPECT_EQ(topology.physical_cores(), 3);
        EXPECT_EQ(topology.performance_cores(), 3);
        EXPECT_EQ(choose_cpus(topology, 2), (Ids{2, 5}));
    }
}

TEST_F(TopologyTest, OfflineCpusAreLeftOut) {
    smt_machine(4, 4, 4);
    write("online", "0-2,4-7");
    EXPECT_EQ(read(range(0, 7)).cpus.size(), 7u);
    EXPECT_EQ(choose_cpus(read(range(0, 7)), 4), (Ids{0, 1, 2, 7}));
}

TEST_F(TopologyTest, SurvivesOddFiles) {
    const char* const odd[] = {"",        "x",     "-",    "3-1",     "0-99999999999", "-5",       "0-3,",
                               "0,0",     "4-5x",  "0x0",  "1",       "65536",         "\t0\n\n1", "😀",
                               "0-65535", "0 - 3", "NaN,", "0-3-5,1", "4294967296",    "-1"};
    const char* const names[] = {"topology/core_cpus_list",
                                 "topology/thread_siblings_list",
                                 "topology/physical_package_id",
                                 "cache/index3/shared_cpu_list",
                                 "cpu_capacity",
                                 "cpufreq/cpuinfo_max_freq"};
    for (const char* content : odd) {
        SCOPED_TRACE(content);
        write("online", content);
        for (const char* name : names) write_cpu(0, name, content);
        write("../../cpu_core/cpus", content);
        write("../../cpu_atom/cpus", content);
        const CpuTopology topology = read({0, 1});
        ASSERT_FALSE(topology.cpus.empty());
        for (int threads = -1; threads < 4; threads++) {
            const size_t wanted = static_cast<size_t>(std::max(0, threads));
            EXPECT_EQ(choose_cpus(topology, threads).size(), std::min(wanted, topology.cpus.size()));
        }
    }
    std::filesystem::create_directories(dir_.file("devices/system/cpu/cpu0/topology/die_id"));
    for (const char* node : {"node", "nodex", "node-1", "node99999999999"}) write_cpu(1, node, "");
    write("online", "0-1");
    EXPECT_EQ(read({0, 1}).cpus[1].node, 0);
}

TEST_F(TopologyTest, RefusesCpusThatAreNotThere) {
    smt_machine(4, 4, 4);
    write("online", "0-5");
    const CpuTopology topology = read({0, 1, 2, 7});
    EXPECT_TRUE(check_cpus(topology, Ids{2, 0}, "--cpus"));
    EXPECT_EQ(check_cpus(topology, Ids{0, 4}, "--cpus").error().text(),
              "--cpus: CPU 4 is outside this process's affinity mask, 0-2");
    EXPECT_EQ(check_cpus(topology, Ids{7}, "--cpus").error().text(),
              "--cpus: CPU 7 is offline or does not exist; online are 0-5");
}

TEST(CpuList, ParsesWhatPeopleWrite) {
    EXPECT_EQ(*parse_cpu_list("0-3,8,10-11", "--cpus"), (Ids{0, 1, 2, 3, 8, 10, 11}));
    EXPECT_EQ(*parse_cpu_list("5,0", "--cpus"), (Ids{5, 0})) << "in the order given";
    EXPECT_EQ(*parse_cpu_list("7-7", "--cpus"), (Ids{7}));
    EXPECT_EQ(*parse_cpu_list("65535", "--cpus"), (Ids{65535}));
    EXPECT_EQ(cpu_list_text(Ids{0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
    EXPECT_EQ(cpu_list_text(Ids{}), "");
}

TEST(CpuList, RefusesTheRestByName) {
    const auto message = [](const char* text) { return parse_cpu_list(text, "--cpus").error().text(); };
    for (const char* text : {"", ",", "0,", ",0", "0,,1", "a", "0-", "-1", "1-2-3", "+1", " 1", "1 ", "0x1",
                             "65536", "99999999999", "1.5", "0-99999999999"}) {
        EXPECT_NE(message(text).find("is not a CPU or a range of them"), std::string::npos) << text;
    }
    EXPECT_EQ(message("0-3,6-5"), "--cpus: the range 6-5 runs backwards");
    EXPECT_EQ(message("0-3,2"), "--cpus: CPU 2 is named twice");
    EXPECT_EQ(message("0,a\n"),
              "--cpus: 'a\\x0a' is not a CPU or a range of them; a list looks like 0-3,8,10-11");
}

TEST(Topology, OfThisMachine) {
    const Ids affinity = affinity_cpus();
    ASSERT_FALSE(affinity.empty());
    EXPECT_TRUE(std::is_sorted(affinity.begin(), affinity.end()));
    const CpuTopology topology = read_topology(affinity);
    EXPECT_EQ(topology.cpus.size(), affinity.size());
    EXPECT_TRUE(check_cpus(topology, affinity, "--cpus"));
    const int threads = default_threads(topology, read_cpu_quota(""));
    EXPECT_EQ(choose_cpus(topology, threads).size(), static_cast<size_t>(threads));
}

}  // namespace
}  // namespace waste::container

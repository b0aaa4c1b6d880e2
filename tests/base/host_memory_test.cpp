#include "mlxx/base/host_memory.h"

#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/core/temporary_folder.h"

namespace mlxx {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

#ifndef __APPLE__

// A folder with the proc/ and sys/ of a machine of 16 GiB, 8 of them free.
class HostMemoryTest : public ::testing::Test {
 protected:
  HostMemoryTest() {
    write(
        "proc/meminfo",
        "MemTotal:       16777216 kB\nMemFree:         1048576 kB\n"
        "MemAvailable:    8388608 kB\n");
  }
  void write(const std::string& name, std::string_view text) {
    folder_.write(name, text);
  }
  void mount_v2(const std::string& group, const std::string& root = "/") {
    write("proc/self/cgroup", "0::" + group + "\n");
    write(
        "proc/self/mountinfo",
        "22 1 0:21 / /proc rw - proc proc rw\n30 23 0:26 " + root +
            " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  }
  void mount_v1(const std::string& group, const std::string& root = "/") {
    write(
        "proc/self/cgroup",
        "9:name=systemd:/x\n4:cpu,memory:" + group + "\n0::/\n");
    write(
        "proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
        "34 31 0:31 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
        "35 31 0:32 " +
            root + " /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  }
  // Of the group at `folder` below sys/fs/cgroup.
  void limit(const std::string& folder, std::string_view max, uint64_t used) {
    write("sys/fs/cgroup" + folder + "/memory.max", max);
    write("sys/fs/cgroup" + folder + "/memory.current", std::to_string(used));
  }
  HostMemory memory() {
    return host_memory(folder_.path());
  }
  TemporaryFolder folder_;
};

TEST_F(HostMemoryTest, WithoutGroupsTheMachineCounts) {
  EXPECT_EQ(memory().total_bytes, 16 * kGiB);
  EXPECT_EQ(memory().available_bytes, 8 * kGiB);
  EXPECT_EQ(memory().limit_bytes, 0u);
  EXPECT_EQ(memory().usable_bytes(), 16 * kGiB);
}

TEST_F(HostMemoryTest, TheLimitOfItsOwnGroup) {
  mount_v2("/app");
  limit("/app", "4294967296\n", kGiB);
  EXPECT_EQ(memory().limit_bytes, 4 * kGiB);
  EXPECT_EQ(memory().available_bytes, 3 * kGiB);
  EXPECT_EQ(memory().usable_bytes(), 4 * kGiB);
  // File pages are given up for others.
  write(
      "sys/fs/cgroup/app/memory.stat",
      "anon 5\nactive_file 7\ninactive_file 536870912\n");
  EXPECT_EQ(memory().available_bytes, 3 * kGiB + kGiB / 2);
  // More than all of it is in use.
  limit("/app", "4294967296\n", 5 * kGiB);
  EXPECT_EQ(memory().available_bytes, 0u);
}

TEST_F(HostMemoryTest, TheLowestLimitOfAllOuterGroups) {
  mount_v2("/slice/service/app");
  limit("/slice/service/app", "max\n", kGiB);
  limit("/slice/service", "6442450944\n", 2 * kGiB);
  limit("/slice", "8589934592\n", 7 * kGiB);
  // The lowest limit is not the one that leaves the least.
  EXPECT_EQ(memory().limit_bytes, 6 * kGiB);
  EXPECT_EQ(memory().available_bytes, kGiB);
  limit("", "2147483648\n", 0);
  EXPECT_EQ(memory().limit_bytes, 2 * kGiB);
}

TEST_F(HostMemoryTest, TheThrottlingLimitCountsToo) {
  mount_v2("/app");
  limit("/app", "max\n", kGiB);
  write("sys/fs/cgroup/app/memory.high", "3221225472\n");
  EXPECT_EQ(memory().limit_bytes, 3 * kGiB);
  EXPECT_EQ(memory().available_bytes, 2 * kGiB);
}

TEST_F(HostMemoryTest, ContainersSeeTheirOwnGroupAtTheTop) {
  for (auto [group, root] :
       {std::pair("/", "/"),
        {"/docker/abc", "/docker/abc"},
        {"/../other", "/"},
        {"/", "/docker/abc"},
        {"/gone/since", "/"}}) {
    mount_v2(group, root);
    limit("", "1073741824\n", 1);
    EXPECT_EQ(memory().limit_bytes, kGiB) << group << " " << root;
  }
}

TEST_F(HostMemoryTest, VersionOne) {
  mount_v1("/docker/abc", "/docker/abc");
  std::string folder = "sys/fs/cgroup/memory/";
  write(folder + "memory.limit_in_bytes", "2147483648\n");
  write(folder + "memory.usage_in_bytes", "1610612736\n");
  write(folder + "memory.stat", "cache 9\ntotal_inactive_file 536870912\n");
  EXPECT_EQ(memory().limit_bytes, 2 * kGiB);
  EXPECT_EQ(memory().available_bytes, kGiB);
  // No limit, as that version writes it.
  write(folder + "memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory().limit_bytes, 0u);
  EXPECT_EQ(memory().available_bytes, 8 * kGiB);
}

TEST_F(HostMemoryTest, WhatIsNoNumberSetsNoLimit) {
  mount_v2("/app");
  for (const char* text :
       {"max",
        "max\n",
        "",
        "\n",
        "-1\n",
        "0x1000",
        "12 34",
        "1e9",
        "4096k",
        "18446744073709551616",
        "99999999999999999999999999999999999999999",
        "\xff\xfe"}) {
    limit("/app", text, 0);
    EXPECT_EQ(memory().limit_bytes, 0u) << text;
    EXPECT_EQ(memory().available_bytes, 8 * kGiB) << text;
  }
  limit("/app", std::string(3 << 20, '9'), 0);
  EXPECT_EQ(memory().limit_bytes, 0u);
  // Garbage beside a good limit.
  limit("/app", " 1073741824 \n", 0);
  write("sys/fs/cgroup/app/memory.high", "garbage");
  write("sys/fs/cgroup/app/memory.current", "garbage");
  write("sys/fs/cgroup/app/memory.stat", std::string("inactive_file\n\0x", 16));
  EXPECT_EQ(memory().limit_bytes, kGiB);
  EXPECT_EQ(memory().available_bytes, kGiB);
}

TEST_F(HostMemoryTest, HostileTablesAreHarmless) {
  std::string deep;
  for (int i = 0; i < 50'000; ++i) {
    deep += "/a";
  }
  for (const std::string& text :
       {std::string(),
        std::string("\n\n\n"),
        std::string(":"),
        std::string("::"),
        std::string("0::"),
        std::string("0::\n4:memory:"),
        "0::" + deep,
        std::string(100'000, ':'),
        std::string("0::/../../../../../etc")}) {
    mount_v2("/app");
    write("proc/self/cgroup", text);
    EXPECT_EQ(memory().limit_bytes, 0u);
    mount_v2("/app");
    write("proc/self/mountinfo", text);
    EXPECT_EQ(memory().limit_bytes, 0u);
  }
  write("proc/self/mountinfo", "1 2 3 / - - - - -\n1 2 3 - cgroup2\n- - - - -");
  EXPECT_EQ(memory().limit_bytes, 0u);
  write("proc/self/mountinfo", "1 2 3 \\04 /sys\\ r - cgroup2 x y\n");
  EXPECT_EQ(memory().limit_bytes, 0u);
}

TEST_F(HostMemoryTest, MountPointsMayHoldSpaces) {
  mount_v2("/");
  write(
      "proc/self/mountinfo",
      "30 23 0:26 / /sys/my\\040groups rw - cgroup2 cgroup2 rw\n");
  write("sys/my groups/memory.max", "1073741824");
  EXPECT_EQ(memory().limit_bytes, kGiB);
}

TEST_F(HostMemoryTest, BadMeminfoIsUnknownMemory) {
  for (const char* text :
       {"",
        "MemTotal",
        "MemTotal: x kB\nMemAvailable: 1 kB\n",
        "MemTotal: 99999999999999999999 kB\nMemAvailable: 5 kB",
        "MemTotal: 18446744073709551615 kB\nMemAvailable: 5 kB"}) {
    write("proc/meminfo", text);
    EXPECT_EQ(memory().total_bytes, 0u) << text;
    EXPECT_EQ(memory().available_bytes, 0u) << text;
  }
  // More free than there is.
  write("proc/meminfo", "MemTotal: 4 kB\nMemAvailable: 5 kB\n");
  EXPECT_EQ(memory().available_bytes, 4096u);
  std::filesystem::remove(folder_.path() / "proc/meminfo");
  std::filesystem::create_directory(folder_.path() / "proc/meminfo");
  EXPECT_EQ(memory().total_bytes, 0u);
}

#endif

TEST(HostMemory, OfThisMachine) {
  HostMemory memory = host_memory();
  auto pages = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES));
  auto bytes = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_GT(memory.total_bytes, bytes / 10 * 9);
  EXPECT_LT(memory.total_bytes, bytes / 10 * 12);
  EXPECT_GT(memory.available_bytes, 0u);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
  EXPECT_LT(memory.limit_bytes, memory.total_bytes);
}

}  // namespace
}  // namespace mlxx

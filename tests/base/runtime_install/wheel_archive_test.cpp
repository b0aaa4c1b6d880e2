#include "mlxx/base/runtime_install/wheel_archive.h"

#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mlxx/base/error.h"
#include "tests/base/runtime_install/wheel_writer.h"

namespace mlxx::runtime {
namespace {

namespace fs = std::filesystem;

class WheelArchiveTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "wheel-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    fs::create_directory(folder_ / "out");
  }
  void TearDown() override {
    fs::remove_all(folder_);
  }

  void expect_refused(
      const std::vector<WheelEntry>& entries,
      const std::string& part,
      const ExtractLimits& limits = {}) {
    fs::path wheel = folder_ / "a.whl";
    write_wheel(wheel, entries);
    fs::remove_all(folder_ / "out");
    fs::create_directory(folder_ / "out");
    try {
      extract_wheel(wheel, folder_ / "out", limits);
      ADD_FAILURE() << "accepted: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_file);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << error.what();
    }
  }

  fs::path folder_;
};

TEST_F(WheelArchiveTest, UnpacksFilesWithPlainRights) {
  fs::path wheel = folder_ / "a.whl";
  write_wheel(wheel, {{"mlx/lib/libmlx.so", "code"}, {"mlx/empty", ""}});
  extract_wheel(wheel, folder_ / "out");
  std::ifstream file(folder_ / "out/mlx/lib/libmlx.so");
  std::string text;
  std::getline(file, text);
  EXPECT_EQ(text, "code");
  struct stat info{};
  ASSERT_EQ(stat((folder_ / "out/mlx/lib/libmlx.so").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0644u);
  ASSERT_EQ(stat((folder_ / "out/mlx").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0755u);
  EXPECT_TRUE(fs::exists(folder_ / "out/mlx/empty"));
}

TEST_F(WheelArchiveTest, EntriesOutsideOfTheFolderAreRefused) {
  expect_refused({{"../evil", "x"}}, "leads out of its folder");
  expect_refused({{"mlx/../../evil", "x"}}, "leads out of its folder");
  expect_refused({{"/tmp/mlxx-evil", "x"}}, "is no relative path");
  expect_refused({{"mlx\\..\\..\\evil", "x"}}, "entry");
  EXPECT_FALSE(fs::exists(folder_ / "evil"));
  EXPECT_FALSE(fs::exists("/tmp/mlxx-evil"));
}

TEST_F(WheelArchiveTest, WheelsThatShareAPythonPackageGoTogether) {
  for (const char* library : {"nvidia/a/a.so", "nvidia/b/b.so"}) {
    fs::path wheel = folder_ / "a.whl";
    write_wheel(wheel, {{"nvidia/__init__.py", ""}, {library, "code"}});
    extract_wheel(wheel, folder_ / "out");
    EXPECT_TRUE(fs::exists(folder_ / "out" / library));
  }
  EXPECT_FALSE(fs::exists(folder_ / "out/nvidia/__init__.py"));
}

TEST_F(WheelArchiveTest, LinksAreRefused) {
  expect_refused(
      {{"mlx/lib", "", "/etc"}, {"mlx/lib/passwd", "x"}},
      "neither a file nor a folder");
}

TEST_F(WheelArchiveTest, SameNameTwiceIsRefused) {
  expect_refused({{"a", "1"}, {"a", "2"}}, "cannot be made");
}

TEST_F(WheelArchiveTest, LimitsHold) {
  expect_refused(
      {{"a", std::string(2000, 'x')}},
      "more than 1000 bytes",
      {.max_bytes = 1000});
  expect_refused(
      {{"a", ""}, {"b", ""}, {"c", ""}},
      "more than 2 entries",
      {.max_bytes = 1000, .max_entries = 2});
}

TEST_F(WheelArchiveTest, DamagedWheelsAreErrorsAndNoCrash) {
  fs::path wheel = folder_ / "a.whl";
  write_wheel(wheel, {{"mlx/a", std::string(5000, 'y')}, {"mlx/b", "text"}});
  std::ifstream file(wheel, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  for (size_t size = 0; size < bytes.size(); size += 7) {
    std::ofstream(wheel, std::ios::binary) << bytes.substr(0, size);
    fs::remove_all(folder_ / "out");
    fs::create_directory(folder_ / "out");
    EXPECT_THROW(extract_wheel(wheel, folder_ / "out"), Error) << size;
  }
  EXPECT_THROW(extract_wheel(folder_ / "missing", folder_ / "out"), Error);
  EXPECT_THROW(extract_wheel(folder_, folder_ / "out"), Error);
}

}  // namespace
}  // namespace mlxx::runtime

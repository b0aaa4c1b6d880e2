#include "mlxx/base/atomic_file.h"

#include <csignal>
#include <filesystem>

#include <sys/resource.h>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "mlxx/base/mapped_file.h"
#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"

namespace mlxx {
namespace {

class AtomicFileTest : public ::testing::Test {
 protected:
  size_t files_in_folder() {
    auto begin = std::filesystem::directory_iterator(folder_.path());
    return static_cast<size_t>(
        std::distance(begin, std::filesystem::directory_iterator()));
  }
  TemporaryFolder folder_;
  std::filesystem::path target_ = folder_.write("target", "old");
};

TEST_F(AtomicFileTest, TheTargetChangesWithTheCommit) {
  AtomicFile file(target_);
  file.write(std::span<const char>("new and longer", 14));
  EXPECT_EQ(read_file(target_), "old");
  EXPECT_EQ(files_in_folder(), 2u);
  file.commit();
  EXPECT_EQ(read_file(target_), "new and longer");
  EXPECT_EQ(files_in_folder(), 1u);
  struct stat info{};
  ASSERT_EQ(::stat(target_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644u);
}

TEST_F(AtomicFileTest, WithoutACommitNothingIsLeft) {
  {
    AtomicFile file(target_);
    file.write(std::span<const char>("new", 3));
  }
  EXPECT_EQ(read_file(target_), "old");
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(AtomicFileTest, TwoWritersDoNotMix) {
  AtomicFile a(target_);
  AtomicFile b(target_);
  a.write(std::span<const char>("aaa", 3));
  b.write(std::span<const char>("bb", 2));
  b.commit();
  EXPECT_EQ(read_file(target_), "bb");
  a.commit();
  EXPECT_EQ(read_file(target_), "aaa");
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(AtomicFileTest, AFullDiskIsNamedAndTheOldFileStays) {
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small{1000, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message =
      error_of([&] { write_file_atomically(target_, std::string(5000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(message.starts_with("internal: [")) << message;
  EXPECT_NE(message.find("the disk is full"), std::string::npos) << message;
  EXPECT_EQ(read_file(target_), "old");
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(AtomicFileTest, PlacesThatCannotBeWrittenAreRefused) {
  EXPECT_ERROR(
      AtomicFile(folder_.path() / "none" / "file"),
      "internal",
      "cannot create a file there, No such file");
  EXPECT_ERROR(AtomicFile(folder_.path()), "internal", "Is a directory");
  EXPECT_ERROR(AtomicFile(target_ / "file"), "internal", "cannot create");
  EXPECT_ERROR(
      AtomicFile(folder_.path() / std::string(300, 'n')),
      "internal",
      "name too long");
  EXPECT_EQ(files_in_folder(), 1u);
}

}  // namespace
}  // namespace mlxx

#include "mlxx/core/compile_mode.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/core/compile.h"
#include "mlxx/core/mlx.h"

namespace mlxx {
namespace {

namespace fs = std::filesystem;

class CompileModeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "fuse-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    home_ = folder_ / "home";
    fs::create_directory(home_);
  }
  void TearDown() override {
    chmod(home_.c_str(), 0755);
    fs::remove_all(folder_);
  }

  void write_compiler(const std::string& script) {
    fs::path bin = folder_ / "bin";
    fs::create_directory(bin);
    fs::path compiler = bin / "g++";
    std::ofstream(compiler) << "#!/bin/sh\n" << script << "\n";
    chmod(compiler.c_str(), 0755);
  }

  fs::path folder_;
  fs::path home_;
};

// What a process with MLXX_COMPILE=fuse does; MLX remembers its folder, its
// compiler and its mode, so each case needs a process of its own.
// Exit codes: 0 right and fused, 3 right and not fused, 4 wrong, 5 an Error of
// kind invalid_request, 6 another exception.
int compute_fused() {
  try {
    apply_compile_mode();
    auto function = mx::compile([](const std::vector<mx::array>& in) {
      return std::vector<mx::array>{mx::exp(in[0]) * in[0] - in[0]};
    });
    mx::array x({0.0f, 1.0f, 2.0f});
    mx::array y = function({x})[0];
    mx::array expected = mx::exp(x) * x - x;
    if (!mx::allclose(y, expected).item<bool>()) {
      return 4;
    }
    fs::path built = fs::temp_directory_path() / "mlx" / mx::version() / "cpu";
    bool fused = false;
    if (fs::exists(built)) {
      for (const auto& entry : fs::directory_iterator(built)) {
        fused = fused || entry.path().extension() == ".so";
      }
    }
    return fused ? 0 : 3;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.kind() == ErrorKind::invalid_request ? 5 : 6;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 6;
  }
}

// The test program runs itself again with this filter and environment.
int run_in_process(
    const std::vector<std::pair<std::string, std::string>>& settings) {
  pid_t child = fork();
  if (child == 0) {
    for (const auto& [name, value] : settings) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    setenv("MLXX_COMPILE", "fuse", 1);
    setenv("MLXX_TEST_COMPUTE_FUSED", "1", 1);
    execl(
        "/proc/self/exe",
        "compile_mode_test",
        "--gtest_filter=ComputeFused.InItsOwnProcess",
        "--gtest_brief=1",
        nullptr);
    _exit(8);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(ComputeFused, InItsOwnProcess) {
  if (!std::getenv("MLXX_TEST_COMPUTE_FUSED")) {
    GTEST_SKIP() << "only run by the tests below";
  }
  set_log_sink([](LogLevel, std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  });
  // With the end of the process, for what runs then.
  std::exit(compute_fused());
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  if (fs::exists(folder)) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      found.push_back(entry.path());
    }
  }
  return found;
}

TEST_F(CompileModeTest, FusesInAPrivateFolderAndKeepsWhatItBuilt) {
  ASSERT_EQ(run_in_process({{"MLXX_HOME", home_}}), 0);
  fs::path compile = home_ / "compile";
  struct stat info{};
  ASSERT_EQ(stat(compile.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  // The process's own folder is gone, its library is kept.
  auto left = entries(compile);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].filename().string(), std::string("kept-") + mx::version());
  EXPECT_EQ(entries(left[0]).size(), 1u);
  // The kept library serves when only the probe can still be compiled.
  EXPECT_EQ(run_in_process({{"MLXX_HOME", home_}}), 0);
  EXPECT_EQ(entries(left[0]).size(), 1u);
}

TEST_F(CompileModeTest, NothingIsLeftInTheSharedTemporaryFolder) {
  fs::path temporary = folder_ / "tmp";
  fs::create_directory(temporary);
  ASSERT_EQ(run_in_process({{"MLXX_HOME", home_}, {"TMPDIR", temporary}}), 0);
  EXPECT_TRUE(entries(temporary).empty());
}

TEST_F(CompileModeTest, PlantedFolderInTheTemporaryFolderIsNotUsed) {
  fs::path planted = folder_ / "tmp" / "mlx" / mx::version() / "cpu";
  fs::create_directories(planted);
  ASSERT_EQ(
      run_in_process({{"MLXX_HOME", home_}, {"TMPDIR", folder_ / "tmp"}}),
      0);
  EXPECT_TRUE(entries(planted).empty());
}

TEST_F(CompileModeTest, WorksWithoutACompiler) {
  fs::path empty = folder_ / "bin";
  fs::create_directory(empty);
  EXPECT_EQ(run_in_process({{"MLXX_HOME", home_}, {"PATH", empty}}), 3);
}

TEST_F(CompileModeTest, WorksWithAFailingCompiler) {
  write_compiler("[ \"$1\" = --version ] && exit 0; echo broken; exit 1");
  EXPECT_EQ(
      run_in_process(
          {{"MLXX_HOME", home_},
           {"PATH", (folder_ / "bin").string() + ":/usr/bin:/bin"}}),
      3);
}

TEST_F(CompileModeTest, WorksWithACompilerThatWritesRubbish) {
  write_compiler(
      "[ \"$1\" = --version ] && exit 0\n"
      "for last; do :; done\n"
      "while [ $# -gt 0 ]; do [ \"$1\" = -o ] && echo rubbish > \"$2\"; shift; "
      "done\nexit 0");
  EXPECT_EQ(
      run_in_process(
          {{"MLXX_HOME", home_},
           {"PATH", (folder_ / "bin").string() + ":/usr/bin:/bin"}}),
      3);
}

TEST_F(CompileModeTest, FourProcessesAtOnce) {
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    pid_t child = fork();
    if (child == 0) {
      _exit(run_in_process({{"MLXX_HOME", home_}}));
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  }
  EXPECT_EQ(entries(home_ / "compile").size(), 1u);
}

TEST_F(CompileModeTest, FolderThatOthersCanUseIsRefused) {
  fs::create_directory(home_ / "compile");
  chmod((home_ / "compile").c_str(), 0755);
  EXPECT_EQ(run_in_process({{"MLXX_HOME", home_}}), 5);
}

TEST_F(CompileModeTest, FolderOfAnotherUserIsRefused) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "needs root";
  }
  fs::create_directory(home_ / "compile");
  chmod((home_ / "compile").c_str(), 0700);
  ASSERT_EQ(chown((home_ / "compile").c_str(), 65534, 65534), 0);
  EXPECT_EQ(run_in_process({{"MLXX_HOME", home_}}), 5);
}

TEST_F(CompileModeTest, LinkInsteadOfAFolderIsRefused) {
  fs::create_directory(folder_ / "elsewhere");
  chmod((folder_ / "elsewhere").c_str(), 0700);
  fs::create_directory_symlink(folder_ / "elsewhere", home_ / "compile");
  EXPECT_EQ(run_in_process({{"MLXX_HOME", home_}}), 5);
}

TEST_F(CompileModeTest, PathThatAShellWouldRunIsRefused) {
  fs::path home = folder_ / "$(touch executed)";
  EXPECT_EQ(run_in_process({{"MLXX_HOME", home}}), 5);
  EXPECT_FALSE(fs::exists("executed"));
}

TEST_F(CompileModeTest, ReadOnlyHomeUsesAnOwnFolderInTheTemporaryFolder) {
  if (geteuid() == 0) {
    // Root writes everywhere but below what is no folder.
    fs::path file = folder_ / "file";
    std::ofstream(file) << "no folder";
    fs::create_directory(folder_ / "tmp");
    EXPECT_EQ(
        run_in_process(
            {{"MLXX_HOME", file / "home"}, {"TMPDIR", folder_ / "tmp"}}),
        0);
    EXPECT_EQ(entries(folder_ / "tmp").size(), 1u);
    return;
  }
  chmod(home_.c_str(), 0555);
  EXPECT_EQ(run_in_process({{"MLXX_HOME", home_}}), 0);
}

TEST_F(CompileModeTest, WorksWhereNothingCanBeWritten) {
  fs::path file = folder_ / "file";
  std::ofstream(file) << "no folder";
  EXPECT_EQ(
      run_in_process({{"MLXX_HOME", file / "home"}, {"TMPDIR", "/proc"}}),
      3);
}

TEST_F(CompileModeTest, AbandonedFoldersAreRemovedAndLiveOnesAreNot) {
  fs::path parent = home_ / "compile";
  CompileFolder live(parent);
  fs::path abandoned = parent / "process-abcdef";
  fs::create_directory(abandoned);
  std::ofstream(abandoned / "lock") << "";
  CompileFolder second(parent);
  EXPECT_TRUE(fs::exists(live.path()));
  EXPECT_FALSE(fs::exists(abandoned));
}

}  // namespace
}  // namespace mlxx

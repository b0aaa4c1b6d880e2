#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace mlxx::runtime {
namespace {

namespace fs = std::filesystem;

using Settings = std::map<std::string, std::string>;

const fs::path kFakes = MLXX_FAKES;

struct Outcome {
  int exit_code = -1;
  std::multimap<std::string, std::string> lines;
  std::string output;

  std::string operator[](const std::string& key) const {
    auto found = lines.find(key);
    return found == lines.end() ? "" : found->second;
  }
};

class RuntimeLoaderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "loader-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    home_ = folder_ / "home";
    make_folders(home_ / "runtime");
  }
  void TearDown() override {
    fs::remove_all(folder_);
  }

  // Of mode 0755 whatever the umask.
  static void make_folders(const fs::path& path) {
    if (fs::exists(path)) {
      return;
    }
    make_folders(path.parent_path());
    fs::create_directory(path);
    chmod(path.c_str(), 0755);
  }

  static fs::path fake(const std::string& target) {
    return kFakes / target / "libmlx.so";
  }

  fs::path install(const std::string& variant, const fs::path& library) {
    fs::path lib =
        home_ / "runtime" / (variant + "-" MLXX_MLX_VERSION) / "mlx" / "lib";
    make_folders(lib);
    fs::copy_file(library, lib / "libmlx.so");
    chmod((lib / "libmlx.so").c_str(), 0644);
    return lib / "libmlx.so";
  }

  // Runs the probe (or a copy of it) with nothing else in its environment.
  Outcome probe(
      Settings settings,
      const std::string& argument = "",
      const std::string& program = MLXX_RUNTIME_PROBE) {
    settings.try_emplace("MLXX_HOME", home_.string());
    std::string command = "env -i ";
    for (const auto& [name, value] : settings) {
      command += name + "='" + value + "' ";
    }
    command += "'" + program + "' " + argument + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    Outcome outcome;
    char block[4096];
    while (size_t count = fread(block, 1, sizeof block, pipe)) {
      outcome.output.append(block, count);
    }
    int status = pclose(pipe);
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    std::istringstream lines(outcome.output);
    for (std::string line; std::getline(lines, line);) {
      size_t space = line.find(' ');
      outcome.lines.emplace(
          line.substr(0, space),
          space == std::string::npos ? "" : line.substr(space + 1));
    }
    return outcome;
  }

  void expect_error(
      const Outcome& outcome,
      const std::string& kind,
      const std::vector<std::string>& parts) {
    EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
    EXPECT_EQ(outcome["kind"], kind) << outcome.output;
    for (const std::string& part : parts) {
      EXPECT_NE(outcome["error"].find(part), std::string::npos)
          << part << " is not in: " << outcome.output;
    }
  }

  fs::path folder_;
  fs::path home_;
};

TEST_F(RuntimeLoaderTest, BuildFolderUsesWhatItWasLinkedAgainst) {
  auto outcome = probe({});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome["origin"], "of the build folder");
  EXPECT_TRUE(fs::equivalent(outcome["libmlx"], MLXX_REAL_LIBMLX));
}

TEST_F(RuntimeLoaderTest, NamedLibraryIsTakenFirst) {
  install("cpu", fake("fake_mlx_same"));
  auto outcome = probe({{"MLXX_LIBMLX", MLXX_REAL_LIBMLX}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome["origin"], "named by MLXX_LIBMLX or the caller");
}

TEST_F(RuntimeLoaderTest, DifferentVersionNamesBothAndThePath) {
  std::string path = fake("fake_mlx_old");
  expect_error(
      probe({{"MLXX_LIBMLX", path}}),
      "unsupported",
      {path, "MLX 0.0.1", "MLX " MLXX_MLX_VERSION});
}

TEST_F(RuntimeLoaderTest, InstalledVariantOfAnotherVersionIsAnError) {
  auto path = install("cpu", fake("fake_mlx_old"));
  expect_error(probe({}), "unsupported", {path.string(), "0.0.1"});
}

TEST_F(RuntimeLoaderTest, LibraryThatIsNotMlx) {
  std::string path = fake("fake_not_mlx");
  expect_error(
      probe({{"MLXX_LIBMLX", path}}),
      "bad_file",
      {path, "is not MLX"});
}

TEST_F(RuntimeLoaderTest, MissingNamedLibrary) {
  std::string path = folder_ / "libmlx.so";
  expect_error(
      probe({{"MLXX_LIBMLX", path}}),
      "not_found",
      {path, "is not there"});
}

TEST_F(RuntimeLoaderTest, FolderInsteadOfALibrary) {
  expect_error(
      probe({{"MLXX_LIBMLX", folder_}}),
      "bad_file",
      {folder_.string(), "is a folder"});
}

TEST_F(RuntimeLoaderTest, TextInsteadOfALibrary) {
  fs::path path = folder_ / "libmlx.so";
  std::ofstream(path) << "version https://git-lfs.github.com/spec/v1\n";
  expect_error(
      probe({{"MLXX_LIBMLX", path}}),
      "bad_file",
      {path.string(), "no ELF header"});
}

TEST_F(RuntimeLoaderTest, LibraryCutOffAnywhereIsAnErrorAndNoCrash) {
  fs::path path = folder_ / "libmlx.so";
  std::ifstream file(fake("fake_mlx_same"), std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  ASSERT_GT(bytes.size(), 4096u);
  for (size_t size :
       {size_t{0},
        size_t{3},
        size_t{63},
        size_t{64},
        size_t{200},
        bytes.size() / 4,
        bytes.size() / 2}) {
    std::ofstream(path, std::ios::binary) << bytes.substr(0, size);
    expect_error(probe({{"MLXX_LIBMLX", path}}), "bad_file", {path.string()});
  }
}

TEST_F(RuntimeLoaderTest, LibraryForAnotherMachine) {
  fs::path path = folder_ / "libmlx.so";
  std::ifstream file(fake("fake_mlx_same"), std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  bytes[18] = static_cast<char>(0xF3);  // e_machine: RISC-V
  std::ofstream(path, std::ios::binary) << bytes;
  expect_error(
      probe({{"MLXX_LIBMLX", path}}),
      "bad_file",
      {"is not a shared library for"});
}

TEST_F(RuntimeLoaderTest, LibraryThatEveryoneCanWriteIsRefused) {
  fs::path path = folder_ / "libmlx.so";
  fs::copy_file(fake("fake_mlx_same"), path);
  chmod(path.c_str(), 0666);
  expect_error(
      probe({{"MLXX_LIBMLX", path}}),
      "bad_file",
      {"is refused", "can be written by every user"});
}

TEST_F(RuntimeLoaderTest, LibraryInAFolderThatEveryoneCanWriteIsRefused) {
  fs::path open = folder_ / "open";
  fs::create_directory(open);
  fs::copy_file(fake("fake_mlx_same"), open / "libmlx.so");
  // The sticky bit does not help: a library may be added before ours is there.
  for (mode_t mode : {0777, 01777}) {
    chmod(open.c_str(), mode);
    expect_error(
        probe({{"MLXX_LIBMLX", open / "libmlx.so"}}),
        "bad_file",
        {"is refused", "can be written by every user"});
  }
}

TEST_F(RuntimeLoaderTest, InstalledVariantComesBeforeTheBuildFolder) {
  auto path = install("cpu", fake("fake_mlx_same"));
  auto outcome = probe({});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome["variant"], "cpu");
  EXPECT_TRUE(fs::equivalent(outcome["libmlx"], path));
}

TEST_F(RuntimeLoaderTest, InstalledVariantThatAGroupCanWriteIsPassedOver) {
  auto path = install("cpu", fake("fake_mlx_same"));
  for (fs::path part = path; part != home_.parent_path();
       part = part.parent_path()) {
    chmod(part.c_str(), 0775);
    auto outcome = probe({});
    EXPECT_EQ(outcome["origin"], "of the build folder") << part;
    EXPECT_NE(
        outcome["passed_over"].find("can be written by a group"),
        std::string::npos)
        << outcome.output;
    chmod(part.c_str(), 0755);
  }
}

TEST_F(RuntimeLoaderTest, InstalledVariantOfAnotherUserIsPassedOver) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "needs root";
  }
  auto path = install("cpu", fake("fake_mlx_same"));
  ASSERT_EQ(chown(path.parent_path().c_str(), 65534, 65534), 0);
  auto outcome = probe({});
  EXPECT_EQ(outcome["origin"], "of the build folder");
  EXPECT_NE(
      outcome["passed_over"].find("belongs to user 65534"),
      std::string::npos)
      << outcome.output;
}

TEST_F(RuntimeLoaderTest, LinkOutOfTheRuntimeFolderIsPassedOver) {
  fs::path elsewhere = folder_ / "elsewhere";
  make_folders(elsewhere / "mlx" / "lib");
  fs::copy_file(fake("fake_mlx_same"), elsewhere / "mlx" / "lib" / "libmlx.so");
  fs::create_directory_symlink(
      elsewhere,
      home_ / "runtime" / "cpu-" MLXX_MLX_VERSION);
  auto outcome = probe({});
  EXPECT_NE(outcome["passed_over"].find("leads out of"), std::string::npos)
      << outcome.output;
}

TEST_F(RuntimeLoaderTest, CudaVariantNeedsADriverWithADevice) {
  install("cpu", fake("fake_mlx_same"));
  install("cuda13", fake("fake_mlx_same"));
  EXPECT_EQ(
      probe({{"LD_LIBRARY_PATH", kFakes / "fake_driver"}})["variant"],
      "cuda13");
  EXPECT_EQ(
      probe({{"LD_LIBRARY_PATH", kFakes / "fake_driver_no_device"}})["variant"],
      "cpu");
}

TEST_F(RuntimeLoaderTest, CudaVariantThatDoesNotLoadGivesWayToTheCpuOne) {
  install("cpu", fake("fake_mlx_same"));
  auto broken = install("cuda13", fake("fake_mlx_same"));
  std::ofstream(broken) << "rubbish";
  auto outcome = probe({{"LD_LIBRARY_PATH", kFakes / "fake_driver"}});
  EXPECT_EQ(outcome["variant"], "cpu") << outcome.output;
  EXPECT_NE(outcome["passed_over"].find(broken.string()), std::string::npos);
}

TEST_F(RuntimeLoaderTest, DriverTellsItsDevices) {
  auto outcome = probe({{"LD_LIBRARY_PATH", kFakes / "fake_driver"}}, "driver");
  EXPECT_EQ(outcome["devices"], "1");
  EXPECT_EQ(outcome["name"], "Fake GPU");
  EXPECT_EQ(outcome["managed"], "yes");
}

TEST_F(RuntimeLoaderTest, KeepsCompiledCodeInItsHomeWhereThereIsADriver) {
  auto outcome = probe({});
  EXPECT_EQ(outcome["CUDA_CACHE_PATH"], "unset") << outcome.output;
  Settings with_driver{{"LD_LIBRARY_PATH", kFakes / "fake_driver"}};
  outcome = probe(with_driver);
  EXPECT_EQ(outcome["CUDA_CACHE_PATH"], home_ / "cuda" / "driver");
  fs::path folder = home_ / "cuda" / "mlx" / MLXX_MLX_VERSION "-sm_91";
  EXPECT_EQ(outcome["MLX_PTX_CACHE_DIR"], folder);
  EXPECT_TRUE(fs::is_directory(folder));
  // What a killed process left is compiled again; the rest stays.
  make_folders(folder / "of_a_long_name");
  for (const char* file :
       {"whole.ptx",
        "whole.txt",
        "whole.cu",
        "half.ptx",
        "half.txt",
        "of_a_long_name/half.ptx"}) {
    std::ofstream(folder / file) << "x";
  }
  probe(with_driver);
  EXPECT_TRUE(fs::exists(folder / "whole.ptx"));
  EXPECT_FALSE(fs::exists(folder / "half.ptx"));
  EXPECT_FALSE(fs::exists(folder / "of_a_long_name" / "half.ptx"));
  with_driver["CUDA_CACHE_PATH"] = "/elsewhere";
  EXPECT_EQ(probe(with_driver)["CUDA_CACHE_PATH"], "/elsewhere");
}

TEST_F(RuntimeLoaderTest, CompiledCodeThatAGroupCanWriteIsNotUsed) {
  make_folders(home_ / "cuda" / "mlx");
  chmod((home_ / "cuda" / "mlx").c_str(), 0775);
  auto outcome = probe({{"LD_LIBRARY_PATH", kFakes / "fake_driver"}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome["MLX_PTX_CACHE_DIR"], "unset");
}

TEST_F(RuntimeLoaderTest, WorksWithoutAnyHomeFolder) {
  std::string command = std::string("env -i '") + MLXX_RUNTIME_PROBE + "'";
  EXPECT_EQ(std::system((command + " > /dev/null").c_str()), 0);
}

TEST_F(RuntimeLoaderTest, LibraryBesideTheProgramComesBeforeTheInstalledOne) {
  install("cpu", fake("fake_mlx_same"));
  make_folders(folder_ / "app" / "bin");
  fs::path program = folder_ / "app" / "bin" / "probe";
  fs::copy_file(MLXX_RUNTIME_PROBE, program);
  for (const char* place : {"bin", "lib", "lib/mlxx/mlx/lib"}) {
    fs::path lib = folder_ / "app" / place;
    make_folders(lib);
    fs::copy_file(fake("fake_mlx_same"), lib / "libmlx.so");
    auto outcome = probe({}, "", program);
    EXPECT_EQ(outcome["origin"], "beside the program") << outcome.output;
    EXPECT_TRUE(fs::equivalent(outcome["libmlx"], lib / "libmlx.so"));
    fs::remove(lib / "libmlx.so");
  }
}

TEST_F(RuntimeLoaderTest, NoLibraryAtAllSaysWhereItLookedAndWhatToDo) {
  fs::path program = folder_ / "probe";
  fs::copy_file(MLXX_RUNTIME_PROBE, program);
  auto outcome = probe({}, "", program);
  if (outcome.exit_code == 0) {
    GTEST_SKIP() << "this machine has MLX: " << outcome["libmlx"];
  }
  // With the message of the system's loader.
  expect_error(
      outcome,
      "not_found",
      {"mlxx runtime install cpu",
       "MLXX_LIBMLX",
       "libmlx.so: cannot open shared object file"});
}

TEST_F(RuntimeLoaderTest, OpenBlasTakesThePlaceOfTheBundledBlas) {
  auto outcome = probe({});
  if (outcome["blas"].empty()) {
    GTEST_SKIP() << outcome["blas_reason"];
  }
  EXPECT_NE(outcome["blas_in_use"].find("openblas"), std::string::npos)
      << outcome.output;
}

TEST_F(RuntimeLoaderTest, BundledBlasOnRequest) {
  for (const Settings& settings :
       {Settings{{"MLXX_BLAS", "mlx"}},
        Settings{{"MLXX_KERNEL", "fallback"}}}) {
    auto outcome = probe(settings);
    EXPECT_EQ(outcome["blas"], "");
    EXPECT_EQ(outcome["blas_in_use"].find("openblas"), std::string::npos)
        << outcome.output;
    EXPECT_FALSE(outcome["blas_in_use"].empty());
  }
}

TEST_F(RuntimeLoaderTest, BlasThatWasAskedForMustLoad) {
  expect_error(
      probe({{"MLXX_BLAS", "/nonexistent/libblas.so"}}),
      "not_found",
      {"MLXX_BLAS", "/nonexistent/libblas.so"});
  expect_error(
      probe({{"MLXX_BLAS", "fastest"}}),
      "invalid_request",
      {"MLXX_BLAS", "'fastest'"});
  expect_error(
      probe({{"MLXX_BLAS", fake("fake_not_mlx")}}),
      "bad_file",
      {"MLXX_BLAS", "is not a BLAS"});
}

TEST_F(RuntimeLoaderTest, RaisedPrivilegesAreRefused) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "needs root";
  }
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "LeakSanitizer ends a setuid process, whatever its options";
#endif
  fs::path program = folder_ / "probe";
  fs::copy_file(MLXX_RUNTIME_PROBE, program);
  ASSERT_EQ(chown(program.c_str(), 65534, 65534), 0);
  ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  expect_error(
      probe({{"MLXX_LIBMLX", MLXX_REAL_LIBMLX}}, "", program),
      "invalid_request",
      {"setuid"});
}

}  // namespace
}  // namespace mlxx::runtime

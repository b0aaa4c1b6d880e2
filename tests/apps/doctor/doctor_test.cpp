#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "tests/apps/child_process.h"

namespace mlxx::apps {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const std::string kMissing = "/nonexistent/libmlx.so";
const std::string kOld = MLXX_FAKES "/fake_mlx_old/libmlx.so";

class DoctorTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "doctor-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    home_ = name;
  }
  void TearDown() override {
    fs::remove_all(home_);
  }

  ChildResult run(
      std::vector<std::string> arguments,
      std::map<std::string, std::string> environment = {}) {
    environment.try_emplace("MLXX_HOME", home_);
    return run_mlxx(
        {.arguments = std::move(arguments),
         .input = {},
         .environment = std::move(environment),
         .stdout_path = {}});
  }

  std::string home_;
};

TEST_F(DoctorTest, TellsVersionsPathsAndMachine) {
  auto result = run({"doctor", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  Json report = Json::parse(result.out);
  EXPECT_EQ(report["ok"], true);
  EXPECT_EQ(report["mlx"]["loaded"], MLXX_MLX_VERSION);
  EXPECT_EQ(report["mlx"]["built_against"], MLXX_MLX_VERSION);
  EXPECT_TRUE(fs::exists(report["mlx"]["path"].get<std::string>()));
  EXPECT_TRUE(fs::exists(report["blas"]["path"].get<std::string>()));
  EXPECT_FALSE(report["device"].get<std::string>().empty());
  EXPECT_GT(report["processor"]["threads"], 0);
  EXPECT_FALSE(report["processor"]["instruction_sets"].empty());
  EXPECT_GT(report["memory"]["total_bytes"], 1 << 28);
  EXPECT_EQ(report["home"], home_);
  int in_use = 0;
  for (const auto& candidate : report["mlx"]["candidates"]) {
    in_use += candidate["in_use"].get<bool>();
  }
  EXPECT_EQ(in_use, 1);
}

TEST_F(DoctorTest, SelftestComputesAndComparesProducts) {
  auto result = run({"doctor", "--selftest", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  Json report = Json::parse(result.out);
  EXPECT_GE(report["selftest"].size(), 20u);
  for (const auto& check : report["selftest"]) {
    EXPECT_EQ(check["passed"], true) << check;
  }
}

TEST_F(DoctorTest, SelftestAlsoPassesWithPlainKernelsAndMlxsOwnBlas) {
  auto result = run({"doctor", "--selftest"}, {{"MLXX_KERNEL", "fallback"}});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_NE(result.out.find("MLX's own"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("openblas"), std::string::npos) << result.out;
}

TEST_F(DoctorTest, WithoutALibmlxItSaysWhyAndWhatToDo) {
  auto result = run({"doctor"}, {{"MLXX_LIBMLX", kMissing}});
  EXPECT_EQ(result.exit_code, 1);
  for (const char* part :
       {"none loaded", "mlxx runtime install cpu", kMissing.c_str()}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << result.out;
  }
  Json report =
      Json::parse(run({"doctor", "--json"}, {{"MLXX_LIBMLX", kMissing}}).out);
  EXPECT_EQ(report["ok"], false);
  EXPECT_EQ(report["mlx"]["loaded"], "");
}

TEST_F(DoctorTest, LibmlxOfAnotherVersion) {
  auto result = run({"doctor"}, {{"MLXX_LIBMLX", kOld}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(
      result.out.find("is MLX 0.0.1, but this mlxx was built against "
                      "MLX " MLXX_MLX_VERSION),
      std::string::npos)
      << result.out;
}

// A driver may be there without a usable device, as in containers, and a device
// may not share managed memory with the processor, as on some Jetsons.
TEST_F(DoctorTest, SaysHowTheNvidiaGpuSharesMemory) {
  const char* before = std::getenv("LD_LIBRARY_PATH");
  auto with_driver = [&](const char* name, const char* format) {
    std::string path = std::string(MLXX_FAKES "/") + name;
    auto result =
        run({"doctor", format},
            {{"LD_LIBRARY_PATH", before ? path + ":" + before : path}});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return result.out;
  };
  Json nvidia = Json::parse(with_driver("fake_driver", "--json"))["nvidia"];
  ASSERT_EQ(nvidia["devices"].size(), 1u) << nvidia;
  EXPECT_EQ(nvidia["devices"][0]["concurrent_managed_access"], true);
  EXPECT_EQ(nvidia["cuda_version"], "13.0");
  nvidia =
      Json::parse(with_driver("fake_driver_unmanaged", "--json"))["nvidia"];
  EXPECT_EQ(nvidia["devices"][0]["concurrent_managed_access"], false);
  nvidia =
      Json::parse(with_driver("fake_driver_no_device", "--json"))["nvidia"];
  EXPECT_FALSE(nvidia.contains("devices"));
  EXPECT_EQ(nvidia["reason"], "the NVIDIA driver sees no device");

  EXPECT_NE(
      with_driver("fake_driver", "--selftest").find("managed memory shared"),
      std::string::npos);
  EXPECT_NE(
      with_driver("fake_driver_unmanaged", "--selftest")
          .find("no concurrent managed memory"),
      std::string::npos);
}

TEST_F(DoctorTest, OtherVerbsGiveOneLineWithoutALibmlx) {
  auto result = run({"generate", "hello"}, {{"MLXX_LIBMLX", kMissing}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(is_error_line(result.err)) << result.err;
  EXPECT_EQ(result.out, "");
}

TEST_F(DoctorTest, HelpAndVersionWorkWithoutALibmlx) {
  auto help = run({"--help"}, {{"MLXX_LIBMLX", kMissing}});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.out.find("mlxx runtime install"), std::string::npos);
  auto version = run({"--version"}, {{"MLXX_LIBMLX", kMissing}});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(version.out.starts_with("mlxx ")) << version.out;
  EXPECT_NE(version.out.find(MLXX_MLX_VERSION), std::string::npos);
}

TEST_F(DoctorTest, RuntimeWorksWithoutALibmlx) {
  auto list = run({"runtime", "list"}, {{"MLXX_LIBMLX", kMissing}});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_NE(list.out.find("No variant is installed"), std::string::npos);
  auto remove = run({"runtime", "remove", "cpu"});
  EXPECT_EQ(remove.exit_code, 1);
  EXPECT_TRUE(is_error_line(remove.err)) << remove.err;
  auto unknown = run({"runtime", "install", "rocm"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.err.find("cuda13"), std::string::npos) << unknown.err;
  auto wrong = run({"runtime", "install", "cpu", "--from", "/dev/null"});
  EXPECT_NE(wrong.exit_code, 0);
  EXPECT_TRUE(is_error_line(wrong.err)) << wrong.err;
}

TEST_F(DoctorTest, NearMissOfAVerbIsGuessed) {
  auto result = run({"runtime", "instal", "cpu"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("install"), std::string::npos);
}

TEST_F(DoctorTest, BlasSettingThatIsWrongIsRefused) {
  auto result = run({"generate", "hello"}, {{"MLXX_BLAS", "fastest"}});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("'fastest'"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace mlxx::apps

#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/base/runtime_install/installed_variants.h"
#include "mlxx/base/runtime_install/pip_download.h"
#include "mlxx/base/sha256.h"
#include "tests/base/runtime_install/wheel_writer.h"

namespace mlxx::runtime {
namespace {

namespace fs = std::filesystem;

std::string hash_of(const fs::path& path) {
  std::string text = read_file(path, size_t{1} << 20);
  return sha256_hex(std::as_bytes(std::span(text.data(), text.size())));
}

class InstallTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "install-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = std::getenv("PATH");
    setenv("MLXX_HOME", (folder_ / "home").c_str(), 1);
    wheel_ = folder_ / "mlx_cpu-" MLXX_MLX_VERSION "-py3-none-any.whl";
    write_wheel(
        wheel_,
        {{"mlx/lib/libmlx.so", "code"}, {"mlx_cpu.libs/libblas.so", "blas"}});
    pins_.name = "cpu";
    pins_.mlx = {
        .file = wheel_.filename(),
        .sha256 = hash_of(wheel_),
        .platform = "any",
        .package = "mlx-cpu",
        .version = MLXX_MLX_VERSION};
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    unsetenv("MLXX_HOME");
    fs::remove_all(folder_);
  }

  // A "python3" that runs `script` in place of pip.
  void fake_pip(const std::string& script) {
    fs::path bin = folder_ / "bin";
    fs::create_directory(bin);
    std::ofstream(bin / "python3")
        << "#!/bin/sh\n[ \"$3\" = --version ] && exit 0\n"
        << script << "\n";
    chmod((bin / "python3").c_str(), 0755);
    setenv("PATH", (bin.string() + ":/usr/bin:/bin").c_str(), 1);
  }

  void expect_error(
      ErrorKind kind,
      const std::string& part,
      const InstallOptions& options = {}) {
    try {
      install_pins(pins_, options);
      ADD_FAILURE() << "installed";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << error.what();
    }
    EXPECT_FALSE(fs::exists(installed()));
    // Nothing half done stays.
    fs::path runtime = folder_ / "home" / "runtime";
    if (fs::exists(runtime)) {
      EXPECT_TRUE(fs::is_empty(runtime));
    }
  }

  fs::path installed() const {
    return folder_ / "home" / "runtime" / "cpu-" MLXX_MLX_VERSION;
  }

  fs::path folder_;
  fs::path wheel_;
  std::string path_;
  VariantPins pins_;
};

TEST_F(InstallTest, FromAFileThenListThenRemove) {
  EXPECT_TRUE(installed_variants().empty());
  EXPECT_EQ(install_pins(pins_, {.wheels = {wheel_}}), installed());
  EXPECT_EQ(read_file(installed() / "mlx/lib/libmlx.so", 100), "code");
  auto found = installed_variants();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].variant, "cpu");
  EXPECT_EQ(found[0].version, MLXX_MLX_VERSION);
  EXPECT_EQ(found[0].bytes, 8u);
  struct stat info{};
  ASSERT_EQ(stat(installed().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0755u);
  // Again: nothing to do, and nothing is read.
  EXPECT_EQ(install_pins(pins_, {}), installed());
  remove_variant("cpu");
  EXPECT_FALSE(fs::exists(installed()));
  EXPECT_TRUE(fs::is_empty(installed().parent_path()));
  EXPECT_THROW(remove_variant("cpu"), Error);
}

TEST_F(InstallTest, WheelWithAnotherHashIsRefused) {
  std::ofstream(wheel_, std::ios::app) << "x";
  expect_error(
      ErrorKind::bad_file,
      "expected " + pins_.mlx.sha256,
      {.wheels = {wheel_}});
}

TEST_F(InstallTest, MissingWheelIsNamed) {
  expect_error(
      ErrorKind::not_found,
      "missing.whl",
      {.wheels = {folder_ / "missing.whl"}});
}

TEST_F(InstallTest, WheelWithoutALibraryIsRefused) {
  fs::remove(wheel_);
  write_wheel(wheel_, {{"mlx/readme", "text"}});
  pins_.mlx.sha256 = hash_of(wheel_);
  expect_error(ErrorKind::bad_file, "holds no libmlx", {.wheels = {wheel_}});
}

TEST_F(InstallTest, PipIsAskedForTheExactWheelByHash) {
  fake_pip(
      "echo \"$@\" > '" + (folder_ / "arguments").string() + "'\n" +
      "while [ $# -gt 0 ]; do case $1 in --dest) dest=$2;; --requirement) cp "
      "\"$2\" '" +
      (folder_ / "requirement").string() +
      "';; esac; shift; "
      "done\ncp '" +
      wheel_.string() + "' \"$dest\"");
  EXPECT_EQ(install_pins(pins_, {}), installed());
  std::string arguments = read_file(folder_ / "arguments", 4096);
  for (const char* part :
       {"-m pip download", "--no-deps", "--require-hashes", "--platform any"}) {
    EXPECT_NE(arguments.find(part), std::string::npos) << arguments;
  }
  EXPECT_EQ(
      read_file(folder_ / "requirement", 4096),
      "mlx-cpu==" MLXX_MLX_VERSION " --hash=sha256:" + pins_.mlx.sha256 + "\n");
}

TEST_F(InstallTest, WhatPipBroughtIsChecked) {
  fake_pip(
      "while [ $# -gt 0 ]; do [ \"$1\" = --dest ] && echo rubbish > \"$2/" +
      pins_.mlx.file + "\"; shift; done");
  expect_error(ErrorKind::bad_file, "another sha256");
}

TEST_F(InstallTest, FailingPipIsQuoted) {
  fake_pip("echo 'ERROR: no matching distribution' >&2; exit 1");
  expect_error(ErrorKind::internal, "no matching distribution");
}

TEST_F(InstallTest, WithoutPipTheCommandIsTold) {
  setenv("PATH", (folder_ / "nothing").c_str(), 1);
  expect_error(
      ErrorKind::not_found,
      "pip download --no-deps --only-binary=:all: --python-version 3.12 "
      "--platform any mlx-cpu==");
}

TEST_F(InstallTest, FolderThatOthersCanWriteIsRefused) {
  fs::create_directories(folder_ / "home" / "runtime");
  chmod((folder_ / "home" / "runtime").c_str(), 0777);
  expect_error(
      ErrorKind::invalid_request,
      "can be written by every user",
      {.wheels = {wheel_}});
}

TEST_F(InstallTest, UnknownVariantNamesTheKnownOnes) {
  try {
    pins_for_this_machine("rocm");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    EXPECT_STREQ(
        error.what(),
        "[runtime] 'rocm' is no variant of MLX; there are cpu, cuda12, cuda13, "
        "metal");
  }
}

TEST(WheelPins, AreWellFormed) {
  Json pins = parse_json(read_file(MLXX_WHEEL_PINS, 1 << 20), "pins");
  EXPECT_EQ(pins["version"], MLXX_MLX_VERSION);
  int count = 0;
  for (const auto& [name, variant] : pins["variants"].items()) {
    for (const char* list : {"wheels", "libraries"}) {
      for (const Json& wheel : variant.value(list, Json::array())) {
        ++count;
        std::string hash = wheel["sha256"];
        EXPECT_EQ(hash.size(), 64u);
        EXPECT_EQ(hash.find_first_not_of("0123456789abcdef"), hash.npos);
        std::string file = wheel["file"];
        std::string platform = wheel["platform"];
        EXPECT_NE(file.find(platform), file.npos) << file;
        EXPECT_TRUE(file.ends_with(".whl"));
      }
    }
  }
  EXPECT_EQ(count, 43);
}

}  // namespace
}  // namespace mlxx::runtime

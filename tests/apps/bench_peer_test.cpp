// What `mlxx bench --peer` asks of other programs and reads from them, with
// scripts in their place.
#include "apps/mlxx/bench_peer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <fstream>

#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::apps {
namespace {

class File : public models::FakeCheckpoint {
 public:
  explicit File(std::filesystem::path path)
      : FakeCheckpoint(Json::object()), path_(std::move(path)) {}
  const std::filesystem::path& path() const override {
    return path_;
  }

 private:
  std::filesystem::path path_;
};

class BenchPeerTest : public testing::Test {
 protected:
  // A program that writes down how it was called and prints `output`.
  std::string program(const std::string& name, const std::string& output) {
    auto path = folder_.path() / name;
    std::ofstream(path) << "#!/bin/sh\necho \"$@\" > " << calls().string()
                        << "\ncat <<'END'\n"
                        << output << "\nEND\n";
    chmod(path.c_str(), 0700);
    return path.string();
  }
  std::filesystem::path calls() const {
    return folder_.path() / "calls";
  }
  std::string call() const {
    std::ifstream file(calls());
    std::string line;
    std::getline(file, line);
    return line;
  }
  std::unique_ptr<BenchPeer> peer(const std::string& text) {
    return make_bench_peer(text, File("m.gguf"), 2, folder_.path());
  }

  TemporaryFolder folder_;
};

constexpr const char* kLines =
    "starting\n"
    R"({"n_prompt": 512, "n_gen": 0, "avg_ts": 100.5})"
    "\n"
    R"({"n_prompt": 0, "n_gen": 128, "avg_ts": 25.25})";

constexpr const char* kArray =
    "warning: [x]\n"
    "[\n  {\n    \"n_prompt\": 512,\n    \"n_gen\": 0,\n"
    "    \"avg_ts\": 200.5,\n    \"samples_ts\": [ 200.5 ]\n  },\n"
    "  {\n    \"n_prompt\": 0,\n    \"n_gen\": 128,\n"
    "    \"avg_ts\": 50.25\n  }\n]\nbuild: 1";

TEST_F(BenchPeerTest, ReadsLlamaCpp) {
  auto llama = peer("llama.cpp=" + program("llama-bench", kLines));
  BenchRound round = llama->measure({.prompt = 512, .decode = 128, .depth = 7});
  EXPECT_EQ(llama->name(), "llama.cpp");
  EXPECT_EQ(round.prompt_rate, 100.5);
  EXPECT_EQ(round.decode_rate, 25.25);
  EXPECT_EQ(call(), "-m m.gguf -p 512 -n 128 -d 7 -r 1 -o jsonl -t 2");
  program("llama-batched-bench", R"({"speed_tg": 12.5})");
  round = llama->measure({.prompt = 0, .decode = 64, .parallel = 8});
  EXPECT_EQ(round.prompt_rate, std::nullopt);
  EXPECT_EQ(round.decode_rate, 12.5);
}

TEST_F(BenchPeerTest, ReadsIkLlamaCpp) {
  auto ik = peer("ik_llama.cpp=" + program("bench", kArray));
  BenchRound round = ik->measure({.prompt = 512, .decode = 128});
  EXPECT_EQ(ik->name(), "ik_llama.cpp");
  EXPECT_EQ(round.prompt_rate, 200.5);
  EXPECT_EQ(round.decode_rate, 50.25);
  EXPECT_EQ(call(), "-m m.gguf -p 512 -n 128 -r 1 -o json -t 2");
  ik->measure({.prompt = 512, .decode = 128, .depth = 4096});
  EXPECT_EQ(call(), "-m m.gguf -p 0 -n 0 -r 1 -o json -gp 4096,128 -t 2");
  EXPECT_ERROR(
      ik->measure({.decode = 64, .parallel = 8}),
      "invalid_request",
      "measures one sequence, not 8");
}

TEST_F(BenchPeerTest, SaysWhatIsWrong) {
  EXPECT_ERROR(peer("llama=x"), "invalid_request", "found 'llama=x'");
  EXPECT_ERROR(
      make_bench_peer("ik_llama.cpp=x", File("folder"), 2, folder_.path()),
      "invalid_request",
      "reads GGUF files, and the model is folder");
  BenchPlan plan{.prompt = 512, .decode = 128};
  EXPECT_ERROR(
      peer("ik_llama.cpp=/nowhere/bench")->measure(plan),
      "invalid_request",
      "'/nowhere/bench' cannot be run");
  EXPECT_ERROR(
      peer("ik_llama.cpp=" + program("broken", "[\n  {\n]"))->measure(plan),
      "internal",
      "reports no tests");
  EXPECT_ERROR(
      peer("llama.cpp=" + program("old", R"({"n_gen": 1})"))->measure(plan),
      "internal",
      "does not report 'avg_ts'");
}

}  // namespace
}  // namespace mlxx::apps

// States that a process left on disk serve the next one.
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/base/log.h"
#include "mlxx/base/mapped_file.h"
#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"
#include "tests/engine/served_model.h"

namespace mlxx::engine {
namespace {

namespace fs = std::filesystem;

class PrefixDisk : public testing::Test {
 protected:
  PrefixDisk() {
    set_log_sink([this](LogLevel, std::string_view line) {
      std::lock_guard lock(mutex_);
      if (line.starts_with("[prompt cache]")) {
        log_ += std::string(line) + "\n";
      }
    });
  }
  ~PrefixDisk() override {
    set_log_sink({});
  }
  std::string log() {
    std::lock_guard lock(mutex_);
    return std::exchange(log_, {});
  }

  // As a process that starts.
  std::unique_ptr<PrefixCache> start(
      const Served& served,
      const std::string& identity = "weights",
      size_t max_disk_bytes = size_t{1} << 30) {
    auto prefixes = std::make_unique<PrefixCache>(PrefixCacheOptions{
        .folder = folder_.path() / "prompts",
        .max_disk_bytes = max_disk_bytes});
    prefixes->keep_on_disk("m", identity, [&] { return served.make_cache(); });
    return prefixes;
  }

  // All of one ending, in the order of their names.
  std::vector<fs::path> files(const std::string& ending) {
    std::vector<fs::path> found;
    for (const auto& at :
         fs::recursive_directory_iterator(folder_.path() / "prompts")) {
      if (at.is_regular_file() && at.path().string().ends_with(ending)) {
        found.push_back(at.path());
      }
    }
    std::ranges::sort(found);
    return found;
  }

  TemporaryFolder folder_;

 private:
  std::mutex mutex_;
  std::string log_;
};

Row answered(
    Served& served,
    const Tokens& prompt,
    PrefixCache& prefixes,
    int steps = 4) {
  Row row = served.prefill(prompt, &prefixes);
  for (int i = 0; i < steps; ++i) {
    served.step(row);
  }
  return row;
}

TEST_F(PrefixDisk, ServesTheNextProcess) {
  struct Case {
    const char* type;
    bool per_layer;
    int cached;  // of 209 tokens
  };
  for (auto [type, per_layer, cached] :
       {Case{"llama", false, 192},
        Case{"llama", true, 192},
        Case{"falcon_h1", false, 192},
        Case{"qwen3_next", false, 192},
        Case{"mamba2", false, 192},
        Case{"gemma3_text", true, 192},
        Case{"llama4", true, 192}}) {
    SCOPED_TRACE(fmt::format("{} {}", type, per_layer));
    Served served(type, {.per_layer = per_layer}, kFourBits);
    std::mt19937 random(1);
    Tokens prompt = served.random_tokens(random, 210);
    {
      auto prefixes = start(served);
      Row row = answered(served, prompt, *prefixes);
      EXPECT_EQ(row.cached, 0);
      served.close(row, *prefixes);
    }
    auto prefixes = start(served);
    Row row = answered(served, prompt, *prefixes);
    EXPECT_EQ(row.cached, cached);
    expect_same(row, served.in_the_same_pieces(prompt, row));
    EXPECT_EQ(prefixes->stats().disk_hits, 1u);
    EXPECT_EQ(prefixes->stats().disk_tokens_found, uint64_t(cached));
    // In memory now, with what was computed since.
    Row again = answered(served, prompt, *prefixes);
    EXPECT_EQ(again.cached, 209);
    expect_same(again, row);
    EXPECT_EQ(prefixes->stats().disk_hits, 1u);
    EXPECT_EQ(log(), "");
  }
}

TEST_F(PrefixDisk, ACommonStartIsWrittenOnce) {
  Served served("llama", {}, kFourBits);
  std::mt19937 random(2);
  Tokens system = served.random_tokens(random, 320);
  auto prefixes = start(served);
  for (int i = 0; i < 6; ++i) {
    Tokens prompt = joined(system, served.random_tokens(random, 70));
    Row row = served.prefill(prompt, &*prefixes);
    served.close(row, *prefixes);
  }
  prefixes->flush();
  // Five blocks together, one of each prompt.
  EXPECT_EQ(prefixes->stats().disk_files, 5u + 6u);
  EXPECT_EQ(prefixes->stats().disk_written, 5u + 6u);
  EXPECT_EQ(files(".kv.safetensors").size(), 11u);
  prefixes.reset();
  auto next = start(served);
  EXPECT_EQ(next->stats().disk_files, 11u);
  EXPECT_EQ(served.prefill(joined(system, {1, 2, 3}), next.get()).cached, 320);
}

TEST_F(PrefixDisk, ATickWritesAndDoesNotWait) {
  Served served("falcon_h1", {}, kFourBits);
  std::mt19937 random(3);
  Tokens prompt = served.random_tokens(random, 300);
  auto prefixes = start(served);
  Row row = answered(served, prompt, *prefixes);
  EXPECT_EQ(prefixes->stats().disk_files, 0u);
  for (int i = 0; i < 1000 && prefixes->stats().disk_files < 5; ++i) {
    prefixes->tick();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Four blocks and the state after them.
  EXPECT_EQ(prefixes->stats().disk_files, 5u);
}

TEST_F(PrefixDisk, OtherWeightsOtherLayoutsAndOtherSpacesFindNothing) {
  Served served("llama", {}, kFourBits);
  std::mt19937 random(4);
  Tokens prompt = served.random_tokens(random, 200);
  {
    auto prefixes = start(served);
    answered(served, prompt, *prefixes);
  }
  EXPECT_EQ(answered(served, prompt, *start(served, "other")).cached, 0);
  Served layers("llama", {.per_layer = true}, kFourBits);
  EXPECT_EQ(answered(layers, prompt, *start(layers)).cached, 0);
  PrefixCache unknown({.folder = folder_.path() / "prompts"});
  EXPECT_FALSE(unknown.find("m", prompt));
  EXPECT_EQ(answered(served, prompt, *start(served)).cached, 192);
  EXPECT_EQ(log(), "");
}

TEST_F(PrefixDisk, DamagedCutAndForeignFilesAreSkippedAndSaid) {
  for (const char* type : {"llama", "falcon_h1"}) {
    SCOPED_TRACE(type);
    Served served(type, {}, kFourBits);
    std::mt19937 random(5);
    Tokens prompt = served.random_tokens(random, 270);
    Row expected = served.cold(prompt, 4);
    bool hybrid = type == std::string("falcon_h1");
    auto write_anew = [&] {
      fs::remove_all(folder_.path() / "prompts");
      auto prefixes = start(served);
      answered(served, prompt, *prefixes);
      // A state in the middle, too.
      Tokens shorter(prompt.begin(), prompt.begin() + 129);
      answered(served, shorter, *prefixes);
    };
    auto run = [&](int cached, const std::string& reason) {
      auto prefixes = start(served);
      Row row = answered(served, prompt, *prefixes);
      EXPECT_EQ(row.cached, cached);
      expect_same(row, expected);
      EXPECT_EQ(prefixes->stats().disk_refused, 1u);
      EXPECT_NE(log().find(reason), std::string::npos) << reason;
    };
    write_anew();
    auto blocks = files(".kv.safetensors");
    ASSERT_EQ(blocks.size(), 4u);
    // One bit of the third block.
    std::string content = read_file(blocks[2]);
    content[content.size() - 100] ^= 4;
    write_file_atomically(blocks[2], content);
    run(128, "checksum");
    // It was written anew, and all is well.
    {
      auto prefixes = start(served);
      EXPECT_EQ(answered(served, prompt, *prefixes).cached, 256);
    }
    write_anew();
    fs::resize_file(blocks[1], fs::file_size(blocks[1]) / 2);
    run(64, "skipped");
    write_anew();
    // Another block's file under this name, whole.
    fs::copy_file(blocks[0], blocks[1], fs::copy_options::overwrite_existing);
    run(64, "other tokens");
    write_anew();
    write_file_atomically(blocks[3], "GGUF");
    run(hybrid ? 128 : 192, "skipped");
    if (hybrid) {
      write_anew();
      auto states = files(".state.safetensors");
      ASSERT_EQ(states.size(), 3u);
      fs::resize_file(states[2], 17);
      run(128, "skipped");
    }
  }
}

TEST_F(PrefixDisk, HoldsItsLimitAndDropsTheLongestUnusedFirst) {
  Served served("llama", {}, kFourBits);
  std::mt19937 random(6);
  Tokens first = served.random_tokens(random, 270);
  {
    auto prefixes = start(served);
    answered(served, first, *prefixes);
  }
  size_t one = fs::file_size(files(".kv.safetensors")[0]);
  Tokens used = served.random_tokens(random, 140);
  auto prefixes = start(served, "weights", 7 * one);
  answered(served, used, *prefixes);
  prefixes->flush();
  EXPECT_EQ(prefixes->stats().disk_files, 6u);
  // In use again, later than `used`.
  prefixes->clear();
  EXPECT_EQ(answered(served, first, *prefixes).cached, 256);
  answered(served, served.random_tokens(random, 200), *prefixes);
  prefixes->flush();
  EXPECT_LE(prefixes->stats().disk_bytes, 7 * one);
  EXPECT_GE(prefixes->stats().disk_evicted, 2u);
  prefixes->clear();
  EXPECT_FALSE(prefixes->find("m", used));
  // The next process has a smaller limit: ends go before starts.
  prefixes.reset();
  auto smaller = start(served, "weights", 2 * one);
  EXPECT_LE(smaller->stats().disk_files, 2u);
  smaller->clear_disk();
  EXPECT_EQ(smaller->stats().disk_files, 0u);
  EXPECT_EQ(files(".safetensors").size(), 0u);
}

TEST_F(PrefixDisk, AModelThatGoesLeavesItsStatesOnDisk) {
  Served served("llama", {}, kFourBits);
  std::mt19937 random(7);
  Tokens prompt = served.random_tokens(random, 200);
  auto prefixes = start(served);
  answered(served, prompt, *prefixes);
  prefixes->close("m");
  EXPECT_EQ(prefixes->stats().entries, 0u);
  EXPECT_EQ(prefixes->stats().bytes, 0u);
  EXPECT_FALSE(prefixes->find("m", prompt));
  prefixes->flush();  // close() does not wait
  prefixes->keep_on_disk("m", "weights", [&] { return served.make_cache(); });
  EXPECT_EQ(prefixes->find("m", prompt)->tokens, 192);
}

TEST_F(PrefixDisk, AFolderThatCannotBeIsAnErrorAndAFullDiskIsNone) {
  fs::path file = folder_.write("file", "x");
  EXPECT_ERROR(
      PrefixCache({.folder = file / "prompts"}),
      "internal",
      "prompts");
  Served served("llama", {}, kFourBits);
  std::mt19937 random(8);
  Tokens prompt = served.random_tokens(random, 200);
  auto prefixes = start(served);
  // Its place is taken by a file.
  answered(served, prompt, *prefixes);
  fs::remove_all(folder_.path() / "prompts");
  folder_.write("prompts", "x");
  prefixes->flush();
  EXPECT_NE(log().find("nothing is written"), std::string::npos);
  EXPECT_NE(prefixes->stats().disk_problem, "");
  EXPECT_EQ(answered(served, prompt, *prefixes).cached, 199);
}

}  // namespace
}  // namespace mlxx::engine

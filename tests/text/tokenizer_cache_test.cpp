#include "mlxx/text/tokenizer_cache.h"

#include <cstdlib>
#include <fstream>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/mapped_file.h"
#include "tests/core/temporary_folder.h"
#include "tests/generate/tiny_tokenizer.h"

namespace mlxx::text {
namespace {

namespace fs = std::filesystem;
using generate::tiny_tokenizer_json;

// A member that our reader does not know: `tokenizers` reads the file.
std::shared_ptr<const Tokenizer> read_generally(const std::string& json) {
  Json file = Json::parse(json);
  file["model"]["made_by"] = "a test";
  return Tokenizer::from_json(file.dump());
}

Json change_model(const std::string& json, const Json& members) {
  Json file = Json::parse(json);
  file["model"].update(members);
  return file;
}

// SentencePiece's kind: bytes for unknown letters, or an unknown token.
std::string pieces_json(bool byte_fallback, bool fuse_unknown) {
  Json vocabulary = {{"<unk>", 0}, {"<s>", 1}};
  for (int byte = 0; byte < 256 && byte_fallback; ++byte) {
    vocabulary[fmt::format("<0x{:02X}>", byte)] = 2 + byte;
  }
  for (const char* piece : {"▁", "a", "b", "é", "▁a", "ab", "▁ab", "aa"}) {
    int id = static_cast<int>(vocabulary.size()) + 7;  // a gap in the ids
    vocabulary[piece] = id;
  }
  Json merges = Json::array({{"▁", "a"}, {"a", "b"}, {"▁a", "b"}, {"a", "a"}});
  Json file = Json::parse(tiny_tokenizer_json({}, false));
  file["added_tokens"] = Json::array();
  file["normalizer"] = {
      {"type", "Replace"},
      {"pattern", {{"String", " "}}},
      {"content", "▁"}};
  file["pre_tokenizer"] = nullptr;
  file["post_processor"] = nullptr;
  file["decoder"] = {{"type", "Fuse"}};
  file["model"] = {
      {"type", "BPE"},
      {"unk_token", "<unk>"},
      {"fuse_unk", fuse_unknown},
      {"byte_fallback", byte_fallback},
      {"vocab", vocabulary},
      {"merges", merges}};
  return file.dump();
}

std::vector<std::string> all_kinds() {
  const std::vector<std::string> words =
      {" the", "there", "hello", "日本", " wörld", "aaaa"};
  std::string plain = tiny_tokenizer_json(words, false);
  return {
      plain,
      tiny_tokenizer_json(words, true),
      change_model(plain, {{"ignore_merges", true}}).dump(),
      pieces_json(true, true),
      pieces_json(false, true),
      pieces_json(false, false)};
}

std::string random_text(std::mt19937& random) {
  const std::string parts[] = {
      " the",
      "there",
      "hello",
      "日本",
      " wörld",
      "aaaaaaa",
      "<s>",
      "<en",
      "<end>",
      "é",
      "ab",
      "🙂",
      "\n\n",
      "x1",
      std::string(70, 'a')};
  std::string text;
  for (size_t i = random() % 7; i > 0; --i) {
    text += parts[random() % std::size(parts)];
  }
  return text;
}

void expect_same(const Tokenizer& one, const Tokenizer& other) {
  ASSERT_EQ(one.vocab_size(), other.vocab_size());
  for (int32_t id = 0; id < one.vocab_size(); ++id) {
    EXPECT_EQ(one.is_special(id), other.is_special(id));
    EXPECT_EQ(one.decode(std::span(&id, 1)), other.decode(std::span(&id, 1)));
    auto token = [&](const Tokenizer& tokenizer) -> std::string {
      try {
        return tokenizer.id_to_token(id) + "|" + tokenizer.token_bytes(id);
      } catch (const Error&) {
        return "none";
      }
    };
    EXPECT_EQ(token(one), token(other));
    if (token(one) != "none") {
      EXPECT_EQ(
          one.token_to_id(one.id_to_token(id)),
          other.token_to_id(other.id_to_token(id)));
    }
  }
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    std::string text = random_text(random);
    bool special = i % 2 == 0;
    EncodeOptions options{
        .add_special_tokens = special,
        .parse_special = special};
    auto ids = one.encode(text, options);
    EXPECT_EQ(ids, other.encode(text, options)) << text;
    EXPECT_EQ(one.decode(ids), other.decode(ids)) << text;
  }
}

// Fails the test if it is called.
std::string_view not_wanted() {
  ADD_FAILURE() << "the tokenizer was made again";
  return {};
}

class Cache : public ::testing::Test {
 protected:
  std::shared_ptr<const Tokenizer> load(
      const std::string& json,
      const std::string& digest = "d") {
    made_ = false;
    return cache_.load(digest, [&]() -> std::string_view {
      made_ = true;
      return json;
    });
  }
  std::string read(const std::string& digest = "d") {
    return read_file(cache_.file_of(digest));
  }
  void write(std::string_view content) {
    // Not write_file_atomically(), which waits for the disk.
    std::ofstream(cache_.file_of("d"), std::ios::binary) << content;
  }

  TemporaryFolder folder_;
  TokenizerCache cache_{folder_.path() / "tokenizers"};
  bool made_ = false;
};

TEST_F(Cache, AKeptTokenizerIsThatOfTokenizersToTheId) {
  int number = 0;
  for (const std::string& json : all_kinds()) {
    std::string digest = fmt::format("digest {}", number++);
    SCOPED_TRACE(digest);
    auto fresh = load(json, digest);
    EXPECT_TRUE(made_);
    auto kept = cache_.load(digest, not_wanted);
    auto general = read_generally(json);
    EXPECT_TRUE(general->packed().empty());
    EXPECT_EQ(kept->packed(), fresh->packed());
    expect_same(*kept, *general);
  }
}

TEST_F(Cache, ADamagedFileIsWrittenAnew) {
  std::string json = tiny_tokenizer_json({"hello"}, true);
  load(json);
  std::string good = read();
  auto expect_renewed = [&](std::string_view damaged) {
    write(damaged);
    auto tokenizer = load(json);
    EXPECT_TRUE(made_);
    EXPECT_EQ(tokenizer->encode("hello").size(), 1u);
    EXPECT_EQ(read(), good);
  };
  expect_renewed("");
  expect_renewed("a text of somebody else");
  expect_renewed(std::string(64, '0'));
  expect_renewed(good + "x");
  std::mt19937 random(3);
  for (int i = 0; i < 10; ++i) {
    std::string damaged = good;
    damaged[random() % good.size()] ^= static_cast<char>(1 << random() % 8);
    expect_renewed(damaged);
    expect_renewed(std::string_view(good).substr(0, random() % good.size()));
  }
}

// What a checksum does not find: bytes that somebody made.
TEST_F(Cache, NoBytesLeadAStray) {
  std::mt19937 random(7);
  for (const std::string& json : all_kinds()) {
    std::string good(Tokenizer::from_json(json)->packed());
    int taken = 0;
    for (int i = 0; i < 400; ++i) {
      std::string bytes = good;
      size_t changes = 1 + random() % 3;
      for (size_t j = 0; j < changes; ++j) {
        // Often in the header, whose lengths lead everywhere.
        size_t at = random() % (i % 2 ? size_t{64} : bytes.size());
        bytes[at] = static_cast<char>(i % 3 ? random() : bytes[at] + 1);
      }
      if (i % 10 == 0) {
        bytes.resize(random() % bytes.size());
      }
      try {
        auto tokenizer = Tokenizer::from_packed(bytes);
        ++taken;
        for (int j = 0; j < 5; ++j) {
          tokenizer->decode(tokenizer->encode(random_text(random)));
        }
      } catch (const Error& error) {
        EXPECT_NE(error.kind(), ErrorKind::internal) << error.what();
      }
    }
    // The changes are small enough to reach the look-ups.
    EXPECT_GT(taken, 0);
  }
}

TEST_F(Cache, WorksWhereNothingCanBeWritten) {
  fs::path file = folder_.write("a_file", "not a folder");
  TokenizerCache cache(file / "tokenizers");
  std::string json = tiny_tokenizer_json({"hello"}, false);
  for (int i = 0; i < 2; ++i) {
    auto tokenizer = cache.load("d", [&] { return std::string_view(json); });
    EXPECT_EQ(tokenizer->encode("hello").size(), 1u);
  }
  // A folder in the file's place.
  fs::create_directories(cache_.file_of("d") / "inside");
  EXPECT_EQ(load(json)->encode("hello").size(), 1u);
  EXPECT_TRUE(made_);
}

TEST_F(Cache, ErrorsAreThoseOfTheTokenizer) {
  EXPECT_THROW(load("{}"), Error);
  EXPECT_FALSE(fs::exists(cache_.file_of("d")));
  EXPECT_THROW(
      cache_.load(
          "d",
          []() -> std::string_view {
            fail(ErrorKind::not_found, "a test", "no tokenizer");
          }),
      Error);
}

TEST_F(Cache, KeepsNothingWithoutADigestOrAPackedForm) {
  load(tiny_tokenizer_json({}, false), "");
  load(change_model(tiny_tokenizer_json({}, false), {{"dropout", 0.1}}).dump());
  EXPECT_FALSE(fs::exists(folder_.path() / "tokenizers"));
}

TEST_F(Cache, TheLongestUnusedGoFirst) {
  std::string json = tiny_tokenizer_json({"hello"}, false);
  load(json, "one");
  uint64_t bytes = fs::file_size(cache_.file_of("one"));
  fs::path inside = folder_.path() / "small";
  TokenizerCache small(inside, 3 * bytes + bytes / 2);
  auto keep = [&](const std::string& digest) {
    small.load(digest, [&] { return std::string_view(json); });
  };
  auto age = [&](const fs::path& path, int hours) {
    fs::last_write_time(
        path,
        fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  for (const char* digest : {"one", "two", "three"}) {
    keep(digest);
  }
  age(small.file_of("one"), 100);
  age(small.file_of("two"), 90);
  age(small.file_of("three"), 80);
  // Used again: "two" goes next.
  small.load("one", not_wanted);
  keep("four");
  EXPECT_TRUE(fs::exists(small.file_of("one")));
  EXPECT_FALSE(fs::exists(small.file_of("two")));
  // What a killed process left goes as well, other files stay.
  fs::path left = small.file_of("three");
  left += ".Ab12Cd";
  fs::rename(small.file_of("three"), left);
  age(left, 200);
  std::ofstream(inside / "notes.txt") << "of the user";
  keep("five");
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(inside / "notes.txt"));
  EXPECT_TRUE(fs::exists(small.file_of("five")));
}

TEST_F(Cache, TheEnvironmentSwitchesItOff) {
  setenv("MLXX_HOME", folder_.path().c_str(), 1);
  auto cache = TokenizerCache::from_environment();
  ASSERT_TRUE(cache);
  EXPECT_EQ(cache->file_of("d").parent_path(), folder_.path() / "tokenizers");
  setenv("MLXX_TOKENIZER_CACHE", "0", 1);
  EXPECT_FALSE(TokenizerCache::from_environment());
  setenv("MLXX_TOKENIZER_CACHE", "perhaps", 1);
  EXPECT_THROW(TokenizerCache::from_environment(), Error);
  unsetenv("MLXX_TOKENIZER_CACHE");
  unsetenv("MLXX_HOME");
}

}  // namespace
}  // namespace mlxx::text

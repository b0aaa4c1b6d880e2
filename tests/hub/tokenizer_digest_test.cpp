#include <set>

#include <gtest/gtest.h>

#include "mlxx/hub/export_mlx.h"
#include "tests/core/temporary_folder.h"
#include "tests/hub/gguf_builder.h"

namespace mlxx::hub {
namespace {

void expect_parts_of_text(const Checkpoint& checkpoint) {
  const TextFiles& beside = checkpoint.text_beside_tokenizer();
  const TextFiles& text = checkpoint.text();
  EXPECT_TRUE(beside.tokenizer_json.empty());
  EXPECT_FALSE(text.tokenizer_json.empty());
  EXPECT_EQ(beside.tokenizer_config_json, text.tokenizer_config_json);
  EXPECT_EQ(beside.chat_templates, text.chat_templates);
  EXPECT_FALSE(text.chat_templates.empty());
}

TEST(TokenizerDigest, OfAGgufFileDependsOnEveryTokenizerValue) {
  TemporaryFolder folder;
  int number = 0;
  auto digest = [&](const GgufBuilder& builder) {
    auto path = folder.write(
        "model" + std::to_string(number++) + ".gguf",
        builder.build());
    return open_checkpoint(path)->tokenizer_digest();
  };
  std::string plain = digest(tiny_llama());
  EXPECT_EQ(plain.size(), 64u);
  EXPECT_EQ(digest(tiny_llama()), plain);
  // Not of the model beside it.
  GgufBuilder other = tiny_llama();
  other.string("general.name", "another");
  EXPECT_EQ(digest(other), plain);

  std::set<std::string> digests{plain};
  auto expect_new = [&](auto&& add) {
    GgufBuilder builder = tiny_llama();
    add(builder);
    EXPECT_TRUE(digests.insert(digest(builder)).second);
  };
  expect_new([](auto& b) { b.boolean("tokenizer.ggml.add_bos_token", true); });
  expect_new([](auto& b) { b.boolean("tokenizer.ggml.add_bos_token", false); });
  expect_new([](auto& b) { b.u32("tokenizer.ggml.add_eos_token", 1); });
  expect_new([](auto& b) { b.strings("tokenizer.x", {"a", "bc"}); });
  expect_new([](auto& b) { b.strings("tokenizer.x", {"ab", "c"}); });
  expect_new([](auto& b) { b.string("tokenizer.x", "a"); });
}

TEST(TokenizerDigest, OfAFolderIsThatOfItsTokenizer) {
  TemporaryFolder folder;
  auto gguf = open_checkpoint(folder.write("model.gguf", tiny_llama().build()));
  auto out = folder.path() / "out";
  write_mlx_checkpoint(*gguf, out, {.scales = mx::float32});
  auto digest = [&] { return open_checkpoint(out)->tokenizer_digest(); };
  std::string before = digest();
  EXPECT_EQ(before.size(), 64u);
  folder.write("out/tokenizer_config.json", "{}");
  EXPECT_EQ(digest(), before);
  folder.write("out/tokenizer.json", gguf->text().tokenizer_json + " ");
  EXPECT_NE(digest(), before);
  // Whoever asks for the text hears what is wrong.
  std::filesystem::remove(out / "tokenizer.json");
  EXPECT_EQ(digest(), "");
  EXPECT_ANY_THROW(open_checkpoint(out)->text());
}

TEST(TokenizerDigest, TheTextBesideTheTokenizerIsTheSame) {
  TemporaryFolder folder;
  auto path = folder.write("model.gguf", tiny_llama().build());
  auto gguf = open_checkpoint(path);
  expect_parts_of_text(*gguf);
  auto out = folder.path() / "out";
  write_mlx_checkpoint(*gguf, out, {.scales = mx::float32});
  expect_parts_of_text(*open_checkpoint(out));
  // In the other order.
  for (const auto& place : {path, out}) {
    auto checkpoint = open_checkpoint(place);
    EXPECT_FALSE(checkpoint->text().tokenizer_json.empty());
    expect_parts_of_text(*checkpoint);
  }
}

}  // namespace
}  // namespace mlxx::hub

#include "tests/mutation/formats.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/mapped_file.h"
#include "mlxx/core/safetensors_writer.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/export_mlx.h"
#include "mlxx/models/model.h"
#include "mlxx/text/tokenizer.h"
#include "tests/hub/gguf_builder.h"

namespace mlxx {

namespace {

namespace fs = std::filesystem;

void use_checkpoint(const fs::path& path, bool has_text) {
  auto checkpoint = hub::open_checkpoint(path);
  for (const auto& tensor : checkpoint->tensors()) {
    checkpoint->load(tensor.name, {.scales = mx::float32});
  }
  if (has_text) {
    checkpoint->tokenizer_digest();
    checkpoint->text_beside_tokenizer();
    checkpoint->text();
  }
}

void use_tokenizer(const text::Tokenizer& tokenizer) {
  auto ids = tokenizer.encode("abc <|im_end|> x");
  tokenizer.decode(ids);
  tokenizer.vocab_size();
}

std::string read(const fs::path& path) {
  return read_file(path);
}

// A folder of two shards, for its index.
fs::path make_sharded(const TemporaryFolder& folder) {
  folder.write("sharded/config.json", R"({"model_type":"llama"})");
  Json map = Json::object();
  for (int i = 1; i <= 2; ++i) {
    auto file = fmt::format("model-{:05}-of-00002.safetensors", i);
    auto tensor = fmt::format("layers.{}.weight", i);
    map[tensor] = file;
    write_safetensors(
        folder.path() / "sharded" / file,
        {{tensor, mx::ones({2, 2})}});
  }
  folder.write(
      "sharded/model.safetensors.index.json",
      Json({{"metadata", {{"total_size", 32}}}, {"weight_map", map}}).dump());
  return folder.path() / "sharded";
}

std::string small_safetensors(const TemporaryFolder& folder) {
  auto path = folder.path() / "seed.safetensors";
  write_safetensors(
      path,
      {{"a.weight", mx::ones({2, 3})},
       {"b", mx::astype(mx::ones({4}), mx::bfloat16)},
       {"c", mx::zeros({0, 2}, mx::int32)}},
      {{"format", "pt"}});
  return read(path);
}

}  // namespace

std::vector<MutationFormat> mutation_formats(const TemporaryFolder& folder) {
  std::vector<MutationFormat> formats;
  std::string gguf = hub::tiny_llama().build();
  fs::path gguf_path = folder.write("model.gguf", gguf);
  formats.push_back({"gguf", gguf, 4096, [=, &folder](const auto& content) {
                       folder.write("model.gguf", content);
                       use_checkpoint(gguf_path, true);
                     }});

  fs::path plain = folder.path() / "plain";
  folder.write("plain/config.json", R"({"model_type":"llama"})");
  formats.push_back(
      {"safetensors",
       small_safetensors(folder),
       400,
       [=, &folder](const auto& content) {
         folder.write("plain/model.safetensors", content);
         use_checkpoint(plain, false);
       }});

  // The whole model is loaded, since most of a config is read there.
  fs::path whole = folder.path() / "whole";
  auto checkpoint = hub::open_checkpoint(gguf_path);
  hub::write_mlx_checkpoint(*checkpoint, whole, {.scales = mx::float32});
  formats.push_back(
      {"config",
       read(whole / "config.json"),
       0,
       [=, &folder](const auto& content) {
         folder.write("whole/config.json", content);
         models::load_model(*hub::open_checkpoint(whole));
       }});

  formats.push_back(
      {"tokenizer",
       checkpoint->text().tokenizer_json,
       0,
       [](const auto& content) {
         use_tokenizer(*text::Tokenizer::from_json(content));
       }});

  // What is kept between runs; without its checksum, which hides the rest.
  auto tokenizer =
      text::Tokenizer::from_json(checkpoint->text().tokenizer_json);
  formats.push_back(
      {"packed_tokenizer",
       std::string(tokenizer->packed()),
       44,
       [](const auto& content) {
         use_tokenizer(*text::Tokenizer::from_packed(content));
       }});

  fs::path sharded = make_sharded(folder);
  formats.push_back(
      {"index",
       read(sharded / "model.safetensors.index.json"),
       0,
       [=, &folder](const auto& content) {
         folder.write("sharded/model.safetensors.index.json", content);
         use_checkpoint(sharded, false);
       }});
  for (auto& format : packed_mutation_formats(folder)) {
    formats.push_back(std::move(format));
  }
  for (auto& format : training_mutation_formats(folder)) {
    formats.push_back(std::move(format));
  }
  return formats;
}

}  // namespace mlxx

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "mlxx/data/training_data.h"
#include "mlxx/text/chat_template.h"
#include "mlxx/text/tokenizer.h"
#include "tests/core/temporary_folder.h"
#include "tests/generate/tiny_tokenizer.h"

namespace mlxx::data {

// As ChatML, with the control tokens of the tiny tokenizer.
constexpr const char* kPlainTemplate =
    "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}";

// A data set of made lines, with a token for each byte.
struct SmallData {
  TemporaryFolder folder;
  std::shared_ptr<const text::Tokenizer> tokenizer =
      generate::tiny_tokenizer({"hi"});
  std::shared_ptr<const text::ChatTemplate> chat_template;
  DataOptions options;

  explicit SmallData(const char* source = kPlainTemplate) {
    if (source) {
      chat_template = text::ChatTemplate::compile(source, "<s>", "</s>");
    }
    options.shuffle = false;
    options.bos_id = tokenizer->token_to_id("<s>");
    options.eos_id = tokenizer->token_to_id("</s>");
  }

  std::unique_ptr<TrainingData> open(std::string_view content) const {
    return open_training_data(
        folder.write("train.jsonl", content),
        *tokenizer,
        chat_template.get(),
        options);
  }

  // What went wrong, without the folder.
  std::string error(std::string_view content) const {
    try {
      auto data = open(content);
      for (int64_t i = 0; i < data->batches_per_epoch(); ++i) {
        data->batch(i);
      }
    } catch (const Error& error) {
      std::string what = error.what();
      std::string prefix = folder.path().string() + "/";
      for (size_t at; (at = what.find(prefix)) != what.npos;) {
        what.erase(at, prefix.size());
      }
      return what;
    }
    return "";
  }

  std::string text(std::span<const int32_t> tokens) const {
    std::string out;
    for (int32_t token : tokens) {
      out += tokenizer->token_bytes(token);
    }
    return out;
  }

  // The runs of targets in a row, as texts.
  std::vector<std::string> targets(const Batch& batch, int row = 0) const {
    std::vector<std::string> out;
    bool before = false;
    auto length = static_cast<size_t>(batch.length);
    for (size_t i = static_cast<size_t>(row) * length, end = i + length;
         i < end;
         ++i) {
      if (batch.targets[i]) {
        if (!before) {
          out.emplace_back();
        }
        out.back() += tokenizer->token_bytes(batch.tokens[i]);
      }
      before = batch.targets[i] != 0;
    }
    return out;
  }
};

}  // namespace mlxx::data

#include "mlxx/eval/evaluation_rows.h"

#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/base/utf8.h"
#include "mlxx/data/training_data.h"
#include "mlxx/text/prompt_encoding.h"

namespace mlxx::eval {
namespace {

constexpr int kLongest = 1 << 24;

WindowOptions checked(WindowOptions options) {
  auto fail_at = [](const char* name, int value, int most) {
    fail(
        ErrorKind::invalid_request,
        name,
        "is {}, must be {} to {}",
        value,
        name == std::string_view("length") ? 2 : 1,
        most);
  };
  if (options.length < 2 || options.length > kLongest) {
    fail_at("length", options.length, kLongest);
  }
  if (options.stride == 0) {
    options.stride = options.length;
  }
  if (options.stride < 1 || options.stride > options.length) {
    fail_at("stride", options.stride, options.length);
  }
  return options;
}

void add_windows(
    const ScoredRow& text,
    const WindowOptions& options,
    std::vector<ScoredRow>& out) {
  auto length = static_cast<size_t>(options.length);
  size_t size = text.tokens.size();
  size_t predicted = 0;
  for (size_t begin = 0; predicted < size;
       begin += static_cast<size_t>(options.stride)) {
    size_t end = std::min(begin + length, size);
    ScoredRow window;
    auto at = static_cast<std::ptrdiff_t>(begin);
    auto until = static_cast<std::ptrdiff_t>(end);
    window.tokens.assign(text.tokens.begin() + at, text.tokens.begin() + until);
    window.targets.assign(end - begin, 0);
    bool any = false;
    for (size_t t = std::max(begin + 1, predicted); t < end; ++t) {
      window.targets[t - begin] = text.targets[t];
      any = any || text.targets[t] != 0;
    }
    predicted = end;
    if (any) {
      out.push_back(std::move(window));
    }
  }
}

ScoredRow text_row(const std::string& text, const generate::Pipeline& from) {
  text::PromptParts parts{.tokenizer = *from.tokenizer};
  parts.bos_id = from.bos_id;
  parts.add_bos = from.add_bos;
  ScoredRow row;
  row.tokens = text::encode_raw_prompt(parts, text);
  row.targets.assign(row.tokens.size(), 1);
  if (!row.targets.empty()) {
    row.targets[0] = 0;
  }
  return row;
}

std::vector<ScoredRow> windows_of_samples(
    const std::filesystem::path& file,
    const generate::Pipeline& pipeline,
    const WindowOptions& options) {
  data::DataOptions data_options;
  data_options.mask_prompt = options.mask_prompt;
  data_options.max_length = kLongest;
  data_options.batch_size = 1;
  data_options.shuffle = false;
  data_options.bos_id = pipeline.bos_id;
  data_options.add_bos = pipeline.add_bos;
  data_options.eos_id = pipeline.eos_id;
  data_options.tool_template = pipeline.tool_template.get();
  data_options.chat_template_error = pipeline.chat_template_error;
  auto data = data::open_training_data(
      file,
      *pipeline.tokenizer,
      pipeline.chat_template.get(),
      data_options);
  std::vector<ScoredRow> out;
  for (int64_t i = 0; i < data->batches_per_epoch(); ++i) {
    data::Batch batch = data->batch(i);
    ScoredRow row;
    row.tokens = std::move(batch.tokens);
    row.targets = std::move(batch.targets);
    auto last = std::ranges::find(row.targets.rbegin(), row.targets.rend(), 1);
    // Behind the last target there is nothing to judge, padding above all.
    size_t size = static_cast<size_t>(row.targets.rend() - last);
    row.tokens.resize(size);
    row.targets.resize(size);
    add_windows(row, options, out);
  }
  return out;
}

}  // namespace

std::vector<ScoredRow> windows_of(
    const ScoredRow& text,
    const WindowOptions& options) {
  std::vector<ScoredRow> out;
  add_windows(text, checked(options), out);
  return out;
}

std::vector<ScoredRow> windows_of_file(
    const std::filesystem::path& file,
    const generate::Pipeline& pipeline,
    const WindowOptions& options) {
  WindowOptions used = checked(options);
  std::vector<ScoredRow> out;
  if (file.extension() == ".jsonl") {
    out = windows_of_samples(file, pipeline, used);
  } else {
    std::string text = read_file(file);
    if (!is_valid_utf8(text)) {
      fail(ErrorKind::bad_file, file.string(), "is not valid UTF-8");
    }
    add_windows(text_row(text, pipeline), used, out);
  }
  if (out.empty()) {
    fail(
        ErrorKind::invalid_request,
        file.string(),
        "holds no token to predict");
  }
  return out;
}

}  // namespace mlxx::eval

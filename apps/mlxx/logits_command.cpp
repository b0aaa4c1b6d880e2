#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/kernel_options.h"
#include "mlxx/adapters/mounted.h"
#include "mlxx/base/error.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/core/device.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/resolve.h"
#include "mlxx/models/model.h"

namespace mlxx::apps {
namespace {

struct LogitsOptions {
  std::string model = hub::kDefaultModel;
  std::string tokens;
  std::string out;
  std::string adapter;
  int prompt = 0;
  int greedy = 0;
  KernelOptions kernels;
};

using TokenRows = std::vector<std::vector<int32_t>>;

int32_t checked_id(const std::string& path, int64_t id, int vocab_size) {
  if (id < 0 || id >= vocab_size) {
    fail(
        ErrorKind::invalid_request,
        path,
        "token id {} is outside the vocabulary of {}",
        id,
        vocab_size);
  }
  return static_cast<int32_t>(id);
}

// Whole numbers separated by anything of ",[] \n": a JSON array, or plain.
std::vector<int32_t>
read_flat(const std::string& path, const std::string& text, int vocab_size) {
  std::vector<int32_t> tokens;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    while (at != end &&
           (std::isspace(static_cast<unsigned char>(*at)) || *at == ',' ||
            *at == '[' || *at == ']')) {
      ++at;
    }
    if (at == end) {
      break;
    }
    int32_t id = 0;
    auto [rest, error] = std::from_chars(at, end, id);
    if (error != std::errc() || rest == at) {
      fail(
          ErrorKind::invalid_request,
          path,
          "token {} is not a whole number",
          tokens.size());
    }
    tokens.push_back(checked_id(path, id, vocab_size));
    at = rest;
  }
  return tokens;
}

std::vector<int32_t>
read_row(const std::string& path, const Json& row, int vocab_size) {
  std::vector<int32_t> tokens;
  for (const Json& id : row) {
    if (!id.is_number_integer()) {
      fail(
          ErrorKind::invalid_request,
          path,
          "token {} is not a whole number",
          tokens.size());
    }
    tokens.push_back(checked_id(path, id.get<int64_t>(), vocab_size));
  }
  return tokens;
}

// One row, or the rows of a JSON array of arrays.
TokenRows read_tokens(const std::string& path, int vocab_size) {
  std::string text = read_file(path, size_t{64} << 20);
  TokenRows rows;
  size_t first = text.find_first_not_of(" \t\r\n");
  size_t second = first == std::string::npos
      ? first
      : text.find_first_not_of(" \t\r\n", first + 1);
  if (second != std::string::npos && text[first] == '[' &&
      text[second] == '[') {
    for (const Json& row : parse_json(text, path)) {
      rows.push_back(read_row(path, row, vocab_size));
    }
  } else {
    rows.push_back(read_flat(path, text, vocab_size));
  }
  for (const auto& row : rows) {
    if (row.empty()) {
      fail(ErrorKind::invalid_request, path, "holds no token ids");
    }
  }
  return rows;
}

// Base names of mapped files that look like `part` and are shared libraries.
std::set<std::string> mapped_libraries(std::string_view part) {
  std::set<std::string> names;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    size_t slash = line.rfind('/');
    if (slash == std::string::npos) {
      continue;
    }
    std::string name = line.substr(slash + 1);
    if (name.find(part) != std::string::npos &&
        name.find(".so") != std::string::npos) {
      names.insert(name);
    }
  }
  return names;
}

// One row of logits per token: a prompt of N tokens in pieces of N - 1 and 1,
// as generation runs it, then one token at a time.
struct LogitsRun {
  mx::array logits;  // [T, V]; [B, T, V] of several rows
  mx::array tokens;  // [T], T + 1 if the last one was generated; [B, T]
};

// Logits of each piece, [B, L, V], appended to `pieces`.
void run_piece(
    const models::Model& model,
    const mx::array& ids,
    cache::CacheList& cache,
    std::vector<mx::array>& pieces) {
  pieces.push_back(model.forward(ids, cache));
  std::vector<mx::array> pending{pieces.back()};
  for (const auto& layer : cache) {
    auto state = layer->state();
    pending.insert(pending.end(), state.begin(), state.end());
  }
  mx::eval(std::move(pending));
}

mx::array best_of_last(const mx::array& logits) {
  int last = logits.shape(1) - 1;
  mx::array row =
      mx::slice(logits, {0, last, 0}, {1, last + 1, logits.shape(2)});
  return mx::reshape(mx::astype(mx::argmax(row, -1), mx::int32), {1, 1});
}

// Rows end together: shorter ones begin with padding, which nothing sees.
LogitsRun run_logits(
    const models::Model& model,
    const TokenRows& rows,
    int prompt,
    int greedy,
    bool layer_by_layer) {
  size_t longest =
      std::ranges::max(rows, {}, &std::vector<int32_t>::size).size();
  models::CacheOptions cache_options;
  cache_options.per_layer = layer_by_layer;
  std::vector<int32_t> padded;
  for (const auto& row : rows) {
    size_t padding = longest - row.size();
    if (rows.size() > 1) {
      cache_options.left_padding.push_back(static_cast<int>(padding));
    }
    padded.insert(padded.end(), padding, 0);
    padded.insert(padded.end(), row.begin(), row.end());
  }
  auto count = static_cast<int>(rows.size());
  auto length = static_cast<int>(longest);
  mx::array ids(padded.data(), {count, length}, mx::int32);
  auto cache = model.make_cache(cache_options);
  std::vector<mx::array> pieces;
  auto step = [&](int from, int to) {
    run_piece(model, mx::slice(ids, {0, from}, {count, to}), cache, pieces);
  };
  int first = prompt > 0 ? prompt : length;
  if (first > 1) {
    step(0, first - 1);
  }
  for (int i = first - 1; i < length; ++i) {
    step(i, i + 1);
  }
  for (int n = 0; n < greedy; ++n) {
    ids = mx::concatenate({ids, best_of_last(pieces.back())}, 1);
    if (n + 1 < greedy) {
      step(length + n, length + n + 1);
    }
  }
  mx::array logits = mx::concatenate(pieces, 1);
  if (count == 1) {
    return {mx::squeeze(logits, 0), mx::flatten(ids)};
  }
  return {std::move(logits), std::move(ids)};
}

int run(const LogitsOptions& options) {
  auto checkpoint = hub::open_checkpoint(hub::resolve_model(options.model));
  models::LoadOptions load_options;
  load_options.kernels = options.kernels.selection();
  auto model = models::load_model(*checkpoint, load_options);
  auto tokens = read_tokens(options.tokens, model->summary().vocab_size);
  size_t longest =
      std::ranges::max(tokens, {}, &std::vector<int32_t>::size).size();
  if (options.prompt > static_cast<int>(longest)) {
    fail(
        ErrorKind::invalid_request,
        "--prompt",
        "is {}, but {} holds {} tokens",
        options.prompt,
        options.tokens,
        longest);
  }
  if (options.greedy > 0 && tokens.size() > 1) {
    fail(
        ErrorKind::invalid_request,
        "--greedy",
        "continues one row, but {} holds {}",
        options.tokens,
        tokens.size());
  }
  bool adapted = !options.adapter.empty();
  adapters::MountedAdapters mounted(model, options.kernels.selection());
  if (adapted) {
    mounted.mount("adapter", std::filesystem::path(options.adapter));
  }
  auto changes =
      adapters::adapters_of_rows({mounted.find(adapted ? "adapter" : "")});
  nn::AdapterScope scope(adapted ? changes.get() : nullptr);
  LogitsRun done =
      run_logits(*model, tokens, options.prompt, options.greedy, adapted);
  // MLX appends the extension to a name that lacks it.
  std::filesystem::path part = options.out + ".part.safetensors";
  try {
    mx::save_safetensors(
        part.string(),
        {{"logits", done.logits}, {"tokens", done.tokens}});
    std::filesystem::rename(part, options.out);
  } catch (const std::exception& error) {
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
    fail(
        ErrorKind::invalid_request,
        options.out,
        "cannot be written: {}",
        error.what());
  }
  Json report = {
      {"tokens", done.logits.shape(-2)},
      {"vocabulary", done.logits.shape(-1)},
      {"mlx_version", mx::version()},
      {"backend", std::string(to_string(backend()))},
      {"libmlx", mapped_libraries("libmlx.")},
      {"blas", mapped_libraries("blas")},
  };
  print(report.dump() + "\n");
  return 0;
}

}  // namespace

void add_logits_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* verb = app.add_subcommand(
      "logits",
      "Write the logits after every token of a file of token ids");
  verb->add_option("-m,--model", options->model, "Model")
      ->capture_default_str();
  verb->add_option(
          "--tokens",
          options->tokens,
          "File of token ids: a JSON array, or separated by spaces; an array "
          "of "
          "arrays is a batch, padded on the left")
      ->required();
  verb->add_option(
          "-o,--output",
          options->out,
          "The .safetensors file to write: logits")
      ->required();
  verb->add_option(
          "--prompt",
          options->prompt,
          "The first N tokens are one prompt, the others come one by one "
          "(default: all are)")
      ->check(CLI::Range(1, 1 << 24));
  verb->add_option(
          "--greedy",
          options->greedy,
          "Continue with N tokens, each the best")
      ->check(CLI::Range(0, 1 << 20));
  verb->add_option(
      "--adapter",
      options->adapter,
      "Folder of a LoRA or DoRA adapter, of mlx-lm or PEFT");
  add_kernel_options(*verb, options->kernels);
  verb->footer(
      "Example: mlxx logits --tokens ids.json -o logits.safetensors\n"
      "Prints one JSON object that names the libraries in use.");
  on_run(verb, context, [options] { return run(*options); });
}

}  // namespace mlxx::apps

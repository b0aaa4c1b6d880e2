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
  int prompt = 0;
  int greedy = 0;
  KernelOptions kernels;
};

// Whole numbers separated by anything of ",[] \n": a JSON array, or plain.
std::vector<int32_t> read_tokens(const std::string& path, int vocab_size) {
  std::string text = read_file(path, size_t{64} << 20);
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
    if (id < 0 || id >= vocab_size) {
      fail(
          ErrorKind::invalid_request,
          path,
          "token id {} is outside the vocabulary of {}",
          id,
          vocab_size);
    }
    tokens.push_back(id);
    at = rest;
  }
  if (tokens.empty()) {
    fail(ErrorKind::invalid_request, path, "holds no token ids");
  }
  return tokens;
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

// Rows of logits, one per token: a prompt of N tokens in pieces of N - 1 and
// 1, as generation runs it, then one token at a time.
struct LogitsRun {
  mx::array logits;             // [T, V]
  std::vector<int32_t> tokens;  // T + 1 if the last one was generated
};

LogitsRun run_logits(
    const models::Model& model,
    std::vector<int32_t> tokens,
    int prompt,
    int greedy) {
  auto cache = model.make_cache({});
  std::vector<mx::array> rows;
  auto step = [&](size_t from, size_t n) {
    mx::array ids(tokens.data() + from, {1, static_cast<int>(n)}, mx::int32);
    rows.push_back(mx::squeeze(model.forward(ids, cache), 0));
    std::vector<mx::array> pending{rows.back()};
    for (const auto& layer : cache) {
      auto state = layer->state();
      pending.insert(pending.end(), state.begin(), state.end());
    }
    mx::eval(std::move(pending));
  };
  size_t first = prompt > 0 ? static_cast<size_t>(prompt) : tokens.size();
  if (first > 1) {
    step(0, first - 1);
  }
  for (size_t i = first - 1; i < tokens.size(); ++i) {
    step(i, 1);
  }
  for (int n = 0; n < greedy; ++n) {
    mx::array last = rows.back();
    last =
        mx::slice(last, {last.shape(0) - 1, 0}, {last.shape(0), last.shape(1)});
    tokens.push_back(
        static_cast<int32_t>(mx::argmax(last, -1).item<uint32_t>()));
    if (n + 1 < greedy) {
      step(tokens.size() - 1, 1);
    }
  }
  return {mx::concatenate(rows, 0), std::move(tokens)};
}

int run(const LogitsOptions& options) {
  auto checkpoint = hub::open_checkpoint(hub::resolve_model(options.model));
  models::LoadOptions load_options;
  load_options.kernels = options.kernels.selection();
  auto model = models::load_model(*checkpoint, load_options);
  auto tokens = read_tokens(options.tokens, model->summary().vocab_size);
  if (options.prompt > static_cast<int>(tokens.size())) {
    fail(
        ErrorKind::invalid_request,
        "--prompt",
        "is {}, but {} holds {} tokens",
        options.prompt,
        options.tokens,
        tokens.size());
  }
  LogitsRun done =
      run_logits(*model, std::move(tokens), options.prompt, options.greedy);
  mx::array ids(
      done.tokens.data(),
      {static_cast<int>(done.tokens.size())},
      mx::int32);
  // MLX appends the extension to a name that lacks it.
  std::filesystem::path part = options.out + ".part.safetensors";
  try {
    mx::save_safetensors(
        part.string(),
        {{"logits", done.logits}, {"tokens", ids}});
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
      {"tokens", done.logits.shape(0)},
      {"vocabulary", done.logits.shape(1)},
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
          "File of token ids: a JSON array, or separated by spaces")
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
  add_kernel_options(*verb, options->kernels);
  verb->footer(
      "Example: mlxx logits --tokens ids.json -o logits.safetensors\n"
      "Prints one JSON object that names the libraries in use.");
  on_run(verb, context, [options] { return run(*options); });
}

}  // namespace mlxx::apps

#include "apps/mlxx/text_inputs.h"

#include <iostream>
#include <iterator>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/console.h"
#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/mapped_file.h"

#include <unistd.h>

namespace mlxx::apps {
namespace {

constexpr size_t kMaxFile = size_t{1} << 30;

std::string read_standard_input() {
  std::string text(
      std::istreambuf_iterator<char>(std::cin),
      std::istreambuf_iterator<char>{});
  if (text.size() > kMaxFile) {
    fail(
        ErrorKind::invalid_request,
        "standard input",
        "has {} bytes, the limit is {}",
        text.size(),
        kMaxFile);
  }
  return text;
}

std::string text_of_line(
    std::string_view line,
    const std::string& field,
    std::string place) {
  Json json = parse_json(line, place);
  if (json.is_string()) {
    return json.get<std::string>();
  }
  if (!json.is_object()) {
    fail(
        ErrorKind::invalid_request,
        place,
        "is neither a string nor an object");
  }
  return JsonView(json, std::move(place)).string(field);
}

void add_lines(
    std::string_view content,
    const std::string& name,
    const TextInputOptions& options,
    std::vector<std::string>& texts) {
  bool is_json = options.json_lines || name.ends_with(".jsonl");
  size_t number = 0;
  while (!content.empty()) {
    ++number;
    size_t end = std::min(content.find('\n'), content.size());
    std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line.empty()) {
      continue;
    }
    texts.push_back(
        is_json ? text_of_line(
                      line,
                      options.field,
                      fmt::format("{}: line {}", name, number))
                : std::string(line));
  }
}

}  // namespace

void add_text_input_options(
    CLI::App& verb,
    TextInputOptions& options,
    const std::string& what) {
  verb.add_option(
      "TEXT",
      options.texts,
      fmt::format("One {} each; standard input if there is none", what));
  verb.add_option(
          "-f,--file",
          options.file,
          fmt::format(
              "File with one {} on each line; - is standard input",
              what))
      ->type_name("FILE");
  verb.add_flag(
      "--jsonl",
      options.json_lines,
      "Lines are JSON: strings, or objects with --field");
  verb.add_option("--field", options.field, "Where the text is in a JSON line")
      ->capture_default_str();
}

std::vector<std::string> read_texts(const TextInputOptions& options) {
  std::vector<std::string> texts = options.texts;
  bool reads_input = options.file == "-" ||
      (options.file.empty() && texts.empty() && !isatty(STDIN_FILENO));
  if (reads_input) {
    add_lines(read_standard_input(), "standard input", options, texts);
  } else if (!options.file.empty()) {
    add_lines(read_file(options.file, kMaxFile), options.file, options, texts);
  }
  if (texts.empty()) {
    fail(ErrorKind::invalid_request, "TEXT", "there is no text");
  }
  return texts;
}

}  // namespace mlxx::apps

#include "apps/mlxx/usage_errors.h"

#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "mlxx/base/closest_match.h"
#include "mlxx/base/utf8.h"

namespace mlxx::apps {

namespace {

// "mlxx generate" for the verb generate.
std::string full_name(const CLI::App& verb) {
  const CLI::App* parent = verb.get_parent();
  return parent ? full_name(*parent) + " " + verb.get_name() : verb.get_name();
}

std::vector<std::string> flags_of(const CLI::App& verb) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      flags.push_back("--" + name);
    }
  }
  return flags;
}

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands({})) {
    verbs.push_back(verb->get_name());
  }
  return verbs;
}

std::string did_you_mean(
    const std::string& word,
    const std::vector<std::string>& candidates) {
  auto match = closest_match(word, candidates);
  return match ? fmt::format(", did you mean {}?", *match) : std::string();
}

std::string describe_surplus(const CLI::App& verb, std::string word) {
  std::string shown = escape_line(word, 200);
  if (word.size() > 1 && word.front() == '-') {
    std::string flag = word.substr(0, word.find('='));
    std::string hint = did_you_mean(flag, flags_of(verb));
    if (hint.empty()) {
      hint = fmt::format(", see {} --help", full_name(verb));
    }
    return fmt::format(
        "{} has no option {}{}",
        full_name(verb),
        escape_line(flag, 200),
        hint);
  }
  if (!verb.get_subcommands({}).empty()) {
    std::string hint = did_you_mean(word, verbs_of(verb));
    if (hint.empty()) {
      hint = fmt::format(", see {} --help", full_name(verb));
    }
    return fmt::format("{} has no verb \"{}\"{}", full_name(verb), shown, hint);
  }
  return fmt::format(
      "unexpected argument \"{}\": a text of several words needs quotes",
      shown);
}

// The option whose values do not convert, as CLI11's message names it.
std::string describe_conversion(const std::string& message) {
  constexpr std::string_view kPrefix = "Could not convert: ";
  std::string text = message;
  if (text.starts_with(kPrefix)) {
    text.erase(0, kPrefix.size());
    auto equals = text.find(" = ");
    if (equals != std::string::npos) {
      return fmt::format(
          "{} cannot be \"{}\"",
          text.substr(0, equals),
          text.substr(equals + 3));
    }
  }
  return message;
}

// "--temp: 1 required T missing": nothing followed the option.
std::string describe_mismatch(const std::string& message) {
  auto colon = message.find(": 1 required ");
  if (message.starts_with("-") && colon != std::string::npos) {
    return message.substr(0, colon) + " needs a value";
  }
  return message;
}

}  // namespace

const CLI::App& selected_verb(const CLI::App& app) {
  auto chosen = app.get_subcommands();
  return chosen.empty() ? app : selected_verb(*chosen.front());
}

std::string describe_usage_error(
    const CLI::App& app,
    const CLI::ParseError& error) {
  const CLI::App& verb = selected_verb(app);
  if (error.get_name() == "ConversionError") {
    return describe_conversion(error.what());
  }
  if (error.get_name() == "ArgumentMismatch") {
    return describe_mismatch(error.what());
  }
  // Also where a positional is missing because an option was misspelt.
  auto surplus = verb.remaining(true);
  for (const std::string& word : surplus) {
    if (word.size() > 1 && word.front() == '-') {
      return describe_surplus(verb, word);
    }
  }
  if (!surplus.empty()) {
    return describe_surplus(verb, surplus.front());
  }
  auto unknown = app.remaining(true);
  if (!unknown.empty()) {
    return describe_surplus(app, unknown.front());
  }
  return fmt::format("{}, see {} --help", error.what(), full_name(verb));
}

}  // namespace mlxx::apps

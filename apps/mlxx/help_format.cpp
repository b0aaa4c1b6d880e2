#include "apps/mlxx/help_format.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace mlxx::apps {

namespace {

constexpr size_t kNameColumn = 30;  // where the texts start

// Lines of at most `width` columns, broken at blanks.
std::vector<std::string> wrapped(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::string line;
  std::istringstream words(text);
  std::string word;
  while (words >> word) {
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      lines.push_back(line);
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  if (!line.empty()) {
    lines.push_back(line);
  }
  return lines;
}

std::string names_of(const CLI::Option* option) {
  std::string short_names;
  std::string long_names;
  for (const std::string& name : option->get_snames()) {
    short_names += (short_names.empty() ? "-" : ", -") + name;
  }
  for (const std::string& name : option->get_lnames()) {
    long_names += (long_names.empty() ? "--" : ", --") + name;
  }
  if (short_names.empty()) {
    return "    " + long_names;
  }
  return long_names.empty() ? short_names : short_names + ", " + long_names;
}

}  // namespace

HelpFormat::HelpFormat(int width)
    : width_(static_cast<size_t>(std::clamp(width, 60, 100))) {}

std::string HelpFormat::entry(const std::string& name, const std::string& text)
    const {
  std::string out = "  " + name;
  auto lines = wrapped(text, width_ - kNameColumn - 1);
  if (lines.empty()) {
    return out + "\n";
  }
  size_t next = 0;
  if (out.size() + 1 < kNameColumn) {
    out += std::string(kNameColumn - out.size(), ' ') + lines[next++];
  }
  out += "\n";
  for (; next < lines.size(); ++next) {
    out += std::string(kNameColumn, ' ') + lines[next] + "\n";
  }
  return out;
}

std::string HelpFormat::make_option(
    const CLI::Option* option,
    bool is_positional) const {
  std::string name =
      is_positional ? option->get_name(true, false) : names_of(option);
  // A flag has type size 0.
  if (!is_positional && option->get_type_size() != 0 &&
      !option->get_type_name().empty()) {
    name += " " + option->get_type_name();
  }
  std::string text = option->get_description();
  if (!option->get_default_str().empty()) {
    text += fmt::format(" [default: {}]", option->get_default_str());
  }
  if (option->get_expected_max() >= CLI::detail::expected_max_vector_size) {
    text += " [may be repeated]";
  }
  return entry(name, text);
}

std::string HelpFormat::make_subcommand(const CLI::App* verb) const {
  return entry(verb->get_name(), verb->get_description());
}

std::string HelpFormat::make_usage(const CLI::App* app, std::string name)
    const {
  // `name` is empty for a subcommand asked for on its own.
  std::string path = app->get_name();
  for (auto* parent = app->get_parent(); parent;
       parent = parent->get_parent()) {
    path = parent->get_name() + " " + path;
  }
  std::string usage = "Usage: " + (path.empty() ? name : path);
  if (!app->get_subcommands({}).empty()) {
    usage += " VERB";
  }
  usage += " [OPTIONS]";
  for (const CLI::Option* option : app->get_options(
           [](const auto* candidate) { return candidate->get_positional(); })) {
    std::string text = option->get_name(true, false);
    if (option->get_expected_max() >= CLI::detail::expected_max_vector_size) {
      text += "...";
    }
    usage += option->get_required() ? " " + text : " [" + text + "]";
  }
  return usage + "\n";
}

std::string HelpFormat::make_description(const CLI::App* app) const {
  std::string out;
  for (const std::string& line : wrapped(app->get_description(), width_)) {
    out += line + "\n";
  }
  return out.empty() ? out : out + "\n";
}

std::string HelpFormat::make_help(
    const CLI::App* app,
    std::string name,
    CLI::AppFormatMode mode) const {
  std::string out = make_description(app);
  out += make_usage(app, std::move(name));
  out += make_subcommands(app, mode);
  out += make_positionals(app);
  // What every verb has comes last.
  auto groups = app->get_groups();
  std::stable_partition(groups.begin(), groups.end(), [](const auto& group) {
    return group != kCommonGroup;
  });
  for (const std::string& group : groups) {
    auto options = app->get_options([&group](const CLI::Option* option) {
      return option->get_group() == group && option->nonpositional();
    });
    if (!group.empty() && !options.empty()) {
      out += make_group(group, false, options);
    }
  }
  std::string footer = app->get_footer();
  while (!footer.empty() && footer.front() == '\n') {
    footer.erase(0, 1);
  }
  return footer.empty() ? out : out + "\n" + footer + "\n";
}

}  // namespace mlxx::apps

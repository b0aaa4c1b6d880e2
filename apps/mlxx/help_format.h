#pragma once

#include <CLI/Formatter.hpp>

namespace mlxx::apps {

// The group of the options that every verb has.
inline constexpr const char* kCommonGroup = "Other";

// How --help looks: options in groups, one column for names and one for wrapped
// texts with their defaults, the examples last.
class HelpFormat : public CLI::Formatter {
 public:
  // `width` is the columns of the terminal; very wide ones are not filled.
  explicit HelpFormat(int width);

  std::string make_option(const CLI::Option* option, bool is_positional)
      const override;
  std::string make_subcommand(const CLI::App* verb) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_help(
      const CLI::App* app,
      std::string name,
      CLI::AppFormatMode mode) const override;

 private:
  std::string entry(const std::string& name, const std::string& text) const;

  size_t width_;
};

}  // namespace mlxx::apps

#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace mlxx::apps {

inline constexpr const char* kShells = "bash, zsh, fish";

// A completion script for `shell`, made from the command line's own tree of
// verbs and options. invalid_request for another shell.
std::string completion_script(const CLI::App& app, std::string_view shell);

}  // namespace mlxx::apps

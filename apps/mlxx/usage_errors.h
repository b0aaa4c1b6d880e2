#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace mlxx::apps {

// What was wrong with the command line, in one line that names the argument
// and, for a near miss, what was probably meant.
std::string describe_usage_error(
    const CLI::App& app,
    const CLI::ParseError& error);

// The subcommand that was typed, as deep as it goes; `app` itself if none was.
const CLI::App& selected_verb(const CLI::App& app);

}  // namespace mlxx::apps

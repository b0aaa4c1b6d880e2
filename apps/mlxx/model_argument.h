#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace mlxx::apps {

// The model of a verb that takes one and loads nothing of it: MODEL or -m.
struct ModelArgument {
  std::optional<std::string> positional;
  std::optional<std::string> model;

  // The default model if none is given. invalid_request if it is given twice
  // or is no text.
  std::string chosen() const;
};
void add_model_argument(CLI::App& verb, ModelArgument& argument);

}  // namespace mlxx::apps

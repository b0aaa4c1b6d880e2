#include "apps/mlxx/model_argument.h"

#include <CLI/CLI.hpp>

#include "apps/mlxx/generate_options.h"
#include "mlxx/base/error.h"
#include "mlxx/hub/resolve.h"

namespace mlxx::apps {

std::string ModelArgument::chosen() const {
  if (positional && model) {
    fail(
        ErrorKind::invalid_request,
        "--model",
        "the model is given twice: MODEL and -m");
  }
  std::string name =
      positional ? *positional : model.value_or(hub::kDefaultModel);
  require_utf8("model", name);
  return name;
}

void add_model_argument(CLI::App& verb, ModelArgument& argument) {
  verb.add_option(
      "MODEL",
      argument.positional,
      "A catalogue name, a folder in Hugging Face layout, a .gguf file, or "
      "org/repo[@rev] that was pulled");
  verb.add_option("-m,--model", argument.model, "The same as MODEL")
      ->type_name("MODEL")
      ->default_str(hub::kDefaultModel);
}

}  // namespace mlxx::apps

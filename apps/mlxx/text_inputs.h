#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace mlxx::apps {

// Where verbs that work on many texts take them from.
struct TextInputOptions {
  std::vector<std::string> texts = {};  // arguments
  std::string file = {};                // "-": standard input
  bool json_lines = false;
  std::string field = "text";
};

// `what` names one of the texts in help: "text", "document".
void add_text_input_options(
    CLI::App& verb,
    TextInputOptions& options,
    const std::string& what);

// The texts in their order: the arguments, then those of the file, or of
// standard input if there are no others and it is no terminal. A plain file
// has one on each line, empty lines left out; one of JSON lines (also by its
// name, .jsonl) has strings or objects with `field`. Errors: invalid_request
// for no text at all; not_found for the file; for a line that holds no text,
// which it names, bad_file or, where it is JSON of another kind,
// invalid_request.
std::vector<std::string> read_texts(const TextInputOptions& options);

}  // namespace mlxx::apps

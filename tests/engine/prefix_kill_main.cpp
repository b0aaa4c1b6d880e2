// prefix_kill FOLDER FIRST: keeps the states of prompts FIRST, FIRST + 1, ...
// on disk until somebody ends it, and prints the number of each, one a line,
// once its state is said to be there.
#include <cstdlib>
#include <string>

#include <unistd.h>

#include "mlxx/engine/prefix_cache.h"
#include "tests/engine/marked_prompt.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  using namespace mlxx::engine;
  PrefixCache prefixes({.folder = argv[1]});
  prefixes.keep_on_disk("m", "weights", empty_marked_caches);
  for (auto i = static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10));;
       ++i) {
    auto tokens = marked_tokens(i, 128);
    prefixes.insert("m", tokens, marked_caches(tokens, 1024));
    prefixes.flush();
    std::string line = std::to_string(i) + "\n";
    if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) {
      return 1;
    }
  }
}

#include "apps/mlxx/commands.h"

#include <utility>

#include <CLI/CLI.hpp>

namespace mlxx::apps {

void on_run(
    CLI::App* verb,
    CommandContext& context,
    std::function<int()> body) {
  verb->callback([&context, body = std::move(body)] { context.body = body; });
}

}  // namespace mlxx::apps

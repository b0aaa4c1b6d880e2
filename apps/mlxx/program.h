#pragma once

#include <memory>

#include "apps/mlxx/commands.h"

namespace mlxx::apps {

// The whole command line with all verbs, before anything is parsed.
// `context` must outlive it.
std::unique_ptr<CLI::App> make_app(CommandContext& context);

// Runs the program and returns its exit code: 0, 1 (failure), 2 (wrong use) or
// 130 (interrupted). Writes at most one error line, to stderr. Never throws.
int run_program(int argc, char** argv);

}  // namespace mlxx::apps

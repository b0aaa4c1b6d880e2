#pragma once

namespace mlxx::apps {

// `mlxx runtime ...` without a libmlx: the same verb as in the whole program,
// on its own. Returns the exit code.
int run_runtime_program(int argc, char** argv);

}  // namespace mlxx::apps

#include "apps/mlxx/program.h"
#include "mlxx/capi/functions.h"

// All that libmlxx-impl shows to the outside: the program, and the functions
// behind the C ABI. Loaded by main.cpp and by libmlxx.

#define MLXX_EXPORT __attribute__((visibility("default")))

extern "C" {

MLXX_EXPORT extern const mlxx::capi::FunctionTable mlxx_functions;
const mlxx::capi::FunctionTable mlxx_functions =
    mlxx::capi::make_function_table();

MLXX_EXPORT int mlxx_main(int argc, char** argv) {
  return mlxx::apps::run_program(argc, argv);
}

}  // extern "C"

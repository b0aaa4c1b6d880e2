#include "mlxx/core/gpu_queue.h"

#include <charconv>
#include <cstdlib>
#include <string>

#include "mlxx/base/environment.h"

namespace mlxx {

namespace {

constexpr const char* kVariable = "MLX_MAX_OPS_PER_BUFFER";

}  // namespace

void give_gpu_few_operations(int count) {
  setenv(kVariable, std::to_string(count).c_str(), 0);
}

int operations_given_to_gpu() {
  constexpr int kOfMlx = 100;
  auto text = environment(kVariable);
  int count = 0;
  if (!text ||
      std::from_chars(text->data(), text->data() + text->size(), count).ec !=
          std::errc() ||
      count < 1) {
    return kOfMlx;
  }
  return count;
}

}  // namespace mlxx

#pragma once

#include <string>
#include <vector>

namespace mlxx::apps {

struct Processor {
  std::string name;
  int threads = 0;
  // Of the instruction sets that kernels care about: "avx2", "avx512f",
  // "avx512_vnni", "avx512_bf16", "neon", "i8mm", ...
  std::vector<std::string> instruction_sets;
};

Processor describe_processor();

}  // namespace mlxx::apps

#pragma once

#include <cstdint>
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

struct Memory {
  uint64_t total_bytes = 0;      // of the machine
  uint64_t available_bytes = 0;  // without swapping; 0 if unknown
  uint64_t limit_bytes = 0;      // of this container; 0 if there is none
};

Memory describe_memory();

}  // namespace mlxx::apps

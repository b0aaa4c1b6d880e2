#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mlxx::kernels {

// Variants that CPU kernels are compiled for, the best one last. Every build
// has `portable`: plain vector code for the architecture's baseline (SSE2,
// NEON). `dotprod` and `i8mm` are those of 64-bit Arm, each on top of the one
// before it.
enum class InstructionSet {
  portable,
  avx2,
  avx512,
  avx512vnni,
  avx512bf16,
  dotprod,
  i8mm,
};

std::string_view to_string(InstructionSet set);

// Those that this build contains and this processor runs, the best one last.
std::vector<InstructionSet> available_instruction_sets();

}  // namespace mlxx::kernels

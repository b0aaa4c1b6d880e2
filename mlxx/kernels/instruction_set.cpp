#include "mlxx/kernels/instruction_set.h"

namespace mlxx::kernels {

std::string_view to_string(InstructionSet set) {
  switch (set) {
    case InstructionSet::portable:
      return "portable";
    case InstructionSet::avx2:
      return "avx2";
    case InstructionSet::avx512:
      return "avx512";
    case InstructionSet::avx512vnni:
      return "avx512vnni";
  }
  return "portable";
}

std::vector<InstructionSet> available_instruction_sets() {
  std::vector<InstructionSet> sets{InstructionSet::portable};
#ifdef MLXX_HAS_X86_KERNELS
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    sets.push_back(InstructionSet::avx2);
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      sets.push_back(InstructionSet::avx512);
      if (__builtin_cpu_supports("avx512vnni")) {
        sets.push_back(InstructionSet::avx512vnni);
      }
    }
  }
#endif
  return sets;
}

}  // namespace mlxx::kernels

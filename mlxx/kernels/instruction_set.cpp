#include "mlxx/kernels/instruction_set.h"

#ifdef MLXX_HAS_ARM_KERNELS
#ifdef __APPLE__
#include <sys/sysctl.h>
#else
#include <sys/auxv.h>
#endif
#endif

namespace mlxx::kernels {
#ifdef MLXX_HAS_ARM_KERNELS
namespace {

#ifdef __APPLE__
bool processor_has(const char* feature) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(feature, &value, &size, nullptr, 0) == 0 && value != 0;
}

// Their half-precision arithmetic is part of every one of Apple's processors.
bool has_dotprod() {
  return processor_has("hw.optional.arm.FEAT_DotProd");
}
bool has_i8mm() {
  return processor_has("hw.optional.arm.FEAT_I8MM");
}
#else
// The bits of Linux' AT_HWCAP and AT_HWCAP2, which older headers do not name.
constexpr unsigned long kHalfPrecision = 1ul << 10;  // HWCAP_ASIMDHP
constexpr unsigned long kDotProducts = 1ul << 20;    // HWCAP_ASIMDDP
constexpr unsigned long kByteMatrices = 1ul << 13;   // HWCAP2_I8MM

bool has_dotprod() {
  constexpr unsigned long kNeeded = kHalfPrecision | kDotProducts;
  return (getauxval(AT_HWCAP) & kNeeded) == kNeeded;
}
bool has_i8mm() {
  return (getauxval(AT_HWCAP2) & kByteMatrices) != 0;
}
#endif

}  // namespace
#endif

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
    case InstructionSet::avx512bf16:
      return "avx512bf16";
    case InstructionSet::dotprod:
      return "dotprod";
    case InstructionSet::i8mm:
      return "i8mm";
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
        if (__builtin_cpu_supports("avx512bf16")) {
          sets.push_back(InstructionSet::avx512bf16);
        }
      }
    }
  }
#endif
#ifdef MLXX_HAS_ARM_KERNELS
  if (has_dotprod()) {
    sets.push_back(InstructionSet::dotprod);
    if (has_i8mm()) {
      sets.push_back(InstructionSet::i8mm);
    }
  }
#endif
  return sets;
}

}  // namespace mlxx::kernels

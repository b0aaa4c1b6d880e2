#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {

const PanelKernels& panel_kernels(InstructionSet set) {
#ifdef MLXX_HAS_X86_KERNELS
  if (set == InstructionSet::avx512) {
    return kPanelKernelsAvx512;
  }
  if (set == InstructionSet::avx2) {
    return kPanelKernelsAvx2;
  }
#else
  static_cast<void>(set);
#endif
  return kPanelKernelsPortable;
}

const RowKernels& row_kernels(InstructionSet set) {
#ifdef MLXX_HAS_X86_KERNELS
  if (set == InstructionSet::avx512) {
    return kRowKernelsAvx512;
  }
  if (set == InstructionSet::avx2) {
    return kRowKernelsAvx2;
  }
#else
  static_cast<void>(set);
#endif
  return kRowKernelsPortable;
}

}  // namespace mlxx::kernels

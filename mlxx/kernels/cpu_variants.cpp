#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

// The table of a set; a kernel without a variant for AVX-512 VNNI uses that for
// AVX-512.
template <typename Table>
const Table& choose(
    [[maybe_unused]] InstructionSet set,
    const Table& portable,
    [[maybe_unused]] const Table& avx2,
    [[maybe_unused]] const Table& avx512,
    [[maybe_unused]] const Table& avx512vnni) {
  switch (set) {
    case InstructionSet::avx512vnni:
      return avx512vnni;
    case InstructionSet::avx512:
      return avx512;
    case InstructionSet::avx2:
      return avx2;
    case InstructionSet::portable:
      break;
  }
  return portable;
}

}  // namespace

#ifdef MLXX_HAS_X86_KERNELS
#define MLXX_CHOOSE(set, table, best) \
  choose(set, table##Portable, table##Avx2, table##Avx512, table##best)
#else
#define MLXX_CHOOSE(set, table, best) \
  choose(                             \
      set,                            \
      table##Portable,                \
      table##Portable,                \
      table##Portable,                \
      table##Portable)
#endif

const PanelKernels& panel_kernels(InstructionSet set) {
  return MLXX_CHOOSE(set, kPanelKernels, Avx512);
}

const ByteKernels& byte_kernels(InstructionSet set) {
  return MLXX_CHOOSE(set, kByteKernels, Avx512Vnni);
}

const RowKernels& row_kernels(InstructionSet set) {
  return MLXX_CHOOSE(set, kRowKernels, Avx512);
}

const BlockAttention& block_attention(InstructionSet set) {
  return MLXX_CHOOSE(set, kBlockAttention, Avx512);
}

}  // namespace mlxx::kernels

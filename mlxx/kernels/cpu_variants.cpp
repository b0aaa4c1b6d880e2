#include "mlxx/kernels/cpu_variants.h"

#include <type_traits>

namespace mlxx::kernels {
namespace {

// The tables that one kind of kernel is compiled into. Sets without a variant
// of their own name that of the set below them.
template <typename Table>
struct Tables {
  const Table& portable;
  const Table& avx2;
  const Table& avx512;
  const Table& avx512vnni;
  const Table& dotprod;
  const Table& i8mm;

  const Table& choose(InstructionSet set) const {
    switch (set) {
      case InstructionSet::portable:
        return portable;
      case InstructionSet::avx2:
        return avx2;
      case InstructionSet::avx512:
        return avx512;
      case InstructionSet::avx512vnni:
      case InstructionSet::avx512bf16:
        return avx512vnni;
      case InstructionSet::dotprod:
        return dotprod;
      case InstructionSet::i8mm:
        return i8mm;
    }
    return portable;
  }
};

}  // namespace

#ifdef MLXX_HAS_X86_KERNELS
#define MLXX_X86_TABLES(table, vnni) table##Avx2, table##Avx512, table##vnni
#else
#define MLXX_X86_TABLES(table, vnni) \
  table##Portable, table##Portable, table##Portable
#endif
#ifdef MLXX_HAS_ARM_KERNELS
#define MLXX_ARM_TABLES(table, dotprod, i8mm) table##dotprod, table##i8mm
#else
#define MLXX_ARM_TABLES(table, dotprod, i8mm) table##Portable, table##Portable
#endif
#define MLXX_TABLES(table, vnni, dotprod, i8mm)         \
  Tables<std::remove_cv_t<decltype(table##Portable)>> { \
    table##Portable, MLXX_X86_TABLES(table, vnni),      \
        MLXX_ARM_TABLES(table, dotprod, i8mm)           \
  }

const PanelKernels& panel_kernels(InstructionSet set) {
  return MLXX_TABLES(kPanelKernels, Avx512, Portable, Portable).choose(set);
}

const ByteKernels& byte_kernels(InstructionSet set) {
  return MLXX_TABLES(kByteKernels, Avx512Vnni, Dotprod, I8mm).choose(set);
}

const DenseKernels& dense_kernels(InstructionSet set) {
#ifdef MLXX_HAS_X86_KERNELS
  if (set == InstructionSet::avx512bf16) {
    return kDenseKernelsAvx512Bf16;
  }
#endif
  return MLXX_TABLES(kDenseKernels, Avx512, Portable, Portable).choose(set);
}

const RowKernels& row_kernels(InstructionSet set) {
  return MLXX_TABLES(kRowKernels, Avx512, Portable, Portable).choose(set);
}

const LayerKernels& layer_kernels(InstructionSet set) {
  return MLXX_TABLES(kLayerKernels, Avx512, Portable, Portable).choose(set);
}

const RecurrentKernels& recurrent_kernels(InstructionSet set) {
  return MLXX_TABLES(kRecurrentKernels, Avx512, Portable, Portable).choose(set);
}

const BlockAttention& block_attention(InstructionSet set) {
  return MLXX_TABLES(kBlockAttention, Avx512, Portable, Portable).choose(set);
}

const AttentionTiles& attention_tiles(InstructionSet set) {
  return MLXX_TABLES(kAttentionTiles, Avx512, Portable, Portable).choose(set);
}

const GemmKernels& gemm_kernels(InstructionSet set) {
  return MLXX_TABLES(kGemmKernels, Avx512, Portable, Portable).choose(set);
}

const ChoiceKernels& choice_kernels(InstructionSet set) {
  return MLXX_TABLES(kChoiceKernels, Avx512, Portable, Portable).choose(set);
}

}  // namespace mlxx::kernels

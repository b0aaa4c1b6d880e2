#pragma once

#include "mlxx/kernels/attention/attention_tiles.h"
#include "mlxx/kernels/attention/block_attention.h"
#include "mlxx/kernels/instruction_set.h"
#include "mlxx/kernels/layer_kernels.h"
#include "mlxx/kernels/matmul/gemm_kernels.h"
#include "mlxx/kernels/quantized_matmul/byte_kernels.h"
#include "mlxx/kernels/quantized_matmul/dense_kernels.h"
#include "mlxx/kernels/quantized_matmul/panel_kernels.h"
#include "mlxx/kernels/recurrent_kernels.h"
#include "mlxx/kernels/row_kernels.h"
#include "mlxx/kernels/token_choice/choice_kernels.h"

namespace mlxx::kernels {

// The tables compiled for an instruction set of available_instruction_sets().
const PanelKernels& panel_kernels(InstructionSet set);
const ByteKernels& byte_kernels(InstructionSet set);
const DenseKernels& dense_kernels(InstructionSet set);
const RowKernels& row_kernels(InstructionSet set);
const LayerKernels& layer_kernels(InstructionSet set);
const RecurrentKernels& recurrent_kernels(InstructionSet set);
const BlockAttention& block_attention(InstructionSet set);
const AttentionTiles& attention_tiles(InstructionSet set);
const GemmKernels& gemm_kernels(InstructionSet set);
const ChoiceKernels& choice_kernels(InstructionSet set);

}  // namespace mlxx::kernels

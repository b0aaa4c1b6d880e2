#pragma once

#include <memory>

#include "mlxx/base/thread_pool.h"
#include "mlxx/kernels/instruction_set.h"
#include "mlxx/kernels/quantized_matmul/byte_kernels.h"

namespace mlxx::kernels {

class GemmMemory;
class PanelMemory;

// Which implementation runs where there are several. Made once, when a model
// is loaded: the choice decides in which form weights become resident.
struct Selection {
  // Plain MLX operations everywhere, dtypes as stored: the reference that
  // every kernel is tested against, bit-equal to mlx-lm.
  bool fallback = false;
  InstructionSet instruction_set = InstructionSet::portable;
  // On CUDA: the same row gives the same bits whatever else is computed with
  // it. On the CPU that is always so.
  bool deterministic = false;
  // Weights stay in the form that products of many rows and their gradients
  // take, also where decoding would be faster with another.
  bool trains = false;
  // What CPU kernels compute with; null where none will run.
  std::shared_ptr<ThreadPool> threads;
  // How activations meet quantized weights in CPU kernels.
  ActivationForm activations = ActivationForm::int16;
  // Where packed weights are put while a model is loaded; null: each by
  // itself.
  std::shared_ptr<PanelMemory> memory = nullptr;
  // What dense products work in; null: memory of each one's own.
  std::shared_ptr<GemmMemory> gemm_memory = nullptr;

  // Whether float32 arrays are computed by our CPU kernels.
  bool has_cpu_kernels() const {
    return !fallback && threads;
  }
};

// Calls part(begin, end) for all of `rows`: on this thread if there are fewer
// than `few`, which are not worth waking the others for, else on every thread.
template <typename Part>
void for_each_row_range(
    const Selection& selection,
    int64_t rows,
    int64_t few,
    const Part& part) {
  if (rows < few) {
    part(0, rows);
    return;
  }
  selection.threads->run([&](int thread) {
    auto range = selection.threads->split(rows, thread);
    part(range.begin, range.end);
  });
}

// The fastest for this machine.
Selection select_best();

// From the environment, invalid_request where a value is none of these or this
// processor lacks it:
// MLXX_KERNEL: unset or "auto" is the fastest for this machine, "fallback" the
// plain operations.
// MLXX_CPU: the instruction set ("portable", "avx2", "avx512", "avx512vnni",
// "avx512bf16"; on Arm "dotprod", "i8mm"); unset or "auto": the best one.
// MLXX_CPU_ACTIVATIONS: "int16" (also if unset), "int8" or "fp32".
// MLXX_DETERMINISTIC: a flag, Selection::deterministic.
// MLXX_THREADS: threads of the CPU kernels; unset: one per processor.
Selection select_from_environment();

// "fp32", "int16", "int8".
std::string_view to_string(ActivationForm form);
// invalid_request, naming `place`, for other text.
ActivationForm activation_form(std::string_view place, std::string_view text);

}  // namespace mlxx::kernels

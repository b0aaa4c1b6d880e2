#pragma once

#include <memory>

#include "mlxx/base/thread_pool.h"
#include "mlxx/kernels/instruction_set.h"

namespace mlxx::kernels {

// Which implementation runs where there are several. Made once, when a model
// is loaded: the choice decides in which form weights become resident.
struct Selection {
  // Plain MLX operations everywhere, dtypes as stored: the reference that
  // every kernel is tested against, bit-equal to mlx-lm.
  bool fallback = false;
  InstructionSet instruction_set = InstructionSet::portable;
  // What CPU kernels compute with; null where none will run.
  std::shared_ptr<ThreadPool> threads;

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

// From MLXX_KERNEL: unset or "auto" is the fastest for this machine,
// "fallback" the plain operations, and the name of an instruction set
// ("portable", "avx2", "avx512") the CPU kernels compiled for it. Another
// value, or a set that this processor lacks, is an invalid_request.
// MLXX_THREADS: threads of the CPU kernels; unset: one per processor.
Selection select_from_environment();

}  // namespace mlxx::kernels

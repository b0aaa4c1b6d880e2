#pragma once

#include <cstdint>

#include "mlxx/kernels/select.h"

namespace mlxx::benchmarks {

// What this machine reaches with the threads and the instruction set of a
// selection, measured for about a second.
struct MachinePeaks {
  double bytes_per_second;  // read from memory
  double float_operations;  // float32 multiply_add, two each, per second
  double byte_operations;   // products of bytes summed, two each, per second
};

MachinePeaks measure_peaks(const kernels::Selection& selection);

// Bytes of the last-level cache; a guess where the system does not say.
int64_t last_level_cache();

}  // namespace mlxx::benchmarks

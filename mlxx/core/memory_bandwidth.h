#pragma once

namespace mlxx {

// Bytes per second that this machine's default device reads from memory,
// measured for a fraction of a second: what decoding, which reads every
// weight for each token, is compared with. `threads` read at once on a CPU; 0:
// one per processor.
double measure_memory_bandwidth(int threads = 0);

}  // namespace mlxx

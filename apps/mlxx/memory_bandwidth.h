#pragma once

namespace mlxx::apps {

// Bytes per second that this machine's default device reads from memory,
// measured for a fraction of a second: what decoding, which reads every
// weight for each token, is compared with.
double measure_memory_bandwidth();

}  // namespace mlxx::apps

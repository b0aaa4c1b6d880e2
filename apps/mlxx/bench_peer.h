#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "apps/mlxx/bench_rounds.h"
#include "mlxx/hub/checkpoint.h"

namespace mlxx::apps {

// Another program that measures the same plan on the same model.
class BenchPeer {
 public:
  virtual ~BenchPeer() = default;
  virtual const std::string& name() const = 0;
  // Its step_seconds are unknown. internal if it does not run or does not say
  // what it measured; `log` is where its output goes.
  virtual BenchRound measure(const BenchPlan& plan) const = 0;
};

// `peer` is one of
//   llama.cpp=PATH     of llama-bench; llama-batched-bench beside it measures
//                      several sequences
//   ik_llama.cpp=PATH  of that fork's llama-bench: one sequence, and after some
//                      context decoding only
//   mlx-lm=PYTHON      an interpreter that has mlx-lm
// The first two take a GGUF file and `threads` threads (0: all); for mlx-lm a
// GGUF file is written as an MLX checkpoint first, into `scratch`, with scales
// of the dtype that MLX is fastest with.
// invalid_request for other text or a model that the peer cannot read.
std::unique_ptr<BenchPeer> make_bench_peer(
    const std::string& peer,
    const hub::Checkpoint& checkpoint,
    int threads,
    const std::filesystem::path& scratch);

}  // namespace mlxx::apps

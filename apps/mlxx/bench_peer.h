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

// `peer` is "llama.cpp=PATH", where PATH is llama-bench (llama-batched-bench
// beside it measures several sequences), or "mlx-lm=PYTHON", where PYTHON is an
// interpreter that has mlx-lm. llama.cpp takes a GGUF file and `threads`
// threads (0: all); for mlx-lm a GGUF file is written as an MLX checkpoint
// first, into `scratch`.
// invalid_request for other text or a model that the peer cannot read.
std::unique_ptr<BenchPeer> make_bench_peer(
    const std::string& peer,
    const hub::Checkpoint& checkpoint,
    int threads,
    const std::filesystem::path& scratch);

}  // namespace mlxx::apps

#include "mlxx/plan/memory_plan.h"

#include <algorithm>
#include <bit>

#include "mlxx/base/error.h"
#include "mlxx/cache/states.h"
#include "mlxx/plan/graph_memory.h"

namespace mlxx::plan {

namespace {

// Logits, their logarithms, an order of them and what filters leave, float32.
constexpr size_t kLogitCopies = 4;

size_t bytes_of(const std::vector<mx::array>& arrays) {
  size_t bytes = 0;
  for (const auto& array : arrays) {
    bytes += array.nbytes();
  }
  return bytes;
}

// Packed matrices are cut from pieces of 32 MiB that begin at a huge page
// (kernels/panel_memory.h); the last piece may be smaller.
size_t in_pieces(size_t packed) {
  constexpr size_t kHugePage = size_t{2} << 20;
  constexpr size_t kPiece = 16 * kHugePage;
  const size_t rest = packed % kPiece;
  const size_t whole = packed / kPiece * (kPiece + kHugePage);
  return rest == 0
      ? whole
      : whole + (rest + kHugePage - 1) / kHugePage * kHugePage + kHugePage;
}

size_t weights_of(const models::Model& model) {
  size_t packed = 0;
  size_t other = 0;
  model.visit([&](const std::string&, const Parameter& parameter) {
    (parameter.packed() ? packed : other) += parameter.nbytes();
  });
  return in_pieces(packed) + other;
}

void require_positive(const char* name, int value) {
  if (value < 1) {
    fail(ErrorKind::invalid_request, name, "must be at least 1, got {}", value);
  }
}

// The largest number up to `limit` for which `fits`, which no larger one does
// once one does not.
template <typename Fits>
int largest(int limit, const Fits& fits) {
  int good = 0;
  int bad = limit + 1;
  while (bad - good > 1) {
    const int middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace

ModelMemory::ModelMemory(std::shared_ptr<const models::Model> model)
    : model_(std::move(model)),
      summary_(model_->summary()),
      weights_(weights_of(*model_)),
      growth_(state_growth(*model_)),
      in_blocks_(std::ranges::any_of(growth_, [](const auto& growth) {
        return growth.kind == "blocks";
      })) {}

size_t ModelMemory::weights() const {
  return weights_;
}

size_t ModelMemory::state(int tokens) const {
  size_t bytes = 0;
  for (const auto& growth : growth_) {
    bytes += growth.bytes(tokens);
  }
  return bytes;
}

size_t ModelMemory::shared_state(int tokens) const {
  size_t bytes = 0;
  for (const auto& growth : growth_) {
    if (growth.kind == "blocks") {
      bytes += growth.bytes(tokens / growth.step * growth.step);
    }
  }
  return bytes;
}

size_t ModelMemory::prefill(int chunk, int context) const {
  chunk = std::min(chunk, context);
  if (chunk < 1) {
    return 0;
  }
  // Traced for few lengths only: the next power of two.
  const auto ceiling = [](int n) {
    return static_cast<int>(std::bit_ceil(static_cast<unsigned>(n)));
  };
  chunk = ceiling(chunk);
  context = std::max(chunk, ceiling(context));
  if (summary_.max_position_embeddings > 0) {
    // Tables of positions end there.
    context = std::min(context, summary_.max_position_embeddings);
    chunk = std::min(chunk, context);
  }
  auto [entry, fresh] = traced_.try_emplace({chunk, context}, 0);
  if (fresh) {
    entry->second = traced_prefill(chunk, context);
  }
  return entry->second;
}

size_t ModelMemory::traced_prefill(int chunk, int context) const {
  // Blocks are made when a step is planned, so no more of them than needed;
  // what their kernel computes does not depend on the context.
  const int earlier = in_blocks_ ? 0 : context - chunk;
  auto caches = model_->make_cache({});
  if (earlier > 0) {
    model_->forward_last(mx::zeros({1, earlier}, mx::int32), caches);
  }
  const auto before = states(caches);
  model_->forward_last(mx::zeros({1, chunk}, mx::int32), caches);
  const auto after = states(caches);
  const size_t peak = peak_of_graph(after, before);
  size_t room = 0;  // that windows hold of the chunk, and give back later
  for (const auto& growth : growth_) {
    room += growth.bytes(context, chunk) - growth.bytes(context);
  }
  return room + peak - std::min(peak, bytes_of(after));
}

size_t ModelMemory::logits(int rows) const {
  return kLogitCopies * sizeof(float) *
      static_cast<size_t>(summary_.vocab_size) * static_cast<size_t>(rows);
}

MemoryPlan ModelMemory::plan(const Workload& workload) const {
  require_positive("context", workload.context);
  require_positive("batch", workload.rows);
  require_positive("prefill_step", workload.prefill_step);
  MemoryPlan plan;
  plan.weights = weights();
  plan.state = static_cast<size_t>(workload.rows) * state(workload.context);
  plan.prefill = prefill(workload.prefill_step, workload.context);
  plan.logits = logits(workload.rows);
  plan.prefix_cache = workload.prefix_cache_bytes;
  plan.adapters = workload.adapter_bytes;
  return plan;
}

int ModelMemory::largest_context(Workload workload, size_t budget, int limit)
    const {
  return largest(limit, [&](int context) {
    workload.context = context;
    return plan(workload).total() <= budget;
  });
}

int ModelMemory::largest_batch(Workload workload, size_t budget, int limit)
    const {
  return largest(limit, [&](int rows) {
    workload.rows = rows;
    return plan(workload).total() <= budget;
  });
}

}  // namespace mlxx::plan

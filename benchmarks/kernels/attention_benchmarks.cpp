#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "benchmarks/kernels/workbench.h"
#include "mlxx/core/mlx.h"
#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::benchmarks {
namespace {

using namespace kernels;

struct Heads {
  const char* model;
  int64_t kv_heads;
  int64_t group;  // query heads per key-value head
  int64_t size;
};

const Heads kHeads[] = {
    {"smollm2", 3, 3, 64},
    {"llama-1b", 8, 4, 64},
    {"llama-3b", 8, 3, 128},
};
constexpr int kDecodeLengths[] = {512, 4096};
constexpr int kPromptLength = 512;

int64_t splits_of(int64_t tokens) {
  return (tokens + kSplitLength - 1) / kSplitLength;
}

// Half-precision keys and values of several layers: together larger than the
// caches where a decode step is measured.
class Cache {
 public:
  Cache(const Heads& heads, int64_t tokens, int64_t least_bytes)
      : heads_(heads),
        blocks_(splits_of(tokens) * kSplitBlocks),
        block_numbers_(kBlockLength * heads.size) {
    int64_t layer = 2 * heads.kv_heads * blocks_ * block_numbers_;
    layers_ = 1 + least_bytes / (2 * layer);
    keys_.assign(layers_ * layer / 2, mx::float16_t(0.1f));
    values_ = keys_;
  }

  int64_t layers() const {
    return layers_;
  }
  KvSplit split(int64_t layer, int64_t head, int64_t split) const {
    KvSplit parts{};
    for (int64_t i = 0; i < kSplitBlocks; ++i) {
      int64_t at =
          (layer * heads_.kv_heads + head) * blocks_ + split * kSplitBlocks + i;
      parts.keys[i] = keys_.data() + at * block_numbers_;
      parts.values[i] = values_.data() + at * block_numbers_;
    }
    return parts;
  }

 private:
  Heads heads_;
  int64_t blocks_;
  int64_t block_numbers_;
  int64_t layers_;
  std::vector<mx::float16_t> keys_;
  std::vector<mx::float16_t> values_;
};

// The queries of one key-value head at tokens [first, last), each seeing what
// is not after it, over splits [from, to).
class Tile {
 public:
  explicit Tile(const Heads& heads)
      : heads_(heads),
        query_(heads.size, 0.1f),
        outs_(room()),
        later_(room()) {}

  void attend(
      const BlockAttention& kernels,
      const Cache& cache,
      int64_t layer,
      int64_t head,
      int64_t first,
      int64_t last,
      int64_t from,
      int64_t to) {
    int64_t queries = (last - first) * heads_.group;
    std::ranges::fill(outs_, 0.0f);
    const float* rows[kSplitQueries];
    int32_t begin[kSplitQueries] = {};
    int32_t end[kSplitQueries];
    SplitState states[kSplitQueries];
    SplitState later[kSplitQueries];
    for (int64_t i = 0; i < queries; ++i) {
      rows[i] = query_.data();
      states[i] = {kNoScore, 0, outs_.data() + i * heads_.size};
      later[i] = {0, 0, later_.data() + i * heads_.size};
    }
    for (int64_t split = from; split < to; ++split) {
      for (int64_t i = 0; i < queries; ++i) {
        end[i] = static_cast<int32_t>(std::clamp<int64_t>(
            first + i / heads_.group + 1 - split * kSplitLength,
            0,
            kSplitLength));
      }
      kernels.attend(
          {cache.split(layer, head, split),
           KvType::float16,
           heads_.size,
           queries,
           rows,
           begin,
           end},
          later);
      for (int64_t i = 0; i < queries; ++i) {
        if (end[i] > 0) {
          kernels.join(later[i], heads_.size, states[i]);
        }
      }
    }
    for (int64_t i = 0; i < queries; ++i) {
      kernels.finish(states[i], heads_.size);
    }
    benchmark::DoNotOptimize(outs_.data());
  }

 private:
  size_t room() const {
    return kSplitQueries * heads_.size;
  }

  Heads heads_;
  std::vector<float> query_;
  std::vector<float> outs_;
  std::vector<float> later_;
};

std::vector<Tile> tiles(const Workbench& bench, const Heads& heads) {
  return std::vector<Tile>(bench.selection.threads->size(), Tile(heads));
}

// One query per head at the end of `tokens`, split over threads; what joins
// the splits of a head is left out.
void decode(
    benchmark::State& state,
    const Workbench& bench,
    const Heads& heads,
    int64_t tokens) {
  Cache cache(heads, tokens, 2 * last_level_cache());
  const auto& kernels = block_attention(bench.selection.instruction_set);
  auto scratch = tiles(bench, heads);
  int64_t splits = splits_of(tokens);
  double numbers = 2.0 * heads.kv_heads * heads.size * tokens;
  Work work{
      2 * numbers,
      2 * numbers * heads.group,
      bench.peaks.float_operations};
  ThreadPool& threads = *bench.selection.threads;
  measure(state, bench, work, [&](int64_t iteration) {
    int64_t layer = iteration % cache.layers();
    threads.run([&](int thread) {
      auto range = threads.split(heads.kv_heads * splits, thread);
      for (size_t item = range.begin; item < range.end; ++item) {
        auto split = static_cast<int64_t>(item) % splits;
        scratch[thread].attend(
            kernels,
            cache,
            layer,
            static_cast<int64_t>(item) / splits,
            tokens - 1,
            tokens,
            split,
            split + 1);
      }
    });
  });
}

// A causal prompt, in tiles of as many tokens as fit in kSplitQueries.
void prompt(
    benchmark::State& state,
    const Workbench& bench,
    const Heads& heads,
    int64_t tokens) {
  Cache cache(heads, tokens, 0);
  const auto& kernels = block_attention(bench.selection.instruction_set);
  auto scratch = tiles(bench, heads);
  int64_t per_tile = kSplitQueries / heads.group;
  int64_t count = (tokens + per_tile - 1) / per_tile;
  double pairs = 0.5 * tokens * (tokens + 1) * heads.kv_heads * heads.group;
  Work work{
      4.0 * heads.kv_heads * heads.size * tokens,
      4 * pairs * heads.size,
      bench.peaks.float_operations};
  ThreadPool& threads = *bench.selection.threads;
  measure(state, bench, work, [&](int64_t) {
    threads.run([&](int thread) {
      // Every other tile: later ones see more tokens.
      for (int64_t item = thread; item < heads.kv_heads * count;
           item += threads.size()) {
        int64_t first = item % count * per_tile;
        int64_t last = std::min(first + per_tile, tokens);
        scratch[thread].attend(
            kernels,
            cache,
            0,
            item / count,
            first,
            last,
            0,
            splits_of(last));
      }
    });
  });
}

}  // namespace

void register_attention(const Workbench& bench) {
  auto add = [&](const std::string& name, auto run) {
    benchmark::RegisterBenchmark(name.c_str(), run)
        ->UseRealTime()
        ->MinTime(0.1);
  };
  for (const Heads& heads : kHeads) {
    for (int tokens : kDecodeLengths) {
      add(fmt::format("attention/{}/decode:{}", heads.model, tokens),
          [&bench, heads, tokens](benchmark::State& state) {
            decode(state, bench, heads, tokens);
          });
    }
    add(fmt::format("attention/{}/prompt:{}", heads.model, kPromptLength),
        [&bench, heads](benchmark::State& state) {
          prompt(state, bench, heads, kPromptLength);
        });
  }
}

}  // namespace mlxx::benchmarks

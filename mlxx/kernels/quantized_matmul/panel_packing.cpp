#include <algorithm>
#include <atomic>
#include <cstring>

#include "mlxx/kernels/quantized_matmul/packed_panels.h"

namespace mlxx::kernels {
namespace {

typedef uint32_t Four __attribute__((vector_size(16)));
typedef uint32_t FourAnywhere
    __attribute__((vector_size(16), aligned(4), may_alias));

// Words [lane][words_per_row] of four lanes, four words of each, to
// [word][kLanes].
inline void
transpose_four(const uint32_t* from, int64_t words_per_row, uint32_t* to) {
  auto row = [&](int lane) -> Four {
    return *reinterpret_cast<const FourAnywhere*>(from + lane * words_per_row);
  };
  Four a = row(0), b = row(1), c = row(2), d = row(3);
  Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  Four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  Four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  auto put = [&](int word, Four v) {
    *reinterpret_cast<FourAnywhere*>(to + word * kLanes) = v;
  };
  put(0, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
  put(1, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
  put(2, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
  put(3, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
}

// One panel's rows in MLX's packing, small enough for the nearest cache.
struct PanelRows {
  std::vector<uint32_t> words;   // [32][words per row]
  std::vector<uint16_t> scales;  // [32][groups]
  std::vector<uint16_t> biases;

  PanelRows(int64_t words_per_row, int64_t groups)
      : words(kLanes * words_per_row),
        scales(kLanes * groups),
        biases(kLanes * groups) {}
  void clear() {
    std::ranges::fill(words, 0);
    std::ranges::fill(scales, 0);
    std::ranges::fill(biases, 0);
  }
};

void write_panel(
    const PanelLayout& layout,
    const PanelRows& rows,
    std::byte* panel) {
  int64_t groups = layout.in / layout.group_size;
  int64_t words_per_row = groups * layout.bits;
  for (int64_t group = 0; group < groups; ++group) {
    std::byte* at = panel + group * layout.group_bytes();
    auto* numbers = reinterpret_cast<uint16_t*>(at);
    for (int lane = 0; lane < kLanes; ++lane) {
      numbers[lane] = rows.scales[lane * groups + group];
    }
    if (!layout.symmetric) {
      for (int lane = 0; lane < kLanes; ++lane) {
        numbers[kLanes + lane] = rows.biases[lane * groups + group];
      }
    }
    auto* target = reinterpret_cast<uint32_t*>(at + layout.header_bytes());
    for (int word = 0; word < layout.bits; word += 4) {
      const uint32_t* from = rows.words.data() + group * layout.bits + word;
      for (int lane = 0; lane < kLanes; lane += 4) {
        transpose_four(
            from + lane * words_per_row,
            words_per_row,
            target + word * kLanes + lane);
      }
    }
  }
}

// Whether every bias is `zero` times its scale, in the first `count`.
bool is_symmetric(const PanelRows& rows, int64_t count, float zero) {
  for (int64_t i = 0; i < count; ++i) {
    mx::float16_t scale, bias;
    std::memcpy(&scale, &rows.scales[i], sizeof(scale));
    std::memcpy(&bias, &rows.biases[i], sizeof(bias));
    if (static_cast<float>(bias) != static_cast<float>(scale) * zero) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::shared_ptr<const PanelMatrix> PanelMatrix::from_rows(
    const QuantizedRows& rows,
    const Selection& selection) {
  const auto& form = rows.form();
  PanelLayout layout{
      .in = form.columns,
      .bits = form.bits,
      .group_size = QuantizedRows::kGroup,
      .type = NumberType::float16,
      .symmetric = form.symmetric,
      .zero = -static_cast<float>(1 << (form.bits - 1))};
  std::shared_ptr<PanelMatrix> matrix(
      new PanelMatrix(layout, static_cast<int>(form.rows), selection));
  matrix->allocate(selection.memory.get());
  return matrix->fill(rows) ? matrix : nullptr;
}

PanelMatrix::PanelMatrix(
    const PanelLayout& layout,
    int out,
    const Selection& selection)
    : layout_(layout),
      out_(out),
      kernels_(product_kernels(selection)),
      gemm_machine_(gemm_machine(selection)),
      threads_(
          selection.threads ? selection.threads
                            : std::make_shared<ThreadPool>(1)) {}

bool PanelMatrix::fill(const QuantizedRows& rows) {
  int64_t groups = layout_.in / layout_.group_size;
  std::atomic<bool> finite = true;
  std::atomic<bool> has_biases = layout_.symmetric;
  // Panels are taken one by one: another thread may hold a core while a model
  // is loaded, and equal parts would wait for it.
  std::atomic<int64_t> next = 0;
  // Made here: what threads run must not throw.
  std::vector<PanelRows> all_scratch(
      threads_->size(),
      PanelRows(groups * layout_.bits, groups));
  threads_->run([&](int thread) {
    PanelRows& scratch = all_scratch[thread];
    int64_t index;
    while ((index = next.fetch_add(1, std::memory_order_relaxed)) < panels()) {
      int64_t first = index * kLanes;
      int64_t lanes = std::min<int64_t>(kLanes, out_ - first);
      if (lanes < kLanes) {
        // Lanes past the last output hold zeros.
        scratch.clear();
      }
      if (!rows.read(
              first,
              lanes,
              scratch.words.data(),
              scratch.scales.data(),
              scratch.biases.data())) {
        finite = false;
        return;
      }
      if (!has_biases.load(std::memory_order_relaxed) &&
          !is_symmetric(scratch, lanes * groups, layout_.zero)) {
        has_biases = true;
      }
      write_panel(layout_, scratch, panel(index));
    }
  });
  return finite && has_biases;
}

}  // namespace mlxx::kernels

#include "mlxx/kernels/token_choice/token_choice.h"

#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/core/cpu_stream_primitive.h"
#include "mlxx/kernels/cpu_variants.h"
#include "mlxx/kernels/token_choice/row_choice.h"

namespace mlxx::kernels {
namespace {

// Inputs: logits [B, V] float32 and fed [B] int32, both in rows. Outputs as in
// TokenChoices.
class CpuTokenChoice : public CpuStreamPrimitive {
 public:
  CpuTokenChoice(std::vector<TokenChoice> rows, const Selection& selection)
      : CpuStreamPrimitive(
            "CpuTokenChoice",
            mx::default_stream(mx::Device::cpu)),
        rows_(
            std::make_shared<const std::vector<TokenChoice>>(std::move(rows))),
        selection_(selection) {}

  void eval_cpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) override {
    for (auto& out : outputs) {
      out.set_data(mx::allocator::malloc(out.nbytes()));
    }
    dispatch([rows = rows_,
              selection = selection_,
              logits = inputs[0].data<float>(),
              fed = inputs[1].data<int32_t>(),
              size = int64_t{inputs[0].shape(1)},
              tokens = outputs[0].data<int32_t>(),
              check = outputs[1].data<float>(),
              logprobs = outputs[2].data<float>(),
              top_tokens = outputs[3].data<int32_t>(),
              top_logprobs = outputs[4].data<float>(),
              width = int64_t{outputs[3].shape(1)}] {
      auto part = [&](size_t begin, size_t end) {
        RowChooser chooser(choice_kernels(selection.instruction_set));
        std::vector<Candidate> top(static_cast<size_t>(width));
        for (size_t row = begin; row < end; ++row) {
          auto r = static_cast<int64_t>(row);
          std::ranges::fill(top, Candidate{0, 0});
          auto result = chooser.choose(
              logits + r * size,
              size,
              fed[row],
              (*rows)[row],
              top.data());
          tokens[row] = result.token;
          check[row] = result.check;
          logprobs[row] = result.logprob;
          for (int64_t i = 0; i < width; ++i) {
            const Candidate& candidate = top[static_cast<size_t>(i)];
            top_tokens[r * width + i] = candidate.token;
            top_logprobs[r * width + i] = candidate.logprob;
          }
        }
      };
      int64_t count = std::ssize(*rows);
      for_each_row_range(
          selection,
          count,
          selection.threads ? 2 : count + 1,
          part);
    });
  }

 private:
  std::shared_ptr<const std::vector<TokenChoice>> rows_;
  Selection selection_;
};

void check_row(const TokenChoice& row, int size) {
  auto check = [&](int32_t id) {
    if (id < 0 || id >= size) {
      fail(
          ErrorKind::internal,
          "token choice",
          "token {} of a vocabulary of {}",
          id,
          size);
    }
  };
  for (const auto& [id, bias] : row.bias) {
    check(id);
  }
  for (int32_t id : row.known_tokens) {
    check(id);
  }
  if (row.given) {
    check(*row.given);
  }
  if (!row.allowed.empty() && std::ssize(row.allowed) < (size + 31) / 32) {
    fail(
        ErrorKind::internal,
        "token choice",
        "a mask of {} words for a vocabulary of {}",
        row.allowed.size(),
        size);
  }
}

}  // namespace

TokenChoices choose_tokens_cpu(
    const mx::array& logits,
    const mx::array& fed,
    std::vector<TokenChoice> rows,
    const Selection& selection) {
  if (logits.ndim() != 2 || logits.size() == 0 ||
      logits.dtype() != mx::float32 || fed.ndim() != 1 ||
      fed.dtype() != mx::int32 || fed.shape(0) != logits.shape(0) ||
      std::ssize(rows) != logits.shape(0)) {
    fail(
        ErrorKind::internal,
        "token choice",
        "{} rows for logits of shape ({}) after {} tokens",
        rows.size(),
        fmt::join(logits.shape().begin(), logits.shape().end(), ", "),
        fed.size());
  }
  int width = 0;
  for (const TokenChoice& row : rows) {
    check_row(row, logits.shape(1));
    width = std::max(
        width,
        std::min(row.top_logprobs.value_or(0), logits.shape(1)));
  }
  int batch = logits.shape(0);
  auto outputs = mx::array::make_arrays(
      {{batch}, {batch}, {batch}, {batch, width}, {batch, width}},
      {mx::int32, mx::float32, mx::float32, mx::int32, mx::float32},
      std::make_shared<CpuTokenChoice>(std::move(rows), selection),
      {mx::contiguous(logits), mx::contiguous(fed)});
  return {outputs[0], outputs[1], outputs[2], outputs[3], outputs[4]};
}

}  // namespace mlxx::kernels

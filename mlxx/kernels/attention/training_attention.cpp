#include "mlxx/kernels/attention/training_attention.h"

#include "mlxx/base/error.h"
#include "mlxx/kernels/attention/attention.h"
#include "mlxx/kernels/attention/seen_tokens.h"

namespace mlxx::kernels {
namespace {

// [L, L]
mx::array mask_of(const std::vector<SeenTokens>& seen) {
  int length = static_cast<int>(seen.size());
  std::vector<uint8_t> mask(seen.size() * seen.size());
  for (int i = 0; i < length; ++i) {
    uint8_t* row = mask.data() + static_cast<size_t>(i) * length;
    for (int j = 0; j < length; ++j) {
      row[j] = (j >= seen[i].parent_begin && j < seen[i].parent_end) ||
          (j >= seen[i].begin && j < seen[i].end);
    }
  }
  return mx::astype(
      mx::array(mask.data(), {length, length}, mx::uint8),
      mx::bool_);
}

}  // namespace

mx::array training_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options,
    const Selection&) {
  int length = queries.shape(2);
  auto seen = seen_tokens(options.segments, options.window, length);
  AttentionOptions plain{
      .scale = options.scale,
      .softcap = options.softcap,
      .sinks = options.sinks};
  if (options.segments.empty() && options.window == 0) {
    plain.mask.mode = "causal";
  } else {
    plain.mask.array = mask_of(seen);
  }
  return plain_attention(queries, keys, values, plain);
}

}  // namespace mlxx::kernels

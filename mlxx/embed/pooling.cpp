#include "mlxx/embed/pooling.h"

namespace mlxx::embed {
namespace {

mx::array take_rows(const mx::array& hidden, const std::vector<int>& rows) {
  std::vector<int32_t> indices(rows.begin(), rows.end());
  int count = static_cast<int>(indices.size());
  return mx::take(hidden, mx::array(indices.data(), {count}, mx::int32), 0);
}

mx::array mean(const mx::array& hidden, const TokenRows& rows) {
  std::vector<mx::array> means;
  int size = hidden.shape(1);
  for (int i = 0; i < rows.inputs(); ++i) {
    mx::array text =
        mx::slice(hidden, {rows.starts()[i], 0}, {rows.starts()[i + 1], size});
    means.push_back(mx::mean(mx::astype(text, mx::float32), 0, true));
  }
  return mx::concatenate(means, 0);
}

}  // namespace

std::string_view to_string(Pooling pooling) {
  switch (pooling) {
    case Pooling::mean:
      return "mean";
    case Pooling::cls:
      return "cls";
    case Pooling::last_token:
      return "lasttoken";
  }
  return "unknown";
}

mx::array
pool(const mx::array& hidden, const TokenRows& rows, Pooling pooling) {
  if (pooling == Pooling::mean) {
    return mean(hidden, rows);
  }
  std::vector<int> chosen;
  for (int i = 0; i < rows.inputs(); ++i) {
    chosen.push_back(
        pooling == Pooling::cls ? rows.starts()[i] : rows.starts()[i + 1] - 1);
  }
  return take_rows(hidden, chosen);
}

}  // namespace mlxx::embed

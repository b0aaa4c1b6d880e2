#include "mlxx/embed/token_rows.h"

namespace mlxx::embed {
namespace {

mx::array row_array(const std::vector<int32_t>& numbers) {
  return mx::array(
      numbers.data(),
      {static_cast<int>(numbers.size())},
      mx::int32);
}

}  // namespace

TokenRows::TokenRows(std::vector<EncoderInput> inputs) {
  starts_.push_back(0);
  for (const auto& input : inputs) {
    int length = static_cast<int>(input.ids.size());
    ids_.insert(ids_.end(), input.ids.begin(), input.ids.end());
    types_.insert(types_.end(), input.types.begin(), input.types.end());
    for (int i = 0; i < length; ++i) {
      positions_.push_back(i);
    }
    lengths_.push_back(length);
    starts_.push_back(starts_.back() + length);
  }
}

mx::array TokenRows::ids() const {
  return row_array(ids_);
}

mx::array TokenRows::types() const {
  return row_array(types_);
}

mx::array TokenRows::position_ids(int first) const {
  std::vector<int32_t> moved;
  moved.reserve(positions_.size());
  for (int32_t position : positions_) {
    moved.push_back(position + first);
  }
  return row_array(moved);
}

}  // namespace mlxx::embed

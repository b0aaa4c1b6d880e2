#include "mlxx/nn/training_rows.h"

namespace mlxx::nn {
namespace {

thread_local const TrainingRows* active = nullptr;

}  // namespace

mx::array TrainingRows::positions(int length) const {
  if (segments.empty()) {
    return mx::arange(length);
  }
  std::vector<int> positions(length);
  for (size_t i = 0; i < segments.size(); ++i) {
    int first = kernels::first_position(segments, static_cast<int>(i));
    for (int at = segments[i].begin; at < segments[i].end; ++at) {
      positions[at] = first + at - segments[i].begin;
    }
  }
  return mx::array(positions.data(), {length}, mx::int32);
}

TrainingScope::TrainingScope(const TrainingRows* rows) : outer_(active) {
  active = rows;
}

TrainingScope::~TrainingScope() {
  active = outer_;
}

const TrainingRows* training_rows() {
  return active;
}

}  // namespace mlxx::nn

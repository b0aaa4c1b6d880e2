#include "mlxx/adapters/fused_checkpoint.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"

namespace mlxx::adapters {
namespace {

// Of a weight's length; less is rounding.
constexpr double kNothing = 1e-6;

const hub::TensorInfo& info_of(
    const std::vector<hub::TensorInfo>& tensors,
    const std::string& name) {
  auto found =
      std::ranges::lower_bound(tensors, name, {}, &hub::TensorInfo::name);
  if (found == tensors.end() || found->name != name) {
    fail(ErrorKind::not_found, "fuse", "there is no tensor '{}'", name);
  }
  return *found;
}

mx::array dense_of(
    const hub::Weight& weight,
    const std::optional<hub::Quantization>& q) {
  if (!q) {
    return weight.weight;
  }
  return mx::dequantize(
      weight.weight,
      *weight.scales,
      weight.biases,
      q->group_size,
      q->bits,
      q->mode,
      weight.global_scale);
}

hub::Weight packed(const mx::array& dense, const hub::Quantization& q) {
  auto parts = mx::quantize(dense, q.group_size, q.bits, q.mode);
  return {
      parts[0],
      parts[1],
      parts.size() > 2 ? std::optional(parts[2]) : std::nullopt,
      std::nullopt};
}

double sum_of(const mx::array& x) {
  return mx::sum(x).item<float>();
}

mx::array f32(const mx::array& x) {
  return mx::astype(x, mx::float32);
}

}  // namespace

FusedCheckpoint::FusedCheckpoint(
    std::shared_ptr<const hub::Checkpoint> source,
    WeightChanges changes,
    const FuseOptions& options)
    : source_(std::move(source)),
      changes_(changes.changes()),
      options_(options),
      tensors_(source_->tensors()) {
  for (hub::TensorInfo& tensor : tensors_) {
    auto& q = tensor.quantization;
    bool changed = changes_.contains(tensor.name);
    if (!q) {
      continue;
    }
    if (options_.dequantize) {
      q.reset();
      continue;
    }
    if (changed && options_.bits) {
      bool affine = q->mode == "affine";
      q = hub::Quantization{
          affine ? q->group_size : 32,
          *options_.bits,
          "affine"};
    }
    if (changed && q->has_global_scale) {
      fail(
          ErrorKind::unsupported,
          "fuse",
          "'{}' has a scale for the whole matrix, which is not quantized "
          "again; write dense weights with --dequantize, or give --bits",
          tensor.name);
    }
  }
  auto config = std::make_shared<Json>(source_->config());
  if (options_.dequantize) {
    config->erase("quantization");
    config->erase("quantization_config");
  }
  config_ = std::move(config);
}

const Json& FusedCheckpoint::config() const {
  return *config_;
}

hub::Weight FusedCheckpoint::load(
    const std::string& name,
    const hub::LoadDtype& dtype) const {
  const auto& before = info_of(source_->tensors(), name).quantization;
  const auto& after = info_of(tensors_, name).quantization;
  hub::Weight weight = source_->load(name, dtype);
  auto change = changes_.find(name);
  bool same = before.has_value() == after.has_value() &&
      (!before || (before->bits == after->bits && before->mode == after->mode));
  if (change == changes_.end() && same) {
    return weight;
  }
  mx::array dense = dense_of(weight, before);
  if (change != changes_.end()) {
    dense = mx::astype(change->second(f32(dense)), dense.dtype());
  }
  return after ? packed(dense, *after)
               : hub::Weight{dense, std::nullopt, std::nullopt, std::nullopt};
}

FuseReport FusedCheckpoint::measure(const hub::LoadDtype& dtype) {
  FuseReport report;
  double change_all = 0;
  double error_all = 0;
  double along_all = 0;
  for (auto it = changes_.begin(); it != changes_.end();) {
    const std::string& name = it->first;
    const auto& before = info_of(source_->tensors(), name).quantization;
    const auto& after = info_of(tensors_, name).quantization;
    mx::array base = f32(dense_of(source_->load(name, dtype), before));
    mx::array wanted = it->second(base);
    mx::array delta = mx::subtract(wanted, base);
    double change = sum_of(mx::square(delta));
    double length = sum_of(mx::square(base));
    if (!std::isfinite(change)) {
      fail(
          ErrorKind::bad_file,
          "fuse",
          "'{}' would have numbers that are not finite",
          name);
    }
    if (change <= kNothing * kNothing * length) {
      it = changes_.erase(it);
      continue;
    }
    mx::array written = f32(dense_of(load(name, dtype), after));
    double error = sum_of(mx::square(mx::subtract(written, wanted)));
    double along = sum_of(mx::multiply(mx::subtract(written, base), delta));
    report.weights.push_back(
        {name,
         after ? after->bits : 0,
         along / change,
         std::sqrt(error / change)});
    change_all += change;
    error_all += error;
    along_all += along;
    ++it;
  }
  if (change_all > 0) {
    report.survives = along_all / change_all;
    report.error = std::sqrt(error_all / change_all);
  }
  return report;
}

}  // namespace mlxx::adapters

#include "mlxx/nn/gated_delta_net.h"

#include <cmath>

#include "mlxx/kernels/gated_delta/gated_delta.h"
#include "mlxx/kernels/rms_norm/rms_norm.h"
#include "mlxx/kernels/swiglu/swiglu.h"

namespace mlxx::nn {
namespace {

constexpr int kConvSlot = 0;
constexpr int kRuleSlot = 1;
// Of the l2 norm of queries and keys, whatever the config says.
constexpr double kQkEps = 1e-6;

// {rows, gate, their norm} -> norm * silu(gate), computed in float32.
std::vector<mx::array> precise_gate(const std::vector<mx::array>& in) {
  mx::array gate = mx::astype(in[1], mx::float32);
  gate = mx::multiply(gate, mx::sigmoid(gate));
  mx::array x = mx::astype(in[2], mx::float32);
  return {mx::astype(mx::multiply(gate, x), in[0].dtype())};
}

}  // namespace

GatedDeltaNet::GatedDeltaNet(const GatedDeltaSpec& spec)
    : spec_(spec),
      conv1d_(
          spec.conv_channels(),
          spec.conv_width,
          /* bias= */ false,
          /* silu= */ true),
      dt_bias_({spec.value_heads}, Parameter::Kind::tensor),
      a_log_({spec.value_heads}, Parameter::Kind::tensor),
      norm_(spec.value_size, {NormSpec::Kind::rms, spec.norm_eps}),
      out_proj_(spec.values_width(), spec.hidden_size, false) {
  auto add = [&](const char* name, int width) {
    in_.emplace_back(name, Linear(spec.hidden_size, width, false));
  };
  if (spec.packed) {
    add("in_proj_qkvz", spec.conv_channels() + spec.values_width());
    add("in_proj_ba", 2 * spec.value_heads);
  } else {
    add("in_proj_qkv", spec.conv_channels());
    add("in_proj_z", spec.values_width());
    add("in_proj_b", spec.value_heads);
    add("in_proj_a", spec.value_heads);
  }
}

GatedDeltaNet::Projected GatedDeltaNet::project(const mx::array& x) const {
  mx::Shape heads{x.shape(0), x.shape(1), spec_.value_heads, spec_.value_size};
  return {
      in_[0].second(x),
      mx::reshape(in_[1].second(x), heads),
      in_[2].second(x),
      in_[3].second(x)};
}

// Each key head's part holds its query, its key, and the values and gates of
// the value heads that share it.
GatedDeltaNet::Projected GatedDeltaNet::project_packed(
    const mx::array& x) const {
  int B = x.shape(0);
  int L = x.shape(1);
  int shared = spec_.value_heads / spec_.key_heads;
  int keys = spec_.key_size;
  int values = shared * spec_.value_size;
  auto qkvz = mx::split(
      mx::reshape(in_[0].second(x), {B, L, spec_.key_heads, -1}),
      {keys, 2 * keys, 2 * keys + values},
      -1);
  auto ba = mx::split(
      mx::reshape(in_[1].second(x), {B, L, spec_.key_heads, -1}),
      2,
      -1);
  auto flat = [&](const mx::array& a) { return mx::reshape(a, {B, L, -1}); };
  return {
      mx::concatenate({flat(qkvz[0]), flat(qkvz[1]), flat(qkvz[2])}, -1),
      mx::reshape(qkvz[3], {B, L, spec_.value_heads, spec_.value_size}),
      flat(ba[0]),
      flat(ba[1])};
}

// x / |x| times `scale` * sqrt(key_size), without a weight.
mx::array GatedDeltaNet::normalize(
    const mx::array& x,
    double scale,
    const mx::array& factors) const {
  auto eps = static_cast<float>(kQkEps / spec_.key_size);
  auto factor = static_cast<float>(scale);
  if (selection_.has_cpu_kernels() && x.dtype() == mx::float32) {
    return kernels::rms_norm(x, factors, eps, selection_);
  }
  return mx::multiply(
      mx::array(factor, x.dtype()),
      mx::fast::rms_norm(x, std::nullopt, eps));
}

mx::array GatedDeltaNet::gated_norm(const mx::array& y, const mx::array& gate)
    const {
  mx::array x = norm_(y);
  if (selection_.has_cpu_kernels() && x.dtype() == mx::float32) {
    return kernels::swiglu(gate, x, selection_);
  }
  static const auto compiled = mx::compile(precise_gate, /* shapeless= */ true);
  return compiled({y, gate, x})[0];
}

mx::array GatedDeltaNet::operator()(
    const mx::array& x,
    const kernels::AttentionMask&,
    cache::LayerCache& cache) const {
  auto& recurrent = cache::cache_as<cache::RecurrentCache>(cache);
  int B = x.shape(0);
  int L = x.shape(1);
  Projected in = spec_.packed ? project_packed(x) : project(x);
  auto parts = mx::split(
      conv1d_(in.qkv, recurrent, kConvSlot),
      {spec_.keys_width(), 2 * spec_.keys_width()},
      -1);
  mx::Shape keys{B, L, spec_.key_heads, spec_.key_size};
  double inverse = std::pow(spec_.key_size, -0.5);
  auto result = kernels::gated_delta(
      {normalize(
           mx::reshape(parts[0], keys),
           inverse * inverse,
           query_factors_),
       normalize(mx::reshape(parts[1], keys), inverse, key_factors_),
       mx::reshape(parts[2], {B, L, spec_.value_heads, spec_.value_size}),
       kernels::gated_delta_decays(
           in.a,
           a_log_.value(),
           dt_bias_.value(),
           selection_),
       mx::sigmoid(in.b),
       recurrent.slot(kRuleSlot),
       recurrent.mask(L)},
      selection_);
  recurrent.set(kRuleSlot, result.state);
  recurrent.advance(L);
  return out_proj_(
      mx::reshape(gated_norm(result.out, in.z), {B, L, spec_.values_width()}));
}

void GatedDeltaNet::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  for (auto& [name, linear] : in_) {
    linear.visit(prefix + "." + name, visitor);
  }
  conv1d_.visit(prefix + ".conv1d", visitor);
  visitor(prefix + ".dt_bias", dt_bias_);
  visitor(prefix + ".A_log", a_log_);
  norm_.visit(prefix + ".norm", visitor);
  out_proj_.visit(prefix + ".out_proj", visitor);
}

void GatedDeltaNet::use(const kernels::Selection& selection) {
  selection_ = selection;
  auto repeated = [&](double value) {
    return mx::full({spec_.key_size}, static_cast<float>(value), mx::float32);
  };
  double inverse = std::pow(spec_.key_size, -0.5);
  query_factors_ = repeated(inverse * inverse);
  key_factors_ = repeated(inverse);
  mx::eval(query_factors_, key_factors_);
  conv1d_.use(selection);
  norm_.use(selection);
}

}  // namespace mlxx::nn

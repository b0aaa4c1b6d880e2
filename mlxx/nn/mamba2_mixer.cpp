#include "mlxx/nn/mamba2_mixer.h"

#include "mlxx/kernels/ssm/ssm.h"
#include "mlxx/kernels/swiglu/swiglu.h"

namespace mlxx::nn {
namespace {

constexpr int kConvSlot = 0;
constexpr int kScanSlot = 1;

}  // namespace

Mamba2Mixer::Mamba2Mixer(const Mamba2Spec& spec)
    : spec_(spec),
      in_proj_(
          spec.hidden_size,
          spec.inner_size() + spec.conv_channels() + spec.heads,
          spec.in_bias),
      conv1d_(
          spec.conv_channels(),
          spec.conv_width,
          spec.conv_bias,
          /* silu= */ true),
      dt_bias_({spec.heads}, Parameter::Kind::tensor),
      a_log_({spec.heads}, Parameter::Kind::tensor),
      d_({spec.heads}, Parameter::Kind::tensor),
      out_proj_(spec.inner_size(), spec.hidden_size, spec.out_bias) {
  if (spec.norm == ScanNorm::groups) {
    group_weight_.emplace(
        mx::Shape{spec.inner_size()},
        Parameter::Kind::tensor);
  } else if (spec.norm != ScanNorm::none) {
    norm_.emplace(
        spec.inner_size(),
        NormSpec{NormSpec::Kind::rms, spec.norm_eps});
  }
}

mx::array Mamba2Mixer::operator()(
    const mx::array& x,
    const kernels::AttentionMask&,
    cache::LayerCache& cache) const {
  auto& recurrent = cache::cache_as<cache::RecurrentCache>(cache);
  int inner = spec_.inner_size();
  auto parts =
      mx::split(in_proj_(x), {inner, inner + spec_.conv_channels()}, -1);
  mx::array convolved = conv1d_(parts[1], recurrent, kConvSlot);
  mx::array y = scan(convolved, parts[2], recurrent);
  recurrent.advance(x.shape(1));
  return out_proj_(gated(y, parts[0]));
}

mx::array Mamba2Mixer::scan(
    const mx::array& convolved,
    const mx::array& dt,
    cache::RecurrentCache& cache) const {
  int B = convolved.shape(0);
  int L = convolved.shape(1);
  int inner = spec_.inner_size();
  int group = spec_.groups * spec_.state_size;
  auto parts = mx::split(convolved, {inner, inner + group}, -1);
  mx::Shape grouped{B, L, spec_.groups, spec_.state_size};
  mx::array d = d_.value();
  if (spec_.round_skip) {
    d = mx::astype(d, convolved.dtype());
  }
  auto result = kernels::ssm_scan(
      {mx::reshape(parts[0], {B, L, spec_.heads, spec_.head_size}),
       a_log_.value(),
       mx::reshape(parts[1], grouped),
       mx::reshape(parts[2], grouped),
       d,
       dt,
       dt_bias_.value(),
       spec_.dt_lowest,
       spec_.dt_highest,
       cache.slot(kScanSlot),
       cache.mask(L),
       std::nullopt},
      selection_);
  cache.set(kScanSlot, result.state);
  return mx::reshape(result.out, {B, L, inner});
}

mx::array Mamba2Mixer::gated(const mx::array& y, const mx::array& gate) const {
  switch (spec_.norm) {
    case ScanNorm::none:
      return kernels::swiglu(gate, y, selection_);
    case ScanNorm::after_gate:
      return (*norm_)(kernels::swiglu(gate, y, selection_));
    case ScanNorm::before_gate:
      return kernels::swiglu(gate, (*norm_)(y), selection_);
    case ScanNorm::groups:
      break;
  }
  int size = spec_.inner_size() / spec_.groups;
  mx::array x = mx::unflatten(
      kernels::swiglu(gate, y, selection_),
      -1,
      {spec_.groups, size});
  x = mx::fast::rms_norm(x, std::nullopt, spec_.norm_eps);
  return mx::multiply(group_weight_->value(), mx::flatten(x, -2, -1));
}

void Mamba2Mixer::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  in_proj_.visit(prefix + ".in_proj", visitor);
  conv1d_.visit(prefix + ".conv1d", visitor);
  visitor(prefix + ".dt_bias", dt_bias_);
  visitor(prefix + ".A_log", a_log_);
  visitor(prefix + ".D", d_);
  if (norm_) {
    norm_->visit(prefix + ".norm", visitor);
  }
  if (group_weight_) {
    visitor(prefix + ".norm.weight", *group_weight_);
  }
  out_proj_.visit(prefix + ".out_proj", visitor);
}

void Mamba2Mixer::use(const kernels::Selection& selection) {
  selection_ = selection;
  conv1d_.use(selection);
  if (norm_) {
    norm_->use(selection);
  }
}

}  // namespace mlxx::nn

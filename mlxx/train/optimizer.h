#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/core/mlx.h"

namespace mlxx::train {

using NamedArrays = std::vector<std::pair<std::string, mx::array>>;

// The numbers of all methods, each used by those that its line names. Absent:
// the method's own default, that of mlx.optimizers.
struct OptimizerOptions {
  std::string name = "adamw";  // adamw, adam, sgd, lion, adafactor, muon
  std::optional<std::array<double, 2>> betas = {};  // adam, adamw, lion
  std::optional<double> eps = {};                   // adam, adamw
  bool bias_correction = false;                     // adam, adamw
  std::optional<double> weight_decay = {};          // all but adam
  std::optional<double> momentum = {};              // sgd, muon
  std::optional<bool> nesterov = {};                // sgd, muon
  double dampening = 0;                             // sgd
  int ns_steps = 5;                                 // muon
  // adafactor
  std::array<double, 2> factor_eps = {1e-30, 1e-3};
  double clip_threshold = 1;
  double decay_rate = -0.8;
  std::optional<double> beta_1 = {};
  bool scale_parameter = true;
  bool relative_step = true;  // the learning rate is not used
  bool warmup_init = false;

  bool operator==(const OptimizerOptions&) const = default;
};

// Of an object with mlx.optimizers' argument names; one that the method does
// not take, or a value out of range, is invalid_request naming it.
OptimizerOptions optimizer_options(
    const std::string& name,
    const Json& arguments);

// The numbers of an update that all parameters share.
struct UpdateStep {
  mx::array rate;     // float32 scalar
  uint64_t step = 0;  // counted from 1
};

// How a method changes one parameter; the operations are those of
// mlx.optimizers in their order, so that results have the same bits.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // Named arrays that are kept for a parameter, as they are at the start.
  virtual NamedArrays make_state(const mx::array& parameter) const = 0;
  // The new parameter; replaces `state`. All of the parameter's dtype.
  virtual mx::array apply(
      const mx::array& gradient,
      const mx::array& parameter,
      NamedArrays& state,
      const UpdateStep& step) const = 0;
  // Whether each number's update depends on its own gradient and state alone.
  virtual bool takes_numbers_apart() const {
    return false;
  }
};

class JoinedUpdate;

std::unique_ptr<UpdateRule> make_adam_rule(const OptimizerOptions& options);
std::unique_ptr<UpdateRule> make_sgd_rule(const OptimizerOptions& options);
std::unique_ptr<UpdateRule> make_lion_rule(const OptimizerOptions& options);
std::unique_ptr<UpdateRule> make_adafactor_rule(
    const OptimizerOptions& options);
std::unique_ptr<UpdateRule> make_muon_rule(const OptimizerOptions& options);

// A method and what it keeps of every parameter. Parameters that are not
// float32 have a float32 master copy: it is what changes, and the parameter is
// it rounded (arXiv 1710.03740).
class Optimizer {
 public:
  // `ratios`: what the learning rate of each parameter is multiplied with
  // (LoRA+, arXiv 2402.12354); empty: 1 for all. invalid_request for options
  // that make no sense.
  Optimizer(
      const OptimizerOptions& options,
      std::vector<std::string> names,
      const std::vector<mx::array>& parameters,
      std::vector<double> ratios = {});
  Optimizer(Optimizer&&) noexcept;
  Optimizer& operator=(Optimizer&&) noexcept;
  ~Optimizer();

  // Whether float32 parameters of one rate are updated side by side, with the
  // same bits (joined_update.h); on a GPU they are unless this says no.
  void join(bool joins) {
    joins_ = joins;
  }

  // The new parameters, lazy. One gradient a parameter, of its shape.
  std::vector<mx::array> update(
      const std::vector<mx::array>& gradients,
      const std::vector<mx::array>& parameters,
      const mx::array& rate);

  int64_t updates() const {
    return updates_;
  }
  // All that is kept, under "<parameter>/<what>" ("model.norm.weight/m").
  NamedArrays state() const;
  // What state() gave, after that many updates. bad_file for other names,
  // shapes or dtypes; then nothing has changed.
  void set_state(const NamedArrays& state, int64_t updates);

 private:
  // Indices of what is updated side by side, by ratio.
  std::map<double, std::vector<size_t>> joined_indices(
      const std::vector<mx::array>& gradients,
      const std::vector<mx::array>& parameters) const;

  std::unique_ptr<UpdateRule> rule_;
  std::vector<std::string> names_;
  std::vector<double> ratios_;
  std::vector<NamedArrays> states_;                // of each parameter
  std::vector<std::optional<mx::array>> masters_;  // float32
  std::map<double, JoinedUpdate> rows_;            // by ratio
  bool joins_;
  int64_t updates_ = 0;
};

// The square root of the sum of all squares, float32 scalar, as
// mlx.optimizers.clip_grad_norm sums them; on a GPU float32 ones as one row.
mx::array gradient_norm(const std::vector<mx::array>& gradients);

// The gradients, made smaller in one proportion if `norm` is above `most`.
std::vector<mx::array> clip_gradients(
    const std::vector<mx::array>& gradients,
    const mx::array& norm,
    double most);

}  // namespace mlxx::train

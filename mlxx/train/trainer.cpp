#include "mlxx/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "mlxx/base/error.h"
#include "mlxx/core/host_values.h"
#include "mlxx/core/memory.h"
#include "mlxx/train/faulty_samples.h"

namespace mlxx::train {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double number_of(const mx::array& value) {
  return item_of<float>(value, "train");
}

// Whether a multiple of `every` was passed between the two.
bool is_due(int64_t every, int64_t before, int64_t after) {
  return every > 0 && before / every != after / every;
}

std::vector<double> ratios_of(const Trainable& trainable) {
  std::vector<double> ratios;
  for (size_t i = 0; i < trainable.names().size(); ++i) {
    ratios.push_back(trainable.learning_rate_ratio(i));
  }
  return ratios;
}

void add_to(std::vector<mx::array>& sums, std::vector<mx::array> added) {
  if (sums.empty()) {
    sums = std::move(added);
    return;
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    sums[i] = mx::add(added[i], sums[i]);
  }
}

}  // namespace

Trainer::Trainer(
    const Parts& parts,
    TrainOptions options,
    const CheckpointFolder& checkpoints,
    bool resume)
    : parts_(parts),
      options_(std::move(options)),
      checkpoints_(checkpoints),
      objective_(options_.objective),
      rate_(options_.schedule),
      optimizer_(
          options_.optimizer,
          parts.trainable->names(),
          parts.trainable->values(),
          ratios_of(*parts.trainable)) {
  check_options();
  if (!resume) {
    return;
  }
  std::vector<std::string> damaged;
  const auto state = checkpoints_.newest(damaged);
  for (const auto& what : damaged) {
    notes_.push_back("passed over a checkpoint: " + what);
  }
  if (state) {
    restore(*state);
  } else {
    notes_.emplace_back("there is no checkpoint to go on from, beginning anew");
  }
}

void Trainer::check_options() const {
  const auto require = [](bool good, const char* name, auto value) {
    if (!good) {
      fail(ErrorKind::invalid_request, name, "cannot be {}", value);
    }
  };
  const auto& o = options_;
  require(o.iterations >= 1, "--iters", o.iterations);
  require(o.accumulation >= 1, "--grad-accumulation-steps", o.accumulation);
  require(std::isfinite(o.clip) && o.clip >= 0, "--grad-clip", o.clip);
  require(o.report_every >= 1, "--steps-per-report", o.report_every);
  require(o.validate_every >= 1, "--steps-per-eval", o.validate_every);
  require(
      o.validation_batches >= 0 || o.validation_batches == -1,
      "--val-batches",
      o.validation_batches);
  require(o.save_every >= 1, "--save-every", o.save_every);
  require(o.patience >= 0, "--patience", o.patience);
}

void Trainer::restore(const TrainingState& state) {
  require_same_options(state.options, options_.fingerprint());
  for (auto& note :
       environment_changes(state.environment, options_.environment)) {
    notes_.push_back(std::move(note));
  }
  const auto& names = parts_.trainable->names();
  const auto& values = parts_.trainable->values();
  std::map<std::string, mx::array> saved(
      state.weights.begin(),
      state.weights.end());
  std::vector<mx::array> restored;
  for (size_t i = 0; i < names.size(); ++i) {
    auto found = saved.find(names[i]);
    if (found == saved.end() || saved.size() != names.size() ||
        found->second.shape() != values[i].shape() ||
        found->second.dtype() != values[i].dtype()) {
      fail(
          ErrorKind::bad_file,
          checkpoints_.path().string(),
          "the checkpoint's \"{}\" is missing or of another shape",
          names[i]);
    }
    restored.push_back(found->second);
  }
  optimizer_.set_state(state.optimizer, state.progress.updates);
  parts_.trainable->set_values(std::move(restored));
  progress_ = state.progress;
  saved_iteration_ = progress_.iteration;
}

TrainEnd Trainer::run(TrainObserver& observer) {
  observer_ = &observer;
  if (progress_.iteration < options_.iterations && !progress_.stopped_early) {
    rehearse();
    if (progress_.iteration == 0) {
      validate();
    }
  }
  while (progress_.iteration < options_.iterations &&
         !progress_.stopped_early) {
    if (!step()) {
      save();
      return TrainEnd::cancelled;
    }
  }
  save();
  return progress_.stopped_early ? TrainEnd::stopped_early : TrainEnd::finished;
}

// The largest batch first, so that what does not fit fails now and not after
// hours, and later steps find their buffers.
void Trainer::rehearse() const {
  const int64_t index = parts_.data->largest_batch();
  Micro micro{parts_.data->batch(index), index, 0};
  micro.count = objective_.count(micro.batch);
  if (micro.count == 0) {
    return;
  }
  observer_->on_rehearsal(
      static_cast<int64_t>(micro.batch.rows) * micro.batch.length);
  parts_.trainable->set_training(true);
  parts_.trainable->begin_step(options_.seed, index);
  auto result =
      parts_.differentiator->apply(micro.batch, loss_of(micro, micro.count));
  mx::eval(result.gradients);
}

ScoreLoss Trainer::loss_of(const Micro& micro, int64_t whole) const {
  std::optional<mx::array> reference;
  if (options_.objective.method == Method::dpo) {
    reference = parts_.reference->of(micro.batch);
  }
  return objective_.loss(micro.batch, whole, reference);
}

std::vector<Trainer::Micro> Trainer::next_batches() {
  std::vector<Micro> micros;
  const int64_t end = std::min(
      progress_.iteration + options_.accumulation,
      options_.iterations);
  for (int64_t index = progress_.iteration; index < end; ++index) {
    Micro micro{parts_.data->batch(index), index, 0};
    micro.count = objective_.count(micro.batch);
    micros.push_back(std::move(micro));
  }
  return micros;
}

// False if it was cancelled, and nothing has changed.
bool Trainer::step() {
  const auto start = Clock::now();
  const int64_t before = progress_.iteration;
  const auto micros = next_batches();
  StepInfo info;
  info.iterations = options_.iterations;
  if (!apply(micros, info)) {
    return false;
  }
  progress_.iteration += static_cast<int64_t>(micros.size());
  for (const auto& micro : micros) {
    progress_.skipped_batches += micro.count == 0 ? 1 : 0;
  }
  if (mx::get_cache_memory() > options_.cache_bytes) {
    mlxx::clear_cache();
  }
  info.iteration = progress_.iteration;
  info.seconds = seconds_since(start);
  end_of_step(before, info);
  return true;
}

bool Trainer::apply(const std::vector<Micro>& micros, StepInfo& info) {
  int64_t whole = 0;
  for (const auto& micro : micros) {
    whole += micro.count;
  }
  if (whole == 0) {
    return true;
  }
  auto& trainable = *parts_.trainable;
  trainable.set_training(true);
  std::vector<mx::array> gradients;
  std::vector<mx::array> losses;
  std::map<std::string, double> metrics;
  for (const auto& micro : micros) {
    if (parts_.is_cancelled && parts_.is_cancelled()) {
      return false;
    }
    if (micro.count == 0) {
      continue;
    }
    info.tokens += micro.batch.target_count();
    trainable.begin_step(options_.seed, micro.index);
    auto result =
        parts_.differentiator->apply(micro.batch, loss_of(micro, whole));
    add_to(gradients, std::move(result.gradients));
    std::vector<mx::array> wanted = gradients;
    wanted.push_back(result.sums.loss);
    for (const auto& [name, value] : result.sums.metrics) {
      wanted.push_back(value);
    }
    mx::eval(wanted);
    losses.push_back(result.sums.loss);
    info.loss += number_of(result.sums.loss);
    for (const auto& [name, value] : result.sums.metrics) {
      metrics[name] += number_of(value);
    }
  }
  if (!std::isfinite(info.loss)) {
    fail_not_finite(micros, "the loss");
  }
  const mx::array norm = gradient_norm(gradients);
  last_norm_ = number_of(norm);
  if (!std::isfinite(last_norm_)) {
    fail_not_finite(micros, "the gradient");
  }
  if (options_.clip > 0) {
    gradients = clip_gradients(gradients, norm, options_.clip);
  }
  const mx::array rate = rate_.at(progress_.updates);
  auto values = optimizer_.update(gradients, trainable.values(), rate);
  gradients.clear();
  std::vector<mx::array> wanted = values;
  for (auto& [name, array] : optimizer_.state()) {
    wanted.push_back(array);
  }
  mx::eval(wanted);
  trainable.set_values(std::move(values));
  last_rate_ = number_of(rate);

  const auto weight = static_cast<double>(whole);
  ++progress_.updates;
  progress_.loss_sum += info.loss * weight;
  progress_.count_sum += weight;
  for (const auto& [name, value] : metrics) {
    progress_.metric_sums[name] += value * weight;
  }
  progress_.trained_tokens += info.tokens;
  progress_.report_tokens += info.tokens;
  return true;
}

void Trainer::end_of_step(int64_t before, const StepInfo& info) {
  const int64_t now = progress_.iteration;
  const bool last = now >= options_.iterations;
  progress_.report_seconds += info.seconds;
  progress_.report_iterations += now - before;
  observer_->on_step(info);
  if (last || is_due(options_.report_every, before, now)) {
    report();
  }
  if (last || is_due(options_.validate_every, before, now)) {
    validate();
  }
  if (is_due(options_.save_every, before, now)) {
    save();
  }
  if (progress_.updates == 0 && now >= parts_.data->batches_per_epoch()) {
    fail(
        ErrorKind::invalid_request,
        "train",
        "no batch of the data has anything to learn from");
  }
}

void Trainer::report() {
  TrainReport report;
  report.iteration = progress_.iteration;
  const double count = progress_.count_sum;
  if (count > 0) {
    report.loss = progress_.loss_sum / count;
    for (const auto& [name, sum] : progress_.metric_sums) {
      report.metrics[name] = sum / count;
    }
    report.learning_rate = last_rate_;
    report.gradient_norm = last_norm_;
    if (progress_.report_seconds > 0) {
      report.tokens_per_second = static_cast<double>(progress_.report_tokens) /
          progress_.report_seconds;
    }
    if (progress_.report_seconds > 0) {
      report.iterations_per_second =
          static_cast<double>(progress_.report_iterations) /
          progress_.report_seconds;
    }
    report.trained_tokens = progress_.trained_tokens;
    report.skipped_batches = progress_.skipped_batches;
    report.peak_memory = memory_use().peak;
    observer_->on_report(report);
  }
  progress_.loss_sum = 0;
  progress_.count_sum = 0;
  progress_.metric_sums.clear();
  progress_.report_tokens = 0;
  progress_.report_iterations = 0;
  progress_.report_seconds = 0;
}

void Trainer::validate() {
  parts_.trainable->set_training(false);
  if (parts_.validation && options_.validation_batches != 0) {
    Evaluation result = evaluate(
        objective_,
        *parts_.differentiator,
        parts_.validation_reference,
        *parts_.validation,
        options_.validation_batches,
        observer_,
        parts_.is_cancelled);
    // A cut one would be no measure of anything.
    if (result.batches > 0) {
      result.iteration = progress_.iteration;
      result.best = !progress_.best_loss || result.loss < *progress_.best_loss;
      if (result.best) {
        progress_.best_loss = result.loss;
        progress_.best_iteration = progress_.iteration;
        progress_.validations_since_best = 0;
        if (parts_.save_weights && progress_.iteration > 0) {
          parts_.save_weights("best", progress_.iteration);
        }
      } else {
        ++progress_.validations_since_best;
      }
      progress_.stopped_early = options_.patience > 0 &&
          progress_.validations_since_best >= options_.patience;
      observer_->on_validation(result);
    }
  }
  if (parts_.on_validated) {
    parts_.on_validated(progress_.iteration);
  }
  parts_.trainable->set_training(true);
}

void Trainer::save() {
  if (saved_iteration_ == progress_.iteration) {
    return;
  }
  TrainingState state;
  const auto& names = parts_.trainable->names();
  const auto& values = parts_.trainable->values();
  for (size_t i = 0; i < names.size(); ++i) {
    state.weights.emplace_back(names[i], values[i]);
  }
  state.optimizer = optimizer_.state();
  state.progress = progress_;
  state.options = options_.fingerprint();
  state.environment = options_.environment;
  const auto folder = checkpoints_.save(state, options_.keep_checkpoints);
  if (parts_.save_weights) {
    parts_.save_weights("", progress_.iteration);
  }
  saved_iteration_ = progress_.iteration;
  observer_->on_checkpoint(folder);
}

void Trainer::fail_not_finite(
    const std::vector<Micro>& micros,
    const char* what) {
  save();
  std::string samples;
  for (const auto& micro : micros) {
    if (micro.count > 0 && samples.empty()) {
      parts_.trainable->begin_step(options_.seed, micro.index);
      samples = faulty_samples(
          *parts_.differentiator,
          micro.batch,
          loss_of(micro, micro.count),
          [&](int64_t sample) { return parts_.data->place(sample); });
    }
  }
  fail(
      ErrorKind::internal,
      "train",
      "{} of iteration {} is no finite number, found at {}; the weights before "
      "it are kept. A lower learning rate or --grad-clip may help",
      what,
      progress_.iteration + 1,
      samples.empty() ? "no single sample" : samples);
}

}  // namespace mlxx::train

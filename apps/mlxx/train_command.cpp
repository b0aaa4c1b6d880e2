#include <cmath>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/generate_report.h"
#include "apps/mlxx/interrupt.h"
#include "apps/mlxx/serve_options.h"
#include "apps/mlxx/train_options.h"
#include "apps/mlxx/train_progress.h"
#include "apps/mlxx/train_run.h"
#include "apps/mlxx/trained_model.h"
#include "mlxx/base/atomic_file.h"
#include "mlxx/base/error.h"
#include "mlxx/core/gpu_queue.h"
#include "mlxx/data/batch_text.h"
#include "mlxx/train/reference_scores.h"
#include "mlxx/train/save_trained.h"

namespace mlxx::apps {

namespace fs = std::filesystem;

namespace {

constexpr const char* kCheckpoints = "checkpoints";
constexpr const char* kBest = "best";  // what the trainer calls it

train::DifferentiateOptions differentiate_options(
    const TrainCommandOptions& options) {
  train::DifferentiateOptions wanted;
  const std::string recompute = options.grad_checkpoint
      ? "checkpoint"
      : options.recompute.value_or("auto");
  if (recompute == "none") {
    wanted.recompute = train::Recompute::none;
  } else if (recompute == "light") {
    wanted.recompute = train::Recompute::light;
  } else if (recompute == "checkpoint") {
    wanted.recompute = train::Recompute::checkpoint;
  } else if (recompute == "segments") {
    wanted.recompute = train::Recompute::segments;
    wanted.segment_layers = options.segment_layers;
  }
  if (!options.memory_budget.empty()) {
    wanted.memory_limit = parse_bytes(options.memory_budget, "--memory-budget");
  }
  return wanted;
}

// Another run's checkpoints are not thrown away by a typing error.
void require_free(const fs::path& folder, const TrainCommandOptions& options) {
  std::error_code ignored;
  if (options.resume || options.overwrite ||
      fs::is_empty(folder / kCheckpoints, ignored) || ignored) {
    return;
  }
  fail(
      ErrorKind::invalid_request,
      "--adapter-path",
      "{} holds checkpoints of a run: --resume goes on with it, --overwrite "
      "begins anew",
      folder.string());
}

std::string data_line(const char* name, const data::TrainingData& data) {
  const auto summary = data.summary();
  std::string text = fmt::format(
      "{}: {} {}, {} tokens, {} of them to predict, the longest {}, {} batches",
      name,
      summary.samples,
      summary.kind,
      summary.tokens,
      summary.target_tokens,
      summary.longest,
      data.batches_per_epoch());
  if (summary.cut > 0) {
    text += fmt::format(", {} cut", summary.cut);
  }
  if (summary.skipped > 0) {
    text += fmt::format(
        ", {} without anything to predict left out, the first {}",
        summary.skipped,
        summary.first_skipped);
  }
  return text;
}

int64_t parameters_of(const train::Trainable& trainable) {
  int64_t count = 0;
  for (const auto& value : trainable.values()) {
    count += static_cast<int64_t>(value.size());
  }
  return count;
}

// One training run, once model and data are there.
class TrainRun {
 public:
  TrainRun(
      const TrainCommandOptions& options,
      TrainMaterial& material,
      const InterruptScope& interrupt)
      : options_(options),
        material_(material),
        interrupt_(interrupt),
        folder_(options.adapter_path),
        trained_(make_trained_model(options, material.pipeline)),
        differentiator_(train::make_differentiator(
            *material.pipeline.model,
            trained_->trainable(),
            differentiate_options(options))),
        objective_(options.loop.objective) {}

  void describe() const {
    const auto parameters = parameters_of(trained_->trainable());
    print(data_line("training", *material_.training) + "\n");
    if (material_.validation) {
      print(data_line("validation", *material_.validation) + "\n");
    }
    print(fmt::format(
        "{} trained: {} of {} parameters ({:.3f} %), recomputed: {}\n",
        trained_->description(),
        parameters,
        material_.pipeline.model->summary().parameters,
        100.0 * static_cast<double>(parameters) /
            static_cast<double>(material_.pipeline.model->summary().parameters),
        differentiator_->description()));
  }

  int dry_run() const {
    describe();
    const auto& data = *material_.training;
    const auto largest = data.batch(data.largest_batch());
    const auto memory = differentiator_->memory(largest, bytes_of_optimizer());
    print(fmt::format(
        "largest batch: {} rows of {} tokens\n"
        "memory: {} (weights {}, trained {}, optimizer {}, activations {})"
        "\n\nfirst batch:\n{}",
        largest.rows,
        largest.length,
        format_bytes(memory.total()),
        format_bytes(memory.weights),
        format_bytes(memory.trained),
        format_bytes(memory.optimizer),
        format_bytes(memory.activations),
        data::batch_as_text(data.batch(0), *material_.pipeline.tokenizer)));
    return kExitSuccess;
  }

  int run() {
    describe();
    train::CheckpointFolder checkpoints(folder_ / kCheckpoints);
    if (options_.overwrite) {
      checkpoints.clear();
      std::error_code ignored;
      fs::remove_all(folder_ / kBest, ignored);
      train::remove_numbered(folder_);
    }
    auto loop = options_.loop;
    loop.iterations = iterations_of(options_, *material_.training);
    loop.identity = train_identity(options_, material_);
    loop.environment = train_environment(options_);
    make_references(loop);

    train::Trainer::Parts parts;
    parts.trainable = &trained_->trainable();
    parts.differentiator = differentiator_.get();
    parts.data = material_.training.get();
    parts.validation = material_.validation.get();
    parts.reference = reference_.get();
    parts.validation_reference = validation_reference_.get();
    parts.save_weights = [&](const std::string& which, int64_t iteration) {
      trained_->save(which.empty() ? folder_ : folder_ / which);
      if (which.empty()) {
        const int usual =
            options_.is_full() ? options_.loop.keep_checkpoints : -1;
        train::save_numbered(
            folder_,
            iteration,
            options_.keep_adapters.value_or(usual));
      }
    };
    parts.is_cancelled = [&] { return interrupt_.is_interrupted(); };
    TrainProgress* progress_of_run = nullptr;
    parts.on_validated = [&](int64_t iteration) {
      answer_samples(iteration, *progress_of_run);
    };
    train::Trainer trainer(parts, loop, checkpoints, options_.resume);
    const int64_t from = trainer.progress().iteration;
    // Cut where the run is taken up.
    train::MetricsFile metrics(
        folder_ / "metrics.jsonl",
        options_.resume ? from : -1);
    TrainProgress progress(metrics, loop.iterations);
    progress_of_run = &progress;
    for (const auto& note : trainer.notes()) {
      progress.on_note(note);
    }
    if (from > 0) {
      progress.say(
          from < loop.iterations && !trainer.progress().stopped_early
              ? fmt::format("going on after iteration {}", from)
              : fmt::format(
                    "nothing is left to do after iteration {} of {}",
                    from,
                    loop.iterations));
    }
    const auto end = trainer.run(progress);
    if (options_.plot) {
      write_plot(metrics);
    }
    return finish(end, trainer, progress);
  }

 private:
  size_t bytes_of_optimizer() const {
    const auto& trainable = trained_->trainable();
    const train::Optimizer optimizer(
        options_.loop.optimizer,
        trainable.names(),
        trainable.values());
    size_t bytes = 0;
    for (const auto& [name, array] : optimizer.state()) {
      bytes += array.nbytes();
    }
    return bytes;
  }

  void make_references(const train::TrainOptions& loop) {
    if (loop.objective.method != train::Method::dpo) {
      return;
    }
    if (!options_.precompute_reference && !options_.is_full()) {
      reference_ = train::live_reference(objective_, *differentiator_);
      validation_reference_ =
          train::live_reference(objective_, *differentiator_);
      return;
    }
    std::string identity;
    for (const auto& [name, value] : loop.identity) {
      identity += name + "=" + value + "\n";
    }
    const auto kept = [&](const data::TrainingData& data, const char* name) {
      return train::kept_reference(
          objective_,
          *differentiator_,
          data,
          folder_ / name,
          identity,
          options_.is_full(),
          [&](int64_t, int64_t) {
            if (interrupt_.is_interrupted()) {
              fail(ErrorKind::cancelled, "train", "interrupted");
            }
          });
    };
    trained_->trainable().set_training(false);
    reference_ = kept(*material_.training, "reference.safetensors");
    if (material_.validation) {
      validation_reference_ =
          kept(*material_.validation, "validation_reference.safetensors");
    }
  }

  void answer_samples(int64_t iteration, TrainProgress& progress) {
    for (const auto& prompt : options_.samples) {
      std::string answer;
      trained_->trainable().with({}, {}, [&] {
        answer = sample_answer(
            material_.pipeline,
            prompt,
            options_.sample_tokens,
            [&] { return interrupt_.is_interrupted(); });
      });
      progress.on_sample(iteration, prompt, answer);
    }
  }

  void write_plot(const train::MetricsFile& metrics) const {
    AtomicFile file(folder_ / "loss.svg");
    file.write(std::span<const char>(train::loss_plot(metrics.lines())));
    file.commit();
  }

  int finish(
      train::TrainEnd end,
      const train::Trainer& trainer,
      TrainProgress& progress) {
    const auto& state = trainer.progress();
    if (end == train::TrainEnd::cancelled) {
      progress.say(fmt::format(
          "stopped after iteration {}; --resume goes on",
          state.iteration));
      return kExitInterrupted;
    }
    if (end == train::TrainEnd::stopped_early) {
      progress.say(fmt::format(
          "ended early: no better validation for {} times",
          state.validations_since_best));
    }
    if (state.best_loss) {
      progress.say(fmt::format(
          "best validation loss {:.4f}, after iteration {}",
          *state.best_loss,
          state.best_iteration));
    }
    if (material_.test) {
      test(progress);
    }
    progress.say(fmt::format("trained weights are in {}", folder_.string()));
    return kExitSuccess;
  }

  void test(TrainProgress& progress) {
    std::unique_ptr<train::ReferenceScores> reference;
    if (options_.loop.objective.method == train::Method::dpo) {
      reference = train::live_reference(objective_, *differentiator_);
    }
    trained_->trainable().set_training(false);
    const auto result = train::evaluate(
        objective_,
        *differentiator_,
        reference.get(),
        *material_.test,
        options_.test_batches,
        &progress,
        [&] { return interrupt_.is_interrupted(); });
    progress.say(fmt::format(
        "test loss {:.4f}, perplexity {:.4f}",
        result.loss,
        std::exp(result.loss)));
  }

  const TrainCommandOptions& options_;
  TrainMaterial& material_;
  const InterruptScope& interrupt_;
  fs::path folder_;
  std::unique_ptr<TrainedModel> trained_;
  std::unique_ptr<train::Differentiator> differentiator_;
  train::Objective objective_;
  std::unique_ptr<train::ReferenceScores> reference_;
  std::unique_ptr<train::ReferenceScores> validation_reference_;
};

// What the verb's options are bound to: the file of --config sets them too.
int run(TrainCommandOptions& options, CLI::App& verb) {
  // Its operations are long, and what they leave is large.
  constexpr int kOperations = 10;
  give_gpu_few_operations(kOperations);
  finish_train_options(verb, options);
  require_free(options.adapter_path, options);
  InterruptScope interrupt;
  TrainMaterial material = load_train_material(options, interrupt);
  TrainRun train_run(options, material, interrupt);
  return options.dry_run ? train_run.dry_run() : train_run.run();
}

}  // namespace

void add_train_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<TrainCommandOptions>();
  CLI::App* verb = app.add_subcommand(
      "train",
      "Teach a model from examples, with adapters or all of it");
  add_train_options(*verb, *options);
  verb->footer(
      "Examples:\n"
      "  mlxx train --data folder --iters 200 --learning-rate 1e-4\n"
      "  mlxx train --data folder --dry-run\n"
      "  mlxx train --data folder --adapter-path adapters --resume");
  on_run(verb, context, [options, verb] { return run(*options, *verb); });
}

}  // namespace mlxx::apps

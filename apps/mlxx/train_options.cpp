#include "apps/mlxx/train_options.h"

#include <algorithm>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/generate_options.h"
#include "apps/mlxx/serve_options.h"
#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/mapped_file.h"

namespace mlxx::apps {

namespace {

void add_data_options(CLI::App& verb, TrainCommandOptions& options) {
  const char* group = "Data";
  verb.add_option(
          "--data",
          options.data,
          "A folder with train.jsonl and, if there are any, valid.jsonl and "
          "test.jsonl; or one file to train on")
      ->type_name("PATH")
      ->group(group);
  verb.add_option(
          "--batch-size",
          options.batch_size,
          "Samples, or pairs, of a batch")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--max-seq-length",
          options.max_seq_length,
          "Tokens of a sample; the rest is cut off")
      ->type_name("N")
      ->check(CLI::Range(2, 1 << 26))
      ->capture_default_str()
      ->group(group);
  verb.add_flag(
          "--mask-prompt",
          options.mask_prompt,
          "Learn the answers alone, not the prompts")
      ->group(group);
  verb.add_flag(
          "--pack",
          options.pack,
          "Put samples of any lengths side by side into one row without "
          "padding")
      ->group(group);
  verb.add_flag(
          "--separate-prompts",
          options.separate_prompts,
          "With --pack: compute the prompt of a pair for each of its answers")
      ->group(group);
  verb.add_option(
          "--chat-template",
          options.chat_template,
          "A file with a chat template in place of the model's, or its text")
      ->type_name("FILE")
      ->group(group);
  verb.add_flag("--test", options.test, "Say the loss on test.jsonl in the end")
      ->group(group);
  verb.add_option(
          "--test-batches",
          options.test_batches,
          "Batches of the test; -1: all")
      ->type_name("N")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40))
      ->capture_default_str()
      ->group(group);
}

void add_method_options(CLI::App& verb, TrainCommandOptions& options) {
  const char* group = "Method";
  verb.add_option(
          "--method",
          options.method,
          "sft: learn texts; dpo, orpo: prefer chosen answers to rejected ones")
      ->check(CLI::IsMember({"sft", "dpo", "orpo"}))
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--beta",
          options.beta,
          "Of DPO: how strongly to stay near the model as it was")
      ->type_name("X")
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--orpo-lambda",
          options.orpo_lambda,
          "Of ORPO: the weight of the preference")
      ->type_name("X")
      ->capture_default_str()
      ->group(group);
  verb.add_flag(
          "--precompute-reference",
          options.precompute_reference,
          "Of DPO: ask the model as it was once, before training; always with "
          "--full")
      ->group(group);
  verb.add_option(
          "--fine-tune-type",
          options.fine_tune_type,
          "What is trained: adapters of low rank, or all weights")
      ->check(CLI::IsMember({"lora", "dora", "full"}))
      ->capture_default_str()
      ->group(group);
  verb.add_flag("--full", options.full, "The same as --fine-tune-type full")
      ->group(group);
}

void add_adapter_options(CLI::App& verb, TrainCommandOptions& options) {
  const char* group = "Adapters";
  verb.add_option(
          "--num-layers",
          options.num_layers,
          "Train the last N decoder layers; -1: all. 16 if it is not given")
      ->type_name("N")
      ->check(CLI::Range(-1, 1 << 20))
      ->group(group);
  verb.add_option("--lora-rank", options.lora.rank, "Rank of the change")
      ->type_name("N")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--lora-scale",
          options.lora.scale,
          "What the change is multiplied with; 20 if it is not given")
      ->type_name("X")
      ->group(group);
  verb.add_option(
          "--lora-alpha",
          options.lora.alpha,
          "The scale as alpha / rank")
      ->type_name("X")
      ->group(group);
  verb.add_flag(
          "--rslora",
          options.lora.rank_stabilized,
          "With --lora-alpha: the scale as alpha / sqrt(rank)")
      ->group(group);
  verb.add_option(
          "--lora-dropout",
          options.lora.dropout,
          "Share of the inputs that are left out at random")
      ->type_name("X")
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--lora-keys",
          options.lora.keys,
          "Layers to train, as in self_attn.q_proj; all linear ones if it is "
          "not given")
      ->type_name("NAME,...")
      ->delimiter(',')
      ->group(group);
  verb.add_option(
          "--lora-plus-ratio",
          options.lora.learning_rate_ratio,
          "LoRA+: how much faster B learns than A")
      ->type_name("X")
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--rank-policy",
          options.rank_policy,
          "Ranks by the bits of the weights, or by what quantizing cost")
      ->check(CLI::IsMember({"constant", "by-bits", "by-kl"}))
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--sensitivities",
          options.sensitivities,
          "For by-kl: a JSON object of layers and their KL divergence")
      ->type_name("FILE")
      ->group(group);
  verb.add_flag(
          "--peft",
          options.peft,
          "Write the adapters in PEFT's layout too, into a folder peft")
      ->group(group);
  verb.add_option(
          "--resume-adapter-file",
          options.resume_adapter_file,
          "Begin with these adapters, as a new run")
      ->type_name("FILE")
      ->group(group);
}

void add_optimizer_options(CLI::App& verb, TrainCommandOptions& options) {
  const char* group = "Optimizer";
  verb.add_option("--optimizer", options.optimizer, "How weights change")
      ->check(
          CLI::IsMember({"adamw", "adam", "sgd", "lion", "adafactor", "muon"}))
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--optimizer-config",
          options.optimizer_config,
          "Its other arguments as JSON, by the names of mlx.optimizers, as in "
          "{\"weight_decay\": 0.1}")
      ->type_name("JSON")
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--learning-rate",
          options.learning_rate,
          "1e-5 if it is not given")
      ->type_name("X")
      ->group(group);
  verb.add_option(
          "--lr-schedule",
          options.lr_schedule,
          "In place of it, as in {\"name\": \"cosine_decay\", \"arguments\": "
          "[1e-4, 1000], \"warmup\": 50}")
      ->type_name("JSON")
      ->group(group);
  verb.add_option(
          "--warmup",
          options.warmup,
          "Updates in which the learning rate rises from 0")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--grad-clip",
          options.loop.clip,
          "Largest norm of all gradients together; 0: any")
      ->type_name("X")
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--grad-accumulation-steps",
          options.loop.accumulation,
          "Batches of one update")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(group);
  verb.add_option("--seed", options.loop.seed, "Of adapters, order and dropout")
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
}

void add_loop_options(CLI::App& verb, TrainCommandOptions& options) {
  const char* group = "Run";
  const auto count = [&](const char* name, auto& value, const char* text) {
    verb.add_option(name, value, text)
        ->type_name("N")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
        ->capture_default_str()
        ->group(group);
  };
  verb.add_option("--iters", options.iters, "Batches; 1000 if it is not given")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->group(group);
  verb.add_option(
          "--epochs",
          options.epochs,
          "In place of it: how often to go through the data")
      ->type_name("X")
      ->group(group);
  count(
      "--steps-per-report",
      options.loop.report_every,
      "Batches from one report to the next");
  count(
      "--steps-per-eval",
      options.loop.validate_every,
      "Batches from one validation to the next");
  verb.add_option(
          "--val-batches",
          options.loop.validation_batches,
          "Batches of a validation; -1: all")
      ->type_name("N")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40))
      ->capture_default_str()
      ->group(group);
  count(
      "--save-every",
      options.loop.save_every,
      "Batches from one checkpoint to the next");
  verb.add_option(
          "--keep-checkpoints",
          options.loop.keep_checkpoints,
          "How many of the newest stay")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--keep-adapters",
          options.keep_adapters,
          "How many of the newest NNNNNNN_adapters.safetensors stay, one for "
          "each checkpoint; -1: all (the default, but with --full as many as "
          "checkpoints), 0: none are written")
      ->type_name("N")
      ->check(CLI::Range(-1, 1 << 20))
      ->group(group);
  verb.add_option(
          "--patience",
          options.loop.patience,
          "End after N validations without a better one; 0: never")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--sample",
          options.samples,
          "Answer this at each validation; may be repeated")
      ->type_name("PROMPT")
      ->expected(1)
      ->take_all()
      ->group(group);
  verb.add_option(
          "--sample-tokens",
          options.sample_tokens,
          "Tokens of such an answer")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--adapter-path",
          options.adapter_path,
          "The folder that everything is written to")
      ->type_name("DIR")
      ->capture_default_str()
      ->group(group);
  verb.add_flag(
          "--resume",
          options.resume,
          "Go on from the newest checkpoint there, exactly")
      ->group(group);
  verb.add_flag(
          "--overwrite",
          options.overwrite,
          "Begin anew where another run's checkpoints are")
      ->group(group);
  verb.add_flag("--plot", options.plot, "Draw the curves into loss.svg there")
      ->group(group);
  verb.add_flag(
          "--dry-run",
          options.dry_run,
          "Say what memory it will take and show the first batch, without "
          "training")
      ->group(group);
}

void add_memory_options(CLI::App& verb, TrainCommandOptions& options) {
  const char* group = "Memory";
  verb.add_flag(
          "--grad-checkpoint",
          options.grad_checkpoint,
          "Compute each layer again in the backward pass: --recompute "
          "checkpoint")
      ->group(group);
  verb.add_option(
          "--recompute",
          options.recompute,
          "What to compute again to save memory; auto: as it is needed")
      ->check(
          CLI::IsMember({"auto", "none", "light", "checkpoint", "segments"}))
      ->group(group);
  verb.add_option(
          "--segment-layers",
          options.segment_layers,
          "Layers of a segment; 0: chosen")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--memory-budget",
          options.memory_budget,
          "What may be used, as in 12GB: auto computes again what does not "
          "fit, "
          "and on a GPU more is waited for; what the device can give if it is "
          "not given")
      ->type_name("SIZE")
      ->group(group);
  verb.add_option(
          "--clear-cache-threshold",
          options.clear_cache_threshold,
          "Give freed buffers back where they are more; 2GB if it is not given")
      ->type_name("SIZE")
      ->group(group);
}

}  // namespace

bool TrainCommandOptions::is_given(const std::string& option) const {
  return std::find(given.begin(), given.end(), option) != given.end();
}

void add_train_options(CLI::App& verb, TrainCommandOptions& options) {
  verb.add_option(
          "-m,--model",
          options.model,
          "A catalogue name, a folder in Hugging Face layout, a .gguf file, or "
          "org/repo[@rev] that was pulled")
      ->type_name("MODEL")
      ->capture_default_str();
  verb.add_option(
          "-c,--config",
          options.config,
          "A JSON file with options, by mlx-lm's names; the command line goes "
          "first")
      ->type_name("FILE");
  add_data_options(verb, options);
  add_method_options(verb, options);
  add_adapter_options(verb, options);
  add_optimizer_options(verb, options);
  add_loop_options(verb, options);
  add_memory_options(verb, options);
  add_kernel_options(verb, options.kernels);
}

}  // namespace mlxx::apps

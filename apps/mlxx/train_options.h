#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/mlxx/kernel_options.h"
#include "mlxx/hub/resolve.h"
#include "mlxx/train/differentiate.h"
#include "mlxx/train/lora_options.h"
#include "mlxx/train/trainer.h"

namespace CLI {
class App;
}

namespace mlxx::apps {

// What `mlxx train` takes, as it stands on the command line. Names and defaults
// are mlx-lm's where it has them.
struct TrainCommandOptions {
  std::string model = hub::kDefaultModel;
  std::string config;  // a file
  std::string data;    // a folder or a file
  std::string method = "sft";
  std::string fine_tune_type = "lora";
  bool full = false;

  std::string optimizer = "adamw";
  std::string optimizer_config = "{}";  // arguments of mlx.optimizers
  std::optional<double> learning_rate;
  std::string lr_schedule;  // {"name", "arguments", "warmup", "warmup_init"}
  int64_t warmup = 0;
  double beta = 0.1;
  double orpo_lambda = 0.1;
  bool precompute_reference = false;

  std::optional<int> num_layers;
  train::LoraOptions lora;
  std::string rank_policy = "constant";
  std::string sensitivities;
  bool peft = false;

  train::TrainOptions loop;
  std::optional<int64_t> iters;
  std::optional<double> epochs;
  int batch_size = 4;
  int max_seq_length = 2048;
  bool mask_prompt = false;
  bool pack = false;
  bool separate_prompts = false;
  bool test = false;
  int64_t test_batches = 500;

  bool grad_checkpoint = false;
  std::optional<std::string> recompute;
  int segment_layers = 0;
  std::string memory_budget;
  std::string clear_cache_threshold;

  std::string adapter_path = "adapters";
  std::optional<int> keep_adapters;
  bool resume = false;
  bool overwrite = false;
  std::string resume_adapter_file;
  std::vector<std::string> samples;  // prompts
  int sample_tokens = 100;
  bool plot = false;
  bool dry_run = false;
  std::optional<std::string> chat_template;
  KernelOptions kernels;

  bool is_full() const {
    return full || fine_tune_type == "full";
  }
  // On the command line or in the file.
  bool is_given(const std::string& option) const;
  std::vector<std::string> given;
};

void add_train_options(CLI::App& verb, TrainCommandOptions& options);

// Takes over what the file of --config says and the command line doesn't,
// checks options against one another and fills the parsed forms (loop, lora).
// invalid_request names the option, or the file and its key.
void finish_train_options(CLI::App& verb, TrainCommandOptions& options);

}  // namespace mlxx::apps

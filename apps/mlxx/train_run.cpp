#include "apps/mlxx/train_run.h"

#include <algorithm>
#include <cmath>
#include <span>

#include <nlohmann/json.hpp>

#include "apps/mlxx/generate_options.h"
#include "apps/mlxx/model_loading.h"
#include "mlxx/base/error.h"
#include "mlxx/base/sha256.h"
#include "mlxx/core/device.h"
#include "mlxx/core/host_values.h"
#include "mlxx_build_info.h"

namespace mlxx::apps {

namespace fs = std::filesystem;

namespace {

struct DataFiles {
  fs::path train;
  fs::path valid;  // empty: none
  fs::path test;
};

DataFiles data_files(const TrainCommandOptions& options) {
  const fs::path data = options.data;
  DataFiles files;
  if (fs::is_directory(data)) {
    files.train = data / "train.jsonl";
    if (fs::exists(data / "valid.jsonl")) {
      files.valid = data / "valid.jsonl";
    }
    if (fs::exists(data / "test.jsonl")) {
      files.test = data / "test.jsonl";
    }
  } else {
    files.train = data;
  }
  if (!fs::exists(files.train)) {
    fail(
        ErrorKind::not_found,
        "--data",
        "{} is not there",
        files.train.string());
  }
  if (options.test && files.test.empty()) {
    fail(
        ErrorKind::not_found,
        "--test",
        "there is no test.jsonl in {}",
        data.string());
  }
  return files;
}

std::string json_text(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

// Tells models apart without reading all of their weights: names, shapes and
// forms of all tensors and the numbers of the first few small ones.
std::string model_digest(const hub::Checkpoint& checkpoint) {
  constexpr uint64_t kSmall = 1 << 16;
  constexpr int kRead = 8;
  Sha256 digest;
  const auto add = [&](const std::string& text) {
    digest.update(std::as_bytes(std::span(text)));
  };
  add(json_text(checkpoint.config()));
  int read = 0;
  for (const auto& tensor : checkpoint.tensors()) {
    add(tensor.name + "|" + tensor.stored + "|" + json_text(tensor.shape));
    if (!tensor.quantization && tensor.nbytes <= kSmall && read < kRead) {
      ++read;
      const mx::array value =
          mx::astype(checkpoint.load(tensor.name, {}).weight, mx::float32);
      const HostValues<float> numbers(value, "model");
      digest.update(std::as_bytes(numbers.span()));
    }
  }
  return digest.hex();
}

}  // namespace

TrainMaterial load_train_material(
    const TrainCommandOptions& options,
    const InterruptScope& interrupt) {
  const DataFiles files = data_files(options);
  TrainMaterial material;
  material.train_file = files.train;

  AnswerOptions answers;
  answers.model = options.model;
  answers.kernels = options.kernels;
  if (options.chat_template) {
    answers.chat_template = read_chat_template(*options.chat_template);
  }
  material.pipeline = load_for_answers(
      answers,
      interrupt,
      options.is_full() ? Training::weights : Training::adapters);
  const auto& pipeline = material.pipeline;

  data::DataOptions wanted;
  wanted.preference = options.loop.objective.method != train::Method::sft;
  wanted.mask_prompt = options.mask_prompt || wanted.preference;
  wanted.max_length = options.max_seq_length;
  wanted.batch_size = options.batch_size;
  wanted.pack = options.pack;
  wanted.share_prompts = !options.separate_prompts;
  wanted.seed = options.loop.seed;
  wanted.bos_id = pipeline.bos_id;
  wanted.add_bos = pipeline.add_bos;
  wanted.eos_id = pipeline.eos_id;
  wanted.tool_template = pipeline.tool_template.get();
  wanted.chat_template_error = pipeline.chat_template_error;
  wanted.progress = [&](int64_t, int64_t) {
    if (interrupt.is_interrupted()) {
      fail(ErrorKind::cancelled, "data", "interrupted");
    }
  };
  const auto open = [&](const fs::path& file, bool shuffle) {
    wanted.shuffle = shuffle;
    return data::open_training_data(
        file,
        *pipeline.tokenizer,
        pipeline.chat_template.get(),
        wanted);
  };
  material.training = open(files.train, true);
  if (!files.valid.empty() && options.loop.validation_batches != 0) {
    material.validation = open(files.valid, false);
  }
  if (options.test) {
    material.test = open(files.test, false);
  }
  return material;
}

int64_t iterations_of(
    const TrainCommandOptions& options,
    const data::TrainingData& data) {
  if (!options.epochs) {
    return options.loop.iterations;
  }
  const double batches =
      *options.epochs * static_cast<double>(data.batches_per_epoch());
  return std::max<int64_t>(static_cast<int64_t>(std::ceil(batches)), 1);
}

std::map<std::string, std::string> train_identity(
    const TrainCommandOptions& options,
    const TrainMaterial& material) {
  std::map<std::string, std::string> identity;
  const auto add = [&](const char* name, const Json& value) {
    identity[name] = json_text(value);
  };
  const auto or_null = [](const auto& value) {
    return value ? Json(*value) : Json();
  };
  add("the model", model_digest(*material.pipeline.checkpoint));
  add("the training data", sha256_of_file(material.train_file));
  add("--fine-tune-type", options.is_full() ? "full" : options.fine_tune_type);
  add("--batch-size", options.batch_size);
  add("--max-seq-length", options.max_seq_length);
  add("--mask-prompt", options.mask_prompt);
  add("--pack", options.pack);
  add("--separate-prompts", options.separate_prompts);
  add("--chat-template", or_null(options.chat_template));
  add("--num-layers", or_null(options.num_layers));
  add("--precompute-reference", options.precompute_reference);
  if (!options.is_full()) {
    const auto& lora = options.lora;
    add("--lora-rank", lora.rank);
    add("--lora-scale", or_null(lora.scale));
    add("--lora-alpha", or_null(lora.alpha));
    add("--rslora", lora.rank_stabilized);
    add("--lora-dropout", lora.dropout);
    add("--lora-keys", lora.keys);
    add("--lora-plus-ratio", lora.learning_rate_ratio);
    add("--rank-policy", options.rank_policy);
    add("--sensitivities", lora.sensitivities);
  }
  return identity;
}

std::map<std::string, std::string> train_environment(
    const TrainCommandOptions& options) {
  const auto selection = options.kernels.selection();
  const auto device = describe_device();
  std::map<std::string, std::string> environment = {
      {"device",
       fmt::format("{} ({})", to_string(device.backend), device.name)},
      {"mlxx", std::string(kBuildVersion)},
      {"MLX", mx::version()},
      {"MLXX_KERNEL", selection.fallback ? "fallback" : "auto"}};
  if (device.backend != Backend::cpu) {
    environment["--deterministic"] = selection.deterministic ? "on" : "off";
    return environment;
  }
  if (!selection.fallback) {
    environment["MLXX_CPU"] = kernels::to_string(selection.instruction_set);
    environment["--cpu-activations"] =
        kernels::to_string(selection.activations);
  }
  if (selection.threads) {
    environment["MLXX_THREADS"] = std::to_string(selection.threads->size());
  }
  return environment;
}

std::string sample_answer(
    const generate::Pipeline& pipeline,
    const std::string& prompt,
    int max_tokens,
    const std::function<bool()>& is_cancelled) {
  const auto prompt_tokens = pipeline.chat_template
      ? generate::encode_chat_prompt(
            pipeline,
            OrderedJson::array({{{"role", "user"}, {"content", prompt}}}))
      : generate::encode_raw_prompt(pipeline, prompt);
  // Layer by layer, where what is trained has its effect.
  auto cache = pipeline.model->make_cache({.per_layer = true});
  std::vector<int32_t> next = prompt_tokens;
  std::vector<int32_t> answer;
  while (static_cast<int>(answer.size()) < max_tokens && !is_cancelled()) {
    const mx::array tokens(
        next.begin(),
        {1, static_cast<int>(next.size())},
        mx::int32);
    const mx::array best = mx::astype(
        mx::argmax(pipeline.model->forward_last(tokens, cache), -1),
        mx::int32);
    const auto token = item_of<int32_t>(best, "sample");
    if (pipeline.eos_ids.contains(token)) {
      break;
    }
    answer.push_back(token);
    next = {token};
  }
  return pipeline.tokenizer->decode(answer, true);
}

}  // namespace mlxx::apps

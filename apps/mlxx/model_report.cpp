#include "apps/mlxx/model_report.h"

#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/mlxx/generate_report.h"
#include "mlxx/base/error.h"
#include "mlxx/base/utf8.h"
#include "mlxx/core/device.h"
#include "mlxx/embed/encoder.h"
#include "mlxx/hub/resident_form.h"
#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"
#include "mlxx/kernels/select.h"
#include "mlxx/models/registry.h"
#include "mlxx/text/chat_template.h"
#include "mlxx/text/special_tokens.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::apps {

namespace {

// Multimodal configs keep the language model's numbers one level down.
const Json& text_config(const Json& config) {
  auto inner = config.find("text_config");
  return inner != config.end() && inner->is_object() ? *inner : config;
}

void read_config(const Json& config, ModelReport& report) {
  JsonView top(config, "config.json");
  report.model_type = top.string_or("model_type", "");
  report.architectures = top.strings_or_empty("architectures");
  JsonView view(text_config(config), "config.json");
  auto number = [&](const char* key) -> std::optional<int64_t> {
    if (!view.has(key)) {
      return std::nullopt;
    }
    return view.integer(key, 0, std::numeric_limits<int32_t>::max());
  };
  report.layers = number("num_hidden_layers");
  report.hidden_size = number("hidden_size");
  report.intermediate_size = number("intermediate_size");
  report.heads = number("num_attention_heads");
  report.kv_heads = number("num_key_value_heads");
  report.vocab_size = number("vocab_size");
  report.context_length = number("max_position_embeddings");
  report.is_encoder = embed::is_encoder(report.model_type);
  try {
    if (!report.is_encoder) {
      models::find_model(report.model_type);
    }
  } catch (const Error& error) {
    report.unsupported = error.what();
  }
}

// What the model leaves out, beside what the checkpoint already does.
std::vector<hub::DroppedTensor> dropped_tensors(
    const hub::Checkpoint& checkpoint,
    ModelReport& report) {
  if (report.unsupported.empty() && !report.is_encoder) {
    try {
      const auto& info = models::find_model(report.model_type);
      if (auto rewritten = models::rewrite_checkpoint(info, checkpoint)) {
        return rewritten->dropped();
      }
    } catch (const Error& error) {
      report.unsupported = error.what();
    }
  }
  return checkpoint.dropped();
}

void count_tensors(const hub::Checkpoint& checkpoint, ModelReport& report) {
  std::set<std::string> left_out;
  for (const auto& dropped : dropped_tensors(checkpoint, report)) {
    auto& entry = report.left_out[dropped.reason];
    entry.tensors += 1;
    entry.bytes += dropped.info.nbytes;
    left_out.insert(dropped.info.name);
  }
  bool has_head = false;
  for (const auto& tensor : checkpoint.tensors()) {
    if (left_out.contains(tensor.name)) {
      continue;
    }
    auto& type = report.stored[tensor.stored];
    // Unsigned: sizes come from a file, and one of zero excuses any other.
    uint64_t count = 1;
    for (int64_t size : tensor.shape) {
      count *= static_cast<uint64_t>(size);
    }
    type.tensors += 1;
    type.bytes += tensor.nbytes;
    type.parameters += count;
    auto resident = hub::resident_form(tensor, checkpoint.format());
    type.resident_forms.insert(resident.name);
    type.resident_bytes += resident.bytes;
    report.parameters += count;
    has_head = has_head || tensor.name == "lm_head.weight";
  }
  report.tied_embeddings = !has_head;
}

void read_text(const hub::Checkpoint& checkpoint, ModelReport& report) {
  const hub::TextFiles& files = checkpoint.text();
  text::SpecialTokens special;
  try {
    special = text::read_special_tokens(files.tokenizer_config_json);
    int vocab_size = static_cast<int>(
        report.vocab_size.value_or(std::numeric_limits<int32_t>::max()));
    report.eos_ids = text::read_eos_ids(
        checkpoint.config(),
        checkpoint.generation_config(),
        vocab_size);
    auto tokenizer = text::Tokenizer::from_json(files.tokenizer_json);
    report.tokenizer_size = tokenizer->vocab_size();
    if (auto id = tokenizer->token_to_id(special.eos)) {
      report.eos_ids.insert(*id);
    }
  } catch (const Error& error) {
    report.tokenizer_error = error.what();
  }
  for (const auto& [name, source] : files.chat_templates) {
    report.chat_templates.push_back(name);
  }
  const std::string* source =
      text::select_chat_template(files.chat_templates, /*has_tools=*/false);
  if (source) {
    try {
      text::ChatTemplate::compile(*source, special.bos, special.eos);
    } catch (const Error& error) {
      report.chat_template_error = error.what();
    }
  }
}

std::string describe_kernels() {
  auto selection = kernels::select_from_environment();
  if (selection.fallback) {
    return "MLX operations only (MLXX_KERNEL=fallback)";
  }
  if (backend() == Backend::cuda) {
    std::string why;
    return kernels::cuda_plugin(&why)
        ? "CUDA kernels where they cover the model, MLX operations elsewhere"
        : fmt::format("MLX operations on cuda: {}", why);
  }
  if (backend() != Backend::cpu) {
    return fmt::format("MLX operations on {}", to_string(backend()));
  }
  return fmt::format(
      "CPU kernels for {}, MLX operations elsewhere",
      kernels::to_string(selection.instruction_set));
}

std::string or_unknown(const std::optional<int64_t>& number) {
  return number ? fmt::format("{}", *number) : std::string("unknown");
}

// 135 M, 7.24 B.
std::string format_count(uint64_t count) {
  double value = static_cast<double>(count);
  if (count >= 1'000'000'000) {
    return fmt::format("{:.2f} B", value / 1e9);
  }
  if (count >= 1'000'000) {
    return fmt::format("{:.1f} M", value / 1e6);
  }
  return fmt::format("{}", count);
}

OrderedJson number_or_null(const std::optional<int64_t>& number) {
  return number ? OrderedJson(*number) : OrderedJson();
}

OrderedJson text_or_null(const std::string& text) {
  return text.empty() ? OrderedJson() : OrderedJson(text);
}

}  // namespace

ModelReport make_model_report(const hub::Checkpoint& checkpoint) {
  ModelReport report;
  report.path = checkpoint.path().string();
  report.format = checkpoint.format();
  report.file_bytes = checkpoint.file_bytes();
  read_config(checkpoint.config(), report);
  count_tensors(checkpoint, report);
  read_text(checkpoint, report);
  report.kernels = describe_kernels();
  return report;
}

std::string format_model_report(const ModelReport& report) {
  std::string out;
  // Names and templates come from files: one line each, nothing unprintable.
  auto line = [&](const char* name, const std::string& value) {
    out += fmt::format("{:<14}{}\n", name, escape_line(value));
  };
  line("path", report.path);
  line("format", report.format);
  std::string architecture = report.model_type;
  if (!report.architectures.empty()) {
    architecture += fmt::format(" ({})", fmt::join(report.architectures, ", "));
  }
  line("architecture", architecture);
  if (!report.unsupported.empty()) {
    line("cannot run", report.unsupported);
  }
  if (report.is_encoder) {
    line("runs in", "mlxx embed, or mlxx rerank if it has a head for that");
  }
  line(
      "size",
      fmt::format(
          "{}, {} parameters{}",
          format_bytes(report.file_bytes),
          format_count(report.parameters),
          report.tied_embeddings ? ", head tied to the embedding" : ""));
  line(
      "layers",
      fmt::format(
          "{} of {} ({} between), {} heads, {} key-value heads",
          or_unknown(report.layers),
          or_unknown(report.hidden_size),
          or_unknown(report.intermediate_size),
          or_unknown(report.heads),
          or_unknown(report.kv_heads ? report.kv_heads : report.heads)));
  line("context", or_unknown(report.context_length) + " tokens");
  bool first = true;
  for (const auto& [type, stored] : report.stored) {
    line(
        first ? "stored as" : "",
        fmt::format(
            "{}: {} tensors, {}, {:.2f} bits per weight; in memory {}, {}",
            type,
            stored.tensors,
            format_bytes(stored.bytes),
            stored.parameters > 0 ? 8.0 * static_cast<double>(stored.bytes) /
                    static_cast<double>(stored.parameters)
                                  : 0.0,
            fmt::join(stored.resident_forms, " or "),
            format_bytes(stored.resident_bytes)));
    first = false;
  }
  for (const auto& [reason, left_out] : report.left_out) {
    line(
        "left out",
        fmt::format(
            "{} tensors, {}: {}",
            left_out.tensors,
            format_bytes(left_out.bytes),
            reason));
  }
  line(
      "tokenizer",
      report.tokenizer_error.empty()
          ? fmt::format("{} tokens", or_unknown(report.tokenizer_size))
          : "unusable: " + report.tokenizer_error);
  line("eos tokens", fmt::format("{}", fmt::join(report.eos_ids, ", ")));
  std::string templates = report.chat_templates.empty()
      ? std::string("none")
      : fmt::format("{}", fmt::join(report.chat_templates, ", "));
  if (!report.chat_template_error.empty()) {
    templates += ", unusable: " + report.chat_template_error;
  }
  line("chat template", templates);
  line("kernels", report.kernels);
  return out;
}

OrderedJson model_report_json(const ModelReport& report) {
  OrderedJson stored = OrderedJson::object();
  for (const auto& [type, entry] : report.stored) {
    stored[type] = {
        {"tensors", entry.tensors},
        {"bytes", entry.bytes},
        {"parameters", entry.parameters},
        {"resident_forms", entry.resident_forms},
        {"resident_bytes", entry.resident_bytes}};
  }
  OrderedJson left_out = OrderedJson::object();
  for (const auto& [reason, entry] : report.left_out) {
    left_out[reason] = {{"tensors", entry.tensors}, {"bytes", entry.bytes}};
  }
  return OrderedJson{
      {"path", report.path},
      {"format", report.format},
      {"model_type", report.model_type},
      {"architectures", report.architectures},
      {"supported", report.unsupported.empty()},
      {"unsupported_reason", text_or_null(report.unsupported)},
      {"is_encoder", report.is_encoder},
      {"file_bytes", report.file_bytes},
      {"parameters", report.parameters},
      {"tied_embeddings", report.tied_embeddings},
      {"layers", number_or_null(report.layers)},
      {"hidden_size", number_or_null(report.hidden_size)},
      {"intermediate_size", number_or_null(report.intermediate_size)},
      {"heads", number_or_null(report.heads)},
      {"kv_heads",
       number_or_null(report.kv_heads ? report.kv_heads : report.heads)},
      {"vocab_size", number_or_null(report.vocab_size)},
      {"context_length", number_or_null(report.context_length)},
      {"stored", stored},
      {"left_out", left_out},
      {"tokenizer_size", number_or_null(report.tokenizer_size)},
      {"tokenizer_error", text_or_null(report.tokenizer_error)},
      {"eos_ids", report.eos_ids},
      {"chat_templates", report.chat_templates},
      {"chat_template_error", text_or_null(report.chat_template_error)},
      {"kernels", report.kernels}};
}

}  // namespace mlxx::apps

#include "mlxx/hub/export_mlx.h"

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/base/paths.h"
#include "mlxx/core/dtype.h"
#include "mlxx/core/safetensors.h"
#include "mlxx/core/safetensors_writer.h"

namespace mlxx::hub {

namespace {

std::string module_of(const TensorInfo& tensor) {
  constexpr std::string_view kWeight = ".weight";
  return tensor.name.substr(0, tensor.name.size() - kWeight.size());
}

Json entry_of(const Quantization& q) {
  Json entry = {{"group_size", q.group_size}, {"bits", q.bits}};
  if (q.mode != "affine") {
    entry["mode"] = q.mode;
  }
  return entry;
}

// The most frequent form is the one for all, others get entries of their own.
// mlx-lm decides by the presence of scales which modules are packed.
Json make_quantization(const Checkpoint& checkpoint) {
  std::map<std::string, std::pair<int, Json>> forms;
  for (const auto& tensor : checkpoint.tensors()) {
    if (tensor.quantization) {
      Json entry = entry_of(*tensor.quantization);
      auto& form = forms[entry.dump()];
      form.first += 1;
      form.second = entry;
    }
  }
  if (forms.empty()) {
    return nullptr;
  }
  auto most = std::ranges::max_element(forms, {}, [](const auto& form) {
    return form.second.first;
  });
  Json result = most->second.second;
  for (const auto& tensor : checkpoint.tensors()) {
    if (tensor.quantization) {
      Json entry = entry_of(*tensor.quantization);
      if (entry != most->second.second) {
        result[module_of(tensor)] = entry;
      }
    }
  }
  return result;
}

struct Part {
  const TensorInfo* tensor;
  enum Kind { weight, scales, biases } kind;
};

class WeightWriter {
 public:
  WeightWriter(const Checkpoint& checkpoint, const LoadDtype& dtype)
      : checkpoint_(checkpoint), dtype_(dtype) {
    for (const auto& tensor : checkpoint.tensors()) {
      Weight weight = checkpoint.load(tensor.name, dtype);
      if (!tensor.quantization) {
        add(tensor, tensor.name, Part::weight, converted(weight.weight));
        continue;
      }
      std::string module = module_of(tensor);
      add(tensor, module + ".weight", Part::weight, weight.weight);
      add(tensor, module + ".scales", Part::scales, *weight.scales);
      if (weight.biases) {
        add(tensor, module + ".biases", Part::biases, *weight.biases);
      }
    }
  }

  void write(const std::filesystem::path& path) {
    write_safetensors(
        path,
        specs_,
        [this](size_t i) { return load(parts_[i]); },
        {{"format", "mlx"}});
  }

 private:
  void add(
      const TensorInfo& tensor,
      const std::string& name,
      Part::Kind kind,
      const mx::array& value) {
    specs_.push_back({name, value.dtype(), value.shape()});
    parts_.push_back({&tensor, kind});
  }

  mx::array converted(const mx::array& value) const {
    bool converts = checkpoint_.format() == "gguf" &&
        mx::issubdtype(value.dtype(), mx::floating);
    return converts ? mx::astype(value, dtype_.scales) : value;
  }

  // Parts of one tensor follow each other: it is loaded once.
  mx::array load(const Part& part) {
    if (!loaded_ || loaded_tensor_ != part.tensor) {
      loaded_.reset();
      loaded_ = checkpoint_.load(part.tensor->name, dtype_);
      loaded_tensor_ = part.tensor;
    }
    switch (part.kind) {
      case Part::scales:
        return *loaded_->scales;
      case Part::biases:
        return *loaded_->biases;
      default:
        return part.tensor->quantization ? loaded_->weight
                                         : converted(loaded_->weight);
    }
  }

  const Checkpoint& checkpoint_;
  LoadDtype dtype_;
  std::vector<SafetensorsSpec> specs_;
  std::vector<Part> parts_;
  const TensorInfo* loaded_tensor_ = nullptr;
  std::optional<Weight> loaded_;
};

Json tokenizer_config(const TextFiles& text) {
  Json config = parse_json(text.tokenizer_config_json, "tokenizer_config.json");
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (text.chat_templates.size() == 1) {
    config["chat_template"] = text.chat_templates[0].second;
  } else if (!text.chat_templates.empty()) {
    Json list = Json::array();
    for (const auto& [name, source] : text.chat_templates) {
      list.push_back({{"name", name}, {"template", source}});
    }
    config["chat_template"] = list;
  }
  return config;
}

}  // namespace

void write_mlx_checkpoint(
    const Checkpoint& checkpoint,
    const std::filesystem::path& folder,
    const LoadDtype& dtype) {
  const TextFiles& text = checkpoint.text();
  Json config = checkpoint.config();
  Json quantization = make_quantization(checkpoint);
  if (!quantization.is_null()) {
    config["quantization"] = quantization;
    config["quantization_config"] = quantization;
  }
  if (checkpoint.format() == "gguf") {
    config["torch_dtype"] = dtype_name(dtype.scales);
  }
  make_folder(folder);
  auto write = [&](const char* name, const std::string& content) {
    write_file_atomically(folder / name, content);
  };
  write("config.json", config.dump(2) + "\n");
  if (!checkpoint.generation_config().empty()) {
    write(
        "generation_config.json",
        checkpoint.generation_config().dump(2) + "\n");
  }
  write("tokenizer.json", text.tokenizer_json);
  write("tokenizer_config.json", tokenizer_config(text).dump(2) + "\n");
  WeightWriter(checkpoint, dtype).write(folder / "model.safetensors");
}

}  // namespace mlxx::hub

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "mlxx/adapters/adapter_file.h"

namespace mlxx::adapters {

// What the files of an adapter say.
struct AdapterContent {
  std::vector<LowRank> modules;  // under mlx-lm's names; at least one
  double dropout = 0;
  // As mlx-lm finds the layers again: the last so many, -1 for all, and names
  // within a layer, or whole ones.
  int num_layers = -1;
  std::vector<std::string> keys;
  // PEFT only: the scale is lora_alpha / sqrt(r).
  bool rank_stabilized = false;
  std::string base_model;  // a name or path; may be empty
};

// Both write adapter_config.json and the weights into a folder, which is made;
// each file is replaced as a whole, weights first. read_adapter() gives the
// modules back. Errors: invalid_request for no modules, or DoRA in some only;
// internal if it cannot be written.

// adapters.safetensors, as mlx-lm 0.32.2 trains and loads it. It knows one rank
// and one scale: smaller ranks are filled up with zeros, which add nothing, and
// other scales become part of `lora_b`.
void write_mlx_adapter(
    const std::filesystem::path& folder,
    const AdapterContent& content);

// adapter_model.safetensors as PEFT writes it: matrices turned, names below
// base_model.model, a module for each expert, lora_alpha = scale * r.
// unsupported for DoRA of an embedding, which PEFT computes in another way, and
// for experts that it has in another form.
void write_peft_adapter(
    const std::filesystem::path& folder,
    const AdapterContent& content);

}  // namespace mlxx::adapters

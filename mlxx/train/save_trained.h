#pragma once

#include <filesystem>
#include <string>

#include "mlxx/train/full_parameters.h"
#include "mlxx/train/lora.h"

namespace mlxx::train {

enum class AdapterLayout { mlx, peft };

// The adapters as a folder that adapters::read_adapter() and the layout's own
// programs read (adapters/write_adapter.h, with its errors). `base_model`: what
// the config calls the model.
void save_adapters(
    const LoraAdapters& adapters,
    const std::filesystem::path& folder,
    AdapterLayout layout,
    const std::string& base_model);

// adapters.safetensors of the folder once more as NNNNNNN_adapters.safetensors,
// as mlx-lm keeps each save; of those the `keep` newest stay (-1: all, 0:
// none). internal, naming the file, if it cannot be written.
void save_numbered(
    const std::filesystem::path& folder,
    int64_t iteration,
    int keep);
// Those of an earlier run, as which it is not to be taken.
void remove_numbered(const std::filesystem::path& folder);

// The trained weights as mlx-lm keeps those of --fine-tune-type full:
// adapters.safetensors under its names and adapter_config.json, for `mlxx fuse`
// and mlx-lm. What is one matrix there (query, key and value) is joined.
void save_full(
    const FullParameters& parameters,
    const models::Model& model,
    const std::filesystem::path& folder,
    const std::string& base_model);

}  // namespace mlxx::train

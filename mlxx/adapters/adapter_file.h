#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx::adapters {

// What a low-rank adapter does to one linear layer, x @ W.T becoming
//   LoRA: x @ W.T + scale * (x @ a) @ b                    (arXiv 2106.09685)
//   DoRA: that times magnitude / |W + scale * (a @ b).T|, the norm being that
//         of each output's row                             (arXiv 2402.09353)
// or to an embedding W [count, size], which becomes W + scale * a @ b, or to
// each of a stack of experts.
struct LowRank {
  std::string module;  // as the file names it: "model.layers.0.mlp.up_proj"
  mx::array a;         // [in, r]; [count, r]; [experts, r, in]
  mx::array b;         // [r, out]; [r, size]; [experts, out, r]
  float scale = 1;
  std::optional<mx::array> magnitude;  // [out] or [count], of DoRA
};

struct AdapterFile {
  std::string format;  // "mlx-lm" or "peft"
  std::vector<LowRank> modules;
};

// A folder with adapter_config.json and adapters.safetensors (mlx-lm) or
// adapter_model.safetensors (PEFT). Shapes fit one another; whether they fit a
// model shows when it is mounted. Errors: not_found; bad_file naming tensor or
// key; unsupported naming an option that would change the result and is not
// implemented: nothing is left out silently.
AdapterFile read_adapter(const std::filesystem::path& folder);

}  // namespace mlxx::adapters

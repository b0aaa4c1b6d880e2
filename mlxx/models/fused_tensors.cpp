#include "mlxx/models/fused_tensors.h"

#include <string>

#include "mlxx/base/json.h"

namespace mlxx::models {

void split_qkv(hub::TensorRewrite& tensors) {
  JsonView config(tensors.config(), "config.json");
  for (const char* part : {"weight", "bias"}) {
    std::string end = std::string("_proj.") + part;
    for (int64_t layer :
         tensors.numbers("model.layers.{}.self_attn.qkv" + end)) {
      std::string start = fmt::format("model.layers.{}.self_attn.", layer);
      int64_t heads = config.integer("num_attention_heads", 1, 4096);
      int64_t kv_heads =
          config.integer_or("num_key_value_heads", heads, 1, heads);
      int64_t rows = tensors.info(start + "qkv" + end).shape.front();
      if (rows % (heads + 2 * kv_heads) != 0) {
        config.fail_at(
            "num_attention_heads",
            fmt::format(
                "is {} with {} for keys, which does not divide {} rows",
                heads,
                kv_heads,
                rows));
      }
      int64_t size = rows / (heads + 2 * kv_heads);
      tensors.split(
          start + "qkv" + end,
          0,
          {heads * size, kv_heads * size, kv_heads * size},
          {start + "q" + end, start + "k" + end, start + "v" + end});
    }
  }
}

void split_gate_up(hub::TensorRewrite& tensors) {
  for (int64_t layer :
       tensors.numbers("model.layers.{}.mlp.gate_up_proj.weight")) {
    std::string start = fmt::format("model.layers.{}.mlp.", layer);
    tensors.split_evenly(
        start + "gate_up_proj.weight",
        0,
        {start + "gate_proj.weight", start + "up_proj.weight"});
  }
}

}  // namespace mlxx::models

#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/cache/cache.h"
#include "mlxx/core/mlx.h"
#include "mlxx/core/parameters.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/kernels/select.h"

namespace mlxx::models {

struct CacheOptions {
  // Keep at most this many tokens per layer (rotating); 0 means no limit.
  int max_kv_size = 0;
  // One entry per layer, for plain operations layer by layer, also where the
  // whole decoder could run as one kernel: what gradients need.
  bool per_layer = false;
  // A batch of rows that begin with so many tokens of padding each; empty:
  // without. Runs as plain operations layer by layer.
  std::vector<int> left_padding = {};

  bool operator==(const CacheOptions&) const = default;
};

// What programs ask about a model without knowing its family.
struct ModelSummary {
  std::string model_type;
  int layers = 0;
  int hidden_size = 0;
  int vocab_size = 0;               // rows of the output head
  int max_position_embeddings = 0;  // 0 if the config names none
  int64_t parameters = 0;           // logical count, quantized or not
  uint64_t weight_bytes = 0;        // resident
};

class TrainingFace;

// An immutable language model. All calls from the one thread that owns MLX.
class Model {
 public:
  virtual ~Model() = default;

  virtual ModelSummary summary() const = 0;
  virtual cache::CacheList make_cache(const CacheOptions& options) const = 0;

  // tokens [B, L] int32 -> logits [B, L, V] in the model's dtype. Appends to
  // the caches. Lazy: nothing is evaluated.
  virtual mx::array forward(const mx::array& tokens, cache::CacheList& cache)
      const = 0;

  // Logits of the last position only, [B, V]: what prefill needs, without an
  // L x V array.
  virtual mx::array forward_last(
      const mx::array& tokens,
      cache::CacheList& cache) const = 0;

  // One more token for each of several sequences, whatever their lengths:
  // tokens [B] int32 -> logits [B, V]; row b continues rows[b]. A row's bits
  // are those of forward_last() for it alone, on our CPU kernels.
  virtual mx::array forward_rows(
      const mx::array& tokens,
      std::span<cache::CacheList* const> rows) const;

  // Pieces of prompts of several sequences in one pass, for their states alone:
  // tokens [B, L], of which row b's first lengths[b] are appended to rows[b],
  // whatever they hold so far. Lazy. False, and nothing is done, where rows
  // don't go together; then they are to be computed one by one.
  virtual bool append_prompts(
      const mx::array& tokens,
      std::span<const int> lengths,
      std::span<cache::CacheList* const> rows) const;

  // Calls the visitor once for each parameter, under its checkpoint name.
  // While loading this is how the weights come in.
  virtual void visit(const ParameterVisitor& /* visitor */) {}
  // As above for a model that is loaded and shared.
  void visit(const ConstParameterVisitor& visitor) const;

  // Which kernels compute, once the weights are in. Without a call: the plain
  // operations.
  virtual void use(const kernels::Selection& /* selection */) {}

  // The model in the parts that training runs one by one
  // (models/training_face.h); null: it can only be run as a whole.
  virtual const TrainingFace* training_face() const {
    return nullptr;
  }

  // Whether an entry of the checkpoint that is no parameter may be left out,
  // such as precomputed rotary frequencies.
  virtual bool skips(const std::string& /* tensor */) const {
    return false;
  }
};

// Bytes read so far. May throw (ErrorKind::cancelled) to stop the loading.
using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

struct LoadOptions {
  Progress progress = {};
  // Absent: as MLXX_KERNEL says.
  std::optional<kernels::Selection> kernels = {};
  // Weights are evaluated in pieces of about this size.
  size_t chunk_bytes = size_t{64} << 20;
  // No number is read: the model says what it and its caches will take, and
  // nothing that it computes may be evaluated.
  bool sizes_only = false;
};

// Builds the model that the checkpoint's model_type names and materialises
// its weights in bounded chunks. Every tensor is consumed or skipped by an
// explicit rule; a missing, surplus or misshapen one is a bad_file that names
// it. An unknown model_type is unsupported and lists what is known.
//
// Dtypes: on the CPU everything is computed in float32, since MLX's products
// of half-precision numbers are many times slower there; in fallback mode
// safetensors weights stay as they are stored, as in mlx-lm. On a GPU
// safetensors weights stay as stored and GGUF becomes half precision.
std::shared_ptr<const Model> load_model(
    const hub::Checkpoint& checkpoint,
    const LoadOptions& options);

std::shared_ptr<const Model> load_model(
    const hub::Checkpoint& checkpoint,
    const Progress& progress = {});

}  // namespace mlxx::models

#pragma once

// One step of a dense decoder on an NVIDIA device: one new token for each of 1
// to 64 sequences. Five launches a layer: queries, keys and values; attention;
// its output; gate and up; down. One more past 2,047 tokens, two more with
// norms after the blocks, two more where queries, keys and values are apart.
// Plain pointers into device memory, no MLX; the step can be captured into a
// graph, since nothing that changes from step to step is read on the host. Sums
// have a fixed order and no float atomics are used: the same input gives the
// same bits. Compiled by nvcc; callers need no CUDA headers.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct CUstream_st;

namespace mlxx::kernels::cuda {

using Stream = CUstream_st*;  // cudaStream_t
// A cudaError_t; 0 is success.
using Status = int;

inline constexpr int kKvBlockLength = 64;  // tokens
inline constexpr int kMaxRows = 64;
// Columns of packed matrices are padded to so many.
inline constexpr int kTileColumns = 64;

enum class WeightFormat {
  bfloat16,
  affine4,  // scale * q + bias, groups of 32, 64 or 128 columns
  affine8,  // the same
  mxfp4,    // groups of 32
  nvfp4,    // groups of 16
};

// As MLX keeps it: weight [rows, columns * bits / 32] uint32 (bfloat16: [rows,
// columns]); scales [rows, columns / group] bfloat16 (mxfp4, nvfp4: uint8),
// biases the same (affine only).
struct MlxMatrix {
  const void* weight = nullptr;
  const void* scales = nullptr;
  const void* biases = nullptr;
  int rows = 0;     // out
  int columns = 0;  // in; a multiple of the group, and of 8 for bfloat16
  WeightFormat format = WeightFormat::bfloat16;
  int group = 0;
};

// W [rows, columns] in tiles of 16 rows by 64 columns, each 32 lanes by 16
// bytes per 4 bits of a number, strips of 16 rows one after another. Both
// buffers are aligned to 256 bytes.
struct PackedMatrix {
  void* codes = nullptr;
  void* scales = nullptr;  // null for bfloat16
  int rows = 0;            // any; padded to a multiple of 16
  int columns = 0;
  WeightFormat format = WeightFormat::bfloat16;
  int group = 0;

  explicit operator bool() const {
    return codes != nullptr;
  }
};

struct PackedSize {
  size_t codes = 0;  // bytes
  size_t scales = 0;
};
PackedSize packed_size(const PackedMatrix& matrix);

// Where rows of a part go in the whole. plain: row r to first + r; gate: row r
// to r / 8 * 16 + r % 8, up: 8 rows further, for a product that makes
// activation(gate) * up at once.
enum class RowOrder { plain, gate, up };

// Writes `part` into `whole`, whose codes, scales, rows, columns, format and
// group are set. Parts of one whole (queries, keys and values; gate and up) are
// packed one after another, all on one stream; `first` is a multiple of 16
// unless the part is the last. `unpack` is the exact inverse. `part` may be
// freed after the stream has run it.
Status pack(
    const MlxMatrix& part,
    const PackedMatrix& whole,
    RowOrder order,
    int first,
    Stream stream);
Status unpack(
    const PackedMatrix& whole,
    RowOrder order,
    int first,
    const MlxMatrix& part,  // its buffers are written
    Stream stream);

struct Linear {
  PackedMatrix matrix;
  const float* bias = nullptr;  // [rows], in packed order for gate and up

  explicit operator bool() const {
    return static_cast<bool>(matrix);
  }
};

// rms: x / sqrt(mean(x^2) + eps) * weight; layer: (x - mean(x)) /
// sqrt(variance(x) + eps) * weight (+ bias).
struct Norm {
  enum class Kind { none, rms, layer };
  Kind kind = Kind::none;
  float eps = 0;
  const float* weight = nullptr;  // [n]
  const float* bias = nullptr;    // [n] or null; of the layer kind only
};

// Of queries or keys, between projection and rotation: rms norms of each head.
struct HeadNorm {
  const float* weight = nullptr;  // [D], or [heads * D] if `own`; null: none
  float eps = 0;
  bool own = false;  // each head has its own weights
};

enum class Activation { silu, gelu, gelu_tanh, relu_squared };

// The angle of pair i at position p is p * per_position[i].
struct RotationTable {
  const double* per_position = nullptr;  // [dims / 2] on the device
  int dims = 0;                          // even, at most D
  float scale = 1;                       // multiplies what is rotated
  bool pairs = false;                    // (2i, 2i + 1), not (i, dims / 2 + i)
};

// As DecoderLayerWeights (decoder_weights.h), field by field.
struct DecoderLayer {
  Norm before_attention;
  // Rows: heads * D of queries, kv_heads * D of keys, as many of values. Or,
  // where their formats differ, three matrices.
  Linear qkv;
  Linear q;
  Linear k;
  Linear v;
  Linear o;  // [E, heads * D]
  HeadNorm q_norm;
  HeadNorm k_norm;
  int rotation = -1;     // of the decoder's tables; -1: none
  float query_beta = 0;  // queries times 1 + beta * log(1 + floor(p / length))
  int query_original_length = 1;
  float attention_scale = 1;
  float softcap = 0;             // of the scores; 0: none
  const float* sinks = nullptr;  // [heads] or null
  int window = 0;                // tokens a query sees, itself included; 0: all
  Norm after_attention;

  Norm before_mlp;
  // The network reads x instead of what attention gave; then before_mlp is
  // before_attention, or none and reads the same.
  bool parallel = false;
  Linear gate_up;  // [2 I, E] in RowOrder gate, up; or, if not `gated`, [I, E]
  bool gated = true;
  Linear down;  // [E, I]
  Activation activation = Activation::silu;
  Norm after_mlp;
  float residual_multiplier = 1;
};

struct Decoder {
  int hidden_size = 0;  // E
  int heads = 0;
  int kv_heads = 0;
  int head_size = 0;                     // D: 64, 80, 96, 128, 256
  std::vector<RotationTable> rotations;  // at most 4
  std::vector<DecoderLayer> layers;
  PackedMatrix embedding;  // [V, E]
  float embedding_multiplier = 1;
  Norm final_norm;
  Linear head;  // [V, E]; the embedding's matrix if they are tied
  // logits = softcap * tanh(head(...) * multiplier / softcap)
  float logits_multiplier = 1;
  float final_softcap = 0;
};

// Why a step can't run it, as the end of a sentence; empty if it can. Reads
// nothing on the device.
std::string why_not_run(const Decoder& decoder);

// Keys and values: bfloat16 blocks of 64 tokens, each holding every layer:
// [layers][2: keys, values][kv_heads][64][D].
size_t kv_block_bytes(const Decoder& decoder);

struct StepInput {
  int rows = 0;  // 1 to kMaxRows, of different sequences
  // All on the device. Row r's token is at position lengths[r], which is how
  // many tokens its blocks hold; its keys and values are written there.
  const int32_t* tokens = nullptr;   // [rows]
  const int32_t* lengths = nullptr;  // [rows]
  void* const* blocks = nullptr;     // [rows, blocks_stride]
  int blocks_stride = 0;
  // No row's length exceeds it in any step run from this launch (or from a
  // graph captured from it): so many blocks attention has. A row's bits do not
  // depend on it.
  int longest = 0;
  // A row's bits are then the same for any `rows`, at a high price above 8 of
  // them. Otherwise they are the same for all `rows` in 1..8, and for all in
  // 9..64.
  bool deterministic = false;
};

// Bytes for steps of at most `max_rows` rows whose `longest` is at most this
// one, aligned to 256. The memory must be zeroed once before its first step.
size_t
workspace_bytes(const Decoder& decoder, int max_rows, int longest = 131072);

// logits: [rows, V] float32.
Status launch_step(
    const Decoder& decoder,
    const StepInput& input,
    void* workspace,
    float* logits,
    Stream stream);

// How one row chooses: mlx-lm's rules, in the order of these members (as
// TokenChoice, kernels/token_choice).
struct TokenSampling {
  float temperature = 0;  // 0: the greatest, without filters
  float top_p = 0;        // in (0, 1); others: off
  float min_p = 0;        // in (0, 1]; 0: off
  int32_t min_tokens_to_keep = 1;
  int32_t top_k = 0;  // 0: off
  // Of the Gumbel noise: number i of `vocabulary` is token i's, as
  // mx::random::uniform makes them.
  uint32_t key[2] = {0, 0};
};

// Chooses each row's next token from its logits, on the device: the greatest,
// the first among equals; or a draw from those that the filters leave.
struct ChoiceInput {
  int rows = 0;  // 1 to kMaxRows
  int vocabulary = 0;
  const float* logits = nullptr;  // [rows, vocabulary]
  TokenSampling sampling[kMaxRows];
  int32_t* tokens = nullptr;  // [rows]: written
  // [rows] or null: log softmax(logits) of the token.
  float* logprobs = nullptr;
  // [rows] or null: the same, not a number if one of the row's logits is none,
  // or is infinite (-inf but for a removed token).
  float* check = nullptr;
  int32_t* lengths = nullptr;  // [rows] or null: each gets one more
};
size_t choice_workspace_bytes(int rows, int vocabulary);
Status launch_choice(const ChoiceInput& input, void* workspace, Stream stream);

}  // namespace mlxx::kernels::cuda

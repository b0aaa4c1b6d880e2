#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mlxx/core/mlx.h"
#include "mlxx/core/parameters.h"
#include "mlxx/kernels/decode_step/cuda/decoder_cuda.h"
#include "mlxx/kernels/decode_step/sequence_kv.h"

// What libmlxx_cuda.so gives to the library: the only code that names MLX's
// CUDA encoder. It is loaded beside the library where MLX computes on an
// NVIDIA device, never linked.

namespace mlxx::kernels {

// A packed matrix in arrays on the device, alive as long as this is.
struct CudaMatrix {
  mx::array codes;                  // uint8
  std::optional<mx::array> scales;  // uint8; none of bfloat16
  cuda::PackedMatrix matrix;        // pointers into them
  std::shared_ptr<void> scratch;    // the plug-in's, for all matrices

  size_t nbytes() const {
    return codes.nbytes() + (scales ? scales->nbytes() : 0);
  }
};

// What rows chose, lazily; tokens and checks are where the host reads them
// without a copy.
struct CudaChoices {
  mx::array tokens;  // [B] int32
  // [B] float32: finite if and only if the choice rests on finite numbers.
  mx::array check;
  mx::array logprobs;  // [B] float32: log softmax(logits) of the tokens
};

// A decoder on the device: runs steps of one token for each of some rows.
class CudaDecoder {
 public:
  virtual ~CudaDecoder() = default;

  // tokens [B] of any integer dtype, of as many different sequences, which
  // have room for them (SequenceKv::extend). Gives logits [B, V] float32 and
  // an array [1] that the next operation on these sequences must be given in
  // `previous`. Lazy; steps run in the order of their evaluation.
  virtual std::pair<mx::array, mx::array> step(
      const mx::array& tokens,
      std::vector<SequenceKv::Step> steps,
      const std::vector<mx::array>& previous) = 0;

  // keys_values: keys and values of every layer one after another, [B, K, L,
  // D] bfloat16, of which row b's first lengths[b] tokens are written into the
  // blocks of rows[b]; at most cuda::kMaxRows. As above for the rest.
  virtual mx::array write_kv(
      const std::vector<mx::array>& keys_values,
      std::vector<SequenceKv::Step> rows,
      std::vector<int> lengths,
      const std::vector<mx::array>& previous) = 0;

  // Keys (part 0) and values (part 1) of that layer's first `tokens` tokens,
  // [1, K, tokens, D] bfloat16.
  virtual mx::array read_kv(
      const KvBlocks& blocks,
      int layer,
      int part,
      int tokens,
      const std::vector<mx::array>& previous) = 0;

  // Bytes of its own: workspace, tables, logits.
  virtual size_t nbytes() const = 0;
};

// The function table. Entries are added at the end; any change is a new
// version, and another version is not used.
struct CudaPlugin {
  static constexpr uint32_t kVersion = 4;
  static constexpr const char* kSymbol = "mlxx_cuda_plugin";

  uint32_t version;
  uint32_t bytes;           // sizeof(CudaPlugin)
  const char* mlx_version;  // that it was built against
  const char* mlxx_version;
  const char* architectures;  // "sm_80 sm_90 compute_80": machine code, PTX

  // Where an evaluated array lies on the device.
  void* (*device_pointer)(const mx::array& array);
  std::string (*why_not_run)(const cuda::Decoder& decoder);
  size_t (*kv_block_bytes)(const cuda::Decoder& decoder);

  // Buffers for the matrix, whose rows, columns, format and group are set.
  CudaMatrix (*make_matrix)(const cuda::PackedMatrix& matrix);
  // Packs MLX's form of some rows. Returns when it is under way.
  void (*pack)(
      const WeightArrays& part,
      int rows,
      const CudaMatrix& whole,
      cuda::RowOrder order,
      int first);
  // The inverse, lazily.
  WeightArrays (*unpack)(
      std::shared_ptr<const CudaMatrix> whole,
      cuda::RowOrder order,
      int first,
      int rows);

  // `shape`: of its blocks. `held`: every array that the decoder points into.
  std::shared_ptr<CudaDecoder> (*make_decoder)(
      cuda::Decoder decoder,
      const KvShape& shape,
      std::vector<mx::array> held,
      bool deterministic);

  // One token for each row of logits [B, V] float32.
  CudaChoices (
      *choose)(const mx::array& logits, std::vector<cuda::TokenSampling> rows);
};

// The plug-in, loaded once for the process; null where MLX computes on no
// NVIDIA device or the plug-in is missing or does not fit, and `why` says so.
// MLX's operations do the work then.
const CudaPlugin* cuda_plugin(std::string* why = nullptr);

// As for cuda_plugin(), of the table that a library gives: empty if it can be
// used.
std::string why_not_usable(const CudaPlugin* plugin);

}  // namespace mlxx::kernels

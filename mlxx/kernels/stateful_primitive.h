#pragma once

#include <functional>
#include <vector>

#include "mlxx/core/cpu_stream_primitive.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// What an op that carries a state along the tokens gives.
struct StatefulResult {
  mx::array out;
  mx::array state;  // after the last token
};

// Such an op of ours on MLX's CPU stream: float32 outputs {out, state}. Its
// gradient is that of the plain operations that it replaces.
class StatefulPrimitive : public CpuStreamPrimitive {
 public:
  using Arrays = std::vector<mx::array>;
  using Fallback = std::function<Arrays(const Arrays&)>;

  StatefulPrimitive(
      const char* name,
      Fallback fallback,
      const Selection& selection);

  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs) override;

 protected:
  // Memory for the new state: that of the old one where no one else holds it,
  // else new memory, into which the old one is to be copied. Both of one size,
  // `old` contiguous.
  static void take_or_allocate(const mx::array& old, mx::array& state);

  Selection selection_;

 private:
  Fallback fallback_;
};

// The array with its numbers one after the other: itself if that is known of
// it already, which spares a graph node.
mx::array in_order(const mx::array& a);

// The two outputs of `primitive`, of these shapes.
StatefulResult make_stateful(
    const mx::Shape& out,
    const mx::Shape& state,
    std::shared_ptr<StatefulPrimitive> primitive,
    const std::vector<mx::array>& inputs);

}  // namespace mlxx::kernels

#include "mlxx/core/leading_view.h"

#include <mlx/primitives.h>

#include "mlxx/base/error.h"

namespace mlxx {
namespace {

mx::Shape view_shape(const mx::array& a, int axis, const mx::array& like) {
  int length = like.ndim() == 1 ? like.shape(0) : 0;
  if (length < 1 || length > a.shape(axis)) {
    fail(
        ErrorKind::internal,
        "leading view",
        "cannot take the first {} of {} along axis {}",
        length,
        a.shape(axis),
        axis);
  }
  mx::Shape shape = a.shape();
  shape[axis] = length;
  return shape;
}

// Inputs: the array and what has the view's length.
class LeadingView : public mx::UnaryPrimitive {
 public:
  LeadingView(mx::Stream stream, int axis)
      : UnaryPrimitive(stream), axis_(axis) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    share(inputs[0], out);
  }
  void eval_gpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    share(inputs[0], out);
  }
  const char* name() const override {
    return "LeadingView";
  }
  bool is_equivalent(const mx::Primitive& other) const override {
    return axis_ == static_cast<const LeadingView&>(other).axis_;
  }
  std::vector<mx::Shape> output_shapes(
      const std::vector<mx::array>& inputs) override {
    return {view_shape(inputs[0], axis_, inputs[1])};
  }

 private:
  // Only the extent of one axis differs.
  static void share(const mx::array& a, mx::array& out) {
    if (out.shape() == a.shape()) {
      out.copy_shared_buffer(a);
      return;
    }
    size_t spanned = 1;   // elements from the first to the last
    size_t distinct = 1;  // elements that are not repeated by a stride of 0
    int64_t row_stride = 1;
    int64_t column_stride = 1;
    auto flags = a.flags();
    flags.row_contiguous = true;
    flags.col_contiguous = true;
    auto axes = static_cast<int>(out.ndim());
    for (int i = 0; i < axes; ++i) {
      int j = axes - 1 - i;
      if (a.strides(i) < 0) {
        fail(
            ErrorKind::internal,
            "leading view",
            "axis {} runs backwards in memory",
            i);
      }
      spanned += a.strides(i) * (out.shape(i) - 1);
      distinct *= a.strides(i) > 0 ? out.shape(i) : 1;
      flags.col_contiguous &=
          a.strides(i) == column_stride || out.shape(i) == 1;
      flags.row_contiguous &= a.strides(j) == row_stride || out.shape(j) == 1;
      column_stride *= out.shape(i);
      row_stride *= out.shape(j);
    }
    flags.contiguous = distinct == spanned;
    out.copy_shared_buffer(a, a.strides(), flags, spanned);
  }

  int axis_;
};

}  // namespace

mx::array leading_view(const mx::array& a, int axis, const mx::array& like) {
  auto dims = static_cast<int>(a.ndim());
  if (axis < 0 || axis >= dims) {
    fail(
        ErrorKind::internal,
        "leading view",
        "an array of {} dimensions has no axis {}",
        dims,
        axis);
  }
  return mx::array(
      view_shape(a, axis, like),
      a.dtype(),
      std::make_shared<LeadingView>(
          mx::default_stream(mx::default_device()),
          axis),
      {a, like});
}

mx::array length_only(int n) {
  return mx::broadcast_to(mx::array(false), {n});
}

}  // namespace mlxx

#include "mlxx/core/kept_cuda_kernel.h"

#include <gtest/gtest.h>

#include "mlxx/core/nvrtc.h"

namespace mlxx {
namespace {

std::optional<CudaKernelText> text_of(
    const std::string& body,
    mx::Dtype dtype = mx::bfloat16,
    const TemplateValues& values = {
        {"T", mx::float32},
        {"N", 3},
        {"F", true}}) {
  CustomKernelSpec spec{
      .name = "k",
      .input_names = {"x", "n"},
      .output_names = {"y", "z"}};
  spec.cuda = DeviceKernelSource{.source = body, .header = "struct Before {};"};
  return write_cuda_kernel(
      "k_1",
      body,
      spec,
      {mx::zeros({2, 3}, dtype), mx::array(1.0f)},
      {mx::float16, mx::uint32},
      values);
}

TEST(KeptCudaKernel, TheFunctionHasPointersThenTheSizesThatAreAskedFor) {
  auto text = text_of("y[0] = x_shape[1] + n[0];");
  ASSERT_TRUE(text);
  EXPECT_EQ(text->shape_inputs, std::vector{0});
  size_t header = text->source.find("struct Before {};");
  size_t function = text->source.find(
      "extern \"C\" __global__ void k_1(\n"
      "    const __nv_bfloat16* x,\n"
      "    const float* n,\n"
      "    __half* y,\n"
      "    uint32_t* z,\n"
      "    int x_shape_0,\n"
      "    int x_shape_1) {\n"
      "  constexpr int x_ndim = 2;\n"
      "  const int x_shape[] = {x_shape_0, x_shape_1};\n"
      "  using T = float;\n"
      "  constexpr int N = 3;\n"
      "  constexpr bool F = true;\n"
      "y[0] = x_shape[1] + n[0];\n}\n");
  ASSERT_NE(function, std::string::npos) << text->source;
  EXPECT_LT(header, function);
  EXPECT_TRUE(text_of("z[0] = 1;")->shape_inputs.empty());
  // A number has no shape.
  EXPECT_TRUE(text_of("z[0] = n_shape;")->shape_inputs.empty());
}

TEST(KeptCudaKernel, LeavesToMlxWhatItDoesNotPass) {
  EXPECT_FALSE(text_of("z[0] = x_strides[0];"));
  EXPECT_FALSE(text_of("z[0] = 1;", mx::complex64));
  EXPECT_FALSE(text_of("z[0] = 1;", mx::int8, {{"T", mx::complex64}}));
}

TEST(Nvrtc, SaysWhyItMadeNothing) {
  std::string why;
  if (compile_with_nvrtc("#error on purpose", "sm_90", &why)) {
    FAIL() << "an error was compiled";
  }
  EXPECT_FALSE(why.empty());
}

}  // namespace
}  // namespace mlxx

// Which libmlxx_cuda is used, and why not. The kernels in it are tested where
// there is a GPU.
#include <gtest/gtest.h>

#include "mlxx/core/device.h"
#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"

namespace mlxx::kernels {
namespace {

CudaPlugin fitting() {
  CudaPlugin plugin{};
  plugin.version = CudaPlugin::kVersion;
  plugin.bytes = sizeof(CudaPlugin);
  plugin.mlx_version = mx::version();
  plugin.mlxx_version = MLXX_VERSION;
  return plugin;
}

TEST(CudaPlugin, IsUsedIfItFits) {
  CudaPlugin plugin = fitting();
  EXPECT_EQ(why_not_usable(&plugin), "");
}

TEST(CudaPlugin, IsRefusedIfItComesFromElsewhere) {
  EXPECT_NE(why_not_usable(nullptr).find("no table"), std::string::npos);
  CudaPlugin plugin = fitting();
  plugin.version = CudaPlugin::kVersion + 1;
  EXPECT_NE(why_not_usable(&plugin).find("version"), std::string::npos);
  plugin = fitting();
  plugin.bytes -= 8;
  EXPECT_NE(why_not_usable(&plugin).find("bytes"), std::string::npos);
  plugin = fitting();
  plugin.mlx_version = "0.1.2";
  EXPECT_NE(why_not_usable(&plugin).find("MLX 0.1.2"), std::string::npos);
  plugin = fitting();
  plugin.mlxx_version = "9.9.9";
  EXPECT_NE(why_not_usable(&plugin).find("mlxx 9.9.9"), std::string::npos);
}

// Its references to MLX's CUDA part could not be resolved there.
TEST(CudaPlugin, IsNotEvenOpenedOnACpu) {
  if (backend() == Backend::cuda) {
    GTEST_SKIP() << "this is an NVIDIA GPU";
  }
  std::string why;
  EXPECT_EQ(cuda_plugin(&why), nullptr);
  EXPECT_NE(why.find("no NVIDIA GPU"), std::string::npos) << why;
}

}  // namespace
}  // namespace mlxx::kernels

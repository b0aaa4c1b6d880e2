#include "mlxx/hub/export_mlx.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/core/temporary_folder.h"
#include "tests/hub/gguf_builder.h"

namespace mlxx::hub {
namespace {

TEST(ExportMlx, TheWrittenFolderHoldsTheSameModel) {
  TemporaryFolder folder;
  auto gguf = open_checkpoint(folder.write("model.gguf", tiny_llama().build()));
  auto out = folder.path() / "out" / "model";
  for (auto dtype : {mx::float32, mx::float16}) {
    write_mlx_checkpoint(*gguf, out, {.scales = dtype});
    auto copy = open_checkpoint(out);
    EXPECT_EQ(copy->format(), "safetensors");
    EXPECT_EQ(copy->generation_config(), gguf->generation_config());
    EXPECT_EQ(copy->text().tokenizer_json, gguf->text().tokenizer_json);
    EXPECT_EQ(copy->text().chat_templates, gguf->text().chat_templates);
    for (const auto& [key, value] : gguf->config().items()) {
      EXPECT_EQ(copy->config()[key], value) << key;
    }
    // More are packed in four bits than in eight.
    EXPECT_EQ(copy->config()["quantization"]["bits"], 4);
    EXPECT_EQ(copy->config()["quantization"]["model.embed_tokens"]["bits"], 8);
    ASSERT_EQ(copy->tensors().size(), gguf->tensors().size());
    for (size_t i = 0; i < copy->tensors().size(); ++i) {
      const auto& tensor = gguf->tensors()[i];
      EXPECT_EQ(copy->tensors()[i].name, tensor.name);
      EXPECT_EQ(copy->tensors()[i].shape, tensor.shape);
      Weight a = gguf->load(tensor.name, {.scales = dtype});
      Weight b = copy->load(tensor.name, {});
      EXPECT_TRUE(mx::array_equal(a.weight, b.weight).item<bool>());
      ASSERT_EQ(a.scales.has_value(), b.scales.has_value());
      if (a.scales) {
        EXPECT_EQ(b.scales->dtype(), dtype);
        EXPECT_TRUE(mx::array_equal(*a.scales, *b.scales).item<bool>());
        EXPECT_TRUE(mx::array_equal(*a.biases, *b.biases).item<bool>());
      } else {
        EXPECT_EQ(b.weight.dtype(), dtype);
      }
    }
  }
}

}  // namespace
}  // namespace mlxx::hub

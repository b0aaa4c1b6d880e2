// Published shapes give the number of parameters that mlx-lm 0.32.2 makes of
// them, a tied head counted once; where a publisher's exact figure is known it
// is the same. A layer, bias or norm too much or too few shows here.
// tests/data/models/published_shapes.json has the keys of each config.json that
// decide sizes, and the count.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "mlxx/base/mapped_file.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

Json published_shapes() {
  constexpr auto kFile = MLXX_TEST_DATA "/models/published_shapes.json";
  return parse_json(read_file(kFile, size_t{1} << 20), kFile);
}

TEST(PublishedShapes, GiveTheirNumberOfParameters) {
  for (const auto& shape : published_shapes()) {
    FakeCheckpoint checkpoint(shape.at("config"));
    auto type = shape.at("config").at("model_type").get<std::string>();
    auto model = find_model(type).make(checkpoint);
    EXPECT_EQ(
        model->summary().parameters,
        shape.at("parameters").get<int64_t>())
        << shape.at("checkpoint");
  }
}

// Whose publishers count other parts too (images, sound, drafts), or give only
// rounded numbers.
constexpr std::string_view kWithoutCount[] = {
    "gemma4_text",
    "granitemoehybrid",
    "llama4_text",
    "ministral3",
    "qwen3_5",
};

TEST(PublishedShapes, AreThereForEveryFamily) {
  std::set<std::string_view> covered;
  Json shapes = published_shapes();
  for (const auto& shape : shapes) {
    auto type = shape.at("config").at("model_type").get<std::string>();
    covered.insert(find_model(type).model_type);
  }
  for (const ModelInfo* info : all_models()) {
    bool counted = std::ranges::find(kWithoutCount, info->model_type) ==
        std::end(kWithoutCount);
    EXPECT_EQ(covered.contains(info->model_type), counted) << info->model_type;
  }
}

}  // namespace
}  // namespace mlxx::models

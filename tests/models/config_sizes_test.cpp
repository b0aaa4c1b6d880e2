#include "mlxx/models/config_sizes.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

TEST(ConfigSizes, AreThoseOfEveryFamily) {
  for (const ModelInfo* info : all_models()) {
    Json config = parse_json(info->tiny_config, "tiny");
    auto sizes = read_config_sizes(config);
    FakeCheckpoint checkpoint(config);
    auto summary = info->make(checkpoint)->summary();
    EXPECT_EQ(sizes.vocab_size, summary.vocab_size) << info->model_type;
    EXPECT_EQ(sizes.max_position_embeddings, summary.max_position_embeddings)
        << info->model_type;
  }
}

TEST(ConfigSizes, MustBeSizes) {
  for (const char* text :
       {"{}",
        R"({"vocab_size": 0})",
        R"({"vocab_size": "96"})",
        R"({"vocab_size": 96, "max_position_embeddings": -1})",
        R"({"text_config": 5})"}) {
    EXPECT_THROW(read_config_sizes(Json::parse(text)), Error) << text;
  }
}

}  // namespace
}  // namespace mlxx::models

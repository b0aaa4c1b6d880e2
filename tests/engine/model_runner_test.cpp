#include "mlxx/engine/model_runner.h"

#include <gtest/gtest.h>

#include "tests/engine/mixed_requests.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::engine {
namespace {

std::shared_ptr<const models::Model> tiny_model(
    const std::string& type,
    bool fallback) {
  Json config = parse_json(models::find_model(type).tiny_config, "tiny");
  auto checkpoint =
      models::random_checkpoint(config, hub::Quantization{32, 4, "affine"});
  return models::load_model(
      checkpoint,
      models::LoadOptions{.kernels = models::selection(fallback)});
}

std::shared_ptr<const ModelText> text_of(const models::Model& model) {
  auto text = std::make_shared<ModelText>();
  text->vocab_size = model.summary().vocab_size;
  text->eos_ids = {1};
  return text;
}

class Families : public testing::TestWithParam<const char*> {};

TEST_P(Families, AnswerTheSameAloneAndInAnyCompany) {
  auto model = tiny_model(GetParam(), false);
  ModelRunner runner(model, text_of(*model), {});
  expect_same_in_any_company(*model, runner);
}

INSTANTIATE_TEST_SUITE_P(
    ModelRunner,
    Families,
    testing::Values("llama", "falcon_h1", "qwen3_next", "gemma3_text"),
    [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace mlxx::engine

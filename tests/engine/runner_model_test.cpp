// The default model: what a request gets does not hang on who else asks.
#include <gtest/gtest.h>

#include "mlxx/base/environment.h"
#include "mlxx/engine/model_runner.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/resolve.h"
#include "tests/engine/mixed_requests.h"

namespace mlxx::engine {
namespace {

TEST(RunnerModel, AnswersTheSameAloneAndInAnyCompany) {
  auto path = environment("MLXX_TEST_GGUF");
  if (!path && !environment("MLXX_HOME")) {
    GTEST_SKIP() << "neither MLXX_TEST_GGUF nor MLXX_HOME is set";
  }
  auto checkpoint = hub::open_checkpoint(
      path ? std::filesystem::path(*path)
           : hub::resolve_model(hub::kDefaultModel));
  ModelRunnerOptions options;
  options.kernels = kernels::select_from_environment();
  models::LoadOptions load_options;
  load_options.kernels = options.kernels;
  auto model = models::load_model(*checkpoint, load_options);
  auto text = std::make_shared<ModelText>();
  text->vocab_size = model->summary().vocab_size;
  text->eos_ids = {1};
  ModelRunner runner(model, text, options);
  expect_same_in_any_company(*model, runner);
}

}  // namespace
}  // namespace mlxx::engine

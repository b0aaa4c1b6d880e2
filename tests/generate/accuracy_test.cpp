// What rounding activations and keys costs on text: the distributions of the
// next token against those of MLX's own operations.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "mlxx/base/environment.h"
#include "mlxx/generate/pipeline.h"
#include "mlxx/hub/resolve.h"

namespace mlxx::generate {
namespace {

using kernels::ActivationForm;

std::vector<std::vector<int32_t>> passages(const Pipeline& pipeline) {
  std::vector<std::vector<int32_t>> all;
  for (const char* name :
       {"pride_and_prejudice", "moby_dick", "declaration_of_independence"}) {
    std::ifstream file(
        std::string(MLXX_TEST_DATA "/passages/") + name + ".txt");
    std::stringstream text;
    text << file.rdbuf();
    all.push_back(encode_raw_prompt(pipeline, text.str()));
  }
  return all;
}

std::shared_ptr<const models::Model> load(
    const hub::Checkpoint& checkpoint,
    std::optional<ActivationForm> form) {
  models::LoadOptions options;
  options.kernels = kernels::select_best();
  options.kernels->fallback = !form;
  options.kernels->activations = form.value_or(ActivationForm::float32);
  return models::load_model(checkpoint, options);
}

// [tokens, V] on the host.
class Logits {
 public:
  Logits(const models::Model& model, const std::vector<int32_t>& ids)
      : logits_(0.0f) {
    auto cache = model.make_cache({});
    int length = static_cast<int>(ids.size());
    logits_ =
        model.forward(mx::array(ids.data(), {1, length}, mx::int32), cache);
    logits_ = mx::contiguous(mx::astype(logits_, mx::float32));
    mx::eval(logits_);
    size_ = logits_.shape(2);
  }
  const float* row(int token) const {
    return logits_.data<float>() + int64_t{token} * size_;
  }
  int size() const {
    return size_;
  }

 private:
  mx::array logits_;
  int size_ = 0;
};

double log_total(const float* row, int size) {
  double most = *std::max_element(row, row + size);
  double sum = 0;
  for (int i = 0; i < size; ++i) {
    sum += std::exp(row[i] - most);
  }
  return most + std::log(sum);
}

struct Sums {
  int64_t tokens = 0;
  double divergence = 0;  // KL of the plain distribution from the fast one
  double loss = 0;        // of the fast one
  double plain_loss = 0;
  double difference = 0;  // squared, of logits
  double norm = 0;
};

void add(
    const Logits& plain,
    const Logits& fast,
    const std::vector<int32_t>& ids,
    Sums& sums) {
  for (size_t t = 0; t + 1 < ids.size(); ++t) {
    const float* p = plain.row(static_cast<int>(t));
    const float* q = fast.row(static_cast<int>(t));
    double log_p = log_total(p, plain.size());
    double log_q = log_total(q, plain.size());
    double divergence = 0;
    for (int i = 0; i < plain.size(); ++i) {
      double lp = p[i] - log_p;
      divergence += std::exp(lp) * (lp - (q[i] - log_q));
      sums.difference += (double{p[i]} - q[i]) * (double{p[i]} - q[i]);
      sums.norm += double{p[i]} * p[i];
    }
    sums.divergence += divergence;
    sums.plain_loss -= p[ids[t + 1]] - log_p;
    sums.loss -= q[ids[t + 1]] - log_q;
    ++sums.tokens;
  }
}

TEST(Accuracy, OfRoundedActivationsOnText) {
  auto file = environment("MLXX_TEST_GGUF");
  if (!file && !environment("MLXX_HOME")) {
    GTEST_SKIP() << "neither MLXX_TEST_GGUF nor MLXX_HOME is set";
  }
  auto path = file ? std::filesystem::path(*file)
                   : hub::resolve_model(hub::kDefaultModel);
  auto pipeline = load_pipeline(hub::open_checkpoint(path));
  auto texts = passages(pipeline);
  pipeline.model.reset();
  auto plain = load(*pipeline.checkpoint, std::nullopt);
  struct Form {
    ActivationForm form;
    double divergence;
    double perplexity;  // relative
    std::shared_ptr<const models::Model> model = nullptr;
    Sums sums = {};
  };
  std::vector<Form> forms = {
      {ActivationForm::float32, 1e-8, 1e-5},
      {ActivationForm::int16, 1e-5, 1e-3},
      {ActivationForm::int8, 2e-3, 5e-3}};
  for (auto& form : forms) {
    form.model = load(*pipeline.checkpoint, form.form);
  }
  for (const auto& ids : texts) {
    Logits expected(*plain, ids);
    for (auto& form : forms) {
      add(expected, Logits(*form.model, ids), ids, form.sums);
    }
  }
  for (const auto& form : forms) {
    const Sums& sums = form.sums;
    auto n = static_cast<double>(sums.tokens);
    EXPECT_GT(sums.tokens, 1900);
    double ratio = std::exp((sums.loss - sums.plain_loss) / n);
    double error = std::sqrt(sums.difference / sums.norm);
    std::printf(
        "%s: %lld tokens, perplexity %.4f (plain %.4f), KL %.3g, logits off "
        "by %.3g\n",
        std::string(kernels::to_string(form.form)).c_str(),
        static_cast<long long>(sums.tokens),
        std::exp(sums.loss / n),
        std::exp(sums.plain_loss / n),
        sums.divergence / n,
        error);
    EXPECT_LT(sums.divergence / n, form.divergence);
    EXPECT_LT(std::abs(ratio - 1), form.perplexity);
    if (form.form == ActivationForm::float32) {
      EXPECT_LT(error, 1e-5);
    }
  }
}

}  // namespace
}  // namespace mlxx::generate

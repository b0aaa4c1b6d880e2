#include "mlxx/eval/scored_rows.h"

#include <cmath>

#include <gtest/gtest.h>

#include "mlxx/adapters/mounted.h"
#include "mlxx/base/error.h"
#include "mlxx/eval/perplexity.h"
#include "tests/eval/tiny_pipeline.h"

namespace mlxx::eval {
namespace {

ScoredRow row_of(int size, int first_target, uint32_t seed) {
  ScoredRow row;
  for (int i = 0; i < size; ++i) {
    seed = seed * 1664525u + 1013904223u;
    row.tokens.push_back(static_cast<int32_t>(seed >> 8) % 250);
    row.targets.push_back(i >= first_target ? 1 : 0);
  }
  return row;
}

std::vector<ScoredRow> made_rows() {
  return {
      row_of(40, 1, 1),
      row_of(7, 3, 2),
      row_of(1, 1, 3),
      row_of(90, 60, 4),
      row_of(2, 1, 5),
      row_of(33, 33, 6),
      row_of(64, 1, 7),
      {}};
}

// -log p(token t) of one row by plain double arithmetic.
std::vector<double> expected_losses(
    const models::Model& model,
    const ScoredRow& row) {
  auto size = static_cast<int>(row.tokens.size());
  if (size == 0) {
    return {};
  }
  auto cache = model.make_cache({});
  mx::array logits = mx::contiguous(mx::astype(
      model.forward(mx::array(row.tokens.data(), {1, size}, mx::int32), cache),
      mx::float32));
  mx::eval(logits);
  int vocabulary = logits.shape(2);
  std::vector<double> out;
  for (int t = 1; t < size; ++t) {
    if (!row.targets[static_cast<size_t>(t)]) {
      continue;
    }
    const float* at = logits.data<float>() + (t - 1) * vocabulary;
    double sum = 0;
    for (int v = 0; v < vocabulary; ++v) {
      sum += std::exp(static_cast<double>(at[v]));
    }
    out.push_back(
        std::log(sum) -
        static_cast<double>(at[row.tokens[static_cast<size_t>(t)]]));
  }
  return out;
}

TEST(TargetLogprobs, AreThoseOfTheModelAtTheTargets) {
  auto pipeline = tiny_pipeline();
  auto rows = made_rows();
  auto values = target_logprobs({*pipeline.model}, rows, {});
  ASSERT_EQ(values.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    auto expected = expected_losses(*pipeline.model, rows[i]);
    ASSERT_EQ(values[i].size(), expected.size()) << i;
    for (size_t t = 0; t < expected.size(); ++t) {
      EXPECT_NEAR(-static_cast<double>(values[i][t]), expected[t], 2e-5);
    }
  }
}

TEST(TargetLogprobs, HaveTheSameBitsInEveryBatchAndPiece) {
  auto pipeline = tiny_pipeline();
  auto rows = made_rows();
  auto expected = target_logprobs({*pipeline.model}, rows, {.batch_size = 1});
  for (int batch_size : {2, 3, 8}) {
    for (size_t piece_bytes : {size_t{1}, size_t{20'000}, size_t{64} << 20}) {
      EXPECT_EQ(
          target_logprobs(
              {*pipeline.model},
              rows,
              {.batch_size = batch_size, .piece_bytes = piece_bytes}),
          expected)
          << batch_size << " rows, " << piece_bytes << " bytes";
    }
  }
}

TEST(TargetLogprobs, RefuseTokensOutsideTheVocabulary) {
  auto pipeline = tiny_pipeline();
  std::vector<ScoredRow> rows{{{1, 300}, {0, 1}}};
  EXPECT_THROW(target_logprobs({*pipeline.model}, rows, {}), Error);
  rows = {{{1, 2}, {1, 1}}};
  EXPECT_THROW(target_logprobs({*pipeline.model}, rows, {}), Error);
}

TEST(TargetLogprobs, CanBeStopped) {
  auto pipeline = tiny_pipeline();
  auto rows = made_rows();
  ScoreOptions options{.batch_size = 1};
  int64_t last = 0;
  options.progress = [&](int64_t done, int64_t all) {
    EXPECT_EQ(done, last + 1);
    EXPECT_EQ(all, 5);
    last = done;
  };
  target_logprobs({*pipeline.model}, rows, options);
  EXPECT_EQ(last, 5);
  options.progress = [](int64_t, int64_t) {
    fail(ErrorKind::cancelled, "test", "stopped");
  };
  EXPECT_THROW(target_logprobs({*pipeline.model}, rows, options), Error);
}

TEST(Perplexity, WeighsEveryTokenAlike) {
  auto pipeline = tiny_pipeline();
  std::vector<ScoredRow> rows{row_of(5, 1, 1), row_of(300, 1, 2)};
  double sum = 0;
  for (const ScoredRow& row : rows) {
    for (double loss : expected_losses(*pipeline.model, row)) {
      sum += loss;
    }
  }
  PerplexityReport report = perplexity({*pipeline.model}, rows, {});
  EXPECT_EQ(report.tokens, 4 + 299);
  EXPECT_EQ(report.windows, 2);
  EXPECT_NEAR(report.loss.mean, sum / 303, 1e-5);
  EXPECT_NEAR(report.perplexity.mean, std::exp(sum / 303), 5e-3);
  EXPECT_LT(report.perplexity.low, report.perplexity.mean);
  EXPECT_GT(report.perplexity.high, report.perplexity.mean);
  std::vector<ScoredRow> none{row_of(5, 5, 1)};
  EXPECT_THROW(perplexity({*pipeline.model}, none, {}), Error);
}

TEST(Divergence, IsNothingBetweenAModelAndItself) {
  auto pipeline = tiny_pipeline();
  auto rows = made_rows();
  auto report = divergence({*pipeline.model}, {*pipeline.model}, rows, {});
  EXPECT_EQ(report.mean.mean, 0);
  EXPECT_EQ(report.largest, 0);
  EXPECT_EQ(report.same_top.mean, 1);
  EXPECT_EQ(report.loss_change.mean, 0);
}

TEST(Divergence, IsThatOfTheDistributions) {
  auto pipeline = tiny_pipeline();
  auto other = models::random_checkpoint(tiny_config());
  other.add("model.norm.weight", mx::multiply(mx::ones({64}), mx::array(3.0f)));
  auto model = models::load_model(other, models::LoadOptions{});
  std::vector<ScoredRow> rows{row_of(30, 1, 1), row_of(12, 4, 2)};
  auto report = divergence({*pipeline.model}, {*model}, rows, {});
  double kl = 0;
  double change = 0;
  int same = 0;
  int count = 0;
  for (const ScoredRow& row : rows) {
    auto size = static_cast<int>(row.tokens.size());
    mx::array ids(row.tokens.data(), {1, size}, mx::int32);
    std::vector<mx::array> logits;
    for (const models::Model* each : {pipeline.model.get(), model.get()}) {
      auto cache = each->make_cache({});
      logits.push_back(
          mx::contiguous(mx::astype(each->forward(ids, cache), mx::float32)));
    }
    mx::eval(logits);
    for (int t = 1; t < size; ++t) {
      if (!row.targets[static_cast<size_t>(t)]) {
        continue;
      }
      const float* a = logits[0].data<float>() + (t - 1) * 300;
      const float* b = logits[1].data<float>() + (t - 1) * 300;
      double sum_a = 0;
      double sum_b = 0;
      for (int v = 0; v < 300; ++v) {
        sum_a += std::exp(static_cast<double>(a[v]));
        sum_b += std::exp(static_cast<double>(b[v]));
      }
      for (int v = 0; v < 300; ++v) {
        double log_a = static_cast<double>(a[v]) - std::log(sum_a);
        double log_b = static_cast<double>(b[v]) - std::log(sum_b);
        kl += std::exp(log_a) * (log_a - log_b);
        if (v == row.tokens[static_cast<size_t>(t)]) {
          change += log_a - log_b;
        }
      }
      same +=
          std::max_element(a, a + 300) - a == std::max_element(b, b + 300) - b
          ? 1
          : 0;
      ++count;
    }
  }
  EXPECT_EQ(report.tokens, count);
  EXPECT_GT(kl, 0);
  EXPECT_NEAR(report.mean.mean, kl / count, 1e-5 + 1e-4 * kl / count);
  EXPECT_NEAR(report.loss_change.mean, change / count, 1e-4);
  EXPECT_NEAR(report.same_top.mean, static_cast<double>(same) / count, 1e-12);
  EXPECT_LE(report.median, report.p90);
  EXPECT_LE(report.p90, report.p99);
  EXPECT_LE(report.p99, report.largest);
}

// With and without an adapter of one linear layer.
TEST(Divergence, OfAnAdapterIsTheSameInEveryBatch) {
  auto pipeline = tiny_pipeline();
  adapters::MountedAdapters mounted(
      pipeline.model,
      kernels::select_from_environment());
  auto mount = [&](const char* name, float scale) {
    adapters::AdapterFile file{.format = "mlx-lm", .modules = {}};
    file.modules.push_back(
        {.module = "model.layers.0.mlp.up_proj",
         .a = mx::random::normal({64, 4}, mx::float32, mx::random::key(1)),
         .b = mx::random::normal({4, 128}, mx::float32, mx::random::key(2)),
         .scale = scale,
         .magnitude = std::nullopt});
    mounted.mount(name, std::move(file));
  };
  mount("nothing", 0);
  mount("much", 0.5f);
  auto with = [&](const char* name) {
    auto stack = mounted.find(name);
    return Subject{*pipeline.model, [stack](int rows) {
                     return adapters::adapters_of_rows(
                         std::vector(static_cast<size_t>(rows), stack));
                   }};
  };
  auto rows = made_rows();
  auto none = divergence({*pipeline.model}, with("nothing"), rows, {});
  EXPECT_EQ(none.largest, 0);
  auto much = divergence({*pipeline.model}, with("much"), rows, {});
  EXPECT_GT(much.mean.mean, 0.01);
  auto expected = target_logprobs(with("much"), rows, {.batch_size = 1});
  EXPECT_EQ(target_logprobs(with("much"), rows, {.batch_size = 5}), expected);
  EXPECT_NE(target_logprobs({*pipeline.model}, rows, {}), expected);
}

TEST(Divergence, NeedsOneVocabulary) {
  auto pipeline = tiny_pipeline();
  Json config = tiny_config();
  config["vocab_size"] = 280;
  auto other = models::random_checkpoint(config);
  auto model = models::load_model(other, models::LoadOptions{});
  auto rows = made_rows();
  EXPECT_THROW(divergence({*pipeline.model}, {*model}, rows, {}), Error);
}

}  // namespace
}  // namespace mlxx::eval

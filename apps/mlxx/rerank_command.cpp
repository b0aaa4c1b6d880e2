#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/kernel_options.h"
#include "apps/mlxx/text_inputs.h"
#include "mlxx/base/error.h"
#include "mlxx/embed/reranker.h"
#include "mlxx/hub/resolve.h"

namespace mlxx::apps {
namespace {

struct RerankCommandOptions {
  std::string model;
  std::string query;
  TextInputOptions documents;
  embed::RerankOptions rerank;
  int top = 0;
  bool json = false;
  KernelOptions kernels;
};

// Best first by the only score; in their own order where there are several.
std::vector<int> order_of(const mx::array& scores) {
  std::vector<int> order(scores.shape(0));
  std::iota(order.begin(), order.end(), 0);
  if (scores.shape(1) == 1) {
    std::ranges::stable_sort(order, std::greater(), [&](int i) {
      return scores.data<float>()[i];
    });
  }
  return order;
}

std::string json_report(
    const RerankCommandOptions& options,
    const embed::Reranker& reranker,
    const embed::Scores& scores,
    const std::vector<std::string>& documents,
    const std::vector<int>& order) {
  int labels = scores.values.shape(1);
  OrderedJson results = OrderedJson::array();
  for (int i : order) {
    const float* row = scores.values.data<float>() + int64_t{i} * labels;
    OrderedJson result = {{"index", i}};
    if (labels == 1) {
      result["relevance_score"] = row[0];
    } else {
      OrderedJson named = OrderedJson::array();
      for (int j = 0; j < labels; ++j) {
        const auto& names = reranker.label_names();
        named.push_back(
            {{"label", names.empty() ? fmt::format("LABEL_{}", j) : names[j]},
             {"score", row[j]}});
      }
      result["scores"] = named;
    }
    result["document"] = {{"text", documents[i]}};
    results.push_back(result);
  }
  OrderedJson report = {
      {"model", options.model},
      {"results", results},
      {"usage", {{"total_tokens", scores.tokens}}}};
  return report.dump(2, ' ', false, OrderedJson::error_handler_t::replace) +
      "\n";
}

std::string text_report(
    const embed::Scores& scores,
    const std::vector<std::string>& documents,
    const std::vector<int>& order) {
  std::string text;
  int labels = scores.values.shape(1);
  for (int i : order) {
    const float* row = scores.values.data<float>() + int64_t{i} * labels;
    for (int j = 0; j < labels; ++j) {
      text += fmt::format("{:.6f}  ", row[j]);
    }
    text += fmt::format("{}  {}\n", i, documents[i]);
  }
  return text;
}

int run(const RerankCommandOptions& options) {
  auto documents = read_texts(options.documents);
  models::LoadOptions load_options;
  load_options.kernels = options.kernels.selection();
  auto reranker =
      embed::Reranker::load(hub::resolve_model(options.model), load_options);
  auto scores = reranker->score(options.query, documents, options.rerank);
  for (size_t i = 0; i < scores.values.size(); ++i) {
    if (!std::isfinite(scores.values.data<float>()[i])) {
      fail(
          ErrorKind::internal,
          "rerank",
          "score {} is {}",
          i,
          scores.values.data<float>()[i]);
    }
  }
  auto order = order_of(scores.values);
  if (options.top > 0) {
    order.resize(std::min<size_t>(order.size(), options.top));
  }
  print(
      options.json
          ? json_report(options, *reranker, scores, documents, order)
          : for_display(Stream::out, text_report(scores, documents, order)));
  return kExitSuccess;
}

}  // namespace

void add_rerank_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<RerankCommandOptions>();
  CLI::App* verb = app.add_subcommand(
      "rerank",
      "Order documents by how well they answer a query");
  verb->add_option("-m,--model", options->model, "Cross-encoder")->required();
  verb->add_option("QUERY", options->query, "What is looked for")->required();
  add_text_input_options(*verb, options->documents, "document");
  verb->add_option("--top", options->top, "Show only the N best")
      ->check(CLI::Range(1, 1 << 24));
  verb->add_option(
          "--max-tokens",
          options->rerank.max_tokens,
          "Cut pairs off here (default: what the model takes)")
      ->check(CLI::Range(1, 1 << 24));
  verb->add_flag(
      "--raw-scores",
      options->rerank.raw_scores,
      "The model's numbers as they are, not from 0 to 1");
  verb->add_flag("--json", options->json, "Print one JSON object");
  add_kernel_options(*verb, options->kernels);
  verb->footer(
      "Examples:\n"
      "  mlxx rerank -m org/repo \"capital of France\" \"Paris is\" \"Rome "
      "is\"\n"
      "  mlxx rerank -m org/repo \"my question\" -f pages.txt --top 3 --json");
  on_run(verb, context, [options] { return run(*options); });
}

}  // namespace mlxx::apps

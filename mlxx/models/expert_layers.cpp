#include "mlxx/models/expert_layers.h"

#include <charconv>

#include "mlxx/base/error.h"

namespace mlxx::models {
namespace {

constexpr int kMostExperts = 1 << 16;
constexpr int kMostShared = 64;

}  // namespace

DecoderLayers layers_with_networks(
    const DecoderSpec& spec,
    const NetworkOfLayer& network) {
  DecoderLayers layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    layers.push_back(std::make_unique<nn::TransformerBlock>(
        spec.layers[i],
        network(static_cast<int>(i))));
  }
  return layers;
}

ExpertCounts read_expert_counts(
    const DecoderConfig& config,
    std::string_view experts_key,
    std::string_view per_token_key) {
  ExpertCounts counts;
  counts.experts =
      static_cast<int>(config.view().integer(experts_key, 1, kMostExperts));
  counts.per_token =
      static_cast<int>(config.view().integer(per_token_key, 1, counts.experts));
  return counts;
}

nn::SparseMlpSpec read_grouped_experts(const DecoderConfig& config) {
  const JsonView& view = config.view();
  auto method = view.string_or("topk_method", "noaux_tc");
  if (method != "noaux_tc") {
    fail(
        ErrorKind::unsupported,
        view.place(),
        "topk_method '{}'; known: noaux_tc",
        method);
  }
  auto counts = read_expert_counts(config, "n_routed_experts");
  nn::GroupedSigmoidOptions options;
  options.top_k = counts.per_token;
  options.groups =
      static_cast<int>(view.integer_or("n_group", 1, 1, counts.experts));
  options.groups_kept =
      static_cast<int>(view.integer_or("topk_group", 1, 1, options.groups));
  // Groups are ranked by their two best.
  if (options.groups > 1 &&
      (counts.experts % options.groups != 0 ||
       counts.experts < 2 * options.groups)) {
    view.fail_at(
        "n_group",
        fmt::format(
            "is {}, which makes no groups of two or more of {} experts",
            options.groups,
            counts.experts));
  }
  options.scale = config.number_or("routed_scaling_factor", 1);
  options.renormalize = config.flag_or("norm_topk_prob", true);

  nn::SparseMlpSpec mixture;
  int size = config.size("moe_intermediate_size");
  mixture.experts = {
      .experts = counts.experts,
      .hidden_size = config.size("hidden_size"),
      .intermediate_size = size};
  if (view.has("n_shared_experts")) {
    mixture.shared = nn::SharedExpert::added;
    mixture.shared_size = size *
        static_cast<int>(view.integer("n_shared_experts", 1, kMostShared));
  }
  mixture.correction_name = "gate.e_score_correction_bias";
  mixture.route = [options](const nn::RouterInput& input) {
    return nn::grouped_sigmoid(input.logits, *input.correction, options);
  };
  return mixture;
}

void drop_further_layers(hub::TensorRewrite& tensors) {
  constexpr std::string_view kStart = "model.layers.";
  auto layers = JsonView(tensors.config(), "config.json")
                    .integer("num_hidden_layers", 1, INT32_MAX);
  tensors.drop_each(
      [&](std::string_view name) {
        if (!name.starts_with(kStart)) {
          return false;
        }
        name.remove_prefix(kStart.size());
        int64_t layer = 0;
        auto read =
            std::from_chars(name.data(), name.data() + name.size(), layer);
        return read.ec == std::errc() && layer >= layers;
      },
      "multi-token prediction");
}

void stack_experts(
    hub::TensorRewrite& tensors,
    std::string_view from,
    std::string_view to,
    std::string_view count_key,
    ExpertNames names) {
  struct Names {
    std::string_view spoken;
    std::string_view numbered;
  };
  JsonView config(tensors.config(), "config.json");
  for (const Names& name :
       {Names{"gate_proj", "w1"},
        Names{"up_proj", "w3"},
        Names{"down_proj", "w2"}}) {
    std::string pattern = fmt::format(
        "{}.{{e}}.{}.weight",
        from,
        names == ExpertNames::spoken ? name.spoken : name.numbered);
    tensors.stack_experts(
        pattern,
        config.integer(count_key, 1, kMostExperts),
        fmt::format("{}.{}.weight", to, name.spoken));
  }
}

}  // namespace mlxx::models

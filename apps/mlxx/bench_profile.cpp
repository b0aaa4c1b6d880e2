#include "apps/mlxx/bench_profile.h"

#include <nlohmann/json.hpp>

#include "mlxx/cache/states.h"
#include "mlxx/core/memory.h"

namespace mlxx::apps {
namespace {

// Part of `whole` in percent; 0 of nothing.
double percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

Json to_json(const StepProfile& profile) {
  const Profile& sum = profile.sum;
  int steps = profile.steps;
  Json ops = Json::array();
  for (const OpTime& op : sum.ops) {
    ops.push_back(
        {{"name", op.name},
         {"count", static_cast<double>(op.count) / steps},
         {"ms", op.seconds * 1e3 / steps},
         {"percent", percent(op.seconds, sum.seconds())},
         {"bytes", op.bytes / steps}});
  }
  return {
      {"tokens", profile.tokens},
      {"steps", steps},
      {"ms", sum.seconds() * 1e3 / steps},
      {"ops", std::move(ops)}};
}

std::string
to_table(const StepProfile& profile, std::string_view title, double overhead) {
  const Profile& sum = profile.sum;
  int steps = profile.steps;
  double count = static_cast<double>(sum.count()) / steps;
  std::string table = fmt::format(
      "\n{}: {:.2f} ms in {:.0f} operations run one by one, about {:.2f} ms of "
      "it to start them and wait\n"
      "{:<24} {:>7} {:>9} {:>7} {:>9}\n",
      title,
      sum.seconds() * 1e3 / steps,
      count,
      count * overhead * 1e3,
      "operation",
      "count",
      "ms",
      "share",
      "MB");
  for (const OpTime& op : sum.ops) {
    table += fmt::format(
        "{:<24} {:>7.0f} {:>9.3f} {:>5.1f} % {:>9.1f}\n",
        op.name,
        static_cast<double>(op.count) / steps,
        op.seconds * 1e3 / steps,
        percent(op.seconds, sum.seconds()),
        op.bytes / 1e6 / steps);
  }
  return table;
}

}  // namespace

std::vector<mx::array> with_cache_state(
    const mx::array& value,
    const cache::CacheList& cache) {
  std::vector<mx::array> pending = cache::states(cache);
  pending.insert(pending.begin(), value);
  return pending;
}

BenchProfile profile_model(
    const models::Model& model,
    const std::vector<int32_t>& prompt,
    int steps) {
  BenchProfile result;
  result.overhead = profile_overhead();
  // A decoder that is one kernel has no operations to tell apart.
  auto cache = model.make_cache({.per_layer = true});
  if (!prompt.empty()) {
    int n = static_cast<int>(prompt.size());
    mx::array ids(prompt.data(), {1, n}, mx::int32);
    auto pending = with_cache_state(model.forward_last(ids, cache), cache);
    result.prefill = {profile(pending), 1, n};
    clear_cache();
  }
  if (steps > 0) {
    StepProfile& decode = result.decode.emplace();
    decode.steps = steps;
    decode.tokens = steps;
    int32_t token = 1 % model.summary().vocab_size;
    for (int i = 0; i < steps; ++i) {
      mx::array ids(&token, {1, 1}, mx::int32);
      mx::array next = mx::argmax(model.forward_last(ids, cache), -1);
      decode.sum.add(profile(with_cache_state(next, cache)));
      token = static_cast<int32_t>(next.item<uint32_t>());
    }
  }
  return result;
}

std::string format_bench_profile(const BenchProfile& profile) {
  std::string text;
  if (profile.prefill) {
    text += to_table(
        *profile.prefill,
        fmt::format("prompt, a chunk of {} tokens", profile.prefill->tokens),
        profile.overhead);
  }
  if (profile.decode) {
    text += to_table(
        *profile.decode,
        fmt::format("decode, mean of {} steps", profile.decode->steps),
        profile.overhead);
  }
  return text;
}

Json bench_profile_json(const BenchProfile& profile) {
  Json json = {{"overhead_ms_per_op", profile.overhead * 1e3}};
  if (profile.prefill) {
    json["prefill"] = to_json(*profile.prefill);
  }
  if (profile.decode) {
    json["decode"] = to_json(*profile.decode);
  }
  return json;
}

}  // namespace mlxx::apps

#include "mlxx/engine/fed_tokens.h"

#include <algorithm>
#include <cmath>

namespace mlxx::engine {

mx::array fed_tokens(std::span<const std::shared_ptr<RowState>> rows) {
  std::vector<mx::array> sources;
  std::vector<int32_t> known;
  std::vector<std::pair<size_t, int32_t>> places;  // source, index
  constexpr size_t kKnown = static_cast<size_t>(-1);
  for (const auto& row : rows) {
    if (row->unread.empty()) {
      places.emplace_back(kKnown, static_cast<int32_t>(known.size()));
      known.push_back(row->tokens.back());
      continue;
    }
    const auto& newest = row->unread.back();
    auto found = std::ranges::find_if(sources, [&](const mx::array& source) {
      return source.id() == newest.tokens.id();
    });
    places.emplace_back(found - sources.begin(), newest.index);
    if (found == sources.end()) {
      sources.push_back(newest.tokens);
    }
  }
  auto count = static_cast<int>(rows.size());
  if (sources.empty()) {
    return mx::array(known.begin(), {count}, mx::int32);
  }
  std::vector<int32_t> starts;
  int32_t total = 0;
  for (const auto& source : sources) {
    starts.push_back(total);
    total += static_cast<int32_t>(source.size());
  }
  std::vector<int32_t> index;
  bool in_order = true;
  for (const auto& [source, place] : places) {
    index.push_back((source == kKnown ? total : starts[source]) + place);
    in_order = in_order && index.back() == std::ssize(index) - 1;
  }
  if (!known.empty()) {
    auto width = static_cast<int>(known.size());
    sources.emplace_back(known.begin(), mx::Shape{width}, mx::int32);
    total += width;
  }
  mx::array all = sources.size() == 1 ? sources[0] : mx::concatenate(sources);
  return in_order && total == count
      ? all
      : mx::take(all, mx::array(index.begin(), {count}, mx::int32));
}

int32_t token_at(const mx::array& tokens, int index) {
  mx::array all = tokens;
  mx::eval(all);
  if (!all.flags().row_contiguous) {
    all = mx::contiguous(all);
    mx::eval(all);
  }
  return all.data<int32_t>()[index];
}

std::vector<Chosen> read_chosen(
    const ChosenTokens& chosen,
    std::span<const std::shared_ptr<RowState>> rows) {
  // The step after this one is in the device's queue already: no operation may
  // be added behind it, only waited for what was enqueued with the choice.
  mx::eval(chosen.arrays());
  auto on_host = [](const mx::array& a) {
    return a.flags().row_contiguous ? a : mx::contiguous(a);
  };
  mx::array tokens = on_host(chosen.tokens);
  mx::array check = on_host(chosen.check);
  std::vector<mx::array> needed{tokens, check};
  auto also = [&](const std::optional<mx::array>& a) {
    std::optional<mx::array> host;
    if (a) {
      host = on_host(*a);
      needed.push_back(*host);
    }
    return host;
  };
  auto logprobs = also(chosen.logprobs);
  auto top_tokens = also(chosen.top_tokens);
  auto top_logprobs = also(chosen.top_logprobs);
  mx::eval(needed);
  std::vector<Chosen> result;
  for (size_t row = 0; row < rows.size(); ++row) {
    Chosen one;
    one.token.token = tokens.data<int32_t>()[row];
    one.finite = std::isfinite(check.data<float>()[row]);
    const auto& wanted = rows[row]->settings.top_logprobs;
    if (wanted && logprobs) {
      one.token.logprob = logprobs->data<float>()[row];
    }
    if (wanted && *wanted > 0 && top_tokens) {
      auto width = static_cast<size_t>(top_tokens->shape(1));
      size_t count = std::min(width, static_cast<size_t>(*wanted));
      for (size_t i = 0; i < count; ++i) {
        one.token.top.push_back(
            {top_tokens->data<int32_t>()[row * width + i],
             top_logprobs->data<float>()[row * width + i]});
      }
    }
    result.push_back(std::move(one));
  }
  return result;
}

}  // namespace mlxx::engine

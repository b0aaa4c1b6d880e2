#include "mlxx/train/joined_update.h"

#include <algorithm>

namespace mlxx::train {

namespace {

constexpr const char* kParameters = "parameters";

std::vector<mx::array> parts_of(
    const mx::array& row,
    const std::vector<mx::array>& like) {
  std::vector<mx::array> parts;
  parts.reserve(like.size());
  int at = 0;
  for (const auto& array : like) {
    const int end = at + static_cast<int>(array.size());
    parts.push_back(mx::reshape(mx::slice(row, {at}, {end}), array.shape()));
    at = end;
  }
  return parts;
}

}  // namespace

mx::array joined(const std::vector<mx::array>& arrays) {
  std::vector<mx::array> flat;
  flat.reserve(arrays.size());
  for (const auto& array : arrays) {
    flat.push_back(mx::flatten(array));
  }
  return mx::concatenate(flat, 0);
}

mx::array JoinedUpdate::row_of(
    const std::string& what,
    std::vector<mx::array> parts) const {
  const auto found = rows_.find(what);
  if (found != rows_.end() &&
      std::ranges::equal(
          found->second.parts,
          parts,
          {},
          &mx::array::id,
          &mx::array::id)) {
    return found->second.all;
  }
  return joined(parts);
}

std::vector<mx::array> JoinedUpdate::apply(
    const UpdateRule& rule,
    const std::vector<mx::array>& gradients,
    const std::vector<mx::array>& parameters,
    const std::vector<NamedArrays*>& states,
    const UpdateStep& step) {
  NamedArrays state = *states.front();
  for (size_t k = 0; k < state.size(); ++k) {
    std::vector<mx::array> parts;
    for (const NamedArrays* one : states) {
      parts.push_back((*one)[k].second);
    }
    state[k].second = row_of(state[k].first, std::move(parts));
  }
  const mx::array row = rule.apply(
      joined(gradients),
      row_of(kParameters, parameters),
      state,
      step);
  rows_.clear();
  for (size_t k = 0; k < state.size(); ++k) {
    const auto& [name, all] = state[k];
    auto parts = parts_of(all, parameters);
    for (size_t i = 0; i < states.size(); ++i) {
      (*states[i])[k].second = parts[i];
    }
    rows_.insert({name, Row{std::move(parts), all}});
  }
  auto updated = parts_of(row, parameters);
  rows_.insert({kParameters, Row{updated, row}});
  return updated;
}

}  // namespace mlxx::train

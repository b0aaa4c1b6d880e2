#include "mlxx/models/model.h"

#include "mlxx/cache/joined_rows.h"

namespace mlxx::models {

mx::array Model::forward_rows(
    const mx::array& tokens,
    std::span<cache::CacheList* const> rows) const {
  if (tokens.ndim() != 1 || rows.empty() ||
      static_cast<size_t>(tokens.shape(0)) != rows.size()) {
    fail(
        ErrorKind::internal,
        "rows",
        "{} tokens for {} sequences",
        tokens.size(),
        rows.size());
  }
  mx::array column = mx::reshape(tokens, {tokens.shape(0), 1});
  if (rows.size() == 1) {
    return forward_last(column, *rows[0]);
  }
  cache::JoinedRows joined(rows);
  mx::array logits = forward_last(column, joined.caches());
  joined.give_rows();
  return logits;
}

bool Model::append_prompts(
    const mx::array&,
    std::span<const int>,
    std::span<cache::CacheList* const>) const {
  return false;
}

void Model::visit(const ConstParameterVisitor& visitor) const {
  // The visitor below hands each parameter on as const, so nothing of this
  // object changes; a second list of names would be the alternative.
  auto& self = const_cast<Model&>(*this);
  self.visit(
      ParameterVisitor([&](const std::string& name, Parameter& parameter) {
        visitor(name, parameter);
      }));
}

}  // namespace mlxx::models

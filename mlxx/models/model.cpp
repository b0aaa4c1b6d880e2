#include "mlxx/models/model.h"

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
  std::vector<mx::array> logits;
  for (int row = 0; row < tokens.shape(0); ++row) {
    auto token = mx::reshape(mx::slice(tokens, {row}, {row + 1}), {1, 1});
    logits.push_back(forward_last(token, *rows[row]));
  }
  return logits.size() == 1 ? logits[0] : mx::concatenate(logits, 0);
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

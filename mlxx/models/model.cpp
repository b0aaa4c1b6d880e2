#include "mlxx/models/model.h"

namespace mlxx::models {

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

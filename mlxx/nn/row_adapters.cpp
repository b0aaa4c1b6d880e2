#include "mlxx/nn/row_adapters.h"

#include "mlxx/base/error.h"

namespace mlxx::nn {
namespace {

thread_local const RowAdapters* active = nullptr;

}  // namespace

std::vector<std::shared_ptr<const kernels::DecoderChanges>>
RowAdapters::changes_of_decoder(const kernels::DecoderWeights&, int) const {
  fail(
      ErrorKind::internal,
      "adapters",
      "that want layer by layer are asked by a decoder that is one program");
}

AdapterScope::AdapterScope(const RowAdapters* adapters) : outer_(active) {
  active = adapters;
}

AdapterScope::~AdapterScope() {
  active = outer_;
}

const RowAdapters* active_adapters() {
  return active;
}

}  // namespace mlxx::nn

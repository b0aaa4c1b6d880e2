#include "mlxx/nn/row_adapters.h"

namespace mlxx::nn {
namespace {

thread_local const RowAdapters* active = nullptr;

}  // namespace

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

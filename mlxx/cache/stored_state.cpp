#include "mlxx/cache/stored_state.h"

#include "mlxx/base/error.h"

namespace mlxx::cache {
namespace {

constexpr const char* kPlace = "stored cache";

}  // namespace

void expect_stored(
    const StoredState& state,
    std::string_view kind,
    size_t numbers,
    size_t arrays,
    size_t parts) {
  if (state.kind != kind) {
    fail(
        ErrorKind::bad_file,
        kPlace,
        "a layer's state is '{}', the model's is '{}'",
        state.kind,
        kind);
  }
  if (state.numbers.size() < numbers || state.arrays.size() != arrays ||
      state.parts.size() != parts) {
    fail(
        ErrorKind::bad_file,
        kPlace,
        "a '{}' state has {} numbers, {} arrays and {} parts; {}, {} and {} "
        "are needed",
        kind,
        state.numbers.size(),
        state.arrays.size(),
        state.parts.size(),
        numbers,
        arrays,
        parts);
  }
}

int stored_number(
    const StoredState& state,
    size_t index,
    int64_t min,
    int64_t max) {
  int64_t value = state.numbers.at(index);
  if (value < min || value > max) {
    fail(
        ErrorKind::bad_file,
        kPlace,
        "number {} of a '{}' state is {}, from {} to {} is possible",
        index,
        state.kind,
        value,
        min,
        max);
  }
  return static_cast<int>(value);
}

void expect_stored_tokens(
    const StoredState& state,
    const mx::array& keys,
    const mx::array& values) {
  bool fits = keys.ndim() == 4 && values.ndim() == 4 &&
      keys.shape(0) == values.shape(0) && keys.shape(1) == values.shape(1) &&
      keys.shape(2) == values.shape(2) && keys.size() > 0;
  if (!fits) {
    fail(
        ErrorKind::bad_file,
        kPlace,
        "keys and values of a '{}' state do not fit together",
        state.kind);
  }
}

}  // namespace mlxx::cache

#include "mlxx/embed/row_rope.h"

#include <algorithm>
#include <cmath>

#include "mlxx/base/error.h"

namespace mlxx::embed {
namespace {

nn::Rotations fixed_rotations(const nn::Rope& rope) {
  auto rotations = rope.rotations();
  if (!rotations) {
    fail(
        ErrorKind::unsupported,
        "rope",
        "angles of the kind '{}' depend on the length",
        rope.name());
  }
  return *rotations;
}

template <typename Function>
mx::array table(
    const nn::Rotations& rotations,
    const TokenRows& rows,
    Function function) {
  int half = static_cast<int>(rotations.per_position.size());
  int longest = *std::ranges::max_element(rows.lengths());
  std::vector<float> values;
  values.reserve(static_cast<size_t>(longest) * half);
  for (int position = 0; position < longest; ++position) {
    for (double angle : rotations.per_position) {
      values.push_back(
          static_cast<float>(function(position * angle) * rotations.scale));
    }
  }
  mx::array all(values.data(), {longest, 1, half}, mx::float32);
  return mx::take(all, rows.position_ids(), 0);
}

}  // namespace

RowRotation::RowRotation(const nn::Rope& rope, const TokenRows& rows)
    : rotations_(fixed_rotations(rope)),
      cosines_(table(rotations_, rows, [](double a) { return std::cos(a); })),
      sines_(table(rotations_, rows, [](double a) { return std::sin(a); })) {}

mx::array RowRotation::operator()(const mx::array& x) const {
  int half = cosines_.shape(2);
  int size = x.shape(2);
  int tokens = x.shape(0);
  int heads = x.shape(1);
  auto part = [&](int from, int to, int step) {
    return mx::slice(x, {0, 0, from}, {tokens, heads, to}, {1, 1, step});
  };
  bool pairs = rotations_.pairs;
  mx::array a = pairs ? part(0, 2 * half, 2) : part(0, half, 1);
  mx::array b = pairs ? part(1, 2 * half, 2) : part(half, 2 * half, 1);
  // In float32 whatever the numbers are, and back.
  mx::array turned_a = mx::astype(
      mx::subtract(mx::multiply(a, cosines_), mx::multiply(b, sines_)),
      x.dtype());
  mx::array turned_b = mx::astype(
      mx::add(mx::multiply(a, sines_), mx::multiply(b, cosines_)),
      x.dtype());
  std::vector<mx::array> parts;
  if (pairs) {
    parts.push_back(mx::reshape(
        mx::stack({turned_a, turned_b}, -1),
        {tokens, heads, 2 * half}));
  } else {
    parts = {turned_a, turned_b};
  }
  if (size > 2 * half) {
    parts.push_back(part(2 * half, size, 1));
  }
  return mx::concatenate(parts, -1);
}

}  // namespace mlxx::embed

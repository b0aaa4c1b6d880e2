#include "op_call.h"

namespace mlxx::ops_oracle {

namespace {

// Without a key the default key of the thread is used, which the case seeds.
std::optional<mx::array> key_of(OpCall& call) {
  if (call.has("seed")) {
    mx::random::seed(call.unsigned_number("seed"));
  }
  return call.optional_array("key");
}

std::vector<mx::array> split(OpCall& call) {
  auto key = call.operand(0);
  if (call.has("num")) {
    return {mx::random::split(key, call.integer("num"), call.stream())};
  }
  auto [first, second] = mx::random::split(key, call.stream());
  return {mx::stack({first, second})};
}

std::vector<mx::array> uniform(OpCall& call) {
  auto key = key_of(call);
  return {mx::random::uniform(
      call.operand(0),
      call.operand(1),
      call.shape("shape"),
      call.dtype_or("dtype", mx::float32),
      key,
      call.stream())};
}

std::vector<mx::array> normal(OpCall& call) {
  auto key = key_of(call);
  return {mx::random::normal(
      call.shape("shape"),
      call.dtype_or("dtype", mx::float32),
      call.optional_array("loc"),
      call.optional_array("scale"),
      key,
      call.stream())};
}

std::vector<mx::array> randint(OpCall& call) {
  auto key = key_of(call);
  return {mx::random::randint(
      call.operand(0),
      call.operand(1),
      call.shape("shape"),
      call.dtype_or("dtype", mx::int32),
      key,
      call.stream())};
}

std::vector<mx::array> categorical(OpCall& call) {
  auto logits = call.operand(0);
  int axis = call.integer_or("axis", -1);
  auto key = key_of(call);
  if (call.has("shape")) {
    return {mx::random::categorical(
        logits,
        axis,
        call.shape("shape"),
        key,
        call.stream())};
  }
  if (call.has("num_samples")) {
    return {mx::random::categorical(
        logits,
        axis,
        call.integer("num_samples"),
        key,
        call.stream())};
  }
  return {mx::random::categorical(logits, axis, key, call.stream())};
}

// Draws twice: the default key is the one of the seed, and moves on.
std::vector<mx::array> seed(OpCall& call) {
  mx::random::seed(call.unsigned_number("seed"));
  auto first = mx::random::uniform({8}, mx::float32);
  auto second = mx::random::uniform({8}, mx::bfloat16);
  return {first, second};
}

}  // namespace

void add_random_ops(Ops& ops) {
  ops["random::categorical"] = categorical;
  ops["random::normal"] = normal;
  ops["random::randint"] = randint;
  ops["random::seed"] = seed;
  ops["random::split"] = split;
  ops["random::uniform"] = uniform;
  ops["random::key"] = [](OpCall& call) {
    auto seed = call.unsigned_number("seed");
    return std::vector{mx::random::key(seed)};
  };
  ops["random::bernoulli"] = [](OpCall& call) {
    auto key = key_of(call);
    return std::vector{
        call.has("shape")
            ? mx::random::bernoulli(
                  call.operand(0),
                  call.shape("shape"),
                  key,
                  call.stream())
            : mx::random::bernoulli(call.operand(0), key, call.stream())};
  };
  ops["random::gumbel"] = [](OpCall& call) {
    auto key = key_of(call);
    auto dtype = call.dtype_or("dtype", mx::float32);
    return std::vector{
        mx::random::gumbel(call.shape("shape"), dtype, key, call.stream())};
  };
}

}  // namespace mlxx::ops_oracle

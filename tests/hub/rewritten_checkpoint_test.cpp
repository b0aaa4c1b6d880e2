#include "mlxx/hub/rewritten_checkpoint.h"

#include <gtest/gtest.h>

#include "tests/core/error_of.h"
#include "tests/hub/memory_checkpoint.h"

namespace mlxx::hub {
namespace {

using Names = std::vector<std::string>;
using Shape = std::vector<int64_t>;

// 0, 1, 2... in a shape; quantized numbers need values that differ.
mx::array count_up(const mx::Shape& shape, float from = 0) {
  int n = 1;
  for (int size : shape) {
    n *= size;
  }
  return mx::reshape(
      mx::arange(from, from + static_cast<float>(n), 1.0),
      shape);
}

void expect_equal(const mx::array& a, const mx::array& b) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(a.dtype(), b.dtype());
  EXPECT_TRUE(mx::array_equal(a, b).item<bool>());
}

mx::array dense(const Weight& w, const Quantization& q) {
  return mx::dequantize(
      w.weight,
      *w.scales,
      w.biases,
      q.group_size,
      q.bits,
      q.mode);
}

class Rewriting : public ::testing::Test {
 protected:
  void add(const std::string& name, const mx::array& value) {
    source.add(name, value, "F32");
  }
  // What the tensor is as the finished checkpoint lists it.
  TensorInfo listed(const Checkpoint& model, const std::string& name) {
    for (const auto& info : model.tensors()) {
      if (info.name == name) {
        return info;
      }
    }
    ADD_FAILURE() << "no " << name;
    return {};
  }
  // Loads, after a look at whether the promised shape is the real one.
  mx::array load(const Checkpoint& model, const std::string& name) {
    Shape shape = listed(model, name).shape;
    mx::array value = model.load(name, {}).weight;
    EXPECT_EQ(Shape(value.shape().begin(), value.shape().end()), shape);
    EXPECT_TRUE(value.is_available());
    return value;
  }

  MemoryCheckpoint source;
};

TEST_F(Rewriting, NamesChangeAndNothingIsRead) {
  add("a.x.weight", count_up({2, 3}));
  add("a.y.weight", count_up({3}));
  add("z", count_up({1}));
  TensorRewrite rewrite(source);
  rewrite.rename_prefix("a.", "model.a.");
  rewrite.replace_in_names(".weight", ".w.w");
  rewrite.rename("z", "q");
  auto model = std::move(rewrite).finish();
  Names names;
  for (const auto& info : model->tensors()) {
    names.push_back(info.name);
  }
  EXPECT_EQ(names, (Names{"model.a.x.w.w", "model.a.y.w.w", "q"}));
  EXPECT_TRUE(source.loaded.empty());
  expect_equal(load(*model, "model.a.x.w.w"), count_up({2, 3}));
  EXPECT_EQ(source.loaded, Names{"a.x.weight"});
  EXPECT_ERROR(model->load("a.x.weight", {}), "not_found", "'a.x.weight'");
}

TEST_F(Rewriting, NamesMayBeExchangedButNotShared) {
  add("a", count_up({2}));
  add("b", count_up({3}));
  TensorRewrite rewrite(source);
  rewrite.rename_each([](std::string_view name) {
    return std::string(name == "a" ? "b" : "a");
  });
  EXPECT_EQ(rewrite.info("a").shape, (Shape{3}));
  EXPECT_ERROR(rewrite.rename("a", "b"), "bad_file", "'b'");
  EXPECT_ERROR(rewrite.rename("c", "d"), "bad_file", "'c' is missing");
}

TEST_F(Rewriting, WhatIsDroppedIsListedWithItsReason) {
  add("vision.a", count_up({2}));
  add("vision.b", count_up({2}));
  add("lm_head.weight", count_up({4}));
  add("model.norm", count_up({2}));
  TensorRewrite rewrite(source);
  rewrite.drop_prefix("vision.", "vision tower");
  rewrite.drop_tied_head();
  rewrite.drop_tied_head();
  auto model = std::move(rewrite).finish();
  EXPECT_EQ(model->tensors().size(), 1u);
  ASSERT_EQ(model->dropped().size(), 3u);
  EXPECT_EQ(model->dropped()[0].info.name, "lm_head.weight");
  EXPECT_EQ(model->dropped()[1].info.name, "vision.a");
  EXPECT_EQ(model->dropped()[1].reason, "vision tower");
}

TEST_F(Rewriting, ExpertsOfAllLayersAreStacked) {
  for (int layer : {1, 12}) {
    for (int e = 0; e < 11; ++e) {
      auto name = fmt::format("layers.{}.experts.{}.up.weight", layer, e);
      add(name, count_up({2, 3}, static_cast<float>(100 * layer + e)));
    }
  }
  add("layers.0.up.weight", count_up({2, 3}));
  TensorRewrite rewrite(source);
  EXPECT_EQ(rewrite.numbers("layers.{}.experts.0.up.weight"), (Shape{1, 12}));
  rewrite.stack_experts(
      "layers.{}.experts.{e}.up.weight",
      11,
      "layers.{}.switch.up.weight");
  auto model = std::move(rewrite).finish();
  EXPECT_EQ(model->tensors().size(), 3u);
  auto info = listed(*model, "layers.12.switch.up.weight");
  EXPECT_EQ(info.shape, (Shape{11, 2, 3}));
  EXPECT_EQ(info.nbytes, 11u * 24);
  mx::array stacked = load(*model, "layers.12.switch.up.weight");
  EXPECT_EQ(source.loaded.size(), 11u);
  // Expert 10 stands after 9, not after 1.
  expect_equal(mx::take(stacked, 10, 0), count_up({2, 3}, 1210));
}

TEST_F(Rewriting, AMissingOrOtherExpertIsNamed) {
  add("experts.0.up.weight", count_up({2, 3}));
  add("experts.1.up.weight", count_up({2, 4}));
  {
    TensorRewrite rewrite(source);
    EXPECT_ERROR(
        rewrite.stack_experts("experts.{e}.up.weight", 3, "up.weight"),
        "bad_file",
        "'experts.2.up.weight' is missing");
  }
  TensorRewrite rewrite(source);
  EXPECT_ERROR(
      rewrite.stack_experts("experts.{e}.up.weight", 2, "up.weight"),
      "bad_file",
      "'experts.1.up.weight' of shape [2, 4]");
}

TEST_F(Rewriting, QuantizedTensorsAreStackedSplitAndJoinedAlike) {
  for (Quantization q :
       {Quantization{32, 4, "affine"},
        Quantization{64, 3, "affine"},
        Quantization{32, 4, "mxfp4"}}) {
    MemoryCheckpoint packed;
    mx::array a = count_up({6, 128}), b = count_up({6, 128}, 500);
    packed.add_quantized("a.weight", a, q);
    packed.add_quantized("b.weight", b, q);
    Weight whole = packed.load("a.weight", {});
    mx::array numbers = dense(whole, q);

    TensorRewrite stacking(packed);
    stacking.stack({"a.weight", "b.weight"}, "s.weight");
    auto stacked = std::move(stacking).finish();
    EXPECT_EQ(listed(*stacked, "s.weight").shape, (Shape{2, 6, 128}));
    mx::array got = dense(stacked->load("s.weight", {}), q);
    expect_equal(mx::take(got, 0, 0), numbers);

    TensorRewrite splitting(packed);
    splitting.split("a.weight", 0, {1, 5}, {"k.weight", "v.weight"});
    splitting.split_interleaved("b.weight", 0, {"even.weight", "odd.weight"});
    auto split = std::move(splitting).finish();
    EXPECT_EQ(listed(*split, "v.weight").shape, (Shape{5, 128}));
    expect_equal(
        dense(split->load("v.weight", {}), q),
        mx::slice(numbers, {1, 0}, {6, 128}));
    expect_equal(
        dense(split->load("odd.weight", {}), q),
        mx::slice(
            dense(packed.load("b.weight", {}), q),
            {1, 0},
            {6, 128},
            {2, 1}));

    for (int axis : {0, -1}) {
      TensorRewrite cutting(packed);
      cutting.split_evenly("a.weight", axis, {"x", "y"});
      cutting.concatenate({"x", "y"}, axis, "a.weight");
      auto again = std::move(cutting).finish();
      EXPECT_EQ(listed(*again, "a.weight").shape, (Shape{6, 128}));
      Weight same = again->load("a.weight", {});
      expect_equal(same.weight, whole.weight);
      expect_equal(*same.scales, *whole.scales);
      EXPECT_EQ(same.biases.has_value(), q.mode == "affine");
    }
  }
}

TEST_F(Rewriting, PackedGroupsAreNotCut) {
  Quantization q{64, 4, "affine"};
  source.add_quantized("a.weight", count_up({4, 128}), q);
  TensorRewrite rewrite(source);
  EXPECT_ERROR(
      rewrite.split("a.weight", 1, {32, 96}, {"x", "y"}),
      "unsupported",
      "groups of 64");
  TensorRewrite turning(source);
  EXPECT_ERROR(
      turning.transpose("a.weight", {1, 0}),
      "unsupported",
      "last axis");
  TensorRewrite adding(source);
  EXPECT_ERROR(
      adding.apply("a.weight", [](const mx::array& a) { return a; }),
      "unsupported",
      "is quantized (U32 affine)");
}

TEST_F(Rewriting, AxesAreSplitTurnedAndReshaped) {
  mx::array x = count_up({4, 6, 2});
  add("a", x);
  add("b", x);
  add("c", x);
  add("d", x);
  TensorRewrite rewrite(source);
  rewrite.split("a", 1, {1, 2, 3}, {"a1", "a2", "a3"});
  rewrite.split_interleaved("b", -2, {"b0", "b1", "b2"});
  rewrite.move_axis("c", 2, 1);
  rewrite.reshape("d", {8, 6});
  rewrite.transpose("d", {1, 0});
  auto model = std::move(rewrite).finish();
  expect_equal(load(*model, "a2"), mx::slice(x, {0, 1, 0}, {4, 3, 2}));
  expect_equal(
      load(*model, "b1"),
      mx::slice(x, {0, 1, 0}, {4, 6, 2}, {1, 3, 1}));
  expect_equal(load(*model, "c"), mx::moveaxis(x, 2, 1));
  expect_equal(
      load(*model, "d"),
      mx::transpose(mx::reshape(x, {8, 6}), {1, 0}));
  EXPECT_EQ(listed(*model, "a3").nbytes, 96u);
}

TEST_F(Rewriting, APartDoesNotHoldTheWhole) {
  add("a", count_up({1024, 1024}));
  source.loaded.clear();
  TensorRewrite rewrite(source);
  rewrite.split("a", 0, {1, 1023}, {"small", "rest"});
  auto model = std::move(rewrite).finish();
  mx::array part = load(*model, "small");
  EXPECT_EQ(source.loaded, Names{"a"});
  EXPECT_LE(part.buffer_size(), size_t{16} << 10);
}

TEST_F(Rewriting, NumbersAreChangedWhereAsked) {
  source.add("w", mx::astype(count_up({3}), mx::bfloat16), "BF16");
  add("x", count_up({3}));
  TensorRewrite rewrite(source);
  rewrite.apply("w", [](const mx::array& w) {
    return mx::add(w, mx::array(1.0f, w.dtype()));
  });
  rewrite.apply("x", [](const mx::array& x) { return mx::sum(x); });
  auto model = std::move(rewrite).finish();
  expect_equal(load(*model, "w"), mx::astype(count_up({3}, 1), mx::bfloat16));
  EXPECT_ERROR(model->load("x", {}), "internal", "'x'");
}

TEST_F(Rewriting, BlocksAndScalesBecomeAMatrix) {
  Quantization q{32, 4, "mxfp4"};
  mx::array x = count_up({2, 4, 64});
  auto parts = mx::quantize(x, 32, 4, "mxfp4");
  mx::array bytes = mx::reshape(mx::view(parts[0], mx::uint8), {2, 4, 2, 16});
  source.add("up_blocks", bytes, "U8");
  source.add("up_scales", parts[1], "U8");
  TensorRewrite rewrite(source);
  rewrite.pack("up_blocks", "up_scales", q, "up.weight");
  rewrite.split_interleaved("up.weight", 1, {"gate.weight", "up.weight"});
  auto model = std::move(rewrite).finish();
  EXPECT_EQ(listed(*model, "gate.weight").shape, (Shape{2, 2, 64}));
  mx::array all = mx::dequantize(parts[0], parts[1], {}, 32, 4, "mxfp4");
  expect_equal(
      dense(model->load("up.weight", {}), q),
      mx::slice(all, {0, 1, 0}, {2, 4, 64}, {1, 2, 1}));

  source.add("bad_blocks", mx::zeros({2, 4, 2, 8}, mx::uint8), "U8");
  TensorRewrite refused(source);
  EXPECT_ERROR(
      refused.pack("bad_blocks", "up_scales", q, "bad.weight"),
      "bad_file",
      "'bad_blocks'");
}

TEST_F(Rewriting, ResultsOfACalculationAreChecked) {
  add("kv", count_up({4, 6}));
  auto half = [](int from) {
    return Derivation{
        .shape = {2, 6},
        .quantization = std::nullopt,
        .stored = "F32",
        .compute = [from](std::span<const Weight> in, const LoadDtype&) {
          return Weight{
              mx::slice(in[0].weight, {from, 0}, {from + 2, 6}),
              std::nullopt,
              std::nullopt};
        }};
  };
  TensorRewrite rewrite(source);
  rewrite.derive({"kv"}, {{"k", half(0)}, {"v", half(2)}});
  auto model = std::move(rewrite).finish();
  EXPECT_EQ(model->tensors().size(), 2u);
  expect_equal(load(*model, "v"), count_up({2, 6}, 12));
}

TEST_F(Rewriting, ShapesThatDoNotFitAreNamed) {
  add("a", count_up({4, 6}));
  auto expect = [&](auto&& edit, const std::string& part) {
    TensorRewrite rewrite(source);
    EXPECT_ERROR(edit(rewrite), "bad_file", part);
  };
  expect([](auto& r) { r.split("a", 0, {1, 2}, {"x", "y"}); }, "1 + 2");
  expect([](auto& r) { r.split("a", 2, {1}, {"x"}); }, "no axis 2");
  expect([](auto& r) { r.split("a", -3, {1}, {"x"}); }, "no axis -3");
  expect([](auto& r) { r.split("a", 0, {5, -1}, {"x", "y"}); }, "5 + -1");
  expect(
      [](auto& r) { r.split_evenly("a", 0, {"x", "y", "z"}); },
      "into 3 parts");
  expect([](auto& r) { r.transpose("a", {0, 0}); }, "no axes 0, 0");
  expect([](auto& r) { r.reshape("a", {5, 5}); }, "cannot become [5, 5]");
  expect([](auto& r) { r.move_axis("a", 2, 0); }, "no axis 2");
}

}  // namespace
}  // namespace mlxx::hub

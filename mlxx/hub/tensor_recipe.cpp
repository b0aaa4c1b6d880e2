#include "mlxx/hub/tensor_recipe.h"

#include <algorithm>
#include <numeric>

#include "mlxx/base/error.h"
#include "mlxx/core/materialize.h"
#include "mlxx/hub/tensor_recipe_checks.h"

namespace mlxx::hub {

namespace {

void evaluate(const Weight& weight) {
  std::vector<mx::array> arrays{weight.weight};
  for (const auto& part : {weight.scales, weight.biases, weight.global_scale}) {
    if (part) {
      arrays.push_back(*part);
    }
  }
  mx::eval(std::move(arrays));
}

// Shares nothing with what it was made of, which can then be let go.
Weight own(const Weight& weight) {
  Weight copy = for_each_part(weight, [](const mx::array& part) {
    return materialize_copy(part);
  });
  if (copy.global_scale) {
    copy.global_scale = materialize_copy(*copy.global_scale);
  }
  evaluate(copy);
  return copy;
}

class Taken : public TensorRecipe {
 public:
  Taken(const Checkpoint& source, const TensorInfo& info)
      : TensorRecipe(info), source_(source) {}
  Weight load(const LoadDtype& dtype) const override {
    return source_.load(info().name, dtype);
  }
  std::unique_ptr<const QuantizedRows> rows() const override {
    return source_.rows(info().name);
  }

 private:
  const Checkpoint& source_;
};

class Sliced : public TensorRecipe {
 public:
  Sliced(TensorInfo info, RecipePtr of, size_t axis, AxisRange range)
      : TensorRecipe(std::move(info)),
        of_(std::move(of)),
        axis_(axis),
        range_(range) {}

  Weight load(const LoadDtype& dtype) const override {
    Weight whole = of_->load(dtype);
    int64_t length = of_->info().shape[axis_];
    if (whole.global_scale && whole.global_scale->ndim() > 0 && axis_ == 0) {
      whole.global_scale = mx::slice(
          *whole.global_scale,
          {static_cast<int>(range_.begin)},
          {static_cast<int>(range_.end)},
          {static_cast<int>(range_.step)});
    }
    return own(for_each_part(whole, [&](const mx::array& part) {
      auto rank = part.ndim();
      mx::Shape start(rank, 0), stop = part.shape(), strides(rank, 1);
      // Words or groups of the last axis, where `length` counts numbers.
      auto scaled = [&](int64_t n) {
        return static_cast<int>(
            n * part.shape(static_cast<int>(axis_)) / length);
      };
      start[axis_] = scaled(range_.begin);
      stop[axis_] = scaled(range_.end);
      strides[axis_] = static_cast<int>(range_.step);
      return mx::slice(part, start, stop, strides);
    }));
  }

 private:
  RecipePtr of_;
  size_t axis_;
  AxisRange range_;
};

// A view of the same numbers, made contiguous.
class Viewed : public TensorRecipe {
 public:
  using View = std::function<mx::array(const mx::array&)>;
  Viewed(TensorInfo info, RecipePtr of, View view)
      : TensorRecipe(std::move(info)),
        of_(std::move(of)),
        view_(std::move(view)) {}
  Weight load(const LoadDtype& dtype) const override {
    return own(for_each_part(of_->load(dtype), view_));
  }

 private:
  RecipePtr of_;
  View view_;
};

class Packed : public TensorRecipe {
 public:
  Packed(TensorInfo info, RecipePtr blocks, RecipePtr scales)
      : TensorRecipe(std::move(info)),
        blocks_(std::move(blocks)),
        scales_(std::move(scales)) {}
  Weight load(const LoadDtype& dtype) const override {
    mx::array words = mx::view(blocks_->load(dtype).weight, mx::uint32);
    words = mx::flatten(words, -2, -1);
    Weight packed{words, scales_->load(dtype).weight, std::nullopt};
    evaluate(packed);
    return packed;
  }

 private:
  RecipePtr blocks_;
  RecipePtr scales_;
};

class Derived : public TensorRecipe {
 public:
  Derived(
      TensorInfo info,
      std::vector<RecipePtr> inputs,
      Derivation derivation,
      std::string place)
      : TensorRecipe(std::move(info)),
        inputs_(std::move(inputs)),
        derivation_(std::move(derivation)),
        place_(std::move(place)) {}

  Weight load(const LoadDtype& dtype) const override {
    std::vector<Weight> loaded;
    for (const auto& input : inputs_) {
      loaded.push_back(input->load(dtype));
    }
    Weight result = derivation_.compute(loaded, dtype);
    check(result);
    return own(result);
  }

 private:
  void check(const Weight& result) const {
    auto shape = info().shape;
    if (const auto& q = info().quantization) {
      shape.back() = shape.back() * q->bits / 32;
    }
    bool fits = std::ranges::equal(result.weight.shape(), shape) &&
        result.scales.has_value() == info().quantization.has_value();
    if (!fits) {
      fail(
          ErrorKind::internal,
          place_,
          "tensor '{}' was said to be {} and came out as {}",
          info().name,
          shape_text(shape),
          shape_text(result.weight.shape()));
    }
  }

  std::vector<RecipePtr> inputs_;
  Derivation derivation_;
  std::string place_;
};

}  // namespace

RecipePtr take_tensor(const Checkpoint& source, const TensorInfo& info) {
  return std::make_shared<Taken>(source, info);
}

RecipePtr slice_tensor(
    RecipePtr tensor,
    int axis,
    AxisRange range,
    const std::string& place) {
  TensorInfo info = tensor->info();
  size_t at = axis_of(info, axis, place);
  int64_t length = info.shape[at];
  if (range.begin < 0 || range.begin >= range.end || range.end > length ||
      range.step < 1) {
    fail_shape(
        place,
        info,
        fmt::format(
            "axis {} has no part from {} to {}",
            at,
            range.begin,
            range.end));
  }
  if (info.quantization && is_last(info, at)) {
    int64_t group = info.quantization->group_size;
    if (range.step != 1 || range.begin % group != 0 || range.end % group != 0) {
      fail(
          ErrorKind::unsupported,
          place,
          "tensor '{}' is packed in groups of {} and cannot be cut from {} to "
          "{} in steps of {}",
          info.name,
          group,
          range.begin,
          range.end,
          range.step);
    }
  }
  int64_t count = (range.end - range.begin + range.step - 1) / range.step;
  info.shape[at] = count;
  info.nbytes = info.nbytes / static_cast<uint64_t>(length) *
      static_cast<uint64_t>(count);
  return std::make_shared<Sliced>(info, std::move(tensor), at, range);
}

RecipePtr transpose_tensor(
    RecipePtr tensor,
    std::vector<int> permutation,
    const std::string& place) {
  TensorInfo info = tensor->info();
  std::vector<int> sorted = permutation;
  std::ranges::sort(sorted);
  std::vector<int> axes(info.shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (sorted != axes) {
    fail_shape(
        place,
        info,
        fmt::format("it has no axes {}", fmt::join(permutation, ", ")));
  }
  refuse_global_scale(info, place);
  if (info.quantization && permutation.back() != axes.back()) {
    fail(
        ErrorKind::unsupported,
        place,
        "tensor '{}' is packed along its last axis, which cannot be moved",
        info.name);
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    info.shape[i] = tensor->info().shape[static_cast<size_t>(permutation[i])];
  }
  return std::make_shared<Viewed>(
      info,
      std::move(tensor),
      [permutation](const mx::array& a) {
        return mx::transpose(a, permutation);
      });
}

RecipePtr reshape_tensor(
    RecipePtr tensor,
    std::vector<int64_t> shape,
    const std::string& place) {
  TensorInfo info = tensor->info();
  auto count = [](const std::vector<int64_t>& s) {
    return std::accumulate(
        s.begin(),
        s.end(),
        int64_t{1},
        std::multiplies<int64_t>());
  };
  bool fits = !shape.empty() && count(shape) == count(info.shape) &&
      (!info.quantization || shape.back() == info.shape.back()) &&
      std::ranges::all_of(shape, [](int64_t n) { return n <= INT32_MAX; });
  if (!fits) {
    fail_shape(place, info, "it cannot become " + shape_text(shape));
  }
  refuse_global_scale(info, place);
  info.shape = shape;
  mx::Shape lead(shape.begin(), shape.end() - 1);
  return std::make_shared<Viewed>(
      info,
      std::move(tensor),
      [lead](const mx::array& a) {
        mx::Shape to = lead;
        to.push_back(-1);
        return mx::reshape(a, to);
      });
}

RecipePtr pack_blocks(
    RecipePtr blocks,
    RecipePtr scales,
    const Quantization& q,
    const std::string& place) {
  const TensorInfo& numbers = blocks->info();
  auto lead = numbers.shape;
  if (!lead.empty()) {
    lead.pop_back();
  }
  bool fits = numbers.shape.size() >= 2 && numbers.stored == "U8" &&
      scales->info().stored == "U8" && scales->info().shape == lead &&
      numbers.shape.back() * 8 == int64_t{q.group_size} * q.bits;
  if (!fits) {
    fail_shape(
        place,
        numbers,
        fmt::format(
            "with scales {} this is no {} with {} bits in groups of {}",
            shape_text(scales->info().shape),
            q.mode,
            q.bits,
            q.group_size));
  }
  TensorInfo info = numbers;
  info.shape = lead;
  info.shape.back() *= q.group_size;
  info.stored = "U8 " + q.mode;
  info.nbytes += scales->info().nbytes;
  info.quantization = q;
  return std::make_shared<Packed>(info, std::move(blocks), std::move(scales));
}

RecipePtr derive_tensor(
    std::vector<RecipePtr> inputs,
    Derivation derivation,
    const std::string& place) {
  if (inputs.empty()) {
    fail(ErrorKind::invalid_request, place, "nothing to derive a tensor from");
  }
  TensorInfo info = inputs.front()->info();
  info.nbytes = 0;
  for (const auto& input : inputs) {
    info.nbytes += input->info().nbytes;
  }
  info.shape = derivation.shape;
  info.quantization = derivation.quantization;
  info.stored = derivation.stored;
  info.loads_as = derivation.loads_as;
  return std::make_shared<Derived>(
      info,
      std::move(inputs),
      std::move(derivation),
      place);
}

}  // namespace mlxx::hub

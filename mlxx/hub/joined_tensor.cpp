#include <algorithm>
#include <cstring>

#include "mlxx/core/host_array.h"
#include "mlxx/hub/tensor_recipe_checks.h"

namespace mlxx::hub {

namespace {

// Parts that stand one after the other along an axis, or that make a new
// first one.
class Joined : public TensorRecipe {
 public:
  Joined(
      TensorInfo info,
      std::vector<RecipePtr> parts,
      size_t axis,
      bool is_new_axis,
      std::string place)
      : TensorRecipe(std::move(info)),
        parts_(std::move(parts)),
        axis_(axis),
        is_new_axis_(is_new_axis),
        place_(std::move(place)) {}

  // Each part is copied into its place and let go before the next is read: one
  // part is in memory beside the whole.
  Weight load(const LoadDtype& dtype) const override {
    std::vector<Target> targets;
    std::vector<mx::array> global_scales;
    for (const auto& recipe : parts_) {
      Weight part = recipe->load(dtype);
      if (part.global_scale) {
        global_scales.push_back(mx::reshape(*part.global_scale, mx::Shape{}));
      }
      size_t at = 0;
      for_each_part(part, [&](const mx::array& a) {
        if (&recipe == &parts_.front()) {
          targets.push_back(make_target(a));
        }
        if (at >= targets.size()) {
          fail_shape(place_, recipe->info(), "it has more parts than others");
        }
        append(targets[at++], a, recipe->info());
        return a;
      });
      if (at != targets.size()) {
        fail_shape(place_, recipe->info(), "it has fewer parts than others");
      }
    }
    auto part = [&](size_t i) {
      return i < targets.size() ? std::optional(targets[i].out.array)
                                : std::nullopt;
    };
    std::optional<mx::array> global_scale;
    if (!global_scales.empty()) {
      global_scale = mx::stack(global_scales);
      global_scale->eval();
    }
    return {targets[0].out.array, part(1), part(2), global_scale};
  }

 private:
  struct Target {
    HostArray out;
    mx::Shape part;      // of the first, to compare the others with
    size_t outer = 1;    // product of the axes before the joined one
    size_t row_bytes;    // of the result, per outer index
    size_t written = 0;  // of row_bytes
  };

  Target make_target(const mx::array& first) const {
    mx::Shape shape = first.shape();
    if (is_new_axis_) {
      shape.insert(shape.begin(), static_cast<int>(parts_.size()));
    } else {
      // The last axis of packed numbers counts words or groups.
      const auto& logical = parts_.front()->info().shape;
      auto total = static_cast<int64_t>(shape[axis_]) * info().shape[axis_] /
          logical[axis_];
      if (total > INT32_MAX) {
        fail_shape(place_, info(), "the axis is too long");
      }
      shape[axis_] = static_cast<int>(total);
    }
    HostArray out = make_host_array(shape, first.dtype());
    size_t outer = 1;
    for (size_t i = 0; i < axis_; ++i) {
      outer *= static_cast<size_t>(shape[i]);
    }
    size_t row_bytes = out.array.nbytes() / std::max<size_t>(outer, 1);
    return {std::move(out), first.shape(), outer, row_bytes};
  }

  void append(Target& to, const mx::array& part, const TensorInfo& from) const {
    if (part.dtype() != to.out.array.dtype()) {
      fail_shape(place_, from, "it is stored in another dtype than the others");
    }
    mx::array a = mx::contiguous(part, false);
    a.eval();
    size_t bytes = a.nbytes() / std::max<size_t>(to.outer, 1);
    if (to.written + bytes > to.row_bytes) {
      fail_shape(place_, from, "it is larger than was said");
    }
    const auto* source = a.data<char>();
    for (size_t i = 0; i < to.outer; ++i) {
      std::memcpy(
          to.out.data + i * to.row_bytes + to.written,
          source + i * bytes,
          bytes);
    }
    to.written += bytes;
  }

  std::vector<RecipePtr> parts_;
  size_t axis_;
  bool is_new_axis_;
  std::string place_;
};

// The joined tensor's info, with the first part's shape; checks that the
// parts agree but for `free_axis`.
TensorInfo joined_info(
    const std::vector<RecipePtr>& parts,
    std::optional<size_t> free_axis,
    const std::string& place) {
  if (parts.empty()) {
    fail(ErrorKind::invalid_request, place, "no tensors to join");
  }
  TensorInfo info = parts.front()->info();
  info.nbytes = 0;
  for (const auto& part : parts) {
    const TensorInfo& other = part->info();
    bool fits = other.shape.size() == info.shape.size();
    for (size_t i = 0; fits && i < info.shape.size(); ++i) {
      fits = i == free_axis || other.shape[i] == info.shape[i];
    }
    if (!fits) {
      fail_shape(
          place,
          other,
          fmt::format(
              "'{}', which it belongs with, has {}",
              info.name,
              shape_text(info.shape)));
    }
    if (!same_quantization(other, info) || other.stored != info.stored) {
      fail_shape(
          place,
          other,
          fmt::format(
              "it is stored as {}, '{}', which it belongs with, as {}",
              other.stored,
              info.name,
              info.stored));
    }
    info.nbytes += other.nbytes;
  }
  return info;
}

}  // namespace

RecipePtr stack_tensors(
    std::vector<RecipePtr> parts,
    const std::string& place) {
  TensorInfo info = joined_info(parts, std::nullopt, place);
  if (info.shape.size() != 2) {
    refuse_global_scale(info, place);
  }
  info.shape.insert(info.shape.begin(), static_cast<int64_t>(parts.size()));
  return std::make_shared<Joined>(info, std::move(parts), 0, true, place);
}

RecipePtr concatenate_tensors(
    std::vector<RecipePtr> parts,
    int axis,
    const std::string& place) {
  if (parts.empty()) {
    fail(ErrorKind::invalid_request, place, "no tensors to join");
  }
  size_t at = axis_of(parts.front()->info(), axis, place);
  refuse_global_scale(parts.front()->info(), place);
  TensorInfo info = joined_info(parts, at, place);
  info.shape[at] = 0;
  for (const auto& part : parts) {
    int64_t length = part->info().shape[at];
    if (length == 0) {
      fail_shape(place, part->info(), "an empty part");
    }
    info.shape[at] += length;
  }
  return std::make_shared<Joined>(info, std::move(parts), at, false, place);
}

}  // namespace mlxx::hub

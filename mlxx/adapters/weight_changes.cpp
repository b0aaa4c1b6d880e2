#include "mlxx/adapters/weight_changes.h"

#include <nlohmann/json.hpp>

#include "mlxx/adapters/adapter_tensors.h"
#include "mlxx/adapters/module_names.h"
#include "mlxx/adapters/target_layers.h"
#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/mapped_file.h"

namespace mlxx::adapters {
namespace {

using Changes = std::map<std::string, WeightChanges::Change>;
using Tensors = std::map<std::string, const hub::TensorInfo*>;

constexpr size_t kLongestConfig = 4 << 20;

// As mlx-lm's fuse() adds it, in float32.
WeightChanges::Change change_of(const LowRank& change, LayerKind kind) {
  return [change, kind](const mx::array& weight) {
    auto f32 = [](const mx::array& x) { return mx::astype(x, mx::float32); };
    mx::array a = f32(change.a);
    mx::array b = f32(change.b);
    mx::array scale(change.scale);
    mx::array delta = kind == LayerKind::experts
        ? mx::matmul(mx::multiply(scale, b), a)
        : kind == LayerKind::embedding
        ? mx::matmul(mx::multiply(scale, a), b)
        : mx::matmul(mx::multiply(scale, mx::transpose(b)), mx::transpose(a));
    mx::array sum = mx::add(weight, delta);
    if (!change.magnitude) {
      return sum;
    }
    mx::array gain =
        mx::divide(f32(*change.magnitude), mx::linalg::norm(sum, {-1}));
    return mx::multiply(mx::expand_dims(gain, -1), sum);
  };
}

LowRank of_outputs(const LowRank& change, int begin, int end) {
  LowRank part = change;
  part.b = mx::slice(change.b, {0, begin}, {change.b.shape(0), end});
  if (change.magnitude) {
    part.magnitude = mx::slice(*change.magnitude, {begin}, {end});
  }
  return part;
}

LowRank of_expert(const LowRank& change, int expert) {
  return {
      change.module,
      mx::transpose(mx::take(change.a, expert, 0)),
      mx::transpose(mx::take(change.b, expert, 0)),
      change.scale,
      std::nullopt};
}

std::vector<int64_t> shape_of(const LowRank& change, LayerKind kind) {
  switch (kind) {
    case LayerKind::experts:
      return {change.a.shape(0), change.b.shape(1), change.a.shape(2)};
    case LayerKind::embedding:
      return {change.a.shape(0), change.b.shape(1)};
    default:
      return {change.b.shape(1), change.a.shape(0)};
  }
}

// Finds the tensors of one module.
class Placer {
 public:
  Placer(const Tensors& tensors, Changes& changes)
      : tensors_(tensors), changes_(changes) {}

  void place(const LowRank& change, LayerKind kind) {
    for (const std::string& name : names_of(change.module)) {
      if (put(name, change, kind) || put_parts(name, change, kind) ||
          put_experts(name, change, kind)) {
        return;
      }
    }
    fail(
        ErrorKind::unsupported,
        "fuse",
        "the checkpoint has no weight of its own for '{}'",
        change.module);
  }

 private:
  bool has(const std::string& name) const {
    return tensors_.contains(name + ".weight");
  }

  bool put(const std::string& name, const LowRank& change, LayerKind kind) {
    auto found = tensors_.find(name + ".weight");
    if (found == tensors_.end()) {
      return false;
    }
    if (found->second->shape != shape_of(change, kind)) {
      fail(
          ErrorKind::unsupported,
          "fuse",
          "'{}' is held in another form than the model has it in: [{}]",
          found->first,
          fmt::join(found->second->shape, ", "));
    }
    changes_[found->first] = change_of(change, kind);
    return true;
  }

  bool
  put_parts(const std::string& name, const LowRank& change, LayerKind kind) {
    auto parts = parts_of(name);
    auto there = [&](const std::string& part) { return has(part); };
    if (parts.empty() || !std::ranges::all_of(parts, there)) {
      return false;
    }
    int begin = 0;
    for (const std::string& part : parts) {
      const auto& shape = tensors_.at(part + ".weight")->shape;
      int end = begin + static_cast<int>(shape.front());
      if (end > change.b.shape(1)) {
        return false;
      }
      put(part, of_outputs(change, begin, end), kind);
      begin = end;
    }
    return begin == change.b.shape(1);
  }

  bool
  put_experts(const std::string& name, const LowRank& change, LayerKind kind) {
    if (kind != LayerKind::experts) {
      return false;
    }
    int placed = 0;
    for (int expert = 0; expert < change.a.shape(0); ++expert) {
      for (const std::string& one : expert_names_of(name, expert)) {
        if (has(one)) {
          put(one, of_expert(change, expert), LayerKind::linear);
          ++placed;
          break;
        }
      }
    }
    return placed == change.a.shape(0);
  }

  const Tensors& tensors_;
  Changes& changes_;
};

// mlx-lm's weights of a full fine-tune: they are the new ones.
bool is_full(const std::filesystem::path& folder) {
  auto path = folder / "adapter_config.json";
  if (!std::filesystem::is_regular_file(path)) {
    return false;
  }
  Json json =
      parse_json(read_file(path, kLongestConfig), "adapter_config.json");
  return json.is_object() && json.value("fine_tune_type", Json()) == "full";
}

Changes full_changes(
    const Tensors& tensors,
    const std::filesystem::path& folder) {
  auto path = folder / "adapters.safetensors";
  auto file = std::make_shared<SafetensorsFile>(path);
  Changes changes;
  for (const SafetensorsEntry& entry : file->entries()) {
    size_t dot = std::min(entry.name.rfind('.'), entry.name.size());
    auto found = tensors.end();
    for (const std::string& module : names_of(entry.name.substr(0, dot))) {
      if (found == tensors.end()) {
        found = tensors.find(module + entry.name.substr(dot));
      }
    }
    if (found == tensors.end() || found->second->shape != entry.shape) {
      fail(
          ErrorKind::bad_file,
          path.string(),
          "'{}' is no weight of the model, or has another shape",
          entry.name);
    }
    changes[found->first] = [file, &entry](const mx::array&) {
      return mx::astype(load_finite(*file, entry), mx::float32);
    };
  }
  if (changes.empty()) {
    fail(ErrorKind::bad_file, path.string(), "has no tensors");
  }
  return changes;
}

}  // namespace

WeightChanges::WeightChanges(
    const hub::Checkpoint& checkpoint,
    const std::filesystem::path& adapter) {
  Tensors tensors;
  for (const hub::TensorInfo& tensor : checkpoint.tensors()) {
    tensors[tensor.name] = &tensor;
  }
  if (is_full(adapter)) {
    changes_ = full_changes(tensors, adapter);
    return;
  }
  AdapterFile file = read_adapter(adapter);
  // Plain operations: where kernels have programs they ask for numbers.
  models::LoadOptions options;
  options.sizes_only = true;
  options.kernels = kernels::Selection{};
  options.kernels->fallback = true;
  auto model = models::load_model(checkpoint, options);
  std::map<std::string, LayerKind> kinds;
  for (const TargetedChange& target : find_targets(*model, file)) {
    kinds[target.change.module] = target.kind;
  }
  Placer placer(tensors, changes_);
  for (const LowRank& change : file.modules) {
    placer.place(change, kinds.at(change.module));
  }
}

}  // namespace mlxx::adapters

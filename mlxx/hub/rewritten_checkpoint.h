#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/tensor_recipe.h"

namespace mlxx::hub {

// The tensors of a checkpoint, to be given the names and forms of a model:
// renamed, dropped, stacked, split, turned. A table of recipes that each step
// edits; nothing is read before the finished checkpoint is asked for a tensor.
// Steps see what earlier ones made. A name that a step asks for and that is
// not there is a bad_file that names it, as are two tensors of one name: ask
// has() first where it is optional.
//
// A quantized matrix is the one entry "module.weight", whatever the file
// calls its parts, and its shape is the logical one.
class TensorRewrite {
 public:
  // `source` has to outlive this and what finish() makes.
  explicit TensorRewrite(const Checkpoint& source);
  // Kept alive by what finish() makes.
  explicit TensorRewrite(std::shared_ptr<const Checkpoint> source);

  // What errors name: the folder or file.
  std::string place() const;
  const Checkpoint& source() const {
    return source_;
  }
  const Json& config() const {
    return config_ ? *config_ : source_.config();
  }
  // What the finished checkpoint's config() is, instead of the source's.
  void set_config(Json config);
  bool has(std::string_view name) const;
  // As it is now; its name in there may be an earlier one.
  const TensorInfo& info(std::string_view name) const;
  // Sorted.
  std::vector<std::string> names() const;
  // The layers, or what "{}" stands for, of the names that match: a pattern
  // is a whole name in which "{}" stands for one number. Ascending.
  std::vector<int64_t> numbers(std::string_view pattern) const;
  bool any(const std::function<bool(std::string_view name)>& chosen) const;

  void rename(std::string_view from, std::string_view to);
  // All at once, so that names may be exchanged. `new_name` returns the name
  // itself for what stays.
  void rename_each(
      const std::function<std::string(std::string_view name)>& new_name);
  void rename_prefix(std::string_view from, std::string_view to);
  // Every occurrence in every name, as str.replace().
  void replace_in_names(std::string_view from, std::string_view to);

  // `reason` is shown to users: "vision tower".
  void drop(std::string_view name, std::string_view reason);
  void drop_prefix(std::string_view prefix, std::string_view reason);
  void drop_each(
      const std::function<bool(std::string_view name)>& chosen,
      std::string_view reason);
  // lm_head.weight of a model whose head is the embedding.
  void drop_tied_head(std::string_view name = "lm_head.weight");

  void stack(const std::vector<std::string>& parts, std::string_view to);
  // The experts of all layers: `from` has "{}" for the layer and "{e}" for the
  // expert, `to` has "{}". Layers without a tensor for expert 0 are left
  // alone; with one, all `count` have to be there. Say ".weight" (".bias").
  void stack_experts(std::string_view from, int64_t count, std::string_view to);
  void concatenate(
      const std::vector<std::string>& parts,
      int axis,
      std::string_view to);

  // Cuts an axis (negative: from the end) into parts of the sizes, whose sum
  // is its length.
  void split(
      std::string_view name,
      int axis,
      const std::vector<int64_t>& sizes,
      const std::vector<std::string>& to);
  void split_evenly(
      std::string_view name,
      int axis,
      const std::vector<std::string>& to);
  // Element i of the axis goes to part i mod N.
  void split_interleaved(
      std::string_view name,
      int axis,
      const std::vector<std::string>& to);

  void transpose(std::string_view name, const std::vector<int>& permutation);
  void move_axis(std::string_view name, int from, int to);
  void reshape(std::string_view name, const std::vector<int64_t>& shape);

  // A calculation that keeps the shape, such as w + 1. Not for quantized
  // tensors (unsupported).
  void apply(
      std::string_view name,
      std::function<mx::array(const mx::array&)> change);

  // `blocks` and `scales` of U8 (recipe: pack_blocks) become one tensor.
  void pack(
      std::string_view blocks,
      std::string_view scales,
      const Quantization& quantization,
      std::string_view to);

  // `inputs` are replaced by what is calculated of them. A calculation that
  // several results share runs once for each.
  void derive(
      const std::vector<std::string>& inputs,
      const std::vector<std::pair<std::string, Derivation>>& results);

  // Any other recipe.
  RecipePtr take(std::string_view name);  // out of the table
  void put(std::string_view name, RecipePtr recipe);

  std::unique_ptr<const Checkpoint> finish() &&;

 private:
  friend class RewrittenCheckpoint;
  using Table = std::map<std::string, RecipePtr, std::less<>>;

  std::shared_ptr<const Checkpoint> owner_;
  const Checkpoint& source_;
  std::shared_ptr<const Json> config_;  // null: the source's
  Table table_;
  std::vector<DroppedTensor> dropped_;
};

}  // namespace mlxx::hub

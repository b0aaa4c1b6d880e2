#include "mlxx/hub/rewritten_checkpoint.h"

#include <algorithm>
#include <charconv>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/hub/tensor_recipe_checks.h"

namespace mlxx::hub {

// The finished table.
class RewrittenCheckpoint : public Checkpoint {
 public:
  explicit RewrittenCheckpoint(TensorRewrite&& rewrite)
      : owner_(std::move(rewrite.owner_)),
        source_(rewrite.source_),
        config_(std::move(rewrite.config_)),
        table_(std::move(rewrite.table_)),
        dropped_(source_.dropped()) {
    for (const auto& [name, recipe] : table_) {
      infos_.push_back(recipe->info());
      infos_.back().name = name;
    }
    dropped_.insert(
        dropped_.end(),
        std::make_move_iterator(rewrite.dropped_.begin()),
        std::make_move_iterator(rewrite.dropped_.end()));
    std::ranges::sort(dropped_, {}, [](const auto& d) { return d.info.name; });
  }

  const std::filesystem::path& path() const override {
    return source_.path();
  }
  std::string format() const override {
    return source_.format();
  }
  const Json& config() const override {
    return config_ ? *config_ : source_.config();
  }
  const Json& generation_config() const override {
    return source_.generation_config();
  }
  const TextFiles& text() const override {
    return source_.text();
  }
  std::string tokenizer_digest() const override {
    return source_.tokenizer_digest();
  }
  const TextFiles& text_beside_tokenizer() const override {
    return source_.text_beside_tokenizer();
  }
  const std::vector<TensorInfo>& tensors() const override {
    return infos_;
  }
  const std::vector<DroppedTensor>& dropped() const override {
    return dropped_;
  }
  uint64_t file_bytes() const override {
    return source_.file_bytes();
  }
  Weight load(const std::string& name, const LoadDtype& dtype) const override {
    auto found = table_.find(name);
    if (found == table_.end()) {
      fail(
          ErrorKind::not_found,
          path().string(),
          "there is no tensor '{}'",
          name);
    }
    return found->second->load(dtype);
  }
  std::unique_ptr<const QuantizedRows> rows(
      const std::string& name) const override {
    auto found = table_.find(name);
    return found == table_.end() ? nullptr : found->second->rows();
  }

 private:
  std::shared_ptr<const Checkpoint> owner_;
  const Checkpoint& source_;
  std::shared_ptr<const Json> config_;
  TensorRewrite::Table table_;
  std::vector<TensorInfo> infos_;
  std::vector<DroppedTensor> dropped_;
};

namespace {

constexpr std::string_view kNumber = "{}";
constexpr std::string_view kExpert = "{e}";

std::string
fill_in(std::string_view pattern, std::string_view hole, int64_t number) {
  auto at = pattern.find(hole);
  return at == std::string_view::npos ? std::string(pattern)
                                      : fmt::format(
                                            "{}{}{}",
                                            pattern.substr(0, at),
                                            number,
                                            pattern.substr(at + hole.size()));
}

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t number = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  bool is_plain = error == std::errc() && end == text.data() + text.size() &&
      text[0] != '-' && (text[0] != '0' || text.size() == 1);
  return is_plain ? std::optional(number) : std::nullopt;
}

}  // namespace

TensorRewrite::TensorRewrite(const Checkpoint& source) : source_(source) {
  for (const auto& info : source.tensors()) {
    table_.emplace(info.name, take_tensor(source, info));
  }
}

TensorRewrite::TensorRewrite(std::shared_ptr<const Checkpoint> source)
    : TensorRewrite(*source) {
  owner_ = std::move(source);
}

std::string TensorRewrite::place() const {
  return source_.path().string();
}

void TensorRewrite::set_config(Json config) {
  config_ = std::make_shared<const Json>(std::move(config));
}

bool TensorRewrite::has(std::string_view name) const {
  return table_.contains(name);
}

const TensorInfo& TensorRewrite::info(std::string_view name) const {
  auto found = table_.find(name);
  if (found == table_.end()) {
    fail(ErrorKind::bad_file, place(), "tensor '{}' is missing", name);
  }
  return found->second->info();
}

std::vector<std::string> TensorRewrite::names() const {
  std::vector<std::string> names;
  for (const auto& [name, recipe] : table_) {
    names.push_back(name);
  }
  return names;
}

std::vector<int64_t> TensorRewrite::numbers(std::string_view pattern) const {
  auto hole = pattern.find(kNumber);
  if (hole == std::string_view::npos) {
    return {};
  }
  std::string_view prefix = pattern.substr(0, hole);
  std::string_view suffix = pattern.substr(hole + kNumber.size());
  std::vector<int64_t> found;
  for (auto at = table_.lower_bound(prefix);
       at != table_.end() && at->first.starts_with(prefix);
       ++at) {
    std::string_view rest = std::string_view(at->first).substr(prefix.size());
    if (rest.size() <= suffix.size() || !rest.ends_with(suffix)) {
      continue;
    }
    rest.remove_suffix(suffix.size());
    if (auto number = parse_number(rest)) {
      found.push_back(*number);
    }
  }
  std::ranges::sort(found);
  return found;
}

bool TensorRewrite::any(
    const std::function<bool(std::string_view name)>& chosen) const {
  return std::ranges::any_of(table_, [&](const auto& entry) {
    return chosen(entry.first);
  });
}

RecipePtr TensorRewrite::take(std::string_view name) {
  auto found = table_.find(name);
  if (found == table_.end()) {
    fail(ErrorKind::bad_file, place(), "tensor '{}' is missing", name);
  }
  RecipePtr recipe = std::move(found->second);
  table_.erase(found);
  return recipe;
}

void TensorRewrite::put(std::string_view name, RecipePtr recipe) {
  auto [at, is_new] = table_.try_emplace(std::string(name), std::move(recipe));
  if (!is_new) {
    fail(
        ErrorKind::bad_file,
        place(),
        "two tensors would be '{}', one of them is '{}' in the file",
        name,
        at->second->info().name);
  }
}

void TensorRewrite::rename(std::string_view from, std::string_view to) {
  put(to, take(from));
}

void TensorRewrite::rename_each(
    const std::function<std::string(std::string_view name)>& new_name) {
  Table old = std::move(table_);
  table_.clear();
  for (auto& [name, recipe] : old) {
    put(new_name(name), std::move(recipe));
  }
}

void TensorRewrite::rename_prefix(std::string_view from, std::string_view to) {
  rename_each([&](std::string_view name) {
    return name.starts_with(from)
        ? fmt::format("{}{}", to, name.substr(from.size()))
        : std::string(name);
  });
}

void TensorRewrite::replace_in_names(
    std::string_view from,
    std::string_view to) {
  rename_each([&](std::string_view name) {
    std::string result;
    for (auto at = name.find(from);
         at != std::string_view::npos && !from.empty();
         at = name.find(from)) {
      result.append(name.substr(0, at)).append(to);
      name.remove_prefix(at + from.size());
    }
    return result.append(name);
  });
}

void TensorRewrite::drop(std::string_view name, std::string_view reason) {
  TensorInfo info = take(name)->info();
  dropped_.push_back({std::move(info), std::string(reason)});
}

void TensorRewrite::drop_each(
    const std::function<bool(std::string_view name)>& chosen,
    std::string_view reason) {
  for (const auto& name : names()) {
    if (chosen(name)) {
      drop(name, reason);
    }
  }
}

void TensorRewrite::drop_prefix(
    std::string_view prefix,
    std::string_view reason) {
  drop_each(
      [&](std::string_view name) { return name.starts_with(prefix); },
      reason);
}

void TensorRewrite::drop_tied_head(std::string_view name) {
  if (has(name)) {
    drop(name, "the head is the embedding");
  }
}

void TensorRewrite::stack(
    const std::vector<std::string>& parts,
    std::string_view to) {
  std::vector<RecipePtr> recipes;
  for (const auto& part : parts) {
    recipes.push_back(take(part));
  }
  put(to, stack_tensors(std::move(recipes), place()));
}

void TensorRewrite::stack_experts(
    std::string_view from,
    int64_t count,
    std::string_view to) {
  auto stack_layer = [&](std::string_view pattern, std::string_view name) {
    std::vector<std::string> parts;
    for (int64_t e = 0; e < count; ++e) {
      parts.push_back(fill_in(pattern, kExpert, e));
    }
    stack(parts, name);
  };
  std::string first = fill_in(from, kExpert, 0);
  if (has(first)) {
    stack_layer(from, to);
    return;
  }
  for (int64_t layer : numbers(first)) {
    stack_layer(fill_in(from, kNumber, layer), fill_in(to, kNumber, layer));
  }
}

void TensorRewrite::concatenate(
    const std::vector<std::string>& parts,
    int axis,
    std::string_view to) {
  std::vector<RecipePtr> recipes;
  for (const auto& part : parts) {
    recipes.push_back(take(part));
  }
  put(to, concatenate_tensors(std::move(recipes), axis, place()));
}

void TensorRewrite::split(
    std::string_view name,
    int axis,
    const std::vector<int64_t>& sizes,
    const std::vector<std::string>& to) {
  RecipePtr whole = take(name);
  int64_t length =
      whole->info().shape.at(axis_of(whole->info(), axis, place()));
  int64_t sum = 0;
  for (int64_t size : sizes) {
    sum = size < 1 || sum > length ? INT64_MAX : sum + size;
  }
  if (sum != length || sizes.size() != to.size()) {
    fail_shape(
        place(),
        whole->info(),
        fmt::format(
            "axis {} does not consist of {}",
            axis,
            fmt::join(sizes, " + ")));
  }
  int64_t begin = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    put(to[i], slice_tensor(whole, axis, {begin, begin + sizes[i]}, place()));
    begin += sizes[i];
  }
}

namespace {

// The length of each of `parts` equal parts of an axis.
int64_t even_part(
    const TensorInfo& info,
    int axis,
    size_t parts,
    const std::string& place) {
  int64_t length = info.shape.at(axis_of(info, axis, place));
  auto count = static_cast<int64_t>(parts);
  if (count == 0 || length == 0 || length % count != 0) {
    fail_shape(
        place,
        info,
        fmt::format("axis {} cannot be cut into {} parts", axis, count));
  }
  return length / count;
}

}  // namespace

void TensorRewrite::split_evenly(
    std::string_view name,
    int axis,
    const std::vector<std::string>& to) {
  int64_t size = even_part(info(name), axis, to.size(), place());
  split(name, axis, std::vector<int64_t>(to.size(), size), to);
}

void TensorRewrite::split_interleaved(
    std::string_view name,
    int axis,
    const std::vector<std::string>& to) {
  auto count = static_cast<int64_t>(to.size());
  int64_t length = even_part(info(name), axis, to.size(), place()) * count;
  RecipePtr whole = take(name);
  for (int64_t i = 0; i < count; ++i) {
    put(to[static_cast<size_t>(i)],
        slice_tensor(whole, axis, {i, length, count}, place()));
  }
}

void TensorRewrite::transpose(
    std::string_view name,
    const std::vector<int>& permutation) {
  put(name, transpose_tensor(take(name), permutation, place()));
}

void TensorRewrite::move_axis(std::string_view name, int from, int to) {
  const TensorInfo& tensor = info(name);
  auto source = static_cast<int>(axis_of(tensor, from, place()));
  auto target = static_cast<int>(axis_of(tensor, to, place()));
  std::vector<int> permutation;
  for (int i = 0; i < static_cast<int>(tensor.shape.size()); ++i) {
    if (i != source) {
      permutation.push_back(i);
    }
  }
  permutation.insert(permutation.begin() + target, source);
  transpose(name, permutation);
}

void TensorRewrite::reshape(
    std::string_view name,
    const std::vector<int64_t>& shape) {
  put(name, reshape_tensor(take(name), shape, place()));
}

void TensorRewrite::apply(
    std::string_view name,
    std::function<mx::array(const mx::array&)> change) {
  const TensorInfo& tensor = info(name);
  if (tensor.quantization) {
    fail(
        ErrorKind::unsupported,
        place(),
        "tensor '{}' is quantized ({}), where it has to be changed number by "
        "number",
        name,
        tensor.stored);
  }
  Derivation derivation{
      .shape = tensor.shape,
      .quantization = std::nullopt,
      .stored = tensor.stored,
      .compute = [change = std::move(
                      change)](std::span<const Weight> in, const auto&) {
        return Weight{change(in[0].weight), std::nullopt, std::nullopt};
      }};
  put(name, derive_tensor({take(name)}, std::move(derivation), place()));
}

void TensorRewrite::pack(
    std::string_view blocks,
    std::string_view scales,
    const Quantization& quantization,
    std::string_view to) {
  RecipePtr numbers = take(blocks);
  put(to, pack_blocks(numbers, take(scales), quantization, place()));
}

void TensorRewrite::derive(
    const std::vector<std::string>& inputs,
    const std::vector<std::pair<std::string, Derivation>>& results) {
  std::vector<RecipePtr> recipes;
  for (const auto& input : inputs) {
    recipes.push_back(take(input));
  }
  for (const auto& [name, derivation] : results) {
    put(name, derive_tensor(recipes, derivation, place()));
  }
}

std::unique_ptr<const Checkpoint> TensorRewrite::finish() && {
  return std::make_unique<RewrittenCheckpoint>(std::move(*this));
}

}  // namespace mlxx::hub

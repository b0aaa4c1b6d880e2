#include "mlxx/adapters/mounted.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include <fmt/ranges.h>

#include "mlxx/adapters/mounted_adapter.h"
#include "mlxx/adapters/target_layers.h"
#include "mlxx/base/error.h"
#include "mlxx/kernels/quantized_matmul/packed_panels.h"
#include "mlxx/models/fused_decoder.h"

namespace mlxx::adapters {

namespace {

constexpr size_t kLongestName = 128;

// FNV-1a over bytes.
uint64_t hashed(uint64_t hash, const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < size; ++i) {
    hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
  }
  return hash;
}

uint64_t content_of(const AdapterFile& file) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const LowRank& one : file.modules) {
    hash = hashed(hash, one.module.data(), one.module.size());
    hash = hashed(hash, &one.scale, sizeof(one.scale));
    for (const mx::array* array :
         {&one.a, &one.b, one.magnitude ? &*one.magnitude : nullptr}) {
      if (array) {
        mx::array plain = mx::contiguous(*array);
        mx::eval(plain);
        hash = hashed(hash, plain.data<uint8_t>(), plain.nbytes());
      }
    }
  }
  return hash;
}

// By which a program knows the weight; null: in another form.
const kernels::PanelMatrix* matrix_of(const Parameter& weight) {
  auto* panels =
      dynamic_cast<const kernels::PackedPanels*>(weight.packed().get());
  return panels ? panels->matrix().get() : nullptr;
}

void check_name(const std::string& name) {
  bool sound = !name.empty() && name.size() <= kLongestName &&
      std::all_of(name.begin(), name.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '-' ||
            c == '_' || c == '.';
      });
  if (!sound) {
    fail(
        ErrorKind::invalid_request,
        "adapter",
        "no adapter can be named '{}'; letters, digits, '-', '_' and '.' can",
        name.substr(0, kLongestName));
  }
}

}  // namespace

AdapterStack::AdapterStack(
    std::vector<std::shared_ptr<const MountedAdapter>> adapters)
    : adapters_(std::move(adapters)) {}

bool AdapterStack::fits_program() const {
  return std::ranges::all_of(adapters_, [](const auto& adapter) {
    return adapter->experts.empty() && adapter->embeddings.empty() &&
        std::ranges::all_of(adapter->linear, [](const auto& entry) {
             return matrix_of(*entry.first) && entry.second.in_program();
           });
  });
}

std::shared_ptr<const kernels::DecoderChanges> AdapterStack::changes_of(
    const kernels::DecoderWeights& weights) const {
  if (changed_ == &weights) {
    return changes_;
  }
  std::unordered_map<
      const kernels::PanelMatrix*,
      kernels::DecoderChanges::Shared>
      by_matrix;
  size_t all = 0;
  for (const auto& adapter : adapters_) {
    for (const auto& [weight, change] : adapter->linear) {
      by_matrix[matrix_of(*weight)].push_back(change.in_program());
      ++all;
    }
  }
  size_t placed = 0;
  auto changes = kernels::changes_of_decoder(
      weights,
      [&](const kernels::PanelMatrix& matrix) {
        auto found = by_matrix.find(&matrix);
        if (found == by_matrix.end()) {
          return kernels::DecoderChanges::Shared();
        }
        placed += found->second.size();
        return found->second;
      });
  if (placed != all) {
    fail(
        ErrorKind::internal,
        "adapters",
        "{} of {} changes have a place in a decoder that is one program",
        placed,
        all);
  }
  changed_ = &weights;
  changes_ = changes;
  return changes;
}

std::string AdapterStack::identity() const {
  std::string text;
  for (const auto& adapter : adapters_) {
    text += fmt::format("+{:016x}", adapter->content);
  }
  return text;
}

MountedAdapters::MountedAdapters(
    std::shared_ptr<const models::Model> model,
    kernels::Selection selection)
    : model_(std::move(model)), selection_(std::move(selection)) {}

AdapterInfo MountedAdapters::mount(
    const std::string& name,
    const std::filesystem::path& folder) {
  check_name(name);
  return mount(name, read_adapter(folder));
}

AdapterInfo MountedAdapters::mount(const std::string& name, AdapterFile file) {
  check_name(name);
  if (mounted_.contains(name)) {
    fail(
        ErrorKind::invalid_request,
        "adapter",
        "'{}' is mounted already",
        name);
  }
  auto mounted = std::make_shared<MountedAdapter>();
  mounted->content = content_of(file);
  const bool is_program = models::FusedDecoder::made(model_->make_cache({}));
  const auto use =
      is_program ? LinearChange::Use::program : LinearChange::Use::layers;
  AdapterInfo& info = mounted->info;
  for (const TargetedChange& target : find_targets(*model_, file)) {
    const Parameter* weight = target.weight;
    if (target.kind == LayerKind::experts) {
      ExpertChange change(target.change, selection_);
      info.bytes += change.nbytes();
      mounted->experts.emplace(weight, std::move(change));
    } else if (target.kind == LayerKind::embedding) {
      EmbeddingChange change(target.change, *weight, selection_);
      info.bytes += change.nbytes();
      info.dora |= change.is_dora();
      mounted->embeddings.emplace(weight, std::move(change));
    } else {
      LinearChange change(target.change, *weight, selection_, use);
      info.bytes += change.nbytes();
      info.dora |= change.is_dora();
      mounted->linear.emplace(weight, std::move(change));
    }
  }
  for (const LowRank& one : file.modules) {
    mounted->info.highest_rank =
        std::max(mounted->info.highest_rank, one.a.shape(1));
  }
  mounted->info.name = name;
  mounted->info.format = file.format;
  mounted->info.modules = static_cast<int>(file.modules.size());
  mounted_[name] = mounted;
  return mounted->info;
}

void MountedAdapters::unmount(const std::string& name) {
  if (mounted_.erase(name) == 0) {
    fail(ErrorKind::not_found, "adapter", "'{}' is not mounted", name);
  }
}

std::vector<AdapterInfo> MountedAdapters::list() const {
  std::vector<AdapterInfo> infos;
  for (const auto& [name, adapter] : mounted_) {
    infos.push_back(adapter->info);
  }
  return infos;
}

std::shared_ptr<const AdapterStack> MountedAdapters::find(
    const std::string& names) const {
  if (names.empty()) {
    return nullptr;
  }
  std::vector<std::shared_ptr<const MountedAdapter>> adapters;
  std::set<std::string> seen;
  bool dora = false;
  for (size_t at = 0; at <= names.size();) {
    size_t end = std::min(names.find('+', at), names.size());
    std::string name = names.substr(at, end - at);
    at = end + 1;
    auto found = mounted_.find(name);
    if (found == mounted_.end()) {
      std::vector<std::string> known;
      for (const auto& [one, adapter] : mounted_) {
        known.push_back(one);
      }
      fail(
          ErrorKind::not_found,
          "adapter",
          "'{}' is not mounted on this model{}{}",
          name,
          known.empty() ? "" : "; mounted are: ",
          fmt::join(known, ", "));
    }
    if (!seen.insert(name).second) {
      fail(ErrorKind::invalid_request, "adapter", "'{}' is named twice", name);
    }
    dora |= found->second->info.dora;
    adapters.push_back(found->second);
  }
  if (dora && adapters.size() > 1) {
    fail(
        ErrorKind::unsupported,
        "adapter",
        "a DoRA adapter can't be added to others, as in '{}'",
        names);
  }
  return std::make_shared<AdapterStack>(std::move(adapters));
}

}  // namespace mlxx::adapters

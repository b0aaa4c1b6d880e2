#include "mlxx/engine/model_pool.h"

#include <algorithm>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/core/device.h"
#include "mlxx/core/memory.h"
#include "mlxx/engine/loaded_model.h"

namespace mlxx::engine {

namespace {

constexpr const char* kAdmission = "memory_admission";
constexpr auto kTick = std::chrono::seconds(1);

size_t chosen_budget(const ModelPoolOptions& options) {
  return options.memory_budget
      ? *options.memory_budget
      : static_cast<size_t>(describe_device().working_set_bytes);
}

// To the system, from MLX's pool and from the C library's.
void give_memory_back() {
  clear_cache();
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace

// What a running request was promised.
class ModelPool::RowsLease final : public Lease {
 public:
  RowsLease(ModelPool& pool, MemoryReservation reservation, size_t transient)
      : pool_(pool),
        reservation_(std::move(reservation)),
        transient_(pool.transients_.insert(transient)) {
    pool_.rows_ += reservation_.bytes();
  }
  ~RowsLease() override {
    pool_.rows_ -= reservation_.bytes();
    pool_.transients_.erase(transient_);
  }

 private:
  ModelPool& pool_;
  MemoryReservation reservation_;
  std::multiset<size_t>::iterator transient_;
};

ModelPool::ModelPool(std::shared_ptr<ModelList> list, ModelPoolOptions options)
    : list_(std::move(list)),
      options_(std::move(options)),
      kernels_(
          options_.kernels ? *options_.kernels
                           : kernels::select_from_environment()),
      prefixes_(options_.prefixes),
      budget_(
          chosen_budget(options_),
          [this] { return active_without_rows(); }),
      last_tick_(now()) {
  if (budget_.limit() > 0 && backend() != Backend::cpu) {
    previous_limit_ = mx::set_memory_limit(budget_.limit());
  }
}

ModelPool::~ModelPool() {
  for (const auto& [name, entry] : loaded_) {
    prefixes_.close(name);
    list_->set_loaded(name, false);
  }
  loaded_.clear();
  if (previous_limit_) {
    mx::set_memory_limit(*previous_limit_);
  }
}

ModelPool::Clock::time_point ModelPool::now() const {
  return options_.now ? options_.now() : Clock::now();
}

size_t ModelPool::active_memory() const {
  return options_.active_memory ? options_.active_memory()
                                : mx::get_active_memory();
}

// What rows hold is part of what they were promised. Memory that nobody here
// knows of counts too.
size_t ModelPool::active_without_rows() const {
  const size_t known = weights_ + prefixes_.stats().bytes;
  const size_t active = active_memory();
  const size_t promised = known + rows_;
  return known + active - std::min(active, promised);
}

bool ModelPool::fits(size_t bytes) const {
  return budget_.available() >= bytes;
}

bool ModelPool::is_held(const LoadedModel& entry) const {
  return entry.runner && entry.runner.use_count() > 1;
}

bool ModelPool::make_room(size_t bytes, const std::string& keep) {
  if (fits(bytes)) {
    return true;
  }
  clear_cache();
  const size_t available = budget_.available();
  if (available < bytes) {
    prefixes_.shrink(bytes - available);
    clear_cache();
  }
  while (!fits(bytes)) {
    const std::string* oldest = nullptr;
    for (const auto& [name, entry] : loaded_) {
      if (name != keep && !is_held(*entry) &&
          (!oldest || entry->last_used < loaded_.at(*oldest)->last_used)) {
        oldest = &name;
      }
    }
    if (!oldest) {
      return false;
    }
    unload(std::string(*oldest));
  }
  return true;
}

void ModelPool::unload(const std::string& name) {
  auto found = loaded_.find(name);
  log_info("unloads the model {}", name);
  prefixes_.close(name);
  weights_ -= found->second->weight_bytes;
  loaded_.erase(found);
  list_->set_loaded(name, false);
  ++unloads_;
  give_memory_back();
}

int ModelPool::unload_idle() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : loaded_) {
    if (!is_held(*entry)) {
      names.push_back(name);
    }
  }
  for (const std::string& name : names) {
    unload(name);
  }
  prefixes_.clear();
  give_memory_back();
  return static_cast<int>(names.size());
}

MemoryReservation ModelPool::reserve(
    std::string_view what,
    const std::string& name,
    size_t bytes) {
  if (!make_room(bytes, name)) {
    const size_t limit = budget_.limit();
    if (bytes > limit) {
      fail(
          ErrorKind::out_of_memory,
          kAdmission,
          "{} of \"{}\" take {} bytes, the budget is {}",
          what,
          name,
          bytes,
          limit);
    }
    fail(
        ErrorKind::out_of_memory,
        "models",
        "{} of \"{}\" take {} bytes, {} of {} are in use",
        what,
        name,
        bytes,
        limit - budget_.available(),
        limit);
  }
  return budget_.reserve("models", bytes);
}

LoadedModel& ModelPool::load(const std::string& name, bool strict) {
  const ModelList::Opened opened = list_->open(name);
  const size_t bytes = predicted_weights(opened, kernels_);
  MemoryReservation expected = reserve("the weights", name, bytes);
  const auto start = Clock::now();
  const size_t before = active_memory();
  std::unique_ptr<LoadedModel> entry;
  try {
    entry = load_model_of(opened, kernels_, &prefixes_);
  } catch (...) {
    give_memory_back();
    throw;
  }
  // Pieces of memory are cut larger than needed.
  const size_t active = active_memory();
  entry->weight_bytes = std::max(bytes, active - std::min(active, before));
  weights_ += entry->weight_bytes;
  expected.release();
  if (!options_.prefixes.folder.empty()) {
    keep_states_on_disk(*entry, opened, prefixes_);
  }
  list_->set_loaded(name, true);
  ++loads_;
  log_info(
      "loaded the model {} in {:.2f} s, {} bytes",
      name,
      std::chrono::duration<double>(Clock::now() - start).count(),
      entry->weight_bytes);
  LoadedModel& loaded = *loaded_.emplace(name, std::move(entry)).first->second;
  mount_again(loaded, strict);
  return loaded;
}

LoadedModel& ModelPool::find_or_load(const std::string& model, bool strict) {
  const std::string name = list_->resolve(model);
  auto found = loaded_.find(name);
  LoadedModel& entry =
      found == loaded_.end() ? load(name, strict) : *found->second;
  entry.last_used = now();
  return entry;
}

void ModelPool::load_first(const std::string& model) {
  find_or_load(model, /*strict=*/true);
}

void ModelPool::check(const std::string& model) {
  const ModelList::Opened opened = list_->open(model);
  const size_t bytes = predicted_weights(opened, kernels_);
  if (budget_.limit() > 0 && bytes > budget_.limit()) {
    fail(
        ErrorKind::out_of_memory,
        kAdmission,
        "the weights take {} bytes, the budget is {}",
        bytes,
        budget_.limit());
  }
}

std::shared_ptr<Runner> ModelPool::runner(const std::string& model) {
  LoadedModel& entry = find_or_load(model);
  if (!entry.runner) {
    fail(
        ErrorKind::invalid_request,
        "model",
        "\"{}\" makes vectors or scores, no answers",
        entry.name);
  }
  return entry.runner;
}

size_t ModelPool::largest_transient(size_t another) const {
  return transients_.empty() ? another
                             : std::max(another, *transients_.rbegin());
}

std::unique_ptr<Lease>
ModelPool::admit(Runner& runner, const Request& request, bool alone) {
  auto found = std::ranges::find_if(loaded_, [&](const auto& entry) {
    return entry.second->runner.get() == &runner;
  });
  if (found == loaded_.end()) {
    fail(ErrorKind::internal, kAdmission, "the model is not one of this pool");
  }
  LoadedModel& entry = *found->second;
  entry.last_used = now();
  const RowsNeed need =
      rows_need(*entry.memory, request, options_.prefill_step);
  const size_t all = need.kept() + largest_transient(need.transient);
  if (!make_room(all, entry.name)) {
    const size_t with_model = entry.weight_bytes + need.kept() + need.transient;
    if (!alone && with_model <= budget_.limit()) {
      return nullptr;
    }
    fail(
        ErrorKind::out_of_memory,
        kAdmission,
        "a prompt of {} tokens and {} more, {} times, take {} bytes (state {}, "
        "logits {}, one chunk of the prompt {}); the model takes {}, the "
        "budget is {}, in use are {}",
        request.prompt.size(),
        request.max_tokens,
        request.n,
        need.kept() + need.transient,
        need.state,
        need.logits,
        need.transient,
        entry.weight_bytes,
        budget_.limit(),
        budget_.limit() - budget_.available());
  }
  return std::make_unique<RowsLease>(
      *this,
      budget_.reserve(kAdmission, need.kept()),
      need.transient);
}

void ModelPool::tick() {
  prefixes_.tick();
  const auto time = now();
  if (time - last_tick_ < kTick) {
    return;
  }
  last_tick_ = time;
  bool busy = !transients_.empty();
  std::vector<std::string> idle;
  for (const auto& [name, entry] : loaded_) {
    if (is_held(*entry)) {
      busy = true;
      entry->last_used = time;
    } else if (
        options_.idle_unload.count() > 0 &&
        time - entry->last_used >= options_.idle_unload) {
      idle.push_back(name);
    }
  }
  for (const std::string& name : idle) {
    unload(name);
  }
  if (!busy && memory_use().cache > 0) {
    give_memory_back();
  }
}

EmbedAnswer ModelPool::embed(const EmbedRequest& request) {
  LoadedModel& entry = find_or_load(request.model);
  MemoryReservation room = reserve(
      "the texts for one step",
      entry.name,
      vectors_need(entry, bytes_of(request)));
  return embed_with(entry, request);
}

RerankAnswer ModelPool::rerank(const RerankRequest& request) {
  LoadedModel& entry = find_or_load(request.model);
  MemoryReservation room = reserve(
      "the texts for one step",
      entry.name,
      vectors_need(entry, bytes_of(request)));
  return rerank_with(entry, request);
}

SourceStats ModelPool::source_stats() const {
  MemoryUse memory = memory_use();
  std::vector<std::string> names;
  for (const auto& [name, entry] : loaded_) {
    names.push_back(name);
  }
  return {
      .prefixes = prefixes_.stats(),
      .memory_budget = budget_.limit(),
      .active_memory = memory.active,
      .pooled_memory = memory.cache,
      .weights = weights_,
      .rows = rows_,
      .loaded_models = std::move(names),
      .loads = loads_,
      .unloads = unloads_};
}

void ModelPool::clear_prefixes() {
  prefixes_.clear();
  prefixes_.clear_disk();
  give_memory_back();
}

ModelPoolStats ModelPool::stats() const {
  return {
      .memory_budget = budget_.limit(),
      .weights = weights_,
      .rows = rows_,
      .loaded = static_cast<int>(loaded_.size()),
      .loads = loads_,
      .unloads = unloads_};
}

}  // namespace mlxx::engine

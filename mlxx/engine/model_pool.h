#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "mlxx/core/memory_budget.h"
#include "mlxx/engine/adapter_list.h"
#include "mlxx/engine/model_list.h"
#include "mlxx/engine/prefix_cache.h"
#include "mlxx/engine/runner.h"
#include "mlxx/engine/vectors.h"
#include "mlxx/kernels/select.h"

namespace mlxx::engine {

struct ModelPoolOptions {
  // Bytes of MLX's memory for everything (--memory-budget). Absent: the
  // device's working set; 0: no limit.
  std::optional<size_t> memory_budget;
  PrefixCacheOptions prefixes;
  int prefill_step = 512;  // of the engine, most
  // A model that nobody used for so long is unloaded; 0: never.
  std::chrono::seconds idle_unload = std::chrono::seconds(0);
  // Where requests may mount adapters from, by the names of its folders;
  // empty: they may not.
  std::filesystem::path adapters_folder;
  // Absent: as the environment says.
  std::optional<kernels::Selection> kernels;
  // For tests; null: MLX's active memory and the system's clock.
  std::function<size_t()> active_memory;
  std::function<std::chrono::steady_clock::time_point()> now;
};

struct LoadedModel;

struct ModelPoolStats {
  size_t memory_budget = 0;  // 0: no limit
  size_t weights = 0;        // of loaded models
  size_t rows = 0;           // promised to requests that run
  int loaded = 0;
  uint64_t loads = 0;
  uint64_t unloads = 0;
};

// Several models under one budget of memory: loaded when they are asked for,
// unloaded when others need the room or nobody used them for long. Rows are
// admitted by what they will take at most (plan::ModelMemory), so that memory
// never runs out under a request that was let in. If it is short, memory is got
// back in this order: MLX's pool of freed buffers, prefixes, models that nobody
// holds, least recently used first; then requests wait. Engine's thread only;
// leases go before it.
class ModelPool final :
    public ModelSource,
    public VectorSource,
    public AdapterList {
 public:
  // On GPUs the budget becomes MLX's own limit too, until the end.
  ModelPool(std::shared_ptr<ModelList> list, ModelPoolOptions options);
  ~ModelPool() override;

  // Errors: not_found; bad_file; invalid_request for a model that makes no
  // answers; out_of_memory, at [memory_admission] if its weights alone are
  // above the budget, else at [models]: others are in use, so ask again.
  std::shared_ptr<Runner> runner(const std::string& model) override;
  // Errors also for adapters that can't be mounted.
  void load_first(const std::string& model) override;
  void check(const std::string& model) override;
  std::unique_ptr<Lease>
  admit(Runner& runner, const Request& request, bool alone) override;
  void tick() override;

  SourceStats source_stats() const override;
  void clear_prefixes() override;

  VectorSource* vectors() override {
    return this;
  }
  EmbedAnswer embed(const EmbedRequest& request) override;
  RerankAnswer rerank(const RerankRequest& request) override;

  AdapterList* adapters() override {
    return this;
  }
  AdapterEntry mount_adapter(
      const std::string& model,
      const std::string& name,
      const std::string& folder) override;
  void unmount_adapter(const std::string& model, const std::string& name)
      override;
  std::vector<AdapterEntry> list_adapters() const override;
  // An adapter of the operator's own choice, from anywhere: mounted when the
  // model is loaded, at once if it is. Errors as mount_adapter().
  void add_adapter(
      const std::string& model,
      const std::string& name,
      const std::filesystem::path& path);

  // Unloads models that nobody holds; all prefixes go too. Returns how many.
  int unload_idle();
  PrefixCache& prefixes() {
    return prefixes_;
  }
  ModelPoolStats stats() const;

 private:
  class RowsLease;
  using Clock = std::chrono::steady_clock;

  LoadedModel& find_or_load(const std::string& model, bool strict = false);
  AdapterEntry mount(
      LoadedModel& entry,
      const std::string& name,
      const std::filesystem::path& path);
  // After a model was loaded; those that can't be mounted are said and dropped.
  // `strict`: not dropped, but an error.
  void mount_again(LoadedModel& entry, bool strict);
  LoadedModel& load(const std::string& name, bool strict);
  MemoryReservation
  reserve(std::string_view what, const std::string& name, size_t bytes);
  bool is_held(const LoadedModel& entry) const;
  void unload(const std::string& name);
  // Frees memory in the order above until `bytes` more fit; `keep` stays.
  bool make_room(size_t bytes, const std::string& keep);
  bool fits(size_t bytes) const;
  size_t active_memory() const;
  size_t active_without_rows() const;
  size_t largest_transient(size_t another) const;
  Clock::time_point now() const;

  std::shared_ptr<ModelList> list_;
  const ModelPoolOptions options_;
  const kernels::Selection kernels_;
  PrefixCache prefixes_;
  size_t weights_ = 0;
  size_t rows_ = 0;                   // bytes of all leases
  std::multiset<size_t> transients_;  // of all leases; one runs at a time
  MemoryBudget budget_;
  std::map<std::string, std::unique_ptr<LoadedModel>> loaded_;
  // Of each model, loaded or not: names and folders.
  std::map<std::string, std::map<std::string, std::filesystem::path>> adapters_;
  uint64_t loads_ = 0;
  uint64_t unloads_ = 0;
  Clock::time_point last_tick_;
  std::optional<size_t> previous_limit_;  // MLX's, to be set again
};

}  // namespace mlxx::engine

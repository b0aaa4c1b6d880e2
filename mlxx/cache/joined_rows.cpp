#include "mlxx/cache/joined_rows.h"

#include <algorithm>

#include "mlxx/cache/composite.h"
#include "mlxx/cache/decoder_cache.h"
#include "mlxx/cache/recurrent.h"

namespace mlxx::cache {
namespace {

// Keys and values of one layer in every row's own cache.
class RowsCache : public KVCache {
 public:
  explicit RowsCache(std::vector<KVCache*> rows) : rows_(std::move(rows)) {}

  KVView append(const mx::array& keys, const mx::array& values) override {
    if (keys.shape(0) != static_cast<int>(rows_.size()) || keys.shape(2) != 1) {
      fail(
          ErrorKind::internal,
          "cache",
          "{} rows of {} tokens appended to {} rows",
          keys.shape(0),
          keys.shape(2),
          rows_.size());
    }
    kernels::RowsView view;
    for (size_t row = 0; row < rows_.size(); ++row) {
      auto mask = rows_[row]->make_mask(1).array;
      auto tokens = rows_[row]->append(row_of(keys, row), row_of(values, row));
      auto* dense = std::get_if<DenseView>(&tokens);
      if (!dense) {
        fail(ErrorKind::internal, "cache", "a row's tokens are not in order");
      }
      view.rows.push_back({std::move(*dense), std::move(mask)});
    }
    return view;
  }
  int offset() const override {
    int longest = 0;
    for (const KVCache* row : rows_) {
      longest = std::max(longest, row->offset());
    }
    return longest;
  }
  // [B], and the largest as a number.
  kernels::Position position() const override {
    std::vector<int> offsets;
    for (const KVCache* row : rows_) {
      offsets.push_back(row->offset());
    }
    kernels::Position first(mx::array(
        offsets.data(),
        {static_cast<int>(offsets.size())},
        mx::int32));
    first.number = offset();
    return first;
  }
  // Each row has its own, in the view.
  Mask make_mask(int) const override {
    return {"", std::nullopt};
  }
  int trim(int) override {
    return 0;
  }
  bool is_trimmable() const override {
    return false;
  }
  size_t nbytes() const override {
    return 0;
  }
  std::vector<mx::array> state() const override {
    return {};
  }

 private:
  static mx::array row_of(const mx::array& a, size_t row) {
    auto index = static_cast<int>(row);
    return mx::slice(
        a,
        {index, 0, 0, 0},
        {index + 1, a.shape(1), a.shape(2), a.shape(3)});
  }

  std::vector<KVCache*> rows_;
};

template <typename Kind>
std::vector<Kind*> all_as(const std::vector<LayerCache*>& layer) {
  std::vector<Kind*> rows;
  for (LayerCache* row : layer) {
    rows.push_back(&cache_as<Kind>(*row));
  }
  return rows;
}

}  // namespace

struct JoinedRows::States {
  RecurrentCache* all;
  std::vector<RecurrentCache*> rows;
};

JoinedRows::JoinedRows(std::span<CacheList* const> rows) {
  if (rows.empty()) {
    fail(ErrorKind::internal, "cache", "a batch of no rows");
  }
  for (const CacheList* row : rows) {
    if (row->size() != rows.front()->size()) {
      fail(ErrorKind::internal, "cache", "rows of different models");
    }
  }
  for (size_t i = 0; i < rows.front()->size(); ++i) {
    std::vector<LayerCache*> layer;
    for (CacheList* row : rows) {
      layer.push_back((*row)[i].get());
    }
    caches_.push_back(join(layer));
  }
}

JoinedRows::~JoinedRows() = default;

std::unique_ptr<LayerCache> JoinedRows::join(
    const std::vector<LayerCache*>& layer) {
  LayerCache* first = layer.front();
  if (dynamic_cast<DecoderCache*>(first)) {
    return DecoderCache::joined(all_as<DecoderCache>(layer));
  }
  if (dynamic_cast<RecurrentCache*>(first)) {
    auto rows = all_as<RecurrentCache>(layer);
    auto all = RecurrentCache::joined(rows);
    states_.push_back({all.get(), std::move(rows)});
    return all;
  }
  if (auto* composite = dynamic_cast<CompositeCache*>(first)) {
    CacheList parts;
    for (int part = 0; part < composite->parts(); ++part) {
      std::vector<LayerCache*> rows;
      for (CompositeCache* row : all_as<CompositeCache>(layer)) {
        rows.push_back(&row->part(part));
      }
      parts.push_back(join(rows));
    }
    return std::make_unique<CompositeCache>(std::move(parts));
  }
  return std::make_unique<RowsCache>(all_as<KVCache>(layer));
}

void JoinedRows::give_rows() {
  for (const auto& [all, rows] : states_) {
    all->give_rows(rows);
  }
}

}  // namespace mlxx::cache

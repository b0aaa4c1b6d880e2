#include "mlxx/cache/stored_caches.h"

#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/base/mapped_file.h"
#include "mlxx/cache/chunked.h"
#include "mlxx/cache/composite.h"
#include "mlxx/cache/dense.h"
#include "mlxx/cache/padded.h"
#include "mlxx/cache/recurrent.h"
#include "mlxx/cache/rotating.h"
#include "tests/cache/token_history.h"
#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"

namespace mlxx::cache {
namespace {

CacheList one_of_each() {
  CacheList parts;
  parts.push_back(std::make_unique<DenseCache>());
  parts.push_back(std::make_unique<RecurrentCache>(2));
  CacheList caches;
  caches.push_back(std::make_unique<DenseCache>());
  caches.push_back(std::make_unique<RotatingCache>(8, 2));
  caches.push_back(std::make_unique<ChunkedCache>(8));
  caches.push_back(std::make_unique<PaddedCache>(
      std::make_unique<DenseCache>(),
      std::vector<int>{2}));
  caches.push_back(std::make_unique<RecurrentCache>(3));
  caches.push_back(std::make_unique<CompositeCache>(std::move(parts)));
  return caches;
}

void feed(LayerCache& cache, const std::vector<int>& tokens) {
  if (auto* composite = dynamic_cast<CompositeCache*>(&cache)) {
    feed(composite->part(0), tokens);
    feed(composite->part(1), tokens);
  } else if (auto* recurrent = dynamic_cast<RecurrentCache*>(&cache)) {
    recurrent->set(1, mx::array({float(tokens.back()), 1.0f}, {1, 2}));
    recurrent->advance(static_cast<int>(tokens.size()));
  } else {
    append_marked(cache_as<KVCache>(cache), tokens);
  }
}

// Everything that can be seen of a cache.
std::vector<float> seen(LayerCache& cache, int next) {
  feed(cache, {next});
  std::vector<float> values{static_cast<float>(cache.offset())};
  for (const auto& array : cache.store().arrays) {
    mx::array flat = mx::contiguous(mx::flatten(array));
    mx::eval(flat);
    values.insert(
        values.end(),
        flat.data<float>(),
        flat.data<float>() + flat.size());
  }
  return values;
}

class StoredCaches : public testing::Test {
 protected:
  std::filesystem::path save(int tokens) {
    CacheList caches = one_of_each();
    for (auto& cache : caches) {
      for (int t = 0; t < tokens; t += 5) {
        feed(*cache, count_up(t, std::min(5, tokens - t)));
      }
    }
    auto path = folder_.path() / "cache.safetensors";
    save_caches(path, caches, {{"model", "tiny"}});
    return path;
  }

  TemporaryFolder folder_;
};

TEST_F(StoredCaches, GoOnAsTheOnesThatWereSaved) {
  for (int tokens : {0, 1, 5, 7, 8, 9, 23, 300}) {
    auto path = save(tokens);
    CacheList loaded = one_of_each();
    EXPECT_EQ(load_caches(path, loaded).at("model"), "tiny");
    CacheList expected = one_of_each();
    for (size_t i = 0; i < loaded.size(); ++i) {
      for (int t = 0; t < tokens; t += 5) {
        feed(*expected[i], count_up(t, std::min(5, tokens - t)));
      }
      EXPECT_EQ(loaded[i]->offset(), tokens) << i;
      for (int next = tokens; next < tokens + 12; ++next) {
        EXPECT_EQ(seen(*loaded[i], next), seen(*expected[i], next))
            << "cache " << i << " of " << tokens;
      }
    }
  }
}

TEST_F(StoredCaches, OfAnotherModelAreRefusedAndChangeNothing) {
  auto path = save(9);
  CacheList fewer = one_of_each();
  fewer.pop_back();
  EXPECT_ERROR(load_caches(path, fewer), "bad_file", "layers");
  CacheList other = one_of_each();
  other[1] = std::make_unique<RotatingCache>(16, 2);
  EXPECT_ERROR(load_caches(path, other), "bad_file", "rotating");
  EXPECT_EQ(other[0]->offset(), 0);
  other = one_of_each();
  std::swap(other[0], other[1]);
  EXPECT_ERROR(load_caches(path, other), "bad_file", "'rotating'");
}

TEST_F(StoredCaches, DamagedFilesAreRefused) {
  auto path = save(9);
  const std::string good = read_file(path, size_t{1} << 20);
  std::mt19937 random(5);
  int accepted = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bad = good;
    if (round % 4 == 0) {
      bad.resize(random() % bad.size());
    } else {
      // The header is where damage can do harm.
      bad[random() % 1500 % bad.size()] = static_cast<char>(random());
    }
    auto damaged = folder_.write("damaged.safetensors", bad);
    CacheList caches = one_of_each();
    try {
      load_caches(damaged, caches);
      ++accepted;
      for (auto& cache : caches) {
        seen(*cache, 100);
      }
    } catch (const std::exception&) {
      EXPECT_EQ(caches[0]->offset(), 0);
    }
  }
  // Of a name, say, or a digit that still fits.
  EXPECT_LT(accepted, 100);
}

}  // namespace
}  // namespace mlxx::cache

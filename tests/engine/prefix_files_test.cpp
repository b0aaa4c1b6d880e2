// Files of kept states are not trusted.
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/engine/prefix_cache.h"
#include "mlxx/engine/prefix_pieces.h"
#include "mlxx/engine/stored_piece.h"
#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"
#include "tests/engine/marked_prompt.h"
#include "tests/mutation/mutator.h"

namespace mlxx::engine {
namespace {

constexpr int kWidth = 4;

std::string file_of(const StoredPiece& piece) {
  std::string content = piece_head(piece);
  for (const auto& array : piece.arrays) {
    content.append(
        reinterpret_cast<const char*>(array.bytes.data()),
        array.bytes.size());
  }
  return content;
}

class PrefixFiles : public testing::Test {
 protected:
  LoadedPiece load(const std::string& content) {
    return load_piece(folder_.write("piece.safetensors", content));
  }

  TemporaryFolder folder_;
  std::vector<int32_t> tokens_ = marked_tokens(1, 64);
  cache::CacheList caches_ = marked_caches(tokens_, kWidth);
};

TEST_F(PrefixFiles, GiveBackWhatWasTakenApart) {
  std::vector<LoadedPiece> blocks;
  blocks.push_back(load(file_of(block_piece(caches_, 0))));
  LoadedPiece state = load(file_of(state_piece(caches_)));
  cache::CacheList restored = empty_marked_caches();
  restore_pieces(restored, blocks, &state, 64);
  EXPECT_TRUE(are_marked(restored, tokens_, kWidth));
  restored = empty_marked_caches();
  EXPECT_ERROR(
      restore_pieces(restored, blocks, &state, 128),
      "bad_file",
      "not 128");
  EXPECT_ERROR(restore_pieces(restored, {}, &state, 64), "bad_file", "not 64");
  EXPECT_ERROR(
      restore_pieces(restored, blocks, &blocks[0], 64),
      "bad_file",
      "no states");
}

TEST_F(PrefixFiles, DamageIsNoticedWhereverItIs) {
  for (bool is_state : {false, true}) {
    StoredPiece piece =
        is_state ? state_piece(caches_) : block_piece(caches_, 0);
    piece.notes["prefix"] = "0123456789";
    const std::string good = file_of(piece);
    LoadedPiece expected = load(good);
    int refused = 0;
    for (size_t i = 0; i < 5000; ++i) {
      Mutator mutator(i);
      std::string bad = mutator.mutate(good, 400);
      try {
        LoadedPiece loaded = load(bad);
        // What is accepted means the same: other blanks, say.
        ASSERT_EQ(loaded.notes, expected.notes) << i;
        ASSERT_EQ(loaded.arrays.size(), expected.arrays.size()) << i;
        for (const auto& [name, array] : expected.arrays) {
          ASSERT_TRUE(
              mx::array_equal(loaded.arrays.at(name), array).item<bool>())
              << i;
        }
      } catch (const Error&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 4500);
  }
}

// With a right checksum, as somebody writes it who means harm.
TEST_F(PrefixFiles, ForeignContentIsRefusedOrFits) {
  std::mt19937 random(3);
  auto below = [&](size_t n) { return random() % n; };
  const int64_t numbers[] =
      {-1, 0, 1, 2, 63, 64, 65, INT32_MAX, int64_t{INT32_MAX} + 1};
  const char* dtypes[] = {"F32", "U8", "BF16", "I64", "BOOL", "C64"};
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    StoredPiece block = block_piece(caches_, 0);
    StoredPiece state = state_piece(caches_);
    StoredPiece& piece = round % 2 ? block : state;
    auto& array = piece.arrays[below(piece.arrays.size())];
    switch (below(5)) {
      case 0:
        array.dtype = dtypes[below(std::size(dtypes))];
        break;
      case 1:
        array.shape[below(array.shape.size())] =
            numbers[below(std::size(numbers))];
        break;
      case 2:
        std::swap(
            array.shape[below(array.shape.size())],
            array.shape[below(array.shape.size())]);
        break;
      case 3:
        array.name = fmt::format("{}:{}", below(3), below(3));
        break;
      default: {
        std::string& note = piece.notes["states"];
        if (note.empty()) {
          note = "{}";
        }
        Mutator mutator(static_cast<uint64_t>(round));
        note = mutator.mutate_json(note);
      }
    }
    try {
      std::vector<LoadedPiece> blocks;
      blocks.push_back(load(file_of(block)));
      LoadedPiece loaded = load(file_of(state));
      cache::CacheList caches = empty_marked_caches();
      restore_pieces(caches, blocks, &loaded, 64);
      for (const auto& layer : caches) {
        mx::eval(layer->state());
        ASSERT_EQ(layer->offset(), 64);
      }
    } catch (const Error&) {
      ++refused;
    } catch (const nlohmann::json::exception&) {
      // A note that is no UTF-8 cannot be written in the first place.
    }
  }
  EXPECT_GT(refused, 700);
}

}  // namespace
}  // namespace mlxx::engine

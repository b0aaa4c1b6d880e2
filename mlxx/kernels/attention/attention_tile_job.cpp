#include "mlxx/kernels/attention/attention_tile_job.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace mlxx::kernels {
namespace {

constexpr int64_t kTile = kScoreTile;

// What a thread works in.
struct TileRoom {
  alignas(64) float scores[kTile * kTile];
  alignas(64) float change[kTile * kTile];
  std::vector<float> sums;

  static TileRoom& mine(int64_t numbers) {
    thread_local TileRoom room;
    if (room.sums.size() < static_cast<size_t>(numbers)) {
      room.sums.resize(numbers);
    }
    return room;
  }
};

// Whether key `token` is one of them.
bool sees(const SeenTokens& seen, int64_t token) {
  return (token >= seen.parent_begin && token < seen.parent_end) ||
      (token >= seen.begin && token < seen.end);
}

int64_t overlap(int64_t begin, int64_t end, int64_t from, int64_t to) {
  return std::max<int64_t>(0, std::min(end, to) - std::max(begin, from));
}

}  // namespace

AttentionTileJob::Seen AttentionTileJob::seen_of(
    int64_t query_tile,
    int64_t key_tile) const {
  int64_t from = key_tile * kTile;
  int64_t to = std::min(from + kTile, length);
  bool some = false;
  bool all = true;
  for (int64_t i = 0; i < rows_in(query_tile); ++i) {
    const SeenTokens& tokens = (*seen)[query_tile * kTile + i];
    int64_t count = overlap(tokens.begin, tokens.end, from, to) +
        overlap(tokens.parent_begin, tokens.parent_end, from, to);
    some = some || count > 0;
    all = all && count == kTile;
  }
  return all ? Seen::all : some ? Seen::some : Seen::none;
}

void AttentionTileJob::hide(int64_t query, int64_t key_tile, float* scores)
    const {
  const SeenTokens& tokens = (*seen)[query];
  for (int64_t j = 0; j < kTile; ++j) {
    if (!sees(tokens, key_tile * kTile + j)) {
      scores[j] = kHiddenScore;
    }
  }
}

void AttentionTileJob::attend(int64_t piece, HeadResult out) const {
  int64_t tile = tile_count() - 1 - piece % tile_count();  // longest first
  int64_t group = piece / tile_count();                    // b * heads + h
  int64_t b = group / heads;
  int64_t h = group % heads;
  int64_t kv = h / (heads / kv_heads);
  int64_t over = b * kv_heads + kv;
  int64_t rows = rows_in(tile);
  TileRoom& room = TileRoom::mine(kTile * size);
  float* sums = room.sums.data();
  std::memset(sums, 0, kTile * size * sizeof(float));
  SoftmaxState states[kTile];
  for (auto& state : states) {
    state = sinks ? SoftmaxState{sinks[h], 1} : SoftmaxState{kHiddenScore, 0};
  }
  for (int64_t keys_at = 0; keys_at <= tile; ++keys_at) {
    Seen which = seen_of(tile, keys_at);
    if (which == Seen::none) {
      continue;
    }
    tiles->multiply(
        {packed(queries, group, tile * kTile),
         size,
         keys_over + over * size * padded + keys_at * kTile,
         padded,
         rows,
         size,
         kTile,
         false,
         room.scores,
         kTile});
    if (softcap != 0) {
      tiles->cap(room.scores, softcap, rows * kTile);
    }
    for (int64_t i = 0; i < rows; ++i) {
      float* scores = room.scores + i * kTile;
      if (which == Seen::some) {
        hide(tile * kTile + i, keys_at, scores);
      }
      tiles->soften(scores, states[i], sums + i * size, size);
    }
    tiles->multiply(
        {room.scores,
         kTile,
         values.at(b, kv, keys_at * kTile),
         values.strides[2],
         rows,
         rows_in(keys_at),
         size,
         true,
         sums,
         size});
  }
  for (int64_t i = 0; i < rows; ++i) {
    tiles->scale(
        sums + i * size,
        1 / states[i].sum,
        size,
        out.at(b, h, tile * kTile + i));
    log_sums[group * padded + tile * kTile + i] =
        states[i].most + std::log(states[i].sum);
  }
}

void AttentionTileJob::differentiate_queries(
    int64_t piece,
    float scale,
    HeadResult out) const {
  int64_t tile = tile_count() - 1 - piece % tile_count();
  int64_t group = piece / tile_count();
  int64_t b = group / heads;
  int64_t h = group % heads;
  int64_t kv = h / (heads / kv_heads);
  int64_t over = b * kv_heads + kv;
  int64_t rows = rows_in(tile);
  TileRoom& room = TileRoom::mine(kTile * size);
  float* sums = room.sums.data();
  std::memset(sums, 0, kTile * size * sizeof(float));
  for (int64_t keys_at = 0; keys_at <= tile; ++keys_at) {
    Seen which = seen_of(tile, keys_at);
    if (which == Seen::none) {
      continue;
    }
    int64_t right = over * size * padded + keys_at * kTile;
    tiles->multiply(
        {packed(queries, group, tile * kTile),
         size,
         keys_over + right,
         padded,
         rows,
         size,
         kTile,
         false,
         room.scores,
         kTile});
    tiles->multiply(
        {change.at(b, h, tile * kTile),
         change.strides[2],
         values_over + right,
         padded,
         rows,
         size,
         kTile,
         false,
         room.change,
         kTile});
    if (softcap != 0) {
      tiles->cap(room.scores, softcap, rows * kTile);
    }
    for (int64_t i = 0; i < rows; ++i) {
      float* scores = room.scores + i * kTile;
      int64_t row = tile * kTile + i;
      if (which == Seen::some) {
        hide(row, keys_at, scores);
      }
      tiles->differentiate(
          scores,
          room.change + i * kTile,
          log_sums + group * padded + row,
          deltas + group * padded + row,
          false,
          softcap);
    }
    tiles->multiply(
        {room.change,
         kTile,
         keys.at(b, kv, keys_at * kTile),
         keys.strides[2],
         rows,
         rows_in(keys_at),
         size,
         true,
         sums,
         size});
  }
  for (int64_t i = 0; i < rows; ++i) {
    tiles->scale(sums + i * size, scale, size, out.at(b, h, tile * kTile + i));
  }
}

void AttentionTileJob::differentiate_keys(
    int64_t piece,
    HeadResult keys_out,
    HeadResult values_out) const {
  int64_t tile = piece % tile_count();
  int64_t over = piece / tile_count();  // b * kv_heads + kv
  int64_t b = over / kv_heads;
  int64_t kv = over % kv_heads;
  int64_t rows = rows_in(tile);
  TileRoom& room = TileRoom::mine(2 * kTile * size);
  float* key_sums = room.sums.data();
  float* value_sums = key_sums + kTile * size;
  std::memset(key_sums, 0, 2 * kTile * size * sizeof(float));
  for (int64_t i = 0; i < heads / kv_heads; ++i) {
    int64_t h = kv * (heads / kv_heads) + i;
    int64_t group = b * heads + h;
    for (int64_t at = tile; at < tile_count(); ++at) {
      Seen which = seen_of(at, tile);
      if (which == Seen::none) {
        continue;
      }
      int64_t right = group * size * padded + at * kTile;
      // Rows are keys, columns queries.
      tiles->multiply(
          {keys.at(b, kv, tile * kTile),
           keys.strides[2],
           queries_over + right,
           padded,
           rows,
           size,
           kTile,
           false,
           room.scores,
           kTile});
      tiles->multiply(
          {values.at(b, kv, tile * kTile),
           values.strides[2],
           change_over + right,
           padded,
           rows,
           size,
           kTile,
           false,
           room.change,
           kTile});
      if (softcap != 0) {
        tiles->cap(room.scores, softcap, rows * kTile);
      }
      int64_t queries_here = rows_in(at);
      for (int64_t j = 0; j < rows; ++j) {
        float* scores = room.scores + j * kTile;
        if (which == Seen::some) {
          for (int64_t q = 0; q < queries_here; ++q) {
            if (!sees((*seen)[at * kTile + q], tile * kTile + j)) {
              scores[q] = kHiddenScore;
            }
          }
        }
        tiles->differentiate(
            scores,
            room.change + j * kTile,
            log_sums + group * padded + at * kTile,
            deltas + group * padded + at * kTile,
            true,
            softcap);
      }
      tiles->multiply(
          {room.scores,
           kTile,
           change.at(b, h, at * kTile),
           change.strides[2],
           rows,
           queries_here,
           size,
           true,
           value_sums,
           size});
      tiles->multiply(
          {room.change,
           kTile,
           packed(queries, group, at * kTile),
           size,
           rows,
           queries_here,
           size,
           true,
           key_sums,
           size});
    }
  }
  for (int64_t j = 0; j < rows; ++j) {
    std::copy_n(
        key_sums + j * size,
        size,
        keys_out.at(b, kv, tile * kTile + j));
    std::copy_n(
        value_sums + j * size,
        size,
        values_out.at(b, kv, tile * kTile + j));
  }
}

}  // namespace mlxx::kernels

// Positions, keys and values, and attention of a decoder's layers.
#include <algorithm>
#include <cmath>
#include <utility>

#include "mlxx/kernels/decode_step/decoder_program.h"

namespace mlxx::kernels {
namespace {

void rotate_pairs(
    float* x,
    const float* cosines,
    const float* sines,
    int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    float a = x[2 * i];
    float b = x[2 * i + 1];
    x[2 * i] = a * cosines[i] - b * sines[i];
    x[2 * i + 1] = a * sines[i] + b * cosines[i];
  }
}

}  // namespace

void DecoderProgram::turn(int index, int64_t row, float* head) const {
  int rotation = layer(index).rotation;
  if (rotation < 0) {
    return;
  }
  const RotationTable& table = weights_->rotations[rotation];
  auto pairs = static_cast<int64_t>(table.per_position.size());
  int64_t at = row * angles() + angle_starts_[rotation];
  const float* cosines = cosines_.data() + at;
  const float* sines = sines_.data() + at;
  if (table.pairs) {
    rotate_pairs(head, cosines, sines, pairs);
  } else {
    row_kernels_.rotate_halves(head, cosines, sines, pairs, head);
  }
}

void DecoderProgram::place_queries(
    int index,
    int64_t row,
    int64_t kv_head,
    float* to) {
  const auto& w = layer(index);
  int64_t size = weights_->head_size;
  int64_t count = group() * size;
  const float* from = queries_.data() + row * query_size() + kv_head * count;
  float scale = w.attention_scale;
  if (w.query_scale.beta != 0) {
    auto laps =
        static_cast<float>(rows_[row].position / w.query_scale.original_length);
    scale *= 1 + w.query_scale.beta * std::log(1 + laps);
  }
  if (w.q_norm.norm && !w.q_norm.whole) {
    if (from != to) {
      std::copy_n(from, count, to);
    }
    for (int64_t g = 0; g < group(); ++g) {
      norm_head(w.q_norm, kv_head * group() + g, to + g * size);
    }
    from = to;
  }
  for (int64_t i = 0; i < count; ++i) {
    to[i] = from[i] * scale;
  }
  for (int64_t g = 0; g < group(); ++g) {
    turn(index, row, to + g * size);
  }
}

void DecoderProgram::place_key(int index, int64_t row, int64_t kv_head) {
  int64_t size = weights_->head_size;
  const Row& at = rows_[row];
  int token = at.position % kBlockLength;
  const KvBlock& block =
      *inputs_[at.input].kv.blocks[at.position / kBlockLength];
  auto head = static_cast<int>(kv_head);
  int place = index - range_.begin;
  float* key = keys_.data() + row * kv_size() + kv_head * size;
  norm_head(layer(index).k_norm, kv_head, key);
  turn(index, row, key);
  attention_.store_key(key, size, token, kv_type_, block.keys(place, head));
  attention_.store_value(
      values_.data() + row * kv_size() + kv_head * size,
      size,
      token,
      kv_type_,
      block.values(place, head));
}

void DecoderProgram::rotate(int index, int64_t row) {
  const auto& w = layer(index);
  if (w.q_norm.whole) {
    float* queries = queries_.data() + row * query_size();
    normed(w.q_norm.norm, queries, queries);
  }
  if (w.k_norm.whole) {
    float* keys = keys_.data() + row * kv_size();
    normed(w.k_norm.norm, keys, keys);
  }
  for (int64_t h = 0; h < weights_->kv_heads; ++h) {
    int64_t at = row * query_size() + h * group() * weights_->head_size;
    place_queries(index, row, h, queries_.data() + at);
    place_key(index, row, h);
  }
}

SplitState DecoderProgram::empty_state(int index, int64_t head, float* out)
    const {
  std::fill_n(out, weights_->head_size, 0.0f);
  const auto& sinks = layer(index).sinks;
  return sinks.empty() ? SplitState{kNoScore, 0, out}
                       : SplitState{sinks[head], 1, out};
}

void DecoderProgram::set_visible(
    int index,
    int64_t row,
    int64_t split,
    int32_t& begin,
    int32_t& end) const {
  int64_t position = rows_[row].position;
  int64_t start = split * kSplitLength;
  int window = layer(index).window;
  int64_t first = window > 0 ? std::max<int64_t>(0, position + 1 - window) : 0;
  begin =
      static_cast<int32_t>(std::clamp<int64_t>(first - start, 0, kSplitLength));
  end = static_cast<int32_t>(
      std::clamp<int64_t>(position + 1 - start, 0, kSplitLength));
}

KvSplit DecoderProgram::split_of(
    int input,
    int index,
    int64_t head,
    int64_t split) const {
  const auto& blocks = inputs_[input].kv.blocks;
  int place = index - range_.begin;
  KvSplit parts{};
  for (size_t i = 0; i < kSplitBlocks; ++i) {
    size_t b = split * kSplitBlocks + i;
    if (b < blocks.size()) {
      parts.keys[i] = blocks[b]->keys(place, static_cast<int>(head));
      parts.values[i] = blocks[b]->values(place, static_cast<int>(head));
    }
    if (b + kSplitBlocks < blocks.size()) {
      parts.next_keys[i] =
          blocks[b + kSplitBlocks]->keys(place, static_cast<int>(head));
    }
  }
  return parts;
}

void DecoderProgram::attend(int index, int64_t item, Scratch& scratch) {
  if (tiles_ > 0) {
    attend_tile(index, item, scratch);
  } else {
    attend_split(index, item, scratch);
  }
}

void DecoderProgram::attend_tile(int index, int64_t item, Scratch& scratch) {
  int64_t tile = item % tiles_;
  int64_t head = item / tiles_ % weights_->kv_heads;
  auto input = static_cast<int>(item / tiles_ / weights_->kv_heads);
  int64_t count =
      static_cast<int64_t>(rows_.size()) / static_cast<int64_t>(inputs_.size());
  int64_t per_tile = kSplitQueries / group();
  int64_t first = input * count + tile * per_tile;
  int64_t last = std::min(first + per_tile, (input + 1) * count);
  int64_t size = weights_->head_size;

  const float* queries[kSplitQueries];
  int32_t begin[kSplitQueries];
  int32_t end[kSplitQueries];
  SplitState later[kSplitQueries];
  SplitState states[kSplitQueries];
  int64_t n = 0;
  for (int64_t row = first; row < last; ++row) {
    for (int64_t g = 0; g < group(); ++g, ++n) {
      int64_t at = row * query_size() + (head * group() + g) * size;
      queries[n] = queries_.data() + at;
      states[n] =
          empty_state(index, head * group() + g, attention_rows_.data() + at);
      later[n].out = scratch.outs.data() + n * size;
    }
  }
  for (int64_t split = 0; split <= rows_[last - 1].position / kSplitLength;
       ++split) {
    bool any = false;
    for (int64_t i = 0; i < n; ++i) {
      set_visible(index, first + i / group(), split, begin[i], end[i]);
      any = any || begin[i] < end[i];
    }
    if (!any) {
      continue;
    }
    attention_.attend(
        {split_of(input, index, head, split),
         kv_type_,
         size,
         n,
         queries,
         begin,
         end,
         layer(index).softcap},
        later);
    for (int64_t i = 0; i < n; ++i) {
      if (begin[i] < end[i]) {
        attention_.join(later[i], size, states[i]);
      }
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    attention_.finish(states[i], size);
  }
}

void DecoderProgram::attend_split(int index, int64_t item, Scratch& scratch) {
  int64_t split = item % splits_;
  int64_t head = item / splits_ % weights_->kv_heads;
  int64_t row = item / splits_ / weights_->kv_heads;
  int64_t size = weights_->head_size;
  int32_t begin[kSplitQueries];
  int32_t end[kSplitQueries];
  const float* queries[kSplitQueries];
  SplitState* states = split_states_.data() + item * group();
  for (int64_t g = 0; g < group(); ++g) {
    set_visible(index, row, split, begin[g], end[g]);
    states[g] = {kNoScore, 0, split_outs_.data() + (item * group() + g) * size};
  }
  if (begin[0] >= end[0]) {
    return;
  }
  const float* placed =
      queries_.data() + row * query_size() + head * group() * size;
  if (places_itself(index)) {
    // No other row needs this one's key, and of its own splits only the last.
    place_queries(index, row, head, scratch.row.data());
    placed = scratch.row.data();
    if (split == rows_[row].position / kSplitLength) {
      place_key(index, row, head);
    }
  }
  for (int64_t g = 0; g < group(); ++g) {
    queries[g] = placed + g * size;
  }
  attention_.attend(
      {split_of(rows_[row].input, index, head, split),
       kv_type_,
       size,
       group(),
       queries,
       begin,
       end,
       layer(index).softcap},
      states);
}

const float*
DecoderProgram::join_splits(int index, int64_t row, Scratch& scratch) {
  int64_t size = weights_->head_size;
  for (int64_t head = 0; head < weights_->heads; ++head) {
    SplitState state =
        empty_state(index, head, scratch.row.data() + head * size);
    int64_t kv_head = row * weights_->kv_heads + head / group();
    for (int64_t split = 0; split < splits_; ++split) {
      const SplitState& part =
          split_states_[(kv_head * splits_ + split) * group() + head % group()];
      if (part.sum > 0) {
        attention_.join(part, size, state);
      }
    }
    attention_.finish(state, size);
  }
  return scratch.row.data();
}

}  // namespace mlxx::kernels

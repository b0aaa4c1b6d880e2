// Compiled once per instruction set, with MLXX_BYTE_TILES naming the function
// of that variant.
#include "mlxx/kernels/quantized_matmul/byte_kernels.h"
#include "mlxx/kernels/quantized_matmul/panel_bytes.h"
#include "mlxx/kernels/quantized_matmul/row_tiles.h"

namespace mlxx::kernels {
namespace {

// Where the bytes of a block of chunks come from.
enum class Source {
  nibbles,  // the panel, of 4-bit integers
  small,    // bytes below 128
  full,     // bytes
};

struct Block {
  const PanelLayout& layout;
  const ActivationRows& in;
  const std::byte* const* numbers;  // of each chunk
  size_t step;                      // bytes of the panel per chunk
  const float* scales;              // [chunk][halves][32]
  const float* biases;              // [chunk][32]
  int64_t from;                     // the first chunk
  int64_t chunks;
  bool direct;     // numbers are those of the panel itself
  int32_t offset;  // of bytes, unless there are biases
  float* y;        // [rows][32]
};

template <Source kSource>
MLXX_INLINE Words block_bytes(const std::byte* numbers, int index, int lane) {
  const auto* words = reinterpret_cast<const uint32_t*>(numbers) + lane;
  constexpr int kBits = kSource == Source::nibbles ? 4 : 8;
  return panel_bytes<kBits>(words, index, 0);
}

// Adds the products of words [kFrom, kTo) of a chunk with one byte of each
// number of kRows rows: one byte at a time, since there are not enough
// registers for the sums of both.
template <int kRows, Source kSource, int kFrom, int kTo>
MLXX_INLINE void add_words(
    const std::byte* numbers,
    int lane,
    const int8_t* bytes,
    int64_t stride,
    Ints (&sum)[kRows][2]) {
  constexpr bool kSmall = kSource != Source::full;
#pragma GCC unroll 8
  for (int i = kFrom; i < kTo; ++i) {
    Words w0 = block_bytes<kSource>(numbers, i, lane);
    Words w1 = block_bytes<kSource>(numbers, i, lane + kWidth);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      Words a = broadcast_bytes(bytes + r * stride + 4 * i);
      sum[r][0] = add_byte_products<kSmall>(sum[r][0], w0, a);
      sum[r][1] = add_byte_products<kSmall>(sum[r][1], w1, a);
    }
  }
}

// Adds to the totals what part kPart of a chunk gives: half of it, or all.
template <int kRows, Source kSource, Sums kSums, bool kTwoBytes, int kPart>
MLXX_INLINE void add_part(
    const Block& block,
    int64_t chunk,
    int64_t row,
    int lane,
    Floats (&total)[kRows][2]) {
  constexpr int kParts = kSums == Sums::halves ? 2 : 1;
  constexpr int kFrom = kPart * kWords / kParts;
  constexpr int kTo = kFrom + kWords / kParts;
  const ActivationRows& in = block.in;
  int64_t all = in.in / kChunk;
  const std::byte* numbers = block.numbers[chunk];
  int64_t at = row * in.in + (block.from + chunk) * kChunk;
  Ints sum[kRows][2] = {};
  add_words<kRows, kSource, kFrom, kTo>(
      numbers,
      lane,
      in.high + at,
      in.in,
      sum);
  if constexpr (kTwoBytes) {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      sum[r][0] <<= 8;
      sum[r][1] <<= 8;
    }
    add_words<kRows, kSource, kFrom, kTo>(
        numbers,
        lane,
        in.low + at,
        in.in,
        sum);
  }
  const float* scales = block.scales + (kParts * chunk + kPart) * kLanes + lane;
  Floats s0 = load(scales);
  Floats s1 = load(scales + kWidth);
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    int64_t index = (row + r) * all + block.from + chunk;
    Floats scale = broadcast(in.scales[index]);
    if constexpr (kSums != Sums::biased) {
      Ints more = excess<kSums>(block.offset, in.byte_sums + 2 * index, kPart);
      sum[r][0] -= more;
      sum[r][1] -= more;
    }
    total[r][0] = multiply_add(from_ints(sum[r][0]), s0 * scale, total[r][0]);
    total[r][1] = multiply_add(from_ints(sum[r][1]), s1 * scale, total[r][1]);
  }
  if constexpr (kSums == Sums::biased) {
    Floats b0 = load(block.biases + chunk * kLanes + lane);
    Floats b1 = load(block.biases + chunk * kLanes + lane + kWidth);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      Floats x = broadcast(in.sums[(row + r) * all + block.from + chunk]);
      total[r][0] = multiply_add(b0, x, total[r][0]);
      total[r][1] = multiply_add(b1, x, total[r][1]);
    }
  }
}

template <int kRows, Source kSource, Sums kSums, bool kTwoBytes>
MLXX_INLINE void tile(const Block& block, int64_t row, int lane) {
  Floats total[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const float* y = block.y + (row + r) * kLanes + lane;
    total[r][0] = block.from == 0 ? Floats{} : load(y);
    total[r][1] = block.from == 0 ? Floats{} : load(y + kWidth);
  }
  // The next block comes from memory while this one is multiplied.
  bool ahead = block.direct && row == 0 && lane == 0;
  for (int64_t chunk = 0; chunk < block.chunks; ++chunk) {
    if (ahead) {
      fetch(block.numbers[chunk] + block.chunks * block.step, block.step);
    }
    add_part<kRows, kSource, kSums, kTwoBytes, 0>(
        block,
        chunk,
        row,
        lane,
        total);
    if constexpr (kSums == Sums::halves) {
      add_part<kRows, kSource, kSums, kTwoBytes, 1>(
          block,
          chunk,
          row,
          lane,
          total);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    float* y = block.y + (row + r) * kLanes + lane;
    store(y, total[r][0]);
    store(y + kWidth, total[r][1]);
  }
}

template <Source kSource, Sums kSums, bool kTwoBytes>
void tiles(const Block& block) {
  for_each_tile(block.in.rows, [&](auto count, int64_t row) {
    constexpr int kRows = decltype(count)::kRows;
    for (int lane = 0; lane < kLanes; lane += kTileLanes) {
      tile<kRows, kSource, kSums, kTwoBytes>(block, row, lane);
    }
  });
}

template <Source kSource, Sums kSums>
void tiles_of_form(const Block& block) {
  if (block.in.low) {
    tiles<kSource, kSums, true>(block);
  } else {
    tiles<kSource, kSums, false>(block);
  }
}

template <Source kSource>
void tiles_of_source(const Block& block) {
  if (is_biased(block.layout)) {
    tiles_of_form<kSource, Sums::biased>(block);
  } else {
    tiles_of_form<kSource, Sums::whole>(block);
  }
}

template <int kBits, bool kE2m1 = false>
void unpack_chunk(const std::byte* from, std::byte* to) {
  const auto* words = reinterpret_cast<const uint32_t*>(from);
#pragma GCC unroll 8
  for (int i = 0; i < kWords; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      auto* at = reinterpret_cast<uint32_t*>(to) + i * kLanes + v * kWidth;
      Words bytes = panel_bytes<kBits>(words, i, v);
      *reinterpret_cast<WordsAnywhere*>(at) = kE2m1 ? e2m1_bytes(bytes) : bytes;
    }
  }
}

void unpack_chunk(
    const PanelLayout& layout,
    const std::byte* from,
    std::byte* to) {
  switch (layout.bits) {
    case 2:
      return unpack_chunk<2>(from, to);
    case 3:
      return unpack_chunk<3>(from, to);
    case 4:
      return unpack_chunk<4, true>(from, to);
    case 5:
      return unpack_chunk<5>(from, to);
    case 6:
      return unpack_chunk<6>(from, to);
  }
}

// Goes through a panel's chunks.
struct Place {
  const std::byte* group;  // that of the next chunk
  int chunk;               // within the group
};

// The numbers and scales of the next `chunks` chunks, and biases that are no
// multiple of the scales. Scales of E2M1 codes are half of theirs, since their
// bytes are twice the values.
MLXX_INLINE void read_block_of(
    const PanelLayout& layout,
    Place& place,
    int64_t chunks,
    bool direct,
    ByteScratch& scratch) {
  int halves = layout.half_groups ? 2 : 1;
  float unit = layout.codes == Codes::e2m1 ? 0.5f : 1.0f;
  int per_group = layout.chunks_per_group();
  bool biased = is_biased(layout);
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::byte* second = second_scales(layout, place.group);
    const std::byte* group_biases =
        place.group + kLanes * layout.number_bytes();
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      int at = v * kWidth;
      float* scales = scratch.scales + halves * chunk * kLanes + at;
      store(scales, load_number(place.group, layout.type, v) * unit);
      if (halves == 2) {
        store(scales + kLanes, load_number(second, layout.type, v) * unit);
      }
      if (biased) {
        store(
            scratch.biases + chunk * kLanes + at,
            load_number(group_biases, layout.type, v));
      }
    }
    const std::byte* numbers = place.group + layout.header_bytes() +
        place.chunk * layout.chunk_bytes();
    if (!direct) {
      std::byte* bytes = scratch.bytes + chunk * kChunk * kLanes;
      unpack_chunk(layout, numbers, bytes);
      numbers = bytes;
    }
    scratch.numbers[chunk] = numbers;
    if (++place.chunk == per_group) {
      place = {place.group + layout.group_bytes(), 0};
    }
  }
}

void read_block(
    const PanelLayout& layout,
    Place& place,
    int64_t chunks,
    bool direct,
    ByteScratch& scratch) {
  // Most panels, with what the compiler must know to be quick.
  if (layout.type == NumberType::float16 && direct) {
    PanelLayout known = layout;
    known.type = NumberType::float16;
    known.codes = Codes::integers;
    known.half_groups = false;
    return read_block_of(known, place, chunks, true, scratch);
  }
  read_block_of(layout, place, chunks, direct, scratch);
}

}  // namespace

ByteTiles MLXX_BYTE_TILES;

void MLXX_BYTE_TILES(
    const PanelLayout& layout,
    const std::byte* panel,
    const ActivationRows& activations,
    ByteScratch& scratch,
    float* y) {
  bool direct =
      layout.codes == Codes::integers && (layout.bits == 4 || layout.bits == 8);
  int64_t all = layout.chunks();
  Place place{panel, 0};
  for (int64_t from = 0; from < all; from += kBlockChunks) {
    int64_t chunks = all - from < kBlockChunks ? all - from : kBlockChunks;
    read_block(layout, place, chunks, direct, scratch);
    Block block{
        layout,
        activations,
        scratch.numbers,
        layout.group_bytes() / layout.chunks_per_group(),
        scratch.scales,
        scratch.biases,
        from,
        chunks,
        direct,
        byte_offset(layout),
        y};
    if (layout.half_groups) {
      tiles_of_form<Source::small, Sums::halves>(block);
    } else if (!direct) {
      tiles_of_source<Source::small>(block);
    } else if (layout.bits == 4) {
      tiles_of_source<Source::nibbles>(block);
    } else {
      tiles_of_source<Source::full>(block);
    }
  }
}

}  // namespace mlxx::kernels

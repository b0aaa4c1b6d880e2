// MLX's form of a matrix to tiles (weight_formats.cuh) and back. Both are
// permutations: of words of a row, and of the numbers in a word.

#include "mlxx/kernels/decode_step/cuda/decoder_cuda.h"
#include "mlxx/kernels/decode_step/cuda/device_math.cuh"

namespace mlxx::kernels::cuda {

namespace {

struct Layout {
  int bits;
  int words;   // of 32 bits, of a row of a tile
  int groups;  // scales of a row of a tile; 0: one of two tiles
  bool affine;
};

Layout layout_of(WeightFormat format, int group) {
  int groups = group ? kTileColumns / group : 0;
  switch (format) {
    case WeightFormat::affine4:
      return {4, 8, groups, true};
    case WeightFormat::affine8:
      return {8, 16, groups, true};
    case WeightFormat::mxfp4:
    case WeightFormat::nvfp4:
      return {4, 8, groups, false};
    default:
      return {16, 32, 0, false};
  }
}

bool is_supported(WeightFormat format, int group, int columns) {
  switch (format) {
    case WeightFormat::affine4:
    case WeightFormat::affine8:
      return (group == 32 || group == 64 || group == 128) &&
          columns % group == 0;
    case WeightFormat::mxfp4:
      return group == 32 && columns % 32 == 0;
    case WeightFormat::nvfp4:
      return group == 16 && columns % 16 == 0;
    case WeightFormat::bfloat16:
      return columns % 8 == 0;
  }
  return false;
}

int tiles_of(const PackedMatrix& m) {
  int tiles = (m.columns + kTileColumns - 1) / kTileColumns;
  return m.group == 128 ? (tiles + 1) / 2 * 2 : tiles;
}
int strips_of(const PackedMatrix& m) {
  return (m.rows + 15) / 16;
}

// The numbers of a word so that one shift and one mask give neighbours in the
// halves of a pair.
template <int BITS, bool BACK>
__device__ unsigned reorder(unsigned w) {
  if constexpr (BITS == 16) {
    return w;
  }
  constexpr int kCount = 32 / BITS;
  constexpr unsigned kMask = (1u << (BITS & 31)) - 1;
  unsigned r = 0;
  for (int e = 0; e < kCount; e++) {
    int place = e / 2 + e % 2 * (kCount / 2);
    int from = BACK ? place : e;
    int to = BACK ? e : place;
    r |= (w >> (BITS * from) & kMask) << (BITS * to);
  }
  return r;
}

struct Move {
  unsigned* packed_codes;
  void* packed_scales;
  unsigned* codes;
  void* scales;
  void* biases;
  int rows;         // of the part
  int filled_rows;  // those and zeros up to a whole strip
  int row_words;    // of the part
  int row_groups;
  int tiles;
  int first;
  RowOrder order;
};

__device__ int place_of(const Move& m, int row) {
  if (m.order == RowOrder::plain) {
    return m.first + row;
  }
  return m.first + row / 8 * 16 + row % 8 + (m.order == RowOrder::up ? 8 : 0);
}

template <int BITS, bool BACK>
__global__ void move_codes(Move m) {
  constexpr int kWords = 2 * BITS;  // of a row of a tile
  const int column_word = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (column_word >= m.tiles * kWords || row >= m.filled_rows) {
    return;
  }
  const int place = place_of(m, row);
  const int tile = column_word / kWords;
  const int j = column_word % kWords;
  const int row_half = place % 16 / 8;
  int part;
  int lane_t;
  int vector;
  if (BITS == 4) {
    lane_t = j % 4;
    vector = 0;
    part = row_half * 2 + j / 4;
  } else if (BITS == 8) {
    lane_t = j / 2 % 4;
    vector = j / 8;
    part = row_half * 2 + j % 2;
  } else {
    lane_t = j / 4 % 4;
    vector = j / 16 * 2 + row_half;
    part = j % 4;
  }
  const int lane = place % 8 * 4 + lane_t;
  size_t at =
      (static_cast<size_t>(place / 16) * m.tiles + tile) * (16 * kWords);
  unsigned& packed = m.packed_codes[at + vector * 128 + lane * 4 + part];
  const bool inside = row < m.rows && column_word < m.row_words;
  size_t from = static_cast<size_t>(row) * m.row_words + column_word;
  if (BACK) {
    if (inside) {
      m.codes[from] = reorder<BITS, true>(packed);
    }
  } else {
    packed = inside ? reorder<BITS, false>(m.codes[from]) : 0;
  }
}

// GROUPS: of a row of a tile (0: of two tiles); T: uint16 pairs or uint8.
template <int GROUPS, bool AFFINE, bool BACK>
__global__ void move_scales(Move m) {
  const int group = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int groups = GROUPS ? m.tiles * GROUPS : m.tiles / 2;
  if (group >= groups || row >= m.filled_rows) {
    return;
  }
  const int place = place_of(m, row);
  const int row_half = place % 16 / 8;
  const bool inside = row < m.rows && group < m.row_groups;
  const size_t from = static_cast<size_t>(row) * m.row_groups + group;
  const size_t strip = place / 16;
  if (AFFINE) {
    size_t at = ((strip * groups + group) * 8 + place % 8) * 4 + row_half * 2;
    auto* packed = static_cast<unsigned short*>(m.packed_scales) + at;
    auto* scales = static_cast<unsigned short*>(m.scales);
    auto* biases = static_cast<unsigned short*>(m.biases);
    if (!BACK) {
      packed[0] = inside ? scales[from] : 0;
      packed[1] = inside ? biases[from] : 0;
    } else if (inside) {
      scales[from] = packed[0];
      biases[from] = packed[1];
    }
    return;
  }
  constexpr int kGroups = GROUPS ? GROUPS : 1;
  size_t at =
      ((strip * m.tiles + group / kGroups) * 8 + place % 8) * (2 * kGroups) +
      row_half * kGroups + group % kGroups;
  auto* packed = static_cast<unsigned char*>(m.packed_scales) + at;
  auto* scales = static_cast<unsigned char*>(m.scales);
  if (!BACK) {
    *packed = inside ? scales[from] : 0;
  } else if (inside) {
    scales[from] = *packed;
  }
}

template <bool BACK>
Status move(
    const MlxMatrix& part,
    const PackedMatrix& whole,
    RowOrder order,
    int first,
    Stream stream) {
  const int reach = order == RowOrder::plain ? part.rows : 2 * part.rows;
  if (!is_supported(whole.format, whole.group, whole.columns) ||
      part.format != whole.format || part.group != whole.group ||
      part.columns != whole.columns || first < 0 || part.rows < 1 ||
      first + reach > whole.rows ||
      (order != RowOrder::plain && (part.rows % 8 != 0 || first % 16 != 0))) {
    return cudaErrorInvalidValue;
  }
  const Layout layout = layout_of(whole.format, whole.group);
  Move m = {};
  m.packed_codes = static_cast<unsigned*>(whole.codes);
  m.packed_scales = whole.scales;
  m.codes = static_cast<unsigned*>(const_cast<void*>(part.weight));
  m.scales = const_cast<void*>(part.scales);
  m.biases = const_cast<void*>(part.biases);
  m.rows = part.rows;
  m.filled_rows = part.rows;
  if (order == RowOrder::plain && first + part.rows == whole.rows) {
    m.filled_rows = strips_of(whole) * 16 - first;
  }
  m.row_words = part.columns * layout.bits / 32;
  m.row_groups = part.group ? part.columns / part.group : 0;
  m.tiles = tiles_of(whole);
  m.first = first;
  m.order = order;
  const dim3 block(32, 8);
  auto grid = [&](int columns) {
    return dim3((columns + 31) / 32, (m.filled_rows + 7) / 8);
  };
  const dim3 codes = grid(m.tiles * layout.words);
  // grid.y is at most 65535 blocks of 8 rows.
  if (codes.y > 65535) {
    return cudaErrorInvalidValue;
  }
  if (layout.bits == 4) {
    move_codes<4, BACK><<<codes, block, 0, stream>>>(m);
  } else if (layout.bits == 8) {
    move_codes<8, BACK><<<codes, block, 0, stream>>>(m);
  } else {
    move_codes<16, BACK><<<codes, block, 0, stream>>>(m);
  }
  if (whole.format == WeightFormat::bfloat16) {
    return cudaGetLastError();
  }
  const dim3 scales = grid(layout.groups ? m.tiles * layout.groups : m.tiles);
  if (layout.affine && layout.groups == 2) {
    move_scales<2, true, BACK><<<scales, block, 0, stream>>>(m);
  } else if (layout.affine && layout.groups == 1) {
    move_scales<1, true, BACK><<<scales, block, 0, stream>>>(m);
  } else if (layout.affine) {
    move_scales<0, true, BACK><<<scales, block, 0, stream>>>(m);
  } else if (layout.groups == 2) {
    move_scales<2, false, BACK><<<scales, block, 0, stream>>>(m);
  } else {
    move_scales<4, false, BACK><<<scales, block, 0, stream>>>(m);
  }
  return cudaGetLastError();
}

}  // namespace

PackedSize packed_size(const PackedMatrix& matrix) {
  if (!is_supported(matrix.format, matrix.group, matrix.columns) ||
      matrix.rows < 1) {
    return {};
  }
  const Layout layout = layout_of(matrix.format, matrix.group);
  size_t tiles = static_cast<size_t>(strips_of(matrix)) * tiles_of(matrix);
  PackedSize size;
  size.codes = tiles * 16 * layout.words * 4;
  if (layout.affine) {
    size.scales = layout.groups ? tiles * 64 * layout.groups : tiles * 32;
  } else {
    size.scales = tiles * 16 * layout.groups;
  }
  return size;
}

Status pack(
    const MlxMatrix& part,
    const PackedMatrix& whole,
    RowOrder order,
    int first,
    Stream stream) {
  return move<false>(part, whole, order, first, stream);
}

Status unpack(
    const PackedMatrix& whole,
    RowOrder order,
    int first,
    const MlxMatrix& part,
    Stream stream) {
  return move<true>(part, whole, order, first, stream);
}

}  // namespace mlxx::kernels::cuda

// Packing and products of every format against plain sums: shapes that no tile
// divides, every number of rows that is computed in its own way, every cut.

#include "mlxx/kernels/decode_step/cuda/product_launch.cuh"
#include "tests/kernels/cuda/device_arrays.h"

using namespace mlxx::kernels::cuda;

namespace {

int failures = 0;

struct Case {
  WeightFormat format;
  int group;
};
const Case kCases[] = {
    {WeightFormat::affine4, 32},
    {WeightFormat::affine4, 64},
    {WeightFormat::affine4, 128},
    {WeightFormat::affine8, 32},
    {WeightFormat::affine8, 64},
    {WeightFormat::affine8, 128},
    {WeightFormat::mxfp4, 32},
    {WeightFormat::nvfp4, 16},
    {WeightFormat::bfloat16, 0},
};

void check(
    bool right,
    const char* what,
    const Case& c,
    int rows,
    int columns,
    double by) {
  if (!right) {
    failures++;
    std::printf(
        "FAIL %s of %s, group %d, [%d, %d]: %g\n",
        what,
        name_of(c.format),
        c.group,
        rows,
        columns,
        by);
  }
}

void check_packing(const Case& c, int rows, int columns) {
  Pool pool;
  HostMatrix gate(c.format, c.group, rows, columns, 1);
  HostMatrix up(c.format, c.group, rows, columns, 2);
  auto back = [&](const PackedMatrix& whole,
                  RowOrder order,
                  int first,
                  const HostMatrix& want) {
    MlxMatrix out = want.shape;
    auto* weight = pool.make<uint32_t>(want.weight.size());
    out.weight = weight;
    size_t scales = want.scales16.size() + want.scales8.size();
    auto* s = pool.make<uint16_t>(scales);
    auto* b = pool.make<uint16_t>(scales);
    out.scales = s;
    out.biases = b;
    require(unpack(whole, order, first, out, nullptr), "unpack");
    bool same = download(weight, want.weight.size()) == want.weight;
    if (!want.scales16.empty()) {
      same = same && download(s, scales) == want.scales16 &&
          download(b, scales) == want.biases16;
    } else if (!want.scales8.empty()) {
      same = same &&
          download(reinterpret_cast<uint8_t*>(s), scales) == want.scales8;
    }
    check(same, "unpacked form", c, rows, columns, 0);
  };
  PackedMatrix whole = make_packed(pool, c.format, c.group, 2 * rows, columns);
  if (rows % 8 == 0) {
    require(
        pack(gate.on_device(pool), whole, RowOrder::gate, 0, nullptr),
        "pack");
    require(pack(up.on_device(pool), whole, RowOrder::up, 0, nullptr), "pack");
    back(whole, RowOrder::gate, 0, gate);
    back(whole, RowOrder::up, 0, up);
  }
  if (rows % 16 == 0) {
    require(
        pack(gate.on_device(pool), whole, RowOrder::plain, 0, nullptr),
        "pack");
    require(
        pack(up.on_device(pool), whole, RowOrder::plain, rows, nullptr),
        "pack");
    back(whole, RowOrder::plain, 0, gate);
    back(whole, RowOrder::plain, rows, up);
  }
}

void check_products(const Case& c, int out, int in, bool hopper) {
  Pool pool;
  HostMatrix w(c.format, c.group, out, in, out + in);
  PackedMatrix packed = make_packed(pool, c.format, c.group, out, in);
  require(pack(w.on_device(pool), packed, RowOrder::plain, 0, nullptr), "pack");
  const int stride = (in + 127) / 128 * 128;
  Random random(7);
  std::vector<float> x(64 * static_cast<size_t>(in));
  for (float& v : x) {
    v = rounded(random.uniform());
  }
  std::vector<float> bias(out);
  for (float& v : bias) {
    v = random.uniform();
  }
  std::vector<float> all(64 * static_cast<size_t>(out));
  for (int m = 0; m < 64; m++) {
    for (int n = 0; n < out; n++) {
      double sum = 0;
      for (int k = 0; k < in; k++) {
        sum += static_cast<double>(x[static_cast<size_t>(m) * in + k]) *
            w.values[static_cast<size_t>(n) * in + k];
      }
      all[static_cast<size_t>(m) * out + n] = static_cast<float>(sum + bias[n]);
    }
  }
  std::vector<float> first_rows;
  auto* device_x = pool.make<bf16>(64 * static_cast<size_t>(stride));
  auto* y = pool.make<float>(64 * static_cast<size_t>(out) + 64);
  Product p;
  p.codes = static_cast<const uint4*>(packed.codes);
  p.scales = packed.scales;
  p.out = out;
  p.strips = (out + 15) / 16;
  p.tiles = (in + 63) / 64;
  if (c.group == 128) {
    p.tiles = (p.tiles + 1) / 2 * 2;
  }
  p.bias = pool.upload(bias);
  p.into = Into::floats;
  p.floats = y;
  for (int rows : {1, 3, 8, 9, 16, 17, 32, 50, 64}) {
    const int cores = rows <= 8 ? 0 : rows <= 16 ? 2 : rows <= 32 ? 4 : 8;
    p.rows = rows;
    p.x = {device_x, stride, cores};
    std::vector<uint16_t> placed(64 * static_cast<size_t>(stride));
    for (int m = 0; m < rows; m++) {
      for (int k = 0; k < in; k++) {
        // As Rows::at() has it.
        size_t at = static_cast<size_t>(m) * stride + k;
        if (cores) {
          size_t core = (k / 32 * 4 + k / 2 % 4) * cores + m / 8;
          at = core * 64 + m % 8 * 8 + k / 8 % 4 * 2 + k % 2;
        }
        placed[at] = bfloat16_bits(x[static_cast<size_t>(m) * in + k]);
      }
    }
    require(
        cudaMemcpy(
            device_x,
            placed.data(),
            placed.size() * 2,
            cudaMemcpyHostToDevice),
        "upload");
    std::vector<float> want(
        all.begin(),
        all.begin() + static_cast<size_t>(rows) * out);
    const int cuts = cores ? (hopper ? 4 : 1) : hopper && c.group == 0 ? 5 : 3;
    for (int cut = 0; cut < cuts; cut++) {
      ProductShape shape;
      shape.rows = static_cast<RowsShape>(cores ? 0 : cut);
      shape.blocks = 5;  // so that some have several strips
      shape.ranks = cores && hopper ? 1 << cut : 1;
      require(
          cudaMemset(y, 0xff, (64 * static_cast<size_t>(out) + 64) * 4),
          "poison");
      require(
          launch_product(p, c.format, c.group, shape, hopper, nullptr),
          "launch");
      require(cudaDeviceSynchronize(), "product");
      auto got = download(y, 64 * static_cast<size_t>(out) + 64);
      double error = relative_error(got, want);
      // Wide products of affine matrices round W to bfloat16.
      const double bound = cores ? 5e-3 : 3e-5;
      check(error < bound, "product", c, rows * 10000 + out, in, error);
      for (size_t i = want.size(); i < got.size(); i++) {
        uint32_t bits;
        memcpy(&bits, &got[i], 4);
        if (bits != 0xffffffffu) {
          check(false, "a sum past the last row", c, rows, in, got[i]);
          break;
        }
      }
    }
  }
}

}  // namespace

int main() {
  int major = 0;
  require(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0),
      "device");
  for (const Case& c : kCases) {
    int whole = c.group == 128 ? 384 : 192;
    check_packing(c, 48, whole);
    check_packing(c, 24, whole);
    int odd = c.group == 0 ? 104
        : c.group == 128   ? 128
        : c.group == 64    ? 64
                           : 96;
    check_products(c, 40, odd, major >= 9);
    check_products(
        c,
        328,
        c.group == 128 ? 1408 : 1312 / 64 * 64 + (c.group <= 32 ? 32 : 0),
        major >= 9);
    std::printf("%s group %d done\n", name_of(c.format), c.group);
  }
  std::printf(failures ? "%d FAILURES\n" : "all products right\n", failures);
  return failures != 0;
}

// Times whole decode steps with the shapes of Llama 3.1 8B and of a 1B, random
// weights: tokens a second, bytes read a second and their share of the memory's
// bandwidth. Arguments: model (8b, 1b), format (affine4, affine8, mxfp4, nvfp4,
// bfloat16), tokens in the cache, then rows..., then options: splits=N
// ranks=N shapes=NNNN (decoder_step.cuh), parts (attention and products by
// themselves).

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "mlxx/kernels/decode_step/cuda/decoder_step.cuh"
#include "mlxx/kernels/decode_step/cuda/device_math.cuh"

using namespace mlxx::kernels::cuda;

namespace {

void require(int status, const char* what) {
  if (status != cudaSuccess) {
    std::printf(
        "%s: %s\n",
        what,
        cudaGetErrorString(static_cast<cudaError_t>(status)));
    std::exit(1);
  }
}

__device__ unsigned hash(size_t i, unsigned seed) {
  unsigned h = static_cast<unsigned>(i) * 2654435761u + seed * 40503u;
  h ^= h >> 15;
  h *= 2246822519u;
  h ^= h >> 13;
  h *= 3266489917u;
  return h ^ h >> 16;
}
__device__ float number(size_t i, unsigned seed) {  // -1 to 1
  return (hash(i, seed) & 0xffff) / 32768.f - 1.f;
}
enum class Fill { bits, numbers, scales, exponents, fp8 };
__global__ void
fill(void* to, size_t bytes, Fill kind, float size, unsigned seed) {
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
       i < bytes / 4;
       i += static_cast<size_t>(gridDim.x) * blockDim.x) {
    unsigned v = hash(i, seed);
    if (kind == Fill::numbers) {
      v = pack_pair(size * number(2 * i, seed), size * number(2 * i + 1, seed));
    } else if (kind == Fill::scales) {
      float s = size * (1 + 0.3f * number(i, seed));
      v = pack_pair(s, -7.5f * s);
    } else if (kind == Fill::exponents) {
      v = 0x77777777u + (v & 0x01010101u);
    } else if (kind == Fill::fp8) {
      v = v & 0x07070707u;
    }
    static_cast<unsigned*>(to)[i] = v;
  }
}
__global__ void
fill_floats(float* to, size_t count, float middle, float size, unsigned seed) {
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
       i < count;
       i += static_cast<size_t>(gridDim.x) * blockDim.x) {
    to[i] = middle + size * number(i, seed);
  }
}

void* make(size_t bytes) {
  void* p = nullptr;
  require(cudaMalloc(&p, bytes), "cudaMalloc");
  require(cudaMemset(p, 0, bytes), "cudaMemset");
  return p;
}
void fill_with(void* p, size_t bytes, Fill kind, float size, unsigned seed) {
  fill<<<1024, 256>>>(p, bytes, kind, size, seed);
  require(cudaGetLastError(), "fill");
}

struct Shapes {
  const char* name;
  int size, layers, heads, kv_heads, head_size, inner, vocabulary;
};
const Shapes kModels[] = {
    {"8b", 4096, 32, 32, 8, 128, 14336, 128256},
    {"1b", 2048, 16, 16, 4, 128, 8192, 128256},
};

class Model {
 public:
  Model(const Shapes& s, WeightFormat format, int group)
      : format_(format), group_(group) {
    decoder.hidden_size = s.size;
    decoder.heads = s.heads;
    decoder.kv_heads = s.kv_heads;
    decoder.head_size = s.head_size;
    std::vector<double> turns(s.head_size / 2);
    for (size_t i = 0; i < turns.size(); i++) {
      turns[i] = std::pow(500000., -2. * i / s.head_size);
    }
    auto* device_turns = static_cast<double*>(make(turns.size() * 8));
    require(
        cudaMemcpy(
            device_turns,
            turns.data(),
            turns.size() * 8,
            cudaMemcpyHostToDevice),
        "copy");
    RotationTable table;
    table.per_position = device_turns;
    table.dims = s.head_size;
    decoder.rotations = {table};
    for (int l = 0; l < s.layers; l++) {
      DecoderLayer layer;
      layer.before_attention = norm(s.size);
      layer.qkv.matrix =
          matrix((s.heads + 2 * s.kv_heads) * s.head_size, s.size, true);
      layer.o.matrix = matrix(s.size, s.heads * s.head_size, true);
      layer.rotation = 0;
      layer.attention_scale = 1 / std::sqrt(static_cast<float>(s.head_size));
      layer.before_mlp = norm(s.size);
      layer.gate_up.matrix = matrix(2 * s.inner, s.size, true);
      layer.down.matrix = matrix(s.size, s.inner, true);
      decoder.layers.push_back(layer);
    }
    decoder.embedding = matrix(s.vocabulary, s.size, false);
    decoder.final_norm = norm(s.size);
    decoder.head.matrix = matrix(s.vocabulary, s.size, true);
    std::string why = why_not_run(decoder);
    if (!why.empty()) {
      std::printf("%s\n", why.c_str());
      std::exit(1);
    }
  }
  Decoder decoder;
  size_t bytes = 0;  // that a step reads

 private:
  Norm norm(int size) {
    auto* weight = static_cast<float*>(make(size * 4));
    fill_floats<<<64, 256>>>(weight, size, 1, 0.3f, ++seed_);
    Norm n;
    n.kind = Norm::Kind::rms;
    n.eps = 1e-5f;
    n.weight = weight;
    return n;
  }
  PackedMatrix matrix(int rows, int columns, bool counts) {
    PackedMatrix m;
    m.rows = rows;
    m.columns = columns;
    m.format = format_;
    m.group = group_;
    PackedSize size = packed_size(m);
    m.codes = make(size.codes);
    const float scale = 1 / std::sqrt(static_cast<float>(columns));
    fill_with(
        m.codes,
        size.codes,
        group_ ? Fill::bits : Fill::numbers,
        scale,
        ++seed_);
    if (size.scales) {
      m.scales = make(size.scales);
      Fill kind = format_ == WeightFormat::mxfp4 ? Fill::exponents
          : format_ == WeightFormat::nvfp4       ? Fill::fp8
                                                 : Fill::scales;
      float step = format_ == WeightFormat::affine8 ? 0.0125f : 0.2f;
      fill_with(m.scales, size.scales, kind, step * scale, ++seed_);
    }
    if (counts) {
      bytes += size.codes + size.scales;
    }
    return m;
  }
  WeightFormat format_;
  int group_;
  unsigned seed_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::printf(
        "decode_step_bench <8b|1b> <format> <tokens> <rows>... [option]...\n");
    return 2;
  }
  const Shapes& shapes = kModels[std::strcmp(argv[1], "1b") == 0];
  const std::string name = argv[2];
  WeightFormat format = name == "affine8" ? WeightFormat::affine8
      : name == "mxfp4"                   ? WeightFormat::mxfp4
      : name == "nvfp4"                   ? WeightFormat::nvfp4
      : name == "bfloat16"                ? WeightFormat::bfloat16
                                          : WeightFormat::affine4;
  int group = name == "mxfp4" ? 32
      : name == "nvfp4"       ? 16
      : name == "bfloat16"    ? 0
                              : 64;
  const int tokens = std::atoi(argv[3]);
  std::vector<int> rows;
  std::vector<StepTuning> tunings;
  std::vector<std::string> labels;
  StepTuning tuning;
  bool parts = false;
  auto add = [&](const std::string& label) {
    tunings.push_back(tuning);
    labels.push_back(label);
  };
  for (int i = 4; i < argc; i++) {
    std::string a = argv[i];
    int n = std::atoi(a.substr(a.find('=') + 1).c_str());
    if (a.rfind("ranks=", 0) == 0) {
      tuning.ranks = n;
      add(a);
    } else if (a.rfind("shapes=", 0) == 0) {
      for (int k = 0; k < 4; k++) {
        tuning.shapes[k] = n /
            (k == 0       ? 1000
                 : k == 1 ? 100
                 : k == 2 ? 10
                          : 1) %
            10;
      }
      add(a);
    } else if (a.rfind("splits=", 0) == 0) {
      tuning.few_splits = tuning.many_splits = n;
      add(a);
    } else if (a == "parts") {
      parts = true;
    } else {
      rows.push_back(n);
    }
  }
  if (tunings.empty()) {
    add("default");
  }
  if (parts) {
    tuning = tunings[0];
    tuning.attention = false;
    add("products only");
    tuning.attention = true;
    tuning.products = false;
    add("attention only");
  }
  Model model(shapes, format, group);
  const int most = std::min(64, *std::max_element(rows.begin(), rows.end()));
  const int per_row = tokens / kKvBlockLength + 2;
  const size_t block = kv_block_bytes(model.decoder);
  char* cache = static_cast<char*>(make(block * per_row * most));
  fill_with(cache, block * per_row * most, Fill::numbers, 1, 99);
  std::vector<void*> table;
  for (int i = 0; i < per_row * most; i++) {
    table.push_back(cache + block * (i * 7ll % (per_row * most)));
  }
  void** blocks = static_cast<void**>(make(table.size() * 8));
  require(
      cudaMemcpy(
          blocks,
          table.data(),
          table.size() * 8,
          cudaMemcpyHostToDevice),
      "copy");
  auto* ids = static_cast<int32_t*>(make(most * 4));
  auto* lengths = static_cast<int32_t*>(make(most * 4));
  void* workspace = make(workspace_bytes(model.decoder, most, tokens + 100));
  auto* logits = static_cast<float*>(
      make(static_cast<size_t>(most) * shapes.vocabulary * 4));
  void* choice = make(choice_workspace_bytes(most, shapes.vocabulary));
  cudaStream_t stream;
  require(cudaStreamCreate(&stream), "stream");
  for (int m : rows) {
    for (size_t v = 0; v < tunings.size(); v++) {
      std::vector<int32_t> start(m);
      for (int r = 0; r < m; r++) {
        start[r] = 17 + 31 * r;
      }
      require(
          cudaMemcpy(ids, start.data(), m * 4, cudaMemcpyHostToDevice),
          "copy");
      start.assign(m, tokens - 30);
      require(
          cudaMemcpy(lengths, start.data(), m * 4, cudaMemcpyHostToDevice),
          "copy");
      StepInput in;
      in.rows = m;
      in.tokens = ids;
      in.lengths = lengths;
      in.blocks = blocks;
      in.blocks_stride = per_row;
      in.longest = tokens + 60;
      ChoiceInput next;
      next.rows = m;
      next.vocabulary = shapes.vocabulary;
      next.logits = logits;
      next.tokens = ids;
      next.lengths = lengths;
      cudaGraph_t graph;
      cudaGraphExec_t run;
      require(
          cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
          "capture");
      require(
          launch_tuned_step(
              model.decoder,
              in,
              tunings[v],
              workspace,
              logits,
              stream),
          "step");
      require(launch_choice(next, choice, stream), "choice");
      require(cudaStreamEndCapture(stream, &graph), "capture");
      require(cudaGraphInstantiate(&run, graph, 0), "graph");
      for (int i = 0; i < 5; i++) {
        require(cudaGraphLaunch(run, stream), "launch");
      }
      require(cudaStreamSynchronize(stream), "step");
      constexpr int kSteps = 50;
      auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kSteps; i++) {
        require(cudaGraphLaunch(run, stream), "launch");
      }
      require(cudaStreamSynchronize(stream), "steps");
      double seconds = std::chrono::duration<double>(
                           std::chrono::steady_clock::now() - begin)
                           .count() /
          kSteps;
      double read = static_cast<double>(model.bytes) +
          static_cast<double>(m) * tokens / kKvBlockLength * block;
      std::printf(
          "%s %s ctx %d rows %d %s: %.3f ms, %.0f tok/s, %.0f GB/s, %.0f %% of "
          "4.8 TB/s\n",
          shapes.name,
          name.c_str(),
          tokens,
          m,
          labels[v].c_str(),
          seconds * 1e3,
          m / seconds,
          read / seconds / 1e9,
          read / seconds / 4.8e10);
      std::fflush(stdout);
      cudaGraphExecDestroy(run);
      cudaGraphDestroy(graph);
    }
  }
  return 0;
}

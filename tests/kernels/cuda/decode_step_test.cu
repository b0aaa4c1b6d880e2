// Whole steps of small decoders with everything that one can have, against
// float on the host; bits for different numbers of rows; choices of tokens.

#include <algorithm>
#include <numeric>

#include "tests/kernels/cuda/reference_decoder.h"

using namespace mlxx::kernels::cuda;

namespace {

int failures = 0;

void check(bool right, const char* what, const std::string& name, double by) {
  if (!right) {
    failures++;
    std::printf("FAIL %s of %s: %g\n", what, name.c_str(), by);
  }
}

struct Run {
  std::vector<float> logits;  // [rows, V]
};

class Steps {
 public:
  Steps(const DecoderCase& c, const std::vector<int>& lengths)
      : c_(c),
        lengths_(lengths),
        longest_(*std::max_element(lengths.begin(), lengths.end())),
        per_row_(longest_ / kKvBlockLength + 1),
        decoder_(pool_, c, kBlocks) {
    std::string why = why_not_run(decoder_.device);
    check(why.empty(), why.c_str(), c.name, 0);
    workspace_ = pool_.bytes(workspace_bytes(decoder_.device, kMaxRows, 20000));
    logits_ = pool_.make<float>(static_cast<size_t>(kMaxRows) * c.vocabulary);
    for (int r = 0; r < static_cast<int>(lengths.size()); r++) {
      std::vector<int> row;
      for (int b = 0; b < per_row_; b++) {
        // Blocks of earlier tokens are shared; the one written to is the row's.
        int shared = kMaxRows + (b * 7 + r * 3) % (kBlocks - kMaxRows);
        row.push_back(b == lengths[r] / kKvBlockLength ? r : shared);
      }
      blocks_.push_back(row);
      tokens_.push_back((r * 131 + 7) % c.vocabulary);
    }
  }

  // Of rows [first, first + count).
  std::vector<float>
  run(int first, int count, bool deterministic, int longest) {
    std::vector<int32_t> tokens(
        tokens_.begin() + first,
        tokens_.begin() + first + count);
    std::vector<int32_t> lengths(
        lengths_.begin() + first,
        lengths_.begin() + first + count);
    std::vector<void*> table;
    for (int r = first; r < first + count; r++) {
      for (int b : blocks_[r]) {
        table.push_back(decoder_.device_kv[b]);
      }
    }
    Pool pool;
    StepInput in;
    in.rows = count;
    in.tokens = pool.upload(tokens);
    in.lengths = pool.upload(lengths);
    in.blocks = pool.upload(table);
    in.blocks_stride = per_row_;
    in.longest = std::max(longest_, longest);
    in.deterministic = deterministic;
    size_t size = static_cast<size_t>(count) * c_.vocabulary;
    require(cudaMemset(logits_, 0xff, size * 4), "poison");
    require(
        launch_step(decoder_.device, in, workspace_, logits_, nullptr),
        "launch_step");
    require(cudaDeviceSynchronize(), c_.name.c_str());
    return download(logits_, size);
  }
  std::vector<float> want(int first, int count) {
    std::vector<float> all;
    for (int r = first; r < first + count; r++) {
      auto row = decoder_.step(tokens_[r], lengths_[r], blocks_[r]);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }
  int rows() const {
    return static_cast<int>(lengths_.size());
  }

 private:
  static constexpr int kBlocks = kMaxRows + 24;
  DecoderCase c_;
  std::vector<int> lengths_;
  int longest_;
  int per_row_;
  Pool pool_;
  TestDecoder decoder_;
  void* workspace_;
  float* logits_;
  std::vector<std::vector<int>> blocks_;
  std::vector<int> tokens_;
};

void check_case(const DecoderCase& c, const std::vector<int>& lengths) {
  Steps steps(c, lengths);
  const int rows = steps.rows();
  const size_t v = c.vocabulary;
  auto want = steps.want(0, rows);
  auto part = [&](const std::vector<float>& all, int first, int count) {
    return std::vector<float>(
        all.begin() + first * v,
        all.begin() + (first + count) * v);
  };
  auto all = steps.run(0, rows, false, 0);
  double error = relative_error(all, want);
  // Of a row alone, which among many would go unseen.
  double worst = 0;
  for (int r = 0; r < rows; r++) {
    worst = std::max(worst, relative_error(part(all, r, 1), part(want, r, 1)));
  }
  check(worst < 0.02, "a step", c.name, worst);
  check(
      all == steps.run(0, rows, false, 9000),
      "the same step, longer",
      c.name,
      0);
  auto few = steps.run(0, std::min(rows, 8), false, 0);
  double few_error = relative_error(few, part(want, 0, std::min(rows, 8)));
  check(few_error < 0.02, "a step of 8 rows", c.name, few_error);
  for (int r = 0; r < std::min(rows, 8); r++) {
    check(
        part(few, r, 1) == steps.run(r, 1, false, 0),
        "a row's bits",
        c.name,
        r);
  }
  if (rows > 8) {
    auto same = steps.run(0, rows, true, 0);
    check(part(same, 0, 8) == few, "deterministic bits", c.name, 0);
    int less = std::max(9, rows / 2);
    check(
        part(all, 0, less) == steps.run(0, less, false, 0),
        "bits among many",
        c.name,
        0);
  }
  std::printf("%s: error %.4f, worst row %.4f\n", c.name.c_str(), error, worst);
}

// Number `index` of a threefry2x32 generator, as MLX's random::uniform makes
// `count` of them.
uint32_t random_bits(const uint32_t* key, int index, int count) {
  const int half = count / 2;
  const int apart = half + count % 2;
  const bool second = index >= apart;
  uint32_t a = second ? index - apart : index;
  uint32_t b = second ? index : index < half ? index + apart : 0;
  const uint32_t keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA};
  const int turns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  a += keys[0];
  b += keys[1];
  for (uint32_t round = 0; round < 5; round++) {
    for (int turn : turns[round % 2]) {
      a += b;
      b = (b << turn | b >> (32 - turn)) ^ a;
    }
    a += keys[(round + 1) % 3];
    b += keys[(round + 2) % 3] + round + 1;
  }
  return second ? b : a;
}

// Tokens that mlx-lm's filters leave, in their order.
std::vector<bool>
kept_tokens(const float* l, const std::vector<int>& order, TokenSampling s) {
  const size_t count = order.size();
  double total = 0;
  auto mass = [&](size_t i) {
    return std::exp(static_cast<double>(l[order[i]]) - l[order[0]]);
  };
  for (size_t i = 0; i < count; i++) {
    total += mass(i);
  }
  size_t kept = count;
  if (s.top_p > 0 && s.top_p < 1) {
    double reached = 0;
    for (kept = 0; kept < count && reached < total * s.top_p; kept++) {
      reached += mass(kept);
    }
  }
  while (s.min_p > 0 && kept > static_cast<size_t>(s.min_tokens_to_keep) &&
         mass(kept - 1) < s.min_p) {
    kept--;
  }
  if (s.top_k > 0) {
    kept = std::min(kept, static_cast<size_t>(s.top_k));
  }
  std::vector<bool> result(count);
  for (size_t i = 0; i < kept; i++) {
    result[order[i]] = true;
  }
  return result;
}

void check_choices() {
  Pool pool;
  for (int vocabulary : {4099, 1000, 1}) {
    const int rows = 14;
    Random random(5);
    std::vector<float> logits(static_cast<size_t>(rows) * vocabulary);
    for (float& l : logits) {
      l = 6 * random.uniform() * random.uniform();
    }
    ChoiceInput in;
    std::vector<int32_t> lengths;
    for (int r = 0; r < rows; r++) {
      in.sampling[r] = {
          .temperature = r == 0 ? 0.f : 0.5f + 0.1f * r,
          .top_p = r % 4 == 2 ? 0.7f : 1.f,
          .min_p = r % 5 == 3 ? 0.1f : 0.f,
          .min_tokens_to_keep = r == 8 ? 900 : 1,
          .top_k = r % 3 == 1 ? 5 + 20 * r : 0,
          .key = {17u * r, 4000000000u + r}};
      lengths.push_back(r);
    }
    const int equal = 1, nan = 11, removed = 12, none = 13;
    for (int i = 0; i < vocabulary; i++) {
      logits[static_cast<size_t>(none) * vocabulary + i] = -INFINITY;
      float& l = logits[static_cast<size_t>(equal) * vocabulary + i];
      l = i % 7 == 3 ? 2.f : 1.f;  // ties at the last of top_k
      if (i % 3) {
        logits[static_cast<size_t>(removed) * vocabulary + i] = -INFINITY;
      }
    }
    logits[static_cast<size_t>(nan) * vocabulary + vocabulary / 2] = NAN;
    in.rows = rows;
    in.vocabulary = vocabulary;
    in.logits = pool.upload(logits);
    in.tokens = pool.make<int32_t>(rows);
    in.logprobs = pool.make<float>(rows);
    in.check = pool.make<float>(rows);
    in.lengths = pool.upload(lengths);
    void* workspace = pool.bytes(choice_workspace_bytes(rows, vocabulary));
    require(launch_choice(in, workspace, nullptr), "launch_choice");
    require(cudaDeviceSynchronize(), "choice");
    auto tokens = download(in.tokens, rows);
    auto logprobs = download(in.logprobs, rows);
    auto finite = download(in.check, rows);
    auto longer = download(in.lengths, rows);
    for (int r = 0; r < rows; r++) {
      const float* l = &logits[static_cast<size_t>(r) * vocabulary];
      const TokenSampling& s = in.sampling[r];
      const int got = tokens[r];
      check(got >= 0 && got < vocabulary, "a token", "choice", got);
      check(longer[r] == r + 1, "a length", "choice", r);
      if (r == nan || r == none) {
        check(!std::isfinite(finite[r]), "what is no number", "choice", r);
        continue;
      }
      std::vector<int> order(vocabulary);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
        return l[a] > l[b];
      });
      double sum = 0;
      for (int i = 0; i < vocabulary; i++) {
        sum += std::exp(static_cast<double>(l[i]));
      }
      check(
          std::fabs(logprobs[r] - (l[got] - std::log(sum))) < 1e-3,
          "a logprob",
          "choice",
          r);
      check(std::isfinite(finite[r]), "a finite check", "choice", r);
      if (s.temperature == 0) {
        check(got == order[0], "the greatest", "choice", got);
        continue;
      }
      std::vector<bool> kept = kept_tokens(l, order, s);
      check(kept[got], "a token that is kept", "choice", r);
      auto value = [&](int i) {
        double uniform = random_bits(s.key, i, vocabulary) * 0x1p-32;
        uniform = std::max(std::min(uniform, 1 - 0x1p-24), 0x1p-33);
        return (static_cast<double>(l[i]) - l[order[0]]) / s.temperature -
            std::log(-std::log(uniform));
      };
      double most = -INFINITY;
      for (int i = 0; i < vocabulary; i++) {
        if (kept[i] && l[i] > -INFINITY) {
          most = std::max(most, value(i));
        }
      }
      check(value(got) > most - 1e-4, "the token of the draw", "choice", r);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  // With an argument: few rows and short, for tools that make it slow; "tiny":
  // two decoders, for those that make it very slow.
  const bool small = argc > 1;
  std::vector<int> few = {0, 1, 15, 63, 64, 130, 517, 300};
  std::vector<int> many;
  for (int r = 0; r < 33; r++) {
    many.push_back(r * 67 % 700);
  }
  std::vector<int> far = {5000, 4095, 4096, 8200, 100, 12287, 3, 9, 4500, 40};
  if (small) {
    many.resize(10);
    far = {4200, 9};
  }
  std::vector<DecoderCase> cases;
  auto add = [&](const char* name, auto change) {
    DecoderCase c;
    c.name = name;
    change(c);
    cases.push_back(c);
  };
  add("llama", [](DecoderCase&) {});
  const bool tiny = small && std::string(argv[1]) == "tiny";
  if (tiny) {
    check_case(cases[0], {2100, 9});
  } else {
    check_case(cases[0], many);
    check_case(cases[0], far);
  }
  add("heads of 128, keys for 4", [](DecoderCase& c) {
    c.head_size = 128;
    c.heads = 8;
  });
  check_case(cases[1], many);
  if (tiny) {
    return failures != 0;
  }
  add("heads of 256, softcaps, norms after", [](DecoderCase& c) {
    c.head_size = 256;
    c.heads = 2;
    c.kv_heads = 1;
    c.softcap = 3;
    c.after = true;
    c.window = 40;
    c.final_softcap = 4;
    c.activation = Activation::gelu_tanh;
    c.qk_norm = true;
  });
  check_case(cases[2], many);
  add("heads of 80, layer norms, biases", [](DecoderCase& c) {
    c.head_size = 80;
    c.heads = 3;
    c.kv_heads = 3;
    c.norm = Norm::Kind::layer;
    c.biases = true;
    c.gated = false;
    c.activation = Activation::gelu;
    c.rotated = 32;
    c.format = WeightFormat::bfloat16;
    c.group = 0;
    c.size = 200;
    c.inner = 408;
  });
  add("heads of 96, apart, side by side", [](DecoderCase& c) {
    c.head_size = 96;
    c.apart = true;
    c.parallel = true;
    c.pairs = true;
    c.biases = true;
    c.format = WeightFormat::affine8;
    c.group = 32;
    c.size = 288;
  });
  add("18 heads of one key, sinks", [](DecoderCase& c) {
    c.heads = 18;
    c.kv_heads = 1;
    c.sinks = true;
    c.window = 20;
    c.biases = true;
    c.format = WeightFormat::mxfp4;
    c.group = 32;
    c.size = 224;
    c.inner = 352;
    c.multiplier = 0.7f;
  });
  add("nvfp4", [](DecoderCase& c) {
    c.format = WeightFormat::nvfp4;
    c.group = 16;
    c.size = 208;
    c.inner = 400;
    c.heads = 2;
    c.kv_heads = 2;
    c.activation = Activation::relu_squared;
    c.gated = false;
    c.query_beta = 0.2f;
    c.rotated = 0;
  });
  add("groups of 32", [](DecoderCase& c) {
    c.group = 32;
    c.head_size = 128;
    c.heads = 7;
    c.kv_heads = 7;
  });
  add("groups of 128", [](DecoderCase& c) {
    c.group = 128;
    c.layers = 1;
  });
  add("8 bits", [](DecoderCase& c) {
    c.format = WeightFormat::affine8;
    c.layers = 1;
  });
  for (size_t i = 3; i < cases.size(); i++) {
    check_case(cases[i], few);
  }
  for (size_t i : {3, 5, 6}) {
    check_case(cases[i], far);
  }
  check_choices();
  std::printf(failures ? "%d FAILURES\n" : "all steps right\n", failures);
  return failures != 0;
}

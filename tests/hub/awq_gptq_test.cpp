// Packed by the programs' own rules, one number at a time; read back exactly.
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/hub/checkpoint.h"
#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"
#include "tests/hub/tensor_file.h"

namespace mlxx::hub {
namespace {

constexpr int kOut = 32, kIn = 256;

class Packed : public ::testing::Test {
 protected:
  std::shared_ptr<const Checkpoint> open(const std::string& quantization) {
    folder_.write(
        "config.json",
        R"({"model_type":"llama","quantization_config":)" + quantization + "}");
    folder_.write("model.safetensors", file_.build());
    return open_checkpoint(folder_.path());
  }
  // q, zeros and scales at random for groups of `group`.
  void make_numbers(int bits, int group) {
    group_ = group;
    q_ = random_numbers(kOut * kIn, 1 << bits, 1);
    // Version 1 of GPTQ cannot say zero.
    zeros_ = random_numbers(kIn / group * kOut, (1 << bits) - 1, 2);
    for (int& zero : zeros_) {
      zero += 1;
    }
    scales_ = random_halves(kIn / group * kOut, 3);
  }
  int q(int out, int in) const {
    return q_[out * kIn + in];
  }
  int zero(int group, int out) const {
    return zeros_[group * kOut + out];
  }
  double expected(int out, int in) const {
    int group = in / group_;
    return half_value(scales_[group * kOut + out]) *
        (q(out, in) - zero(group, out));
  }
  void add_scales() {
    file_.add("m.scales", "F16", {kIn / group_, kOut}, scales_);
  }

  void write_awq() {
    constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
    std::vector<int32_t> words, zeros;
    for (int in = 0; in < kIn; ++in) {
      for (int word = 0; word < kOut / 8; ++word) {
        uint32_t bits = 0;
        for (int i = 0; i < 8; ++i) {
          bits |= static_cast<uint32_t>(q(8 * word + kOrder[i], in)) << 4 * i;
        }
        words.push_back(static_cast<int32_t>(bits));
      }
    }
    for (int group = 0; group < kIn / group_; ++group) {
      for (int word = 0; word < kOut / 8; ++word) {
        uint32_t bits = 0;
        for (int i = 0; i < 8; ++i) {
          int z = zero(group, 8 * word + kOrder[i]);
          bits |= static_cast<uint32_t>(z) << 4 * i;
        }
        zeros.push_back(static_cast<int32_t>(bits));
      }
    }
    file_.add("m.qweight", "I32", {kIn, kOut / 8}, words);
    file_.add("m.qzeros", "I32", {kIn / group_, kOut / 8}, zeros);
    add_scales();
  }

  // A stream of numbers of `bits`, the first in the lowest.
  static std::vector<uint32_t> stream(
      const std::vector<int>& numbers,
      int bits) {
    std::vector<uint32_t> words(numbers.size() * bits / 32);
    for (size_t i = 0; i < numbers.size(); ++i) {
      for (int b = 0; b < bits; ++b) {
        size_t at = i * bits + b;
        words[at / 32] |= static_cast<uint32_t>(numbers[i] >> b & 1) << at % 32;
      }
    }
    return words;
  }

  void write_gptq(int bits, int offset) {
    std::vector<int32_t> words(kIn * bits / 32 * kOut);
    for (int out = 0; out < kOut; ++out) {
      auto column = stream({&q_[out * kIn], &q_[out * kIn] + kIn}, bits);
      for (size_t w = 0; w < column.size(); ++w) {
        words[w * kOut + out] = static_cast<int32_t>(column[w]);
      }
    }
    std::vector<int32_t> zeros;
    for (int group = 0; group < kIn / group_; ++group) {
      std::vector<int> row;
      for (int out = 0; out < kOut; ++out) {
        row.push_back(zero(group, out) - offset);
      }
      for (uint32_t word : stream(row, bits)) {
        zeros.push_back(static_cast<int32_t>(word));
      }
    }
    file_.add("m.qweight", "I32", {kIn * bits / 32, kOut}, words);
    file_.add("m.qzeros", "I32", {kIn / group_, kOut * bits / 32}, zeros);
    add_scales();
  }
  void write_order(bool is_permuted) {
    std::vector<int32_t> order;
    for (int in = 0; in < kIn; ++in) {
      order.push_back(in / group_);
    }
    if (is_permuted) {
      std::swap(order[0], order[kIn - 1]);
    }
    file_.add("m.g_idx", "I32", {kIn}, order);
  }

  void expect_exact(const Checkpoint& model) {
    ASSERT_EQ(model.tensors().size(), 1u);
    const TensorInfo& info = model.tensors()[0];
    EXPECT_EQ(info.name, "m.weight");
    EXPECT_EQ(info.shape, (std::vector<int64_t>{kOut, kIn}));
    Weight w = model.load("m.weight", {.scales = mx::float32});
    EXPECT_EQ(w.scales->dtype(), mx::float32);
    mx::array numbers = mx::dequantize(
        w.weight,
        *w.scales,
        w.biases,
        info.quantization->group_size,
        info.quantization->bits,
        "affine");
    numbers.eval();
    for (int out = 0; out < kOut; ++out) {
      for (int in = 0; in < kIn; ++in) {
        ASSERT_EQ(numbers.data<float>()[out * kIn + in], expected(out, in))
            << out << " " << in;
      }
    }
  }

  TemporaryFolder folder_;
  TensorFile file_;
  int group_ = 128;
  std::vector<int> q_, zeros_;
  std::vector<uint16_t> scales_;
};

constexpr auto kAwq =
    R"({"quant_method":"awq","bits":4,"group_size":128,"version":"GEMM"})";

TEST_F(Packed, AwqIsReadExactly) {
  for (int group : {32, 64, 128, 256}) {
    make_numbers(4, group);
    file_ = {};
    write_awq();
    auto model = open(fmt::format(
        R"({{"quant_method":"awq","bits":4,"group_size":{}}})",
        group));
    EXPECT_EQ(
        model->tensors()[0].quantization->group_size,
        std::min(group, 128));
    EXPECT_EQ(model->tensors()[0].stored, "I32 awq");
    expect_exact(*model);
  }
}

TEST_F(Packed, BiasesTakeTheDtypeOfScalesUnlessAskedOtherwise) {
  make_numbers(4, 128);
  write_awq();
  auto model = open(kAwq);
  Weight w = model->load("m.weight", {});
  ASSERT_EQ(w.scales->dtype(), mx::float16);
  ASSERT_EQ(w.biases->dtype(), mx::float16);
  for (int out = 0; out < kOut; ++out) {
    for (int group = 0; group < 2; ++group) {
      auto exact = static_cast<float>(
          -half_value(scales_[group * kOut + out]) * zero(group, out));
      EXPECT_EQ(
          static_cast<float>(w.biases->data<mx::float16_t>()[out * 2 + group]),
          static_cast<float>(mx::float16_t(exact)));
    }
  }
}

TEST_F(Packed, GptqIsReadExactlyInEveryWidthAndVersion) {
  for (int bits : {2, 3, 4, 8}) {
    for (const char* version : {"gptq", "gptq_v2"}) {
      for (int group : {64, -1}) {
        make_numbers(bits, group < 0 ? kIn : group);
        file_ = {};
        write_gptq(bits, version == std::string("gptq") ? 1 : 0);
        write_order(false);
        auto model = open(fmt::format(
            R"({{"quant_method":"gptq","bits":{},"group_size":{},
                    "desc_act":false,"checkpoint_format":"{}"}})",
            bits,
            group,
            version));
        expect_exact(*model);
      }
    }
  }
}

TEST_F(Packed, PermutedGroupsAreRefusedByName) {
  make_numbers(4, 64);
  write_gptq(4, 1);
  write_order(true);
  auto model = open(
      R"({"quant_method":"gptq","bits":4,"group_size":64,"desc_act":true})");
  EXPECT_ERROR(
      model->load("m.weight", {}),
      "unsupported",
      "'m.g_idx' permutes the inputs (desc_act)");
}

TEST_F(Packed, PartsThatDoNotFitAreNamed) {
  make_numbers(4, 128);
  write_awq();
  const TensorFile whole = file_;
  auto expect = [&](auto&& edit, const char* part) {
    file_ = whole;
    edit(file_);
    EXPECT_ERROR(open(kAwq), "bad_file", part);
  };
  expect([](auto& f) { f.remove("m.scales"); }, "'m.scales' is missing");
  expect([](auto& f) { f.remove("m.qweight"); }, "no tensor '*.qweight'");
  expect(
      [](auto& f) { f.reshape("m.scales", {1, 2 * kOut}); },
      "scales F16 [1, 64]");
  expect([](auto& f) { f.reshape("m.qzeros", {8, 1}); }, "qzeros I32 [8, 1]");
  expect(
      [](auto& f) { f.reshape("m.qweight", {kIn * 4}); },
      "qweight I32 [1024]");
  expect(
      [](auto& f) { f.template add<int32_t>("x.qweight", "I32", {0, 0}, {}); },
      "'x.scales' is missing");
}

TEST_F(Packed, FormsOfTheMethodsThatAreNotKnownAreNamed) {
  make_numbers(4, 128);
  write_awq();
  struct Case {
    const char* json;
    const char* part;
  };
  for (const Case& c :
       {Case{R"({"quant_method":"awq","bits":3})", "awq with 3 bits"},
        Case{
            R"({"quant_method":"awq","bits":4,"version":"gemv"})",
            "version 'gemv'"},
        Case{R"({"quant_method":"gptq","bits":5})", "gptq with 5 bits"},
        Case{
            R"({"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"})",
            "format 'marlin'"},
        Case{
            R"({"quant_method":"awq","bits":4,"group_size":16})",
            "groups of 16"}}) {
    if (std::string(c.part) == "groups of 16") {
      make_numbers(4, 16);
      file_ = {};
      write_awq();
    }
    EXPECT_ERROR(open(c.json), "unsupported", c.part);
  }
}

}  // namespace
}  // namespace mlxx::hub

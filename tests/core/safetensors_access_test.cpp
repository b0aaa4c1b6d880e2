// Arrays of safetensors files: copied, read when evaluated, read in place.
#include <complex>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>
#include <mlx/primitives.h>

#include "mlxx/core/borrowed_array.h"
#include "mlxx/core/dtype.h"
#include "mlxx/core/safetensors_content.h"
#include "mlxx/core/safetensors_writer.h"
#include "tests/core/error_of.h"
#include "tests/core/safetensors_builder.h"
#include "tests/core/temporary_folder.h"

namespace mlxx {
namespace {

const mx::Device kCpu(mx::Device::cpu);

bool same_bytes(mx::array a, mx::array b) {
  a = mx::contiguous(a, false, kCpu);
  b = mx::contiguous(b, false, kCpu);
  mx::eval(a, b);
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
      std::equal(a.data<char>(), a.data<char>() + a.nbytes(), b.data<char>());
}

class SafetensorsAccess : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "a.safetensors";
};

TEST_F(SafetensorsAccess, EveryDtypeAndShapeComesBackInEveryWay) {
  std::map<std::string, mx::array> expected;
  mx::Shape shapes[] = {{}, {0}, {3, 0, 2}, {1}, {2, 3}, {1, 1, 5, 1}};
  for (const auto& row : dtypes()) {
    for (const auto& shape : shapes) {
      int count = 1;
      for (auto n : shape) {
        count *= n;
      }
      // Bits of no particular meaning: not-a-numbers and subnormals too.
      mx::array bits = mx::arange(count * row.size) * mx::array(37) +
          mx::array(0x7f * row.size);
      mx::array bytes = mx::astype(bits, mx::uint8);
      if (row.dtype == mx::bool_) {
        bytes = mx::astype(bytes % mx::array(uint8_t{2}), mx::uint8);
      }
      mx::array value = count == 0
          ? mx::zeros(shape, row.dtype, kCpu)
          : mx::reshape(mx::view(bytes, row.dtype, kCpu), shape, kCpu);
      expected.emplace(fmt::format("{}.{}", row.name, expected.size()), value);
    }
  }
  save_safetensors(path_, {expected, {}});
  SafetensorsFile file(path_);
  ASSERT_EQ(file.entries().size(), expected.size());
  for (const auto& entry : file.entries()) {
    const mx::array& wanted = expected.at(entry.name);
    EXPECT_TRUE(same_bytes(file.load(entry), wanted)) << entry.name;
    EXPECT_TRUE(same_bytes(file.load_lazily(entry), wanted)) << entry.name;
    EXPECT_TRUE(same_bytes(file.map(entry), wanted)) << entry.name;
  }
}

TEST_F(SafetensorsAccess, AnyTextIsANameOrMetadata) {
  std::string text("a\0b", 3);
  SafetensorsContent content;
  for (const std::string& name :
       {std::string(),
        text,
        std::string("\"quoted\" \\ / \n\t\x01\x7f"),
        std::string("gr\xC3\xBC\xC3\x9F"),
        std::string("\xF0\x9F\x98\x80"),
        std::string("__metadata"),
        std::string("../../etc/passwd"),
        std::string(100'000, 'n')}) {
    content.arrays.emplace(
        name,
        mx::array(static_cast<int>(content.arrays.size())));
    content.metadata[name] = name;
  }
  save_safetensors(path_, content);
  SafetensorsContent loaded = load_safetensors(path_);
  EXPECT_EQ(loaded.metadata, content.metadata);
  ASSERT_EQ(loaded.arrays.size(), content.arrays.size());
  for (const auto& [name, value] : content.arrays) {
    EXPECT_TRUE(same_bytes(loaded.arrays.at(name), value)) << name;
  }
  EXPECT_ERROR(
      write_safetensors(path_, {{"bad \xff", mx::array(1)}}),
      "invalid_request",
      "not valid UTF-8");
  EXPECT_ERROR(
      write_safetensors(
          path_,
          SafetensorsArrays{{"a", mx::array(1)}},
          {{"k", "\xC3"}}),
      "invalid_request",
      "not valid UTF-8");
  EXPECT_ERROR(
      save_safetensors(path_, {{}, {{"k", std::string(100'000'001, 'x')}}}),
      "invalid_request",
      "the format's limit is 100000000");
  // The refused ones left the file alone.
  EXPECT_EQ(load_safetensors(path_).metadata, content.metadata);
}

TEST_F(SafetensorsAccess, ContentIsLookedThroughAddedToAndSavedOverItself) {
  save_safetensors(
      path_,
      {{{"a", mx::arange(1000)}, {"b", mx::ones({2, 2})}}, {{"k", "old"}}});
  SafetensorsContent content = load_safetensors(path_);
  std::string names;
  for (const auto& [name, value] : content.arrays) {
    EXPECT_FALSE(value.is_available());
    names += name;
  }
  EXPECT_EQ(names, "ab");
  content.arrays.emplace("c", content.arrays.at("b") + mx::array(1.0f));
  content.arrays.erase("b");
  content.metadata["k"] = "new";
  save_safetensors(path_, content);

  SafetensorsContent again = load_safetensors(path_);
  EXPECT_EQ(again.metadata.at("k"), "new");
  EXPECT_EQ(again.arrays.size(), 2u);
  EXPECT_TRUE(same_bytes(again.arrays.at("a"), mx::arange(1000)));
  EXPECT_TRUE(same_bytes(again.arrays.at("c"), mx::full({2, 2}, 2.0f)));
}

TEST_F(SafetensorsAccess, NothingIsReadBeforeItIsEvaluated) {
  constexpr size_t kBytes = size_t{8} << 20;
  save_safetensors(path_, {{{"big", mx::ones({1 << 21})}}, {}});
  mx::synchronize();
  mx::clear_cache();
  size_t before = mx::get_active_memory();
  SafetensorsContent content = load_safetensors(path_);
  EXPECT_EQ(mx::get_active_memory(), before);
  mx::array big = content.arrays.at("big");
  big.eval();
  EXPECT_GE(mx::get_active_memory(), before + kBytes);
  EXPECT_EQ(mx::sum(big).item<float>(), 2097152.0f);
}

TEST_F(SafetensorsAccess, LazyArraysReadOnTheCpuStream) {
  save_safetensors(path_, {{{"t", mx::arange(8)}}, {}});
  mx::array t = load_safetensors(path_).arrays.at("t");
  EXPECT_EQ(t.primitive().device(), kCpu);
  // A computation on whatever the default device is takes it.
  EXPECT_TRUE(same_bytes(mx::multiply(t, t), mx::square(mx::arange(8))));
}

TEST_F(SafetensorsAccess, LazyArraysTakePartInGradientsAndCompiledFunctions) {
  save_safetensors(path_, {{{"w", mx::array({2.0f, 3.0f})}}, {}});
  mx::array w = load_safetensors(path_).arrays.at("w");
  auto loss = [&](const mx::array& x) { return mx::sum(x * w * w); };
  mx::array x({1.0f, 1.0f});
  EXPECT_TRUE(same_bytes(mx::grad(loss)(x), mx::array({4.0f, 9.0f})));
  auto compiled = mx::compile([&](const std::vector<mx::array>& inputs) {
    return std::vector<mx::array>{inputs[0] * w};
  });
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(same_bytes(compiled({x})[0], mx::array({2.0f, 3.0f})));
  }
}

TEST_F(SafetensorsAccess, ALazyArrayOfAnotherThreadIsRefusedByMlx) {
  save_safetensors(path_, {{{"t", mx::arange(8)}}, {}});
  mx::array t = load_safetensors(path_).arrays.at("t");
  bool refused = false;
  std::thread([&] {
    try {
      mx::array mine = t;
      mine.eval();
    } catch (const std::exception&) {
      refused = true;
    }
  }).join();
  EXPECT_TRUE(refused);
}

TEST_F(SafetensorsAccess, MappedArraysAreTheFilesPages) {
  if (!can_borrow_memory()) {
    GTEST_SKIP() << "this libmlx has another allocator";
  }
  save_safetensors(path_, {{{"big", mx::ones({1 << 21})}}, {}});
  mx::synchronize();
  mx::clear_cache();
  size_t before = mx::get_active_memory();
  auto file = std::make_optional<SafetensorsFile>(path_);
  mx::array big = file->map(file->entries()[0]);
  EXPECT_EQ(mx::get_active_memory(), before);
  EXPECT_TRUE(big.flags().row_contiguous);
  // Neither the object nor the file's name is needed any longer.
  file.reset();
  std::filesystem::remove(path_);
  EXPECT_EQ(mx::sum(big).item<float>(), 2097152.0f);
}

TEST_F(SafetensorsAccess, UnalignedTensorsAreCopied) {
  // One byte before four floats: no multiple of four.
  std::string data(17, '\0');
  float values[] = {1, 2, 3, 4};
  std::memcpy(data.data() + 1, values, sizeof(values));
  std::string header = safetensors_header(
      {safetensors_entry("a", "U8", "[1]", 0, 1),
       safetensors_entry("b", "F32", "[4]", 1, 17)});
  header.resize((header.size() + 7) / 8 * 8, ' ');
  auto path = folder_.write("u.safetensors", safetensors_text(header, data));
  SafetensorsFile file(path);
  size_t before = mx::get_active_memory();
  mx::array b = file.map(*file.find("b"));
  EXPECT_GT(mx::get_active_memory(), before);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data<float>()) % sizeof(float), 0u);
  EXPECT_TRUE(same_bytes(b, mx::array({1.0f, 2.0f, 3.0f, 4.0f})));
  EXPECT_TRUE(same_bytes(
      file.load_lazily(*file.find("b")),
      file.load(*file.find("b"))));
}

TEST_F(SafetensorsAccess, AReplacedFileChangesNothing) {
  save_safetensors(path_, {{{"t", mx::full({4096}, 1.0f)}}, {}});
  SafetensorsFile file(path_);
  mx::array lazy = file.load_lazily(file.entries()[0]);
  mx::array mapped = file.map(file.entries()[0]);
  save_safetensors(path_, {{{"t", mx::full({4096}, 2.0f)}}, {}});
  EXPECT_TRUE(same_bytes(lazy, mx::full({4096}, 1.0f)));
  EXPECT_TRUE(same_bytes(mapped, mx::full({4096}, 1.0f)));
  EXPECT_TRUE(same_bytes(
      load_safetensors(path_).arrays.at("t"),
      mx::full({4096}, 2.0f)));
}

TEST_F(SafetensorsAccess, AShortenedFileFailsTheEvaluationOnly) {
  save_safetensors(path_, {{{"t", mx::zeros({65536})}}, {}});
  SafetensorsFile file(path_);
  mx::array lazy = file.load_lazily(file.entries()[0]);
  std::filesystem::resize_file(path_, 100);
  EXPECT_ERROR(lazy.eval(), "bad_file", "truncated while in use");
  EXPECT_ERROR(file.map(file.entries()[0]), "bad_file", "truncated while");
  // The same array once more, and an unrelated one.
  EXPECT_ERROR(lazy.eval(), "bad_file", "truncated while in use");
  EXPECT_EQ(mx::sum(mx::ones({4})).item<float>(), 4.0f);
}

TEST_F(SafetensorsAccess, ShapesThatMlxCannotHoldAreRefused) {
  for (const char* shape :
       {"[4294967296,0]",
        "[0,2147483647,2147483647,2147483647]",
        "[2147483648,0,1]"}) {
    auto path = folder_.write(
        "s.safetensors",
        safetensors_text(
            safetensors_header({safetensors_entry("t", "F32", shape, 0, 0)}),
            ""));
    SafetensorsFile file(path);
    const auto& entry = file.entries()[0];
    EXPECT_ERROR(file.load(entry), "unsupported", "the limit is");
    EXPECT_ERROR(file.load_lazily(entry), "unsupported", "'t' has an axis of");
    EXPECT_ERROR(file.map(entry), "unsupported", "'t' has an axis of");
    EXPECT_ERROR(load_safetensors(path), "unsupported", "'t' has an axis of");
  }
}

}  // namespace
}  // namespace mlxx

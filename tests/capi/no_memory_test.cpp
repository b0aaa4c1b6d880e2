// Every allocation of the calling thread fails once, in the functions of the C
// interface that need memory: the status is MLXX_OUT_OF_MEMORY, nothing is
// thrown, and the next call works. Not those that take JSON: the destructors of
// nlohmann-json allocate, and end the process where that fails.

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "mlxx/capi/mlxx.h"

namespace {

// Of the thread that sets it; negative: all succeed.
thread_local long allocations_left = -1;
thread_local bool has_failed = false;

void* allocate(size_t bytes, size_t alignment) {
  if (allocations_left == 0) {
    has_failed = true;
    allocations_left = -1;  // the message of the error may need memory
    throw std::bad_alloc();
  }
  if (allocations_left > 0) {
    --allocations_left;
  }
  bytes = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  if (void* memory = std::aligned_alloc(alignment, bytes)) {
    return memory;
  }
  throw std::bad_alloc();
}

}  // namespace

// The libraries that are loaded later take these as well. Not inlined: g++
// would see free() for what new gave.
void* operator new(size_t bytes) {
  return allocate(bytes, alignof(std::max_align_t));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(
    void* memory,
    std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void
operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace {

int append_text(const char* text, size_t bytes, void* user) {
  // Not what is tested: the callback is the caller's.
  long left = allocations_left;
  allocations_left = -1;
  static_cast<std::string*>(user)->append(text, bytes);
  allocations_left = left;
  return 0;
}

class NoMemory : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const char* name = std::getenv("MLXX_TEST_GGUF");
    if (!name || !*name) {
      name = std::getenv("MLXX_HOME") ? "smollm2" : nullptr;
    }
    ASSERT_EQ(mlxx_init(nullptr), MLXX_OK) << mlxx_last_error();
    if (name) {
      name_ = name;
      ASSERT_EQ(mlxx_model_open(name, nullptr, &model_), MLXX_OK)
          << mlxx_last_error();
    }
  }
  static void TearDownTestSuite() {
    EXPECT_EQ(mlxx_model_close(model_), MLXX_OK);
  }
  void SetUp() override {
    if (!model_) {
      GTEST_SKIP() << "neither MLXX_TEST_GGUF nor MLXX_HOME is set";
    }
  }

  static mlxx_model* model_;
  static std::string name_;
};

mlxx_model* NoMemory::model_ = nullptr;
std::string NoMemory::name_;

// Fails the first allocation of `call`, then the second and so on, until it
// makes no more; returns how many failed.
int fail_each(const std::function<mlxx_status()>& call) {
  for (int fails = 0; fails < 100000; ++fails) {
    has_failed = false;
    allocations_left = fails;
    mlxx_status status = call();
    allocations_left = -1;
    const std::string message = mlxx_last_error();
    if (!has_failed) {
      EXPECT_EQ(status, MLXX_OK) << message;
      return fails;
    }
    // Some are made good for, such as a place in a pool of threads.
    if (status != MLXX_OK) {
      EXPECT_EQ(status, MLXX_OUT_OF_MEMORY) << message;
      EXPECT_EQ(message.substr(0, 9), "[memory] ") << message;
    }
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "allocation " << fails;
      return fails;
    }
  }
  return -1;
}

TEST_F(NoMemory, Cancels) {
  EXPECT_GT(
      fail_each([] {
        mlxx_cancel* cancel = nullptr;
        mlxx_status status = mlxx_cancel_open(&cancel);
        EXPECT_EQ(cancel != nullptr, status == MLXX_OK);
        return status == MLXX_OK ? mlxx_cancel_close(cancel) : status;
      }),
      1);
}

TEST_F(NoMemory, TokensAndTexts) {
  int32_t tokens[16];
  size_t count = 0;
  EXPECT_GT(
      fail_each([&] {
        return mlxx_tokenize(
            model_,
            "Hello, world!",
            13,
            MLXX_ADD_SPECIAL,
            tokens,
            16,
            &count);
      }),
      0);
  char text[64];
  size_t bytes = 0;
  EXPECT_GT(
      fail_each([&] {
        return mlxx_detokenize(
            model_,
            tokens,
            count,
            0,
            text,
            sizeof text,
            &bytes);
      }),
      0);
  EXPECT_STREQ(text, "Hello, world!");
}

TEST_F(NoMemory, Answers) {
  const char* stops[] = {"a stop text that is in no answer of this model"};
  mlxx_generate_options options = MLXX_GENERATE_OPTIONS_INIT;
  options.max_tokens = 8;
  options.stop = stops;
  options.stop_count = 1;
  options.raw = 1;
  std::string expected;
  const char* prompt = "The capital of France is";
  ASSERT_EQ(
      mlxx_generate(model_, prompt, &options, append_text, &expected, nullptr),
      MLXX_OK);
  std::string text;
  EXPECT_GT(
      fail_each([&] {
        text.clear();
        return mlxx_generate(
            model_,
            prompt,
            &options,
            append_text,
            &text,
            nullptr);
      }),
      5);
  EXPECT_EQ(text, expected);
}

TEST_F(NoMemory, ModelsAreNotKept) {
  mlxx_memory before = MLXX_MEMORY_INIT;
  mlxx_memory after = MLXX_MEMORY_INIT;
  ASSERT_EQ(mlxx_memory_get(&before), MLXX_OK);
  // The calling thread's own part: it only hands a job over.
  EXPECT_GT(
      fail_each([] {
        mlxx_model* model = nullptr;
        mlxx_status status = mlxx_model_open(name_.c_str(), nullptr, &model);
        EXPECT_EQ(model != nullptr, status == MLXX_OK);
        return status == MLXX_OK ? mlxx_model_close(model) : status;
      }),
      1);
  ASSERT_EQ(mlxx_memory_get(&after), MLXX_OK);
  EXPECT_EQ(before.active, after.active);
}

// A callback in C++ that throws, which C allows nobody.
TEST_F(NoMemory, CallbacksThatThrow) {
  auto throws_no_memory = [](const char*, size_t, void*) -> int {
    throw std::bad_alloc();
  };
  auto throws_a_number = [](const char*, size_t, void*) -> int { throw 3; };
  auto throws_text = [](const char*, size_t, void*) -> int {
    throw std::runtime_error("two\nlines");
  };
  auto status_of = [](mlxx_text_callback callback) {
    mlxx_generate_options options = MLXX_GENERATE_OPTIONS_INIT;
    options.raw = 1;
    return mlxx_generate(model_, "Hello", &options, callback, nullptr, nullptr);
  };
  EXPECT_EQ(status_of(throws_no_memory), MLXX_OUT_OF_MEMORY);
  EXPECT_EQ(status_of(throws_a_number), MLXX_INTERNAL);
  EXPECT_EQ(status_of(throws_text), MLXX_INTERNAL);
  EXPECT_STREQ(mlxx_last_error(), "two\\nlines");
}

}  // namespace

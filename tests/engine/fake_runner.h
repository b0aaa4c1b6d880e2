#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "mlxx/engine/runner.h"
#include "tests/generate/tiny_tokenizer.h"

// A runner and a source of models that compute nothing: tokens are bytes, the
// answers are given by the test. They check that they are used as their
// interface says, and keep a list of the calls.
namespace mlxx::engine {

inline constexpr int kVocabulary = 300;  // padded past the tokenizer's 259
inline constexpr int32_t kBegin = 256;   // <s>
inline constexpr int32_t kEos = 257;     // </s>
inline constexpr int32_t kMark = 258;    // <end>, special as well

inline std::vector<int32_t> bytes(const std::string& text) {
  std::vector<int32_t> tokens;
  for (char c : text) {
    tokens.push_back(static_cast<uint8_t>(c));
  }
  return tokens;
}

inline std::vector<int32_t> operator+(
    std::vector<int32_t> a,
    const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline std::shared_ptr<ModelText> fake_text(const std::string& name) {
  static const auto tokenizer =
      text::Tokenizer::from_json(generate::tiny_tokenizer_json({}, false));
  auto text = std::make_shared<ModelText>();
  text->name = name;
  text->tokenizer = tokenizer;
  text->eos_ids = {kEos};
  text->vocab_size = kVocabulary;
  text->context_length = 100000;
  return text;
}

// The time, and a device that computes one thing after the other.
class FakeClock {
 public:
  double now() const {
    std::lock_guard lock(mutex_);
    return now_;
  }
  void pass(double seconds) {
    std::lock_guard lock(mutex_);
    now_ += seconds;
  }
  // Hands work to the device; returns when it will be done.
  double enqueue(double seconds) {
    std::lock_guard lock(mutex_);
    free_ = std::max(free_, now_) + seconds;
    return free_;
  }
  void wait_until(double time) {
    std::lock_guard lock(mutex_);
    now_ = std::max(now_, time);
  }

 private:
  mutable std::mutex mutex_;
  double now_ = 0;
  double free_ = 0;
};

struct FakeRow : Row {
  std::vector<int32_t> tokens;  // prompt and what was chosen
  size_t prompt = 0;            // its length
  size_t computed = 0;          // tokens that were fed
  bool stepped = false;
  bool waits_for_choice = false;
  RowSettings settings;
};

struct FakeStep : Step {
  std::vector<FakeRow*> rows;
  std::vector<Chosen> chosen;
  std::string name;
  bool is_chosen = false;
  double done_at = 0;
};

class FakeRunner : public Runner {
 public:
  explicit FakeRunner(std::string name, FakeClock* clock = nullptr)
      : name_(std::move(name)), text_(fake_text(name_)), clock_(clock) {}
  ~FakeRunner() override {
    EXPECT_EQ(open_rows, 0) << "rows of " << name_ << " were not closed";
  }

  // The token after `tokens`, of which the first `prompt` are the prompt.
  std::function<int32_t(const FakeRow& row)> next = [](const FakeRow& row) {
    // Without more the answer is the prompt once again.
    size_t position = row.tokens.size() - row.prompt;
    return position < row.prompt ? row.tokens[position] : kEos;
  };
  // Makes the answer to `prompt` these tokens, then EOS.
  void answer(const std::string& prompt, std::vector<int32_t> tokens) {
    answers_[bytes(prompt)] = std::move(tokens);
  }
  void answer(const std::string& prompt, const std::string& text) {
    answer(prompt, bytes(text));
  }

  // What may go wrong: called with "open", "prefill", "fork", "begin",
  // "choose", "read", "close" and the rows concerned.
  std::function<void(const std::string& call, std::vector<FakeRow*>)> fault;
  std::set<std::vector<int32_t>> not_finite;   // answers begun with these
  std::map<std::vector<int32_t>, int> cached;  // tokens known of prompts
  bool joins = false;                          // prompts
  double seconds_per_prompt_token = 0;
  double seconds_per_step = 0;

  std::shared_ptr<ModelText> editable_text() {
    return text_;
  }
  std::vector<std::string> calls() const {
    std::lock_guard lock(mutex_);
    return calls_;
  }
  std::vector<std::vector<int32_t>> closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }

  std::shared_ptr<const ModelText> text() const override {
    return text_;
  }
  int vocab_size() const override {
    return kVocabulary;
  }

  Opened open(std::span<const int32_t> prompt, const RowSettings& settings)
      override {
    std::vector<int32_t> tokens(prompt.begin(), prompt.end());
    log("open " + name_of(tokens));
    check_fault("open", {});
    auto row = std::make_unique<FakeRow>();
    row->tokens = tokens;
    row->prompt = tokens.size();
    row->settings = settings;
    auto known = cached.find(tokens);
    int found = known == cached.end() ? 0 : known->second;
    row->computed = static_cast<size_t>(found);
    ++open_rows;
    return {std::move(row), found};
  }

  std::unique_ptr<Row> fork(const Row& row, const RowSettings& settings)
      override {
    const auto& original = static_cast<const FakeRow&>(row);
    log("fork " + name_of(original.tokens));
    check_fault("fork", {});
    EXPECT_EQ(original.computed + 1, original.prompt);
    EXPECT_FALSE(original.stepped);
    auto copy = std::make_unique<FakeRow>(original);
    copy->settings = settings;
    ++open_rows;
    return copy;
  }

  int prefill(Row& row, int tokens) override {
    auto& fake = static_cast<FakeRow&>(row);
    EXPECT_GT(tokens, 0);
    int left = static_cast<int>(fake.prompt - 1 - fake.computed);
    EXPECT_GT(left, 0) << "nothing is left to prefill";
    int done = std::min(tokens, left);
    log(fmt::format("prefill {} {}", name_of(fake.tokens), done));
    check_fault("prefill", {&fake});
    fake.computed += static_cast<size_t>(done);
    if (clock_) {
      clock_->wait_until(clock_->enqueue(seconds_per_prompt_token * done));
    }
    return left - done;
  }

  bool joins_prompts() const override {
    return joins;
  }
  bool prefill_together(std::span<Row* const> rows) override {
    std::vector<FakeRow*> fakes;
    for (Row* row : rows) {
      fakes.push_back(static_cast<FakeRow*>(row));
    }
    size_t known = fakes.front()->computed;
    size_t done = 0;
    for (FakeRow* fake : fakes) {
      EXPECT_EQ(fake->computed, known);
      EXPECT_LT(fake->computed, fake->prompt - 1);
      done += fake->prompt - 1 - fake->computed;
    }
    log(fmt::format("together {} {}", name_of(fakes), done));
    check_fault("prefill", fakes);
    for (FakeRow* fake : fakes) {
      fake->computed = fake->prompt - 1;
    }
    if (clock_) {
      clock_->wait_until(
          clock_->enqueue(seconds_per_prompt_token * double(done)));
    }
    return true;
  }

  std::unique_ptr<Step> begin(std::span<Row* const> rows) override {
    auto step = std::make_unique<FakeStep>();
    for (Row* row : rows) {
      auto* fake = static_cast<FakeRow*>(row);
      EXPECT_EQ(fake->computed + 1, fake->tokens.size());
      EXPECT_FALSE(fake->waits_for_choice) << "its newest token is not chosen";
      step->rows.push_back(fake);
    }
    EXPECT_FALSE(step->rows.empty());
    step->name = name_of(step->rows);
    log("begin " + step->name);
    check_fault("begin", step->rows);
    for (FakeRow* row : step->rows) {
      row->stepped = true;
      row->waits_for_choice = true;
      ++row->computed;
    }
    if (clock_) {
      step->done_at = clock_->enqueue(seconds_per_step);
    }
    return step;
  }

  void choose(Step& step, std::span<const TokenMask> masks) override {
    auto& fake = static_cast<FakeStep&>(step);
    EXPECT_TRUE(masks.empty() || masks.size() == fake.rows.size());
    EXPECT_FALSE(fake.is_chosen);
    log((masks.empty() ? "choose " : "mask ") + fake.name);
    check_fault("choose", fake.rows);
    fake.is_chosen = true;
    for (size_t i = 0; i < fake.rows.size(); ++i) {
      FakeRow& row = *fake.rows[i];
      int32_t token = wanted(row);
      if (!masks.empty()) {
        token = allowed(masks[i], token);
      }
      std::vector<int32_t> prompt(
          row.tokens.begin(),
          row.tokens.begin() + static_cast<std::ptrdiff_t>(row.prompt));
      row.tokens.push_back(token);
      row.waits_for_choice = false;
      Chosen chosen;
      chosen.token.token = token;
      chosen.token.logprob = -0.5f;
      int top = row.settings.top_logprobs.value_or(0);
      for (int t = 0; t < top; ++t) {
        chosen.token.top.push_back({token + t, -0.5f - static_cast<float>(t)});
      }
      chosen.finite = !not_finite.contains(prompt);
      fake.chosen.push_back(chosen);
    }
  }

  std::vector<Chosen> read(Step& step) override {
    auto& fake = static_cast<FakeStep&>(step);
    EXPECT_TRUE(fake.is_chosen);
    log("read " + fake.name);
    if (clock_) {
      clock_->wait_until(fake.done_at);
    }
    check_fault("read", fake.rows);
    return fake.chosen;
  }

  std::vector<AnswerToken> prompt_logprobs(
      std::span<const int32_t> prompt,
      int top,
      const std::string& /*adapter*/) override {
    std::vector<AnswerToken> tokens;
    for (int32_t token : prompt) {
      tokens.push_back({token, tokens.empty() ? NAN : -1.0f, {}});
      tokens.back().top.resize(static_cast<size_t>(top));
    }
    return tokens;
  }

  void close(std::unique_ptr<Row> row, std::span<const int32_t> tokens)
      override {
    ASSERT_TRUE(row);
    auto& fake = static_cast<FakeRow&>(*row);
    log("close " + name_of(fake.tokens));
    --open_rows;
    {
      std::lock_guard lock(mutex_);
      closed_.emplace_back(tokens.begin(), tokens.end());
    }
    if (!tokens.empty()) {
      EXPECT_TRUE(std::equal(
          tokens.begin(),
          tokens.end(),
          fake.tokens.begin(),
          fake.tokens.begin() +
              static_cast<std::ptrdiff_t>(
                  std::min(tokens.size(), fake.tokens.size()))));
    }
    check_fault("close", {&fake});
  }

  int open_rows = 0;
  bool keeps_calls = true;

 private:
  // Its first letter.
  static std::string name_of(const std::vector<int32_t>& tokens) {
    return std::string(1, static_cast<char>(tokens.front()));
  }
  static std::string name_of(const std::vector<FakeRow*>& rows) {
    std::string name;
    for (FakeRow* row : rows) {
      name += static_cast<char>(row->tokens.front());
    }
    return name;
  }
  int32_t wanted(const FakeRow& row) const {
    std::vector<int32_t> prompt(
        row.tokens.begin(),
        row.tokens.begin() + static_cast<std::ptrdiff_t>(row.prompt));
    auto found = answers_.find(prompt);
    if (found == answers_.end()) {
      return next(row);
    }
    size_t position = row.tokens.size() - row.prompt;
    return position < found->second.size() ? found->second[position] : kEos;
  }
  static int32_t allowed(const TokenMask& mask, int32_t wanted) {
    if (mask.empty()) {
      return wanted;
    }
    EXPECT_EQ(mask.size(), (kVocabulary + 31u) / 32u);
    for (int32_t i = 0; i < kVocabulary; ++i) {
      int32_t token = (wanted + i) % kVocabulary;
      if ((mask[token / 32] >> (token % 32)) & 1u) {
        return token;
      }
    }
    ADD_FAILURE() << "a mask that allows nothing";
    return wanted;
  }
  void check_fault(const std::string& call, std::vector<FakeRow*> rows) {
    if (fault) {
      fault(call, std::move(rows));
    }
  }
  void log(std::string call) {
    if (keeps_calls) {
      std::lock_guard lock(mutex_);
      calls_.push_back(std::move(call));
    }
  }

  std::string name_;
  std::shared_ptr<ModelText> text_;
  FakeClock* clock_;
  std::map<std::vector<int32_t>, std::vector<int32_t>> answers_;
  mutable std::mutex mutex_;
  std::vector<std::string> calls_;
  std::vector<std::vector<int32_t>> closed_;
};

class FakeSource : public ModelSource {
 public:
  std::map<std::string, std::shared_ptr<FakeRunner>> runners;
  // Tokens (of prompts and answers, all choices) that fit at a time; 0: any.
  int room = 0;
  int used = 0;
  int ticks = 0;

  std::shared_ptr<Runner> runner(const std::string& model) override {
    auto found = runners.find(model);
    if (found == runners.end()) {
      fail(ErrorKind::not_found, "model", "there is no model \"{}\"", model);
    }
    return found->second;
  }

  std::unique_ptr<Lease>
  admit(Runner& /*runner*/, const Request& request, bool alone) override {
    int tokens = static_cast<int>(request.prompt.size()) +
        request.n * request.max_tokens;
    if (room > 0 && used + tokens > room) {
      if (tokens > room || alone) {
        fail(
            ErrorKind::out_of_memory,
            "memory_admission",
            "{} tokens, {} fit",
            tokens,
            room);
      }
      return nullptr;
    }
    struct Held : Lease {
      Held(int& used, int tokens) : used_(used), tokens_(tokens) {
        used_ += tokens_;
      }
      ~Held() override {
        used_ -= tokens_;
      }
      int& used_;
      int tokens_;
    };
    return std::make_unique<Held>(used, tokens);
  }

  void tick() override {
    ++ticks;
  }
};

}  // namespace mlxx::engine

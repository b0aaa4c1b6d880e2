#include "mlxx/generate/generate.h"

#include <set>
#include <stdexcept>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "tests/generate/fake_model.h"
#include "tests/generate/tiny_tokenizer.h"

namespace mlxx::generate {
namespace {

using Tokens = std::vector<int32_t>;

const std::vector<std::string> kWords =
    {"alpha", " beta", " gamma", "hi", "Hello"};

class Generate : public ::testing::Test {
 protected:
  Generate() : tokenizer(tiny_tokenizer(kWords)) {
    bos = *tokenizer->token_to_id("<s>");
    eos = *tokenizer->token_to_id("</s>");
    end = *tokenizer->token_to_id("<end>");
    V = tokenizer->vocab_size() + 4;  // a padded output head
  }

  Pipeline with(FakeModel::Rule rule) {
    model = std::make_shared<FakeModel>(V, std::move(rule));
    Pipeline pipeline;
    pipeline.model = model;
    pipeline.tokenizer = tokenizer;
    pipeline.eos_ids = {eos, end};
    return pipeline;
  }
  // Answers the prompt {65, 66} with these tokens, the last one for ever.
  Pipeline says(const Tokens& tokens) {
    return with(scripted(tokens, 2, V));
  }
  Pipeline writes(const std::string& text) {
    Tokens tokens = tokenizer->encode(text);
    tokens.push_back(eos);
    return says(tokens);
  }
  GenerateResult run(
      const Pipeline& pipeline,
      const GenerateOptions& options = {},
      const OnDelta& on_delta = {}) {
    return generate(pipeline, prompt, options, on_delta);
  }

  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<FakeModel> model;
  Tokens prompt = {65, 66};
  int32_t bos, eos, end;
  int V;
};

std::string message_of(const std::function<void()>& body, ErrorKind kind) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST_F(Generate, StreamsTheTextThatTheResultHas) {
  auto pipeline = writes("alpha beta gamma");
  std::string streamed;
  Tokens tokens;
  int calls = 0;
  auto result = run(pipeline, {}, [&](const Delta& delta) {
    streamed += delta.text;
    tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
    ++calls;
    return true;
  });
  EXPECT_EQ(result.text, "alpha beta gamma");
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(result.tokens, tokenizer->encode("alpha beta gamma"));
  EXPECT_EQ(tokens, result.tokens);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
  EXPECT_EQ(result.stop_sequence, "");
  EXPECT_EQ(result.prompt_tokens, 2);
  EXPECT_EQ(result.generated_tokens, 4);
  EXPECT_GT(result.prompt_tokens_per_second(), 0);
  EXPECT_GT(result.decode_tokens_per_second(), 0);
  EXPECT_GT(result.peak_memory_bytes, 0u);
  EXPECT_GE(result.decode_seconds, result.first_decode_seconds);
}

TEST_F(Generate, SaysWhyDecodingIsNotCompiled) {
  auto pipeline = writes("alpha beta gamma");
  GenerateOptions options;
  options.compile_decode = CompileDecode::on;
  auto result = run(pipeline, options);
  EXPECT_EQ(result.text, "alpha beta gamma");
  EXPECT_EQ(result.compiled_steps, 0);
  EXPECT_EQ(
      result.compile_fallback,
      "the model's caches are written by their own kernel or in blocks");
  options.compile_decode = CompileDecode::off;
  result = run(writes("alpha beta gamma"), options);
  EXPECT_EQ(result.text, "alpha beta gamma");
  EXPECT_EQ(result.compile_fallback, "");
}

TEST_F(Generate, CompileDecodeHasThreeNames) {
  EXPECT_EQ(compile_decode_named("auto"), CompileDecode::automatic);
  EXPECT_EQ(compile_decode_named("on"), CompileDecode::on);
  EXPECT_EQ(compile_decode_named("off"), CompileDecode::off);
  for (const char* name : {"", "ON", "yes", "auto "}) {
    EXPECT_EQ(
        message_of(
            [&] { compile_decode_named(name); },
            ErrorKind::invalid_request),
        std::string("[compile_decode] must be 'auto', 'on' or 'off', found '") +
            name + "'");
  }
}

TEST_F(Generate, HoldsBackAnIncompleteCharacterOnly) {
  Tokens tokens = tokenizer->encode("hi");
  for (int byte : {0xf0, 0x9f, 0x98, 0x80, 0x21}) {
    tokens.push_back(byte);
  }
  tokens.push_back(eos);
  std::vector<std::string> deltas;
  auto result = run(says(tokens), {}, [&](const Delta& delta) {
    deltas.push_back(delta.text);
    return true;
  });
  EXPECT_EQ(deltas, (std::vector<std::string>{"hi", "", "", "", "😀", "!"}));
  EXPECT_EQ(result.text, "hi😀!");
}

TEST_F(Generate, FlushesACharacterThatStaysIncomplete) {
  std::vector<std::string> deltas;
  auto result = run(says({'a', 0xf0, 0x9f, eos}), {}, [&](const Delta& delta) {
    deltas.push_back(delta.text);
    return true;
  });
  EXPECT_EQ(result.text, "a\xef\xbf\xbd");
  EXPECT_EQ(deltas, (std::vector<std::string>{"a", "", "", "\xef\xbf\xbd"}));
  EXPECT_EQ(result.tokens, (Tokens{'a', 0xf0, 0x9f}));
}

TEST_F(Generate, EveryEosTokenEndsAndNoneIsPrinted) {
  for (int32_t stop : {eos, end}) {
    auto result = run(says({'a', 'b', stop, 'c'}));
    EXPECT_EQ(result.text, "ab");
    EXPECT_EQ(result.tokens, (Tokens{'a', 'b'}));
    EXPECT_EQ(result.finish_reason, FinishReason::stop);
  }
  // A special token that is no EOS is not text either.
  auto result = run(says({'a', bos, 'b', eos}));
  EXPECT_EQ(result.text, "ab");
  EXPECT_EQ(result.tokens, (Tokens{'a', bos, 'b'}));
}

TEST_F(Generate, IgnoreEosRunsOn) {
  GenerateOptions options;
  options.ignore_eos = true;
  options.max_tokens = 6;
  auto result = run(says({'a', eos}), options);
  EXPECT_EQ(result.generated_tokens, 6);
  EXPECT_EQ(result.finish_reason, FinishReason::length);
  EXPECT_EQ(result.text, "a");
}

TEST_F(Generate, MaxTokensIsExact) {
  for (int n : {0, 1, 2, 3, 5}) {
    GenerateOptions options;
    options.max_tokens = n;
    auto result = run(writes("xxxxxxxxxx"), options);
    EXPECT_EQ(result.text, std::string(static_cast<size_t>(n), 'x'));
    EXPECT_EQ(result.generated_tokens, n);
    EXPECT_EQ(result.finish_reason, FinishReason::length) << n;
  }
  // EOS as the last allowed token is a stop.
  GenerateOptions options;
  options.max_tokens = 2;
  auto result = run(says({'x', eos}), options);
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
}

TEST_F(Generate, StopStringsEndTheTextBeforeTheMatch) {
  struct Case {
    std::vector<std::string> stops;
    std::string text;
    std::string stop;
  };
  for (const Case& c : std::vector<Case>{
           {{"beta gamma"}, "alpha ", "beta gamma"},
           {{"a b"}, "alph", "a b"},
           {{"gamma"}, "alpha beta ", "gamma"},
           {{"alpha"}, "", "alpha"},
           {{"gamma", "eta"}, "alpha b", "eta"},
           {{"delta", "gammaX"}, "alpha beta gamma", ""}}) {
    GenerateOptions options;
    options.stop = c.stops;
    std::string streamed;
    auto result =
        run(writes("alpha beta gamma"), options, [&](const Delta& delta) {
          streamed += delta.text;
          return true;
        });
    EXPECT_EQ(result.text, c.text);
    EXPECT_EQ(streamed, c.text);
    EXPECT_EQ(result.stop_sequence, c.stop);
    EXPECT_EQ(result.finish_reason, FinishReason::stop);
  }
}

TEST_F(Generate, StopStringsWorkWithSplitCharacters) {
  // 終 is E7 B5 82, 絀 is E7 B5 80.
  Tokens tokens = {'a', 0xe7, 0xb5, 0x80, 0xe7, 0xb5, 0x82, 'z', eos};
  GenerateOptions options;
  options.stop = {"終"};
  auto result = run(says(tokens), options);
  EXPECT_EQ(result.text, "a絀");
  EXPECT_EQ(result.stop_sequence, "終");
}

TEST_F(Generate, WhatLookedLikeAStopComesOutAtTheEnd) {
  GenerateOptions options;
  options.stop = {"gamma rays"};
  auto result = run(writes("alpha gamma"), options);
  EXPECT_EQ(result.text, "alpha gamma");
  options.max_tokens = 2;
  result = run(writes("alpha gamma"), options);
  EXPECT_EQ(result.text, "alpha gamma");
  EXPECT_EQ(result.finish_reason, FinishReason::length);
}

TEST_F(Generate, AStopStringMayNameASpecialToken) {
  GenerateOptions options;
  options.stop = {"<s>"};
  auto result = run(says({'a', bos, 'b', eos}), options);
  EXPECT_EQ(result.text, "a");
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
  EXPECT_EQ(result.stop_sequence, "<s>");
}

TEST_F(Generate, AnswersFalseToStop) {
  GenerateOptions options;
  options.stop = {"ccc"};
  int calls = 0;
  auto result = run(writes("abcdefgh"), options, [&](const Delta&) {
    return ++calls < 3;
  });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(result.finish_reason, FinishReason::cancelled);
  EXPECT_EQ(result.text, "ab");  // c was held back
  EXPECT_EQ(result.generated_tokens, 3);
  EXPECT_LE(model->lengths.size(), 1 + 4u);
}

TEST_F(Generate, IsCancelledBetweenTokens) {
  GenerateOptions options;
  options.is_cancelled = [&] { return model->lengths.size() >= 6; };
  auto result = run(writes("abcdefghijkl"), options);
  EXPECT_EQ(result.finish_reason, FinishReason::cancelled);
  EXPECT_EQ(result.text, "abcd");
}

TEST_F(Generate, IsCancelledBetweenPrefillChunks) {
  prompt = Tokens(1000, 'q');
  GenerateOptions options;
  options.prefill_step_size = 10;
  options.is_cancelled = [&] { return model->lengths.size() >= 3; };
  auto result = run(writes("abc"), options);
  EXPECT_EQ(result.finish_reason, FinishReason::cancelled);
  EXPECT_EQ(result.generated_tokens, 0);
  EXPECT_EQ(model->lengths.size(), 3u);
}

TEST_F(Generate, ReportsPrefillToItsEnd) {
  prompt = Tokens(25, 'q');
  std::vector<int> done;
  GenerateOptions options;
  options.prefill_step_size = 10;
  options.on_prefill = [&](int tokens, int total) {
    EXPECT_EQ(total, 25);
    done.push_back(tokens);
  };
  run(writes("abc"), options);
  EXPECT_EQ(done, (std::vector<int>{0, 10, 20, 24, 25}));
}

TEST_F(Generate, PromptAndAnswerStayWithinTheContext) {
  auto pipeline = writes("x");
  pipeline.context_length = 64;
  pipeline.eos_ids.clear();
  GenerateOptions options;
  options.max_tokens = 100;
  for (auto [length, expected] :
       std::vector<std::pair<size_t, int>>{{63, 1}, {64, 0}, {60, 4}}) {
    prompt = Tokens(length, 'q');
    auto result = run(pipeline, options);
    EXPECT_EQ(result.generated_tokens, expected) << length;
    EXPECT_EQ(result.finish_reason, FinishReason::length) << length;
  }
  for (size_t length : {65, 10000}) {
    prompt = Tokens(length, 'q');
    auto what =
        message_of([&] { run(pipeline, options); }, ErrorKind::invalid_request);
    EXPECT_NE(what.find("context_length_exceeded"), what.npos) << what;
    EXPECT_NE(what.find(std::to_string(length)), what.npos) << what;
    EXPECT_NE(what.find("64"), what.npos) << what;
  }
}

TEST_F(Generate, RefusesPromptsThatCannotBe) {
  for (const Tokens& bad : {Tokens{}, Tokens{-1}, Tokens{65, V}}) {
    prompt = bad;
    message_of([&] { run(writes("x")); }, ErrorKind::invalid_request);
    EXPECT_TRUE(model->lengths.empty());
  }
}

TEST_F(Generate, RefusesOptionsBeforeAnyWork) {
  GenerateOptions options;
  options.sampling.logit_bias = {{V, 1.0f}};
  auto what = message_of(
      [&] { run(writes("x"), options); },
      ErrorKind::invalid_request);
  EXPECT_NE(what.find("logit_bias"), what.npos);
  EXPECT_TRUE(model->lengths.empty());
}

TEST_F(Generate, TokensPastTheTokenizersLastHaveNoText) {
  auto result = run(says({'a', V - 1, 'b', eos}));
  EXPECT_EQ(result.text, "ab");
  EXPECT_EQ(result.tokens, (Tokens{'a', V - 1, 'b'}));
}

TEST_F(Generate, LogitBiasChangesGreedyChoices) {
  GenerateOptions options;
  options.max_tokens = 3;
  options.sampling.logit_bias = {{'z', 100}};
  EXPECT_EQ(run(writes("abc"), options).text, "zzz");
}

TEST_F(Generate, SeedsAreReproducibleReportedAndFresh) {
  auto flat = with([&](const mx::array&) { return mx::zeros({1, V}); });
  flat.eos_ids.clear();
  GenerateOptions options;
  options.max_tokens = 16;
  options.sampling.temperature = 1;
  auto first = run(flat, options);
  auto second = run(flat, options);
  EXPECT_NE(first.tokens, second.tokens);
  EXPECT_NE(first.seed, second.seed);
  options.sampling.seed = first.seed;
  auto again = run(flat, options);
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_EQ(again.seed, first.seed);
  options.sampling.seed = 0;
  EXPECT_EQ(run(flat, options).tokens, run(flat, options).tokens);
  EXPECT_EQ(run(flat, options).seed, 0);
}

TEST_F(Generate, XtcLeavesNewlineAndEosAlone) {
  auto pipeline = with([&](const mx::array&) {
    auto ids = mx::reshape(mx::arange(V), {1, V});
    auto likely =
        mx::logical_or(ids == mx::array(int{'\n'}), ids == mx::array(eos));
    auto next = ids == mx::array(int{'n'});
    return mx::where(
        likely,
        mx::array(10.0f),
        mx::where(next, mx::array(9.0f), mx::array(-100.0f)));
  });
  pipeline.eos_ids = {eos};
  GenerateOptions options;
  options.ignore_eos = true;
  options.max_tokens = 60;
  options.sampling.temperature = 1;
  options.sampling.seed = 5;
  options.sampling.xtc_probability = 1;
  auto kept = run(pipeline, options);
  std::set<int32_t> seen(kept.tokens.begin(), kept.tokens.end());
  EXPECT_EQ(seen, (std::set<int32_t>{'\n', 'n', eos}));
  options.sampling.xtc_special_tokens = std::vector<int32_t>{};
  kept = run(pipeline, options);
  seen = {kept.tokens.begin(), kept.tokens.end()};
  EXPECT_EQ(seen, (std::set<int32_t>{'n'}));
}

TEST_F(Generate, AConversationIsNotComputedTwice) {
  auto pipeline = with(hashed(V));
  pipeline.eos_ids.clear();
  GenerateOptions options;
  options.max_tokens = 12;
  Sequence sequence;
  Tokens conversation;
  for (int turn = 0; turn < 4; ++turn) {
    conversation.insert(conversation.end(), {70 + turn, 71, 72});
    auto warm = generate(pipeline, conversation, sequence, options);
    auto cold = generate(pipeline, conversation, options);
    EXPECT_EQ(warm.tokens, cold.tokens);
    EXPECT_EQ(warm.text, cold.text);
    EXPECT_EQ(cold.cached_tokens, 0);
    // All but the answer's last token and the new turn.
    EXPECT_EQ(
        warm.cached_tokens,
        turn == 0 ? 0 : static_cast<int>(conversation.size()) - 4);
    EXPECT_EQ(warm.prompt_tokens, static_cast<int>(conversation.size()));
    conversation.insert(
        conversation.end(),
        warm.tokens.begin(),
        warm.tokens.end());
  }
}

TEST_F(Generate, TheSamePromptTwiceComputesItsLastTokenAgain) {
  auto pipeline = with(hashed(V));
  for (const Tokens& same : {Tokens{'H', 'e', 'l', 'l', 'o'}, Tokens{'H'}}) {
    Sequence sequence;
    auto first = generate(pipeline, same, sequence, {});
    auto second = generate(pipeline, same, sequence, {});
    EXPECT_EQ(first.tokens, second.tokens);
    EXPECT_FALSE(second.tokens.empty());
    EXPECT_EQ(second.cached_tokens, static_cast<int>(same.size()) - 1);
  }
}

TEST_F(Generate, ARefusedRequestLeavesTheConversation) {
  auto pipeline = with(hashed(V));
  Sequence sequence;
  generate(pipeline, prompt, sequence, {});
  auto before = sequence.tokens;
  GenerateOptions bad;
  bad.max_tokens = -1;
  EXPECT_THROW(generate(pipeline, prompt, sequence, bad), Error);
  EXPECT_THROW(generate(pipeline, Tokens{}, sequence, {}), Error);
  EXPECT_EQ(sequence.tokens, before);
}

TEST_F(Generate, ExceptionsOfCallbacksPassAndClearTheConversation) {
  auto pipeline = with(hashed(V));
  Sequence sequence;
  auto expected = generate(pipeline, prompt, sequence, {}).tokens;
  EXPECT_THROW(
      generate(
          pipeline,
          {'x', 'y'},
          sequence,
          {},
          [](const Delta&) -> bool { throw std::out_of_range("pipe"); }),
      std::out_of_range);
  EXPECT_TRUE(sequence.caches.empty());
  EXPECT_TRUE(sequence.tokens.empty());
  EXPECT_EQ(generate(pipeline, prompt, sequence, {}).tokens, expected);
}

TEST_F(Generate, AfterACancelledPrefillTheConversationGoesOn) {
  auto pipeline = with(hashed(V));
  prompt = Tokens(50, 'q');
  Sequence sequence;
  GenerateOptions options;
  options.prefill_step_size = 10;
  options.is_cancelled = [&] { return model->lengths.size() >= 2; };
  auto result = generate(pipeline, prompt, sequence, options);
  EXPECT_EQ(result.finish_reason, FinishReason::cancelled);
  options.is_cancelled = {};
  auto warm = generate(pipeline, prompt, sequence, options);
  EXPECT_EQ(warm.cached_tokens, 20);
  EXPECT_EQ(warm.tokens, generate(pipeline, prompt, {}).tokens);
}

TEST_F(Generate, MaxKvSizeReachesTheCaches) {
  GenerateOptions options;
  options.max_kv_size = 77;
  run(writes("a"), options);
  EXPECT_EQ(model->made_caches, (std::vector<int>{77}));
}

}  // namespace
}  // namespace mlxx::generate

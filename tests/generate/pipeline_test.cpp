#include "mlxx/generate/pipeline.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/generate/chat_prompt.h"
#include "mlxx/generate/generate.h"
#include "tests/core/temporary_folder.h"
#include "tests/generate/tiny_tokenizer.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::generate {
namespace {

using Ids = std::set<int32_t>;

const Json kConfig = {
    {"model_type", "llama"},
    {"vocab_size", 300},
    {"hidden_size", 64},
    {"intermediate_size", 128},
    {"num_hidden_layers", 2},
    {"num_attention_heads", 4},
    {"num_key_value_heads", 2},
    {"max_position_embeddings", 512},
    {"rms_norm_eps", 1e-5},
    {"tie_word_embeddings", true},
    {"eos_token_id", 7}};

// Random weights, with texts that a test may change.
class Checkpoint : public models::FakeCheckpoint {
 public:
  Checkpoint() : FakeCheckpoint(models::random_checkpoint(kConfig)) {
    files.tokenizer_json = tiny_tokenizer_json({"hi"}, false);
    files.tokenizer_config_json =
        R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})";
  }
  const hub::TextFiles& text() const override {
    return files;
  }
  const Json& generation_config() const override {
    return generation;
  }

  hub::TextFiles files;
  Json generation = {{"eos_token_id", Json::array({7, 9})}};
};

class LoadPipeline : public ::testing::Test {
 protected:
  std::shared_ptr<Checkpoint> checkpoint = std::make_shared<Checkpoint>();
};

std::string error_of(
    const std::shared_ptr<const hub::Checkpoint>& checkpoint,
    const PipelineOptions& options,
    ErrorKind kind) {
  try {
    load_pipeline(checkpoint, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST_F(LoadPipeline, JoinsTheEosTokensOfAllFiles) {
  auto pipeline = load_pipeline(checkpoint);
  int32_t eos = *pipeline.tokenizer->token_to_id("</s>");
  EXPECT_EQ(pipeline.eos_ids, (Ids{7, 9, eos}));
  EXPECT_EQ(pipeline.bos_id, pipeline.tokenizer->token_to_id("<s>"));
  EXPECT_EQ(pipeline.context_length, 512);
  EXPECT_EQ(pipeline.checkpoint, checkpoint);
  EXPECT_GT(pipeline.weights_seconds, 0);
  EXPECT_GT(pipeline.tokenizer_seconds, 0);

  PipelineOptions options;
  options.extra_eos_tokens = {"<end>", "a"};
  pipeline = load_pipeline(checkpoint, options);
  int32_t end = *pipeline.tokenizer->token_to_id("<end>");
  EXPECT_EQ(pipeline.eos_ids, (Ids{7, 9, eos, end, 'a'}));
}

TEST_F(LoadPipeline, AnUnknownExtraEosTokenIsNotFound) {
  PipelineOptions options;
  options.extra_eos_tokens = {"<nope>"};
  auto what = error_of(checkpoint, options, ErrorKind::not_found);
  EXPECT_NE(what.find("<nope>"), what.npos) << what;
}

TEST_F(LoadPipeline, TheContextCanBeReplaced) {
  PipelineOptions options;
  options.context_length = 4096;
  EXPECT_EQ(load_pipeline(checkpoint, options).context_length, 4096);
  options.context_length = -1;
  error_of(checkpoint, options, ErrorKind::invalid_request);
}

TEST_F(LoadPipeline, ABrokenTemplateFailsChatAndNotRawCompletion) {
  checkpoint->files.chat_templates = {{"default", "{% for m in %}"}};
  auto pipeline = load_pipeline(checkpoint);
  EXPECT_EQ(pipeline.chat_template, nullptr);
  EXPECT_FALSE(pipeline.chat_template_error.empty());
  EXPECT_FALSE(encode_raw_prompt(pipeline, "hi").empty());
  auto messages = OrderedJson::array({{{"role", "user"}, {"content", "hi"}}});
  EXPECT_THROW(encode_chat_prompt(pipeline, messages), Error);

  // The user's own template must be right, and then replaces it.
  PipelineOptions options;
  options.chat_template = "{% endfor %}";
  EXPECT_THROW(load_pipeline(checkpoint, options), Error);
  options.chat_template = "{{ messages[0].content }}!";
  pipeline = load_pipeline(checkpoint, options);
  EXPECT_EQ(
      pipeline.tokenizer->decode(encode_chat_prompt(pipeline, messages)),
      "hi!");
}

// One whose tokenizer is known by a digest.
class CheckpointWithDigest : public Checkpoint {
 public:
  const hub::TextFiles& text() const override {
    ++texts_made;
    return files;
  }
  const hub::TextFiles& text_beside_tokenizer() const override {
    return files;
  }
  std::string tokenizer_digest() const override {
    return "the digest";
  }

  mutable int texts_made = 0;
};

TEST_F(LoadPipeline, AKeptTokenizerIsNotMadeAgain) {
  TemporaryFolder folder;
  PipelineOptions options;
  options.tokenizer_cache.emplace(folder.path());
  auto with_digest = std::make_shared<CheckpointWithDigest>();
  auto first = load_pipeline(with_digest, options);
  EXPECT_EQ(with_digest->texts_made, 1);
  auto second = load_pipeline(with_digest, options);
  EXPECT_EQ(with_digest->texts_made, 1);
  EXPECT_EQ(
      first.tokenizer->encode("hi there"),
      second.tokenizer->encode("hi there"));
  EXPECT_EQ(first.eos_ids, second.eos_ids);
  // Without one nothing is kept.
  load_pipeline(with_digest);
  EXPECT_EQ(with_digest->texts_made, 2);
}

TEST_F(LoadPipeline, TheTemplateNamedDefaultIsTaken) {
  checkpoint->files.chat_templates = {
      {"tool_use", "tools"},
      {"default", "{{ bos_token }}plain"}};
  auto pipeline = load_pipeline(checkpoint);
  auto messages = OrderedJson::array({{{"role", "user"}, {"content", "hi"}}});
  EXPECT_EQ(
      pipeline.tokenizer->decode(encode_chat_prompt(pipeline, messages)),
      "<s>plain");
}

TEST_F(LoadPipeline, ToolsHaveATemplateOfTheirOwn) {
  checkpoint->files.chat_templates = {
      {"tool_use", "{{ tools[0].function.name }}"},
      {"default", "plain{{ tools }}"}};
  auto messages = OrderedJson::array({{{"role", "user"}, {"content", "hi"}}});
  auto tools = OrderedJson::parse(
      R"([{"type": "function", "function": {"name": "weather"}}])");
  auto pipeline = load_pipeline(checkpoint);
  auto text = [&](const OrderedJson& given) {
    std::string rendered = render_chat_prompt(pipeline, messages, given, {});
    EXPECT_EQ(
        pipeline.tokenizer->decode(
            encode_chat_prompt(pipeline, messages, given, {})),
        rendered);
    return rendered;
  };
  EXPECT_EQ(text(tools), "weather");
  EXPECT_EQ(text(OrderedJson()).substr(0, 5), "plain");
  EXPECT_EQ(text(OrderedJson::array()).substr(0, 5), "plain");
  EXPECT_THROW(text(OrderedJson::object()), Error);

  // A broken one is no reason to hide the tools from the model.
  checkpoint->files.chat_templates[0].second = "{% for t in %}";
  pipeline = load_pipeline(checkpoint);
  EXPECT_THROW(text(tools), Error);
  EXPECT_EQ(text(OrderedJson()).substr(0, 5), "plain");

  // The user's own template is for both.
  PipelineOptions options;
  options.chat_template = "own";
  pipeline = load_pipeline(checkpoint, options);
  EXPECT_EQ(text(tools), "own");
}

TEST_F(LoadPipeline, ErrorsOfTheTextThreadComeOut) {
  checkpoint->files.tokenizer_json = "{}";
  error_of(checkpoint, {}, ErrorKind::bad_file);
  checkpoint->files.tokenizer_json = tiny_tokenizer_json({"hi"}, false);
  checkpoint->files.tokenizer_config_json = R"({"eos_token": 5})";
  auto what = error_of(checkpoint, {}, ErrorKind::bad_file);
  EXPECT_NE(what.find("eos_token"), what.npos) << what;
}

TEST_F(LoadPipeline, LoadingCanBeStopped) {
  PipelineOptions options;
  options.progress = [](uint64_t, uint64_t) {
    fail(ErrorKind::cancelled, "test", "enough");
  };
  error_of(checkpoint, options, ErrorKind::cancelled);
}

// A real model's caches behind the loop.
class RandomLlama : public LoadPipeline {
 protected:
  Pipeline pipeline = load_pipeline(checkpoint);
  GenerateOptions options = [] {
    GenerateOptions options;
    options.max_tokens = 24;
    options.ignore_eos = true;
    return options;
  }();
};

TEST_F(RandomLlama, AConversationEqualsItsColdRuns) {
  Sequence sequence;
  std::vector<int32_t> conversation;
  for (int turn = 0; turn < 3; ++turn) {
    conversation.insert(conversation.end(), {20 + turn, 33, 44, 55});
    auto warm = generate(pipeline, conversation, sequence, options);
    auto cold = generate(pipeline, conversation, options);
    EXPECT_EQ(warm.tokens, cold.tokens) << turn;
    EXPECT_EQ(warm.tokens.size(), 24u);
    EXPECT_EQ(warm.cached_tokens > 0, turn > 0);
    conversation.insert(
        conversation.end(),
        warm.tokens.begin(),
        warm.tokens.end());
  }
  // Back to an earlier point of it.
  conversation.resize(conversation.size() / 2);
  auto warm = generate(pipeline, conversation, sequence, options);
  EXPECT_EQ(warm.tokens, generate(pipeline, conversation, options).tokens);
  EXPECT_EQ(warm.cached_tokens, static_cast<int>(conversation.size()) - 1);
}

TEST_F(RandomLlama, ChunkSizeDoesNotChangeTheAnswer) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 90; ++i) {
    prompt.push_back((i * 37) % 256);
  }
  auto whole = generate(pipeline, prompt, options);
  for (int step : {1, 13, 64}) {
    options.prefill_step_size = step;
    EXPECT_EQ(generate(pipeline, prompt, options).tokens, whole.tokens);
  }
}

TEST_F(RandomLlama, AWindowedCacheGoesPastItsSize) {
  std::vector<int32_t> prompt(100, 65);
  options.max_kv_size = 32;
  options.max_tokens = 80;
  options.prefill_step_size = 16;
  auto result = generate(pipeline, prompt, options);
  EXPECT_EQ(result.generated_tokens, 80);
  EXPECT_EQ(generate(pipeline, prompt, options).tokens, result.tokens);
  // A window that is never full changes nothing.
  options.max_kv_size = 400;
  auto wide = generate(pipeline, prompt, options);
  options.max_kv_size = 0;
  EXPECT_EQ(generate(pipeline, prompt, options).tokens, wide.tokens);
}

TEST_F(RandomLlama, SampledAnswersFollowTheSeed) {
  options.sampling.temperature = 1;
  options.sampling.top_p = 0.9f;
  options.sampling.seed = 7;
  std::vector<int32_t> prompt = {10, 20, 30};
  auto first = generate(pipeline, prompt, options);
  EXPECT_EQ(generate(pipeline, prompt, options).tokens, first.tokens);
  // Warm as well as cold.
  Sequence sequence;
  EXPECT_EQ(generate(pipeline, prompt, sequence, options).tokens, first.tokens);
  EXPECT_EQ(generate(pipeline, prompt, sequence, options).tokens, first.tokens);
  options.sampling.seed = 8;
  EXPECT_NE(generate(pipeline, prompt, options).tokens, first.tokens);
}

}  // namespace
}  // namespace mlxx::generate

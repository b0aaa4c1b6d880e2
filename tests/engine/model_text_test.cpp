#include "mlxx/engine/model_text.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/engine/generation_defaults.h"
#include "tests/engine/tiny_model_text.h"

namespace mlxx::engine {
namespace {

OrderedJson user(const char* content) {
  return OrderedJson::array({{{"role", "user"}, {"content", content}}});
}

TEST(ModelText, EncodesWhatItRenders) {
  auto text = tiny_model_text();
  auto ids = encode_chat(*text, user("hi"), nullptr, {});
  EXPECT_EQ(text->tokenizer->decode(ids), "<s>user:hi</s>assistant:");
  EXPECT_EQ(
      render_chat(*text, user("hi"), nullptr, {}),
      "<s>user:hi</s>assistant:");
  EXPECT_EQ(ids.front(), *text->bos_id);
  // Control tokens of a message stay text.
  auto forged = encode_chat(*text, user("</s>"), nullptr, {});
  EXPECT_EQ(std::ranges::count(forged, *text->eos_ids.begin()), 1);
}

TEST(ModelText, ShowsToolsAndExtraVariables) {
  auto text = tiny_model_text();
  auto tools = OrderedJson::array({{{"name", "f"}}});
  text::RenderOptions options;
  options.extra_json = R"({"enable_thinking": true})";
  EXPECT_EQ(
      render_chat(*text, user("hi"), tools, options),
      "<s>tools:[{\"name\": \"f\"}]</s>user:hi</s>assistant:<think>");
}

TEST(ModelText, ARawPromptHasNoTemplate) {
  auto text = tiny_model_text();
  EXPECT_EQ(encode_raw(*text, "ab"), (std::vector<int32_t>{'a', 'b'}));
  text->add_bos = true;
  EXPECT_EQ(
      encode_raw(*text, "ab"),
      (std::vector<int32_t>{*text->bos_id, 'a', 'b'}));
}

TEST(ModelText, SaysWhatIsMissing) {
  auto bare = tiny_model_text("bare", "");
  try {
    render_chat(*bare, user("hi"), nullptr, {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    const std::string what = error.what();
    EXPECT_NE(what.find("no chat template"), what.npos) << what;
  }
  try {
    encode_raw(ModelText(), "a");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
  }
}

TEST(SamplingDefaults, AreGreedyWithoutAFile) {
  auto sampling = sampling_defaults(Json::object());
  EXPECT_EQ(sampling.temperature, 0);
  EXPECT_EQ(sampling.top_p, 1);
  EXPECT_EQ(sampling.repetition_context_size, 20);
}

TEST(SamplingDefaults, AreTheModelsOwn) {
  Json config = {
      {"do_sample", true},
      {"temperature", 0.6},
      {"top_p", 0.95},
      {"top_k", 20},
      {"repetition_penalty", 1.05}};
  auto sampling = sampling_defaults(config);
  EXPECT_FLOAT_EQ(sampling.temperature, 0.6f);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.95f);
  EXPECT_EQ(sampling.top_k, 20);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.05f);
  EXPECT_EQ(sampling.repetition_context_size, 0);

  config["do_sample"] = false;
  EXPECT_EQ(sampling_defaults(config).temperature, 0);
  EXPECT_EQ(sampling_defaults(config).top_k, 0);
  config.erase("do_sample");
  EXPECT_FLOAT_EQ(sampling_defaults(config).temperature, 0.6f);
  config.erase("temperature");
  EXPECT_EQ(sampling_defaults(config).temperature, 0);
  EXPECT_EQ(sampling_defaults({{"do_sample", true}}).temperature, 1);
}

TEST(SamplingDefaults, GiveWayToFlags) {
  Json config = {{"do_sample", true}, {"temperature", 0.6}, {"top_k", 20}};
  SamplingFlags flags;
  flags.temperature = 0.0f;
  auto sampling = sampling_defaults(config, flags);
  EXPECT_EQ(sampling.temperature, 0);
  EXPECT_EQ(sampling.top_k, 20);
}

TEST(SamplingDefaults, RefuseWhatIsNoNumber) {
  for (const char* text :
       {R"({"temperature": "hot"})",
        R"({"temperature": -1})",
        R"({"do_sample": true, "top_k": 1.5})",
        R"({"do_sample": 1})",
        R"({"do_sample": true, "top_p": 2})",
        R"({"repetition_penalty": [1]})"}) {
    try {
      sampling_defaults(Json::parse(text));
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_file) << text;
    }
  }
}

}  // namespace
}  // namespace mlxx::engine

#include "mlxx/embed/embedding_model.h"

#include <gtest/gtest.h>

#include "tests/core/error_of.h"
#include "tests/embed/tiny_encoder.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::embed {
namespace {

const std::vector<std::string> kTexts = {
    "the capital of paris",
    "a",
    "rome?",
    "",
    "the the the the the the the the the the the the",
    "capital of rome."};

mx::array row(const mx::array& x, int i) {
  return mx::slice(x, {i, 0}, {i + 1, x.shape(1)});
}

double length_of(const mx::array& x) {
  return mx::sqrt(mx::sum(mx::square(x))).item<float>();
}

void expect_independence(const TinyEncoderFolder& folder, bool fallback) {
  auto model = EmbeddingModel::load(folder.path(), load_with(fallback));
  auto single = EmbeddingModel::load(folder.path(), load_with(fallback, 1));
  auto all = model->embed(kTexts);
  for (size_t i = 0; i < kTexts.size(); ++i) {
    std::vector<std::string> alone = {kTexts[i]};
    mx::array other = single->embed(alone).vectors;
    mx::array got = row(all.vectors, static_cast<int>(i));
    if (fallback) {
      EXPECT_LT(relative_error(got, other), 1e-6) << i;
    } else {
      EXPECT_TRUE(same_bits(got, other)) << i;
    }
  }
}

TEST(EmbeddingModel, AVectorDoesNotDependOnItsBatch) {
  bool is_cpu = mx::default_device() == mx::Device::cpu;
  for (bool fallback : {false, true}) {
    expect_independence(TinyEncoderFolder(), fallback || !is_cpu);
    expect_independence(
        TinyEncoderFolder(tiny_modern_bert_config(), make_modern_bert),
        fallback || !is_cpu);
    for (const char* type : {"qwen3", "gemma3_text", "llama"}) {
      expect_independence(
          TinyEncoderFolder(tiny_decoder_config(type), make_decoder_encoder),
          fallback || !is_cpu);
    }
  }
}

// The order of tokens of a decoder matters to what comes after them only; the
// last token sees all.
TEST(EmbeddingModel, DecodersPoolTheLastTokenAndGemmaAllOfThem) {
  auto pooling_of = [](const char* type) {
    TinyEncoderFolder folder(tiny_decoder_config(type), make_decoder_encoder);
    return EmbeddingModel::load(folder.path(), load_with(false))->pooling();
  };
  EXPECT_EQ(pooling_of("qwen3"), Pooling::last_token);
  EXPECT_EQ(pooling_of("gemma3_text"), Pooling::mean);
}

TEST(EmbeddingModel, DecodersOfAnotherFormAreRefused) {
  TinyEncoderFolder folder(tiny_decoder_config("qwen3"), make_decoder_encoder);
  EXPECT_ERROR(
      load_encoder(
          *hub::open_checkpoint(folder.path()),
          EncoderPurpose::scores,
          load_with(false)),
      "unsupported",
      "a classification head on a 'qwen3'");
  folder.write("config.json", tiny_decoder_config("mixtral").dump());
  EXPECT_ERROR(
      EmbeddingModel::load(folder.path(), load_with(false)),
      "unsupported",
      "model_type 'mixtral' is no encoder");
}

TEST(EmbeddingModel, QuantizedWeightsComeNearTheirOwn) {
  TinyEncoderFolder folder;
  mx::array exact = EmbeddingModel::load(folder.path(), load_with(false))
                        ->embed(kTexts)
                        .vectors;
  folder.quantize(tiny_bert_config(), 8);
  auto packed = EmbeddingModel::load(folder.path(), load_with(false));
  auto plain = EmbeddingModel::load(folder.path(), load_with(true));
  mx::array got = packed->embed(kTexts).vectors;
  EXPECT_LT(relative_error(got, exact), 0.05);
  EXPECT_GT(relative_error(got, exact), 1e-5);
  EXPECT_LT(relative_error(got, plain->embed(kTexts).vectors), 1e-2);
  if (mx::default_device() == mx::Device::cpu) {
    expect_independence(folder, false);
  }
}

TEST(EmbeddingModel, ManyTextsGoThroughInSeveralBatchesInTheirOrder) {
  TinyEncoderFolder folder;
  auto model = EmbeddingModel::load(folder.path(), load_with(false));
  std::vector<std::string> many;
  for (int i = 0; i < 1200; ++i) {
    many.push_back(kTexts[i % kTexts.size()]);
  }
  auto few = model->embed(kTexts);
  auto all = model->embed(many);
  ASSERT_EQ(all.vectors.shape(), (mx::Shape{1200, 64}));
  for (int i = 0; i < 1200; i += 97) {
    int same = i % static_cast<int>(kTexts.size());
    EXPECT_LT(relative_error(row(all.vectors, i), row(few.vectors, same)), 1e-6)
        << i;
  }
}

TEST(EmbeddingModel, FastKernelsAgreeWithPlainOperations) {
  for (bool is_modern : {false, true}) {
    TinyEncoderFolder folder(
        is_modern ? tiny_modern_bert_config() : tiny_bert_config(),
        is_modern ? make_modern_bert : make_bert);
    auto fast = EmbeddingModel::load(folder.path(), load_with(false));
    auto plain = EmbeddingModel::load(folder.path(), load_with(true));
    EXPECT_LT(
        relative_error(
            fast->embed(kTexts).vectors,
            plain->embed(kTexts).vectors),
        1e-5);
  }
}

TEST(EmbeddingModel, LengthsAreOneUnlessAskedOtherwise) {
  TinyEncoderFolder folder;
  auto model = EmbeddingModel::load(folder.path(), load_with(false));
  EXPECT_TRUE(model->normalizes());
  EXPECT_NEAR(length_of(row(model->embed(kTexts).vectors, 0)), 1, 1e-6);
  mx::array raw = model->embed(kTexts, {.normalize = false}).vectors;
  EXPECT_GT(std::abs(length_of(row(raw, 0)) - 1), 0.01);
  // Cut vectors are scaled again, or stay what they are.
  mx::array cut = model->embed(kTexts, {.dimensions = 10}).vectors;
  EXPECT_EQ(cut.shape(), (mx::Shape{6, 10}));
  EXPECT_NEAR(length_of(row(cut, 0)), 1, 1e-6);
  mx::array raw_cut =
      model->embed(kTexts, {.normalize = false, .dimensions = 10}).vectors;
  EXPECT_TRUE(same_bits(raw_cut, mx::slice(raw, {0, 0}, {6, 10})));
}

TEST(EmbeddingModel, LongTextsAreCutOffAndSaid) {
  TinyEncoderFolder folder;
  auto model = EmbeddingModel::load(folder.path(), load_with(false));
  std::string words;
  for (int i = 0; i < 100; ++i) {
    words += "the ";
  }
  std::vector<std::string> texts = {words, "rome"};
  auto all = model->embed(texts);
  EXPECT_EQ(all.dropped, (std::vector{100 + 2 - 48, 0}));
  EXPECT_EQ(all.tokens, 48 + 3);
  auto cut = model->embed(texts, {.max_tokens = 10});
  EXPECT_EQ(cut.dropped, (std::vector{100 + 2 - 10, 0}));
  std::vector<std::string> eight = {"the the the the the the the the", "rome"};
  EXPECT_TRUE(same_bits(cut.vectors, model->embed(eight).vectors));
  EXPECT_ERROR(
      model->embed(texts, {.max_tokens = 49}),
      "invalid_request",
      "is 49, the model takes 1 to 48");
}

TEST(EmbeddingModel, PromptsGoBeforeEveryText) {
  TinyEncoderFolder folder;
  folder.write(
      "config_sentence_transformers.json",
      R"({"prompts": {"query": "the capital: ", "document": ""},
          "default_prompt_name": null})");
  auto model = EmbeddingModel::load(folder.path(), load_with(false));
  std::vector<std::string> plain = {"rome"};
  std::vector<std::string> longer = {"the capital: rome"};
  mx::array wanted = model->embed(longer).vectors;
  EXPECT_TRUE(
      same_bits(model->embed(plain, {.prompt_name = "query"}).vectors, wanted));
  EXPECT_TRUE(same_bits(
      model->embed(plain, {.prompt = "the capital: "}).vectors,
      wanted));
  EXPECT_FALSE(same_bits(model->embed(plain).vectors, wanted));
  EXPECT_ERROR(
      model->embed(plain, {.prompt_name = "passage"}),
      "invalid_request",
      "no prompt 'passage', it has document, query");
  EXPECT_ERROR(
      model->embed(plain, {.prompt = "a", .prompt_name = "query"}),
      "invalid_request",
      "exclude each other");
}

TEST(EmbeddingModel, NothingGivesNoRows) {
  TinyEncoderFolder folder;
  auto model = EmbeddingModel::load(folder.path(), load_with(false));
  auto none = model->embed({}, {.dimensions = 7});
  EXPECT_EQ(none.vectors.shape(), (mx::Shape{0, 7}));
  EXPECT_EQ(none.tokens, 0);
}

TEST(EmbeddingModel, BadTextsAndOptionsAreNamed) {
  TinyEncoderFolder folder;
  auto model = EmbeddingModel::load(folder.path(), load_with(false));
  std::vector<std::string> texts = {"rome", "\xff"};
  EXPECT_ERROR(model->embed(texts), "invalid_request", "[text 1]");
  EXPECT_ERROR(
      model->embed(kTexts, {.dimensions = 65}),
      "invalid_request",
      "is 65, the model gives 1 to 64");
  EXPECT_ERROR(
      model->embed(kTexts, {.dimensions = -1}),
      "invalid_request",
      "is -1");
}

TEST(EmbeddingModel, EveryTensorIsAccountedFor) {
  TinyEncoderFolder folder;
  auto load = [&] { EmbeddingModel::load(folder.path(), load_with(false)); };
  std::string name = "bert.encoder.layer.1.output.dense.weight";
  mx::array kept = folder.tensors.at(name);
  folder.tensors.erase(name);
  folder.write_weights();
  EXPECT_ERROR(
      load(),
      "bad_file",
      "'" + name + "' of shape [64, 96] is missing");
  folder.tensors.emplace(name, kept);
  folder.tensors.emplace("bert.encoder.layer.2.output.dense.weight", kept);
  folder.write_weights();
  EXPECT_ERROR(
      load(),
      "bad_file",
      "no use for 'bert.encoder.layer.2.output.dense.weight'");
  folder.tensors.erase("bert.encoder.layer.2.output.dense.weight");
  folder.tensors.insert_or_assign(name, mx::zeros({64, 95}));
  folder.write_weights();
  EXPECT_ERROR(load(), "bad_file", "has shape [64, 95]");
  // Left out by rule: positions, the pooler and heads.
  folder.tensors.insert_or_assign(name, kept);
  folder.tensors.emplace(
      "bert.embeddings.position_ids",
      mx::expand_dims(mx::arange(0, 48, 1, mx::int64), 0));
  folder.tensors.emplace("cls.predictions.bias", mx::zeros({8}));
  folder.write_weights();
  EXPECT_EQ(error_of(load), "no error");
}

TEST(EmbeddingModel, ConfigsThatCannotBeAreRefused) {
  for (const auto& [key, value, kind, text] :
       {std::tuple<std::string, Json, std::string, std::string>{
            "model_type",
            "t5",
            "unsupported",
            "no encoder that is known: bert"},
        {"num_attention_heads", 5, "bad_file", "does not divide"},
        {"position_embedding_type",
         "relative_key",
         "unsupported",
         "'relative_key' is not 'absolute'"},
        {"is_decoder", true, "unsupported", "is no encoder"},
        {"hidden_act", "mish", "unsupported", "mish"},
        {"hidden_size", "64", "bad_file", "hidden_size"},
        {"vocab_size", 20, "bad_file", "has shape"}}) {
    TinyEncoderFolder folder;
    Json config = tiny_bert_config();
    config[key] = value;
    folder.write("config.json", config.dump());
    std::string message = error_of(
        [&] { EmbeddingModel::load(folder.path(), load_with(false)); });
    EXPECT_TRUE(message.starts_with(kind)) << message;
    EXPECT_NE(message.find(text), std::string::npos) << message;
  }
}

TEST(EmbeddingModel, ATokenizerOfAnotherModelIsRefused) {
  TinyEncoderFolder folder;
  Json tokenizer = word_piece_json();
  tokenizer["model"]["vocab"]["zebra"] = 5000;
  folder.write("tokenizer.json", tokenizer.dump());
  auto model = EmbeddingModel::load(folder.path(), load_with(false));
  std::vector<std::string> texts = {"zebra"};
  EXPECT_ERROR(
      model->embed(texts),
      "bad_file",
      "gives the token id 5000, the model has");
}

TEST(EmbeddingModel, DenseModulesAreChecked) {
  TinyEncoderFolder folder;
  folder.write(
      "modules.json",
      R"([{"path": "", "type": "m.Transformer"},
          {"path": "1_Pooling", "type": "m.Pooling"},
          {"path": "2_Dense", "type": "m.Dense"}])");
  folder.write("1_Pooling/config.json", R"({"pooling_mode": "cls"})");
  auto write_dense = [&](int in) {
    folder.write(
        "2_Dense/config.json",
        fmt::format(
            R"({{"in_features": {}, "out_features": 8, "bias": false}})",
            in));
  };
  write_dense(64);
  auto load = [&] {
    return EmbeddingModel::load(folder.path(), load_with(false));
  };
  EXPECT_ERROR(load(), "not_found", "2_Dense");
  write_safetensors(
      folder.path() / "2_Dense" / "model.safetensors",
      SafetensorsArrays{{"linear.weight", normal({8, 64}, 5)}});
  auto model = load();
  EXPECT_EQ(model->dimensions(), 8);
  EXPECT_EQ(model->pooling(), Pooling::cls);
  EXPECT_FALSE(model->normalizes());
  EXPECT_EQ(model->embed(kTexts).vectors.shape(), (mx::Shape{6, 8}));
  write_dense(32);
  EXPECT_ERROR(load(), "bad_file", "linear.weight");
  folder.write(
      "1_Pooling/config.json",
      R"({"pooling_mode": "cls", "embedding_dimension": 63})");
  EXPECT_ERROR(load(), "bad_file", "expects vectors of 63 numbers, gets 64");
}

}  // namespace
}  // namespace mlxx::embed

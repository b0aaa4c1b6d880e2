// Files of numbers that other programs packed.
#include <cmath>

#include <nlohmann/json.hpp>

#include "mlxx/hub/checkpoint.h"
#include "tests/hub/gguf_builder.h"
#include "tests/hub/tensor_file.h"
#include "tests/mutation/formats.h"

namespace mlxx {

namespace {

namespace fs = std::filesystem;

void load_all(const fs::path& path) {
  auto checkpoint = hub::open_checkpoint(path);
  for (const auto& tensor : checkpoint->tensors()) {
    checkpoint->load(tensor.name, {.scales = mx::float32});
    checkpoint->rows(tensor.name);
  }
}

// One tensor of each quantized type, under names of the architecture, whose
// norms lose the one that was added to them and whose positions are scaled.
std::string gguf_of_all_types(const std::string& architecture) {
  hub::GgufBuilder b;
  std::string prefix = architecture + ".";
  b.string("general.architecture", architecture);
  b.u32(prefix + "block_count", 13);
  b.u32(prefix + "context_length", 4096);
  b.u32(prefix + "embedding_length", 256);
  b.u32(prefix + "feed_forward_length", 256);
  b.u32(prefix + "attention.head_count", 4);
  b.u32(prefix + "attention.head_count_kv", 2);
  b.u32(prefix + "attention.key_length", 16);
  b.u32(prefix + "attention.sliding_window", 512);
  b.u32(prefix + "rope.scaling.original_context_length", 1024);
  b.f32(prefix + "attention.layer_norm_rms_epsilon", 1e-6f);
  b.tensor("token_embd.weight", {256, 1}, 0, std::string(1024, '\1'));
  b.tensor("output_norm.weight", {256}, 0, std::string(1024, '\1'));
  if (architecture == "phi3") {
    for (const char* name : {"long", "short"}) {
      b.tensor(
          fmt::format("rope_factors_{}.weight", name),
          {8},
          0,
          hub::floats(std::vector<float>(8, 1.5f)));
    }
  }
  struct Type {
    uint32_t id;
    size_t block;
    size_t bytes;
  };
  int layer = 0;
  for (const Type& type :
       {Type{2, 32, 18},
        Type{3, 32, 20},
        Type{6, 32, 22},
        Type{7, 32, 24},
        Type{8, 32, 34},
        Type{10, 256, 84},
        Type{11, 256, 110},
        Type{12, 256, 144},
        Type{13, 256, 176},
        Type{14, 256, 210},
        Type{20, 32, 18},
        Type{23, 256, 136},
        Type{39, 32, 17}}) {
    b.tensor(
        fmt::format("blk.{}.ffn_down.weight", layer++),
        {256, 2},
        type.id,
        std::string(512 / type.block * type.bytes, '\x31'));
  }
  return b.build();
}

hub::TensorFile awq_file() {
  hub::TensorFile file;
  file.add("m.qweight", "I32", {64, 2}, std::vector<int32_t>(128, 7));
  file.add("m.qzeros", "I32", {2, 2}, std::vector<int32_t>(4, 3));
  file.add("m.scales", "F16", {2, 16}, hub::random_halves(32, 1));
  return file;
}

hub::TensorFile gptq_file() {
  hub::TensorFile file;
  file.add("m.qweight", "I32", {8, 16}, std::vector<int32_t>(128, 7));
  file.add("m.qzeros", "I32", {2, 2}, std::vector<int32_t>(4, 3));
  file.add("m.scales", "F16", {2, 16}, hub::random_halves(32, 1));
  file.add("m.g_idx", "I32", {64}, std::vector<int32_t>(64, -1));
  return file;
}

hub::TensorFile compressed_file() {
  hub::TensorFile file;
  file.add("a.weight_packed", "I32", {8, 8}, std::vector<int32_t>(64, 9));
  file.add("a.weight_scale", "F16", {8, 2}, hub::random_halves(16, 1));
  file.add("a.weight_zero_point", "I32", {1, 2}, std::vector<int32_t>(2, 5));
  file.add("a.weight_shape", "I64", {2}, std::vector<int64_t>{8, 64});
  file.add("b.weight", "F8_E4M3", {4, 32}, std::vector<uint8_t>(128, 40));
  file.add("b.weight_scale", "F32", {4, 1}, std::vector<float>(4, 2));
  file.add("c.weight_packed", "U8", {2, 16}, std::vector<uint8_t>(32, 40));
  file.add("c.weight_scale", "F8_E4M3", {2, 2}, std::vector<uint8_t>(4, 40));
  file.add("c.weight_global_scale", "F32", {1}, std::vector<float>(1, 2));
  file.add("d.weight", "I8", {2, 32}, std::vector<int8_t>(64, -3));
  file.add("d.weight_scale", "F16", {2, 1}, hub::random_halves(2, 1));
  return file;
}

constexpr auto kAwq =
    R"({"model_type":"llama","quantization_config":{"quant_method":"awq",
        "bits":4,"group_size":32}})";
constexpr auto kGptq =
    R"({"model_type":"llama","quantization_config":{"quant_method":"gptq",
        "bits":4,"group_size":32,"checkpoint_format":"gptq"}})";
constexpr auto kCompressed =
    R"({"model_type":"llama","quantization_config":{
        "quant_method":"compressed-tensors","format":"mixed-precision",
        "config_groups":{"a":{"weights":{"num_bits":4,"group_size":32}},
        "b":{"weights":{"num_bits":8,"type":"float",
                        "block_structure":[128,128]}},
        "d":{"weights":{"num_bits":8,"strategy":"channel"}}}}})";

}  // namespace

std::vector<MutationFormat> packed_mutation_formats(
    const TemporaryFolder& folder) {
  std::vector<MutationFormat> formats;
  for (const char* architecture : {"gemma3", "phi3"}) {
    auto name = std::string("types_") + architecture + ".gguf";
    formats.push_back(
        {"gguf_" + std::string(architecture),
         gguf_of_all_types(architecture),
         3000,
         [=, &folder](const auto& content) {
           load_all(folder.write(name, content));
         }});
  }
  struct Kind {
    const char* name;
    const char* config;
    std::string file;
  };
  for (const Kind& kind :
       {Kind{"awq", kAwq, awq_file().build()},
        Kind{"gptq", kGptq, gptq_file().build()},
        Kind{"compressed", kCompressed, compressed_file().build()}}) {
    std::string name = kind.name, config = kind.config, file = kind.file;
    formats.push_back({name, file, 1200, [=, &folder](const auto& content) {
                         folder.write(name + "/config.json", config);
                         load_all(
                             folder.write(name + "/model.safetensors", content)
                                 .parent_path());
                       }});
    formats.push_back(
        {name + "_config", config, 0, [=, &folder](const auto& content) {
           folder.write(name + "_c/model.safetensors", file);
           load_all(
               folder.write(name + "_c/config.json", content).parent_path());
         }});
  }
  return formats;
}

}  // namespace mlxx

// lora_driver REQUEST OUT: what training computes, for a comparison with
// mlx-lm. REQUEST is JSON: "model" (a folder), "dora", "rank", "scale", "keys",
// "num_layers", "seed", "tokens" (rows), "values" (a file, or ""). OUT is a
// safetensors file: "initial/NAME", then with the values of that file "logits"
// and "gradient/NAME" of the mean of the squared logits. "save": a folder for
// those values in mlx-lm's layout.
#include <cstdio>

#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/core/autograd.h"
#include "mlxx/core/safetensors_writer.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/train/save_trained.h"

namespace mlxx {
namespace {

std::vector<mx::array> values_from(
    const std::string& path,
    const std::vector<std::string>& names) {
  SafetensorsFile file(path);
  std::vector<mx::array> values;
  for (const std::string& name : names) {
    values.push_back(file.load(*file.find(name)));
  }
  return values;
}

void run(const std::string& request_path, const std::string& out) {
  Json request = parse_json(read_file(request_path, 1 << 24), "request");
  auto checkpoint =
      hub::open_checkpoint(request.at("model").get<std::string>());
  auto model = models::load_model(*checkpoint);
  train::LoraOptions options;
  options.dora = request.at("dora").get<bool>();
  options.rank = request.at("rank").get<int>();
  options.scale = request.at("scale").get<double>();
  options.keys = request.at("keys").get<std::vector<std::string>>();
  options.num_layers = request.at("num_layers").get<int>();
  options.seed = request.at("seed").get<uint64_t>();
  train::LoraAdapters adapters(model, options);
  SafetensorsArrays results;
  for (size_t i = 0; i < adapters.names().size(); ++i) {
    results.emplace_back(
        "initial/" + adapters.names()[i],
        adapters.values()[i]);
  }
  auto path = request.at("values").get<std::string>();
  if (!path.empty()) {
    adapters.set_values(values_from(path, adapters.names()));
    std::vector<int32_t> ids;
    int rows = 0;
    for (const Json& row : request.at("tokens")) {
      auto more = row.get<std::vector<int32_t>>();
      ids.insert(ids.end(), more.begin(), more.end());
      ++rows;
    }
    mx::array tokens(
        ids.data(),
        {rows, static_cast<int>(ids.size()) / rows},
        mx::int32);
    std::vector<size_t> indices;
    std::vector<int> numbers;
    for (size_t i = 0; i < adapters.names().size(); ++i) {
      indices.push_back(i);
      numbers.push_back(static_cast<int>(i));
    }
    std::optional<mx::array> logits;
    auto loss = [&](const std::vector<mx::array>& values) {
      models::CacheOptions cache_options;
      cache_options.per_layer = true;
      auto caches = model->make_cache(cache_options);
      adapters.with(indices, values, [&] {
        logits = model->forward(tokens, caches);
      });
      return std::vector<mx::array>{
          mx::mean(mx::square(mx::astype(*logits, mx::float32)))};
    };
    auto found = ValueAndGrad(loss, numbers).apply(adapters.values());
    loss(adapters.values());
    results.emplace_back("logits", *logits);
    for (size_t i = 0; i < indices.size(); ++i) {
      results.emplace_back(
          "gradient/" + adapters.names()[i],
          found.gradients[i]);
    }
  }
  write_safetensors(out, results);
  train::save_adapters(
      adapters,
      request.at("save").get<std::string>(),
      train::AdapterLayout::mlx,
      "tiny");
}

}  // namespace
}  // namespace mlxx

int main(int count, char** arguments) {
  if (count != 3) {
    std::fputs("usage: lora_driver REQUEST OUT\n", stderr);
    return 2;
  }
  try {
    mlxx::run(arguments[1], arguments[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

// Applies mlxx's filters and processors to logits from a file, for
// sampling_oracle.py: filter_logits CASES.json IN.safetensors OUT.safetensors

#include <cstdio>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/generate/logits_processors.h"
#include "mlxx/generate/sampler.h"

namespace {

using namespace mlxx;

generate::SamplingOptions read_options(const Json& given) {
  generate::SamplingOptions options;
  JsonView view(given, "options");
  auto number = [&](const char* key, float& value) {
    value = static_cast<float>(view.number_or(key, value));
  };
  auto integer = [&](const char* key, int& value) {
    value = static_cast<int>(view.integer_or(key, value, 0, INT32_MAX));
  };
  number("top_p", options.top_p);
  number("min_p", options.min_p);
  integer("min_tokens_to_keep", options.min_tokens_to_keep);
  integer("top_k", options.top_k);
  number("xtc_probability", options.xtc_probability);
  number("xtc_threshold", options.xtc_threshold);
  number("repetition_penalty", options.repetition_penalty);
  integer("repetition_context_size", options.repetition_context_size);
  number("presence_penalty", options.presence_penalty);
  number("frequency_penalty", options.frequency_penalty);
  integer("penalty_context_size", options.penalty_context_size);
  if (given.contains("xtc_special_tokens")) {
    options.xtc_special_tokens =
        given.at("xtc_special_tokens").get<std::vector<int32_t>>();
  }
  if (given.contains("logit_bias")) {
    for (const auto& [id, bias] : given.at("logit_bias").items()) {
      options.logit_bias[std::stoi(id)] = bias.get<float>();
    }
  }
  generate::validate(options, 0);
  return options;
}

void run(const char* cases, const char* input, const char* output) {
  auto arrays = mx::load_safetensors(input).first;
  std::unordered_map<std::string, mx::array> results;
  for (const Json& given : parse_json(read_file(cases), cases)) {
    auto options = read_options(given.at("options"));
    auto name = given.at("name").get<std::string>();
    auto logits = arrays.at(given.at("logits").get<std::string>());
    if (given.contains("tokens")) {
      auto tokens = arrays.at(given.at("tokens").get<std::string>());
      results.emplace(
          name,
          generate::LogitsProcessors(options).apply(logits, tokens));
    } else {
      std::vector<generate::SampleKey> keys(
          static_cast<size_t>(logits.shape(0)),
          {1, 0});
      results.emplace(name, generate::Sampler(options).filter(logits, keys));
    }
  }
  mx::save_safetensors(output, results);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: filter_logits CASES.json IN OUT\n");
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

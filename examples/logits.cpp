// The five likeliest tokens after a text, with their probabilities.
//   logits MODEL "The capital of France is"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <numeric>
#include <vector>

#include <mlxx/core/mlx.h>
#include <mlxx/generate/pipeline.h>
#include <mlxx/hub/resolve.h>

int main(int argc, char** argv) {
  namespace mx = mlx::core;
  if (argc != 3) {
    std::fprintf(stderr, "use: %s MODEL TEXT\n", argv[0]);
    return 2;
  }
  try {
    auto path = mlxx::hub::resolve_model(argv[1]);
    auto pipeline =
        mlxx::generate::load_pipeline(mlxx::hub::open_checkpoint(path));
    auto tokens = mlxx::generate::encode_raw_prompt(pipeline, argv[2]);
    if (tokens.empty()) {
      std::fprintf(stderr, "the text has no tokens\n");
      return 2;
    }

    auto cache = pipeline.model->make_cache({});
    mx::array ids(
        tokens.data(),
        {1, static_cast<int>(tokens.size())},
        mx::int32);
    mx::array logits = pipeline.model->forward_last(ids, cache);  // [1, V]
    mx::array probabilities =
        mx::softmax(mx::astype(mx::flatten(logits), mx::float32), -1);
    probabilities.eval();

    const float* p = probabilities.data<float>();
    std::vector<int> order(probabilities.size());
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(
        order.begin(),
        order.begin() + 5,
        order.end(),
        [&](int a, int b) { return p[a] > p[b]; });
    for (int i = 0; i < 5; ++i) {
      std::string text = pipeline.tokenizer->decode({{order[i]}});
      std::printf("%6.2f %%  %s\n", 100 * p[order[i]], text.c_str());
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

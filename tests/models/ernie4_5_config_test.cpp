// What ERNIE 4.5's reader makes of keys that mlx-lm demands or ignores, so that
// no comparison with it shows them.
#include <gtest/gtest.h>

#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

Json tiny() {
  return parse_json(find_model("ernie4_5").tiny_config, "tiny");
}

mx::array logits_of(const Json& changes) {
  auto checkpoint = random_checkpoint(tiny());
  checkpoint.mutable_config().merge_patch(changes);
  auto model = load_model(checkpoint);
  int ids[] = {1, 2, 3, 4, 5, 6, 7, 8};
  auto cache = model->make_cache({});
  return model->forward(mx::array(ids, {1, 8}, mx::int32), cache);
}

TEST(Ernie45Config, RotatesWithTheBaseOfTransformersIfNoneIsGiven) {
  mx::array absent = logits_of({{"rope_theta", nullptr}});
  EXPECT_TRUE(same_bits(absent, logits_of({{"rope_theta", 500000.0}})));
  EXPECT_GT(relative_error(absent, logits_of(Json::object())), 1e-4);
}

TEST(Ernie45Config, ScalesPositionsInBothSpellings) {
  Json scaling = {{"rope_type", "linear"}, {"factor", 2.0}};
  mx::array old_keys = logits_of({{"rope_scaling", scaling}});
  scaling["rope_theta"] = 10000.0;
  mx::array new_keys =
      logits_of({{"rope_theta", nullptr}, {"rope_parameters", scaling}});
  EXPECT_TRUE(same_bits(old_keys, new_keys));
  EXPECT_GT(relative_error(old_keys, logits_of(Json::object())), 1e-4);
}

TEST(Ernie45Config, HasNoBiasesUnlessTheyAreAskedFor) {
  Json config = tiny();
  auto count = [](const Json& keys) {
    FakeCheckpoint checkpoint(keys);
    return find_model("ernie4_5").make(checkpoint)->summary().parameters;
  };
  int64_t with = count(config);
  config.erase("use_bias");
  // Of q, k, v, o and gate, up, down, in two layers.
  EXPECT_EQ(with - count(config), 2 * (128 + 64 + 64 + 64 + 96 + 96 + 64));
}

TEST(Ernie45Config, RefusesWhatItDoesNotComputeByName) {
  struct Case {
    const char* key;
    Json value;
    ErrorKind kind;
  };
  for (const Case& c :
       {Case{"use_bias", "yes", ErrorKind::bad_file},
        Case{"hidden_act", "gelu", ErrorKind::unsupported}}) {
    Json config = tiny();
    config[c.key] = c.value;
    FakeCheckpoint checkpoint(config);
    try {
      find_model("ernie4_5").make(checkpoint);
      ADD_FAILURE() << c.key << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), c.kind) << error.what();
      EXPECT_NE(std::string_view(error.what()).find(c.key), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace mlxx::models

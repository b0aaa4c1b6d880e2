#include <cstdlib>
#include <map>

#include "mlxx/hub/hub_settings.h"
#include "tests/hub_net/hub_test.h"

// The variables that huggingface_hub reads mean the same here.

namespace mlxx::hub {

namespace {

class HubSettingsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) {
      const char* value = std::getenv(name);
      if (value) {
        before_[name] = value;
      }
      unsetenv(name);
    }
    set("HOME", folder_.path().string());
  }
  void TearDown() override {
    for (const char* name : kNames) {
      unsetenv(name);
    }
    for (const auto& [name, value] : before_) {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }

  static void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
  }

  static constexpr const char* kNames[] = {
      "HOME",
      "XDG_CACHE_HOME",
      "HF_ENDPOINT",
      "HF_HOME",
      "HF_HUB_CACHE",
      "HUGGINGFACE_HUB_CACHE",
      "HF_TOKEN",
      "HUGGING_FACE_HUB_TOKEN",
      "HF_TOKEN_PATH",
      "HF_HUB_DISABLE_IMPLICIT_TOKEN",
      "HF_HUB_OFFLINE",
      "TRANSFORMERS_OFFLINE",
      "HF_HUB_DOWNLOAD_TIMEOUT"};
  TemporaryFolder folder_;
  std::map<std::string, std::string> before_;
};

TEST_F(HubSettingsTest, Defaults) {
  auto settings = hub_settings();
  EXPECT_EQ(settings.endpoint, "https://huggingface.co");
  EXPECT_EQ(settings.cache, folder_.path() / ".cache/huggingface/hub");
  EXPECT_EQ(settings.token, "");
  EXPECT_FALSE(settings.offline);
}

TEST_F(HubSettingsTest, CacheFollowsItsVariables) {
  set("XDG_CACHE_HOME", "/xdg");
  EXPECT_EQ(hugging_face_cache(), "/xdg/huggingface/hub");
  set("HF_HOME", "~/hf");
  EXPECT_EQ(hugging_face_cache(), folder_.path() / "hf/hub");
  set("HUGGINGFACE_HUB_CACHE", "/old");
  EXPECT_EQ(hugging_face_cache(), "/old");
  set("HF_HUB_CACHE", "$HF_HOME/x-${HUGGINGFACE_HUB_CACHE}-$NO_SUCH_NAME$");
  EXPECT_EQ(hugging_face_cache(), "~/hf/x-/old-$NO_SUCH_NAME$");
}

TEST_F(HubSettingsTest, TokenFromFileAndVariables) {
  write_content(folder_.path() / ".cache/huggingface/token", "hf_file\n");
  EXPECT_EQ(hub_settings().token, "hf_file");
  write_content(folder_.path() / "other", " hf_other \n");
  set("HF_TOKEN_PATH", (folder_.path() / "other").string());
  EXPECT_EQ(hub_settings().token, "hf_other");
  set("HUGGING_FACE_HUB_TOKEN", "hf_old");
  EXPECT_EQ(hub_settings().token, "hf_old");
  set("HF_TOKEN", "hf_new");
  EXPECT_EQ(hub_settings().token, "hf_new");
  set("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
  EXPECT_EQ(hub_settings().token, "");
}

TEST_F(HubSettingsTest, TokenCannotAddHeaders) {
  for (const char* token : {"a\r\nX-Evil: 1", "a b", "a\xc3\xa9", "a\x7f"}) {
    set("HF_TOKEN", token);
    Error error = error_of([] { hub_settings(); });
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    // Nor is it shown.
    EXPECT_EQ(std::string(error.what()).find("Evil"), std::string::npos);
  }
}

TEST_F(HubSettingsTest, EndpointLosesItsSlash) {
  set("HF_ENDPOINT", "http://localhost:8080/hub//");
  EXPECT_EQ(hub_settings().endpoint, "http://localhost:8080/hub");
}

TEST_F(HubSettingsTest, BadValuesNameTheirVariable) {
  for (auto [name, value] :
       {std::pair{"HF_ENDPOINT", "huggingface.co"},
        std::pair{"HF_ENDPOINT", "file:///etc"},
        std::pair{"HF_HUB_DOWNLOAD_TIMEOUT", "0"},
        std::pair{"HF_HUB_DOWNLOAD_TIMEOUT", "10s"}}) {
    set(name, value);
    Error error = error_of([] { hub_settings(); });
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    EXPECT_TRUE(
        std::string(error.what()).starts_with(std::string("[") + name + "]"));
    unsetenv(name);
  }
}

TEST_F(HubSettingsTest, OfflineFlags) {
  for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}) {
    for (const char* value : {"1", "on", "Yes", "TRUE"}) {
      set(name, value);
      EXPECT_TRUE(hub_settings().offline) << name << value;
    }
    set(name, "0");
    EXPECT_FALSE(hub_settings().offline);
    unsetenv(name);
  }
}

}  // namespace

}  // namespace mlxx::hub

#include <algorithm>

#include "mlxx/hub/cached_models.h"
#include "mlxx/hub/lock_file.h"
#include "mlxx/hub/removal.h"
#include "mlxx/hub/resolve.h"
#include "tests/hub_net/hub_test.h"

// What is on this machine: resolving names, listing, deleting.

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

class CachedModelsTest : public HubTest {
 protected:
  void SetUp() override {
    setenv("MLXX_HOME", (folder_.path() / "home").c_str(), 1);
    setenv("HF_HUB_CACHE", (folder_.path() / "hub").c_str(), 1);
    serve_repo();
  }
  void TearDown() override {
    unsetenv("MLXX_HOME");
    unsetenv("HF_HUB_CACHE");
  }

  // As huggingface_hub leaves it.
  void add_snapshot(
      const std::string& repo,
      const std::string& commit,
      const std::string& ref,
      const std::vector<FakeFile>& files) {
    RepoCache repo_cache(settings_.cache, repo);
    repo_cache.make_folders();
    for (const FakeFile& file : files) {
      std::string hash = sha256_of(file.content);
      write_content(repo_cache.blob(hash), file.content);
      repo_cache.link(commit, file.name, hash);
    }
    if (!ref.empty()) {
      repo_cache.write_ref(ref, commit);
    }
  }

  void add_smollm2() {
    const CatalogueEntry& entry = *find_in_catalogue("smollm2");
    fs::path path = catalogue_path(entry);
    write_content(path, "");
    fs::resize_file(path, entry.member_bytes);  // sparse
    write_catalogue_note(entry, path.parent_path());
  }

  static constexpr const char* kOld =
      "1111111111111111111111111111111111111111";
  static constexpr const char* kNew =
      "2222222222222222222222222222222222222222";
};

TEST_F(CachedModelsTest, ResolvesWhatWasPulled) {
  auto pulled = pull();
  EXPECT_EQ(resolve_model("org/tiny"), pulled.path);
  EXPECT_EQ(resolve_model("org/tiny@main"), pulled.path);
  EXPECT_EQ(resolve_model("org/tiny@" + repo_.commit), pulled.path);
  EXPECT_EQ(
      resolve_model("org/tiny@" + repo_.commit.substr(0, 7)),
      pulled.path);
}

TEST_F(CachedModelsTest, ResolvesGgufInASnapshot) {
  add_snapshot("org/one", kNew, "main", {{"m.Q4_1.gguf", "q4"}});
  EXPECT_EQ(resolve_model("org/one").filename(), "m.Q4_1.gguf");
  add_snapshot(
      "org/two",
      kNew,
      "main",
      {{"m.Q4_1.gguf", "q4"}, {"sub/m.Q8_0.gguf", "q8"}});
  EXPECT_EQ(resolve_model("org/two:q8_0").filename(), "m.Q8_0.gguf");
  EXPECT_EQ(resolve_model("org/two:m.Q4_1.gguf").filename(), "m.Q4_1.gguf");
  EXPECT_EQ(
      error_of([] { resolve_model("org/two"); }).kind(),
      ErrorKind::invalid_request);
}

TEST_F(CachedModelsTest, MissingModelsSayHowToGetThem) {
  EXPECT_STREQ(
      error_of([] { resolve_model("smollm2"); }).what(),
      "[smollm2] is not on this machine yet; get it with: mlxx pull smollm2");
  EXPECT_STREQ(
      error_of([] { resolve_model("org/none"); }).what(),
      "[org/none] is not on this machine; get it with: mlxx pull org/none");
  pull();
  std::string text = error_of([] { resolve_model("org/tiny@v2"); }).what();
  EXPECT_NE(text.find("revisions that are here: main"), std::string::npos)
      << text;
}

TEST_F(CachedModelsTest, NearMissesAreGuessed) {
  pull();
  auto says = [](const std::string& model, const std::string& guess) {
    std::string text = error_of([&] { resolve_model(model); }).what();
    EXPECT_NE(text.find("did you mean '" + guess + "'?"), std::string::npos)
        << text;
  };
  says("smolm2", "smollm2");
  says("SmolLM-2", "smollm2");
  says("org/tinny", "org/tiny");
  write_content(folder_.path() / "model.gguf", "GGUF");
  says(
      (folder_.path() / "modle.gguf").string(),
      (folder_.path() / "model.gguf").string());
  EXPECT_EQ(
      std::string(error_of([] { resolve_model("xyzzy"); }).what()),
      "[xyzzy] is no file, no folder and no known model; `mlxx list` shows "
      "what is here");
}

TEST_F(CachedModelsTest, PathsOfTheUserComeFirst) {
  write_content(folder_.path() / "org/tiny/config.json", "{}");
  fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  EXPECT_EQ(resolve_model("org/tiny"), "org/tiny");
  fs::current_path(before);
  EXPECT_EQ(
      error_of([] { resolve_model(""); }).kind(),
      ErrorKind::invalid_request);
  EXPECT_EQ(
      error_of([] { resolve_model("org/tiny@../../x"); }).kind(),
      ErrorKind::not_found);
}

TEST_F(CachedModelsTest, DamagedCatalogueModelIsSaid) {
  write_content(catalogue_path(*find_in_catalogue("smollm2")), "cut off");
  EXPECT_EQ(
      error_of([] { resolve_model("smollm2"); }).kind(),
      ErrorKind::bad_file);
  EXPECT_FALSE(cached_models().at(0).is_whole);
}

TEST_F(CachedModelsTest, RefsThatLeadAwayAreIgnored) {
  add_snapshot("org/tiny", kNew, "", {{"model.safetensors", "w"}});
  write_content(cache().folder() / "refs/main", "../../../elsewhere");
  EXPECT_EQ(
      error_of([] { resolve_model("org/tiny"); }).kind(),
      ErrorKind::not_found);
  write_content(cache().folder() / "refs/main", std::string(5000, 'a'));
  EXPECT_EQ(
      error_of([] { resolve_model("org/tiny"); }).kind(),
      ErrorKind::not_found);
}

TEST_F(CachedModelsTest, ListShowsCatalogueAndSnapshots) {
  add_smollm2();
  pull();
  add_snapshot("a/configs-only", kNew, "main", {{"config.json", "{}"}});
  write_content(settings_.cache / "datasets--a--b/refs/main", kNew);
  write_content(settings_.cache / "version.txt", "1");
  auto models = cached_models();
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].name, "smollm2");
  EXPECT_EQ(models[0].format, "gguf");
  EXPECT_TRUE(models[0].is_whole);
  EXPECT_GE(models[0].bytes, find_in_catalogue("smollm2")->member_bytes);
  EXPECT_EQ(models[1].name, "org/tiny");
  EXPECT_EQ(models[1].revision, repo_.commit);
  EXPECT_EQ(models[1].refs, std::vector<std::string>{"main"});
  EXPECT_EQ(models[1].format, "safetensors");
  EXPECT_GT(models[1].bytes, 200000u);
}

TEST_F(CachedModelsTest, ListIsEmptyWhereNothingIs) {
  EXPECT_TRUE(cached_models().empty());
}

TEST_F(CachedModelsTest, RemovingARepoRemovesItsFolderOnly) {
  pull();
  add_snapshot("org/other", kNew, "main", {{"model.safetensors", "w"}});
  auto plan = plan_removal("org/tiny");
  EXPECT_EQ(plan.paths, std::vector<fs::path>{cache().folder()});
  EXPECT_GT(plan.bytes, 200000u);
  EXPECT_TRUE(fs::exists(cache().folder())) << "planning deleted something";
  execute_removal(plan);
  EXPECT_FALSE(fs::exists(cache().folder()));
  EXPECT_TRUE(fs::exists(settings_.cache / "models--org--other"));
}

TEST_F(CachedModelsTest, RemovingARevisionKeepsSharedBlobs) {
  add_snapshot(
      "org/tiny",
      kOld,
      "v1",
      {{"config.json", "{}"}, {"model.safetensors", "old weights"}});
  add_snapshot(
      "org/tiny",
      kNew,
      "main",
      {{"config.json", "{}"}, {"model.safetensors", "new weights"}});
  auto plan = plan_removal("org/tiny@v1");
  EXPECT_EQ(plan.bytes, std::string("old weights").size());
  execute_removal(plan);
  EXPECT_FALSE(fs::exists(cache().snapshot(kOld)));
  EXPECT_FALSE(fs::exists(cache().folder() / "refs/v1"));
  EXPECT_FALSE(fs::exists(cache().blob(sha256_of("old weights"))));
  EXPECT_EQ(content_of(cache().snapshot(kNew) / "config.json"), "{}");
  EXPECT_EQ(
      content_of(cache().snapshot(kNew) / "model.safetensors"),
      "new weights");
  // The last one takes the repository with it.
  execute_removal(plan_removal("org/tiny@main"));
  EXPECT_FALSE(fs::exists(cache().folder()));
}

TEST_F(CachedModelsTest, RemovingFollowsNoLinks) {
  fs::path precious = folder_.path() / "precious";
  write_content(precious / "file", "x");
  add_snapshot("org/tiny", kOld, "v1", {{"model.safetensors", "a"}});
  add_snapshot("org/tiny", kNew, "main", {{"model.safetensors", "b"}});
  // A snapshot whose links lead out of the repository.
  fs::create_symlink(precious / "file", cache().snapshot(kOld) / "evil");
  fs::create_directory_symlink(precious, cache().snapshot(kOld) / "folder");
  execute_removal(plan_removal("org/tiny@v1"));
  execute_removal(plan_removal("org/tiny"));
  EXPECT_EQ(content_of(precious / "file"), "x");
  // A whole repository that is a link to another place is the user's.
  fs::create_directory_symlink(precious, cache().folder());
  EXPECT_EQ(
      error_of([] { plan_removal("org/tiny"); }).kind(),
      ErrorKind::invalid_request);
}

TEST_F(CachedModelsTest, RemovingTheCatalogueModel) {
  add_smollm2();
  execute_removal(plan_removal("smollm2"));
  EXPECT_FALSE(fs::exists(folder_.path() / "home/models/smollm2"));
  EXPECT_EQ(
      error_of([] { plan_removal("smollm2"); }).kind(),
      ErrorKind::not_found);
}

TEST_F(CachedModelsTest, PathsOfTheUserAreNotRemoved) {
  fs::path model = folder_.path() / "mine.gguf";
  write_content(model, "GGUF");
  EXPECT_EQ(
      error_of([&] { plan_removal(model.string()); }).kind(),
      ErrorKind::invalid_request);
  EXPECT_EQ(
      error_of([&] { plan_removal(folder_.path().string()); }).kind(),
      ErrorKind::invalid_request);
  EXPECT_EQ(
      error_of([&] { plan_removal("../" + model.string()); }).kind(),
      ErrorKind::not_found);
}

TEST_F(CachedModelsTest, UnknownModelsAreNotRemoved) {
  pull();
  std::string text = error_of([] { plan_removal("org/tinny"); }).what();
  EXPECT_NE(text.find("did you mean 'org/tiny'?"), std::string::npos) << text;
  EXPECT_EQ(
      error_of([] { plan_removal("org/tiny@v9"); }).kind(),
      ErrorKind::not_found);
}

TEST_F(CachedModelsTest, ModelBeingDownloadedIsNotRemoved) {
  pull();
  auto lock = LockFile::try_lock(cache().blob_lock(repo_.hash(kWeights)));
  ASSERT_TRUE(lock);
  auto plan = plan_removal("org/tiny");
  EXPECT_EQ(
      error_of([&] { execute_removal(plan); }).kind(),
      ErrorKind::invalid_request);
  EXPECT_TRUE(fs::exists(cache().folder()));
}

TEST_F(CachedModelsTest, PlansThatLeadOutAreNotExecuted) {
  fs::path victim = folder_.path() / "victim";
  write_content(victim, "x");
  RemovalPlan plan{
      .model = "org/tiny",
      .root = settings_.cache,
      .paths = {settings_.cache / "../victim"}};
  EXPECT_THROW(execute_removal(plan), Error);
  plan.paths = {settings_.cache};
  EXPECT_THROW(execute_removal(plan), Error);
  EXPECT_TRUE(fs::exists(victim));
}

}  // namespace

}  // namespace mlxx::hub

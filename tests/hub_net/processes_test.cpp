#include <array>
#include <chrono>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mlxx/hub/lock_file.h"
#include "tests/hub_net/hub_test.h"

// Pulls by several processes at once, by processes that die, and on a disk
// that is full.

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

class Child {
 public:
  explicit Child(const std::vector<std::string>& arguments) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) {
      throw std::runtime_error("no pipe");
    }
    std::vector<std::string> all = {MLXX_PULL_CHILD};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& argument : all) {
      pointers.push_back(argument.data());
    }
    pointers.push_back(nullptr);
    process_ = fork();
    if (process_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      execv(pointers[0], pointers.data());
      _exit(127);
    }
    close(ends[1]);
    output_ = ends[0];
    fcntl(output_, F_SETFD, FD_CLOEXEC);
  }

  void kill_now() const {
    kill(process_, SIGKILL);
  }

  // The exit code; what it wrote is in out() then.
  int wait() {
    std::array<char, 4096> block{};
    ssize_t count = 0;
    while ((count = read(output_, block.data(), block.size())) > 0) {
      out_.append(block.data(), static_cast<size_t>(count));
    }
    close(output_);
    int status = 0;
    waitpid(process_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  const std::string& out() const {
    return out_;
  }

 private:
  pid_t process_ = -1;
  int output_ = -1;
  std::string out_;
};

class ProcessesTest : public HubTest {
 protected:
  std::vector<std::string> arguments() const {
    return {settings_.endpoint, settings_.cache.string(), "org/tiny"};
  }

  // Weights come slowly: about a second in all.
  void serve_slowly() {
    repo_ = tiny_repo(400000);
    serve([this](const FakeRequest& request) {
      auto response = answer(repo_, request);
      if (request.path.ends_with(kWeights)) {
        response.milliseconds_per_block = 10;
      }
      return response;
    });
  }

  void wait_for_part() const {
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::error_code error;
    while (std::chrono::steady_clock::now() < end) {
      if (fs::file_size(part(kWeights), error) > 0 && !error) {
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    FAIL() << "no download has begun";
  }
};

TEST_F(ProcessesTest, TwoAtOnceDownloadOnce) {
  serve_slowly();
  Child first(arguments());
  Child second(arguments());
  EXPECT_EQ(first.wait(), 0) << first.out();
  EXPECT_EQ(second.wait(), 0) << second.out();
  EXPECT_EQ(requests_for(kWeights).size(), 1u);
  EXPECT_EQ(content_of(blob(kWeights)), repo_.find(kWeights)->content);
}

TEST_F(ProcessesTest, WaitingSaysForWhom) {
  serve_slowly();
  Child child(arguments());
  wait_for_part();
  std::string said;
  pull("org/tiny", {}, {.on_step = [&](std::string_view text) {
         said = text;
       }});
  EXPECT_EQ(child.wait(), 0);
  EXPECT_NE(said.find("is being downloaded by process "), std::string::npos)
      << said;
}

TEST_F(ProcessesTest, KilledOwnerLeavesLockAndPartToTheNext) {
  serve_slowly();
  Child child(arguments());
  wait_for_part();
  child.kill_now();
  EXPECT_EQ(child.wait(), 128 + SIGKILL);
  ASSERT_TRUE(fs::exists(cache().blob_lock(repo_.hash(kWeights))));
  pull();
  EXPECT_EQ(content_of(blob(kWeights)), repo_.find(kWeights)->content);
  EXPECT_GT(requests_for(kWeights).back().range_start(), 0u);
}

TEST_F(ProcessesTest, FullDiskKeepsThePart) {
  serve_repo();
  auto limited = arguments();
  limited.emplace_back("100000");
  Child child(limited);
  EXPECT_EQ(child.wait(), 1);
  EXPECT_NE(child.out().find("the disk is full"), std::string::npos)
      << child.out();
  EXPECT_EQ(fs::file_size(part(kWeights)), 100000u);
  EXPECT_FALSE(fs::exists(blob(kWeights)));
  // With room again it goes on from there.
  pull();
  EXPECT_EQ(requests_for(kWeights).back().range_start(), 100000u);
  EXPECT_EQ(content_of(blob(kWeights)), repo_.find(kWeights)->content);
}

class LockTest : public testing::TestWithParam<LockFile::Method> {
 protected:
  fs::path lock() const {
    return folder_.path() / "x.lock";
  }
  // As a process wrote it that had the lock.
  void write_owner(const std::string& text) const {
    write_content(lock().string() + ".owner", text);
  }
  static std::string this_host() {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    return name.data();
  }

  TemporaryFolder folder_;
};

TEST_P(LockTest, ExcludesOthersUntilReleased) {
  auto held = LockFile::try_lock(lock(), GetParam());
  ASSERT_TRUE(held);
  EXPECT_FALSE(LockFile::try_lock(lock(), GetParam()));
  EXPECT_EQ(
      lock_owner(lock()),
      "process " + std::to_string(getpid()) + " on " + this_host());
  held.reset();
  EXPECT_TRUE(LockFile::try_lock(lock(), GetParam()));
}

TEST_P(LockTest, WaitsForOthers) {
  auto held = LockFile::try_lock(lock(), GetParam());
  ASSERT_TRUE(held);
  int waits = 0;
  LockFile second(
      lock(),
      [&](std::string_view) {
        if (++waits == 2) {
          held.reset();
        }
      },
      GetParam());
  EXPECT_EQ(waits, 2);
}

TEST_P(LockTest, WaitingCanBeGivenUp) {
  auto held = LockFile::try_lock(lock(), GetParam());
  EXPECT_THROW(
      LockFile(
          lock(),
          [](std::string_view) { fail(ErrorKind::cancelled, "test", "stop"); },
          GetParam()),
      Error);
}

TEST_P(LockTest, MovedLockIsReleasedOnce) {
  auto held = LockFile::try_lock(lock(), GetParam());
  {
    LockFile moved = std::move(*held);
    held.reset();
    EXPECT_FALSE(LockFile::try_lock(lock(), GetParam()));
  }
  EXPECT_TRUE(LockFile::try_lock(lock(), GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    Methods,
    LockTest,
    testing::Values(LockFile::Method::automatic, LockFile::Method::owner_file));

class OwnerFileTest : public LockTest {};

TEST_P(OwnerFileTest, IsTakenFromAProcessThatIsGone) {
  // A process that has certainly ended.
  pid_t gone = fork();
  if (gone == 0) {
    _exit(0);
  }
  waitpid(gone, nullptr, 0);
  write_owner(std::to_string(gone) + " " + this_host() + " 1\n");
  EXPECT_TRUE(LockFile::try_lock(lock(), GetParam()));
}

TEST_P(OwnerFileTest, IsTakenFromAnEarlierProcessOfTheSameNumber) {
  write_owner(std::to_string(getpid()) + " " + this_host() + " 1\n");
  EXPECT_TRUE(LockFile::try_lock(lock(), GetParam()));
}

TEST_P(OwnerFileTest, IsNotTakenFromAnotherMachine) {
  write_owner("1 another-machine 1\n");
  EXPECT_FALSE(LockFile::try_lock(lock(), GetParam()));
  EXPECT_EQ(lock_owner(lock()), "process 1 on another-machine");
}

TEST_P(OwnerFileTest, IsNotTakenWhereItCannotBeRead) {
  write_owner("garbage");
  EXPECT_FALSE(LockFile::try_lock(lock(), GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    OwnerFile,
    OwnerFileTest,
    testing::Values(LockFile::Method::owner_file));

}  // namespace

}  // namespace mlxx::hub

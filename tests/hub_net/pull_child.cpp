#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <sys/resource.h>

#include "mlxx/hub/pull.h"

// pull_child ENDPOINT CACHE MODEL [MAX_FILE_BYTES]: a pull in a process of its
// own, for tests of what happens between processes. With a limit, files cannot
// grow beyond it, as on a full disk.

int main(int argc, char** argv) {
  if (argc < 4) {
    return 2;
  }
  if (argc > 4) {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = std::strtoull(argv[4], nullptr, 10);
    setrlimit(RLIMIT_FSIZE, &limit);
    // Then writing fails with EFBIG instead of ending the process.
    std::signal(SIGXFSZ, SIG_IGN);
  }
  mlxx::hub::HubSettings settings;
  settings.endpoint = argv[1];
  settings.cache = argv[2];
  settings.first_wait = std::chrono::milliseconds(1);
  try {
    auto pulled = mlxx::hub::pull_from_hub(
        *mlxx::hub::parse_repo_name(argv[3]),
        {},
        settings);
    std::printf(
        "%s\n%llu\n",
        pulled.path.c_str(),
        static_cast<unsigned long long>(pulled.downloaded));
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}

#include "apps/mlxx/wake_pipe.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "mlxx/base/error.h"

namespace mlxx::apps {

std::array<int, 2> open_wake_pipe(std::string_view place) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) {
    fail(
        ErrorKind::internal,
        place,
        "no pipe can be made, {}",
        std::strerror(errno));
  }
  for (int end : ends) {
    fcntl(end, F_SETFD, FD_CLOEXEC);
    fcntl(end, F_SETFL, O_NONBLOCK);
  }
  return ends;
}

}  // namespace mlxx::apps

// Where the time of a lazy graph goes, by kind of operation, and a trace for
// Xcode, which takes Metal and MTL_CAPTURE_ENABLED=1.

#include <cstdio>
#include <exception>

#include <mlxx/base/error.h>
#include <mlxx/core/capture.h>
#include <mlxx/core/profile.h>

namespace mx = mlx::core;

mx::array some_work() {
  mx::array x = mx::ones({256, 256});
  mx::eval(x);
  for (int i = 0; i < 3; ++i) {
    x = mx::tanh(mx::matmul(x, x));
  }
  return x;
}

int main(int argc, char** argv) try {
  mlxx::Profile profile = mlxx::profile({some_work()});
  int products = 0;
  for (const mlxx::OpTime& op : profile.ops) {
    products += op.name == "Matmul" ? op.count : 0;
    std::fprintf(
        stderr,
        "%-8s %3d times %8.3f ms\n",
        op.name.c_str(),
        op.count,
        1e3 * op.seconds);
  }
  std::printf("products: %d\n", products);

  bool ran = false;
  try {
    mlxx::metal_capture(argc > 1 ? argv[1] : "work.gputrace", [&] {
      ran = true;
      some_work().eval();
    });
    std::printf("recorded\n");
  } catch (const mlxx::Error& error) {
    std::printf("%s: %s\n", mlxx::to_string(error.kind()).data(), error.what());
    if (error.kind() != mlxx::ErrorKind::unsupported || ran) {
      return 1;  // it must be refused before anything runs
    }
  }
  return products == 3 && profile.seconds() > 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

// response_store_kill FILE FIRST: stores responses FIRST, FIRST + 1, ... of one
// conversation each ten, and prints a number when its response is stored, until
// it is killed.
#include <string>

#include <unistd.h>

#include <fmt/format.h>

#include "mlxx/api/response_store.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  mlxx::api::ResponseStoreOptions options;
  options.file = argv[1];
  mlxx::api::ResponseStore store(options);
  for (int64_t number = std::stoll(argv[2]);; ++number) {
    std::string name = std::to_string(number);
    mlxx::api::StoredResponse response;
    response.id = fmt::format("resp_{}", name);
    if (number % 10 != 0) {
      response.previous_id = fmt::format("resp_{}", number - 1);
    }
    // Some fill several pages.
    std::string text(static_cast<size_t>(number % 7) * 3000, 'a');
    response.response = text + name;
    response.input = name;
    store.put(response, 1'800'000'000 + number / 100);
    std::string line = name + "\n";
    if (::write(1, line.data(), line.size()) < 0) {
      return 1;
    }
  }
}

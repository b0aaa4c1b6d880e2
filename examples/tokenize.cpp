// Shows how a tokenizer splits a text.
//   tokenize tokenizer.json "some text"

#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>

#include <mlxx/text/tokenizer.h>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "use: %s tokenizer.json TEXT\n", argv[0]);
    return 2;
  }
  try {
    std::ifstream file(argv[1], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "%s cannot be read\n", argv[1]);
      return 1;
    }
    std::string json{std::istreambuf_iterator<char>(file), {}};
    auto tokenizer = mlxx::text::Tokenizer::from_json(json);
    auto tokens = tokenizer->encode(argv[2]);
    for (int32_t token : tokens) {
      std::printf("%7d  %s\n", token, tokenizer->id_to_token(token).c_str());
    }
    std::printf(
        "%zu tokens, %s\n",
        tokens.size(),
        tokenizer->decode(tokens) == argv[2] ? "decoded to the same text"
                                             : "decoded to another text");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

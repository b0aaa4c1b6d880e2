// Drives mlxx/text for the comparison with Hugging Face's libraries: one JSON
// request a line on stdin, one JSON answer a line on stdout.
//   {"op":"tokenizer","path"} (a tokenizer.json or a .gguf)
//   {"op":"template","source","bos","eos"}
//   {"op":"encode","text","add","parse"} {"op":"decode","ids","skip"}
//   {"op":"stream","ids","skip"} {"op":"render","context","now"}
//   {"op":"chat","messages","tools","options","encode"}
#include <chrono>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/text/chat_template.h"
#include "mlxx/text/stream_decoder.h"
#include "mlxx/text/tokenizer.h"

namespace {

using mlxx::OrderedJson;
using namespace mlxx::text;

class Driver {
 public:
  OrderedJson answer(const OrderedJson& request) {
    auto op = request.at("op").get<std::string>();
    if (op == "tokenizer") {
      auto path = request.at("path").get<std::string>();
      std::string json = path.ends_with(".gguf")
          ? mlxx::hub::open_checkpoint(path)->text().tokenizer_json
          : mlxx::read_file(path);
      auto begin = std::chrono::steady_clock::now();
      tokenizer_ = Tokenizer::from_json(json);
      std::chrono::duration<double> seconds =
          std::chrono::steady_clock::now() - begin;
      return {
          {"vocab_size", tokenizer_->vocab_size()},
          {"seconds", seconds.count()}};
    }
    if (op == "template") {
      template_ = ChatTemplate::compile(
          request.at("source").get<std::string>(),
          request.at("bos").get<std::string>(),
          request.at("eos").get<std::string>());
      return OrderedJson::object();
    }
    if (op == "encode") {
      EncodeOptions options;
      options.add_special_tokens = request.at("add").get<bool>();
      options.parse_special = request.at("parse").get<bool>();
      auto text = request.at("text").get<std::string>();
      auto begin = std::chrono::steady_clock::now();
      auto ids = tokenizer_->encode(text, options);
      std::chrono::duration<double> seconds =
          std::chrono::steady_clock::now() - begin;
      return {{"ids", ids}, {"seconds", seconds.count()}};
    }
    if (op == "decode") {
      return {
          {"text",
           tokenizer_->decode(
               request.at("ids").get<std::vector<int32_t>>(),
               request.at("skip").get<bool>())}};
    }
    if (op == "stream") {
      StreamDecoder decoder(tokenizer_, request.at("skip").get<bool>());
      std::vector<std::string> pieces;
      for (int32_t id : request.at("ids").get<std::vector<int32_t>>()) {
        pieces.push_back(decoder.step(id));
      }
      pieces.push_back(decoder.flush());
      return {{"pieces", pieces}};
    }
    if (op == "render") {
      return {
          {"text",
           template_->render_context(
               request.at("context"),
               request.at("now").get<int64_t>())}};
    }
    if (op == "chat") {
      const OrderedJson& given = request.at("options");
      RenderOptions options;
      options.add_generation_prompt =
          given.value("add_generation_prompt", true);
      options.continue_final_message =
          given.value("continue_final_message", false);
      const OrderedJson& messages = request.at("messages");
      const OrderedJson& tools = request.at("tools");
      if (request.at("encode").get<bool>()) {
        return {
            {"ids", template_->encode(*tokenizer_, messages, tools, options)}};
      }
      return {{"text", template_->render(messages, tools, options)}};
    }
    return {{"error", "unknown op"}, {"kind", "driver"}};
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> template_;
};

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  Driver driver;
  std::string line;
  while (std::getline(std::cin, line)) {
    OrderedJson out;
    try {
      out = driver.answer(OrderedJson::parse(line));
    } catch (const mlxx::Error& error) {
      out = {{"error", error.what()}, {"kind", mlxx::to_string(error.kind())}};
    }
    std::cout << out.dump() << std::endl;
  }
}

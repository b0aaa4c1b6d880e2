#pragma once

#include <map>
#include <memory>
#include <string>

#include "mlxx/base/json.h"

namespace mlxx::api {

// The list of messages that a template takes, grown from the blocks or items
// of protocols that have reasoning, texts, calls and results as parts of their
// own. What an assistant says and calls in a row is one message.
class ConversationList {
 public:
  ConversationList();
  ~ConversationList();
  ConversationList(const ConversationList&) = delete;
  ConversationList& operator=(const ConversationList&) = delete;

  // `role`: user, assistant, system. With `join` it goes on in a message of
  // that role that came just before; of the assistant and the system always.
  void add_text(const std::string& role, const std::string& text, bool join);
  void add_reasoning(const std::string& text);
  // `arguments` is JSON text, if the model wrote such.
  void add_call(
      const std::string& id,
      const std::string& name,
      const std::string& arguments);
  // Brings the name of the call of that id, which some templates print.
  void add_result(const std::string& id, const std::string& text);

  const OrderedJson& messages() const;
  // The last message is an assistant's without calls: an answer can go on from
  // it. An empty one is removed, and is none.
  bool ends_open();
  bool ends_in_call() const;

 private:
  OrderedJson& message(const std::string& role, bool join);

  std::unique_ptr<OrderedJson> messages_;
  std::map<std::string, std::string> names_;  // of the calls, by id
};

}  // namespace mlxx::api

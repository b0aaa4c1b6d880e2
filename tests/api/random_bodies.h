#pragma once

#include <functional>
#include <random>
#include <string>

#include <nlohmann/json.hpp>

#include "mlxx/api/answer.h"
#include "mlxx/api/fields.h"

namespace mlxx::api {

// Any value, small.
inline OrderedJson random_value(std::mt19937& random, int depth) {
  switch (random() % (depth > 0 ? 12 : 9)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<int64_t>(random() % 5) - 2;
    case 3:
      return 0.5;
    case 4:
      return int64_t{1} << 62;
    case 5:
      return "";
    case 6:
      return "text";
    case 7:
      return OrderedJson::array();
    case 8:
      return OrderedJson::object();
    case 9:
    case 10:
      return OrderedJson::array(
          {random_value(random, depth - 1), random_value(random, depth - 1)});
    default:
      return {
          {"type", random_value(random, depth - 1)},
          {"name", random_value(random, depth - 1)}};
  }
}

// Puts random values in random places of `json`, or takes something out.
inline void damage(OrderedJson& json, std::mt19937& random) {
  if (json.is_structured() && !json.empty() && random() % 8 != 0) {
    auto it = json.begin();
    std::advance(it, random() % json.size());
    if (random() % 16 == 0) {
      json.erase(it);
    } else {
      damage(*it, random);
    }
    return;
  }
  json = random_value(random, 2);
}

// Reads the examples of a table, damaged at random. The first body that was
// answered with something else than RequestError; "" if there is none.
inline std::string random_bodies_crash(
    const FieldTable& table,
    const std::function<void(const OrderedJson&)>& read) {
  std::mt19937 random(11);
  for (int round = 0; round < 6; ++round) {
    for (const Field& field : table.fields) {
      for (std::string_view example : {field.example, field.refused_example}) {
        if (example.empty()) {
          continue;
        }
        OrderedJson body = OrderedJson::parse(table.minimal);
        const size_t end = field.path.find_first_of(".[");
        body[std::string(field.path.substr(0, end))] =
            OrderedJson::parse(example);
        if (round > 0) {
          damage(body, random);
        }
        try {
          read(body);
        } catch (const RequestError&) {
        } catch (const std::exception& error) {
          return body.dump() + ": " + error.what();
        }
      }
    }
  }
  return "";
}

}  // namespace mlxx::api
